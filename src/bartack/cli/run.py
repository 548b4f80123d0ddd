"""`bartack run`: one prompt, one answer, for scripts.

stdout has the answer of the run, or nothing if there is none; everything else goes to stderr. With --json every event
is a line on stdout. Each run is stored as a session. Nothing is ever asked: a tool call that needs approval is denied,
unless --allow names its tool or --yes is given.

Exit status: 0 there is an answer, 1 the run failed, 2 wrong arguments or settings, 3 it reached a limit such as
--max-turns, 130 and 143 stopped by SIGINT or SIGTERM, 141 the reader of the output went away.
"""

import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from bartack.app.agent_setup import AgentSetup, resolve_setup
from bartack.app.attachments import MAX_BYTES, load_attachment
from bartack.app.demo import demo_notice
from bartack.app.errors import with_hint
from bartack.app.mcp_servers import chosen_servers
from bartack.app.output_schema import load_output_schema
from bartack.app.queues import QUEUE
from bartack.app.sessions import OWN_AGENT
from bartack.cli import options
from bartack.cli.detached import Detached, submit_detached
from bartack.cli.run_output import JsonOutput, TextOutput
from bartack.cli.single_run import Job, execute
from bartack.cli.stdout import OutputClosed
from bartack.cli.telemetry import export_for
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.tools import Decision, ToolDefinition, file_tools

app = options.new_app("Run one prompt and print the answer, for scripts.")

_DETACHED = ("agent", "queue", "engine", "priority", "at")  # options that only a queued prompt has
_NOT_DETACHED = (
    *("model", "resume", "tool", "mcp", "tools", "allow", "yes"),
    *("max_turns", "output_schema", "instructions", "otel"),
)


@app.command()
def run(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The prompt. Text piped to stdin is appended.")
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
            help="Finish the interrupted run of this session. Takes no prompt.",
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
        typer.Option("--max-turns", metavar="N", min=1, help="Stop after this many answers from the model."),
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
    agent: Annotated[str, typer.Option(metavar="NAME", help="With --detach: the worker's agent to run.")] = OWN_AGENT,
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
    _check_detached(context, detach=detach)
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
        submit_detached(prompts, store, as_json=as_json, quiet=quiet)
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
        status = execute(prepare, output)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except OutputClosed as error:
        with_hint(error, "The answer up to this point is stored; 'bartack sessions list' shows the session.")
        raise
    raise typer.Exit(status)


def _check_detached(context: typer.Context, *, detach: bool) -> None:
    """Refuse options that would have no effect."""
    names = _NOT_DETACHED if detach else _DETACHED
    sources = ((name, context.get_parameter_source(name)) for name in names)
    given = next((name for name, source in sources if getattr(source, "name", "") == "COMMANDLINE"), None)
    if given is not None:
        why = "has no effect with --detach: the worker has its own settings" if detach else "needs --detach"
        raise typer.BadParameter(f"--{given.replace('_', '-')} {why}")


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
