"""`Agent`: a model, its tools and a store for its sessions.

    agent = Agent("anthropic:claude-sonnet-4-6", tools=[weather], instructions="Be brief.")
    result = await agent.run("Will it rain in Paris?", session="trip")

An agent holds no conversation; its sessions do. Any number of runs may be live at once, each on its own session.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from bartack.agent.channel import EventChannel
from bartack.agent.compaction import compact_session, summarise_branch
from bartack.agent.events import RunResult
from bartack.agent.loop import Loop
from bartack.agent.observer import Observer
from bartack.agent.open_run import RunOptions, open_run, result_of_other
from bartack.agent.output import OutputType
from bartack.agent.run import Prompt, Run, as_message
from bartack.agent.run_context import Inbox
from bartack.agent.session_view import SessionViews
from bartack.agent.settings import (
    AgentSettings,
    Hooks,
    RetryPolicy,
    Summarise,
    enabled_tools,
    local_runtime,
    model_settings,
)
from bartack.agent.subagent import agent_tool
from bartack.environment import Environment
from bartack.models.by_name import connect
from bartack.models.model import Model
from bartack.nouns.config import AgentConfig
from bartack.nouns.entries import Entry
from bartack.nouns.errors import AgentError, ErrorCode, NotFound, PartValidationError, SessionInUse
from bartack.session.context import ContextManager
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.store.requests import ThinkingLevel, decide, override_system_prompt, request_abort, set_thinking_level
from bartack.tools import ApprovalPolicy, Approver, Decision, Runtime, ToolDefinition, ToolRegistry, ToolSettings
from bartack.tools.approval import by_tool
from bartack.tools.tool_context import in_event_loop
from bartack.tools.tool_round import TIMEOUT_MS

__all__ = ["Agent"]

_DEFAULTS = AgentConfig()
_NO_HOOKS = Hooks()


class Agent:
    """A model with tools that works on stored sessions."""

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
        """Accesses neither network nor disk.

        `store` is a store or the address of one. Without it, named sessions are kept in the user's data folder and
        others in memory. `summarise` writes the summaries for compaction instead of the model. `max_repeats` is how
        often in a row a model may make the same calls with the same results. `lease_s` is how long a session stays
        locked if this process dies.

        Raises `BartackError` with the code ``invalid_config``.
        """
        self._owned: list[Model] = []
        self._provider_raw = config.observability.provider_raw
        self._environment = environment or Environment()
        self._store_at = store
        self._store: SessionStore | None = None  # opened here, and so closed here
        self._memory: MemoryStore | None = None
        self._views = SessionViews()
        chosen, params = model_settings(config, model)
        self._settings = AgentSettings(
            model=self._connect(chosen, **params),
            fallback_models=tuple(self._connect(one) for one in fallback_models),
            instructions=instructions,
            config=config,
            context=ContextManager(config.context),
            tools=ToolSettings(
                registry=enabled_tools(tools, config),
                environment=self._environment,
                agent=self,
                runtime=runtime or local_runtime(config, store),
                max_parallel=config.loop.max_parallel,
                timeout_ms=config.tools.timeout_ms or TIMEOUT_MS,
                approval=approval or by_tool(config.tools.approval or {}),
                approver=approver,
                approval_timeout_ms=approval_timeout_ms,
                before_tool=hooks.before_tool,
                after_tool=hooks.after_tool,
            ),
            hooks=hooks,
            retry=retry or RetryPolicy(max_retries=config.loop.max_retries),
            environment=self._environment,
            output=None if output_type in (None, str) else OutputType(output_type),
            summarise=summarise,
            name=name,
            lease_s=lease_s,
            max_repeats=max_repeats,
            observer=Observer(config.observability),
            connect=self._connect,
        )

    # -- running

    def stream(
        self,
        *prompt: Prompt,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
        snapshots: bool = False,
    ) -> Run:
        """A run to enter with ``async with`` and to iterate over for its events.

        `session` is created if it does not exist. `model` is used instead of the agent's own. `head` is the entry to
        continue from, which starts a branch. `takeover` takes the session from a process that died before its lease
        expired. With `snapshots` there are events with the answer so far, whenever the reader has caught up.

        Entering raises `Conflict` if the session is in use.
        """
        if not prompt:
            raise PartValidationError("A run needs a prompt.", path="$.prompt")
        options = RunOptions(
            session_id=session or self._environment.new_id(), prompt=as_message(*prompt), head=head, takeover=takeover
        )
        return self._run(options, model, is_named=session is not None, snapshots=snapshots)

    async def run(
        self,
        *prompt: Prompt,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """The result of a run; the options are those of `stream`. Cancelling the task aborts the run.

        Raises `Conflict` if the session is in use, `StoreError` if a fact could not be stored, and whatever user code
        raised. If the model failed, the result has the error, and its `output` raises it.
        """
        return await self.stream(*prompt, session=session, model=model, head=head, takeover=takeover).complete()

    def run_sync(
        self,
        *prompt: Prompt,
        session: str | None = None,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """`run` for programs without an event loop; `AgentError` inside one."""
        if in_event_loop():
            raise AgentError("Inside an event loop, use `await agent.run(...)`.", code=ErrorCode.INVALID_CONFIG)

        async def once() -> RunResult:
            try:
                return await self.run(*prompt, session=session, model=model, head=head, takeover=takeover)
            finally:
                await self.close()  # its connections belong to this event loop

        return asyncio.run(once())

    def resume_stream(
        self, session: str, *, model: str | Model | None = None, takeover: bool = False, snapshots: bool = False
    ) -> Run:
        """`resume` with events, as `stream` has them. Entering raises `NotFound` if there is no such session."""
        return self._run(RunOptions(session_id=session, takeover=takeover), model, snapshots=snapshots)

    def compact_stream(
        self, session: str, *, model: str | Model | None = None, head: str | None = None, takeover: bool = False
    ) -> Run:
        """`compact` with events."""
        return self._run(RunOptions(session_id=session, work=compact_session, head=head, takeover=takeover), model)

    async def compact(
        self, session: str, *, model: str | Model | None = None, head: str | None = None, takeover: bool = False
    ) -> RunResult:
        """Summarise older turns now, without waiting until the context is full.

        This is a separate run. It fails with the code ``compaction_failed``, and leaves the context unchanged, if
        there is too little to summarise. Raises `NotFound` if there is no such session, otherwise as `run` does.
        """
        return await self.compact_stream(session, model=model, head=head, takeover=takeover).complete()

    def summarise_branch_stream(
        self,
        session: str,
        abandoned: str,
        *,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> Run:
        """`summarise_branch` with events."""
        work = partial(summarise_branch, abandoned=abandoned)
        return self._run(RunOptions(session_id=session, work=work, head=head, takeover=takeover), model)

    async def summarise_branch(
        self,
        session: str,
        abandoned: str,
        *,
        model: str | Model | None = None,
        head: str | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """Let the model know what another branch came to, by a summary of what only that branch contains.

        `abandoned` is the last entry of that branch, and `head` the entry to continue from (default: the session's
        last). This is a separate run, which fails with the code ``compaction_failed`` if there is nothing to summarise
        or no summary, and with ``not_found`` if there is no such branch.
        """
        options: dict[str, Any] = {"model": model, "head": head, "takeover": takeover}
        return await self.summarise_branch_stream(session, abandoned, **options).complete()

    async def resume(self, session: str, *, model: str | Model | None = None, takeover: bool = False) -> RunResult:
        """Continue a run after a crash or a pause; the last result if there is nothing to continue.

        Calls that had started and have no result are not repeated unless their tool is idempotent; those that had not
        started are executed. Raises as `run` does.
        """
        return await self.resume_stream(session, model=model, takeover=takeover).complete()

    async def abort(self, session: str, *, reason: str = "user", takeover: bool = False) -> RunResult:
        """End the open run: its open calls get error results, and nothing more is executed. Without an open run, the
        last result.

        A run that is live, in any process, is asked to end, and its result is awaited. If its process does not react,
        it is ended here once its lease has expired; with `takeover`, it is cut off at once.
        """
        requested: Entry | None = None
        while True:
            run = self._run(RunOptions(session_id=session, abort=True, takeover=takeover), None)
            run.abort(reason)
            try:
                return await run.complete()
            except SessionInUse as in_use:
                store = await self._open_store(True)
                with suppress(NotFound):  # it has just ended
                    requested = requested or await request_abort(store, session, reason=reason)
                    result = await result_of_other(self._settings, store, requested, in_use.expires_in_s)
                    if result is not None:
                        return result

    def _run(
        self, options: RunOptions, model: str | Model | None, *, is_named: bool = True, snapshots: bool = False
    ) -> Run:
        async def open(channel: EventChannel, inbox: Inbox) -> Loop | RunResult:
            chosen = None if model is None else self._connect(model)
            opened = await open_run(
                self._settings,
                dataclasses.replace(options, model=chosen),
                store=await self._open_store(is_named),
                views=self._views,
                channel=channel,
                inbox=inbox,
            )
            return opened if isinstance(opened, RunResult) else Loop(opened, self._views, work=options.work)

        return Run(options.session_id, open, self._connect, snapshots=snapshots)

    # -- approvals and settings of a session

    async def approve(
        self, session: str, tool_call_id: str, *, arguments: dict[str, Any] | None = None, **details: Any
    ) -> None:
        """Approve a call, with other `arguments` if given. A live run continues; a paused one executes it on `resume`.

        `details` are `reason`, `decided_by` and `arguments_digest` (see `Decision`). Raises what
        `bartack.store.requests.decide` raises.
        """
        decision = Decision("approve" if arguments is None else "modify_args", arguments=arguments, **details)
        await decide(await self._open_store(True), session, tool_call_id, decision)

    async def deny(self, session: str, tool_call_id: str, **details: Any) -> None:
        """Refuse a call; the model sees the `reason`."""
        await decide(await self._open_store(True), session, tool_call_id, Decision("deny", **details))

    async def set_thinking_level(self, session: str, level: ThinkingLevel) -> None:
        """Let the model think this much in later runs of a session; see `bartack.store.requests.set_thinking_level`."""
        await set_thinking_level(await self._open_store(True), session, level)

    async def override_system_prompt(self, session: str, text: str | None) -> None:
        """Replace the instructions in later runs of a session; None restores them."""
        await override_system_prompt(await self._open_store(True), session, text)

    # -- its parts

    def as_tool(self, name: str, description: str, *, timeout_ms: int | None = None) -> ToolDefinition:
        """This agent as a tool for another agent. Each call runs it with a prompt in its own session."""
        return agent_tool(self, name, description, timeout_ms=timeout_ms)

    @property
    def model(self) -> Model:
        """The default model."""
        return self._settings.model

    @property
    def tools(self) -> ToolRegistry:
        """The enabled tools."""
        return self._settings.tools.registry

    @property
    def metrics(self) -> dict[str, float]:
        """What the runs of this agent did so far, by the names in `bartack.agent.observer.COUNTERS`.

        Empty unless the agent is configured with ``ObservabilityConfig(metrics=True)``.
        """
        return self._settings.observer.counts

    async def close(self) -> None:
        """Close the connections, the runtime, and the store if the agent opened it."""
        if self._store is not None:
            await self._store.close()
            self._store = None
        runtime = self._settings.tools.runtime
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

    async def _open_store(self, is_named: bool) -> SessionStore:
        at = self._store_at
        if at is None and not is_named:
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
