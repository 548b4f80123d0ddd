"""Which session a command works on: a new one, a named one, or the newest one of the current directory."""

from contextlib import suppress
from pathlib import Path

from bartack.cli.attachments import valid_text
from bartack.nouns.entries import SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, StoreError
from bartack.store import SessionStore

__all__ = ["current_directory", "newest_here", "there_or_made"]

_TITLE = 60  # characters of the first prompt


def current_directory() -> str:
    """The current directory as it is written into sessions."""
    return valid_text(str(Path.cwd()))


async def there_or_made(store: SessionStore, session_id: str | None, *, prompt: str, program: str) -> str:
    """The id of the session, which is there when this returns; without an id it is a new one.

    A session that is made gets its title from the prompt, and remembers the directory and the program.
    """
    title = " ".join(prompt.split())[:_TITLE]
    header = SessionHeader(title=title, metadata={"directory": current_directory(), "program": program})
    session_id = store.environment.new_id() if session_id is None else session_id
    with suppress(Conflict):  # it is there
        await store.create_session(session_id, header)
    return session_id


async def newest_here(store: SessionStore) -> str:
    """The id of the session of this directory that changed last; `StoreError` if there is none."""
    here, cursor = current_directory(), None
    while True:
        page = await store.sessions(100, cursor)
        for info in page.items:
            if await _directory(store, info.id) == here:
                return info.id
        cursor = page.cursor
        if cursor is None:
            error = StoreError(f"no session was begun in {here}", code=ErrorCode.INVALID_CONFIG)
            error.add_note(
                "without --continue a new one begins; bartack sessions list shows those of other directories"
            )
            raise error


async def _directory(store: SessionStore, session_id: str) -> object:
    try:
        (first,) = await store.entries(session_id, limit=1)
    except NotFound:  # purged by another program meanwhile
        return None
    return (first.fact.metadata or {}).get("directory") if isinstance(first.fact, SessionHeader) else None
