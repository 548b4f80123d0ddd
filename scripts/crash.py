"""Kill a process that writes to a store, again and again, and check that no acknowledged entry is lost.

    python scripts/crash.py --store sqlite --kills 200

A child appends to eight sessions at once and records each append and each acknowledgement in a separate file. After
a random time it is killed with SIGKILL. The store must then contain every acknowledged entry in its place, without gaps
and without parts of an append; appends in progress are repeated and must be stored exactly once. With --lie, the
negative control, the child records acknowledgements before it appends: the script must find a loss, and stops there.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import NotFound
from bartack.store import SessionStore, Tail, next_entries, open_store
from bartack.store.maintenance import check

TASKS = 8
KILLS_PER_SESSION = 20  # then new sessions are started, so that checking them stays fast


class Note(msgspec.Struct):
    """One line of the child's record: an append in progress (`entries`), or an acknowledgement."""

    session_id: str
    seq: int  # of the append's last entry
    entries: list[str] | None = None


# -- the child


async def write_forever(address: str, notes: Path, prefix: str, *, lie: bool) -> None:
    store = await open_store(address)
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(session_id: str, seq: int, entries: Sequence[Entry] | None = None) -> None:
        texts = None if entries is None else [wire.encode(entry).decode() for entry in entries]
        os.write(descriptor, msgspec.json.encode(Note(session_id, seq, texts)) + b"\n")

    async def write(session_id: str) -> None:
        tail = await _tail(store, session_id)
        for number in range(1_000_000):
            entries = batch(session_id, tail, number, store.environment)
            note(session_id, entries[-1].seq, entries)
            if lie:
                note(session_id, entries[-1].seq)
            tail = await store.append(session_id, entries, tail.entry_id)
            note(session_id, tail.seq)

    await asyncio.gather(*(write(f"{prefix}-{number}") for number in range(TASKS)))


async def _tail(store: SessionStore, session_id: str) -> Tail:
    try:
        return await store.tail_of(session_id)
    except NotFound:
        header = await store.create_session(session_id)
        return Tail(header.id, 1)


def batch(session_id: str, tail: Tail, number: int, environment: Environment) -> tuple[Entry, ...]:
    """One to three entries, each numbered within its append."""
    size = number % 3 + 1
    facts = [Custom("part", {"of": size, "is": index, "pad": "x" * (number % 7) * 300}) for index in range(size)]
    return next_entries(session_id, tail, facts, environment)


# -- checking


def read_notes(notes: Path) -> Iterator[Note]:
    lines = notes.read_bytes().split(b"\n")[:-1] if notes.exists() else []
    for line in lines:
        yield msgspec.json.decode(line, type=Note)


async def faults_after(address: str, notes: Path) -> tuple[list[str], int]:
    """The problems of the store, and the number of acknowledged entries."""
    tried: dict[str, list[Entry]] = {}
    acknowledged: dict[str, dict[int, str]] = {}
    for note in read_notes(notes):
        if note.entries is not None:
            tried[note.session_id] = [wire.decode(Entry, text) for text in note.entries]
            continue
        mine = acknowledged.setdefault(note.session_id, {})
        mine.update({entry.seq: entry.id for entry in tried[note.session_id]})
    store = await open_store(address)
    faults: list[str] = []
    for session_id, entries in tried.items():
        faults += await _faults_of(store, session_id, acknowledged.get(session_id, {}), entries)
    await store.close()
    return faults, sum(map(len, acknowledged.values()))


async def _faults_of(
    store: SessionStore, session_id: str, acknowledged: dict[int, str], last: list[Entry]
) -> list[str]:
    stored = {entry.seq: entry for entry in await store.entries(session_id)}
    faults = [
        f"{session_id}: entry {entry_id} (seq {seq}) was acknowledged but is lost"
        for seq, entry_id in acknowledged.items()
        if seq not in stored or stored[seq].id != entry_id
    ]
    final = stored[max(stored)].fact
    if isinstance(final, Custom) and final.data["is"] + 1 != final.data["of"]:
        faults.append(f"{session_id}: ends in the middle of an append")
    faults += [
        f"{session_id}: {finding.message}" for finding in await check(store, session_id) if finding.fault != "torn"
    ]
    if not faults:
        tail = await store.append(session_id, last, last[0].parent_id)  # the outcome was unknown: stored exactly once
        if len(await store.entries(session_id)) != tail.seq:
            faults.append(f"{session_id}: the append in progress was not stored exactly once")
    return faults


# -- the parent


def kill_once(address: str, folder: Path, prefix: str, chance: random.Random, *, lie: bool) -> tuple[list[str], int]:
    """Start a child, kill it after a while, and check the store."""
    notes = folder / "notes"
    notes.unlink(missing_ok=True)
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", address, str(notes), prefix, *(["--lie"] if lie else [])]
    )
    while not notes.exists() and child.poll() is None:
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 0.25))
    if child.poll() is not None:
        return [f"the child exited with status {child.returncode}"], 0
    child.send_signal(signal.SIGKILL)
    child.wait()
    return asyncio.run(faults_after(address, notes))


def address_of(kind: str, folder: Path) -> str:
    return {"sqlite": f"sqlite:{folder}/crash.db", "jsonl": f"jsonl:{folder}/crash"}[kind]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=["sqlite", "jsonl"], action="append", help="default: both")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lie", action="store_true", help="negative control: must exit with status 1")
    parser.add_argument("--child", nargs=3, metavar=("ADDRESS", "NOTES", "PREFIX"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        address, notes, prefix = options.child
        asyncio.run(write_forever(address, Path(notes), prefix, lie=options.lie))
        return 0
    failed = False
    for kind in options.store or ["sqlite", "jsonl"]:
        faults, entries = run_kills(kind, options.kills, options.seed, lie=options.lie)
        print(f"{kind}: {options.kills} kills, {entries} acknowledged entries, {len(faults)} faults", flush=True)
        for fault in faults[:20]:
            print(f"  {fault}")
        failed |= bool(faults)
    return int(failed)


def run_kills(kind: str, kills: int, seed: int, *, lie: bool) -> tuple[list[str], int]:
    chance = random.Random(seed)
    faults: list[str] = []
    entries = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        address = address_of(kind, folder)
        for number in range(kills):
            found, count = kill_once(address, folder, f"k{number // KILLS_PER_SESSION}", chance, lie=lie)
            faults += found
            entries += count
            if lie and faults:
                break
    return faults, entries


if __name__ == "__main__":
    sys.exit(main())
