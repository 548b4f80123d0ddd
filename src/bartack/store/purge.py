"""Purging: the one way to really remove data. It says what it does: the session gets a new id.

A session is written anew without what was redacted, and the old one is dropped: its rows or its file, its words in the
search index, and the bodies that no other session uses. Entry ids stay, so that what points at them still does.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from bartack.nouns.entries import Entry
from bartack.nouns.errors import NotFound
from bartack.nouns.ids import derived_id
from bartack.session.redaction import visible
from bartack.store.session_store import SessionStore

__all__ = ["purge"]


async def purge(store: SessionStore, session_id: str, *, everything: bool = False) -> str | None:
    """The id of the session that takes this one's place; None with `everything`, which keeps nothing.

    `Conflict` while a run has the session's lease, or if something was appended meanwhile. After a crash, purging again
    finishes the work.
    """
    lease = await store.acquire_lease(session_id, "bartack purge")
    tail = await store.tail_of(session_id)
    new_id = None
    try:
        if not everything:
            new_id = derived_id(session_id, f"purged/{tail.entry_id}")
            entries = rewritten(new_id, visible(await store.entries(session_id)))
            await store.append(new_id, entries, None)
        await store.drop_session(session_id, expected_tail=tail.entry_id)
    finally:
        try:
            await store.release_lease(lease)
        except NotFound:
            pass  # it went with its session
    return new_id


def rewritten(session_id: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries as those of another session. Gaps are closed; who has lost its parent follows the one before it."""
    made: list[Entry] = []
    ids: set[str] = set()
    for entry in entries:
        parent = entry.parent_id
        if made and parent not in ids:
            parent = made[-1].id
        made.append(replace(entry, session_id=session_id, seq=len(made) + 1, parent_id=parent))
        ids.add(entry.id)
    return made
