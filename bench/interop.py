"""How fast transcripts are imported: generated sessions with prompts, answers, calls and results.

(a) floor: parsing every line with msgspec. Nothing that reads the file can be faster; storing it adds to this the
    compression of the records (level 1 of zlib, some 150 MB/s), two hashes, and SQLite with its search index.
(b) reading: from the bytes to the entries, without a store.
(c) importing: (b), and storing the entries in a SQLite file.
(d) importing the same file again: nothing is new. Then the size of the store, in sizes of the file.
(e) importing 200 sessions of 50 kB, one after the other.
(f) the same, 32 at a time, as `bartack import` does: the commits of a group are one.
(g) the command itself: `bartack import --all` of sessions of five programs in their usual places, then again, and
    `bartack sessions list` and `search` with all of them in the store.

(a) to (d) are sessions of Claude Code. Megabytes of transcripts per second of CPU; for (e) to (g), also per second of
time, since they wait for the disk. Run it with `make bench` or `python -m bench.interop [megabytes [sessions]]`.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bartack.store import open_store
from bartack_transcripts.disk.importing import fewer_collections, import_transcript
from bartack_transcripts.formats import FORMATS, Outgoing, entries_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "5b0c9cde-0000-4000-8000-000000000000.jsonl"


def transcript(size: int) -> bytes:
    """A session of about this many bytes."""
    lines: list[bytes] = []
    total = 0
    parent: str | None = None

    def add(kind: str, message: dict[str, Any]) -> None:
        nonlocal parent, total
        uuid = f"00000000-0000-4000-8000-{len(lines):012}"
        common = {"userType": "external", "cwd": "/srv/app", "sessionId": NAME[:-6], "version": "2.1.197"}
        line = {"parentUuid": parent, "isSidechain": False, "type": kind, "message": message, "uuid": uuid, **common}
        lines.append(json.dumps({**line, "timestamp": "2026-01-01T00:00:00.000Z"}).encode() + b"\n")
        parent, total = uuid, total + len(lines[-1])

    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 5000,
        "cache_creation_input_tokens": 100,
        "output_tokens": 90,
    }
    while total < size:
        number = len(lines)
        add("user", {"role": "user", "content": "Please look at the next file and explain it. " * 3})
        answer = {"id": f"msg_{number}", "role": "assistant", "model": "claude-x", "usage": usage}
        thinking = {"type": "thinking", "thinking": "I should read it first. " * 10, "signature": "c2ln" * 80}
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": f"/srv/{number}"}}
        for block in (thinking, {"type": "text", "text": "Let me read it. " * 8}, call):
            add("assistant", {**answer, "content": [block]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "a line of source code\n" * 120}
        add("user", {"role": "user", "content": [result]})
        last = {"type": "text", "text": "It reads the settings and opens the store. " * 10}
        add("assistant", {**answer, "id": f"msg_{number}b", "content": [last]})
    return b"".join(lines)


async def rate(size: int, work: Callable[[], Awaitable[object]]) -> float:
    """Megabytes per second of CPU."""
    start = time.process_time()
    await work()
    return size / 1e6 / (time.process_time() - start)


def size_of(folder: Path) -> int:
    """The size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


SESSIONS, TOGETHER = 200, 32


async def many(together: int) -> str:
    """The rates at which small sessions are imported."""
    data = transcript(50_000)
    whole = SESSIONS * len(data) / 1e6

    async def importing(number: int) -> None:
        name = f"{number:08x}{NAME[8:]}"
        await import_transcript(store, FORMATS["claude-code"].read({name: data})[0], NOW)

    with tempfile.TemporaryDirectory() as folder, fewer_collections():
        store = await open_store(f"sqlite:{Path(folder) / 'store.db'}")
        cpu, start = time.process_time(), time.perf_counter()
        for first in range(0, SESSIONS, together):
            await asyncio.gather(*map(importing, range(first, min(first + together, SESSIONS))))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - start
        await store.close()
    return f"{whole / cpu:8.1f} {whole / wall:8.1f} per second of time"


HOMES = {"claude-code": ".claude", "codex": ".codex", "pi": ".pi/agent", "gemini": ".gemini", "qwen": ".qwen"}


def write_homes(home: Path, count: int) -> int:
    """Write this many sessions where five programs keep theirs, and return their size."""
    read = entries_of(FORMATS["claude-code"].read({NAME: transcript(25_000)})[0])
    entries = tuple(entry for entry in read if entry.fact.kind != "custom")
    size = 0
    for number in range(count):
        agent = list(HOMES)[number % len(HOMES)]
        writer = FORMATS[agent].writer
        assert writer is not None
        outgoing = Outgoing(f"{number:08x}{NAME[8:-6]}", entries, NOW, f"/srv/app{number % 50}")
        written = writer.write(outgoing)
        path = home / HOMES[agent] / writer.folder(outgoing) / written.name
        path.parent.mkdir(parents=True, exist_ok=True)
        size += path.write_bytes(written.data)
    return size


def command(home: Path, *words: str) -> tuple[float, float]:
    """The CPU and the time that a command takes, in seconds."""
    hidden = ("_DIR", "_HOME", "BARTACK_")
    environment = {name: value for name, value in os.environ.items() if not any(part in name for part in hidden)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "bartack.cli", *words, "--store", f"sqlite:{home / 'store.db'}"],
        env={**environment, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        check=True,
        capture_output=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def command_line(sessions: int) -> None:
    """Import sessions of several programs, and use them."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        size = write_homes(home, sessions) / 1e6
        cpu, wall = command(home, "import", "--all")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(
            f"(g) {sessions:,} sessions, {size:.0f} MB: {size / cpu:.1f} {size / wall:8.1f} per second of time,", end=""
        )
        print(f" at most {peak:.0f} MB of memory")
        for words in (
            ["import", "--all"],
            ["sessions", "list", "--agent", "codex"],
            ["sessions", "search", "settings"],
        ):
            cpu, wall = command(home, *words)
            print(f"    then {' '.join(words)}: {cpu:.1f} s of CPU, {wall:.1f} s")


async def main(megabytes: float, sessions: int) -> None:
    data = transcript(int(megabytes * 1e6))
    read = FORMATS["claude-code"].read

    async def floor() -> None:
        for line in data.splitlines():
            msgspec.json.decode(line)

    async def reading() -> None:
        entries_of(read({NAME: data})[0])

    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:{Path(folder) / 'store.db'}")

        async def importing() -> None:
            await import_transcript(store, read({NAME: data})[0], NOW)

        with fewer_collections():
            rates = [await rate(len(data), work) for work in (floor, reading, importing, importing)]
        await store.close()
        stored = size_of(Path(folder))
    print(f"{len(data) / 1e6:.1f} MB, {len(data.splitlines()):,} lines; MB per second of CPU:")
    for name, rate_mb_s in zip(("(a) floor", "(b) reading", "(c) importing", "(d) again"), rates, strict=True):
        print(f"{name:14} {rate_mb_s:8.1f}")
    print(f"{'store':14} {stored / len(data):8.1f} times the size of the file")
    for name, together in (("(e) one by one", 1), ("(f) together", TOGETHER)):
        print(f"{name:14} {await many(together)}")
    command_line(sessions)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(main(float(arguments[0]) if arguments else 20, int(arguments[1]) if len(arguments) > 1 else 1000))
