"""`bartack chat`: the command line, the set-up and the prompt loop of the terminal chat."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from bartack.agent import LiveApprover
from bartack.agent.settings import PromptContext
from bartack.agent.tracing import Telemetry
from bartack.app.agent_setup import AgentSetup, new_agent, private_files, resolve_setup
from bartack.app.checkpoints import CheckpointFolder, CheckpointRuntime
from bartack.app.demo import demo_notice
from bartack.app.errors import with_hint
from bartack.app.event_loop import run_async
from bartack.app.mcp_servers import chosen_servers, user_servers
from bartack.app.mentions import as_mention
from bartack.app.permissions import PermissionFile
from bartack.app.plan import update_plan
from bartack.app.platform import current_directory, require_posix
from bartack.app.project import ProjectFile, project_files, project_instructions
from bartack.app.safe_text import safe_line
from bartack.app.sessions import latest_session_here, opened_store
from bartack.app.settings import setting, settings_file
from bartack.cli import options
from bartack.cli.chat.approvals import Approvals
from bartack.cli.chat.clipboard import saved_image
from bartack.cli.chat.completion import ChatCompleter, Completed
from bartack.cli.chat.conversation import Conversation
from bartack.cli.chat.keyboard import Keyboard, prompt_keys, quiet
from bartack.cli.chat.page import PageServer
from bartack.cli.chat.pastes import Pastes
from bartack.cli.chat.slash import COMMANDS, arguments_of, is_command, run_command
from bartack.cli.chat.slash_sessions import picked_session
from bartack.cli.models import description, download
from bartack.cli.store_access import store_flag
from bartack.cli.telemetry import export_for, exported
from bartack.cli.terminal.style import ChatConsole, Display, is_plain, symbols_for
from bartack.models.by_name import DefaultModel
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.store.address import default_path
from bartack.tools import LocalRuntime

app = options.new_app("Chat with a model in the terminal.")

_OWN_COMMAND_MS = 24 * 3_600_000  # the user can see a command of their own, and stop it


@app.command(no_args_is_help=False)
def chat(
    context: typer.Context,
    model: options.ModelOption = None,
    *,
    continue_latest: options.ContinueOption = False,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            autocompletion=options.complete_sessions,
            help="Session to continue: its id, or its first characters.",
        ),
    ] = None,
    pick: Annotated[bool, typer.Option("--pick", help="Choose a session to continue from a list.")] = False,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Enable tools for files and commands in this directory.")
    ] = True,
    tool: options.ToolOption = None,
    mcp: options.McpOption = None,
    instructions: options.InstructionsOption = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--folded", envvar="BARTACK_THINKING", help="Show thinking in full or as a summary."),
    ] = None,
    display: Annotated[
        Display | None,
        typer.Option(
            envvar="BARTACK_DISPLAY",
            metavar="full|plain|screen-reader",
            help="How to show the chat: full (live area and colors), plain (only appends text) or screen-reader "
            "(plain, with words instead of symbols).",
        ),
    ] = None,
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
) -> None:
    """Chat with a model. It can use files and commands in the current directory and the servers added with 'bartack mcp
    add', and asks before changing anything.

    A continued session keeps its model unless you pass --model. Instructions are read from AGENTS.md or CLAUDE.md in
    this directory and those above it. Ctrl-C stops the answer and keeps the text so far; a second Ctrl-C exits. Type
    /help for a list of commands.
    """
    if (session is not None) + continue_latest + pick > 1:
        raise typer.BadParameter("--session, --continue and --pick exclude each other")
    with options.usage_errors():
        _check_terminal()
        here = current_directory()
        setup = resolve_setup(
            model=model,
            tools=tool or (),
            files=tools,
            instructions=instructions,
            store=store,
            servers=chosen_servers(mcp) if mcp else user_servers() if tools else {},
        )
        is_expanded = bool(setting("thinking", thinking))
        shown_as: Display = setting("display", display) or "full"
        export = export_for(otel)
    # rich assumes 80 columns for every dumb terminal
    width = get_terminal_size().columns if is_dumb_terminal() else None
    console = ChatConsole(
        display=shown_as,
        theme_name=settings_file().settings.theme,
        file=sys.stdout,  # kept while that is redirected for tools
        highlight=False,
        width=width,
    )
    files = project_files(here) if setup.instructions else []
    _greet(console, setup.choice, files)
    demo = demo_notice(setup.model)
    if demo is not None:
        console.print(demo, markup=False)
    _offer_download(setup.model, console)
    try:
        with exported(export):
            telemetry = None if export is None else export.telemetry
            run_async(
                _chat(
                    setup,
                    console,
                    session,
                    here,
                    files,
                    continue_latest=continue_latest,
                    pick=pick,
                    is_model_given=getattr(context.get_parameter_source("model"), "name", "") == "COMMANDLINE",
                    thinking=is_expanded,
                    telemetry=telemetry,
                )
            )
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(128 + signal.SIGINT) from None
    except BartackError as error:
        if error.code is ErrorCode.INVALID_CONFIG:  # no such store, or no session in this directory
            raise options.UsageError.of(error) from error
        raise


def _check_terminal() -> None:
    require_posix("Chats in a terminal")
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    error = PartValidationError("This command needs a terminal.", code=ErrorCode.INVALID_CONFIG)
    raise with_hint(error, "Use 'bartack run' in scripts and pipes.")


def _greet(console: Console, choice: DefaultModel, files: Sequence[ProjectFile]) -> None:
    name = "local model" if choice.name == "local" else safe_line(choice.name)
    reason = f" ({choice.reason})" if choice.reason else ""
    read = "".join(f" · {name}" for name in dict.fromkeys(file.path.name for file in files))
    console.print(f"bartack {version('bartack')} · {name}{reason}{read} · /help", style="dim", markup=False)


def _offer_download(model: Model, console: Console) -> None:
    """Download the weights of a local model if they are missing and the user agrees."""
    known = model.weights.known if isinstance(model, LocalModel) else None
    if known is None or known.is_downloaded:
        return
    console.print(f"The local model is not downloaded yet. {description(known)}", markup=False)
    if not typer.confirm("Download it now?", default=True):
        console.print(f"Not downloaded. 'bartack models pull {known.name}' does it later.", markup=False)
        raise typer.Exit(1)
    download(known)


async def _chat(
    setup: AgentSetup,
    console: ChatConsole,
    session: str | None,
    here: Path,
    files: Sequence[ProjectFile],
    *,
    continue_latest: bool,
    pick: bool,
    is_model_given: bool,
    thinking: bool,
    telemetry: Telemetry | None,
) -> None:
    full = await asyncio.to_thread(
        project_instructions, setup.instructions, here, files, datetime.now().astimezone().date()
    )

    def instructions(about: PromptContext[None]) -> str:
        """A small model on this machine has no use for a long prompt, and little room."""
        return setup.instructions if about.model.provider == "local" or not setup.instructions else full

    async with opened_store(setup.address) as store:
        if continue_latest:
            session = await latest_session_here(store)
        conversation: Conversation  # made below
        pastes = Pastes(here)
        keyboard = Keyboard(
            symbol=symbols_for(console).prompt,
            history=default_path().with_name("history"),
            status=None if is_plain(console) else lambda: conversation.status,
            completer=ChatCompleter(
                {
                    name: Completed(command.summary, partial(arguments_of, lambda: conversation, name))
                    for name, command in COMMANDS.items()
                },
                here,
            ),
            keys=prompt_keys(
                toggle_thinking=lambda: conversation.toggle_thinking(),  # noqa: PLW0108 - made below
                show_transcript=lambda: conversation.show_transcript(),  # noqa: PLW0108 - made below
                paste_image=_pasted_image,
                pastes=pastes,
            ),
            pastes=pastes,
            theme=lambda: console.theme_name,
        )
        checkpoints = CheckpointFolder(default_path().with_name("checkpoints"))
        await asyncio.to_thread(checkpoints.prune)
        runtime = CheckpointRuntime(here, kept=checkpoints, forbidden=private_files(store))
        kept = PermissionFile(here)
        with options.usage_errors():
            kept.rules()
        settings = settings_file().settings
        approvals = Approvals(console, keyboard, kept=kept, runtime=runtime, configured=settings.approval)
        agent = new_agent(
            setup._replace(tools=(*setup.tools, *((update_plan,) if setup.files else ()))),
            store,
            approver=LiveApprover(),
            approval=approvals.policy,
            telemetry=telemetry,
            runtime=runtime if setup.files else None,
            instructions=instructions,
        )
        conversation = Conversation(
            agent,
            store,
            setup.choice.name,
            console=console,
            keyboard=keyboard,
            approvals=approvals,
            runtime=runtime,
            own_runtime=LocalRuntime(here, environment=os.environ, timeout_ms=_OWN_COMMAND_MS),
            kept=checkpoints,
            page=PageServer(setup.address),
            directory=here,
            thinking=thinking,
            uses_own_models=not is_model_given,
            notify=settings.notify,
        )
        async with agent, aclosing(conversation):
            with _signals(conversation), quiet(keyboard.type):
                if pick:
                    session = await picked_session(conversation)
                if session is not None:
                    conversation.space()
                    await conversation.open(session)
                await _prompt_loop(conversation, keyboard, pastes)
    if conversation.session_id is not None:
        flags = f"{store_flag(setup.address)} --session {shlex.quote(conversation.session_id)}"
        conversation.note(f"Continue this session with: bartack chat{flags}", soft_wrap=True)


def _pasted_image() -> str | None:
    """The mention of the image in the clipboard; None if there is none."""
    try:
        path = saved_image(default_path().with_name("clipboard"))
    except OSError:
        return None
    return None if path is None else as_mention(str(path))


@contextmanager
def _signals(conversation: Conversation) -> Iterator[None]:
    """Ctrl-C stops the current answer, and a second one exits; prompts read it as a key. SIGTERM and SIGHUP (a closed
    window) exit too: the session is stored, the terminal restored, and the exit status names the signal. Ctrl-Z leaves
    the terminal to the shell."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    ending = signal.SIGTERM, signal.SIGHUP
    ended_by: list[int] = []

    def interrupt() -> None:
        if not conversation.interrupt():
            task.cancel()

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    def stop() -> None:
        with conversation.hidden():
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)  # returns when the shell continues this process
        signal.signal(signal.SIGTSTP, on_stop)

    def on_stop(number: int, frame: object) -> None:
        if conversation.is_live:
            loop.call_soon_threadsafe(stop)  # not in the middle of printing
        else:
            stop()  # now: the prompt has cleared the screen for this

    before = signal.getsignal(signal.SIGTSTP)
    if before is not signal.SIG_IGN:  # which means that no shell could continue this process
        signal.signal(signal.SIGTSTP, on_stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    for number in ending:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    except (asyncio.CancelledError, OSError):  # a closed window cannot be written to
        if not ended_by:
            raise
        raise typer.Exit(128 + ended_by[0]) from None
    finally:
        signal.signal(signal.SIGTSTP, before)
        for number in (signal.SIGINT, *ending):
            loop.remove_signal_handler(number)


async def _prompt_loop(conversation: Conversation, keyboard: Keyboard, pastes: Pastes) -> None:
    """Read and handle one line after another until the user leaves. Messages that were queued during an answer come
    first; after Ctrl-C they are not sent, but left to be edited."""
    default = ""
    while not conversation.is_leaving:  # by /quit, or a second Ctrl-C
        conversation.space()
        if is_plain(conversation.console):  # its prompt has no status line
            conversation.note(f"[{conversation.status.strip()}]")
        if conversation.was_interrupted or default:
            default = "\n".join(filter(None, (default, keyboard.draft.take_all())))
        queued = keyboard.draft.take()
        if queued is not None:
            keyboard.remember(queued)
            conversation.show_own(queued)
            default = await _handle(conversation, queued, pastes)
            continue
        if keyboard.draft.is_closed:
            return
        try:
            line = (await keyboard.line(default)).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if conversation.was_interrupted:
                return
            conversation.was_interrupted = True
            conversation.note("Press Ctrl-C again to exit.")
            default = ""
            continue
        default = await _handle(conversation, line, pastes) if line else ""


async def _handle(conversation: Conversation, line: str, pastes: Pastes) -> str:
    """Run the command or send the message; returns text to start the next prompt with. A folded paste is never a
    command."""
    whole = pastes.unfolded(line)
    try:
        if is_command(line):
            conversation.was_interrupted = False
            return await run_command(conversation, whole) or ""
        if line.startswith("!") and line[1:].strip():
            conversation.was_interrupted = False
            await conversation.run_command(whole[1:].strip())
            return ""
        return "" if await conversation.send(whole) else line
    except BartackError as error:  # for example a full disk, which must not end the chat
        conversation.show_error(error)
        return line
