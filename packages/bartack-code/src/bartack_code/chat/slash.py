"""The commands of the chat: lines that start with a slash."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from rich.table import Table
from rich.text import Text as Styled

from bartack.app.safe_text import safe_line
from bartack.nouns.errors import BartackError
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.keyboard import Offers
from bartack_code.chat.slash_branches import (
    branch_command,
    branch_letters,
    compact_command,
    recap_command,
    restore_command,
    turn_numbers,
    undo_command,
)
from bartack_code.chat.slash_output import (
    context_command,
    cost_command,
    export_command,
    init_command,
    inspect_command,
    paste_command,
    transcript_command,
)
from bartack_code.chat.slash_sessions import (
    delete_command,
    new_command,
    rename_command,
    session_names,
    sessions_command,
)
from bartack_code.chat.slash_settings import (
    effort_command,
    efforts,
    job_words,
    jobs_command,
    mcp_command,
    mode_command,
    mode_names,
    model_command,
    model_names,
    permission_words,
    permissions_command,
    server_names,
    system_command,
    theme_command,
    theme_names,
    thinking_command,
    tools_command,
)
from bartack_code.workspace.extensions import expanded

_KEYS = """\
@path: attach a file, @path:10-20 some lines · !command: run a command and add its output
Enter: send · Alt-Enter or \\ at the end of the line: new line · Up: earlier prompts
Ctrl-C: stop the answer, twice: exit · Ctrl-D: exit
Shift-Tab: change the permission mode
Ctrl-T: show whole outputs · Ctrl-O: show or fold thinking, or unfold a paste
During an answer: Enter sends a message at the next step, Alt-Enter after the answer; Up edits it again"""


async def no_arguments(chat: Conversation | None = None) -> Offers:
    """Tab offers nothing after this command."""
    return ()


class SlashCommand(NamedTuple):
    """Its line in /help, the function that runs it, which may return text for the next prompt, and what Tab offers
    after it."""

    summary: str
    run: Callable[[Conversation, str], Awaitable[str | None]]
    arguments: Callable[[Conversation], Awaitable[Offers]] = no_arguments


async def arguments_of(chat: Conversation, name: str) -> Offers:
    """The arguments that a command can have now."""
    try:
        return await COMMANDS[name].arguments(chat)
    except BartackError:  # the store or the session is gone
        return ()


def is_command(line: str) -> bool:
    """Whether a line is a command; a path that starts with a slash is not."""
    return line.startswith("/") and line.split(maxsplit=1)[0].count("/") == 1


async def run_command(chat: Conversation, line: str) -> str | None:
    """Run the command; returns the text to start the next prompt with, if any."""
    word, *arguments = line.split(maxsplit=1)
    command = COMMANDS.get(word) or _custom_command(chat, word)
    if command is None:
        chat.note(f"Unknown command {safe_line(word)}. Type /help for a list.")
        return None
    try:
        return await command.run(chat, arguments[0].strip() if arguments else "")
    except BartackError as error:
        chat.show_error(error)
    except OSError as error:
        chat.error(f"{error.filename or word}: {error.strerror or error}")
    return None


def _custom_command(chat: Conversation, word: str) -> SlashCommand | None:
    """The command or skill of this name in a Markdown file, whose text is sent as a message."""
    name = word.removeprefix("/")
    extension = chat.extensions.commands.get(name) or chat.extensions.skills.get(name)
    if extension is None:
        return None

    async def send(chat: Conversation, argument: str) -> str | None:
        return None if await chat.send(expanded(extension, argument)) else f"{word} {argument}"

    return SlashCommand(extension.description, send)


async def help_command(chat: Conversation, argument: str) -> None:
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(Styled(f"  {name}"), Styled(command.summary))
    for extension in (*chat.extensions.commands.values(), *chat.extensions.skills.values()):
        table.add_row(Styled(f"  /{safe_line(extension.name)}"), Styled(safe_line(extension.description)[:100]))
    chat.console.print(table)
    chat.note(_KEYS)


async def quit_command(chat: Conversation, argument: str) -> None:
    chat.is_leaving = True


_REVIEW = """\
Review {what}. Look at the diff first, then read as much of the code around it as you need. Report bugs, missing \
cases, missing tests and anything that contradicts the conventions of this project, the most important first, each \
with path:line, why it is wrong and what would be right. Leave out matters of taste. If nothing is wrong, say so. \
Change nothing."""
_COMMIT = """\
Commit {what}. Look at the status, the diff and the last few commit messages. Group unrelated changes into separate \
commits, leave out files that do not belong to them, such as secrets and build results, and write messages in the \
style of this repository that say why. Do not push."""


async def review_command(chat: Conversation, argument: str) -> str | None:
    text = _REVIEW.format(what=argument or "the changes of this work tree that are not committed")
    return None if await chat.send(text) else f"/review {argument}"


async def commit_command(chat: Conversation, argument: str) -> str | None:
    text = _COMMIT.format(what=argument or "the changes of this work tree")
    return None if await chat.send(text) else f"/commit {argument}"


COMMANDS: Mapping[str, SlashCommand] = {
    "/help": SlashCommand("Show this list.", help_command),
    "/init": SlashCommand("Have the model write AGENTS.md, the instructions for this project.", init_command),
    "/review": SlashCommand("Have the model review the changes: /review the last commit", review_command),
    "/commit": SlashCommand("Have the model commit the changes: /commit only the tests", commit_command),
    "/model": SlashCommand("Show or switch the model: /model anthropic:claude-sonnet-4-6", model_command, model_names),
    "/effort": SlashCommand("Set how much the model thinks: /effort high (or default)", effort_command, efforts),
    "/system": SlashCommand("Replace the system prompt of this session: /system Answer in French.", system_command),
    "/tools": SlashCommand("List the tools, and which need approval.", tools_command),
    "/jobs": SlashCommand("List the commands in the background; /jobs job-1, or kill job-1", jobs_command, job_words),
    "/permissions": SlashCommand(
        "List what runs without asking; /permissions remove 2, or edit", permissions_command, permission_words
    ),
    "/mode": SlashCommand(
        "Show or change what runs without asking: /mode edit (also Shift-Tab)", mode_command, mode_names
    ),
    "/mcp": SlashCommand("List the MCP servers, or the tools of one: /mcp files", mcp_command, server_names),
    "/sessions": SlashCommand(
        "Choose a session from a list, or continue one: /sessions 2", sessions_command, session_names
    ),
    "/rename": SlashCommand("Change the title of this session: /rename Retries of uploads", rename_command),
    "/delete": SlashCommand("Permanently remove a session: /delete 01a1e5df", delete_command, session_names),
    "/new": SlashCommand("Start a new session.", new_command),
    "/branch": SlashCommand("List turns and branches, or continue from one: /branch 3", branch_command, turn_numbers),
    "/recap": SlashCommand("Give the model a summary of another branch: /recap a", recap_command, branch_letters),
    "/undo": SlashCommand("Undo the last turn and its changes to files, to edit and resend it.", undo_command),
    "/restore": SlashCommand("Restore files as they were before a turn: /restore 3", restore_command, turn_numbers),
    "/compact": SlashCommand("Replace older turns with a summary for the model.", compact_command),
    "/context": SlashCommand("Show what fills the context window; /context prompt: the instructions.", context_command),
    "/cost": SlashCommand("Show the tokens and cost of this session.", cost_command),
    "/export": SlashCommand("Save the session: /export notes.md (or .json, .jsonl)", export_command),
    "/transcript": SlashCommand("Show the whole session with every output in full (also Ctrl-T).", transcript_command),
    "/inspect": SlashCommand("Open this session in the browser.", inspect_command),
    "/paste": SlashCommand("Attach the image in the clipboard (also Ctrl-V).", paste_command),
    "/theme": SlashCommand("Change the colors: /theme light", theme_command, theme_names),
    "/thinking": SlashCommand("Show thinking in full, or fold it.", thinking_command),
    "/quit": SlashCommand("Exit. 'bartack chat -c' continues this session.", quit_command),
}
