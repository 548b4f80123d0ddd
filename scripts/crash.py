"""Kill the process that writes to a store, again and again, and look whether anything acknowledged is missing.

    python scripts/crash.py --store sqlite --kills 200

A child appends to eight sessions at once and notes, in a file of its own, what it is about to append and what was
acknowledged. After a random moment it is killed with SIGKILL. Then the store is opened and must hold every acknowledged
entry in its place, no gap, no part of an append; and what was under way is appended again and must land exactly once.
With --lie the child notes an acknowledgement before it appends: then this program must fail, or it proves nothing.
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
KILLS_PER_SESSION = 20  # then new sessions begin, so that looking at them stays quick


class Note(msgspec.Struct):
    """One line of what the child says: an append that it tries (`entries`), or one that was acknowledged."""

    session_id: str
    seq: int  # of the append's last entry
    entries: list[str] | None = None


# -- the child


async def write_forever(place: str, notes: Path, prefix: str, *, lie: bool) -> None:
    store = await open_store(place)
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
    """One to three entries that say which part of their append they are."""
    size = number % 3 + 1
    facts = [Custom("part", {"of": size, "is": place, "pad": "x" * (number % 7) * 300}) for place in range(size)]
    return next_entries(session_id, tail, facts, environment)


# -- looking


def read_notes(notes: Path) -> Iterator[Note]:
    lines = notes.read_bytes().split(b"\n")[:-1] if notes.exists() else []
    for line in lines:
        yield msgspec.json.decode(line, type=Note)


async def faults_after(place: str, notes: Path) -> tuple[list[str], int]:
    """What is wrong with the store, and how many acknowledged entries it was asked for."""
    tried: dict[str, list[Entry]] = {}
    acknowledged: dict[str, dict[int, str]] = {}
    for note in read_notes(notes):
        if note.entries is not None:
            tried[note.session_id] = [wire.decode(Entry, text) for text in note.entries]
            continue
        mine = acknowledged.setdefault(note.session_id, {})
        mine.update({entry.seq: entry.id for entry in tried[note.session_id]})
    store = await open_store(place)
    faults: list[str] = []
    for session_id, entries in tried.items():
        faults += await _faults_of(store, session_id, acknowledged.get(session_id, {}), entries)
    await store.close()
    return faults, sum(map(len, acknowledged.values()))


async def _faults_of(
    store: SessionStore, session_id: str, acknowledged: dict[int, str], last: list[Entry]
) -> list[str]:
    there = {entry.seq: entry for entry in await store.entries(session_id)}
    faults = [
        f"{session_id}: entry {entry_id} (seq {seq}) was acknowledged and is lost"
        for seq, entry_id in acknowledged.items()
        if seq not in there or there[seq].id != entry_id
    ]
    final = there[max(there)].fact
    if isinstance(final, Custom) and final.data["is"] + 1 != final.data["of"]:
        faults.append(f"{session_id}: ends in the middle of an append")
    faults += [
        f"{session_id}: {finding.message}" for finding in await check(store, session_id) if finding.fault != "torn"
    ]
    if not faults:
        tail = await store.append(session_id, last, last[0].parent_id)  # the outcome was unknown: it lands once
        if len(await store.entries(session_id)) != tail.seq:
            faults.append(f"{session_id}: the append that was under way did not land exactly once")
    return faults


# -- the parent


def kill_once(place: str, folder: Path, prefix: str, chance: random.Random, *, lie: bool) -> tuple[list[str], int]:
    """Start a child, kill it after a moment, and look."""
    notes = folder / "notes"
    notes.unlink(missing_ok=True)
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", place, str(notes), prefix, *(["--lie"] if lie else [])]
    )
    deadline = time.monotonic() + 30
    while not notes.exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 0.25))
    if child.poll() is not None:
        return [f"the child ended by itself with status {child.returncode}"], 0
    child.send_signal(signal.SIGKILL)
    child.wait()
    return asyncio.run(faults_after(place, notes))


def places(kind: str, folder: Path) -> str:
    return {"sqlite": f"sqlite:{folder}/crash.db", "jsonl": f"jsonl:{folder}/crash"}[kind]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=["sqlite", "jsonl"], action="append", help="default: both")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lie", action="store_true", help="the negative control: must exit with 1")
    parser.add_argument("--child", nargs=3, metavar=("PLACE", "NOTES", "PREFIX"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        place, notes, prefix = options.child
        asyncio.run(write_forever(place, Path(notes), prefix, lie=options.lie))
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
        place = places(kind, folder)
        for number in range(kills):
            found, count = kill_once(place, folder, f"k{number // KILLS_PER_SESSION}", chance, lie=lie)
            faults += found
            entries += count
    return faults, entries


if __name__ == "__main__":
    sys.exit(main())
