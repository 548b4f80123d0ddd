"""Flip single bits in the files of a small SQLite store, and look for a flip that the check does not find.

    python scripts/bit_flips.py [--every 1]

Each flip is made in a fresh copy of the database and its write-ahead log. Either the store cannot be opened, or the
check (`bartack sessions fsck`) finds something, or the flip has no effect: everything that can be read is the same as
before, and the store accepts another append, after which the check finds nothing. With --every N, one bit of every Nth
byte is flipped instead of all eight bits of every byte. With --blind, the negative control, checks find nothing.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bartack.nouns.deltas import MessageDelta, TextDelta, Usage
from bartack.nouns.entries import MessageDeltaBatch, Redaction, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store import SessionStore, next_entries
from bartack.store.maintenance import check
from bartack.store.sqlite import SqliteStore

META = Meta(model=ModelRef("vendor", "model"), usage=Usage(1200, 80), cost_usd=0.25)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
WORDS = ("weather", "degrees", "later", "secret", "title")


async def fill(folder: Path) -> None:
    """Create a store with everything a store can contain, partly in its log, and copy it as a crash would leave it."""
    path = folder / "a.db"
    store = await SqliteStore.open(path)
    facts = [
        user("What is the weather like?"),
        assistant(Text("I will look."), ToolCall("c1", "weather", {"city": "Lyon"}), meta=META),
        tool_message(ToolResult("c1", "17 degrees " + "xy" * 35_000)),
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
    redaction = next_entries("s", tail, [Redaction(entries[4].id)], store.environment, parent_id=entries[1].id)
    await store.append("s", redaction, tail.entry_id)
    lease = await store.acquire_lease("s", "owner")
    deltas = (MessageDelta("run", 0, TextDelta("hi"), store.environment.now()),)
    await store.write_journal(lease, MessageDeltaBatch(deltas, generation=1, number=0))
    (folder / "flipped").mkdir()
    for suffix in ("", "-wal", "-lock"):
        shutil.copy(f"{path}{suffix}", folder / "flipped" / f"a.db{suffix}")
    await store.close()


async def contents(store: SessionStore) -> list[object]:
    """Everything that can be read."""
    page = await store.sessions()
    sessions = [
        [
            *(info, (await store.entries(info.id)).texts, await store.load(info.id)),
            *(await store.heads(info.id), await store.totals(info.id), await store.read_journal(info.id)),
        ]
        for info in page.items
    ]
    return [sessions, await store.totals(), [await store.search(word) for word in WORDS]]


async def outcome_of(path: Path, expected: list[object], *, blind: bool) -> str:
    """What came of a flip: not opened, found, harmless or missed."""
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


def flips(size: int, every: int) -> Iterator[tuple[int, int]]:
    """The bytes and bits to flip."""
    for place in range(0, size, every):
        yield from ((place, bit) for bit in (range(8) if every == 1 else (place // every % 8,)))


async def run(every: int, *, blind: bool = False) -> tuple[Counter[str], list[str]]:
    """How many flips had which outcome, and the ones that were missed."""
    counts: Counter[str] = Counter()
    missed: list[str] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        await fill(folder)
        flipped = {file.name: file.read_bytes() for file in (folder / "flipped").iterdir()}
        store = await SqliteStore.open(_copy(folder / "original", flipped))
        findings = await check(store)
        assert findings == [], findings
        expected = await contents(store)
        await store.close()
        for file in ("a.db", "a.db-wal", "a.db-lock"):
            for place, bit in flips(len(flipped[file]), every):
                data = bytearray(flipped[file])
                data[place] ^= 1 << bit
                path = _copy(folder / "copy", {**flipped, file: bytes(data)})
                outcome = await outcome_of(path, expected, blind=blind)
                counts[outcome] += 1
                if outcome == "missed":
                    missed.append(f"{file}, byte {place}, bit {bit}")
    return counts, missed


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
    counts, missed = asyncio.run(run(options.every, blind=options.blind))
    print(f"SQLite: {sum(counts.values())} flips, {', '.join(f'{n} {name}' for name, n in sorted(counts.items()))}")
    print("\n".join(missed[:20]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
