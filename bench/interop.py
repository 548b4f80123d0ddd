"""How fast transcripts are imported: a generated session of Claude Code, with prompts, answers, calls and results.

(a) floor: parsing every line with msgspec.
(b) reading: from the bytes to the entries, without a store.
(c) importing: (b), and storing the entries in a SQLite file.
(d) importing the same file again: nothing is new.

Megabytes of the transcript per second of CPU. Run it with `make bench` or `python -m bench.interop [megabytes]`.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bartack.app.transcripts import fewer_collections, import_transcript
from bartack.interop import FORMATS, entries_of
from bartack.store import open_store

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
        about = {"userType": "external", "cwd": "/work/app", "sessionId": NAME[:-6], "version": "2.1.197"}
        line = {"parentUuid": parent, "isSidechain": False, "type": kind, "message": message, "uuid": uuid, **about}
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
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": f"/work/{number}"}}
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


async def main(megabytes: float) -> None:
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
    print(f"{len(data) / 1e6:.1f} MB, {len(data.splitlines()):,} lines; MB per second of CPU:")
    for name, found in zip(("(a) floor", "(b) reading", "(c) importing", "(d) again"), rates, strict=True):
        print(f"{name:14} {found:8.1f}")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20))
