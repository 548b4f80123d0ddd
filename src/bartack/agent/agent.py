"""`Agent`: a model, its tools and a place for its sessions.

    agent = Agent("anthropic:claude-sonnet-4-6", tools=[weather], instructions="Be brief.")
    result = await agent.run("Will it rain in Paris?", session="trip")

An agent holds no conversation: a session in the store does. Many runs may work at once, each on a session of its own.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from bartack.agent.approvals import decide
from bartack.agent.configured import model_name, model_settings, policy_of, registry_of, runtime_of
from bartack.agent.events import RunResult
from bartack.agent.hooks import Hooks, Summarise
from bartack.agent.live import LiveApprover
from bartack.agent.loop import Ending, Loop, result_of
from bartack.agent.opening import begin, is_over, opened_view, released
from bartack.agent.output import OutputType
from bartack.agent.retry import RetryPolicy
from bartack.agent.run import Run, Said, as_message
from bartack.agent.setup import Setup
from bartack.agent.subagent import agent_tool
from bartack.agent.view import SessionView
from bartack.agent.work import Work
from bartack.environment import Environment
from bartack.models.by_name import connect
from bartack.models.model import Model
from bartack.nouns.config import AgentConfig
from bartack.nouns.errors import AgentError, ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.session.context import ContextManager
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.tools import (
    ApprovalPolicy,
    Approver,
    Decision,
    Runtime,
    ToolDefinition,
    ToolRegistry,
)

__all__ = ["Agent"]

_DEFAULTS = AgentConfig()
_NO_HOOKS = Hooks()
_KEPT_VIEWS = 16  # sessions whose folds stay in memory between runs


class Agent:
    """See the module. Everything after the model is by keyword."""

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Iterable[ToolDefinition | Callable[..., Any]] = (),
        instructions: str | None = None,
        store: SessionStore | str | Path | None = None,
        runtime: Runtime | None = None,
        approver: Approver | None = None,
        approval: ApprovalPolicy | None = None,
        approval_timeout_ms: int | None = None,
        output_type: Any = None,
        fallback_models: Sequence[str | Model] = (),
        config: AgentConfig = _DEFAULTS,
        retry: RetryPolicy | None = None,
        hooks: Hooks = _NO_HOOKS,
        summarise: Summarise | None = None,
        environment: Environment | None = None,
        name: str | None = None,
        lease_s: float = 30.0,
        max_repeats: int | None = 5,
    ) -> None:
        """Touches neither network nor disk.

        `store` is a store, or where to open one. Without it sessions that are named are kept in the user's data folder,
        and others in memory. `summarise` writes the summaries of a compaction instead of the model. `max_repeats` is
        how often in a row a model may make the same calls with the same results. `lease_s` is how long a session stays
        locked if this process dies.

        Raises `BartackError` with the code ``invalid_config`` for what cannot work.
        """
        self._owned: list[Model] = []
        self._provider_raw = config.observability.provider_raw
        self._environment = environment or Environment()
        self._store_at = store
        self._store: SessionStore | None = None  # opened here, and so closed here
        self._memory: MemoryStore | None = None
        self._views: OrderedDict[tuple[int, str], SessionView] = OrderedDict()
        self._setup = Setup(
            model=self._connect(model_name(config) if model is None else model, **model_settings(config)),
            fallback_models=tuple(self._connect(one) for one in fallback_models),
            registry=registry_of(tools, config),
            instructions=instructions,
            context=ContextManager(config.context),
            config=config,
            retry=retry or RetryPolicy(max_retries=config.loop.max_retries),
            hooks=hooks,
            environment=self._environment,
            approval=approval or policy_of(config),
            approver=approver,
            approval_timeout_ms=approval_timeout_ms,
            runtime=runtime or runtime_of(config, store),
            output=None if output_type in (None, str) else OutputType(output_type),
            summarise=summarise,
            name=name,
            lease_s=lease_s,
            max_repeats=max_repeats,
            agent=self,
        )

    # -- running

    def stream(
        self,
        *prompt: Said,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
        snapshots: bool = False,
    ) -> Run:
        """A run to enter with ``async with`` and to iterate over for its events.

        `session` is created if it is not there, `model` answers this run instead of the agent's own. `head` is the
        entry after which the run goes on, for a branch. `takeover` takes the session from a process that died and whose
        lease has not run out. With `snapshots` the events hold the answer so far as a message, whenever the reader is
        up to date.

        Entering raises `Conflict` while another run works on the session.
        """
        if not prompt:
            raise PartValidationError("a run needs a prompt", path="$.prompt")
        message = as_message(*prompt)
        session_id = session or self._environment.new_id()

        async def start(run: Run) -> Loop | RunResult:
            return await self._begin(run, message, named=session is not None, model=model, head=head, takeover=takeover)

        return Run(session_id, start, self._connect, snapshots=snapshots)

    async def run(
        self,
        *prompt: Said,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """The result of a run; the options are those of `stream`. Cancelling the task aborts the run.

        Raises `Conflict` while another run works on the session, `StoreError` where a fact could not be stored, and
        what a user's own code raised. A failure of the model is told by the result: its `output` raises.
        """
        return await self.stream(*prompt, session=session, model=model, head=head, takeover=takeover).complete()

    def run_sync(
        self,
        *prompt: Said,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """`run` for programs without an event loop; `AgentError` inside of one."""
        if _is_in_loop():
            raise AgentError("inside an event loop await agent.run(...) instead", code=ErrorCode.INVALID_CONFIG)

        async def once() -> RunResult:
            try:
                return await self.run(*prompt, session=session, model=model, head=head, takeover=takeover)
            finally:
                await self.close()  # connections belong to this event loop

        return asyncio.run(once())

    def resume_stream(
        self, session: str, *, model: str | Model | None = None, takeover: bool = False, snapshots: bool = False
    ) -> Run:
        """As `stream`, going on with the run that a crash or a pause has left. `NotFound` without such a session."""

        async def start(run: Run) -> Loop | RunResult:
            return await self._begin(run, None, named=True, model=model, head=None, takeover=takeover)

        return Run(session, start, self._connect, snapshots=snapshots)

    def compact_stream(
        self, session: str, *, model: str | Model | None = None, head: str | None = None, takeover: bool = False
    ) -> Run:
        """As `compact`, with events."""

        async def start(run: Run) -> Loop | RunResult:
            return await self._begin(run, None, named=True, model=model, head=head, takeover=takeover, compacts=True)

        return Run(session, start, self._connect)

    async def compact(
        self, session: str, *, model: str | Model | None = None, head: str | None = None, takeover: bool = False
    ) -> RunResult:
        """Let older turns be told as a summary from here on, without waiting until the context is full.

        It is a run of its own that asks nothing else. It fails, with the code ``compaction_failed``, where there is too
        little to leave out; then the session is as before. `NotFound` without such a session.
        """
        return await self.compact_stream(session, model=model, head=head, takeover=takeover).complete()

    async def resume(self, session: str, *, model: str | Model | None = None, takeover: bool = False) -> RunResult:
        """Go on with the run that a crash or a pause has left; the last result if there is nothing to go on with.

        Calls that had been started and have no result are not run again, unless their tool is idempotent; those that
        had not been started run now. Raises as `run` does.
        """
        return await self.resume_stream(session, model=model, takeover=takeover).complete()

    async def abort(self, session: str, *, reason: str = "user") -> RunResult:
        """End the run that a crash or a pause has left: its open calls get results, and nothing more runs."""
        run = self.resume_stream(session)
        run.abort(reason)
        return await run.complete()

    async def _begin(
        self,
        run: Run,
        prompt: Message | None,
        *,
        named: bool,
        model: str | Model | None,
        head: str | None,
        takeover: bool,
        compacts: bool = False,
    ) -> Loop | RunResult:
        setup = self._setup
        store = await self._open_store(named)
        kept = _Kept(self._views, store)
        view, lease = await opened_view(
            store,
            kept,
            run.session_id,
            lease_s=setup.lease_s,
            create=prompt is not None,
            takeover=takeover,
        )
        progress = view.progress
        is_new = compacts or prompt is not None
        resumed = None if is_new else progress.run_id
        chosen = setup.model if model is None else self._connect(model)
        work = Work(setup, view, resumed or self._environment.new_id(), chosen, run.channel)
        try:
            if not is_new and is_over(progress):
                await released(store, lease)
                return _last_result(work)
            answering = await begin(work, store, lease, prompt, head=head, ends_earlier=is_new)
        except BaseException:
            await released(store, lease)
            raise
        run.work = work
        return Loop(work, answering, run.inbox, keep=kept.put, compacts=compacts)

    # -- humans

    async def approve(
        self, session: str, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any
    ) -> None:
        """Let a call run that a paused run waits with; `resume` goes on. With `arguments` it runs with those instead.

        `details` are `reason`, `decided_by` and `arguments_digest` (see `Decision`). `NotFound` if no human was asked
        about this call.
        """
        decision = Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        await self._decide(session, tool_call_id, decision)

    async def deny(self, session: str, tool_call_id: str, **details: Any) -> None:
        """Do not let a call run that a paused run waits with; the model is told the `reason`."""
        await self._decide(session, tool_call_id, Decision("deny", **details))

    async def _decide(self, session: str, tool_call_id: str, decision: Decision) -> None:
        approver = self._setup.approver
        if isinstance(approver, LiveApprover) and approver.asks_for(tool_call_id):
            approver.answer(tool_call_id, decision)  # a run of this agent is waiting, and writes it down itself
        else:
            await decide(await self._open_store(True), session, tool_call_id, decision)

    # -- as a part of something else

    def as_tool(self, name: str, description: str, *, timeout_ms: int | None = None) -> ToolDefinition:
        """This agent as a tool of another: it takes a prompt, works in a session of its own, and answers."""
        return agent_tool(self, name, description, timeout_ms=timeout_ms)

    # -- what it holds

    @property
    def model(self) -> Model:
        """The model that answers."""
        return self._setup.model

    @property
    def tools(self) -> ToolRegistry:
        """The tools, by name."""
        return self._setup.registry

    async def close(self) -> None:
        """Let go of connections, of the runtime and of the store, if this agent opened it."""
        if self._store is not None:
            await self._store.close()
            self._store = None
        runtime = self._setup.runtime
        if runtime is not None and runtime.status != "closed":
            await runtime.close()
        for model in self._owned:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open_store(self, named: bool) -> SessionStore:
        at = self._store_at
        if at is None and not named:
            self._memory = self._memory or MemoryStore(environment=self._environment)
            return self._memory
        if at is not None and not isinstance(at, str | Path):
            return at
        if self._store is None:
            self._store = await open_store(at, environment=self._environment)
        return self._store

    def _connect(self, model: str | Model, **settings: Any) -> Model:
        if not isinstance(model, str):
            return model
        made: Model = connect(model, environment=self._environment, provider_raw=self._provider_raw, **settings)
        self._owned.append(made)
        return made


class _Kept:
    """The views of one store, the ones used last."""

    def __init__(self, views: OrderedDict[tuple[int, str], SessionView], store: SessionStore) -> None:
        self._views = views
        self._store = id(store)

    def take(self, session_id: str) -> SessionView | None:
        return self._views.pop((self._store, session_id), None)

    def put(self, view: SessionView) -> None:
        self._views[self._store, view.session_id] = view
        while len(self._views) > _KEPT_VIEWS:
            self._views.popitem(last=False)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _last_result(work: Work) -> RunResult:
    ended = work.progress.ended
    if ended is None:
        return replace(result_of(work, Ending("complete"), ()), status=AgentStatus.IDLE)
    answer = work.progress.answer
    value = None if answer is None or ended.status != "completed" else answer.text
    if value is not None and work.setup.output is not None:
        value = work.setup.output.read(value)
    return replace(
        result_of(work, Ending("complete", ended.reason, ended.error, value), ()),
        status=AgentStatus(ended.status),
        run_id=work.progress.last_run_id or work.run_id,
    )
