"""Rounds of tool calls for tests: an executor that keeps every fact, and a clock that counts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bartack import Entry, ToolCall, ToolResult, assistant
from bartack.nouns.entries import ApprovalRequired, Fact
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import ToolState
from bartack.session.run_state import OpenCall, RunState
from bartack.session.tool_state import ToolFold
from bartack.tools import RoundOutcome, ToolDefinition, ToolExecutor, ToolRegistry, ToolSettings
from bartack.tools.tool_round import Superseded
from tests.counting import counting_environment
from tests.sample_session import chain

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Log:
    """Keeps facts. It yields to the event loop as a store does, and can be made to fail."""

    def __init__(self, fails: Callable[[Fact], bool] = lambda _: False) -> None:
        self.facts: list[Fact] = []
        self.published: list[ApprovalRequired] = []
        self.calls: tuple[ToolCall, ...] = ()
        self.state = RunState()
        self.before: Callable[[Fact], Fact | None] = lambda _: None  # what others add just before a fact is stored
        self._changed = asyncio.Event()
        self._fails = fails

    def begin(self, calls: list[OpenCall]) -> None:
        self.calls = tuple(open_call.call for open_call in calls)
        self.state.open_calls = {open_call.call.tool_call_id: open_call for open_call in calls}

    async def record(self, fact: Fact, *, still: Callable[[], bool] | None = None) -> None:
        await asyncio.sleep(0)
        if self._fails(fact):
            raise OSError("disk full")
        extra = self.before(fact)
        if extra is not None:
            self.add(extra)
        if still is not None and not still():
            raise Superseded
        self._push(fact)

    def add(self, fact: Fact) -> None:
        """Add a fact as another process does."""
        self._push(fact)
        self._changed.set()
        self._changed = asyncio.Event()

    def _push(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.state.push(chain(fact)[0])

    def find(self, tool_call_id: str) -> OpenCall | None:
        return self.state.open_calls.get(tool_call_id)

    async def changed(self) -> None:
        await self._changed.wait()

    def publish(self, question: ApprovalRequired) -> None:
        self.published.append(question)

    @property
    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]

    @property
    def results(self) -> list[ToolResult]:
        """In the order in which they were recorded."""
        return [result for fact in self.facts if isinstance(fact, Message) for result in fact.tool_results]

    @property
    def states(self) -> list[tuple[str, ToolState]]:
        """Each state that a call was in after `pending`, in order, as the fold over the facts sees it."""
        fold, states = ToolFold(), list[tuple[str, ToolState]]()
        for entry in chain(assistant(*self.calls), *self.facts):
            before = dict(fold.states)
            fold.push(entry)
            states += [(key, state) for key, state in fold.states.items() if key in before and state is not before[key]]
        return states

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def call(name: str, tool_call_id: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(tool_call_id, name, arguments)


def open_calls(entries: list[Entry]) -> list[OpenCall]:
    """The calls that have no result after these entries."""
    state = RunState()
    for entry in entries:
        state.push(entry)
    return list(state.open_calls.values())


class Bench:
    """An executor with these tools, ready to run calls."""

    def __init__(self, *tools: ToolDefinition, log: Log | None = None, **settings: Any) -> None:
        self.log = log or Log()
        settings = {"environment": counting_environment(T0), **settings}
        self.executor = ToolExecutor(ToolSettings(registry=ToolRegistry(tools), **settings))

    async def run(self, *calls: ToolCall) -> RoundOutcome:
        return await self.resume([OpenCall(call) for call in calls])

    async def resume(self, calls: list[OpenCall]) -> RoundOutcome:
        self.log.begin(calls)
        return await self.executor.run(calls, log=self.log, run_id="r", session_id="s")

    async def stopped(self, *calls: ToolCall, when: asyncio.Event | None = None) -> dict[str, ToolResult]:
        """The results of calls whose task is cancelled, at once or when the event is set."""
        running = asyncio.create_task(self.run(*calls))
        await (asyncio.sleep(0.01) if when is None else when.wait())
        running.cancel()
        try:
            async with asyncio.timeout(300):
                await running
        except asyncio.CancelledError:
            pass
        return {result.tool_call_id: result for result in self.log.results}

    async def one(self, name: str, /, **arguments: Any) -> ToolResult:
        """The result of a single call."""
        outcome = await self.run(call(name, **arguments))
        [result] = outcome.results
        assert [result] == self.log.results
        return result
