"""Costs of the stores, as ratios within one run.

(a) Group commit in SQLite: 64 tasks that append one entry at a time, compared with one commit per entry (target: at
    least 10 times as fast), and with apsw alone (target: at most 2 times). Apsw alone encodes the same entries and
    stores the same rows in the same tables and indexes: entries, the tails of sessions, results, usage and the search
    index. It uses one statement per table for 64 entries and commits them together. It has no tasks and no thread, and
    checks nothing: no checksums, no expected tail, no lease, no triggers. For comparison it also stores nothing but the
    entries, with and without encoding them.
(b) Size: appending to a store of 1,000 entries, and to larger ones (up to 1,000,000 with --million). Target: flat.
(c) Opening a session of 100,000 entries, compared with decoding its bytes with msgspec. Target: at most 2 times.
(d) PostgreSQL: appending one entry after the other, compared with a plain INSERT of the same text by asyncpg (target:
    at most 2 times), and the size of the tables and their indexes, compared with the JSON in them. It needs the
    programs of a PostgreSQL server, which runs in a temporary folder.
(e) Listing and searching a JSONL store of 5,000 sessions, compared with reading its state files, and its session files.
    Target: at most 5 times.

Run it with `make bench` or `python bench/store.py [--million]`.
"""

import asyncio
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import Entry, Fact, SessionHeader
from bartack.nouns.messages import Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store import SessionStore, Tail, next_entries
from bartack.store.index import results_of, spend_of, text_of
from bartack.store.jsonl import JsonlStore
from bartack.store.search import sortable
from bartack.store.sqlite import SqliteStore
from bartack.store.sqlite.file import connect, create_file
from bartack.store.sqlite.schema import migrate
from bartack.store.sqlite.tables import ADD_SPEND, spend_values
from lab.postgres_cluster import Cluster, find_programs

TASKS = 64
LONG = 100_000
MANY = 5_000
CHECKSUM = bytes(16)
META = Meta(model=ModelRef("anthropic", "claude"), usage=Usage(1200, 80, cache_read_tokens=900), cost_usd=0.0042)


def turn(number: int) -> list[Fact]:
    """The four messages of a turn with one tool call."""
    return [
        user(f"What is the weather in town number {number}? Please look it up and tell me in one sentence."),
        assistant(Text("I will look."), ToolCall(f"call_{number}", "weather", {"city": f"Town {number}"}), meta=META),
        tool_message(ToolResult(f"call_{number}", f"Town {number}: 17 degrees, light rain, wind from the west.")),
        assistant("It is 17 degrees with light rain.", meta=META),
    ]


async def append_one_by_one(store: SqliteStore, name: str, each: int) -> tuple[float, float]:
    """Seconds per entry, and of CPU, when 64 tasks append one entry at a time, each to its own session."""
    prepared: list[tuple[Entry, ...]] = []
    for task in range(TASKS):
        header = await store.create_session(f"{name}-{task}")
        facts = [fact for number in range(-(-each // 4)) for fact in turn(number)][:each]
        prepared.append((header, *next_entries(header.session_id, Tail(header.id, 1), facts, store.environment)))

    async def write(entries: tuple[Entry, ...]) -> None:
        for before, entry in pairwise(entries):
            await store.append(entry.session_id, [entry], before.id)

    start, start_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(write, prepared))
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return wall / (TASKS * each), cpu / (TASKS * each)


class OneByOne(SqliteStore):
    """A store that commits each append separately."""

    group_limit = 1


class Alone:
    """Apsw alone, with the tables of a store, but without their triggers. Returns seconds per entry."""

    def __init__(self, path: Path, each: int) -> None:
        facts = [fact for number in range(-(-each // 4)) for fact in turn(number)][:each]
        sessions = [next_entries(f"{task}", Tail("header", 1), facts, Environment()) for task in range(TASKS)]
        self.groups = list(zip(*sessions, strict=True))
        create_file(path)
        self.connection = connect(path, synchronous="FULL", wait_s=1.0, vfs=None)
        migrate(self.connection)
        triggers = self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        new = "INSERT INTO session (id, created, updated, tail_id, tail_seq, checksum) VALUES (?, '', '', '', 1, x'')"
        with self.connection:
            for (name,) in triggers:
                self.connection.execute(f"DROP TRIGGER {name}")
            self.connection.executemany(new, [(f"{task}",) for task in range(TASKS)])

    def store_entries(self) -> tuple[float, float]:
        """Only the entries: with encoding them, and without."""
        storing = 0.0
        start = time.perf_counter()
        for entries in self.groups:
            rows = self._entry_rows(entries)
            encoded = time.perf_counter()
            with self.connection:
                self.connection.executemany("INSERT INTO entry VALUES (NULL, ?, ?, ?, ?, 0, ?)", rows)
            storing += time.perf_counter() - encoded
        return self._per_entry(time.perf_counter() - start), self._per_entry(storing)

    def store_all(self) -> tuple[float, float]:
        """The same rows as a store: in wall time, and in CPU."""
        start, start_cpu = time.perf_counter(), time.process_time()
        for number, entries in enumerate(self.groups):
            facts = list(enumerate([entry.fact for entry in entries], 1))
            spends = [(task, "anthropic", "claude", spend_of(fact)) for task, fact in facts]
            with self.connection:
                run = self.connection.executemany
                run("INSERT INTO entry VALUES (NULL, ?, ?, ?, ?, 0, ?)", self._entry_rows(entries))
                run(
                    "UPDATE session SET updated = ?, tail_id = ?, tail_seq = ?, checksum = ? WHERE number = ?",
                    [(sortable(e.timestamp), e.id, e.seq, CHECKSUM, task) for task, e in enumerate(entries, 1)],
                )
                run(
                    "INSERT INTO search (rowid, words) VALUES (?, ?)",
                    [(number * TASKS + task, text_of(fact)) for task, fact in facts],
                )
                run(ADD_SPEND, [(*key, *spend_values(used.spend)) for *key, used in spends if used is not None])
                run(
                    "INSERT INTO result VALUES (?, ?, ?)",
                    [(task, call, number) for task, fact in facts for call in results_of(fact)],
                )
        wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        return self._per_entry(wall), self._per_entry(cpu)

    def _entry_rows(self, entries: tuple[Entry, ...]) -> list[tuple[int, int, str, str, bytes]]:
        numbered = enumerate(entries, 1)
        return [(task, entry.seq, entry.id, wire.encode(entry).decode(), CHECKSUM) for task, entry in numbered]

    def _per_entry(self, seconds: float) -> float:
        return seconds / (TASKS * len(self.groups))


async def group_commit(folder: Path) -> None:
    grouped = await SqliteStore.open(folder / "grouped.db")
    single = await OneByOne.open(folder / "single.db")
    rounds = []
    for n in range(7):
        bare, entries = Alone(folder / f"bare{n}.db", 40), Alone(folder / f"entries{n}.db", 40)
        ours = await append_one_by_one(grouped, f"r{n}", 40)
        alone = await append_one_by_one(single, f"r{n}", 4)
        rounds.append((*ours, *alone, *bare.store_all(), *entries.store_entries()))
        bare.connection.close()
        entries.connection.close()
    await grouped.close()
    await single.close()
    together, cpu, alone_s, _, same, same_cpu, entry, storing = (median(times) for times in zip(*rounds, strict=True))
    print(f"(a) 64 tasks, group commit      {together * 1e6:8.0f} us per entry ({cpu * 1e6:.0f} of CPU)")
    print(f"    64 tasks, commit per entry  {alone_s * 1e6:8.0f} us per entry")
    print(f"    ratio {alone_s / together:.1f} (target: 10 or more)")
    print(f"    apsw alone, the same rows   {same * 1e6:8.0f} us per entry ({same_cpu * 1e6:.0f} of CPU)")
    print(f"    ratio {together / same:.1f} (target: 2.0 or less), {cpu / same_cpu:.1f} in CPU")
    print(f"    apsw alone, entries only    {entry * 1e6:8.0f} us per entry")
    print(f"    ratio {together / entry:.1f}, or {together / storing:.1f} without encoding them")


async def fill(store: SessionStore, name: str, entries: int) -> None:
    """Create a session of this many entries, in large appends."""
    header = await store.create_session(name)
    tail = Tail(header.id, 1)
    while tail.seq < entries:
        size = min(250, -(-(entries - tail.seq) // 4))
        facts = [fact for number in range(size) for fact in turn(tail.seq + number * 4)][: entries - tail.seq]
        tail = await store.append(name, next_entries(name, tail, facts, store.environment), tail.entry_id)


async def sizes(folder: Path, steps: list[int]) -> None:
    store = await SqliteStore.open(folder / "sizes.db")
    size, first = 0, 0.0
    for step in steps:
        for number in range(size // 1000, step // 1000):  # sessions of a thousand entries each
            await fill(store, f"filler-{number}", 1000)
        size = step
        cost = median([(await append_one_by_one(store, f"at-{step}-{round}", 20))[0] for round in range(3)])
        first = first or cost
        print(f"(b) {step:9,} entries stored   {cost * 1e6:8.0f} us per entry, ratio {cost / first:.2f} (target: flat)")
    await store.close()


def best(work: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


async def open_long_session(kind: type[SqliteStore | JsonlStore], path: Path) -> None:
    """The CPU time of opening a long session in a new store, compared with decoding its bytes."""
    store = await kind.open(path)
    await fill(store, "long", LONG)
    await store.close()
    times = []
    for _ in range(5):  # as `best`
        store = await kind.open(path)
        start = time.process_time()
        loaded = await store.load("long")
        times.append(time.process_time() - start)
        await store.close()
    texts = loaded.texts
    decode = best(lambda: deque(map(msgspec.json.decode, texts), maxlen=0))
    assert loaded[-1].seq == len(loaded) == LONG
    size = sum(map(len, texts)) / 1e6
    print(f"(c) {kind.__name__}, {LONG:,} entries ({size:.0f} MB): opened in {min(times) * 1e3:.0f} ms of CPU,")
    print(f"    msgspec decodes them in {decode * 1e3:.0f} ms; ratio {min(times) / decode:.2f} (target: 2 or less)")


async def postgres(url: str) -> None:
    """Appends and sizes on a PostgreSQL server that syncs every commit."""
    import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    from bartack.store.postgres import PostgresStore  # noqa: PLC0415 - asyncpg is an extra

    store = await PostgresStore.open(url)
    alone = await asyncpg.connect(url)
    await alone.execute("CREATE TABLE entry (session text, seq int, text text, PRIMARY KEY (session, seq))")
    header = await store.create_session("s")
    facts = [fact for number in range(100) for fact in turn(number)]
    entries = (header, *next_entries("s", Tail(header.id, 1), facts, store.environment))
    times: list[tuple[float, float]] = []
    for before, entry in pairwise(entries):
        start = time.perf_counter()
        await store.append("s", [entry], before.id)
        middle = time.perf_counter()
        await alone.execute("INSERT INTO entry VALUES ($1, $2, $3)", "s", entry.seq, wire.encode(entry).decode())
        times.append((middle - start, time.perf_counter() - middle))
    ours, bare = median(first for first, _ in times), median(second for _, second in times)
    print(f"(d) PostgreSQL: {ours * 1e3:.2f} ms per append, {bare * 1e3:.2f} ms per plain INSERT,")
    print(f"    ratio {ours / bare:.1f} (target: 2.0 or less)")
    for number in range(20):
        await fill(store, f"filler-{number}", 500)
    size = await alone.fetchval(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'bartack' AND c.relkind = 'r'"
    )
    json = sum([len(text) for info in (await store.sessions()).items for text in (await store.entries(info.id)).texts])
    print(f"    10,000 entries: {int(size) / 1e6:.1f} MB for {json / 1e6:.1f} MB of JSON, ratio {int(size) / json:.2f}")
    await alone.close()
    await store.close()


async def list_many(folder: Path) -> None:
    store = await JsonlStore.open(folder)
    for start in range(0, MANY, 100):
        batches = [
            next_entries(f"s{number}", None, [SessionHeader(title=f"T{number}"), *turn(number)], store.environment)
            for number in range(start, start + 100)
        ]
        await asyncio.gather(*(store.append(batch[0].session_id, batch, None) for batch in batches))
    await store.close()
    states = best(lambda: [path.read_bytes() for path in folder.glob("*.state")], rounds=3)
    files = best(lambda: [path.read_bytes() for path in folder.glob("*.jsonl")], rounds=3)
    store = await JsonlStore.open(folder)
    rounds = []
    for _ in range(3):
        start_s = time.process_time()
        assert len((await store.sessions(50)).items) == 50
        middle_s = time.process_time()
        assert len(await store.search(f"town {MANY - 1}")) >= 2
        rounds.append((middle_s - start_s, time.process_time() - middle_s))
    await store.close()
    listed, searched = median(first for first, _ in rounds), median(second for _, second in rounds)
    print(f"(e) JSONL, {MANY} sessions: list {listed * 1e3:.0f} ms, search {searched * 1e3:.0f} ms of CPU")
    print(f"    ratios {listed / states:.1f} and {searched / (states + files):.1f} (target: 5 or less)")


async def main() -> None:
    steps = [1000, 10_000, 50_000] + ([100_000, 1_000_000] if "--million" in sys.argv else [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await group_commit(folder)
        await sizes(folder, steps)
        await open_long_session(SqliteStore, folder / "long.db")
        await open_long_session(JsonlStore, folder / "long")
        await list_many(folder / "many")
    programs = find_programs()
    if programs is None:
        print("(d) PostgreSQL: skipped, because initdb and pg_ctl were not found")
        return
    with Cluster(programs) as cluster:
        await postgres(cluster.url)


if __name__ == "__main__":
    asyncio.run(main())
