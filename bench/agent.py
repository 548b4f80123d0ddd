"""The cost of a turn in a long session: 1,000 turns with tools on a SQLite store, each a separate run.

The processor time of a turn must not grow with the session, so the medians of the first and last tenth are compared:
once with a compacted context, and once with a context that only grows, where a turn also copies the list of messages.

    python bench/agent.py [turns]
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bartack import AgentConfig, ContextConfig, Message, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.tools import tool

TEXT = "Some words about what was found, and what to do about it next. " * 4


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"{place}: {TEXT}"


class Model(ScriptedModel):
    """Calls a tool, then answers."""

    def __init__(self) -> None:
        super().__init__([], chunk_chars=64)
        self._turn = 0

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        self.calls.clear()
        last = messages[-1]
        if last.text.endswith("Write the summary."):
            return "They looked at many places."
        if last.role == "tool":
            return TEXT
        self._turn += 1
        return assistant("Looking.", ToolCall(f"c{self._turn}", "look", {"place": self._turn}))


async def turns(store: SessionStore, count: int, context: ContextConfig) -> list[float]:
    """The processor time of each turn, in seconds."""
    agent = Agent(Model(), tools=[look], store=store, config=AgentConfig(context=context))
    times = []
    for number in range(count):
        started_at = time.process_time()  # largely independent of other load and of the disk
        result = await agent.run(f"Look at place {number}", session="long")
        times.append(time.process_time() - started_at)
        assert result.output == TEXT, result
    kinds = [entry.fact.kind for entry in await store.load("long")]
    assert ("compaction_summary" in kinds) is context.compaction
    return times


def report(name: str, times: list[float], before_kb: int) -> float:
    """Print one line; returns the ratio of the last tenth to the first."""
    tenth = max(1, len(times) // 10)
    first, last = statistics.median(times[:tenth]), statistics.median(times[-tenth:])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    print(
        f"{name:34} {len(times)} turns: first tenth {first * 1000:6.2f} ms, last tenth {last * 1000:6.2f} ms per turn "
        f"({last / first:.2f} x), peak memory +{grown:.0f} MB"
    )
    return last / first


async def main(count: int) -> None:
    """Run all four."""
    compacted = ContextConfig(max_tokens=8000)
    growing = ContextConfig(compaction=False)
    for name, context in (("compacted", compacted), ("growing", growing)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report(f"memory, {name} context", await turns(MemoryStore(), count, context), before)
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            store = await open_store(Path(folder) / "sessions.db")
            report(f"SQLite, {name} context", await turns(store, count, context), before)
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
