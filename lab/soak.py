"""A long life in one process: memory, threads and open files must not grow.

    python -m lab.soak [--store sqlite] [--runs 10000] [--sessions 1000] [--control]

`runs` runs with a tool call, 20 at a time, spread over as many sessions; then as many `sessions` are opened and
continued, each by an agent of its own that opens the store and closes it again. Before each half, a fifth as many come
first, and at least 200: they fill caches, and start every thread that reads from a store. Then the process is measured,
and again at the end. Threads and open files must be the same, and memory must have grown by less than a tenth and 8 MB:
allocators and caches are never quite still.

With `--control`, the negative control, the results of all runs and a connection of each agent are kept, and the soak
must fail.
"""

import argparse
import asyncio
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bartack import Message, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.tools import tool

AT_ONCE = 20
WARM_UP = 200  # a store has few threads that read, but which of them reads is chance
SLACK_BYTES = 8_000_000
TEXT = "Some words about what was found, and what to do about it next. " * 4
STORES = {"sqlite": "soak.db", "jsonl": "soak"}


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"{place}: {TEXT}"


class Model(ScriptedModel):
    """Calls a tool, then answers."""

    def __init__(self) -> None:
        super().__init__([])

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        self.calls.clear()  # it would keep every request
        if messages[-1].role == "tool":
            return TEXT
        return assistant("Looking.", ToolCall(f"c{len(messages)}", "look", {"place": len(messages)}))


class Usage(NamedTuple):
    """What the process uses at one moment."""

    memory: int
    threads: int
    files: int

    @classmethod
    def now(cls) -> "Usage":
        """After a collection of garbage, which would otherwise count by chance."""
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return cls(resident, threading.active_count(), len(list(Path("/proc/self/fd").iterdir())))

    def growth_since(self, before: "Usage") -> list[str]:
        """What has grown."""
        names = {"threads": (before.threads, self.threads), "open files": (before.files, self.files)}
        grown = [f"{name} from {first} to {last}" for name, (first, last) in names.items() if last > first]
        if self.memory > before.memory * 1.1 + SLACK_BYTES:
            grown.append(f"memory from {before.memory / 1e6:.0f} to {self.memory / 1e6:.0f} MB")
        return grown

    def __str__(self) -> str:
        return f"{self.memory / 1e6:6.1f} MB, {self.threads} threads, {self.files} open files"


class Soak:
    """Both halves on one store."""

    def __init__(self, path: Path, *, is_control: bool) -> None:
        self.path = path
        self.is_control = is_control
        self.kept: list[object] = []

    async def run_all(self, count: int) -> None:
        """Runs of one agent, `AT_ONCE` at a time; a session has ten of them."""
        agent = Agent(Model(), tools=[look], store=self.path)
        await self._measured("runs", count, lambda number: self._run(agent, number))
        await agent.close()

    async def _run(self, agent: Agent, number: int) -> None:
        wave, place = divmod(number, AT_ONCE)
        result = await agent.run(f"Look at place {number}", session=f"s{wave // 10 * AT_ONCE + place}")
        assert result.output == TEXT, result
        if self.is_control:
            self.kept.append((result, "x" * 100_000))

    async def open_all(self, count: int) -> None:
        """One agent per session, which opens the store, continues the session and closes the store.

        No session is continued twice, because a longer one takes more memory. If there are too few, the rest is new.
        """
        await self._measured("sessions", count, lambda number: self._open(f"s{number}"))

    async def _open(self, session: str) -> None:
        async with Agent(Model(), tools=[look], store=self.path) as agent:
            assert (await agent.run("Go on", session=session)).output == TEXT
        if self.is_control:
            self.kept.append(self.path.parent.joinpath("kept").open("ab"))

    async def _measured(self, name: str, count: int, work: Callable[[int], Awaitable[None]]) -> None:
        """Do the work this often, after warming up. Raises `AssertionError` if the process has grown meanwhile."""
        warm_up = max(WARM_UP, count // 5)
        await self._repeat(0, warm_up, work)
        before = Usage.now()
        print(f"{name:9} {warm_up:6,}: {before}", flush=True)
        began = time.monotonic()
        await self._repeat(warm_up, warm_up + count, work)
        after = Usage.now()
        print(f"{name:9} {warm_up + count:6,}: {after}, {time.monotonic() - began:.0f} s", flush=True)
        grown = after.growth_since(before)
        assert not grown, f"After {count:,} more {name}: {'; '.join(grown)}."

    async def _repeat(self, first: int, end: int, work: Callable[[int], Awaitable[None]]) -> None:
        for start in range(first, end, AT_ONCE):
            await asyncio.gather(*(work(number) for number in range(start, min(start + AT_ONCE, end))))


async def soak(folder: Path, store: str, runs: int, sessions: int, *, is_control: bool) -> None:
    """Raises `AssertionError` if anything grows."""
    work = Soak(folder / STORES[store], is_control=is_control)
    await work.run_all(runs)
    await work.open_all(sessions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--control", action="store_true", help="negative control: must exit with status 1")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bartack-soak-"))
    try:
        asyncio.run(soak(folder, options.store, options.runs, options.sessions, is_control=options.control))
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
