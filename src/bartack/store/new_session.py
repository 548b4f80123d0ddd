"""`new_session`: a session that exists only if what it was created for has begun."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bartack.nouns.entries import SessionHeader
from bartack.nouns.errors import Conflict, NotFound
from bartack.store.session_store import SessionStore

__all__ = ["new_session"]


@asynccontextmanager
async def new_session(store: SessionStore, session_id: str, header: SessionHeader) -> AsyncIterator[bool]:
    """Create the session unless it exists; yields whether it is new.

    If the block raises before anything else was stored in a new session, the session is removed again.
    """
    try:
        created = await store.create_session(session_id, header)
    except Conflict:
        yield False
        return
    try:
        yield True
    except BaseException:
        with suppress(Conflict, NotFound):  # something was stored in it, or another process removed it
            await store.drop_session(session_id, expected_tail=created.id)
        raise
