"""How a run begins: the session is there, its lease is held, its entries are read, and a `run_started` is durable.

All of it comes before the first model call, so a second writer gets its `Conflict` before anything is paid for: by the
lease while another run works, by the expected tail if it was quicker.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from bartack.agent.answering import Answering
from bartack.agent.ledger import Batch, Ledger
from bartack.agent.progress import Progress
from bartack.agent.recovery import closing_facts
from bartack.agent.setup import ref_of
from bartack.agent.view import SessionView, ensure_session
from bartack.agent.work import Work
from bartack.nouns.entries import Fact, ModelChange, RunStarted, RuntimeInit
from bartack.nouns.errors import Conflict, StoreError
from bartack.nouns.messages import Message, ModelRef
from bartack.store.session_store import Lease, SessionStore

__all__ = ["Views", "begin", "is_over", "opened_view"]


class Views(Protocol):
    """The views that an agent keeps."""

    def take(self, session_id: str) -> SessionView | None:
        """The session's view, which from now on belongs to the caller."""

    def put(self, view: SessionView) -> None:
        """Keep a view."""


async def opened_view(
    store: SessionStore, views: Views, session_id: str, *, lease_s: float, create: bool, takeover: bool
) -> tuple[SessionView, Lease]:
    """The session as it is now, and the right to write to it.

    The lease is held in the name of the last `run_started` before it. While a run works, the next one has another name
    and gets a `Conflict`. Of two that begin at the same moment, both with one name, the second fences the first out
    before it has done anything. And who finds a run whose process died knows in which name to take its lease over.
    """
    if create:
        await ensure_session(store, session_id)
    view = await _current(store, views.take(session_id), session_id)
    if takeover:
        await _take_over(store, view, lease_s)
    lease = await store.acquire_lease(session_id, _name(view.progress.stint), lease_s)
    try:
        return await _current(store, view, session_id), lease
    except BaseException:
        await released(store, lease)
        raise


async def _current(store: SessionStore, view: SessionView | None, session_id: str) -> SessionView:
    if view is not None and await view.refresh(store):
        return view
    return await SessionView.load(store, session_id)


async def _take_over(store: SessionStore, view: SessionView, lease_s: float) -> None:
    """End the lease of the run that was started last. Should its process still live, it can write no more."""
    with suppress(Conflict):  # another than that run holds it
        lease = await store.acquire_lease(view.session_id, _name(view.progress.stint_before), lease_s)
        await store.release_lease(lease)


def _name(stint: str | None) -> str:
    return "the first run" if stint is None else f"the run after {stint}"


async def released(store: SessionStore, lease: Lease) -> None:
    """The lease given back, also by a task that is being cancelled."""
    with suppress(StoreError):
        await asyncio.shield(store.release_lease(lease))


def is_over(progress: Progress) -> bool:
    """Whether there is nothing to go on with: the last run ended and left no question open."""
    asked = progress.last is not None and progress.last.role == "user"
    return progress.run_id is None and not progress.open_calls and not asked


async def begin(
    work: Work, store: SessionStore, lease: Lease, prompt: Message | None, *, head: str | None, ends_earlier: bool
) -> Answering:
    """Make the run's first facts durable, after those that end an earlier run that nobody goes on with; `Conflict` if
    another was quicker."""
    setup = work.setup
    if head is not None:
        work.view = await SessionView.load(store, work.view.session_id, head)
    info = await setup.info(work.model)
    work.context_window = info.context_window
    work.ledger = Ledger(store, work.view, lease, work.run_id, ttl_s=setup.lease_s, told=work.tell_entry)
    model, previous = ref_of(info), work.progress.model
    switched = previous is not None and previous != model
    facts: list[Fact] = [_run_started(work, model)]
    if switched:
        facts.append(ModelChange(model, previous))
    facts += await _runtime_facts(work)
    before: list[Batch] = []
    if ends_earlier:
        before = [(work.progress.run_id, closing_facts(work.progress))]
    if prompt is not None:
        facts.append(prompt)
    await work.ledger.open(before, facts)
    return Answering(work, switched_from=previous if switched else None)


def _run_started(work: Work, model: ModelRef) -> RunStarted:
    setup = work.setup
    config = work.model.get_config()
    return RunStarted(agent=setup.name, model=model, config=config, tools=tuple(spec.name for spec in work.specs))


async def _runtime_facts(work: Work) -> list[Fact]:
    runtime = work.setup.runtime
    if runtime is None:
        return []
    if runtime.status == "closed":
        await runtime.connect()
    hints = runtime.get_hints()
    work.hints = (hints,) if hints else ()
    fact = RuntimeInit(runtime.name, await runtime.get_init_data())
    return [] if fact == work.progress.runtime else [fact]
