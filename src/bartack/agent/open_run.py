"""`open_run`: how a run starts.

When it returns, the session exists, its lease is held, its entries are loaded and `run_started` is durable. That is
before the first model call, so a second writer gets its `Conflict` before anything is paid for: from the lease while
another run is live, from the expected tail if both start at the same moment.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from bartack.agent.channel import EventChannel
from bartack.agent.events import RunResult
from bartack.agent.run_context import Inbox, ModelSwitch, RunContext, RunOutcome, model_ref, run_result
from bartack.agent.run_log import RunLog
from bartack.agent.session_view import SessionView, SessionViews, ensure_session
from bartack.agent.settings import AgentSettings
from bartack.agent.tool_calls import closing_facts
from bartack.models.model import Model
from bartack.nouns.entries import Fact, ModelChange, RunStarted, RuntimeInit
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import RunState
from bartack.store.session_store import Lease, SessionStore

__all__ = ["RunOptions", "open_run"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run was started with. Without a prompt it resumes or compacts the session."""

    session_id: str
    prompt: Message | None = None
    compact: bool = False
    model: Model | None = None  # instead of the agent's own
    head: str | None = None  # the entry to continue from, for a branch
    takeover: bool = False

    @property
    def is_new(self) -> bool:
        """Whether this starts a new run rather than continuing an earlier one."""
        return self.compact or self.prompt is not None


async def open_run(
    settings: AgentSettings,
    options: RunOptions,
    *,
    store: SessionStore,
    views: SessionViews,
    channel: EventChannel,
    inbox: Inbox,
) -> RunContext | RunResult:
    """A run that has started, or the last result if there is nothing to resume. `Conflict` if the session is in use."""
    if options.prompt is not None:
        await ensure_session(store, options.session_id)
    view = await views.take(store, options.session_id)
    owner = f"run {uuid4()}"  # not a name that another run could have
    lease = await store.acquire_lease(options.session_id, owner, settings.lease_s, takeover=options.takeover)
    try:
        view = await view.current(store)
        if not options.is_new and view.state.is_finished:
            await _release(store, lease)
            views.put(store, view)
            return _last_result(settings, view)
        if options.head is not None:
            view = await SessionView.load(store, options.session_id, options.head)
        resumed = None if options.is_new else view.state.run_id
        run_id = resumed or settings.environment.new_id()
        log = RunLog(store, view, lease, run_id, lease_s=settings.lease_s, channel=channel)
        return await _start(settings, options, log, channel, inbox)
    except BaseException:
        await _release(store, lease)
        raise


async def _start(
    settings: AgentSettings, options: RunOptions, log: RunLog, channel: EventChannel, inbox: Inbox
) -> RunContext:
    """Append the first facts of the run, after those that end an earlier run which will not be resumed."""
    model, state = options.model or settings.model, log.session.state
    info = await settings.info_for(model)
    hints, runtime_facts = await _connect_runtime(settings, state)
    specs = settings.tools.registry.build_model_tool_specs()
    ref, previous = model_ref(info), state.model
    started = RunStarted(
        agent=settings.name, model=ref, config=model.get_config(), tools=tuple(spec.name for spec in specs)
    )
    is_switched = previous is not None and previous != ref
    facts = [started, *([ModelChange(ref, previous)] if is_switched else []), *runtime_facts]
    if options.prompt is not None:
        facts.append(options.prompt)
    await log.open((state.run_id, closing_facts(state) if options.is_new else ()), facts)
    return RunContext(
        settings=settings,
        log=log,
        channel=channel,
        inbox=inbox,
        model=model,
        info=info,
        hints=hints,
        tool_specs=specs,
        switch=ModelSwitch(previous, "chosen") if is_switched else None,
    )


async def _connect_runtime(settings: AgentSettings, state: RunState) -> tuple[tuple[str, ...], list[Fact]]:
    """What the runtime adds to the system prompt, and the fact about it if it has changed."""
    runtime = settings.tools.runtime
    if runtime is None:
        return (), []
    if runtime.status == "closed":
        await runtime.connect()
    hints = runtime.get_hints()
    fact = RuntimeInit(runtime.name, await runtime.get_init_data())
    return (hints,) if hints else (), [] if fact == state.runtime else [fact]


async def _release(store: SessionStore, lease: Lease) -> None:
    with suppress(StoreError):
        await asyncio.shield(store.release_lease(lease))


def _last_result(settings: AgentSettings, view: SessionView) -> RunResult:
    state = view.state
    ended = state.ended
    run_id = state.last_run_id or settings.environment.new_id()
    if ended is None:
        return run_result(view, run_id, AgentStatus.IDLE, RunOutcome("complete"))
    value: Any = state.answer.text if state.answer is not None and ended.status == "completed" else None
    if value is not None and settings.output is not None:
        value = settings.output.read(value)
    outcome = RunOutcome("complete", ended.reason, ended.error, value)
    return run_result(view, run_id, AgentStatus(ended.status), outcome)
