"""`open_run`: how a run starts.

One transaction takes the session's lease and stores the first facts of the run: those that end a run whose process
died, `run_started`, the messages that were queued in the meantime and the prompt. If the session is in use, no prompt
is stored and no model is called.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from bartack.agent.channel import EventChannel
from bartack.agent.handoff import unreachable_error
from bartack.agent.journal import interrupted_answer
from bartack.agent.run_context import (
    Inbox,
    ModelSwitch,
    RunContext,
    RunOutcome,
    RunSetup,
    Work,
    current_run,
    delivered,
    run_result,
    set_up_run,
)
from bartack.agent.run_log import RunLog, retried
from bartack.agent.session_view import SessionView, SessionViews
from bartack.agent.settings import AgentSettings
from bartack.agent.tool_calls import closing_facts, end_inner_runs, with_results
from bartack.agent.tracing import RunStart, RunTracer, SpanRef, TelemetrySink, Untraced, current_trace
from bartack.events import RunResult
from bartack.models.model import Model
from bartack.nouns.config import LoopConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry, Fact, RunEnded, RunStarted, SessionHeader
from bartack.nouns.errors import (
    AgentError,
    Conflict,
    ErrorCode,
    NotFound,
    NothingToResume,
    PartValidationError,
    StoreError,
    ToolError,
)
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import RunState
from bartack.store.foreign import not_adopted_error
from bartack.store.session_store import Lease, SessionStore, Tail, next_entries
from bartack.tools import ToolContext

__all__ = ["RunTask", "open_run", "result_of_other"]

_UNTRACED = Untraced()


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """What a run is to do. Without `prompt` and `work`, it resumes the session."""

    session_id: str
    prompt: Message | None = None
    before: tuple[Message, ...] = ()  # messages that precede the prompt
    needs_new: bool = False  # the session must not have a history
    work: Work | None = None  # instead of answering
    abort: bool = False  # only end the open run
    model: Model | None = None  # instead of the agent's own
    metadata: dict[str, Any] | None = None  # recorded at the start of the run
    limits: LoopConfig | None = None  # the run's own limits
    head: str | None = None  # the entry to continue from, for a branch
    only_if: Callable[[RunState], bool] | None = None  # must hold in the session as it is when the run begins
    takeover: bool = False

    @property
    def is_new(self) -> bool:
        """Whether this starts a new run rather than continuing an earlier one."""
        return self.work is not None or self.prompt is not None


async def open_run(
    settings: AgentSettings,
    options: RunTask,
    *,
    store: SessionStore,
    views: SessionViews,
    channel: EventChannel,
    inbox: Inbox,
) -> RunContext | RunResult:
    """A run that has started, or the last result if there is nothing to resume.

    Raises `SessionInUse` if another run is live on the session, `NothingToResume` if `RunTask.only_if` is false, and
    `NotAdopted` if the session is foreign. In all cases, nothing is stored.
    """
    may_create = options.prompt is not None
    while True:
        view = await _current_view(store, views, options.session_id, may_create)
        if view.is_foreign:
            raise not_adopted_error(options.session_id)
        if options.only_if is not None and not options.only_if(view.state):
            views.put(store, view)
            raise NothingToResume(f"There is nothing left to resume in session {options.session_id!r}.")
        if not options.is_new and _is_over(view.state, options):
            views.put(store, view)
            return await _last_result(settings, view)
        if options.head is not None:
            view = await SessionView.load(store, options.session_id, options.head)
        if view.state.is_uncertain:
            raise _damaged_error(view)
        if options.needs_new and view.tail.seq:
            text = f"Session {options.session_id!r} already has a history; history= is only for new sessions."
            raise AgentError(text, code=ErrorCode.INVALID_CONFIG)
        answering = _answering(settings, view, options)
        answering = answering.with_limits(_limits(answering.config.loop, options, view.state))
        opening = await _opening(answering, options, store, view, handed_off=answering.name != settings.name)
        try:
            with opening.tracer.append([entry.fact for entry in opening.entries]):
                lease = await _claimed(answering, options, store, view, opening)
        except StoreError as error:
            opening.tracer.not_started(error)
            if not isinstance(error, Conflict):
                raise
            if options.head is None:
                views.put(store, view)
            if error.tail in (None, view.tail.entry_id):
                raise
            may_create = False
            continue  # others have appended in the meantime
        log = RunLog(
            store,
            view,
            lease,
            opening.run_id,
            lease_s=settings.lease_s,
            channel=channel,
            see=_seen_by(settings, opening),
            tracer=opening.tracer,
        )
        closed = [] if opening.is_resumed else [*view.state.open_calls.values()]
        log.begin(opening.entries)
        await end_inner_runs(closed, answering.tools.registry, store)
        if opening.has_journal:
            with suppress(StoreError):  # the log has what was in it, so readers ignore it
                await log.clear_journal()
        setup = opening.setup
        return RunContext(
            settings=answering,
            log=log,
            channel=channel,
            inbox=inbox,
            model=setup.model,
            info=setup.info,
            hints=setup.hints,
            tool_specs=setup.tool_specs,
            instructions=setup.instructions,
            fallbacks=list(answering.fallback_models),
            switch=opening.switch,
            trace_id=opening.trace_id,
            tracer=opening.tracer,
            telemetry=opening.telemetry,
        )


def _answering(settings: AgentSettings, view: SessionView, options: RunTask) -> AgentSettings:
    """The settings of the agent that answers: after a handoff, those of the other agent, if it can be reached.

    Raises `AgentError` when resuming the open run of an agent that cannot be reached. Aborting such a run is allowed.
    """
    state = view.state
    name = state.handoff or state.agent
    successor = None if name is None else settings.find_agent(name)
    is_resumed = not options.is_new and not options.abort and state.run_id is not None
    is_other = name != settings.name and (state.handoff is not None or state.is_handed_off)
    if successor is None and name is not None and is_resumed and is_other:
        raise unreachable_error(name, view.session_id, settings.name)
    return successor or settings


def _is_over(state: RunState, options: RunTask) -> bool:
    """Whether there is nothing to continue, or no open run to abort."""
    return state.run_id is None if options.abort else state.is_finished


async def result_of_other(
    settings: AgentSettings, store: SessionStore, since: Entry, seconds: float
) -> RunResult | None:
    """The result of another process's run, once it ends after this entry; None if it takes longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), aclosing(store.follow(since.session_id, since.seq)) as entries:  # type: ignore[type-var]
            async for entry in entries:
                if isinstance(entry.fact, RunEnded):
                    return await _last_result(settings, await SessionView.load(store, since.session_id, entry.id))
    return None


class _Opening(NamedTuple):
    """What a run starts with."""

    run_id: str
    setup: RunSetup
    switch: ModelSwitch | None
    trace_id: str | None
    tracer: RunTracer
    telemetry: TelemetrySink | None
    has_journal: bool  # an interrupted answer has left one
    is_resumed: bool
    entries: tuple[Entry, ...]


async def _current_view(store: SessionStore, views: SessionViews, session_id: str, may_create: bool) -> SessionView:
    try:
        return await views.take(store, session_id)
    except NotFound:
        if not may_create:
            raise
        return SessionView(session_id)


def _damaged_error(view: SessionView) -> StoreError:
    return StoreError(
        f"Entry {view.state.lost} of session {view.session_id!r} cannot be read. It belongs to a run that has not "
        "ended, so a tool call could be repeated. Restore a backup, or accept the loss with "
        "'bartack sessions fsck --repair'.",
        code=ErrorCode.STORAGE_CORRUPT,
    )


async def _claimed(
    settings: AgentSettings, options: RunTask, store: SessionStore, view: SessionView, opening: _Opening
) -> Lease:
    """The lease, once the first entries of the run are durable. No two runs have the same owner name."""
    started = next(entry for entry in opening.entries if isinstance(entry.fact, RunStarted))
    clock = asyncio.get_running_loop().time
    deadline = clock() + settings.lease_s
    return await retried(
        lambda: store.claim(
            options.session_id,
            opening.entries,
            view.tail.entry_id or None,
            f"{settings.name or 'agent'} {started.id}",
            ttl=settings.lease_s,
            takeover=options.takeover,
        ),
        lambda: deadline - clock(),
    )


def _limits(configured: LoopConfig, options: RunTask, state: RunState) -> LoopConfig:
    """The limits of the run. Those that it was started with apply to all of it, whichever process resumes it."""
    if options.limits is not None or options.is_new:
        return options.limits or configured
    stored = state.limits or LoopConfig()
    return replace(stored, journal_ms=configured.journal_ms, keep_requests=configured.keep_requests)


def _stored_limits(limits: LoopConfig) -> LoopConfig | None:
    """The limits without what each process decides for itself; None: the default ones."""
    stored = replace(limits, journal_ms=None, keep_requests=False)
    return None if stored == LoopConfig() else stored


async def _opening(
    settings: AgentSettings,
    options: RunTask,
    store: SessionStore,
    view: SessionView,
    *,
    handed_off: bool,
) -> _Opening:
    """The first facts of the run, after those that end an earlier run which will not be resumed."""
    state = view.state
    resumed = None if options.is_new else state.run_id
    run_id = resumed or settings.environment.new_id()
    model = options.model or await _requested_model(settings, state) or settings.model
    setup = await set_up_run(settings, state, view.session_id, model, asks_model=not options.abort)
    telemetry = _telemetry(settings)
    tracer: RunTracer = _UNTRACED
    if telemetry is not None:
        tracer = telemetry.start_run(
            _run_start(settings, view, model, setup.ref, run_id, is_resumed=resumed is not None)
        )
    trace_id, span_id = tracer.span or (_trace_id(settings, None if resumed is None else state.trace_id), None)
    started = replace(
        setup.started(settings.name),
        handed_off=handed_off,
        trace_id=trace_id,
        span_id=span_id,
        limits=_stored_limits(settings.config.loop),
        metadata=options.metadata,
    )
    facts = [started, *setup.facts]
    if resumed is None and options.work is None:  # messages that were queued while no run was live
        facts += [delivered(request, queued) for request, queued in state.inbox.items()]
    if options.prompt is not None:
        facts.append(options.prompt)
    interrupted = [] if state.run_id is None else await interrupted_answer(store, options.session_id, state)
    # Without a run that made them, open calls are from a transcript of another program: they are not executed here.
    closing = closing_facts(state, *interrupted) if resumed is None else interrupted
    return _Opening(
        run_id,
        setup,
        ModelSwitch(state.model, "chosen") if setup.is_switched else None,
        trace_id,
        tracer,
        telemetry,
        bool(interrupted),
        resumed is not None,
        _entries(
            store,
            view,
            (state.run_id, closing),
            (None, with_results(options.before, state.call_ids, settings.environment.new_id)),
            (run_id, facts),
        ),
    )


def _trace_id(settings: AgentSettings, earlier: str | None) -> str | None:
    """The trace that this code runs in, or that the resumed run was in; or else a new one, if the agent traces."""
    trace_id = current_trace() or earlier
    if trace_id is None and settings.config.observability.trace:
        return settings.environment.new_id().replace("-", "")
    return trace_id


def _telemetry(settings: AgentSettings) -> TelemetrySink | None:
    """That of the agent, or else of the run that this one is part of."""
    outer = current_run.get()
    return settings.telemetry or (None if outer is None else outer.telemetry)


def _run_start(
    settings: AgentSettings, view: SessionView, model: Model, ref: ModelRef, run_id: str, *, is_resumed: bool
) -> RunStart:
    state = view.state
    is_known = is_resumed and state.trace_id is not None and state.span_id is not None
    return RunStart(
        session_id=view.session_id,
        run_id=run_id,
        agent=settings.name,
        model=model,
        ref=ref,
        trace=current_trace(),
        continues=SpanRef(state.trace_id, state.span_id) if is_known else None,  # type: ignore[arg-type]
        is_resumed=is_resumed,
        visible=lambda: {item.entry_id: item.message for item in view.context.items},
    )


def _seen_by(settings: AgentSettings, opening: _Opening) -> Callable[[Entry], None]:
    """What is done with each entry of the run once it is stored."""
    see = settings.observer.watch(opening.trace_id, is_resumed=opening.is_resumed)
    if opening.telemetry is None:
        return see

    def see_both(entry: Entry) -> None:
        see(entry)
        opening.tracer.see(entry)

    return see_both


def _entries(store: SessionStore, view: SessionView, *batches: tuple[str | None, Sequence[Fact]]) -> tuple[Entry, ...]:
    """The facts of each run as entries that follow the view, with a header first if the session is new."""
    tail, parent = (view.tail, view.parent_id) if view.tail.seq else (None, None)
    entries: list[Entry] = []
    for run_id, facts in (*(() if tail else ((None, [SessionHeader()]),)), *batches):
        entries += next_entries(view.session_id, tail, facts, store.environment, parent_id=parent, run_id=run_id)
        if entries:
            tail, parent = Tail(entries[-1].id, entries[-1].seq), None
    return tuple(entries)


async def _requested_model(settings: AgentSettings, state: RunState) -> Model | None:
    return None if state.requested_model is None else await settings.find_model(state.requested_model)


async def _last_result(settings: AgentSettings, view: SessionView) -> RunResult:
    state = view.state
    ended = state.ended
    run_id = state.last_run_id or settings.environment.new_id()
    if ended is None:
        return run_result(view, run_id, AgentStatus.IDLE, RunOutcome("complete"))
    value, failed = None, ended.error
    if state.answer is not None and ended.status == "completed":
        context = ToolContext(deps=settings.tools.deps, run_id=run_id, session_id=view.session_id)
        try:
            value = await settings.output.value(state.answer, context)
        except (AgentError, PartValidationError, ToolError) as error:  # it answered an agent with another output type
            failed = Failed(ErrorCode.INVALID_OUTPUT, f"The stored answer is not a valid output: {error.message}")
    outcome = RunOutcome("complete", ended.reason, failed, value)
    return run_result(view, run_id, AgentStatus(ended.status), outcome)
