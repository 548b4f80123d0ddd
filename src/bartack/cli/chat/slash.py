"""The commands of the chat: lines that start with a slash."""

import asyncio
import os
import re
import shlex
import subprocess
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple, cast, get_args

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

from bartack.app.agent_setup import connect_model
from bartack.app.checkpoints import checkpoints_in, restore, restored_text
from bartack.app.context_usage import context_rows
from bartack.app.errors import with_hint
from bartack.app.mentions import as_mention
from bartack.app.permissions import COMMAND_TOOL
from bartack.app.project import init_prompt
from bartack.app.safe_text import safe_line, visible_text
from bartack.app.sessions import (
    Turn,
    branch_to,
    directory_of,
    find_session,
    home_path,
    other_heads,
    short_ids,
    turns_of,
)
from bartack.app.transcript import markdown_transcript
from bartack.app.usage import format_context, format_cost, format_count, format_tokens
from bartack.cli.chat.clipboard import saved_image
from bartack.cli.chat.completion import Offers
from bartack.cli.chat.conversation import Conversation
from bartack.cli.chat.pager import recorded
from bartack.cli.chat.picker import Listed, Picker
from bartack.cli.mcp import tool_rows
from bartack.cli.options import complete_models
from bartack.cli.output import Row, columns, print_table
from bartack.cli.sessions import MODEL_SPEND, model_spend_rows, session_rows
from bartack.cli.terminal.messages import show_message
from bartack.cli.terminal.style import THEMES, is_plain
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_models
from bartack.nouns.entries import Entry, ToolStarted
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.store import SessionInfo
from bartack.store.address import default_path
from bartack.store.maintenance import purge
from bartack.store.requests import ThinkingLevel, override_system_prompt, set_thinking_level
from bartack.store.transfer import export_session
from bartack.tools.mcp import McpServer, ServerStatus
from bartack.tools.toolset import origin_of
from bartack.views import document

_SHOWN = 20  # sessions in a list
_LISTED = 200  # sessions to choose from
_PREVIEWED = 6  # messages
_NAMED = 2  # files that a turn changed
_BAR = 20  # columns of a bar
_FIRST_WORDS = 60  # characters of a message in a list
_KEYS = """\
@path: attach a file, @path:10-20 some lines · !command: run a command and add its output
Enter: send · Alt-Enter or \\ at the end of the line: new line · Up: earlier prompts
Ctrl-C: stop the answer, twice: exit · Ctrl-D: exit
Ctrl-T: show whole outputs · Ctrl-O: show or fold thinking
During an answer: type and press Enter to queue a message, Up to edit it again"""
_SESSIONS = columns("_# _ title~ updated tokens#? cost#?")


async def _no_arguments(chat: Conversation) -> Offers:
    return ()


class SlashCommand(NamedTuple):
    """Its line in /help, the function that runs it, which may give the text for the next prompt, and what Tab offers
    after it."""

    summary: str
    run: Callable[[Conversation, str], Awaitable[str | None]]
    arguments: Callable[[Conversation], Awaitable[Offers]] = _no_arguments


async def arguments_of(chat: Callable[[], Conversation], name: str) -> Offers:
    """The arguments that a command can have now."""
    try:
        return await COMMANDS[name].arguments(chat())
    except BartackError:  # no store, or no session any more
        return ()


def is_command(line: str) -> bool:
    """Whether a line is a command; a path that starts with a slash is not."""
    return line.startswith("/") and line.split(maxsplit=1)[0].count("/") == 1


async def run_command(chat: Conversation, line: str) -> str | None:
    """Run the command; gives the text to start the next prompt with, if any."""
    word, *rest = line.split(maxsplit=1)
    command = COMMANDS.get(word)
    if command is None:
        chat.note(f"Unknown command {safe_line(word)}. Type /help for a list.")
        return None
    try:
        return await command.run(chat, rest[0].strip() if rest else "")
    except BartackError as error:
        chat.show_error(error)
    except OSError as error:
        chat.error(f"{error.filename or word}: {error.strerror or error}")
    return None


async def _help(chat: Conversation, argument: str) -> None:
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(Styled(f"  {name}"), Styled(command.summary))
    chat.console.print(table)
    chat.note(_KEYS)


async def _quit(chat: Conversation, argument: str) -> None:
    chat.is_leaving = True


# -- models and tools


async def _model(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.line(f"Model: {safe_line(chat.model_name)}")
        here = [f"local:{name}" for name, model in known_models().items() if model.is_downloaded]
        downloaded = f" Downloaded: {', '.join(here)}." if here else ""
        chat.note(f"/model VENDOR:MODEL switches to another.{downloaded} Vendors: {', '.join(VENDORS)}.")
        return
    await chat.switch_model(connect_model(argument), argument)
    chat.note(f"Switched to {safe_line(argument)}.")


async def _model_names(chat: Conversation) -> Offers:
    totals = await chat.store.totals()
    used = [f"{each.model.provider}:{each.model.model}" for each in totals.models if each.model is not None]
    return [*((name, "used before") for name in used), *complete_models()]


async def _efforts(chat: Conversation) -> Offers:
    return [(level, "") for level in get_args(ThinkingLevel)]


async def _effort(chat: Conversation, argument: str) -> None:
    levels = ", ".join(get_args(ThinkingLevel))
    if argument not in get_args(ThinkingLevel):
        chat.note(f"/effort LEVEL sets how much the model thinks: {levels}.")
    elif await _set_in_session(chat, partial(set_thinking_level, level=cast(ThinkingLevel, argument))):
        chat.note(f"Thinking level: {argument}.")


async def _system(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.note("/system TEXT replaces the system prompt for this session; /system - restores it.")
    elif await _set_in_session(chat, partial(override_system_prompt, text=None if argument == "-" else argument)):
        chat.note("System prompt restored." if argument == "-" else "System prompt replaced.")


async def _set_in_session(chat: Conversation, store_setting: Callable[..., Awaitable[Entry]]) -> bool:
    """Store the setting where the next message will follow; False if there is no session yet."""
    if chat.session_id is None:
        chat.note("Send a message first: the setting is stored in the session.")
        return False
    await store_setting(chat.store, chat.session_id, head=chat.head)
    chat.head = None  # the entry is the session's last one now
    return True


async def _tools(chat: Conversation, argument: str) -> None:
    if not len(chat.agent.tools):
        chat.note("No tools.")
        return
    needs = {True: "asks first", False: "not needed"}
    rows = (
        (tool.name, needs[chat.approvals.is_required(tool)], safe_line("".join(tool.description.splitlines()[:1])))
        for tool in chat.agent.tools
    )
    print_table(columns("tool approval description"), rows)


async def _permissions(chat: Conversation, argument: str) -> None:
    approvals = chat.approvals
    kept = approvals.kept.rules()
    word, _, number = argument.partition(" ")
    if word == "edit":
        await _edit_file(chat, approvals.kept.path)
    elif word == "remove" and number.isdecimal() and 1 <= int(number) <= len(kept) + len(approvals.session_rules):
        index = int(number) - 1
        removed = kept[index] if index < len(kept) else approvals.session_rules.pop(index - len(kept))
        if index < len(kept):
            approvals.kept.remove(index)
        chat.note(f"Removed: {visible_text(removed.text)}")
    elif argument:
        chat.note(
            "/permissions lists the rules, /permissions remove NUMBER removes one, /permissions edit edits the file."
        )
    else:
        rules = [(rule, "always here") for rule in kept] + [(rule, "this chat") for rule in approvals.session_rules]
        rows = ((str(index), until, visible_text(rule.text)) for index, (rule, until) in enumerate(rules, 1))
        if rules:
            print_table(columns("_# until allowed"), rows)
        chat.note(
            f"File: {approvals.kept.path}"
            if rules
            else f"Nothing is allowed without asking. File: {approvals.kept.path}",
            soft_wrap=True,
        )


async def _permission_words(chat: Conversation) -> Offers:
    rules = [*chat.approvals.kept.rules(), *chat.approvals.session_rules]
    removals = [(f"remove {number}", visible_text(rule.text)) for number, rule in enumerate(rules, 1)]
    return [("edit", "open the file in your editor"), *removals]


async def _edit_file(chat: Conversation, path: Path) -> None:
    """Open the file in the user's editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        chat.note(f"Set EDITOR, or edit the file yourself: {path}", soft_wrap=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    await asyncio.to_thread(subprocess.run, [*shlex.split(editor), str(path)], check=False)


async def _mcp(chat: Conversation, argument: str) -> None:
    servers = {one.name: one for one in map(origin_of, chat.agent.tools.toolsets) if isinstance(one, McpServer)}
    if argument and argument not in servers:
        chat.note(f"No MCP server {safe_line(argument)}. Type /mcp for a list.")
    elif argument:
        print_table(columns("tool approval description"), tool_rows(servers[argument].status))
    elif servers:
        rows = ((safe_line(name), *_server_cells(one.status)) for name, one in servers.items())
        print_table(columns("server state tools# details"), rows)
        chat.note("/mcp NAME lists the tools of a server.")
    else:
        chat.note("No MCP servers. 'bartack mcp add' adds one, and --mcp FILE uses those of a file.")


async def _server_names(chat: Conversation) -> Offers:
    servers = map(origin_of, chat.agent.tools.toolsets)
    return [(one.name, one.status.state) for one in servers if isinstance(one, McpServer)]


def _server_cells(status: ServerStatus) -> tuple[str, str, str]:
    state = "not connected yet" if status.state == "closed" else status.state
    return state, str(len(status.tools)), visible_text(status.problem or status.title or status.address)


# -- sessions and branches


async def _sessions(chat: Conversation, argument: str) -> None:
    page = await chat.store.sessions(_SHOWN)
    if argument:
        numbered = dict(zip(map(str, count(1)), page.items, strict=False))
        await chat.open(numbered[argument].id if argument in numbered else argument)
    elif not page.items:
        chat.note("No sessions yet.")
    elif is_plain(chat.console):
        print_table(_SESSIONS, _session_rows(page.items, chat.session_id))
        chat.note("/sessions NUMBER continues one of them.")
    elif (chosen := await picked_session(chat)) is not None:
        await chat.open(chosen)


async def picked_session(chat: Conversation) -> str | None:
    """The session that the user chooses from a list."""
    page = await chat.store.sessions(_LISTED)
    shorts = short_ids([info.id for info in page.items])
    listed = [
        Listed(
            info.id,
            safe_line(short),
            safe_line(info.title or ""),
            safe_line(home_path(await directory_of(chat.store, info.id) or "")),
            info.updated,
        )
        for short, info in zip(shorts, page.items, strict=True)
    ]
    if not listed:
        chat.note("No sessions yet.")
        return None

    async def preview(session_id: str) -> list[str]:
        branch = await chat.store.load(session_id)
        messages = [entry.fact for entry in branch if isinstance(entry.fact, Message)][-_PREVIEWED:]

        def draw(console: Console) -> None:
            for each in messages:
                show_message(console, each)

        return recorded(chat.console, draw)

    async def search(words: str) -> set[str]:
        return {info.id for info in (await chat.store.sessions(_LISTED, query=words)).items}

    return await chat.keyboard.pick(Picker(listed, preview=preview, search=search))


async def _session_names(chat: Conversation) -> Offers:
    page = await chat.store.sessions(_SHOWN)
    shorts = short_ids([info.id for info in page.items])
    return [(short, safe_line(info.title or "")) for short, info in zip(shorts, page.items, strict=True)]


async def _delete(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.note("/delete SESSION permanently removes a session: its id, or the first characters of it.")
        return
    found = await find_session(chat.store, argument)
    if found == chat.session_id:
        chat.note("This is the current session. Type /new first.")
        return
    title = next((info.title for info in (await chat.store.sessions(_LISTED)).items if info.id == found), None)
    answer = await chat.keyboard.choice(f"Permanently remove {safe_line(title or found)}? [y/n]: ")
    if answer.lower() in {"y", "yes"}:
        await purge(chat.store, found, everything=True)
        chat.note("Removed.")
    else:
        chat.note("Nothing was removed.")


def _session_rows(infos: Sequence[SessionInfo], current: str | None) -> Iterator[Row]:
    for number, info, row in zip(count(1), infos, session_rows(infos), strict=False):
        _, title, _, *rest = row
        yield str(number), "*" if info.id == current else "", title, *rest


async def _new(chat: Conversation, argument: str) -> None:
    chat.new_session()
    chat.note("The next message starts a new session.")


async def _branch(chat: Conversation, argument: str) -> None:
    entries, branch, heads = await _tree(chat)
    turns = turns_of(branch)
    letters = dict(zip(ascii_lowercase, heads, strict=False))
    if argument in letters:
        await chat.move_to(letters[argument])
        chat.show(await chat.branch())
    elif argument.isdecimal() and 1 <= int(argument) <= len(turns):
        await chat.move_to(turns[int(argument) - 1].end)
        chat.note(f"Continuing after turn {argument}. Later turns stay in the session.")
    elif argument:
        chat.note(f"No turn or branch {safe_line(argument)}. Type /branch for a list.")
    else:
        _list_turns(chat, turns, {letter: branch_to(head, entries) for letter, head in letters.items()})


async def _tree(chat: Conversation) -> tuple[Sequence[Entry], list[Entry], list[str]]:
    """All entries, the current branch, and the heads of the others."""
    if chat.session_id is None:
        return (), [], []
    branch = await chat.branch()
    heads = await chat.store.heads(chat.session_id)
    # After going back, the rest of what was the current branch is another one.
    entries = [entry for head in heads for entry in await chat.store.load(chat.session_id, head=head)]
    return entries, branch, other_heads(heads, branch)


def _list_turns(chat: Conversation, turns: Sequence[Turn], others: Mapping[str, Sequence[Entry]]) -> None:
    for number, turn in enumerate(turns, 1):
        current = "  <- current" if number == len(turns) else ""
        chat.line(f"  {number}  {_first_words(turn)}{current}")
    for letter, branch in others.items():
        its_turns = turns_of(branch)
        words = _first_words(its_turns[-1]) if its_turns else "(empty)"
        chat.line(f"  {letter}  ... {words} ({len(its_turns)} turns)")
    chat.note("/branch NUMBER continues after that turn, /branch LETTER on that branch." if turns else "No turns yet.")


async def _recap(chat: Conversation, argument: str) -> None:
    _, _, heads = await _tree(chat)
    abandoned = dict(zip(ascii_lowercase, heads, strict=False)).get(argument)
    session_id, head = chat.session_id, chat.head
    if session_id is None or abandoned is None:
        chat.note("/recap LETTER tells the model what another branch came to. Type /branch for a list.")
    elif await chat.show_run(
        lambda: chat.agent.summarise_branch_stream(session_id, abandoned, model=chat.model, head=head)
    ):
        chat.head = None


def _first_words(turn: Turn) -> str:
    return safe_line(turn.message.text)[:_FIRST_WORDS]


async def _undo(chat: Conversation, argument: str) -> str | None:
    branch = await chat.branch()
    turns = turns_of(branch)
    if not turns:
        chat.note("Nothing to undo.")
        return None
    turn = turns[-1]
    restored = await _restore_files(chat, _entries_of(branch, turn.before))
    await chat.move_to(turn.before)
    chat.note(f"Last turn undone. Edit and resend; /branch brings it back. {restored}".strip())
    return next((part.text for part in turn.message.parts if isinstance(part, Text)), "")


def _entries_of(branch: Sequence[Entry], before: str) -> list[Entry]:
    """The entries after this one."""
    start = next(index for index, entry in enumerate(branch) if entry.id == before)
    return list(branch[start + 1 :])


async def _restore_files(chat: Conversation, entries: Sequence[Entry]) -> str:
    """Give the files that these entries changed their content from before, and say what was done."""
    points = checkpoints_in(entries)
    text = ""
    if points:
        await chat.runtime.connect()
        text = restored_text(await asyncio.to_thread(restore, chat.runtime.directory, chat.kept, points))
    has_commands = any(
        isinstance(entry.fact, ToolStarted) and entry.fact.tool_name == COMMAND_TOOL for entry in entries
    )
    return f"{text} What commands changed is not restored.".strip() if has_commands else text


async def _restore(chat: Conversation, argument: str) -> None:
    branch = await chat.branch()
    turns = turns_of(branch)
    if argument.isdecimal() and 1 <= int(argument) <= len(turns):
        done = await _restore_files(chat, _entries_of(branch, turns[int(argument) - 1].before))
        chat.note(done or "No file has changed since.")
        return
    rows = [(str(number), paths, _first_words(turn)) for number, paths, turn in _changing_turns(branch, turns)]
    if rows:
        print_table(columns("_# files turn~"), rows)
    chat.note(
        "/restore NUMBER gives files the content that they had before that turn. The conversation stays."
        if rows
        else "No turn has changed a file with write_file or edit_file."
    )


def _changing_turns(branch: Sequence[Entry], turns: Sequence[Turn]) -> Iterator[tuple[int, str, Turn]]:
    for number, turn in enumerate(turns, 1):
        entries = _entries_of(branch, turn.before)
        end = next((index for index, entry in enumerate(entries) if entry.id == turn.end), len(entries))
        paths = dict.fromkeys(safe_line(point.path) for point in checkpoints_in(entries[: end + 1]))
        if paths:
            shown = list(paths)[:_NAMED]
            more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
            yield number, ", ".join(shown) + more, turn


async def _turn_numbers(chat: Conversation) -> Offers:
    _, branch, heads = await _tree(chat)
    numbers = [(str(number), _first_words(turn)) for number, turn in enumerate(turns_of(branch), 1)]
    return [*numbers, *((letter, "another branch") for letter, _ in zip(ascii_lowercase, heads, strict=False))]


async def _branch_letters(chat: Conversation) -> Offers:
    _, _, heads = await _tree(chat)
    return [(letter, "another branch") for letter, _ in zip(ascii_lowercase, heads, strict=False)]


async def _compact(chat: Conversation, argument: str) -> None:
    session_id, head = chat.session_id, chat.head
    if session_id is None:
        chat.note("Nothing to compact.")
    elif await chat.show_run(lambda: chat.agent.compact_stream(session_id, model=chat.model, head=head)):
        chat.head = None


# -- output


async def _cost(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Nothing used yet.")
        return
    totals = await chat.store.totals(chat.session_id)
    print_table(MODEL_SPEND, model_spend_rows(totals.models))
    chat.note(f"Total: {format_tokens(totals.spend)}, {format_cost(totals.spend) or '$0'}")


async def _context(chat: Conversation, argument: str) -> None:
    branch, info = await chat.branch(), chat.model.model_info()
    sent = await chat.agent.request_after(chat.session_id or "", branch) if branch else None
    if sent is None:
        chat.note("Nothing is in the context yet.")
        return
    rows = context_rows(sent.request, chat.usage.context_tokens)
    total = sum(row.tokens for row in rows)
    window = info.context_window
    print_table(
        columns("part tokens# share# _"),
        (
            (
                row.name,
                format_count(row.tokens),
                f"{row.tokens * 100 // max(total, 1)} %",
                _bar(row.tokens, total, chat),
            )
            for row in rows
        ),
    )
    chat.note(f"{format_context(total, window)}. /compact makes room.")


def _bar(tokens: int, total: int, chat: Conversation) -> str:
    sign = "#" if chat.console.is_dumb_terminal else "█"
    return sign * (tokens * _BAR // max(total, 1))


async def _inspect(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Send a message first: there is no session yet.")
        return
    url = await chat.page.url(chat.session_id, chat.model_name)
    chat.note(f"Open {url}", soft_wrap=True)
    if not is_plain(chat.console):
        await asyncio.to_thread(webbrowser.open, url)


async def _init(chat: Conversation, argument: str) -> str | None:
    text = init_prompt(Path.cwd())
    return None if await chat.send(text) else text


async def _paste(chat: Conversation, argument: str) -> str | None:
    path = await asyncio.to_thread(saved_image, default_path().with_name("clipboard"))
    if path is None:
        chat.note("No image in the clipboard, or no program to read it (wl-paste, xclip or pngpaste).")
        return None
    return f"{as_mention(str(path))} "


async def _theme(chat: Conversation, argument: str) -> None:
    if argument in THEMES:
        chat.console.use(argument)
        chat.note(f'Theme: {argument}. Put theme = "{argument}" into the configuration file to keep it.')
    else:
        chat.note(f"/theme NAME changes the colors: {', '.join(THEMES)}. Current: {chat.console.theme_name}.")


async def _theme_names(chat: Conversation) -> Offers:
    return [(name, "") for name in THEMES]


async def _thinking(chat: Conversation, argument: str) -> None:
    chat.toggle_thinking()


async def _transcript(chat: Conversation, argument: str) -> None:
    await chat.show_transcript()


async def _export(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Nothing to export.")
        return
    path = Path(argument or _file_name(chat.session_id))
    match path.suffix:
        case ".md":
            data = markdown_transcript(await chat.branch()).encode()
        case ".json":
            data = msgspec.json.format(msgspec.json.encode(document.dump(await chat.branch())), indent=2)
        case ".jsonl":
            data = b"".join([line async for line in export_session(chat.store, chat.session_id)])
        case _:
            raise BartackError(
                f"Unsupported file type {path.name!r}. Use .md, .json or .jsonl.", code=ErrorCode.INVALID_CONFIG
            )
    await asyncio.to_thread(_write_new, path, data)
    chat.note(f"Saved to {path}", soft_wrap=True)


def _file_name(session_id: str) -> str:
    """A file name in this directory, whatever the session is called."""
    name = re.sub(r"[^\w.-]+", "-", session_id).strip(".-")
    return f"{name or 'session'}.md"


def _write_new(path: Path, data: bytes) -> None:
    try:
        with path.expanduser().open("xb") as file:  # never overwrite
            file.write(data)
    except FileExistsError as error:
        exists = BartackError(f"{path} already exists.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(exists, "Choose another name, or delete the file first.") from error


COMMANDS: Mapping[str, SlashCommand] = {
    "/help": SlashCommand("Show this list.", _help),
    "/init": SlashCommand("Let the model write AGENTS.md, the instructions for this project.", _init),
    "/model": SlashCommand("Show or switch the model: /model anthropic:claude-sonnet-4-6", _model, _model_names),
    "/effort": SlashCommand("Set how much the model thinks: /effort high (or default)", _effort, _efforts),
    "/system": SlashCommand("Replace the system prompt of this session: /system Answer in French.", _system),
    "/tools": SlashCommand("List the tools, and which need approval.", _tools),
    "/permissions": SlashCommand(
        "List what runs without asking; /permissions remove 2, or edit", _permissions, _permission_words
    ),
    "/mcp": SlashCommand("List the MCP servers, or the tools of one: /mcp files", _mcp, _server_names),
    "/sessions": SlashCommand("Choose a session from a list, or continue one: /sessions 2", _sessions, _session_names),
    "/delete": SlashCommand("Permanently remove a session: /delete 01a1e5df", _delete, _session_names),
    "/new": SlashCommand("Start a new session.", _new),
    "/branch": SlashCommand("List turns and branches, or continue from one: /branch 3", _branch, _turn_numbers),
    "/recap": SlashCommand("Tell the model what another branch came to: /recap a", _recap, _branch_letters),
    "/undo": SlashCommand("Undo the last turn and its changes to files, to edit and resend it.", _undo),
    "/restore": SlashCommand("Restore files as they were before a turn: /restore 3", _restore, _turn_numbers),
    "/compact": SlashCommand("Replace older turns with a summary for the model.", _compact),
    "/context": SlashCommand("Show what fills the context window.", _context),
    "/cost": SlashCommand("Show the tokens and cost of this session.", _cost),
    "/export": SlashCommand("Save the session: /export notes.md (or .json, .jsonl)", _export),
    "/transcript": SlashCommand("Show the whole session with every output in full (also Ctrl-T).", _transcript),
    "/inspect": SlashCommand("Open this session in the browser.", _inspect),
    "/paste": SlashCommand("Attach the image in the clipboard (also Ctrl-V).", _paste),
    "/theme": SlashCommand("Change the colors: /theme light", _theme, _theme_names),
    "/thinking": SlashCommand("Show thinking in full, or fold it.", _thinking),
    "/quit": SlashCommand("Exit. 'bartack chat -c' continues this session.", _quit),
}
