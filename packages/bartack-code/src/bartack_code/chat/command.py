"""`bartack chat`: the command line, the set-up and the prompt loop of the terminal chat."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, NamedTuple

import typer
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from bartack.agent import LiveApprover
from bartack.agent.settings import PromptContext
from bartack.agent.tracing import TelemetrySink
from bartack.app.agent_setup import AgentSetup, command_options, demo_notice, new_agent, private_files, resolve_setup
from bartack.app.coding_prompt import coding_prompt
from bartack.app.errors import with_hint
from bartack.app.mcp_servers import chosen_servers, user_servers
from bartack.app.modes import Mode
from bartack.app.permissions import PermissionFile
from bartack.app.platform import current_directory, require_posix, run_async
from bartack.app.safe_text import safe_line
from bartack.app.sessions import latest_session_here, opened_store
from bartack.app.settings import HookSettings, setting, settings_file
from bartack.cli import options
from bartack.cli.models import description, download
from bartack.cli.options import export_for, exporting
from bartack.cli.output import show_by_windows
from bartack.cli.store_access import store_flag
from bartack.display.visible_text import visible_text
from bartack.models.by_name import DefaultModel
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.store import SessionStore
from bartack.store.address import default_path
from bartack.tools import ToolDefinition
from bartack_code.chat.approvals import Approvals
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.keyboard import ChatCompleter, CommandCompletion, Keyboard, prompt_keys, quiet
from bartack_code.chat.page import PageServer
from bartack_code.chat.pastes import Pastes, saved_image
from bartack_code.chat.slash import COMMANDS, arguments_of, is_command, no_arguments, run_command
from bartack_code.chat.slash_sessions import pick_session
from bartack_code.chat.slash_settings import next_mode, report_walls
from bartack_code.terminal.style import ChatConsole, Display, is_plain, symbols_for
from bartack_code.workspace.attachments import as_mention
from bartack_code.workspace.checkpoints import CheckpointFolder, CheckpointRuntime
from bartack_code.workspace.extensions import Extensions, load_extensions, skill_text
from bartack_code.workspace.hooks import HookFile, HookRunner, find_hook_file
from bartack_code.workspace.memory import edit_memory, user_memory
from bartack_code.workspace.plan import update_plan
from bartack_code.workspace.project import ProjectFile, project_files, project_instructions
from bartack_code.workspace.subagents import extension_tools
from bartack_code.workspace.trust import trust, untrusted
from bartack_code.workspace.worktree import Worktree, new_worktree

app = options.new_app("Chat with a model in the terminal.")

_MOST_NAMES = 10  # A longer list of what a folder brings along is cut.


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
    head: Annotated[
        str | None,
        typer.Option(metavar="ENTRY", help="Continue the branch of --session with this entry: its id or seq."),
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
    mode: options.ModeOption = None,
    worktree: Annotated[
        bool, typer.Option("--worktree", help="Work in a new git worktree of this project, on a branch of its own.")
    ] = False,
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
) -> None:
    """Chat with a model. It can use files and commands in the current directory and the servers added with 'bartack mcp
    add', and asks before changing anything.

    A continued session keeps its model unless you pass --model. Instructions are read from AGENTS.md or CLAUDE.md in
    this directory and those above it, once you trust the folder. Ctrl-C stops the answer and keeps the text so far; a
    second Ctrl-C exits. Type /help for a list of commands.
    """
    if (session is not None) + continue_latest + pick > 1:
        raise typer.BadParameter("--session, --continue and --pick exclude each other")
    if head is not None and session is None:
        raise typer.BadParameter("--head needs --session")
    with options.usage_errors():
        _check_terminal()
        shown_as: Display = setting("display", display) or "full"
        console = _console(shown_as)
        if worktree:
            context.call_on_close(partial(_leave, _own_worktree(current_directory(), console), console))
        directory = current_directory()
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
    uses_project = bool(setup.files or setup.instructions) and _is_trusted(directory, console)
    setup = setup._replace(is_read_only=setup.files and not uses_project)
    files = [*user_memory(), *(project_files(directory) if uses_project else ())] if setup.instructions else []
    extensions = load_extensions(directory, Path.home(), project=uses_project)
    with options.usage_errors():
        hooks = (*settings_file().settings.hooks, *(_project_hooks(directory, console) if uses_project else ()))
    _greet(console, setup.choice, files)
    demo = demo_notice(setup.model)
    if demo is not None:
        console.print(demo, markup=False)
    _offer_download(setup.model, console)
    flags = _ChatOptions(
        session=session,
        head=head,
        continue_latest=continue_latest,
        pick=pick,
        uses_own_models=getattr(context.get_parameter_source("model"), "name", "") != "COMMANDLINE",
        thinking=is_expanded,
        mode=mode,
        telemetry=None if export is None else export.telemetry,
    )
    try:
        with exporting(export):
            run_async(_chat(setup, console, directory, flags, project=_Project(files, extensions, hooks)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(128 + signal.SIGINT) from None
    except BartackError as error:
        if error.code is ErrorCode.INVALID_CONFIG:  # no such store, or no session in this directory
            raise options.UsageError.of(error) from error
        raise


def _console(display: Display) -> ChatConsole:
    # rich assumes 80 columns for every dumb terminal
    width = get_terminal_size().columns if is_dumb_terminal() else None
    return ChatConsole(
        display=display,
        theme_name=settings_file().settings.theme,
        file=sys.stdout,  # kept while that is redirected for tools
        highlight=False,
        width=width,
    )


def _own_worktree(directory: Path, console: Console) -> Worktree:
    """A new worktree, as the current directory. Git may run programs of the repository when it creates one."""
    if not _is_trusted(directory, console):
        raise typer.Exit(1)
    worktree = new_worktree(directory, datetime.now().astimezone())
    os.chdir(worktree.directory)
    text = f"Working in {worktree.path}, on branch {worktree.branch}."
    console.print(safe_line(text), style="dim", markup=False, soft_wrap=True)
    return worktree


def _leave(worktree: Worktree, console: Console) -> None:
    """Name what the chat has left, if anything. A closed window shows nothing."""
    os.chdir(worktree.path.parent)
    if worktree.remove_if_unused():
        text = "Nothing was changed in the worktree, which is removed."
    else:
        text = f"The work is in {worktree.path}, on branch {worktree.branch}."
    with suppress(OSError):
        console.print(safe_line(text), style="dim", markup=False, soft_wrap=True)


def _check_terminal() -> None:
    require_posix("Chats in a terminal")
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    error = PartValidationError("This command needs a terminal.", code=ErrorCode.INVALID_CONFIG)
    raise with_hint(error, "Use 'bartack run' in scripts and pipes.")


def _is_trusted(directory: Path, console: Console) -> bool:
    """Whether what the directory brings along may be used; asks once for each folder."""
    brought = untrusted(directory)
    if brought is None:
        return True
    if brought.instructions:
        names = _shown_list(map(str, brought.instructions))
        console.print(f"This folder has instructions for the model: {names}", markup=False, highlight=False)
    if brought.programs:
        names = _shown_list(brought.programs)
        console.print(f"Its repository can have git run programs: {names}", markup=False, highlight=False)
    console.print("Use them only if you trust who wrote them. Tools ask before they change anything.", markup=False)
    if not typer.confirm(f"Trust {_shown_list(map(str, brought.folders))} from now on?", default=False):
        console.print("Continuing without its instructions. Tools only read files.", markup=False)
        return False
    for folder in brought.folders:
        trust(folder)
    return True


def _shown_list(texts: Iterable[str]) -> str:
    names = [safe_line(text) for text in texts]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _project_hooks(directory: Path, console: Console) -> Sequence[HookSettings]:
    """The hooks of the project, if the user agrees to them; asks once for each version of their file."""
    file = find_hook_file(directory, Path.home())
    if file is None or not file.hooks:
        return ()
    if not file.is_trusted:
        show_by_windows(
            "\n".join([f"{safe_line(str(file.path))} runs these programs outside the sandbox:", *_shown(file)])
        )
        if not typer.confirm("Allow them, as long as the file does not change?", default=False):
            console.print("Continuing without them.", markup=False)
            return ()
        file.trust()
    return file.hooks


def _shown(file: HookFile) -> Iterator[str]:
    """Each hook, with everything in its command visible; no line begins with what the file says."""
    for hook in file.hooks:
        yield f"  {hook.event} {visible_text(', '.join(hook.tools)).replace(chr(10), ' ')}".rstrip() + ":"
        yield from (f"    | {line}" for line in visible_text(hook.command).split("\n"))


def _greet(console: Console, choice: DefaultModel, files: Sequence[ProjectFile]) -> None:
    name = "local model" if choice.name == "local" else safe_line(choice.name)
    reason = f" ({choice.reason})" if choice.reason else ""
    read = "".join(f" · {name}" for name in dict.fromkeys(file.path.name for file in files))
    console.print(f"bartack {version('bartack')} · {name}{reason}{read} · /help", style="dim", markup=False)


def _offer_download(model: Model, console: Console) -> None:
    """Download the weights of a local model if they are missing and the user agrees."""
    downloadable = model.weights.known if isinstance(model, LocalModel) else None
    if downloadable is None or downloadable.is_downloaded:
        return
    console.print(f"The local model is not downloaded yet. {description(downloadable)}", markup=False)
    if not typer.confirm("Download it now?", default=True):
        console.print(f"Not downloaded. 'bartack models pull {downloadable.name}' does it later.", markup=False)
        raise typer.Exit(1)
    download(downloadable)


class _Project(NamedTuple):
    """What the project and the user give to the model, as far as it is trusted."""

    files: Sequence[ProjectFile]
    extensions: Extensions
    hooks: Sequence[HookSettings]


class _ChatOptions(NamedTuple):
    """What a chat starts with, besides its model, tools and store."""

    session: str | None
    head: str | None
    continue_latest: bool
    pick: bool
    uses_own_models: bool
    thinking: bool
    mode: Mode | None
    telemetry: TelemetrySink | None


async def _chat(
    setup: AgentSetup, console: ChatConsole, directory: Path, flags: _ChatOptions, *, project: _Project
) -> None:
    files, extensions, hooks = project
    today = datetime.now().astimezone().date()
    project_text = await asyncio.to_thread(project_instructions, "", directory, files, today)
    pastes = Pastes(directory)
    async with opened_store(setup.address) as store:
        session = await latest_session_here(store) if flags.continue_latest else flags.session
        conversation = await _new_conversation(
            setup,
            console,
            store,
            flags,
            directory=directory,
            pastes=pastes,
            project=project_text,
            extensions=extensions,
            hooks=hooks,
        )
        keyboard = conversation.keyboard
        async with conversation.agent, aclosing(conversation):
            with _signals(conversation), quiet(keyboard.type):
                if flags.pick:
                    session = await pick_session(conversation)
                if session is not None:
                    conversation.space()
                    await conversation.open(session, flags.head)
                await _prompt_loop(conversation, keyboard, pastes)
    if conversation.session_id is not None:
        arguments = f"{store_flag(setup.address)} --session {shlex.quote(conversation.session_id)}"
        conversation.note(f"Continue with: bartack chat{arguments}", soft_wrap=True)


async def _new_conversation(
    setup: AgentSetup,
    console: ChatConsole,
    store: SessionStore,
    flags: _ChatOptions,
    *,
    directory: Path,
    pastes: Pastes,
    project: str,
    extensions: Extensions,
    hooks: Sequence[HookSettings],
) -> Conversation:
    """The conversation with its agent and keyboard, ready for the first prompt."""

    def instructions(prompt: PromptContext[None]) -> str:
        """A small model on this machine has no use for a long prompt, and little room."""
        info = conversation.model.model_info()
        own = coding_prompt(info.provider, info.context_window) if setup.has_coding_prompt else setup.instructions
        is_short = prompt.model.provider == "local" or not setup.instructions
        return own if is_short else "\n\n".join(filter(None, (own, skills, project)))

    def report(text: str) -> None:
        conversation.note(text)

    hook_runner = HookRunner(hooks, directory, report)

    def own_tools() -> list[ToolDefinition]:
        """Skills and sub-agents. A small demo model cannot handle them; a folder that is not trusted has none."""
        if not setup.files or setup.is_read_only or demo_notice(setup.model) is not None:
            return []
        return extension_tools(
            extensions,
            model=setup.model,
            runtime=runtime,
            approval=approvals.policy,
            tools=[*setup.tools_for_files(), *(tool for tool in setup.tools if isinstance(tool, ToolDefinition))],
            project=project,
            hooks=hook_runner.for_agent(),
        )

    keyboard = Keyboard(
        symbol=symbols_for(console).prompt,
        history=default_path().with_name("history"),
        pastes=pastes,
        theme=lambda: console.theme_name,
        vi=settings_file().settings.keys == "vi",
    )
    checkpoints = CheckpointFolder(default_path().with_name("checkpoints"))
    await asyncio.to_thread(checkpoints.prune)
    runtime = CheckpointRuntime(
        directory,
        contents=checkpoints,
        forbidden=private_files(store),
        commands=not setup.is_read_only,
        **command_options(),
    )
    permission_file = PermissionFile(directory)
    with options.usage_errors():
        kept_mode = permission_file.mode()
    settings = settings_file().settings
    mode: Mode = flags.mode or kept_mode or settings.mode
    approvals = Approvals(
        console, keyboard, permission_file=permission_file, runtime=runtime, configured=settings.approval, mode=mode
    )
    skills = skill_text(extensions.skills) if setup.files else ""
    plan = (update_plan,) if setup.files else ()
    memory = (edit_memory,) if setup.files and not setup.is_read_only else ()
    agent = new_agent(
        setup._replace(tools=(*setup.tools, *plan, *memory, *own_tools())),
        store,
        approver=LiveApprover(),
        approval=approvals.policy,
        telemetry=flags.telemetry,
        runtime=runtime if setup.files else None,
        instructions=instructions,
        hooks=hook_runner.for_agent(),
    )
    conversation = Conversation(
        agent,
        store,
        setup.choice.name,
        console=console,
        keyboard=keyboard,
        approvals=approvals,
        runtime=runtime,
        checkpoints=checkpoints,
        extensions=extensions,
        hooks=hook_runner,
        page=PageServer(setup.address),
        directory=directory,
        thinking=flags.thinking,
        uses_own_models=flags.uses_own_models,
        notify=settings.notify,
        status_line="" if is_plain(console) else settings.status_line,
    )
    _bind_prompt(keyboard, conversation, pastes)
    conversation.refresh_status()
    if setup.files:
        await runtime.connect()
        report_walls(conversation)
    return conversation


def _bind_prompt(keyboard: Keyboard, conversation: Conversation, pastes: Pastes) -> None:
    """Give the prompt the status line, the completions and the keys of the conversation."""
    keyboard.bind(
        status=None if is_plain(conversation.console) else lambda: conversation.status,
        completer=ChatCompleter(
            {
                name: CommandCompletion(command.summary, partial(arguments_of, conversation, name))
                for name, command in COMMANDS.items()
            }
            | {
                f"/{extension.name}": CommandCompletion(extension.description, no_arguments)
                for extension in (*conversation.extensions.skills.values(), *conversation.extensions.commands.values())
            },
            conversation.directory,
        ),
        keys=prompt_keys(
            toggle_thinking=conversation.toggle_thinking,
            show_transcript=conversation.show_transcript,
            paste_image=_pasted_image,
            next_mode=lambda: next_mode(conversation),
            pastes=pastes,
        ),
    )


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
    if before is not signal.SIG_IGN:  # ignored if no shell could continue this process
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
    while not conversation.is_leaving:  # /quit and a second Ctrl-C leave
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
    message = pastes.unfold(line)
    try:
        if is_command(line):
            conversation.was_interrupted = False
            return await run_command(conversation, message) or ""
        if line.startswith("!") and line[1:].strip():
            conversation.was_interrupted = False
            await conversation.run_command(message[1:].strip())
            return ""
        return "" if await conversation.send(message) else line
    except BartackError as error:  # a full disk, for example, must not end the chat
        conversation.show_error(error)
        return line
