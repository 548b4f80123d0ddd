"""`bartack chat`: the command line, the set-up and the prompt loop of the terminal chat."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from importlib.metadata import version
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from bartack.agent import LiveApprover
from bartack.agent.tracing import Telemetry
from bartack.app.agent_setup import AgentSetup, new_agent, private_files, resolve_setup
from bartack.app.errors import with_hint
from bartack.app.event_loop import run_async
from bartack.app.mcp_servers import chosen_servers, user_servers
from bartack.app.permissions import PermissionFile
from bartack.app.safe_text import safe_line
from bartack.app.sessions import latest_session_here, opened_store
from bartack.app.settings import setting, settings_file
from bartack.cli import options
from bartack.cli.chat.approvals import Approvals
from bartack.cli.chat.conversation import Conversation
from bartack.cli.chat.keyboard import Keyboard, quiet
from bartack.cli.chat.slash import COMMANDS, is_command, run_command
from bartack.cli.models import description, download
from bartack.cli.store_access import store_flag
from bartack.cli.telemetry import export_for, exported
from bartack.cli.terminal.messages import show_message
from bartack.cli.terminal.style import symbols_for
from bartack.models.by_name import DefaultModel
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.nouns.messages import user
from bartack.store.address import default_path
from bartack.tools import LocalRuntime

app = options.new_app("Chat with a model in the terminal.")


@app.command(no_args_is_help=False)
def chat(
    model: options.ModelOption = None,
    *,
    continue_latest: options.ContinueOption = False,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", autocompletion=options.complete_sessions, help="Continue this session."),
    ] = None,
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
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
) -> None:
    """Chat with a model. It can use files and commands in the current directory, and the servers that 'bartack mcp add'
    has added, and asks before changing anything.

    Ctrl-C stops the answer and keeps what has arrived; a second Ctrl-C exits. Type /help for a list of commands.
    """
    if session is not None and continue_latest:
        raise typer.BadParameter("--session and --continue exclude each other")
    with options.usage_errors():
        _check_terminal()
        setup = resolve_setup(
            model=model,
            tools=tool or (),
            files=tools,
            instructions=instructions,
            store=store,
            servers=chosen_servers(mcp) if mcp else user_servers() if tools else {},
        )
        is_expanded = bool(setting("thinking", thinking))
        export = export_for(otel)
    # rich assumes 80 columns for every dumb terminal
    width = get_terminal_size().columns if is_dumb_terminal() else None
    console = Console(file=sys.stdout, highlight=False, width=width)  # keeps stdout while that is redirected for tools
    _greet(console, setup.choice)
    _offer_download(setup.model)
    try:
        with exported(export):
            telemetry = None if export is None else export.telemetry
            run_async(
                _chat(
                    setup,
                    console,
                    session,
                    continue_latest=continue_latest,
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
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    error = PartValidationError("This command needs a terminal.", code=ErrorCode.INVALID_CONFIG)
    raise with_hint(error, "Use 'bartack run' in scripts and pipes.")


def _greet(console: Console, choice: DefaultModel) -> None:
    name = "local model" if choice.name == "local" else safe_line(choice.name)
    reason = f" ({choice.reason})" if choice.reason else ""
    console.print(f"bartack {version('bartack')} · {name}{reason} · /help", style="dim", markup=False)


def _offer_download(model: Model) -> None:
    """Download the weights of a local model if they are missing and the user agrees."""
    known = model.weights.known if isinstance(model, LocalModel) else None
    if known is None or known.is_downloaded:
        return
    print(f"The local model is not downloaded yet. {description(known)}")
    if not typer.confirm("Download it now?", default=True):
        raise typer.Exit(1)
    download(known)


async def _chat(
    setup: AgentSetup,
    console: Console,
    session: str | None,
    *,
    continue_latest: bool,
    thinking: bool,
    telemetry: Telemetry | None,
) -> None:
    async with opened_store(setup.address) as store:
        if continue_latest:
            session = await latest_session_here(store)
        keyboard = Keyboard(
            symbol=symbols_for(console).prompt,
            history=default_path().with_name("history"),
            status=lambda: conversation.status,
            commands={name: command.summary for name, command in COMMANDS.items()},
            toggle_thinking=lambda: conversation.toggle_thinking(),  # noqa: PLW0108 - made below
            show_transcript=lambda: conversation.show_transcript(),  # noqa: PLW0108 - made below
        )
        runtime = LocalRuntime(Path.cwd(), forbidden=private_files(store)) if setup.files else None
        kept = PermissionFile(Path.cwd())
        with options.usage_errors():
            kept.rules()
        configured = settings_file().settings.approval
        approvals = Approvals(console, keyboard, kept=kept, runtime=runtime, configured=configured)
        agent = new_agent(
            setup,
            store,
            approver=LiveApprover(),
            approval=approvals.policy,
            telemetry=telemetry,
            runtime=runtime,
        )
        conversation = Conversation(
            agent, store, setup.choice.name, console=console, keyboard=keyboard, approvals=approvals, thinking=thinking
        )
        async with agent, aclosing(conversation):
            with _signals(conversation), quiet(keyboard.type):
                if session is not None:
                    conversation.space()
                    await conversation.open(session)
                await _prompt_loop(conversation, keyboard)
    if conversation.session_id is not None:
        flags = f"{store_flag(setup.address)} --session {shlex.quote(conversation.session_id)}"
        conversation.note(f"Continue this session with: bartack chat{flags}", soft_wrap=True)


@contextmanager
def _signals(conversation: Conversation) -> Iterator[None]:
    """Ctrl-C stops the current answer, and a second one exits; prompts read it as a key. SIGTERM and SIGHUP (a closed
    window) exit too: the session is stored, the terminal restored, and the exit status names the signal."""
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
        for number in (signal.SIGINT, *ending):
            loop.remove_signal_handler(number)


async def _prompt_loop(conversation: Conversation, keyboard: Keyboard) -> None:
    """Read and handle one line after another until the user leaves. Messages that were queued during an answer come
    first; after Ctrl-C they are not sent, but left to be edited."""
    default = ""
    while not conversation.is_leaving:  # by /quit, or a second Ctrl-C
        conversation.space()
        if conversation.console.is_dumb_terminal:  # its prompt has no status line
            conversation.note(f"[{conversation.status.strip()}]")
        if conversation.was_interrupted or default:
            default = "\n".join(filter(None, (default, keyboard.draft.take_all())))
        queued = keyboard.draft.take()
        if queued is not None:
            keyboard.remember(queued)
            show_message(conversation.console, user(queued))
            default = await _handle(conversation, queued)
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
        default = await _handle(conversation, line) if line else ""


async def _handle(conversation: Conversation, line: str) -> str:
    """Run the command or send the message; gives the text to start the next prompt with."""
    try:
        if is_command(line):
            conversation.was_interrupted = False
            return await run_command(conversation, line) or ""
        return "" if await conversation.send(line) else line
    except BartackError as error:  # for example a full disk, which must not end the chat
        conversation.show_error(error)
        return line
