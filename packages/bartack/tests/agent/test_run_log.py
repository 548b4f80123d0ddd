"""Appends of a run that share a commit: what becomes of each if the store fails, or a task is cancelled."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bartack import ErrorCode
from bartack.agent.channel import EventChannel
from bartack.agent.run_log import RunLog
from bartack.agent.session_view import SessionView
from bartack.agent.tracing import Untraced
from bartack.nouns.entries import Fact, ToolProgress, ToolStarted
from bartack.nouns.errors import StoreError
from bartack.store import Lease, MemoryStore
from bartack.store.append import Batch, Permit
from bartack.tools.tool_round import Superseded
from tests.agent.kit import SESSION, within


class Unsure(MemoryStore):
    """A store that stores an append and then reports a failure, or takes its time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sizes: list[int] = []
        self.fails_after: Callable[[], object] | None = None
        self.is_reached, self.may_continue = asyncio.Event(), asyncio.Event()
        self.may_continue.set()

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        self.sizes.append(len(batch.rows))
        self.is_reached.set()
        await self.may_continue.wait()
        lease = await super()._append(batch, expected_tail, permit)
        if self.fails_after is not None:
            self.fails_after()
            self.fails_after = None
            raise StoreError("the connection was lost")
        return lease


async def _log(store: Unsure) -> RunLog:
    await store.create_session(SESSION)
    lease = await store.acquire_lease(SESSION, "r", 30)
    view = await SessionView.load(store, SESSION)
    store.sizes.clear()
    store.is_reached.clear()
    return RunLog(store, view, lease, "r", lease_s=30, channel=EventChannel(), see=lambda _: None, tracer=Untraced())


def _started(number: int) -> ToolStarted:
    return ToolStarted(tool_call_id=f"c{number}", tool_name="look", arguments={})


async def _stored(store: Unsure) -> list[str]:
    facts = [entry.fact for entry in await store.load(SESSION)]
    return [fact.tool_call_id for fact in facts if isinstance(fact, ToolStarted)]


async def test_a_group_whose_outcome_is_unknown_is_stored_once() -> None:
    """Also what is no longer wanted by then: it may be stored already, and its place cannot be given to another."""
    store = Unsure()
    log = await _log(store)
    is_wanted = True

    def no_longer() -> None:
        nonlocal is_wanted
        is_wanted = False

    store.fails_after = no_longer
    first = log.append(_started(1), still=lambda: is_wanted, may_share=True)
    appended = await within(asyncio.gather(first, log.append(_started(2), may_share=True)))
    assert store.sizes == [2, 1, 1]
    assert [entry.seq for entries in appended for entry in entries] == [2, 3]
    assert log.failure is None
    assert await _stored(store) == ["c1", "c2"]
    assert (await log.append(_started(3)))[0].seq == 4


async def test_what_is_no_longer_wanted_is_left_out_of_a_group() -> None:
    store = Unsure()
    log = await _log(store)
    outcomes = await within(
        asyncio.gather(
            log.append(_started(1), may_share=True),
            log.append(_started(2), still=lambda: False, may_share=True),
            log.append(_started(3), may_share=True),
            return_exceptions=True,
        )
    )
    assert [isinstance(outcome, Superseded) for outcome in outcomes] == [False, True, False]
    assert store.sizes == [2]
    assert await _stored(store) == ["c1", "c3"]


async def test_facts_are_stored_in_the_order_of_their_appends() -> None:
    store = Unsure()
    log = await _log(store)
    shares = [True, True, False, True, True]
    appends = [log.append(_started(number), may_share=share) for number, share in enumerate(shares)]
    await within(asyncio.gather(*appends))
    assert store.sizes == [2, 1, 2]
    assert await _stored(store) == ["c0", "c1", "c2", "c3", "c4"]


@pytest.mark.parametrize("may_share", [True, False])
@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_an_append_whose_task_is_cancelled_takes_no_other_with_it(cancelled: int, may_share: bool) -> None:
    """At the end of an event loop every task is cancelled, also those that the log shields from its callers."""
    store = Unsure()
    log = await _log(store)
    store.may_continue.clear()
    before = asyncio.all_tasks()
    facts: list[Fact] = [_started(0), ToolProgress(tool_call_id="c0", content="…"), _started(1)]
    appends = [asyncio.create_task(log.append(fact, may_share=may_share)) for fact in facts]
    await within(store.is_reached.wait())
    shielded = [task for task in asyncio.all_tasks() - before if task not in appends]
    by_age = sorted(shielded, key=lambda task: int(task.get_name().rpartition("-")[2]))
    by_age[cancelled].cancel()
    store.may_continue.set()
    outcomes = await within(asyncio.gather(*appends, return_exceptions=True))
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [
        number == cancelled for number in range(3)
    ]
    kept = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
    stored = {entry.id: entry for entry in await store.load(SESSION)}
    assert [[stored[entry.id]] for (entry,) in kept] == [[*entries] for entries in kept]
    assert log.failure is None


async def test_a_failure_of_the_store_reaches_every_append_of_a_group() -> None:
    store = Unsure()
    log = await _log(store)

    async def refuse(batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        raise StoreError("the disk is full", code=ErrorCode.STORAGE_FAILED)

    store._append = refuse  # type: ignore[method-assign]
    appends = [log.append(_started(number), may_share=True) for number in range(3)]
    outcomes = await within(asyncio.gather(*appends, return_exceptions=True))
    assert all(outcome is log.failure for outcome in outcomes)
    assert log.failure is not None
