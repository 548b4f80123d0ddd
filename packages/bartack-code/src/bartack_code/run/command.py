"""`bartack run`: one prompt, one answer, for scripts.

stdout has the answer of the run, or nothing if there is none; everything else goes to stderr. With --json every event
is a line on stdout. Each run is stored as a session. Nothing is ever asked: a tool call that needs approval is denied,
unless --allow names its tool or --yes is given.

Exit status: 0 there is an answer, 1 the run failed, 2 wrong arguments or settings, 3 it reached a limit such as
--max-turns, 130 and 143 stopped by SIGINT or SIGTERM, 141 the reader of the output went away.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer

from bartack.app.agent_setup import AgentSetup, demo_notice, load_output_schema, resolve_setup
from bartack.app.errors import with_hint
from bartack.app.mcp_servers import chosen_servers
from bartack.app.modes import PLAN_REFUSAL, Mode
from bartack.app.queues import QUEUE
from bartack.app.sessions import OWN_AGENT
from bartack.app.settings import HookSettings, setting, settings_file
from bartack.cli import options
from bartack.cli.options import export_for
from bartack.cli.output import OutputClosed
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.parts import FileRef, Image
from bartack.tools import Decision, ToolDefinition
from bartack_code.run.detached import DetachedPrompt, submit_detached
from bartack_code.run.event_schema import event_schema
from bartack_code.run.output import JsonOutput, Output, TextOutput
from bartack_code.run.single_run import PreparedRun, execute
from bartack_code.workspace.attachments import MAX_BYTES, load_attachment
from bartack_code.workspace.extensions import Extensions, load_extensions, skill_text
from bartack_code.workspace.hooks import find_hook_file
from bartack_code.workspace.memory import user_memory
from bartack_code.workspace.project import project_files, project_instructions
from bartack_code.workspace.trust import untrusted

app = options.new_app("Run one prompt and print the answer, for scripts.")

_DETACHED = ("agent", "queue", "engine", "priority", "start")  # options that only a queued prompt has
_NOT_DETACHED = (
    *("model", "resume", "tool", "mcp", "tools", "allow", "yes", "mode", "trust"),
    *("max_turns", "output_schema", "instructions", "otel"),
)


# -- options of this command only

PromptArgument = Annotated[
    str | None, typer.Argument(metavar="PROMPT", help="The prompt. Text piped to stdin is appended.")
]
SessionOption = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION",
        autocompletion=options.complete_sessions,
        help="Continue this session, creating it if needed.",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION",
        autocompletion=options.complete_sessions,
        help="Finish the interrupted run of this session. Takes no prompt.",
    ),
]
AdoptOption = Annotated[
    bool,
    typer.Option("--adopt", help="Continue a session that was imported, with the model and instructions it names."),
]
AttachOption = Annotated[
    list[Path] | None,
    typer.Option("--attach", "-a", metavar="FILE", help="Attach an image, PDF or text file. May be repeated."),
]
FileToolsOption = Annotated[
    Literal["files"] | None,
    typer.Option("--tools", metavar="files", help="Enable tools for files and commands in this directory."),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="TOOL", help="Approve every call of this tool. May be repeated."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Approve every tool call that needs approval.")]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="For this run, use the project's instructions (AGENTS.md) as in a folder you trust."),
]
MaxTurnsOption = Annotated[
    int | None,
    typer.Option("--max-turns", metavar="N", min=1, help="Stop after this many answers from the model."),
]
OutputSchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--output-schema", metavar="FILE", help="Print a JSON value that matches the JSON Schema in this file."
    ),
]
EventsOption = Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")]


def _print_schema(is_wanted: bool) -> None:
    if is_wanted:
        print(msgspec.json.format(msgspec.json.encode(event_schema()), indent=2).decode())
        raise typer.Exit


SchemaOption = Annotated[
    bool,
    typer.Option("--json-schema", is_eager=True, callback=_print_schema, help="Print the JSON Schema of these lines."),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Queue the prompt for a worker, print the session id, and exit.")
]
AgentOption = Annotated[str, typer.Option(metavar="NAME", help="With --detach: the worker's agent to run.")]
PriorityOption = Annotated[int, typer.Option(metavar="N", help="With --detach: runs of higher priority come first.")]
TimeOption = Annotated[
    datetime | None,
    typer.Option(
        "--at",
        metavar="TIME",
        formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%H:%M"],
        help="With --detach: when to deliver the prompt, such as 18:30 or 2027-01-31T18:30.",
    ),
]
StreamOption = Annotated[
    bool, typer.Option("--stream/--no-stream", help="Show text as it arrives, where stdout is a terminal.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing to stderr except errors.")]


@app.command()
def run(
    context: typer.Context,
    prompt: PromptArgument = None,
    *,
    model: options.ModelOption = None,
    session: SessionOption = None,
    continue_latest: options.ContinueOption = False,
    resume: ResumeOption = None,
    adopt: AdoptOption = False,
    attach: AttachOption = None,
    tool: options.ToolOption = None,
    mcp: options.McpOption = None,
    tools: FileToolsOption = None,
    allow: AllowOption = None,
    yes: YesOption = False,
    mode: options.ModeOption = None,
    trust: TrustOption = False,
    max_turns: MaxTurnsOption = None,
    output_schema: OutputSchemaOption = None,
    instructions: options.InstructionsOption = None,
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
    as_json: EventsOption = False,
    json_schema: SchemaOption = False,
    detach: DetachOption = False,
    agent: AgentOption = OWN_AGENT,
    queue: options.QueueOption = QUEUE,
    engine: options.EngineOption = "store",
    priority: PriorityOption = 0,
    start: TimeOption = None,
    stream: StreamOption = True,
    quiet: QuietOption = False,
) -> None:
    """Run one prompt and print the answer to stdout. Notices and errors go to stderr.

    The conversation is stored as a session. Tool calls that need approval are denied, unless --allow or --yes is given.
    With --tools files, the instructions in AGENTS.md or CLAUDE.md are used if you trust the folder ('bartack chat' asks
    once), or for this run with --trust.

    With --detach, a worker (see 'bartack worker') runs the prompt with its own model, tools and instructions. Follow it
    with 'bartack show SESSION'. Calls that need approval wait for 'bartack sessions approve'.

    A pipe gets the whole answer, or nothing. The exit status is 0 for an answer, 1 for a failure, 2 for wrong arguments
    or settings, 3 if a limit such as --max-turns was reached, and 130 after Ctrl-C.
    """
    _check_detached(context, detach=detach)
    message = _MessageFlags(prompt, attach or (), session, continue_latest, resume)
    if detach:
        with options.usage_errors():
            text, attachments = message.read()
        detached = DetachedPrompt(
            text, attachments, session, continue_latest, adopt, agent, queue, engine, priority, start
        )
        submit_detached(detached, store, as_json=as_json, quiet=quiet)
        return
    output = JsonOutput() if as_json else TextOutput(stream=stream, quiet=quiet, as_value=output_schema is not None)

    def prepare() -> PreparedRun:
        message.check()
        text, attachments = message.read()
        setup = resolve_setup(
            model=model,
            tools=tool or (),
            files=tools == "files",
            instructions=instructions,
            store=store,
            servers=chosen_servers(mcp) if mcp else {},
        )
        chosen_mode: Mode = setting("mode", mode) or "ask"
        extensions, unused = Extensions({}, {}, {}), tuple[Path, ...]()
        if trust or setup.files:
            brought = None if trust else untrusted(Path.cwd())
            unused = () if brought is None else brought.instructions
            setup, extensions = _with_project(setup, output, unused)
            if brought is not None and mode is None and chosen_mode != "plan":
                chosen_mode = "ask"  # a mode of the configuration is meant for folders that the user trusts
        prepared = PreparedRun(
            prompt=text,
            attachments=attachments,
            setup=setup,
            approver=_AllowedTools(allow or (), is_all=yes, is_planning=chosen_mode == "plan"),
            mode=chosen_mode,
            extensions=extensions,
            hooks=_hooks(trust=trust, output=output, project=not unused) if setup.files else (),
            limits=LoopConfig() if max_turns is None else LoopConfig(max_iterations=max_turns),
            output=None if output_schema is None else load_output_schema(output_schema),
            session=session,
            continue_latest=continue_latest,
            resume=resume,
            adopt=adopt,
            quiet=quiet,
            export=export_for(otel),
        )
        _check_allowed(allow or (), setup)
        _note_model(setup, output)
        return prepared

    raise typer.Exit(_run_to_the_end(prepare, output))


def _with_project(setup: AgentSetup, output: Output, unused: Sequence[Path]) -> tuple[AgentSetup, Extensions]:
    """The set-up with the instructions of the project, its skills and sub-agents, and the user's own. If some of the
    project's are in a folder that the user has not trusted (`unused`), none of them is read."""
    directory = Path.cwd()
    files = [*user_memory(), *([] if unused else project_files(directory))]
    extensions = load_extensions(directory, Path.home(), project=not unused)
    if unused:
        names = ", ".join(map(str, unused))
        output.note(f"bartack: not using {names}; --trust uses the project's instructions for this run", is_dim=True)
    elif names := ", ".join(map(str, (*(file.path for file in files), *extensions.project_folders))):
        output.note(f"bartack: using {names}", is_dim=True)
    skills = skill_text(extensions.skills) if setup.has_coding_prompt else ""
    own = "\n\n".join(filter(None, (setup.instructions, skills)))
    today = datetime.now().astimezone().date()
    instructions = project_instructions(own, directory, files, today) if files else own
    return setup._replace(instructions=instructions), extensions


def _hooks(*, trust: bool, output: Output, project: bool) -> Sequence[HookSettings]:
    """The user's own hooks, and with `project` those of the project, if the user has agreed to them in a chat or passes
    --trust."""
    own = settings_file().settings.hooks
    file = find_hook_file(Path.cwd(), Path.home()) if project else None
    if file is None or not file.hooks:
        return own
    if not trust and not file.is_trusted:
        output.note(f"bartack: not using {file.path}; --trust uses it for this run", is_dim=True)
        return own
    return (*own, *file.hooks)


def _run_to_the_end(prepare: Callable[[], PreparedRun], output: Output) -> int:
    try:
        return execute(prepare, output)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OutputClosed as error:
        with_hint(error, "The answer up to this point is stored; 'bartack sessions list' shows the session.")
        raise


def _note_model(setup: AgentSetup, output: Output) -> None:
    """Name a model that the user did not choose."""
    name, reason = setup.choice
    if reason:
        title = f"local model {setup.model.get_config().model_id}" if name == "local" else name
        output.note(f"bartack: {title} ({reason})")
    if (demo := demo_notice(setup.model)) is not None:
        output.note(f"bartack: {demo}", is_dim=True)


def _check_detached(context: typer.Context, *, detach: bool) -> None:
    """Refuse options that would have no effect."""
    names = _NOT_DETACHED if detach else _DETACHED
    sources = ((name, context.get_parameter_source(name)) for name in names)
    misplaced = next((name for name, source in sources if getattr(source, "name", "") == "COMMANDLINE"), None)
    if misplaced is not None:
        why = "has no effect with --detach: the worker has its own settings" if detach else "needs --detach"
        flag = "at" if misplaced == "start" else misplaced.replace("_", "-")
        raise typer.BadParameter(f"--{flag} {why}")


# -- approval without a person


class _AllowedTools:
    """Approves the calls of some tools, or all, and denies every other one."""

    def __init__(self, allowed: Sequence[str], *, is_all: bool, is_planning: bool) -> None:
        self._allowed = frozenset(allowed)
        self._is_all = is_all
        self._is_planning = is_planning

    async def decide(self, request: ApprovalRequired) -> Decision:
        if self._is_planning:
            return Decision("deny", reason=PLAN_REFUSAL, decided_by="bartack run --mode plan")
        if self._is_all:
            return Decision("approve", decided_by="bartack run --yes")
        if request.tool_name in self._allowed:
            return Decision("approve", decided_by=f"bartack run --allow {request.tool_name}")
        reason = f"this run cannot ask for approval; --allow {request.tool_name} approves this tool, --yes every call"
        return Decision("deny", reason=reason, decided_by="bartack run")


def _check_allowed(names: Sequence[str], setup: AgentSetup) -> None:
    """Refuse a name that no tool has; the tools of MCP servers are not known yet."""
    tools = (*setup.tools_for_files(), *setup.tools)
    tool_names = [tool.name for tool in tools if isinstance(tool, ToolDefinition)]
    unknown = next((name for name in names if name not in tool_names), None)
    if unknown is not None and len(tool_names) == len(tools):
        offered = (
            f"this run has {', '.join(tool_names)}" if tool_names else "this run has no tools; --tools files adds some"
        )
        raise typer.BadParameter(f"--allow {unknown}: there is no such tool; {offered}")


# -- the prompt


class _MessageFlags(NamedTuple):
    """The prompt and the session of a command line, as they were typed."""

    prompt: str | None
    attach: Sequence[Path]
    session: str | None
    continue_latest: bool
    resume: str | None

    def check(self) -> None:
        """Raise `typer.BadParameter` if the flags contradict each other."""
        flags = {
            "--session": self.session is not None,
            "--continue": self.continue_latest,
            "--resume": self.resume is not None,
        }
        chosen = [flag for flag, is_set in flags.items() if is_set]
        if len(chosen) > 1:
            raise typer.BadParameter(f"{' and '.join(chosen)} exclude each other")
        if "" in (self.session, self.resume):
            raise typer.BadParameter(f"{chosen[0]} needs a name")
        if self.resume is not None and (self.prompt is not None or self.attach):
            raise typer.BadParameter("--resume takes neither a prompt nor attachments; use --session to send one")

    def read(self) -> tuple[str, tuple[Image | FileRef, ...]]:
        """The text and the attachments of the message. Raises `BartackError` if they cannot be sent."""
        text = "" if self.resume is not None else _whole_prompt(self.prompt or "")
        return text, tuple(map(load_attachment, self.attach))


def _whole_prompt(words: str) -> str:
    """The argument followed by what is piped to stdin."""
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_BYTES + 1)
    if not words.strip() and not piped.strip():
        raise typer.BadParameter("no prompt: pass PROMPT, or pipe text to stdin")
    if len(piped) > MAX_BYTES:
        raise _prompt_error(f"stdin exceeds {MAX_BYTES // 1_000_000} MB.")
    try:
        texts = [words.encode().decode().strip(), piped.decode().rstrip("\n")]
    except UnicodeError as error:  # Python reads invalid bytes of an argument as surrogates, which do not encode
        source = "stdin" if isinstance(error, UnicodeDecodeError) else "PROMPT"
        raise _prompt_error(f"{source} is not valid UTF-8.") from error
    return "\n\n".join(text for text in texts if text.strip())


def _prompt_error(problem: str) -> PartValidationError:
    error = PartValidationError(problem, path="$.prompt", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Use --attach for images and PDFs.")
