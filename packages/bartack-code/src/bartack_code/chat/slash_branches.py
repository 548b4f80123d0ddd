"""Commands of the chat about the turns of its session: branches, undo, restoring files, compaction."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_lowercase

from bartack.app.permissions import COMMAND_TOOL
from bartack.app.safe_text import safe_line
from bartack.app.sessions import (
    Turn,
    branch_to,
    other_heads,
    turns_of,
)
from bartack.cli.output import columns, print_table
from bartack.nouns.entries import Entry, ToolStarted
from bartack.nouns.parts import Text
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.keyboard import Offers
from bartack_code.workspace.checkpoints import checkpoints_in, restore, restored_text

_NAMED = 2  # files that a turn changed
_FIRST_WORDS = 60  # characters of a message in a list


async def branch_command(chat: Conversation, argument: str) -> None:
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


def _list_turns(chat: Conversation, turns: Sequence[Turn], other_branches: Mapping[str, Sequence[Entry]]) -> None:
    for number, turn in enumerate(turns, 1):
        current = "  <- current" if number == len(turns) else ""
        chat.line(f"  {number}  {_first_words(turn)}{current}")
    for letter, branch in other_branches.items():
        its_turns = turns_of(branch)
        words = _first_words(its_turns[-1]) if its_turns else "(empty)"
        chat.line(f"  {letter}  ... {words} ({len(its_turns)} turns)")
    chat.note("/branch NUMBER continues after that turn, /branch LETTER on that branch." if turns else "No turns yet.")


async def recap_command(chat: Conversation, argument: str) -> None:
    _, _, heads = await _tree(chat)
    abandoned = dict(zip(ascii_lowercase, heads, strict=False)).get(argument)
    session_id, head = chat.session_id, chat.head
    if session_id is None or abandoned is None:
        chat.note("/recap LETTER gives the model a summary of another branch. Type /branch for a list.")
    elif await chat.show_run(
        lambda: chat.agent.summarise_branch_stream(session_id, abandoned, model=chat.model, head=head)
    ):
        chat.head = None


def _first_words(turn: Turn) -> str:
    return safe_line(turn.message.text)[:_FIRST_WORDS]


async def undo_command(chat: Conversation, argument: str) -> str | None:
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
    """Restore the files that these entries changed to their previous content, and print the outcome."""
    points = checkpoints_in(entries)
    text = ""
    if points:
        await chat.runtime.connect()
        text = restored_text(await asyncio.to_thread(restore, chat.runtime.directory, chat.checkpoints, points))
    has_commands = any(
        isinstance(entry.fact, ToolStarted) and entry.fact.tool_name == COMMAND_TOOL for entry in entries
    )
    return f"{text} Changes made by commands are not restored.".strip() if has_commands else text


async def restore_command(chat: Conversation, argument: str) -> None:
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
        "/restore NUMBER restores files as they were before that turn, and keeps the conversation."
        if rows
        else "No turn has changed a file with write_file or edit_file."
    )


def _changing_turns(branch: Sequence[Entry], turns: Sequence[Turn]) -> Iterator[tuple[int, str, Turn]]:
    for number, turn in enumerate(turns, 1):
        entries = _entries_of(branch, turn.before)
        end = next((index for index, entry in enumerate(entries) if entry.id == turn.end), len(entries))
        paths = dict.fromkeys(safe_line(point.path) for point in checkpoints_in(entries[: end + 1]))
        if paths:
            named_paths = list(paths)[:_NAMED]
            remainder = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
            yield number, ", ".join(named_paths) + remainder, turn


async def turn_numbers(chat: Conversation) -> Offers:
    _, branch, heads = await _tree(chat)
    numbers = [(str(number), _first_words(turn)) for number, turn in enumerate(turns_of(branch), 1)]
    return [*numbers, *((letter, "another branch") for letter, _ in zip(ascii_lowercase, heads, strict=False))]


async def branch_letters(chat: Conversation) -> Offers:
    _, _, heads = await _tree(chat)
    return [(letter, "another branch") for letter, _ in zip(ascii_lowercase, heads, strict=False)]


async def compact_command(chat: Conversation, argument: str) -> None:
    session_id, head = chat.session_id, chat.head
    if session_id is None:
        chat.note("Nothing to compact.")
    elif await chat.show_run(lambda: chat.agent.compact_stream(session_id, model=chat.model, head=head)):
        chat.head = None
