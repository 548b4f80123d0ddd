"""Rounds of tool calls for tests: an executor with a record of every fact, and a clock that counts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from bartack import ToolCall, ToolResult
from bartack.environment import Environment
from bartack.nouns.entries import Fact
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import ToolState
from bartack.tools import ToolDefinition, ToolExecutor, ToolRegistry, ToolRound

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def counting_environment() -> Environment:
    """A second passes each time anyone looks."""
    seconds = count()
    return Environment(now=lambda: T0 + timedelta(seconds=next(seconds)), random=lambda: 0)


class Log:
    """Where facts go. It yields to the event loop like a store does, and can be told to fail."""

    def __init__(self, fails: Callable[[Fact], bool] = lambda _: False) -> None:
        self.facts: list[Fact] = []
        self.states: list[tuple[str, ToolState]] = []
        self._fails = fails

    async def record(self, fact: Fact) -> None:
        await asyncio.sleep(0)
        if self._fails(fact):
            raise OSError("disk full")
        self.facts.append(fact)

    def on_change(self, tool_call_id: str, state: ToolState) -> None:
        self.states.append((tool_call_id, state))

    @property
    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]

    @property
    def results(self) -> list[ToolResult]:
        """As recorded, in the order of their recording."""
        return [result for fact in self.facts if isinstance(fact, Message) for result in fact.tool_results]

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def call(name: str, tool_call_id: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(tool_call_id, name, arguments)


class Bench:
    """An executor with these tools, ready to run calls."""

    def __init__(self, *tools: ToolDefinition, log: Log | None = None, **options: Any) -> None:
        self.log = log or Log()
        options = {"environment": counting_environment(), "grace_ms": 50, "retry_delay_ms": 1, **options}
        self.executor = ToolExecutor(ToolRegistry(tools), **options)

    async def run(self, *calls: ToolCall, **options: Any) -> ToolRound:
        return await self.executor.run(
            calls, record=self.log.record, run_id="r", session_id="s", on_change=self.log.on_change, **options
        )

    async def one(self, name: str, /, **arguments: Any) -> ToolResult:
        """The result of a single call."""
        round = await self.run(call(name, **arguments))
        [result] = round.results
        assert [result] == self.log.results
        return result
