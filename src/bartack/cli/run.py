"""`bartack run`: one prompt, one answer, for scripts.

stdout has the answer of the run, or nothing if there is none; everything else goes to stderr. With --json every event
is a line on stdout. Each run is stored as a session. Nothing is ever asked: a tool call that needs approval is denied,
unless --allow names its tool or --yes is given.

Exit status: 0 there is an answer, 1 the run failed, 2 wrong arguments or settings, 3 it reached a limit such as
--max-turns, 130 and 143 stopped by SIGINT or SIGTERM, 141 the reader of the output went away.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from bartack.agent import Run
from bartack.agent.events import EntryAppended, RunFinished, RunResult
from bartack.agent.run import as_message
from bartack.app.agent_setup import AgentSetup, new_agent, resolve_setup
from bartack.app.attachments import MAX_BYTES, load_attachment, unsupported_content
from bartack.app.demo import demo_notice
from bartack.app.errors import failure_hint, with_hint, with_store_hint
from bartack.app.event_loop import run_async
from bartack.app.mcp_servers import chosen_servers
from bartack.app.notices import losses_text
from bartack.app.output_schema import SchemaOutput, load_output_schema
from bartack.app.queues import QUEUE
from bartack.app.safe_text import safe_line
from bartack.app.sessions import OWN_AGENT, ensure_session, latest_session_here, opened_store
from bartack.cli import options
from bartack.cli.detached import Detached, submit_detached
from bartack.cli.output import note
from bartack.cli.run_output import JsonOutput, Output, OutputClosed, TextOutput
from bartack.cli.store_access import store_flag
from bartack.cli.telemetry import export_for, exported
from bartack.models.model import Model
from bartack.nouns.config import LoopConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import ApprovalRequired, StreamFailed
from bartack.nouns.errors import AgentError, BartackError, ErrorCode, PartValidationError, StoreError
from bartack.nouns.parts import FileRef, Image
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore
from bartack.tools import Approver, Decision, ToolDefinition, file_tools

if TYPE_CHECKING:
    from bartack.app.telemetry_export import TelemetryExport

app = options.new_app("Run one prompt and print the answer, for scripts.")

_PIPE_CLOSED = 128 + 13  # the status that shells give a program ended by SIGPIPE
_LIMIT_REACHED = 3
_USAGE_CODES = frozenset((ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_VALUE))
_USAGE_HINT = "'bartack run --help' explains the arguments, and 'bartack doctor' checks the settings."


@app.command()
def run(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The prompt, followed by what is piped to stdin.")
    ] = None,
    *,
    model: options.ModelOption = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            autocompletion=options.complete_sessions,
            help="Continue this session, creating it if needed.",
        ),
    ] = None,
    continue_latest: options.ContinueOption = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            autocompletion=options.complete_sessions,
            help="Finish the run of this session that was interrupted, without a prompt.",
        ),
    ] = None,
    attach: Annotated[
        list[Path] | None,
        typer.Option("--attach", "-a", metavar="FILE", help="Attach an image, PDF or text file. May be repeated."),
    ] = None,
    tool: options.ToolOption = None,
    mcp: options.McpOption = None,
    tools: Annotated[
        Literal["files"] | None,
        typer.Option("--tools", metavar="files", help="Enable tools for files and commands in this directory."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="TOOL", help="Approve every call of this tool. May be repeated."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve every tool call that needs approval.")] = False,
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", metavar="N", min=1, help="Stop after this many answers of the model."),
    ] = None,
    output_schema: Annotated[
        Path | None,
        typer.Option(
            "--output-schema", metavar="FILE", help="Print a JSON value that matches the JSON Schema in this file."
        ),
    ] = None,
    instructions: options.InstructionsOption = None,
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Queue the prompt for a worker, print the session id, and exit.")
    ] = False,
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="With --detach: the agent of the worker that answers.")
    ] = OWN_AGENT,
    queue: options.QueueOption = QUEUE,
    engine: options.EngineOption = "store",
    priority: Annotated[int, typer.Option(metavar="N", help="With --detach: runs of higher priority come first.")] = 0,
    at: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%H:%M"],
            help="With --detach: when to deliver the prompt, such as 18:30 or 2027-01-31T18:30.",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream/--no-stream", help="Show text as it arrives, where stdout is a terminal."),
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing to stderr except errors.")] = False,
) -> None:
    """Run one prompt and print the answer to stdout. Notices and errors go to stderr.

    The conversation is stored as a session. Tool calls that need approval are denied, unless --allow or --yes is given.

    With --detach, a worker (see 'bartack worker') runs the prompt with its own model, tools and instructions. Follow it
    with 'bartack show SESSION'. Calls that need approval wait for 'bartack sessions approve'.

    A pipe gets the whole answer, or nothing. The exit status is 0 for an answer, 1 for a failure, 2 for wrong arguments
    or settings, 3 if a limit such as --max-turns was reached, and 130 after Ctrl-C.
    """
    if detach:
        with options.usage_errors():
            prompts = Detached(
                text=_whole_prompt(prompt or ""),
                attachments=tuple(map(load_attachment, attach or ())),
                session=session,
                continue_latest=continue_latest,
                agent=agent,
                queue=queue,
                engine=engine,
                priority=priority,
                at=at,
            )
        submit_detached(prompts, store, as_json=as_json)
        return
    output = JsonOutput() if as_json else TextOutput(stream=stream, quiet=quiet, as_value=output_schema is not None)

    def prepare() -> Job:
        given = {"--session": session is not None, "--continue": continue_latest, "--resume": resume is not None}
        chosen = [flag for flag, is_given in given.items() if is_given]
        if len(chosen) > 1:
            raise typer.BadParameter(f"{' and '.join(chosen)} exclude each other")
        if "" in (session, resume):
            raise typer.BadParameter(f"{chosen[0]} needs a name")
        if resume is not None and (prompt is not None or attach):
            raise typer.BadParameter("--resume takes neither a prompt nor attachments; use --session to send one")
        job = Job(
            prompt="" if resume is not None else _whole_prompt(prompt or ""),
            attachments=tuple(map(load_attachment, attach or ())),
            setup=resolve_setup(
                model=model,
                tools=tool or (),
                files=tools == "files",
                instructions=instructions,
                store=store,
                servers=chosen_servers(mcp) if mcp else {},
            ),
            approver=_Decided(allow or (), is_all=yes),
            limits=LoopConfig() if max_turns is None else LoopConfig(max_iterations=max_turns),
            output=None if output_schema is None else load_output_schema(output_schema),
            session=session,
            continue_latest=continue_latest,
            resume=resume,
            quiet=quiet,
            export=export_for(otel),
        )
        _check_allowed(allow or (), job.setup)
        name, reason = job.setup.choice
        if reason:
            shown = f"local model {job.setup.model.get_config().model_id}" if name == "local" else name
            output.note(f"bartack: {shown} ({reason})")
        if (demo := demo_notice(job.setup.model)) is not None:
            output.note(f"bartack: {demo}", is_dim=True)
        return job

    try:
        status = _execute(prepare, output)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except OutputClosed as error:
        if not isinstance(error.__cause__, BrokenPipeError):
            raise _unwritable(error) from error
        status = _PIPE_CLOSED
    raise typer.Exit(status)


def _unwritable(error: OutputClosed) -> BartackError:
    failure = BartackError(f"Cannot write the answer: {error.__cause__}.", code=ErrorCode.STORAGE_FAILED)
    return with_hint(failure, "The answer up to this point is stored; 'bartack sessions list' shows the session.")


# -- approval without a person


class _Decided:
    """Approves the calls of some tools, or all, and denies every other one."""

    def __init__(self, allowed: Sequence[str], *, is_all: bool) -> None:
        self._allowed = frozenset(allowed)
        self._is_all = is_all

    async def decide(self, request: ApprovalRequired) -> Decision:
        if self._is_all:
            return Decision("approve", decided_by="bartack run --yes")
        if request.tool_name in self._allowed:
            return Decision("approve", decided_by=f"bartack run --allow {request.tool_name}")
        reason = f"this run cannot ask for approval; --allow {request.tool_name} approves this tool, --yes every call"
        return Decision("deny", reason=reason, decided_by="bartack run")


def _check_allowed(names: Sequence[str], setup: AgentSetup) -> None:
    """Refuse a name that no tool has; the tools of MCP servers are not known yet."""
    tools = (*(file_tools() if setup.files else ()), *setup.tools)
    known = [tool.name for tool in tools if isinstance(tool, ToolDefinition)]
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None and len(known) == len(tools):
        offered = f"this run has {', '.join(known)}" if known else "this run has no tools; --tools files adds some"
        raise typer.BadParameter(f"--allow {unknown}: there is no such tool; {offered}")


# -- the prompt


def _whole_prompt(words: str) -> str:
    """The argument followed by what is piped to stdin."""
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_BYTES + 1)
    if not words.strip() and not piped.strip():
        raise typer.BadParameter("no prompt: pass PROMPT, or pipe text to stdin")
    if len(piped) > MAX_BYTES:
        raise _invalid_prompt(f"stdin exceeds {MAX_BYTES // 1_000_000} MB.")
    try:
        texts = [words.encode().decode().strip(), piped.decode().rstrip("\n")]
    except UnicodeError as error:  # Python reads invalid bytes of an argument as surrogates, which do not encode
        source = "stdin" if isinstance(error, UnicodeDecodeError) else "PROMPT"
        raise _invalid_prompt(f"{source} is not valid UTF-8.") from error
    return "\n\n".join(text for text in texts if text.strip())


def _invalid_prompt(problem: str) -> PartValidationError:
    error = PartValidationError(problem, path="$.prompt", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Use --attach for images and PDFs.")


# -- the run


class Job(NamedTuple):
    """What to run, with everything prepared that needs neither network nor store."""

    prompt: str
    attachments: tuple[Image | FileRef, ...]
    setup: AgentSetup
    approver: Approver
    limits: LoopConfig
    output: SchemaOutput | None
    session: str | None
    continue_latest: bool
    resume: str | None
    quiet: bool
    export: "TelemetryExport | None"


def _execute(prepare: Callable[[], Job], output: Output) -> int:
    """The exit status. Whatever is raised, the output has been ended before."""
    single = _SingleRun(output)
    try:
        with redirect_stdout(sys.stderr):  # what tools print is not part of the answer
            with options.usage_errors():
                job = prepare()
            status = run_async(single.run(job))
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
        self._signal: int | None = None  # that stopped it
        self._run: Run | None = None
        self._session_note: str | None = None  # how to continue a session that the user did not name
        self._last_failure: Failed | None = None  # of a model call
        self.result: RunResult | None = None
        self.failed: Failed | None = None
        self.has_started = False

    async def run(self, job: Job) -> int:
        """0, or the status for the signal that stopped it. Raises errors with a hint."""
        try:
            with self._signals():
                await self._run_job(job)
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            self.failed = _NOT_STARTED
        except BartackError as error:
            self._add_hint(error, job)
            raise
        if self._signal is not None and (self.result is None or self.result.status is AgentStatus.ABORTED):
            return 128 + self._signal
        self._raise_failure(job.setup.model)
        return 0

    def _add_hint(self, error: BartackError, job: Job) -> None:
        if not self.has_started and isinstance(error, StoreError):
            with_store_hint(error, is_server=job.setup.address.kind == "postgres")
        is_usage = not self.has_started and error.code in _USAGE_CODES
        with_hint(error, _USAGE_HINT if is_usage else failure_hint(error.code, job.setup.model))

    async def _run_job(self, job: Job) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(exported(job.export))
            close = getattr(job.setup.model, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            store = await stack.enter_async_context(opened_store(job.setup.address))
            telemetry = None if job.export is None else job.export.telemetry
            agent = new_agent(job.setup, store, approver=job.approver, telemetry=telemetry, output=job.output)
            await stack.enter_async_context(agent)
            if job.resume is not None:
                self._run = agent.resume_stream(job.resume, limits=job.limits)
            else:
                session = await self._session(store, job)
                message = as_message(*job.attachments, job.prompt)
                losses = unsupported_content(job.setup.model, message) if job.attachments else ()
                if losses and not job.quiet:  # no event contains it
                    note(f"warning: {losses_text(losses)}")
                self._run = agent.stream(message, session=session, limits=job.limits)
            async with self._run:
                self.has_started = True
                async for event in self._run:
                    if isinstance(event, RunFinished):
                        self.result = event.result
                    elif isinstance(event, EntryAppended) and isinstance(event.entry.fact, StreamFailed):
                        self._last_failure = event.entry.fact.error
                    await self._output.show(event)
            self.result = self._run.result  # without an event if there was nothing to resume

    async def _session(self, store: SessionStore, job: Job) -> str:
        if job.continue_latest:
            return await latest_session_here(store)
        session = await ensure_session(store, job.session, prompt=job.prompt, program="bartack run")
        if job.session is None:
            command = f"bartack run{store_flag(job.setup.address)} --session {session} ..."
            self._session_note = f"session {session}; continue with: {command}"
        return session

    def note_session(self) -> None:
        """Print how to continue a session that the user did not name."""
        if self._session_note is not None:
            self._output.note(self._session_note, is_dim=True)

    def _raise_failure(self, model: Model) -> None:
        result, last = self.result, self._last_failure
        assert result is not None  # every run that ends without an exception has one
        if result.status is AgentStatus.COMPLETED:
            return
        self.failed = result.error or Failed(ErrorCode.ABORTED, result.reason or str(result.status))
        message = safe_line(self.failed.message or str(self.failed.error_code))
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
