"""A process that is stopped anywhere, and wakes up after its run was taken over and completed by another one."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from bartack import Message, ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.config import LoopConfig
from bartack.nouns.errors import StoreError
from bartack.store import MemoryStore
from bartack.tools import ToolContext, tool
from tests.agent.kit import SESSION, check_session, within

# What a process asks of a store. It is stopped before the request is sent, or before the answer has arrived.
OPERATIONS = {
    *("append", "claim", "create_session", "load", "entries", "tail_of", "heads"),
    *("write_journal", "clear_journal", "read_journal"),
    *("acquire_lease", "renew_lease", "release_lease", "lease_of"),
}
JOURNALLED = LoopConfig(journal_ms=1)


class StoppingStore:
    """The store as one process sees it, which is stopped at one of its operations, and then at every one."""

    def __init__(self, store: MemoryStore, step: int) -> None:
        self._store = store
        self._left = step
        self.stopped = asyncio.Event()
        self.woken = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name not in OPERATIONS:
            return value

        async def operation(*args: Any, **options: Any) -> Any:
            await self._pass()
            result = await value(*args, **options)
            await self._pass()
            return result

        return operation

    async def _pass(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.stopped.set()
            await self.woken.wait()


class Model(ScriptedModel):
    """Calls the tool once in each of two rounds, and answers."""

    def __init__(self) -> None:
        super().__init__([self._answer] * 9, chunk_chars=4)

    def _answer(self, history: Sequence[Message]) -> ScriptedResponse:
        rounds = sum(message.role == "tool" for message in history)
        return assistant("Charging.", ToolCall(f"c{rounds}", "charge", {})) if rounds < 2 else "All is done."


def made(store: Any, charged: Counter[str]) -> Agent[Any, Any]:
    @tool
    async def charge(context: ToolContext[None]) -> str:
        """Charge, which must happen once."""
        charged[context.tool_call_id] += 1
        await asyncio.sleep(0.002)
        return "charged"

    return Agent(Model(), tools=[charge], store=store)


async def is_stopped_at(place: int) -> bool:
    """Whether a run has this many operations; if so, it was stopped there, and woken after another process was done."""
    store, charged = MemoryStore(), Counter[str]()
    process = StoppingStore(store, place)
    first = asyncio.create_task(made(process, charged).run("Go", session=SESSION, limits=JOURNALLED))
    stopped = asyncio.create_task(process.stopped.wait())
    await within(asyncio.wait({first, stopped}, return_when=asyncio.FIRST_COMPLETED))
    if not process.stopped.is_set():
        stopped.cancel()
        assert (await first).output == "All is done."
        return False
    has_begun = len((await store.sessions()).items) > 0
    if has_begun:
        second = made(store, charged)
        assert (await within(second.resume(SESSION, takeover=True, limits=JOURNALLED))).output == "All is done."
    before = (await store.entries(SESSION), await store.read_journal(SESSION)) if has_begun else None
    process.woken.set()
    outcome = (await within(asyncio.gather(first, return_exceptions=True)))[0]
    if before is not None:
        assert isinstance(outcome, StoreError) or outcome.output == "All is done.", outcome
        assert (await store.entries(SESSION)).texts == before[0].texts
        assert await store.read_journal(SESSION) == before[1]
        assert await store.lease_of(SESSION) is None
    assert max(charged.values()) == 1, charged
    await check_session(store)
    return True


async def test_a_process_that_wakes_up_after_its_run_was_taken_over_does_no_harm() -> None:
    place = 1
    while await is_stopped_at(place):
        place += 1
    assert place > 20


async def test_the_experiment_notices_a_process_that_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.store.append.check_fence", lambda *_: None)
    monkeypatch.setattr("bartack.store.append_only.check_fence", lambda *_: None)
    harmed = 0
    for place in range(1, 25):
        try:
            await is_stopped_at(place)
        except AssertionError:
            harmed += 1
    assert harmed > 0
