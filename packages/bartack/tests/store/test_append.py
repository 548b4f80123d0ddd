"""The wording of refused appends and leases, which is the same in every store, and the repr of what is loaded."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import Custom, Entry, RunStarted, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import Message, assistant, stamped, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import MemoryStore, SessionStore, Tail, next_entries
from tests.store.stores import START, add, following

Attempt = Callable[[SessionStore, Entry, Entry], Awaitable[object]]


def appending(**change: object) -> Attempt:
    """Appends two entries, the second with these changes."""

    async def attempt(store: SessionStore, _: Entry, last: Entry) -> Tail:
        first, second = following(last, user("one"), user("two"))
        first = replace(first, id="twice")
        return await store.append("s", [first, replace(second, **{"parent_id": "twice", **change})], last.id)

    return attempt


async def take_twice(store: SessionStore) -> None:
    await store.acquire_lease("s", "one", ttl=60)
    await store.acquire_lease("s", "two")


async def lose(store: SessionStore, last: Entry) -> None:
    lease = await store.acquire_lease("s", "one")
    await store.acquire_lease("s", "two", takeover=True)
    await store.append("s", following(last), last.id, lease=lease)


REFUSALS: dict[str, Attempt] = {
    "belongs to session 'other'": appending(session_id="other"),
    "seq 7, expected 5": appending(seq=7),
    "no id": appending(id=""),
    "no parent": appending(parent_id=None),
    "occurs twice in one append": appending(id="twice"),
    "cannot be stored": appending(fact=Custom(name="nan", data={"x": float("nan")})),
    "tool message without a result": appending(fact=stamped(Message("tool", ()), id="m", timestamp=START)),
    "at least one entry": lambda store, *_: store.append("s", [], None),
    "must be a session_header": lambda store, header, _: store.append("s", [replace(header, fact=RunStarted())], None),
    "Invalid session id": lambda store, *_: store.create_session("x" * 300),
    "format version 2": lambda store, *_: store.create_session("t", SessionHeader(version=2)),
    "already exists": lambda store, *_: store.create_session("s"),
    "The next seq of session": lambda store, header, last: store.append("s", following(header), last.id),
    "The last entry of session": lambda store, header, _: store.append("s", following(header), header.id),
    "already stored with different content": lambda store, header, last: store.append(
        "s", [replace(following(last)[0], id=header.id)], last.id
    ),
    "'c' already has a result": lambda store, *_: add(store, "s", tool_message(ToolResult("c", "midnight"))),
    "two results": lambda store, *_: add(store, "s", *(tool_message(ToolResult("d", text)) for text in "12")),
    "Invalid cursor": lambda store, *_: store.sessions(3, "nonsense"),
    "at least 1": lambda store, *_: store.sessions(0),
    "needs an owner": lambda store, *_: store.acquire_lease("s", ""),
    r"Session 's' is in use by one \(process \d+ on .* in \d+ s": lambda store, *_: take_twice(store),
    "of one on session 's' .* was lost: two has it now": lambda store, _, last: lose(store, last),
}


@pytest.mark.parametrize("message", REFUSALS)
async def test_an_error_names_what_was_refused(message: str) -> None:
    store = MemoryStore()
    header = await store.create_session("s")
    call = assistant(ToolCall("c", "clock", {}), ToolCall("d", "clock", {}))
    *_, last = await add(store, "s", call, tool_message(ToolResult("c", "noon")))
    with pytest.raises(StoreError, match=message):
        await REFUSALS[message](store, header, last)
    assert len(await store.load("s")) == 3


async def test_a_lease_for_another_session_is_named() -> None:
    store = MemoryStore()
    await store.create_session("s")
    header = await store.create_session("t")
    lease = await store.acquire_lease("s", "me")
    with pytest.raises(StoreError, match="The lease is for session 's'"):
        await store.append("t", following(header), header.id, lease=lease)


async def test_loaded_entries_have_a_short_repr() -> None:
    store = MemoryStore()
    await store.append("s", next_entries("s", None, [SessionHeader()], store.environment), None)
    assert repr(await store.load("s")) == "Entries('s', 1 entries)"
