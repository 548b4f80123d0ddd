"""`bartack chat`: talk with a model that works in the current directory, asks before changing anything, and remembers."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from importlib.metadata import version
from shutil import get_terminal_size
from typing import Annotated, NamedTuple

import typer
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from bartack.agent import LiveApprover
from bartack.cli import suggestions
from bartack.cli.agent_setup import ToolOption, connected, new_agent, setting_up, store_place, tool_named
from bartack.cli.chat.approving import Approvals
from bartack.cli.chat.keyboard import Keyboard, quiet
from bartack.cli.chat.slash import COMMANDS, is_command, obey, toggle_thinking
from bartack.cli.chat.status import status_line
from bartack.cli.chat.talk import Talk
from bartack.cli.command import new_app
from bartack.cli.models import described, fetch
from bartack.cli.session_choice import newest_here
from bartack.cli.settings import ModelOption, chosen_model, first_said, settings_file
from bartack.cli.store_access import StoreOption, store_hint, store_words
from bartack.cli.terminal.looks import marks_for
from bartack.cli.terminal.safe_text import safe_line
from bartack.models.by_name import DefaultModel
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.store import SessionStore, default_path, open_store
from bartack.tools import ToolDefinition

app = new_app("Talk with a model in the terminal.")


@app.command(no_args_is_help=False)
def chat(
    model: ModelOption = None,
    *,
    goes_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the newest session of this directory.")
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", autocompletion=suggestions.sessions, help="Go on with this session."),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Let it read, write and run things in the current directory.")
    ] = True,
    tool: ToolOption = None,
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", envvar="BARTACK_INSTRUCTIONS", metavar="TEXT", help="What the model is to be."),
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--folded", envvar="BARTACK_THINKING", help="Show thinking unfolded or folded."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Talk with a model. It may use files and commands of the current directory; what changes anything asks you first.

    Ctrl-C stops an answer and keeps what was said of it, and again leaves. /help lists what else there is.
    """
    if session is not None and goes_on:
        raise typer.BadParameter("--session and --continue name two sessions; give one")
    with setting_up():
        _check_terminal()
        choice = chosen_model(model)
        made = connected(choice.name)
        wish = _Wish(
            choice=choice,
            model=made,
            tools=[tool_named(name) for name in tool or ()],
            files=tools,
            instructions=instructions,
            thinking=bool(first_said(thinking, "thinking")),
            place=store_place(store),
            session=session,
            goes_on=goes_on,
        )
    # rich takes every dumb terminal for 80 columns
    width = get_terminal_size().columns if is_dumb_terminal() else None
    console = Console(file=sys.stdout, highlight=False, width=width)  # also while tools print elsewhere
    _greet(console, choice)
    _fetch_weights(made)
    try:
        asyncio.run(_chat(wish, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(128 + signal.SIGINT) from None
    except BartackError as error:
        if error.code is ErrorCode.INVALID_CONFIG:  # there is no such store, or no session here
            with setting_up():
                raise
        raise


class _Wish(NamedTuple):
    """The words of the command line, made ready."""

    choice: DefaultModel
    model: Model
    tools: list[ToolDefinition]
    files: bool
    instructions: str | None
    thinking: bool
    place: str
    session: str | None
    goes_on: bool


def _check_terminal() -> None:
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    error = PartValidationError("bartack chat needs a terminal", code=ErrorCode.INVALID_CONFIG)
    error.add_note("bartack run is for scripts and pipes")
    raise error


def _greet(console: Console, choice: DefaultModel) -> None:
    who = "local model" if choice.name == "local" else safe_line(choice.name)
    because = f" ({choice.reason})" if choice.reason else ""
    pieces = (f"bartack {version('bartack')}", f"{who}{because}", "/help")
    console.print(" · ".join(pieces), style="dim", markup=False)


def _fetch_weights(model: Model) -> None:
    """The weights of a local model, fetched if they are not here and the human wants them."""
    known = model.weights.known if isinstance(model, LocalModel) else None
    if known is None or known.is_downloaded:
        return
    print(f"The local model is not on this machine yet. {described(known)}")
    if not typer.confirm("Fetch it now?", default=True):
        raise typer.Exit(1)
    fetch(known)


async def _chat(wish: _Wish, console: Console) -> None:
    try:
        store = await open_store(wish.place)
    except StoreError as error:
        error.add_note(store_hint(error.code, wish.place) or "bartack doctor checks the store")
        raise
    try:
        await _with_store(wish, console, store)
    finally:
        await store.close()


async def _with_store(wish: _Wish, console: Console, store: SessionStore) -> None:
    session = await newest_here(store) if wish.goes_on else wish.session
    talk: Talk
    keyboard = Keyboard(
        mark=marks_for(console).prompt,
        history=default_path().with_name("history"),
        status=lambda: _status(talk),
        commands={name: command.meaning for name, command in COMMANDS.items()},
        toggle_thinking=lambda: toggle_thinking(talk),
    )
    approvals = Approvals(console, keyboard, settings_file().settings.approval)
    agent = new_agent(
        wish.model,
        store=store,
        place=wish.place,
        instructions=wish.instructions,
        tools=wish.tools,
        files=wish.files,
        approver=LiveApprover(),
        approval=approvals.policy,
    )
    talk = Talk(
        agent,
        store,
        wish.choice.name,
        console=console,
        keyboard=keyboard,
        approvals=approvals,
        thinking=wish.thinking,
    )
    async with agent, aclosing(talk):
        with _interrupting(talk), quiet():
            if session is not None:
                talk.space()
                await talk.open(session)
            await _converse(talk, keyboard)
    if talk.session_id is not None:
        where = f"{store_words(wish.place)} --session {shlex.quote(talk.session_id)}"
        talk.note(f"The session is kept: bartack chat{where}")


@contextmanager
def _interrupting(talk: Talk) -> Iterator[None]:
    """Ctrl-C stops the answer while there is one; twice it ends the command. Prompts take it as a key. A polite kill,
    and a window that is closed, end the command too: what was said is kept, the terminal is as it was before, and the
    exit status names the signal."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    ending = signal.SIGTERM, signal.SIGHUP
    ended_by: list[int] = []

    def interrupt() -> None:
        if not talk.interrupt():
            task.cancel()

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    for number in ending:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    except (asyncio.CancelledError, OSError):  # a window that is closed cannot be written to
        if not ended_by:
            raise
        raise typer.Exit(128 + ended_by[0]) from None
    finally:
        for number in (signal.SIGINT, *ending):
            loop.remove_signal_handler(number)


async def _converse(talk: Talk, keyboard: Keyboard) -> None:
    """Prompt after prompt, until the human leaves."""
    begun = ""
    while not talk.is_leaving:
        talk.space()
        if talk.console.is_dumb_terminal:  # its prompt has no line below
            talk.note(f"[{_status(talk).strip()}]")
        try:
            line = (await keyboard.line(begun)).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if talk.was_interrupted:
                return
            talk.was_interrupted = True
            talk.note("Ctrl-C again leaves.")
            continue
        begun = await _heard(talk, line) if line else ""


async def _heard(talk: Talk, line: str) -> str:
    """Do or say it; gives what the next prompt begins with."""
    try:
        if is_command(line):
            talk.was_interrupted = False
            return await obey(talk, line) or ""
        return "" if await talk.say(line) else line
    except BartackError as error:  # a disk that is full must not end the talk
        talk.fault(error)
        return line


def _status(talk: Talk) -> str:
    info = talk.model.model_info()
    return status_line(
        f"{info.provider}:{info.model_id}",
        talk.usage,
        window=info.context_window,
        session=talk.session_id,
        width=talk.console.width,
    )
