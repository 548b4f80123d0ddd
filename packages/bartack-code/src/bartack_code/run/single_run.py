"""One run for a script: a `PreparedRun` in, its events to an output, an exit status out.

SIGINT and SIGTERM stop the run, which still stores its end. What goes wrong is raised with a hint, after the output has
been ended.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from bartack.agent import Run
from bartack.agent.run import as_message
from bartack.app.agent_setup import AgentSetup, SchemaOutput, close_model, command_options, new_agent, private_files
from bartack.app.errors import failure_hint, with_hint, with_store_hint
from bartack.app.mcp_servers import unavailable_servers
from bartack.app.modes import Mode, mode_policy
from bartack.app.notices import losses_text
from bartack.app.platform import current_directory, run_async
from bartack.app.safe_text import safe_line
from bartack.app.sessions import ensure_session, find_session, latest_session_here, opened_store
from bartack.app.settings import HookSettings
from bartack.cli import options
from bartack.cli.options import exporting
from bartack.cli.output import OutputClosed, note
from bartack.cli.store_access import store_flag
from bartack.events import EntryAppended, RunFinished, RunResult
from bartack.models.model import Model
from bartack.nouns.config import LoopConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import AgentError, BartackError, ErrorCode, StoreError
from bartack.nouns.parts import FileRef, Image
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore
from bartack.store.foreign import adopt
from bartack.tools import Approver, LocalRuntime, ToolDefinition
from bartack_code.run.output import Output
from bartack_code.workspace.attachments import unsupported_content
from bartack_code.workspace.extensions import Extensions
from bartack_code.workspace.hooks import HookRunner
from bartack_code.workspace.subagents import extension_tools

if TYPE_CHECKING:
    from bartack.app.telemetry_export import TelemetryExport

_LIMIT_REACHED = 3
_USAGE_CODES = frozenset((ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_VALUE))
_USAGE_HINT = "'bartack run --help' explains the arguments, and 'bartack doctor' checks the settings."


class PreparedRun(NamedTuple):
    """What to run, with everything prepared that needs neither network nor store."""

    prompt: str
    attachments: tuple[Image | FileRef, ...]
    setup: AgentSetup
    approver: Approver
    mode: Mode
    extensions: Extensions
    hooks: Sequence[HookSettings]
    limits: LoopConfig
    output: SchemaOutput | None
    session: str | None
    continue_latest: bool
    resume: str | None
    adopt: bool
    quiet: bool
    export: "TelemetryExport | None"


def execute(prepare: Callable[[], PreparedRun], output: Output) -> int:
    """The exit status. Whatever is raised, the output has been ended before."""
    single = _SingleRun(output)
    try:
        with redirect_stdout(sys.stderr):  # what tools print is not part of the answer
            with options.usage_errors():
                prepared = prepare()
            status = run_async(single.run(prepared))
        output.end(single.result, single.failed)
    except OutputClosed:
        raise
    except KeyboardInterrupt:
        if not single.has_started:  # a started run handles Ctrl-C itself
            output.end(None, _NOT_STARTED)
        raise
    except Exception as error:
        output.end(single.result, single.failed or _as_failed(error))
        single.note_session()
        if not single.has_started and isinstance(error, BartackError) and error.code in _USAGE_CODES:
            raise options.UsageError.of(error) from error
        raise
    single.note_session()
    if status:
        note("bartack: stopped; the partial answer is stored in the session")
    return status


class _LimitReached(AgentError):
    """The run was stopped by one of its limits."""

    exit_status = _LIMIT_REACHED


_NOT_STARTED = Failed(ErrorCode.ABORTED, "stopped before the run started")


def _as_failed(error: Exception) -> Failed:
    if isinstance(error, BartackError):
        return Failed(error.code, error.message, retryable=error.retryable)
    if isinstance(error, typer.BadParameter):
        return Failed(ErrorCode.INVALID_CONFIG, error.message)
    return Failed(ErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")


class _SingleRun:
    """One run and how far it came, also if it raises."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._signal: int | None = None  # the signal that stopped the run
        self._run: Run | None = None
        self._session_note: str | None = None  # how to continue a session that the user did not name
        self._last_failure: Failed | None = None  # the latest failed model call
        self.result: RunResult | None = None
        self.failed: Failed | None = None
        self.has_started = False

    async def run(self, prepared: PreparedRun) -> int:
        """0, or the status for the signal that stopped it. Raises errors with a hint."""
        try:
            with self._signals():
                await self._execute(prepared)
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            self.failed = _NOT_STARTED
        except BartackError as error:
            self._add_hint(error, prepared)
            raise
        if self._signal is not None and (self.result is None or self.result.status is AgentStatus.ABORTED):
            return 128 + self._signal
        self._raise_if_nothing_to_resume(prepared)
        self._raise_failure(prepared.setup.model)
        return 0

    def _add_hint(self, error: BartackError, prepared: PreparedRun) -> None:
        if not self.has_started and isinstance(error, StoreError):
            with_store_hint(error, is_server=prepared.setup.address.kind == "postgres")
        is_usage = not self.has_started and error.code in _USAGE_CODES
        with_hint(error, _USAGE_HINT if is_usage else failure_hint(error.code, prepared.setup.model))

    async def _execute(self, prepared: PreparedRun) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(exporting(prepared.export))
            stack.push_async_callback(close_model, prepared.setup.model)
            store = await stack.enter_async_context(opened_store(prepared.setup.address))
            telemetry = None if prepared.export is None else prepared.export.telemetry
            runtime = None
            if prepared.setup.files:
                runtime = LocalRuntime(current_directory(), forbidden=private_files(store), **command_options())
            setup, hooks = prepared.setup, HookRunner(prepared.hooks, current_directory(), note)
            approval = None if prepared.mode == "ask" else mode_policy(prepared.mode, runtime)
            if runtime is not None and setup.has_coding_prompt:
                further_tools = (tool for tool in setup.tools if isinstance(tool, ToolDefinition))
                own_tools = extension_tools(
                    prepared.extensions,
                    model=setup.model,
                    runtime=runtime,
                    approval=approval,
                    tools=[*setup.tools_for_files(), *further_tools],
                    hooks=hooks.for_agent(),
                )
                setup = setup._replace(tools=(*setup.tools, *own_tools))
            agent = new_agent(
                setup,
                store,
                approver=prepared.approver,
                approval=approval,
                telemetry=telemetry,
                runtime=runtime,
                output=prepared.output,
                hooks=hooks.for_agent(),
            )
            for model in agent.models[1:]:
                stack.push_async_callback(close_model, model)
            await stack.enter_async_context(agent)
            if prepared.resume is not None:
                session = await find_session(store, prepared.resume)
                if prepared.adopt:
                    await adopt(store, session)
                self._run = agent.resume_stream(session, limits=prepared.limits)
            else:
                session = await self._session(store, prepared)
                if prepared.adopt:
                    await adopt(store, session)
                message = as_message(*prepared.attachments, prepared.prompt)
                losses = unsupported_content(prepared.setup.model, message) if prepared.attachments else ()
                if losses and not prepared.quiet:  # no event contains it
                    note(f"warning: {losses_text(losses)}")
                self._run = agent.stream(message, session=session, limits=prepared.limits)
            async with self._run:
                self.has_started = True
                async for event in self._run:
                    if isinstance(event, RunFinished):
                        self.result = event.result
                    elif isinstance(event, EntryAppended) and isinstance(event.entry.fact, StreamFailed):
                        self._last_failure = event.entry.fact.error
                    await self._output.show(event)
            await hooks.end_turn(self._run.session_id)
            for problem in () if prepared.quiet else unavailable_servers(agent).values():  # no event contains it
                note(f"warning: {problem}")
            self.result = self._run.result  # there is no event if there was nothing to resume

    async def _session(self, store: SessionStore, prepared: PreparedRun) -> str:
        if prepared.continue_latest:
            return await latest_session_here(store)
        session = await ensure_session(store, prepared.session, prompt=prepared.prompt, program="bartack run")
        if prepared.session is None and prepared.setup.address.kind != "memory":
            command = f"bartack run{store_flag(prepared.setup.address)} --session {session} ..."
            self._session_note = f"session {session}; continue with: {command}"
        return session

    def note_session(self) -> None:
        """Print how to continue a session that the user did not name."""
        if self._session_note is not None:
            self._output.note(self._session_note, is_dim=True)

    def _raise_if_nothing_to_resume(self, prepared: PreparedRun) -> None:
        assert self._run is not None
        assert self.result is not None
        if self._run.status is AgentStatus.IDLE and self.result.status is AgentStatus.ABORTED:
            self.failed = Failed(ErrorCode.ABORTED, "There is nothing to resume: the last run was stopped.")
            hint = f"Continue the session with 'bartack run --session {prepared.resume}' and another prompt."
            raise with_hint(AgentError(self.failed.message or "", code=ErrorCode.ABORTED), hint)

    def _raise_failure(self, model: Model) -> None:
        result, last = self.result, self._last_failure
        assert result is not None  # every run that ends without an exception has one
        if result.status is AgentStatus.COMPLETED:
            return
        self.failed = result.error or Failed(ErrorCode.ABORTED, result.reason or str(result.status))
        message = safe_line(self.failed.message or str(self.failed.error_code))
        if result.reason == "max_iterations":
            message = "Stopped after as many answers of the model as --max-turns allows."
        if last is not None and last.error_code is self.failed.error_code:
            self.failed = last  # it has the provider's retry-after
            message = f"{model.model_info().provider}: {message}"
        hint = failure_hint(self.failed.error_code, model, self.failed.retry_after_ms)
        kind = _LimitReached if self.failed.error_code is ErrorCode.LIMIT_EXCEEDED else AgentError
        raise with_hint(kind(message, code=self.failed.error_code), hint)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM abort the run, which still stores its end. A second one ends the process at once."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            self._signal = number
            if self._run is None:
                task.cancel()
            else:
                self._run.abort("interrupted")

        def handle(number: int, frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)
            loop.call_soon_threadsafe(stop, number)

        before = {
            number: signal.signal(number, handle)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN  # shells start background jobs with SIGINT ignored
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is handle:  # otherwise the next signal must end the process
                    signal.signal(number, handler)
