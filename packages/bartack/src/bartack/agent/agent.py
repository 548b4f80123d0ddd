"""`Agent`: a model, its tools and a store for its sessions.

    agent = Agent("anthropic:claude-sonnet-4-6", tools=[weather], instructions="Be brief.")
    result = await agent.run("Will it rain in Paris?", session="trip")

An agent holds no conversation; its sessions do. Any number of runs may be live at once, each on its own session.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from copy import copy
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from bartack.agent.channel import EventChannel
from bartack.agent.compaction import compact_session, summarise_branch
from bartack.agent.handoff import reachable
from bartack.agent.hooks import HookChain
from bartack.agent.loop import Loop
from bartack.agent.observer import Observer
from bartack.agent.open_run import RunTask, open_run, result_of_other
from bartack.agent.options import (
    AgentOptions,
    RunSettings,
    check_options,
    check_settings,
    complete_options,
    with_options,
)
from bartack.agent.output import OutputReader
from bartack.agent.resources import AgentStore, Connections
from bartack.agent.run import Prompt, Run, as_history, as_message, as_messages, blocking
from bartack.agent.run_context import Inbox, model_ref
from bartack.agent.sent_request import SentRequest, kept_setup
from bartack.agent.session_view import SessionViews
from bartack.agent.settings import (
    AgentSettings,
    PromptContext,
    RetryPolicy,
    enabled_tools,
    local_runtime,
    model_settings,
)
from bartack.agent.subagent import agent_tool
from bartack.agent.tool_search import declared_tools, search_definition
from bartack.environment import Environment
from bartack.events import RunResult
from bartack.models.model import Model
from bartack.nouns.config import AgentConfig
from bartack.nouns.entries import Entry
from bartack.nouns.errors import NotFound, SessionInUse
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.requests import ModelRequest
from bartack.queues import Job, RunQueue, continue_run, submit
from bartack.queues.submit import enqueue_requested
from bartack.session.context import ContextFold, ContextInput, ContextManager
from bartack.session.run_state import RunState
from bartack.store import SessionStore
from bartack.store.requests import (
    ThinkingLevel,
    decide,
    override_system_prompt,
    post_result,
    request_abort,
    set_thinking_level,
)
from bartack.tools import (
    Approver,
    Decision,
    Runtime,
    ToolDefinition,
    ToolRegistry,
    Tools,
    ToolSettings,
)
from bartack.tools.approval import by_tool
from bartack.tools.definition import NeedsApproval
from bartack.tools.output import result_of
from bartack.tools.tool_round import TIMEOUT_MS

if TYPE_CHECKING:
    from typing_extensions import TypeForm, TypeVar  # its TypeVar has a default; no release before Python 3.13 does

    Deps = TypeVar("Deps", default=None)
    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Output = TypeVar("Output")

__all__ = ["Agent"]


class Agent(Generic[Deps, Output]):
    """A model with tools that works on stored sessions.

    Type checkers know the types of its dependencies and of its output: ``Agent[Database, City]``.
    """

    # Overloads, because type checkers would take the default of `output_type` for the result of an output function.
    @overload
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        output_type: "TypeForm[Output]" = ...,
        **options: "Unpack[AgentOptions[Deps, Output]]",
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        output_function: Callable[..., Awaitable[Output]],
        **options: "Unpack[AgentOptions[Deps, Output]]",
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        output_function: Callable[..., Output],
        **options: "Unpack[AgentOptions[Deps, Output]]",
    ) -> None: ...
    @with_options
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        output_type: "TypeForm[Output]" = str,  # type: ignore[assignment]
        output_function: Callable[..., Any] | None = None,
        **options: "Unpack[AgentOptions[Deps, Output]]",
    ) -> None:
        """Accesses neither network nor disk. The other options are those of `AgentOptions`.

        The text of an answer is read as a value of `output_type`, or its values are passed to `output_function` as
        arguments. If that raises `TryAgain`, the model answers again.

        Raises `BartackError` with the code ``invalid_config``.
        """
        check_options({"model": model, "output_function": output_function})
        chosen = complete_options(options)
        config, hooks, store = chosen["config"], HookChain.of(chosen["hooks"]), chosen["store"]
        instructions = chosen["instructions"]
        self._environment = environment = chosen["environment"] or Environment()
        self._store = AgentStore(store, environment)
        self._views = SessionViews()
        self._deps_type = chosen["deps_type"]
        connections = Connections(environment, provider_raw=config.observability.provider_raw)
        model_or_name, params = model_settings(config, model)
        searches = [search_definition()] if chosen["tool_search"] else []
        registry = enabled_tools([*chosen["tools"], *searches], config)
        if isinstance(self._deps_type, type):
            registry.check_deps(self._deps_type)
        tools = ToolSettings(
            registry=registry,
            environment=environment,
            agent=self,
            runtime=chosen["runtime"] or local_runtime(config, store),
            max_parallel=config.loop.max_parallel,
            timeout_ms=config.tools.timeout_ms or TIMEOUT_MS,
            approval=chosen["approval"] or by_tool(config.tools.approval or {}),
            approver=chosen["approver"],
            approval_timeout_ms=chosen["approval_timeout_ms"],
            before_tool=hooks.before_tool,
            after_tool=hooks.after_tool,
        )
        settings: dict[str, Any] = {  # the options that a run uses as they are, and what the others come to
            **{name: value for name, value in chosen.items() if name in AgentSettings.__dataclass_fields__},
            "model": connections.own_model(model_or_name, **params),
            "fallback_models": tuple(map(connections.own_model, chosen["fallback_models"])),
            "instructions": () if instructions is None else (instructions,),
            "context": ContextManager(config.context),
            "tools": tools,
            "hooks": hooks,
            "retry": chosen["retry"] or RetryPolicy(max_retries=config.loop.max_retries),
            "environment": environment,
            "output": OutputReader(output_type, output_function, chosen["output_validator"]),
            "observer": Observer(config.observability),
            "connections": connections,
        }
        self._settings = AgentSettings(**settings)

    # -- running

    def stream(
        self,
        *prompt: Prompt,
        session: str | None = None,
        history: Iterable[Message] = (),
        head: str | None = None,
        snapshots: bool = False,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> Run[Output]:
        """A run to enter with ``async with`` and to iterate over for its events.

        The prompt consists of strings, other content and whole messages; the model answers the last message. `session`
        is created if it does not exist. A new session begins with the messages in `history`, whose calls are not
        executed. `head` is the entry to continue from, which starts a branch. With `snapshots`, there are events with
        the answer so far, whenever the reader has caught up. `settings` are those of `RunSettings`.

        Entering raises `Conflict` if the session is in use.
        """
        check_options({"history": history})
        *before, message = as_messages(*prompt)
        earlier = as_history(history)
        options = RunTask(
            session_id=self._environment.new_id() if session is None else session,
            prompt=message,
            before=(*earlier, *before),
            needs_new=bool(earlier),
            head=head,
        )
        return self._run(options, settings, is_named=session is not None, snapshots=snapshots)

    async def run(
        self,
        *prompt: Prompt,
        session: str | None = None,
        history: Iterable[Message] = (),
        head: str | None = None,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> RunResult[Output]:
        """The result of a run; the options are those of `stream`. Cancelling the task aborts the run.

        Raises `Conflict` if the session is in use, `StoreError` if a fact could not be stored, and whatever user code
        raised. If the model failed, the result has the error, and its `output` raises it.
        """
        return await self.stream(*prompt, session=session, history=history, head=head, **settings).complete()

    def run_sync(
        self,
        *prompt: Prompt,
        session: str | None = None,
        history: Iterable[Message] = (),
        head: str | None = None,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> RunResult[Output]:
        """`run` for programs without an event loop; `AgentError` inside one."""
        return blocking(
            lambda: self.run(*prompt, session=session, history=history, head=head, **settings), self.close, "run"
        )

    async def submit(
        self,
        *prompt: Prompt,
        session: str | None = None,
        queue: RunQueue | None = None,
        user: str | None = None,
        priority: int = 0,
        at: datetime | None = None,
        key: str | None = None,
    ) -> Job:
        """Hand a run to the workers of a queue, by default the queue in the agent's store; returns once it is enqueued.

        The agent keeps using the last `queue` it was given, including for runs that continue after an approval. A
        worker must have an agent of the same name. `user` is the user whose limits apply to the run. Jobs of higher
        `priority` are claimed first. With `at`, the prompt is delivered at that time, which is local unless it has a
        time zone. Submitting twice with the same `key` takes effect once, so a failed call can be repeated.

        Raises `QueueFull`, or `KeyReused` if another prompt was submitted with the `key`, without storing anything.
        """
        session_id = session or self._environment.new_id()
        store = await self._store.open(session_id)
        return await submit(
            store,
            self._store.queue_on(store, queue),
            as_message(*prompt),
            session_id=session_id,
            agent=self.name or "agent",
            model=model_ref(await self._settings.info_for(self.model)),
            user=user,
            priority=priority,
            at=at,
            key=key,
        )

    def resume_stream(
        self,
        session: str,
        *,
        snapshots: bool = False,
        only_if: Callable[[RunState], bool] | None = None,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> Run[Output]:
        """`resume` with events, like `stream`. Entering raises `NotFound` if there is no such session.

        With `only_if`, entering raises `NothingToResume` unless this is true of the session at the moment the run
        begins, whatever other processes do meanwhile. Without it, a prompt whose run has ended without an answer begins
        another run.
        """
        return self._run(RunTask(session_id=session, only_if=only_if), settings, snapshots=snapshots)

    async def resume(self, session: str, **settings: "Unpack[RunSettings[Deps]]") -> RunResult[Output]:
        """Continue a run after a crash or a pause; the last result if there is nothing to continue.

        Calls that had started but have no result are not repeated unless their tool is idempotent; those that had not
        started are executed. `settings` are not stored, so pass those of the original run again. Raises as `run` does.
        """
        return await self.resume_stream(session, **settings).complete()

    def resume_sync(self, session: str, **settings: "Unpack[RunSettings[Deps]]") -> RunResult[Output]:
        """`resume` for programs without an event loop; `AgentError` inside one."""
        return blocking(lambda: self.resume(session, **settings), self.close, "resume")

    def compact_stream(
        self, session: str, *, head: str | None = None, **settings: "Unpack[RunSettings[Deps]]"
    ) -> Run[Output]:
        """`compact` with events."""
        return self._run(RunTask(session_id=session, work=compact_session, head=head), settings)

    async def compact(
        self, session: str, *, head: str | None = None, **settings: "Unpack[RunSettings[Deps]]"
    ) -> RunResult[Output]:
        """Summarise older turns now, without waiting until the context is full.

        This is a separate run. It fails with the code ``compaction_failed``, and leaves the context unchanged, if
        there is too little to summarise. Raises `NotFound` if there is no such session, otherwise as `run` does.
        """
        return await self.compact_stream(session, head=head, **settings).complete()

    def summarise_branch_stream(
        self,
        session: str,
        abandoned: str,
        *,
        head: str | None = None,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> Run[Output]:
        """`summarise_branch` with events."""
        work = partial(summarise_branch, abandoned=abandoned)
        return self._run(RunTask(session_id=session, work=work, head=head), settings)

    async def summarise_branch(
        self,
        session: str,
        abandoned: str,
        *,
        head: str | None = None,
        **settings: "Unpack[RunSettings[Deps]]",
    ) -> RunResult[Output]:
        """Give the model a summary of another branch, covering only what this one does not contain.

        `abandoned` is the last entry of that branch, and `head` the entry to continue from (default: the session's
        last). This is a separate run, which fails with the code ``compaction_failed`` if there is nothing to summarise
        or the summary fails, and with ``not_found`` if there is no such branch.
        """
        return await self.summarise_branch_stream(session, abandoned, head=head, **settings).complete()

    async def abort(
        self, session: str, *, reason: str = "user", **settings: "Unpack[RunSettings[Deps]]"
    ) -> RunResult[Output]:
        """End the open run: its open calls get error results, and nothing more is executed. Returns its result, or the
        last one if no run is open.

        If the run is live, in any process, it is asked to end, and its result is awaited. If its process does not
        react, the run is ended here once its lease has expired, or immediately with `takeover`.
        """
        requested: Entry | None = None
        while True:
            run = self._run(RunTask(session_id=session, abort=True), settings)
            run.abort(reason)
            try:
                ended = await run.complete()
            except SessionInUse as in_use:
                store = await self._store.open(session)
                with suppress(NotFound):  # it has just ended
                    requested = requested or await request_abort(store, session, reason=reason)
                    own = self._settings_for(settings)
                    result = await result_of_other(own, store, requested, in_use.expires_in_s)
                    if result is not None:
                        return result
            else:
                store = await self._store.open(session)
                await enqueue_requested(store, self._store.queue_on(store), session)  # for a worker
                return ended

    def _run(
        self,
        options: RunTask,
        run_settings: "RunSettings[Deps]",
        *,
        is_named: bool = True,
        snapshots: bool = False,
    ) -> Run[Output]:
        check_options({"session": options.session_id, "head": options.head})
        check_settings(run_settings, None if options.abort else self._deps_type)
        model, metadata = run_settings.get("model"), run_settings.get("metadata")
        options = dataclasses.replace(
            options,
            metadata=None if metadata is None else dict(metadata),
            limits=run_settings.get("limits"),
            takeover=run_settings.get("takeover", False),
        )
        settings = self._settings_for(run_settings)

        async def open(channel: EventChannel, inbox: Inbox) -> Loop | RunResult:
            chosen = None if model is None else settings.connections.model(model)
            opened = await open_run(
                settings,
                dataclasses.replace(options, model=chosen),
                store=await self._store.open(options.session_id, is_named=is_named),
                views=self._views,
                channel=channel,
                inbox=inbox,
            )
            return opened if isinstance(opened, RunResult) else Loop(opened, self._views, work=options.work)

        return Run(options.session_id, open, settings.connections.model, snapshots=snapshots)

    def _settings_for(self, run_settings: "RunSettings[Deps]") -> AgentSettings:
        """The agent's settings with those of a run, except for what `RunTask` has."""
        own: Any = {
            name: value for name, value in run_settings.items() if name not in ("model", "metadata", "takeover")
        }
        settings = self._settings.for_run(**own).with_output_tool()
        agents = reachable(settings.tools.registry)
        return dataclasses.replace(settings, find_agent=partial(self._find_agent, run_settings, agents))

    def _find_agent(
        self, run_settings: "RunSettings[Deps]", agents: "Mapping[str, Agent[Any, Any]]", name: str
    ) -> AgentSettings | None:
        """The settings with which the agent of this name continues a run of this one; None if it cannot be reached."""
        agent = agents.get(name, self if name == self.name else None)
        if agent is None:
            return None
        settings = self._settings_for(run_settings)
        if agent is self:
            return settings
        check_settings(run_settings, agent._deps_type)
        return settings.continued_by(agent._settings.for_run(**_shared_settings(run_settings))).with_output_tool()

    # -- approvals and settings of a session

    async def approve(
        self, session: str, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any
    ) -> None:
        """Approve a call, with other `arguments` if given. A live run continues; a paused run executes it on `resume`.

        `details` are `reason`, `decided_by` and `arguments_digest` (see `Decision`). Raises what
        `bartack.store.requests.decide` raises.
        """
        decision = Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        await self._request(session, lambda store: decide(store, session, tool_call_id, decision))

    async def deny(self, session: str, tool_call_id: str, **details: Any) -> None:
        """Refuse a call; the model sees the `reason`."""
        decision = Decision("deny", **details)
        await self._request(session, lambda store: decide(store, session, tool_call_id, decision))

    async def post_result(self, session: str, tool_call_id: str, value: Any, *, posted_by: str | None = None) -> None:
        """Post the result of a deferred call: anything that a tool can return. A paused run uses it on `resume`.

        Raises what `bartack.store.requests.post_result` raises.
        """
        result = result_of(value, tool_call_id)
        await self._request(
            session, lambda store: post_result(store, session, tool_call_id, result, posted_by=posted_by)
        )

    async def _request(self, session: str, post: Callable[[SessionStore], Awaitable[Entry]]) -> None:
        """Post the request. A run of a worker that has paused is enqueued again."""
        store = await self._store.open(session)
        await continue_run(store, self._store.queue_on(store), await post(store))

    def approve_sync(
        self, session: str, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any
    ) -> None:
        """`approve` for programs without an event loop. Continue the run with `resume_sync`."""
        blocking(lambda: self.approve(session, tool_call_id, arguments=arguments, **details), self.close, "approve")

    def deny_sync(self, session: str, tool_call_id: str, **details: Any) -> None:
        """`deny` for programs without an event loop."""
        blocking(lambda: self.deny(session, tool_call_id, **details), self.close, "deny")

    def post_result_sync(self, session: str, tool_call_id: str, value: Any, *, posted_by: str | None = None) -> None:
        """`post_result` for programs without an event loop."""
        blocking(lambda: self.post_result(session, tool_call_id, value, posted_by=posted_by), self.close, "post_result")

    async def set_thinking_level(self, session: str, level: ThinkingLevel) -> None:
        """Set how much the model thinks in later runs of a session; see `bartack.store.requests.set_thinking_level`."""
        await set_thinking_level(await self._store.open(session), session, level)

    async def override_system_prompt(self, session: str, text: str | None) -> None:
        """Replace the instructions in later runs of a session; None restores them."""
        await override_system_prompt(await self._store.open(session), session, text)

    # -- its parts

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        timeout_ms: int | None = None,
        requires_approval: NeedsApproval = False,
        uses_outer_model: bool = False,
    ) -> ToolDefinition:
        """This agent as a tool for another agent. Each call runs it with a prompt in its own session, and with
        `uses_outer_model` with the model of the outer run instead of its own.

        It gets the outer run's `deps`, and its usage counts towards the outer run's limits. The outer run's approver
        decides about its calls unless it has its own; without an approver, the outer run pauses. The outer stream
        includes its events as `SubagentEvent`. Characters of `name` that providers do not accept are replaced.
        """
        return agent_tool(
            self,
            name,
            description,
            agent_name=self._settings.name,
            limits=self._settings.config.loop,
            approver=self._settings.tools.approver,
            timeout_ms=timeout_ms,
            requires_approval=requires_approval,
            uses_outer_model=uses_outer_model,
        )

    async def request_after(self, session: str, entries: Sequence[Entry], model: ModelRef | None = None) -> SentRequest:
        """The request for the next model call after these entries of one branch, for inspection; nothing is sent.

        If the run was configured with `LoopConfig.keep_requests`, this is the request as it was sent. Otherwise it has
        the agent's current instructions and tools, without the run's own settings (`RunSettings`). In that case,
        `model` is the model to use, if it is not the agent's own.
        """
        setup = kept_setup(entries)
        if setup is not None:
            return setup.request_after(entries)
        settings = self._settings
        requested = None if model is None else await settings.find_model(model)
        chosen = requested or settings.model
        info = await settings.info_for(chosen)
        fold = ContextFold.of(entries)
        tools = settings.tools.registry.build_model_tool_specs()
        if settings.tool_search:
            tools = declared_tools(tools, chosen, (item.message for item in fold.items))
        runtime = settings.tools.runtime
        hints = "" if runtime is None else runtime.get_hints()
        prompt_context = PromptContext[Any](deps=settings.tools.deps, session_id=session, model=model_ref(info))
        built = settings.context.build_context(
            ContextInput(
                fold=fold,
                system_prompt=await settings.instructions_for(prompt_context),
                hints=(hints,) if hints else (),
                tools=tools,
                context_window=info.context_window,
            )
        )
        request = ModelRequest(built.messages, config=chosen.get_config(), tools=tools, provider=info.provider)
        return SentRequest(request=request, is_exact=False, notes=built.notes)

    async def find_model(self, model: ModelRef) -> Model | None:
        """The model with these names: one of the agent's, or else a new one; None if it cannot be connected."""
        return await self._settings.find_model(model)

    @property
    def model(self) -> Model:
        """The default model."""
        return self._settings.model

    @property
    def models(self) -> tuple[Model, ...]:
        """The default model, and those that replace it when it fails."""
        return self._settings.model, *self._settings.fallback_models

    @property
    def tools(self) -> ToolRegistry:
        """The enabled tools."""
        return self._settings.tools.registry

    @property
    def runtime(self) -> Runtime | None:
        """Where tools for files and commands work, if the agent has them."""
        return self._settings.tools.runtime

    @property
    def approver(self) -> Approver | None:
        """The approver of its tool calls, unless a run has its own."""
        return self._settings.tools.approver

    @property
    def name(self) -> str | None:
        """The name that its runs are recorded under."""
        return self._settings.name

    @property
    def config(self) -> AgentConfig:
        """The configuration that it was created with."""
        return self._settings.config

    @property
    def store(self) -> SessionStore | str | Path | None:
        """The store, or the address of one, that it was created with."""
        return self._store.address

    def with_store(self, store: SessionStore, *, lease_s: float | None = None) -> "Agent[Deps, Output]":
        """The same agent with another store, which the caller must close. Models, tools and runtime are shared."""
        clone = copy(self)
        clone._store, clone._views = AgentStore(store, self._environment), SessionViews()
        if lease_s is not None:
            clone._settings = dataclasses.replace(self._settings, lease_s=lease_s)
        return clone

    @contextmanager
    def override(self, *, model: str | Model | None = None, tools: Tools | None = None) -> Iterator[None]:
        """Use another model or other tools, instead of the agent's own, for all runs that begin in this block.

        For tests of a program that uses an agent: ``with agent.override(model=ScriptedModel(["Hi."])):``. Runs of all
        tasks are affected. Raises as `Agent` does.
        """
        check_options({"model": model, **({} if tools is None else {"tools": tools})})
        settings = original = self._settings
        if model is not None:
            own_model = settings.connections.own_model(model)
            settings = dataclasses.replace(settings, model=own_model, fallback_models=())
        if tools is not None:
            searches = [search_definition()] if settings.tool_search else []
            registry = enabled_tools([*tools, *searches], settings.config)
            settings = dataclasses.replace(settings, tools=dataclasses.replace(settings.tools, registry=registry))
        self._settings = settings
        try:
            yield
        finally:
            self._settings = original

    @property
    def metrics(self) -> dict[str, float]:
        """What the runs of this agent did so far, by the names in `bartack.agent.observer.COUNTERS`.

        Empty unless the agent is configured with ``ObservabilityConfig(metrics=True)``.
        """
        return self._settings.observer.counts

    async def close(self) -> None:
        """Close the connections, the toolsets, the runtime, and the store if the agent opened it.

        Sessions in memory remain available on the agent. Everything is closed even if something fails to close.
        """
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._settings.connections.close, self._settings.tools.runtime)
            closing.push_async_callback(self._store.close)

    async def __aenter__(self) -> "Agent[Deps, Output]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _shared_settings(run_settings: "RunSettings[Any]") -> dict[str, Any]:
    """The settings of a run that apply to every agent that takes part in it."""
    return {name: value for name, value in run_settings.items() if name not in ("model", "metadata", "takeover")}
