"""`bartack sessions search`: the sessions that match best, with their best entries, and how to continue them."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from bartack.app.safe_text import safe_line
from bartack.app.sessions import OWN_AGENT, SessionFilter, short_ids
from bartack.cli.options import JsonOption, StoreOption
from bartack.cli.output import Row, columns, note, print_json, print_table
from bartack.cli.store_access import with_store
from bartack.nouns.errors import PartValidationError
from bartack.nouns.wire import dump
from bartack.store import SessionStore
from bartack.store.ranking import FoundSession, SearchFilter, parse_where, search_sessions

__all__ = ["AgentOption", "LimitOption", "ProjectOption", "SinceOption", "UntilOption", "add_commands", "local_time"]

_HITS = columns("session seq# text~")

AgentOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help=f"Only sessions of this agent: {OWN_AGENT}, or one that sessions were imported from."
    ),
]
ProjectOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Only sessions that worked in this directory or below it.")
]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of results.")]
_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]
SinceOption = Annotated[
    datetime | None, typer.Option(metavar="DATE", formats=_DATES, help="Only what happened on this day or later.")
]
UntilOption = Annotated[
    datetime | None, typer.Option(metavar="DATE", formats=_DATES, help="Only what happened on this day or earlier.")
]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `bartack sessions`."""
    app.command()(search)


def local_time(day: datetime | None, *, is_end: bool = False) -> datetime | None:
    """A time that was written without a zone. A day, which is midnight, ends with the next one."""
    if day is None:
        return None
    is_day = (day.hour, day.minute, day.second) == (0, 0, 0)
    return (day + timedelta(days=1) if is_end and is_day else day).astimezone()


def search(
    words: Annotated[
        list[str],
        typer.Argument(metavar="WORD", help='Words that an entry must all contain; "two words" in a row, begin* ...'),
    ],
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Maximum number of sessions.")] = 20,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Number of sessions to skip.")] = 0,
    *,
    agent: AgentOption = None,
    project: ProjectOption = None,
    model: Annotated[
        str | None, typer.Option("--with-model", metavar="NAME", help="Only sessions that used this model.")
    ] = None,
    tool: Annotated[
        str | None, typer.Option("--with-tool", metavar="NAME", help="Only calls of this tool, and their results.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--in", metavar="WHERE", help="Only in: text, results, calls or thinking.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Only failed tool calls and failed answers.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find sessions by the words of their entries, the best and latest matches first.

    A term such as snake_case or src/main.py is found as it is written. 'bartack chat --session SESSION --head SEQ'
    continues a session from an entry that was found, and 'bartack export' takes the same --head.
    """

    try:
        searched = parse_where(where)
    except PartValidationError as error:
        raise typer.BadParameter(error.message) from None

    async def find(opened: SessionStore) -> Sequence[FoundSession]:
        chosen = SearchFilter(
            SessionFilter(opened, agent, project).accepts,
            model=model,
            tool=tool,
            since=local_time(since),
            until=local_time(until, is_end=True),
            errors_only=errors,
            where=searched,
        )
        return await search_sessions(opened, _query(words), offset + limit + 1, chosen=chosen)

    matches = with_store(store, find, for_reading=True)
    end = offset + limit
    sessions, following = matches[offset:end], end if len(matches) > end else None
    if as_json:
        print_json({"items": list(map(dump, sessions)), "offset": following})
        return
    print_table(_HITS, _rows(sessions))
    if not sessions:
        note("no matches")
    if following is not None:
        note(f"more results: --offset {following}")
    if sessions and sys.stdout.isatty():
        best, place = shlex.quote(sessions[0].session_id), sessions[0].hits[0].seq
        note(f"Continue the first one with: bartack chat --session {best} --head {place}", is_dim=True)
        note(f"In another agent: bartack export {best} --head {place} --install --to AGENT", is_dim=True)


def _query(words: Sequence[str]) -> str:
    """The words as one query. An argument with blanks in it was quoted in the shell, as a phrase is."""
    return " ".join(f'"{word}"' if len(word.split()) > 1 and '"' not in word else word for word in words)


def _rows(sessions: Sequence[FoundSession]) -> Iterator[Row]:
    is_terminal = sys.stdout.isatty()
    ids = [session.session_id for session in sessions]
    for id, session in zip(short_ids(ids) if is_terminal else ids, sessions, strict=True):
        if is_terminal and session.title:
            yield safe_line(id), "", safe_line(session.title)
        for hit in session.hits:
            yield safe_line(id), str(hit.seq), safe_line(hit.snippet)
