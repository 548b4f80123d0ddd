"""Shared by the tests of the agent: a counting clock and ids, a few tools, and ways to inspect a session."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

from bartack import Entry, Message, MessageDelta, ToolCall, ToolResult
from bartack.agent import Agent, RetryPolicy, Run
from bartack.environment import Environment
from bartack.formats.repair import repair
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import RunEnded, ToolStarted
from bartack.nouns.requests import ModelRequest
from bartack.store import Lease, MemoryStore, SessionStore
from bartack.store.append import Batch, Permit
from bartack.tools import ToolDefinition, tool
from tests import counting
from tests.formats.every_rule import RULES
from tests.formats.history_check import check_history

SESSION = "s"
FAST = RetryPolicy(base_ms=1, max_ms=1)

counting_environment = partial(counting.counting_environment, step=timedelta(milliseconds=1))


@tool
async def weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"rain in {city}"


@tool
async def fail(why: str) -> str:
    """Always fails."""
    raise RuntimeError(why)


@tool(requires_approval=True)
async def transfer(amount: int) -> str:
    """Transfer money."""
    return f"moved {amount}"


def call(id: str, name: str = "weather", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments or {"city": "Paris"})


class Waiting:
    """A tool that signals its start and waits until it may proceed."""

    def __init__(self, name: str = "wait") -> None:
        self.started = asyncio.Event()
        self.proceed = asyncio.Event()
        self.runs = 0
        self.was_cancelled = False

        async def wait() -> str:
            """Wait."""
            self.runs += 1
            self.started.set()
            try:
                await self.proceed.wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
            return "proceeded"

        self.tool = tool(name=name)(wait)


class SlowStore(MemoryStore):
    """Yields to other tasks before and after each write, and records what it has acknowledged."""

    def __init__(self, environment: Environment | None = None) -> None:
        super().__init__(environment=environment)
        self.acknowledged: list[str] = []

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        await asyncio.sleep(0)
        lease = await super()._append(batch, expected_tail, permit)
        self.acknowledged += batch.ids
        await asyncio.sleep(0)
        return lease

    async def release_lease(self, lease: Lease) -> None:
        await asyncio.sleep(0)
        await super().release_lease(lease)


class PausingModel(ScriptedModel):
    """A scripted model that stops in the middle of an answer until it may proceed."""

    def __init__(
        self, answers: Sequence[ScriptedResponse], *, after: int = 3, environment: Environment | None = None
    ) -> None:
        super().__init__(answers, environment=environment, chunk_chars=4)
        self.reached = asyncio.Event()
        self.proceed = asyncio.Event()
        self._after = after

    def respond(self, request: ModelRequest) -> GuardedStream:
        stream = super().respond(request)
        return GuardedStream(self._pausing(stream), stream.run_id)

    async def _pausing(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        number = 0
        async with aclosing(stream):
            async for delta in stream:
                if number == self._after and not self.proceed.is_set():
                    self.reached.set()
                    await self.proceed.wait()
                number += 1
                yield delta


def make(
    answers: Sequence[ScriptedResponse | Callable[[Sequence[Message]], ScriptedResponse]] | ScriptedModel,
    *tools: ToolDefinition,
    store: SessionStore | None = None,
    **options: Any,
) -> tuple[Agent[Any, Any], SessionStore, ScriptedModel]:
    """An agent with a scripted model and an in-memory store, all with a counting clock."""
    environment = options.pop("environment", None) or (counting_environment() if store is None else store.environment)
    model = answers if isinstance(answers, ScriptedModel) else ScriptedModel(answers, environment=environment)
    session_store = store or MemoryStore(environment=environment)
    options.setdefault("retry", FAST)
    return (
        Agent(model, tools=tools or (weather, fail, transfer), store=session_store, environment=environment, **options),
        session_store,
        model,
    )


async def facts(store: SessionStore, session: str = SESSION) -> list[Any]:
    return [entry.fact for entry in await store.load(session)]


async def kinds(store: SessionStore, session: str = SESSION) -> list[str]:
    """The kinds of the facts; for messages, their roles."""
    return [fact.role if isinstance(fact, Message) else fact.kind for fact in await facts(store, session)]


async def messages(store: SessionStore, session: str = SESSION) -> list[Message]:
    return [fact for fact in await facts(store, session) if isinstance(fact, Message)]


async def results(store: SessionStore, session: str = SESSION) -> dict[str, ToolResult]:
    return {
        result.tool_call_id: result for message in await messages(store, session) for result in message.tool_results
    }


async def ended(store: SessionStore, session: str = SESSION) -> RunEnded:
    last = (await facts(store, session))[-1]
    assert isinstance(last, RunEnded)
    return last


async def check_session(store: SessionStore, session: str = SESSION) -> Sequence[Entry]:
    """Check that every call has one result and that each format accepts the history without added results."""
    entries = await store.load(session)
    history = [entry.fact for entry in entries if isinstance(entry.fact, Message)]
    calls = Counter(
        call.tool_call_id for message in history for call in message.tool_calls if call.executed_by == "client"
    )
    answers = Counter(result.tool_call_id for message in history for result in message.tool_results)
    assert calls == answers, f"calls {calls}, results {answers}"
    assert max(calls.values(), default=1) == 1
    for format, rules in RULES.items():
        repaired = repair(history, rules)
        assert check_history(repaired.messages, rules) == [], format
        made_up = [note for note in repaired.notes if note.action == "added" and note.what.startswith("error result")]
        assert made_up == []
    return entries


def starts(entries: Sequence[Entry]) -> Counter[str]:
    return Counter(entry.fact.tool_call_id for entry in entries if isinstance(entry.fact, ToolStarted))


async def within(work: Awaitable[Any], seconds: float = 300) -> Any:
    """The result of the work; `TimeoutError` instead of a test that hangs."""
    async with asyncio.timeout(seconds):
        return await work


async def collected(run: Run) -> list[Any]:
    async with run:
        return [event async for event in run]
