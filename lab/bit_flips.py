"""Flip bits in the files of a small SQLite store, one at a time, and look for a flip that the check does not find.

    python -m lab.bit_flips [--every 1] [--blind]

Each flip is made in a fresh copy of the database, its write-ahead log and its lock file. Either the store cannot be
opened, or the check (`bartack sessions fsck`) finds something, or the flip has no effect: everything that can be read
is the same as before, and the store accepts another append, after which the check finds nothing.

Every byte is flipped. All eight bits are tried, except where the bits of a byte cannot differ: in unused space, with
zeros all around, and inside a frame of the log, whose checksum notices any of them. There it is one bit per byte. This
takes about half an hour of processor time, on all cores. With --every N, one bit of every Nth byte is flipped. With
--blind, the negative control, checks find nothing.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import apsw
from msgspec.structs import replace

from bartack.nouns.deltas import MessageDelta, TextDelta, Usage
from bartack.nouns.entries import MessageDeltaBatch, Redaction, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store import SessionStore, next_entries
from bartack.store.maintenance import check
from bartack.store.session_store import Spend
from bartack.store.sqlite import SqliteStore

META = Meta(model=ModelRef("vendor", "model"), usage=Usage(1200, 80), cost_usd=0.25)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_PAGE = 512  # bytes; the smallest that SQLite supports, so that there is little unused space
WORDS = ("weather", "degrees", "later", "secret", "title")


async def fill(folder: Path) -> None:
    """Create a store, partly in its log, and copy it as a crash would leave it. The tests have damage to a blob."""
    path = folder / "a.db"
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", _PAGE)
    connection.execute("VACUUM")
    connection.close()
    store = await SqliteStore.open(path)
    facts = [
        user("What is the weather like?"),
        assistant(Text("I will look."), ToolCall("c1", "weather", {"city": "Lyon"}), meta=META),
        tool_message(ToolResult("c1", "17 degrees")),
        user("my secret"),
    ]
    header = await store.create_session("s", SessionHeader(title="a title"))
    tail = await store.tail_of("s")
    await store.append("s", next_entries("s", tail, facts, store.environment), header.id)
    await store.create_session("other")
    await store.close()
    store = await SqliteStore.open(path)
    for session_id in ("s", "other"):
        tail = await store.tail_of(session_id)
        await store.append(
            session_id, next_entries(session_id, tail, [user("later")], store.environment), tail.entry_id
        )
    tail = await store.tail_of("s")
    entries = await store.entries("s")
    redaction = next_entries("s", tail, [Redaction(entry_id=entries[4].id)], store.environment, parent_id=entries[1].id)
    await store.append("s", redaction, tail.entry_id)
    lease = await store.acquire_lease("s", "owner")
    deltas = (MessageDelta("run", 0, TextDelta("hi"), store.environment.now()),)
    await store.write_journal(lease, MessageDeltaBatch(deltas=deltas, generation=1, number=0))
    (folder / "flipped").mkdir()
    for suffix in ("", "-wal", "-lock"):
        shutil.copy(f"{path}{suffix}", folder / "flipped" / f"a.db{suffix}")
    await store.close()


async def contents(store: SessionStore) -> list[object]:
    """Everything that can be read."""
    page = await store.sessions()
    sessions = [
        [
            *(replace(info, spend=_rounded(info.spend)), (await store.entries(info.id)).texts),
            *(await store.load(info.id), await store.heads(info.id), await _totals(store, info.id)),
            await store.read_journal(info.id),
        ]
        for info in page.items
    ]
    return [sessions, await _totals(store), [await store.search(word) for word in WORDS]]


async def _totals(store: SessionStore, session_id: str | None = None) -> list[object]:
    totals = await store.totals(session_id)
    return [_rounded(totals.spend), *((model.model, _rounded(model.spend)) for model in totals.models)]


def _rounded(spend: Spend) -> Spend:
    """The costs are a sum of floats, which depends on their order; the check tolerates that too."""
    return replace(spend, cost_usd=round(spend.cost_usd, 8))


async def outcome_of(path: Path, expected: list[object], *, blind: bool) -> str:
    """What came of a flip: not opened, found, harmless or missed, or an exception that is not a `StoreError`."""
    try:
        return await _outcome_of(path, expected, blind=blind)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        return type(error).__name__


async def _outcome_of(path: Path, expected: list[object], *, blind: bool) -> str:
    try:
        store = await SqliteStore.open(path, wait_s=1.0)
    except StoreError:
        return "refused"
    try:
        if not blind and await check(store):
            return "found"
        if await contents(store) != expected:
            return "missed"
        tail = await store.tail_of("other")
        await store.append("other", next_entries("other", tail, [user("more")], store.environment), tail.entry_id)
        return "missed" if await check(store) else "harmless"
    except StoreError:
        return "found" if not blind else "missed"
    finally:
        await store.close()


Flip = tuple[str, int, int]  # a file, a byte and a bit


def flips(files: dict[str, bytes], step: int) -> Iterator[Flip]:
    """The bits to flip."""
    for file in ("a.db", "a.db-wal", "a.db-lock"):
        data = files[file]
        for place in range(0, len(data), step):
            is_unused = not any(data[max(place - 4, 0) : place + 5])
            is_in_frame = file == "a.db-wal" and place >= 32 and (place - 32) % (24 + _PAGE) >= 24
            bits = (place // step % 8,) if step > 1 or is_unused or is_in_frame else range(8)
            yield from ((file, place, bit) for bit in bits)


Outcomes = tuple[Counter[str], list[str]]  # how many flips had which outcome, and the ones that were missed


async def try_flips(files: dict[str, bytes], chosen: Sequence[Flip], *, blind: bool) -> Outcomes:
    """The outcomes of these flips."""
    counts: Counter[str] = Counter()
    missed: list[str] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        store = await SqliteStore.open(_copy(folder / "original", files))
        findings = await check(store)
        assert findings == [], findings
        expected = await contents(store)
        await store.close()
        for file, place, bit in chosen:
            data = bytearray(files[file])
            data[place] ^= 1 << bit
            path = _copy(folder / "copy", {**files, file: bytes(data)})
            outcome = await outcome_of(path, expected, blind=blind)
            counts[outcome] += 1
            if outcome not in ("refused", "found", "harmless"):
                missed.append(f"{outcome}: {file}, byte {place}, bit {bit}")
    return counts, missed


def run(step: int, *, blind: bool = False, processes: int = 1) -> Outcomes:
    """The outcomes of all flips."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        asyncio.run(fill(Path(name)))
        files = {file.name: file.read_bytes() for file in (Path(name) / "flipped").iterdir()}
    chosen = list(flips(files, step))
    if processes == 1:
        return asyncio.run(try_flips(files, chosen, blind=blind))
    counts: Counter[str] = Counter()
    missed: list[str] = []
    with ProcessPoolExecutor(processes) as pool:
        parts = [chosen[start :: 8 * processes] for start in range(8 * processes)]
        for some, wrong in pool.map(_try_part, [(files, part, blind) for part in parts]):
            counts += some
            missed += wrong
    return counts, missed


def _try_part(work: tuple[dict[str, bytes], list[Flip], bool]) -> Outcomes:
    files, chosen, blind = work
    return asyncio.run(try_flips(files, chosen, blind=blind))


def _copy(folder: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / "a.db"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="negative control: must exit with status 1")
    options = parser.parse_args()
    counts, missed = run(options.every, blind=options.blind, processes=os.cpu_count() or 1)
    print(f"SQLite: {sum(counts.values())} flips, {', '.join(f'{n} {name}' for name, n in sorted(counts.items()))}")
    print("\n".join(missed[:20]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
