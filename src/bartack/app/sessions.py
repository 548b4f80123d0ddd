"""Which store and session to work on, and the turns and branches inside a session.

A turn is a user message with everything up to the next one. A session is stored as a tree: going back to an earlier
turn and sending something else starts a branch, and nothing is lost.
"""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bartack.app.errors import with_hint, with_store_hint
from bartack.app.safe_text import valid_text
from bartack.app.settings import setting
from bartack.nouns.entries import Entry, RunEnded, RunStarted, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.nouns.messages import Message
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.maintenance import all_sessions

_TITLE = 60  # characters of the first prompt


# -- choosing a store and a session


def configured_store(given: str | None) -> StoreAddress:
    """The store that the flag, the environment or the configuration file names, or else the user's default one.

    Raises `StoreError` with a hint.
    """
    try:
        return StoreAddress.parse(setting("store", given))
    except StoreError as error:
        with_store_hint(error)
        raise


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
    """The id of the session, created if needed; without an id, of a new one.

    A new session gets its title from the prompt, and records the directory and the program.
    """
    title = " ".join(prompt.split())[:_TITLE]
    header = SessionHeader(title=title, metadata={"directory": _current_directory(), "program": program})
    session_id = store.environment.new_id() if session_id is None else session_id
    with suppress(Conflict):  # it exists
        await store.create_session(session_id, header)
    return session_id


async def latest_session_here(store: SessionStore) -> str:
    """The id of the session that was started in the current directory and changed last.

    Raises `StoreError` if there is none.
    """
    here = _current_directory()
    async for info in all_sessions(store):
        if await _directory_of(store, info.id) == here:
            return info.id
    hint = "Omit --continue to start a new one. 'bartack sessions list' shows the sessions of other directories."
    raise with_hint(StoreError(f"No session was started in {here}.", code=ErrorCode.INVALID_CONFIG), hint)


def _current_directory() -> str:
    return valid_text(str(Path.cwd()))


async def _directory_of(store: SessionStore, session_id: str) -> object:
    try:
        (first,) = await store.entries(session_id, limit=1)
    except NotFound:  # purged by another process in the meantime
        return None
    return (first.fact.metadata or {}).get("directory") if isinstance(first.fact, SessionHeader) else None


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
    at: str | None = head
    while at is not None and at in by_id:
        branch.append(by_id[at])
        at = by_id[at].parent_id
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
