"""`RunContext`: everything that one run works with, and its status.

`RunSetup` is the part of it that is set up when an agent begins the run or takes it over.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bartack.agent.channel import EventChannel
from bartack.agent.run_log import RunLog
from bartack.agent.session_view import SessionView
from bartack.agent.settings import AgentSettings, PromptContext
from bartack.agent.tool_search import declared_tools
from bartack.agent.tracing import RunTracer, TelemetrySink, Untraced
from bartack.events import REFUSED_BY, RunResult, StatusChanged
from bartack.models.model import Model
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ToolSpec
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Fact, MessageQueued, ModelChange, RunStarted, RuntimeInit
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.tables import AGENT, AgentStatus, advance
from bartack.session.context import ContextInput
from bartack.session.run_state import RunState
from bartack.tools import Runtime, ToolContext
from bartack.tools.tool_round import Refusal, Superseded

__all__ = [
    "Inbox",
    "ModelSwitch",
    "RunContext",
    "RunFailed",
    "RunOutcome",
    "RunSetup",
    "Work",
    "current_run",
    "delivered",
    "model_ref",
    "refused",
    "run_result",
    "set_up_run",
]


class RunOutcome(NamedTuple):
    """How a run ends: an event of the table AGENT, or ``pause``."""

    event: Literal["complete", "fail", "abort", "pause"]
    reason: str | None = None
    error: Failed | None = None
    value: Any = None


class RunFailed(Exception):
    """Ends the run as failed, with this error in its result."""

    def __init__(self, code: ErrorCode, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.failed = Failed(code, message)
        self.outcome = RunOutcome("fail", reason or str(code), self.failed)


def refused(refusal: Refusal) -> RunFailed:
    """The failure of a run that a hook has stopped."""
    return RunFailed(ErrorCode.REFUSED, refusal.reason, reason=f"{REFUSED_BY}{refusal.by}")


class ModelSwitch(NamedTuple):
    """A change of model that has not been published yet."""

    previous: ModelRef | None
    reason: Literal["chosen", "fallback"]


@dataclass(eq=False)
class Inbox:
    """Requests of the owner of a run while it is live, in memory. They take effect between two steps.

    Requests of other processes are in the session: see `RunState`.
    """

    steering: deque[Message] = field(default_factory=deque)  # delivered before the next model call
    queued: deque[Message] = field(default_factory=deque)  # delivered one by one when the run would end
    model: Model | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no message is left."""
        return not self.steering and not self.queued

    def take(self, *, steer: bool) -> list[Message]:
        """All messages for the next model call, or the next message for when the run would end."""
        if not steer:
            return [self.queued.popleft()] if self.queued else []
        messages = list(self.steering)
        self.steering.clear()
        return messages

    def take_model(self) -> Model | None:
        """The model to switch to, if there is one."""
        model, self.model = self.model, None
        return model


class RunSetup(NamedTuple):
    """The model, tools and instructions of a run, and the facts to record about them besides its start."""

    model: Model
    info: ModelInfo
    hints: tuple[str, ...]  # what the runtime adds to the system prompt
    tool_specs: tuple[ToolSpec, ...]
    instructions: str | None
    facts: tuple[Fact, ...]
    is_switched: bool  # the session had another model before

    def started(self, agent: str | None) -> RunStarted:
        """The fact about the start, without its trace and metadata."""
        names = tuple(spec.name for spec in self.tool_specs)
        return RunStarted(agent=agent, model=self.ref, config=self.model.get_config(), tools=names)

    @property
    def ref(self) -> ModelRef:
        """The model by its names."""
        return model_ref(self.info)


async def set_up_run(
    settings: AgentSettings, state: RunState, session_id: str, model: Model, *, asks_model: bool = True
) -> RunSetup:
    """Set up a run with these settings and this model. Without `asks_model`, the run only ends an earlier one."""
    info = await settings.info_for(model)
    hints, runtime_facts = await _connect_runtime(settings, state)
    ref, previous = model_ref(info), state.model
    instructions: str | None = None
    if asks_model:
        await settings.connections.open_tools(settings.tools.registry)
        context = PromptContext(deps=settings.tools.deps, session_id=session_id, model=ref)
        instructions = await settings.instructions_for(context)
    is_switched = previous is not None and previous != ref
    switched = (ModelChange(model=ref, previous=previous),) if is_switched else ()
    specs = settings.tools.registry.build_model_tool_specs()
    return RunSetup(model, info, hints, specs, instructions, (*switched, *runtime_facts), is_switched)


async def _connect_runtime(settings: AgentSettings, state: RunState) -> tuple[tuple[str, ...], list[Fact]]:
    """What the runtime adds to the system prompt, and the fact about it if it has changed."""
    runtime = settings.tools.runtime
    if runtime is None:
        return (), []
    await settings.connections.connect_runtime(runtime)
    hints = runtime.get_hints()
    fact = RuntimeInit(runtime=runtime.name, data=await runtime.get_init_data())
    return (hints,) if hints else (), [] if fact == state.runtime else [fact]


@dataclass(eq=False, kw_only=True)
class RunContext:
    """The parts of one run, and its status."""

    settings: AgentSettings
    log: RunLog
    channel: EventChannel
    inbox: Inbox
    model: Model
    info: ModelInfo
    hints: tuple[str, ...]  # what the runtime adds to the system prompt
    tool_specs: tuple[ToolSpec, ...]
    instructions: str | None
    fallbacks: list[Model]  # the models that have not been tried yet
    trace_id: str | None = None
    tracer: RunTracer = field(default_factory=Untraced)
    telemetry: TelemetrySink | None = None  # also for the runs of its tools
    switch: ModelSwitch | None = None
    status: AgentStatus = AgentStatus.IDLE

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.log.run_id

    @property
    def session(self) -> SessionView:
        """The session as the run sees it."""
        return self.log.session

    @property
    def state(self) -> RunState:
        """What the session's entries amount to."""
        return self.session.state

    @property
    def runtime(self) -> Runtime | None:
        """What the tools of the run work with."""
        return self.settings.tools.runtime

    @property
    def context_input(self) -> ContextInput:
        """The input for the next context."""
        return ContextInput(
            fold=self.session.context,
            system_prompt=self.instructions,
            hints=(*self._output_hints, *self.hints, *self.settings.tools.registry.hints),
            tools=self.declared_tools,
            context_window=self.info.context_window,
        )

    @property
    def declared_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the next request declares: all of them, unless the model searches for tools."""
        if not self.settings.tool_search:
            return self.tool_specs
        return declared_tools(self.tool_specs, self.model, (item.message for item in self.session.context.items))

    @property
    def _output_hints(self) -> tuple[str, ...]:
        """How to answer, for a model whose provider does not enforce the schema of the answer."""
        output, mode = self.settings.output.type, self.settings.output_mode
        is_enforced = output is not None and output.is_enforceable and self.model.supports("output_schema")
        if output is None or mode in ("native", "tool") or (mode is None and is_enforced):
            return ()
        return (output.instructions,)

    async def update_tools(self) -> None:
        """Let toolsets pick up what has changed since the last model call."""
        registry = self.settings.tools.registry
        if registry.toolsets:
            await self.settings.connections.open_tools(registry)
            self.tool_specs = registry.build_model_tool_specs()

    async def output_of(self, answer: Message) -> Any:
        """The output of the run; `PartValidationError` or `ToolError` for an answer that the model should correct."""
        deps = self.settings.tools.deps
        context = ToolContext(deps=deps, run_id=self.run_id, session_id=self.session.session_id)
        return await self.settings.output.value(answer, context)

    def move(self, event: str) -> None:
        """Change the status by the table AGENT; `InvalidStateTransition` if it has no such edge."""
        previous, self.status = self.status, advance(AGENT, self.status, event)
        if self.status is not previous:
            self.channel.put(StatusChanged(self.status, previous))

    async def deliver(self, *, steer: bool) -> bool:
        """Append the messages that are due before the next model call, or else the next one that waits for the end of
        the run; whether there was any."""
        state = self.state
        due = [request for request, queued in state.inbox.items() if queued.steer is steer]
        if due:
            requests = due if steer else due[:1]
            messages = [delivered(request, state.inbox[request]) for request in requests]
            with suppress(Superseded):  # one of them was withdrawn
                await self.log.append(*messages, still=lambda: all(request in state.inbox for request in requests))
            return True
        own = self.inbox.take(steer=steer)
        if own:
            await self.log.append(*own)
        return bool(own)

    async def update_model(self) -> bool:
        """Switch to the model that was requested, by the owner or in the session; whether that changed anything."""
        own, requested = self.inbox.take_model(), self.state.requested_model
        if own is not None:
            await self.switch_model(own, "chosen")
        elif requested is None or requested == model_ref(self.info):
            return False
        else:
            await self._follow_switch(requested)
        return True

    async def _follow_switch(self, requested: ModelRef) -> None:
        """Use the model that another process requested. If it is not available, record which one is used instead."""
        model = await self.settings.find_model(requested)
        if model is not None and model is not self.model:
            self.switch = ModelSwitch(model_ref(self.info), "chosen")
            self.model, self.info = model, await self.settings.info_for(model)
        if model_ref(self.info) != requested:
            await self.log.append(ModelChange(model=model_ref(self.info), previous=requested))

    async def switch_model(self, model: Model, reason: Literal["chosen", "fallback"]) -> None:
        """Use another model from the next call on."""
        info = await self.settings.info_for(model)
        previous = self.state.model
        await self.log.append(ModelChange(model=model_ref(info), previous=previous))
        self.model, self.info, self.switch = model, info, ModelSwitch(previous, reason)

    def result(self, outcome: RunOutcome) -> RunResult:
        """The result of the run."""
        status = AgentStatus.AWAITING_HUMAN if outcome.event == "pause" else self.status
        undelivered = (*self.inbox.steering, *self.inbox.queued)
        return run_result(self.session, self.run_id, status, outcome, undelivered)


current_run: ContextVar[RunContext | None] = ContextVar(
    "bartack.current_run", default=None
)  # the run that the current code is part of

Work = Callable[[RunContext], Awaitable[RunOutcome]]  # what a run does instead of answering


def delivered(request_id: str, queued: MessageQueued) -> Message:
    """The message of a request, as the conversation contains it. It names the request, which marks it as delivered."""
    message = queued.message
    return replace(message, meta=replace(message.meta or Meta(), request_id=request_id))


def model_ref(info: ModelInfo) -> ModelRef:
    """The model by its names."""
    return ModelRef(info.provider, info.model_id)


def run_result(
    view: SessionView,
    run_id: str,
    status: AgentStatus,
    outcome: RunOutcome,
    undelivered: tuple[Message, ...] = (),
) -> RunResult:
    """The result of a run, from the facts of its session and its outcome."""
    state = view.state
    answers = [message for message in state.messages if message.role == "assistant"]
    if state.partial:
        answers.append(Message("assistant", state.partial, meta=Meta(aborted=True)))
    return RunResult(
        status=status,
        session_id=view.session_id,
        run_id=run_id,
        agent=state.agent,
        message=answers[-1] if answers else None,
        messages=tuple(state.messages),
        usage=state.totals.usage,
        cost_usd=state.totals.cost_usd,
        iterations=state.totals.iterations,
        tool_rounds=state.totals.tool_rounds,
        reason=outcome.reason,
        error=outcome.error,
        undelivered=undelivered,
        approvals=state.questions if outcome.event == "pause" else (),
        deferred=state.deferred if outcome.event == "pause" else (),
        value=outcome.value,
    )
