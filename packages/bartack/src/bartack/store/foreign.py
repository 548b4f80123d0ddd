"""Foreign sessions: what came from a file, and may not act before a person has adopted it.

An import stores, in one step with the entries, a *mark*: a reserved session of one entry, whose id follows from that of
the foreign session. The mark is not a fact of the session itself, so an imported session stays byte for byte what the
file contains, can be imported again when the file has grown, and cannot forge its own adoption.

While the mark exists, no run starts in the session (bartack.agent.open_run), so no model or instructions that its
entries name are used, nothing is delivered to it, and its jobs wait. Adopting the session removes the mark.
"""

from contextlib import suppress

from bartack.nouns.entries import Entry, ModelChange, RunStarted, SessionHeader, SystemPromptOverride
from bartack.nouns.errors import NotAdopted, NotFound
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.store.entries import NO_TIME
from bartack.store.errors import invalid_value_error
from bartack.store.session_store import RESERVED, SessionAppend, SessionStore

__all__ = [
    "ForeignSession",
    "adopt",
    "check_adopted",
    "check_foreign_id",
    "find_foreign",
    "is_foreign",
    "mark_foreign",
    "marking_append",
    "not_adopted_error",
    "remove_mark",
]


class ForeignSession(Noun, frozen=True, kw_only=True):
    """What adopting a session brings along, besides its messages."""

    session_id: str
    model: ModelRef | None = None  # the last one that its entries name
    instructions: str | None = None  # what replaces the agent's instructions, and the system messages beside them


async def is_foreign(store: SessionStore, session_id: str) -> bool:
    """Whether the session came from a file and was not adopted."""
    try:
        await store.tail_of(_mark_id(session_id))
    except NotFound:
        return False
    return True


async def check_adopted(store: SessionStore, session_id: str) -> None:
    """Raise `NotAdopted` for a foreign session."""
    if await is_foreign(store, session_id):
        raise not_adopted_error(session_id)


def not_adopted_error(session_id: str) -> NotAdopted:
    return NotAdopted(
        f"Session {session_id!r} was imported and is not adopted yet: it may name a model and instructions of its own. "
        f"Look at it, then adopt it with 'bartack sessions adopt'."
    )


async def find_foreign(store: SessionStore, session_id: str) -> ForeignSession | None:
    """What adopting this session would bring along; None if it is not foreign."""
    if not await is_foreign(store, session_id):
        return None
    model: ModelRef | None = None
    override: str | None = None
    system: list[str] = []
    for entry in await store.load(session_id):
        match entry.fact:
            case ModelChange() | RunStarted():
                model = entry.fact.model or model
            case SystemPromptOverride(text=text):
                override = text
            case Message(role="system", text=text):
                system.append(text)
            case _:  # nothing else tells a model what to do
                pass
    instructions = "\n\n".join([*([] if override is None else [override]), *system])
    return ForeignSession(session_id=session_id, model=model, instructions=instructions or None)


async def adopt(store: SessionStore, session_id: str) -> None:
    """Let runs continue a foreign session. A session that is not foreign stays as it is; `NotFound` if there is none.

    Call this only when a person has decided it.
    """
    await store.tail_of(session_id)
    await remove_mark(store, session_id)


async def remove_mark(store: SessionStore, session_id: str) -> None:
    """Remove the mark of a session that was adopted, or that no longer exists."""
    with suppress(NotFound):
        await store.drop_session(_mark_id(session_id))


def marking_append(session_id: str) -> SessionAppend:
    """The append that marks a session as foreign. Repeating it has no effect."""
    mark_id = _mark_id(session_id)
    header = SessionHeader(metadata={"foreign": session_id})
    entry = Entry(id=derived_id(mark_id, 1), session_id=mark_id, seq=1, timestamp=NO_TIME, fact=header)
    return SessionAppend(mark_id, [entry], None)


def check_foreign_id(session_id: str) -> None:
    """Raise `StoreError` for the id of a session that a file must not contain."""
    if session_id.startswith(RESERVED):
        raise invalid_value_error(f"Session id {session_id!r} is reserved for Bartack's own records.")


async def mark_foreign(store: SessionStore, session_id: str) -> None:
    """Mark a stored session as foreign."""
    await store.append(*marking_append(session_id))


def _mark_id(session_id: str) -> str:
    return f"{RESERVED}foreign:{derived_id(session_id, 'foreign')}"
