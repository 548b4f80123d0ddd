"""The commands of the chat: a line that begins with a slash. In: the talk and the words after the command."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.table import Table
from rich.text import Text as Styled

from bartack.cli import sessions_print as tables
from bartack.cli.agent_setup import connected
from bartack.cli.chat.status import count_text
from bartack.cli.chat.talk import Talk
from bartack.cli.chat.turns import Turn, branch_of, other_ends, turns_of
from bartack.cli.terminal.safe_text import safe_line
from bartack.cli.transcript import markdown_of
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_models
from bartack.nouns.entries import Entry
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.store import SessionInfo
from bartack.store.transfer import export_session
from bartack.views import document

__all__ = ["COMMANDS", "SlashCommand", "is_command", "obey", "toggle_thinking"]

_SHOWN = 20  # sessions in a list
_FIRST_WORDS = 60  # characters of a message in a list
_KEYS = """\
Enter sends; Alt-Enter or a \\ at the end begins a new line; Up brings back what was said.
Ctrl-C stops an answer, and again leaves; Ctrl-O folds and unfolds thinking; Ctrl-D leaves."""
_SESSIONS = (
    tables.Column("", is_number=True),
    tables.Column(""),
    tables.Column("title"),
    tables.Column("updated"),
    tables.Column("tokens", is_number=True, is_extra=True),
    tables.Column("cost", is_number=True, is_extra=True),
)


class SlashCommand(NamedTuple):
    """What it does, for /help, and the function that does it. The text that it gives is put into the next prompt."""

    meaning: str
    work: Callable[[Talk, str], Awaitable[str | None]]


def is_command(line: str) -> bool:
    """Whether a line is meant for the chat; a path that begins with a slash is not."""
    return line.startswith("/") and line.split(maxsplit=1)[0].count("/") == 1


async def obey(talk: Talk, line: str) -> str | None:
    """Do what the line says; gives the text that the next prompt begins with, if any."""
    word, *rest = line.split(maxsplit=1)
    command = COMMANDS.get(word)
    if command is None:
        talk.note(f"There is no {safe_line(word)}; /help lists what there is.")
        return None
    try:
        return await command.work(talk, rest[0].strip() if rest else "")
    except BartackError as error:
        talk.fault(error)
    except OSError as error:
        talk.complain(f"{error.filename or word}: {error.strerror or error}")
    return None


# -- what there is


async def _help(talk: Talk, words: str) -> None:
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(Styled(f"  {name}"), Styled(command.meaning))
    talk.console.print(table)
    talk.note(_KEYS)


async def _quit(talk: Talk, words: str) -> None:
    talk.is_leaving = True


# -- models and tools


async def _model(talk: Talk, words: str) -> None:
    if not words:
        talk.line(f"{safe_line(talk.model_name)} answers.")
        here = [f"local:{name}" for name, row in known_models().items() if row.is_downloaded]
        on_disk = f" Here on this machine: {', '.join(here)}." if here else ""
        talk.note(f"/model VENDOR:MODEL takes another.{on_disk} Vendors: {', '.join(VENDORS)}.")
        return
    await talk.take_model(connected(words), words)
    talk.note(f"{safe_line(words)} answers from here on.")


async def _tools(talk: Talk, words: str) -> None:
    if not len(talk.agent.tools):
        talk.note("There are no tools.")
        return
    rows = (
        (tool.name, "asks" if talk.approvals.asks(tool) else "runs at once", safe_line(_first_line(tool.description)))
        for tool in talk.agent.tools
    )
    tables.print_rows((tables.Column("tool"), tables.Column("approval"), tables.Column("what it does")), rows)


def _first_line(description: str) -> str:
    return next(iter(description.splitlines()), "")


# -- sessions and branches


async def _sessions(talk: Talk, words: str) -> None:
    page = await talk.store.sessions(_SHOWN)
    if words:
        numbered = dict(zip(map(str, count(1)), page.items, strict=False))
        await talk.open(numbered[words].id if words in numbered else words)
        return
    if page.items:
        tables.print_rows(_SESSIONS, _session_rows(page.items, talk.session_id))
    talk.note("/sessions NUMBER goes on with one of them." if page.items else "There are no sessions yet.")


def _session_rows(infos: Sequence[SessionInfo], here: str | None) -> Iterator[Sequence[str]]:
    for number, info, row in zip(count(1), infos, tables.info_rows(infos), strict=False):
        _, title, _, *rest = row
        yield str(number), "*" if info.id == here else "", title, *rest


async def _new(talk: Talk, words: str) -> None:
    talk.begin_anew()
    talk.note("The next message begins a new session.")


async def _branch(talk: Talk, words: str) -> None:
    entries, branch, ends = await _tree(talk)
    turns = turns_of(branch)
    letters = dict(zip("abcdefghijklmnopqrstuvwxyz", ends, strict=False))
    if words in letters:
        await talk.move(letters[words])
        talk.show(await talk.branch())
    elif words.isdecimal() and 1 <= int(words) <= len(turns):
        await talk.move(turns[int(words) - 1].end)
        talk.note(f"Going on after turn {words}; what came later stays in the session.")
    elif words:
        talk.note(f"There is no turn or branch {safe_line(words)}.")
    else:
        _list_turns(talk, turns, {letter: branch_of(entries, end) for letter, end in letters.items()})


async def _tree(talk: Talk) -> tuple[Sequence[Entry], list[Entry], list[str]]:
    if talk.session_id is None:
        return (), [], []
    branch = await talk.branch()
    heads = await talk.store.heads(talk.session_id)
    # an end that lies behind the place we went back to is another branch now
    entries = [entry for head in heads for entry in await talk.store.load(talk.session_id, head=head)]
    return entries, branch, other_ends(heads, branch)


def _list_turns(talk: Talk, turns: Sequence[Turn], others: Mapping[str, Sequence[Entry]]) -> None:
    for number, turn in enumerate(turns, 1):
        here = "  <- here" if number == len(turns) else ""
        talk.line(f"  {number}  {_words(turn)}{here}")
    for letter, branch in others.items():
        its_turns = turns_of(branch)
        words = _words(its_turns[-1]) if its_turns else "(nothing said)"
        talk.line(f"  {letter}  ... {words} ({len(its_turns)} turns)")
    talk.note(
        "/branch NUMBER goes on after that turn, /branch LETTER on that branch." if turns else "Nothing was said."
    )


def _words(turn: Turn) -> str:
    return safe_line(turn.message.text)[:_FIRST_WORDS]


async def _undo(talk: Talk, words: str) -> str | None:
    turns = turns_of(await talk.branch())
    if not turns:
        talk.note("There is nothing to undo.")
        return None
    await talk.move(turns[-1].before)
    talk.note("The last turn is taken back; say it differently. /branch finds it again.")
    return turns[-1].message.text


async def _compact(talk: Talk, words: str) -> None:
    session_id, head = talk.session_id, talk.head
    if session_id is None:
        talk.note("There is nothing to compact.")
    elif await talk.watch(lambda: talk.agent.compact_stream(session_id, model=talk.model, head=head)):
        talk.head = None


# -- looking at it


async def _cost(talk: Talk, words: str) -> None:
    if talk.session_id is None:
        talk.note("Nothing was asked yet.")
        return
    totals = await talk.store.totals(talk.session_id)
    tables.print_rows(tables.SPENDS, tables.spend_rows(totals.models))
    tokens = totals.spend.input_tokens + totals.spend.output_tokens
    talk.note(f"in all {count_text(tokens)} tokens, {tables.cost_text(totals.spend) or '$0'}")


async def _thinking(talk: Talk, words: str) -> None:
    toggle_thinking(talk)


def toggle_thinking(talk: Talk) -> None:
    """Fold or unfold thinking from here on, and show the last one when it is unfolded."""
    talk.thinking = not talk.thinking
    talk.note("Thinking is shown." if talk.thinking else "Thinking is folded.")
    if talk.thinking and talk.last_thinking:
        talk.console.print(talk.last_thinking, style="dim italic", markup=False, highlight=False)


async def _export(talk: Talk, words: str) -> None:
    if talk.session_id is None:
        talk.note("There is nothing to export.")
        return
    path = Path(words or _file_name(talk.session_id))
    match path.suffix:
        case ".md":
            data = markdown_of(await talk.branch()).encode()
        case ".json":
            shown = document.dump(await talk.branch())
            data = msgspec.json.format(msgspec.json.encode(shown), indent=2)
        case ".jsonl":
            data = b"".join([line async for line in export_session(talk.store, talk.session_id)])
        case _:
            raise BartackError(
                f"{path.name!r} does not say what to write: .md, .json or .jsonl", code=ErrorCode.INVALID_CONFIG
            )
    await asyncio.to_thread(_write_new, path, data)
    talk.note(f"written to {path}")


def _file_name(session_id: str) -> str:
    """A file in this directory, whatever somebody called the session."""
    name = re.sub(r"[^\w.-]+", "-", session_id).strip(".-")
    return f"{name or 'session'}.md"


def _write_new(path: Path, data: bytes) -> None:
    try:
        with path.expanduser().open("xb") as file:  # what is there already is not ours to overwrite
            file.write(data)
    except FileExistsError as error:
        fault = BartackError(f"{path} is there already", code=ErrorCode.INVALID_CONFIG)
        fault.add_note("name another file, or remove this one first")
        raise fault from error


COMMANDS: Mapping[str, SlashCommand] = {
    "/help": SlashCommand("Show this list.", _help),
    "/model": SlashCommand("Show the model, or take another: /model anthropic:claude-sonnet-4-6", _model),
    "/tools": SlashCommand("List the tools, and which of them ask first.", _tools),
    "/sessions": SlashCommand("List the sessions, or go on with one: /sessions 2", _sessions),
    "/new": SlashCommand("Begin a new session.", _new),
    "/branch": SlashCommand("List the turns, or go on after one: /branch 3", _branch),
    "/undo": SlashCommand("Take the last turn back and say it differently.", _undo),
    "/compact": SlashCommand("Replace older turns by a summary, for the model.", _compact),
    "/cost": SlashCommand("Show the tokens and the cost of this session.", _cost),
    "/export": SlashCommand("Write the session to a file: /export notes.md, or .json, .jsonl", _export),
    "/thinking": SlashCommand("Fold or unfold thinking.", _thinking),
    "/quit": SlashCommand("Leave; bartack chat -c comes back.", _quit),
}
