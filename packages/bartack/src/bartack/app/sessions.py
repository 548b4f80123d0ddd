"""Which store and session to work on, and the turns and branches inside a session.

A turn is a user message with everything up to the next one. A session is stored as a tree: going back to an earlier
turn and sending something else starts a branch, and nothing is lost.
"""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bartack.app.errors import with_hint, with_store_hint
from bartack.app.platform import current_directory
from bartack.app.safe_text import valid_text
from bartack.app.settings import setting
from bartack.nouns.entries import Entry, ModelChange, RunEnded, RunStarted, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Message, ModelRef
from bartack.session.title import title_from
from bartack.store import Page, SessionInfo, SessionStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.errors import entry_not_found_error
from bartack.store.session_store import all_sessions

DIRECTORY = "directory"  # metadata of a session: the directory that it works in
_SHORT_ID = 8  # characters at least; a UUIDv7 starts with its time, so sessions of one minute share them
_WHOLE_ID = 20  # characters; ids up to this length are not shortened
_SHORTEST_PREFIX = 4
_GENERATED = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")  # a UUID, or the first characters of one
_WORD = re.compile(r"[\w-]+")
_CANDIDATES = 5  # candidates named by an error


# -- choosing a store and a session


def configured_store(text: str | None) -> StoreAddress:
    """The store that the flag, the environment or the configuration file names, or else the user's default one.

    A single word such as ``postgres`` is more often a mistake than the name of a new file, so it must name an existing
    store. Raises `StoreError` with a hint.
    """
    try:
        chosen = setting("store", text)
        address = StoreAddress.parse(chosen)
    except StoreError as error:
        with_store_hint(error)
        raise
    if chosen is not None and _WORD.fullmatch(chosen) and address.path is not None and not address.path.exists():
        missing = StoreError(f"There is no store at {chosen}.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(missing, f"Use sqlite:{chosen} to create a SQLite database with this name.")
    return address


@asynccontextmanager
async def opened_store(address: StoreAddress, *, for_reading: bool = False) -> AsyncIterator[SessionStore]:
    """The store, open, and read-only if it cannot be written but need not be.

    Raises `StoreError` with a hint if it cannot be opened.
    """
    try:
        store = await open_store(address.text, read_only=for_reading and _is_write_protected(address))
    except StoreError as error:
        with_store_hint(error, is_server=address.kind == "postgres")
        raise
    try:
        yield store
    finally:
        await store.close()


def _is_write_protected(address: StoreAddress) -> bool:
    path = address.path
    return path is not None and path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


async def ensure_session(store: SessionStore, session_id: str | None, *, prompt: str, program: str) -> str:
    """The id of the session, created if needed; without an id, of a new one. The first characters of a generated
    id are enough; an id that the user chose must be given in full.

    A new session gets its title from the prompt, and records the directory and the program. Raises `NotFound` if
    several sessions are meant.
    """
    if session_id is None:
        session_id = store.environment.new_id()
    elif _GENERATED.fullmatch(session_id) and (full_id := await _match_session(store, session_id)) is not None:
        return full_id
    header = SessionHeader(title=title_from(prompt), metadata={DIRECTORY: _current_directory(), "program": program})
    with suppress(Conflict):  # it exists
        await store.create_session(session_id, header)
    return session_id


async def find_session(store: SessionStore, name: str) -> str:
    """The id of the session with this id, or of the only one that it is short for, not counting its sub-agents.

    Raises `NotFound` if there is none, or several.
    """
    session_id = await _match_session(store, name)
    if session_id is None:
        await store.tail_of(name)  # raises
    return session_id or name


async def _match_session(store: SessionStore, name: str) -> str | None:
    """The same, or None if there is none."""
    with suppress(NotFound):
        await store.tail_of(name)
        return name
    if len(name) < _SHORTEST_PREFIX:
        return None
    candidates = sorted([info.id async for info in all_sessions(store) if _is_short_for(name, info.id)])
    # The sub-agents of an imported session have its id and their own.
    ambiguous = [id for id in candidates[1:] if not id.startswith(f"{candidates[0]}/")]
    if ambiguous:
        some = ", ".join(short_ids([candidates[0], *ambiguous])[:_CANDIDATES])
        raise NotFound(f"Several sessions start with {name!r}: {some}.")
    return candidates[0] if candidates else None


def _is_short_for(name: str, id: str) -> bool:
    """Whether an id starts with a name, or each of its parts with one of the name's."""
    names, parts = name.split("/"), id.split("/")
    return id.startswith(name) or (len(names) == len(parts) and all(map(str.startswith, parts, names)))


def short_ids(ids: Sequence[str]) -> list[str]:
    """For each id, its first characters, as few as distinguish it from the others; short ones stay whole.

    The id of a sub-agent is that of its session and its own, with a slash between them; each of them is shortened.
    """
    siblings: dict[str, set[str]] = {}
    for id in ids:
        for outer, part in _parts(id):
            siblings.setdefault(outer, set()).add(part)
    lengths = {outer: _lengths(parts) for outer, parts in siblings.items()}
    return [
        id if len(id) <= _WHOLE_ID else "/".join(part[: lengths[outer][part]].rstrip("-") for outer, part in _parts(id))
        for id in ids
    ]


def _parts(id: str) -> list[tuple[str, str]]:
    """The parts of an id, each with all that is before it."""
    parts = id.split("/")
    return [("/".join(parts[:place]), part) for place, part in enumerate(parts)]


def _lengths(ids: Collection[str]) -> dict[str, int]:
    """How many characters distinguish each id from the others."""
    ordered = sorted(ids)
    lengths: dict[str, int] = {}
    for before, id, following in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        shared = max(_common(before, id), _common(id, following))
        lengths[id] = max(id.find(":") + 1 + _SHORT_ID, shared + 1)  # the name of an agent distinguishes nothing
    return lengths


def _common(first: str, second: str) -> int:
    """The number of characters that both start with."""
    return next(
        (length for length, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def home_path(directory: str) -> str:
    """A directory as people write it, with ~ for their home."""
    home = str(Path.home())
    return f"~{directory[len(home) :]}" if directory == home or directory.startswith(f"{home}/") else directory


async def branch_with(store: SessionStore, session_id: str, entry: str) -> str:
    """The last entry of the newest branch with this entry, which is named by its id or its seq.

    Raises `NotFound` if there is no such entry.
    """
    if entry.isdecimal():
        position = int(entry)
        entries = await store.entries(session_id, max(position - 1, 0), 1)
        entry = entries[0].id if entries and entries[0].seq == position else entry
    for head in reversed(await store.heads(session_id)):
        if any(other.id == entry for other in await store.load(session_id, head=head)):
            return head
    raise entry_not_found_error(session_id, entry)


async def model_of(store: SessionStore, session_id: str) -> ModelRef | None:
    """The model that the session used last."""
    model = None
    for entry in await store.load(session_id):
        if isinstance(entry.fact, ModelChange | RunStarted) and entry.fact.model is not None:
            model = entry.fact.model
    return model


async def latest_session_here(store: SessionStore) -> str:
    """The id of the session that was started in the current directory and changed last.

    Raises `StoreError` if there is none.
    """
    directory = _current_directory()
    async for info in all_sessions(store):
        if await directory_of(store, info.id) == directory:
            return info.id
    hint = "Omit --continue to start a new one. 'bartack sessions list' shows the sessions of other directories."
    raise with_hint(StoreError(f"No session was started in {directory}.", code=ErrorCode.INVALID_CONFIG), hint)


OWN_AGENT = "bartack"  # the name of sessions that were not imported, in filters


class SessionFilter:
    """Chooses sessions by the agent that they come from and the directory that they worked in, or one below it."""

    def __init__(self, store: SessionStore, agent: str | None, project: Path | None) -> None:
        self._store = store
        self._agent = agent
        self._project = None if project is None else Path(valid_text(str(project.absolute())))
        self._known: dict[str, bool] = {}

    async def accepts(self, session_id: str) -> bool:
        """Whether a session is chosen."""
        if self._agent is None and self._project is None:
            return True
        if session_id not in self._known:
            header = await header_of(self._store, session_id)
            self._known[session_id] = header is not None and self._matches(header)
        return self._known[session_id]

    def _matches(self, header: SessionHeader) -> bool:
        directory = directory_in(header)
        is_inside = self._project is None or (directory is not None and Path(directory).is_relative_to(self._project))
        return is_inside and self._agent in (None, header.origin or OWN_AGENT)


async def listed_sessions(
    store: SessionStore,
    accepts: Callable[[str], Awaitable[bool]],
    limit: int,
    cursor: str | None,
    query: str | None,
) -> Page:
    """A page of the sessions that are accepted by their ids."""
    items: list[SessionInfo] = []
    while True:
        page = await store.sessions(limit - len(items), cursor, query)
        items += [info for info in page.items if await accepts(info.id)]
        cursor = page.cursor
        if cursor is None or len(items) == limit:
            return Page(tuple(items), cursor)


def _current_directory() -> str:
    return valid_text(str(current_directory()))


async def directory_of(store: SessionStore, session_id: str) -> str | None:
    """The directory that the session works in, if that is known."""
    header = await header_of(store, session_id)
    return None if header is None else directory_in(header)


def directory_in(header: SessionHeader) -> str | None:
    """The directory that a session works in, if its header names one."""
    directory = (header.metadata or {}).get(DIRECTORY)
    return directory if isinstance(directory, str) else None


async def header_of(store: SessionStore, session_id: str) -> SessionHeader | None:
    """The header of a session, without its content if it was redacted; None if the session is gone."""
    try:
        (first,) = await store.entries(session_id, limit=1)
        (header_entry,) = await store.load(session_id, head=first.id)
    except NotFound:  # purged by another process in the meantime
        return None
    return header_entry.fact if isinstance(header_entry.fact, SessionHeader) else None


# -- turns and branches


class Turn(NamedTuple):
    """The user's message, the entry before the turn (where undo goes back to), and the turn's last entry."""

    message: Message
    before: str
    end: str


def turns_of(branch: Sequence[Entry]) -> list[Turn]:
    """The turns of one branch, in order. Entries that a run writes before the user's message belong to that turn."""
    turns: list[Turn] = []
    before_run = ""  # the last entry before the run that brings the next message
    last = ""
    for entry in branch:
        fact = entry.fact
        if isinstance(fact, RunStarted):
            before_run = last
        elif isinstance(fact, Message) and fact.role == "user" and not _is_synthetic(fact):
            before = before_run or last
            if turns:
                turns[-1] = turns[-1]._replace(end=before)
            turns.append(Turn(fact, before, entry.id))
            before_run = ""
        last = entry.id
        if turns and not before_run:
            turns[-1] = turns[-1]._replace(end=entry.id)
    return turns


def _is_synthetic(message: Message) -> bool:
    return all(getattr(part, "synthetic", False) for part in message.parts)


def branch_to(head: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries from the first one to `head`."""
    by_id = {entry.id: entry for entry in entries}
    branch: list[Entry] = []
    entry_id: str | None = head
    while entry_id is not None and entry_id in by_id:
        branch.append(by_id[entry_id])
        entry_id = by_id[entry_id].parent_id
    return branch[::-1]


def other_heads(heads: Iterable[str], branch: Sequence[Entry]) -> list[str]:
    """The heads of all branches but this one, newest first."""
    own = {entry.id for entry in branch}
    return [head for head in heads if head not in own][::-1]


def has_unfinished_run(branch: Iterable[Entry]) -> bool:
    """Whether the last run was interrupted: it started, and no entry records its end."""
    is_open = False
    for entry in branch:
        if isinstance(entry.fact, RunStarted | RunEnded):
            is_open = isinstance(entry.fact, RunStarted)
    return is_open
