"""Conversations of clients as sessions.

A client sends the whole history with every request. The recorder stores only what is new: it finds the longest
beginning of the history that the session already has, and appends the rest after it. A history that was edited or
compacted by its client becomes a branch, because a session is a tree.

Messages are compared by their meaning: role, text, calls, results and media. Thinking, ids and continuation data are
left out, because many clients do not send them back, or rename them. The chain digest of a message covers everything
before it as well, so that one lookup per message finds the place in the tree, on any branch.

The session of a request follows from the client's own name for its conversation, together with the key that it uses: no
client can reach the session of another. Without such a name, it follows from the first message. A request of a named
conversation that begins differently, or has no tools, is a side call (a title, a summary, a sub-agent). It gets a
session of its own, which is marked.
"""

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry, Fact, Redaction, SessionHeader, StreamFailed
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.session.title import title_from
from bartack.store.requests import redact
from bartack.store.session_store import SessionStore, next_entries
from bartack.stream.assembler import MessageAssembler
from bartack_server.answer_drafts import SESSION_PREFIX
from bartack_server.gateway.client_requests import ClientRequest
from bartack_server.gateway.keys import GatewayKey

__all__ = ["ConversationRecord", "Recorder", "StoredResponse", "answer_fact", "append_after", "session_id_for"]

_MAX_SESSIONS = 1000  # Places of more sessions are read again when they are needed.
_RESPONSE = "resp_"
_RESPONSE_ID = re.compile(r"resp_([0-9a-f]{24})[0-9a-f]{32}")
_KEY_ID = "gatewayKeyId"  # a key in the metadata of a session
_ROOT = ""  # the chain digest before the first message


class _Places:
    """Where each beginning of a conversation ends in its session."""

    def __init__(self) -> None:
        self.entry_ids: dict[str, str] = {}  # chain digest -> the entry of its last message
        self._chains: dict[str, str] = {}  # entry id -> the chain digest up to it
        self.root_id = ""
        self.first_digest = ""
        self.last_seq = 0
        self.lock = asyncio.Lock()  # simultaneous requests of one conversation store its history once

    async def update(self, store: SessionStore, session_id: str) -> None:
        """Add the entries that are new."""
        for entry in await store.entries(session_id, self.last_seq):
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry, after those before it."""
        chain = self._chains.get(entry.parent_id or "", _ROOT)
        if isinstance(entry.fact, Message):
            chain = chained(chain, entry.fact)
            self.first_digest = self.first_digest or chain
            self.entry_ids.setdefault(chain, entry.id)
        self.root_id = self.root_id or entry.id
        self._chains[entry.id] = chain
        self.last_seq = entry.seq


class StoredResponse(NamedTuple):
    """An answer, and the conversation up to it."""

    session_id: str
    entry_id: str
    message: Message
    history: tuple[Message, ...]


class Recorder:
    """Records the conversations of all clients in one store."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._places: OrderedDict[str, _Places] = OrderedDict()

    def conversation(self, key: GatewayKey, request: ClientRequest) -> "ConversationRecord | None":
        """The record of one request; None if it is not to be recorded."""
        if not key.records or request.headers.get("x-bartack-record", "").lower() == "off":
            return None
        return ConversationRecord(self, key, request)

    async def places(self, session_id: str, header: SessionHeader) -> _Places:
        """The places in a session, which is created if it does not exist."""
        places = self._places.get(session_id)
        if places is None:
            places = self._places[session_id] = _Places()
            with suppress(Conflict):
                await self.store.create_session(session_id, header)
            while len(self._places) > _MAX_SESSIONS:
                self._places.popitem(last=False)
        self._places.move_to_end(session_id)
        await places.update(self.store, session_id)
        return places

    async def response(self, key: GatewayKey, response_id: str) -> "StoredResponse | None":
        """An answer that was given to this key, by the id of its response."""
        match = _RESPONSE_ID.fullmatch(response_id)
        if match is None:
            return None
        session_id = f"{SESSION_PREFIX}{match[1]}"
        try:
            entries = await self.store.entries(session_id)
        except NotFound:
            return None
        header = entries[0].fact
        if not isinstance(header, SessionHeader) or (header.metadata or {}).get(_KEY_ID) != key.id:
            return None
        redacted = {entry.fact.entry_id for entry in entries if isinstance(entry.fact, Redaction)}
        for entry in entries:
            fact = entry.fact
            if isinstance(fact, Message) and fact.meta is not None and fact.meta.response_id == response_id:
                if entry.id in redacted:
                    return None
                branch = await self.store.load(session_id, head=entry.id)  # without what was redacted
                history = tuple(item.fact for item in branch if isinstance(item.fact, Message))
                return StoredResponse(session_id, entry.id, history[-1], history)
        return None

    async def delete_response(self, response: "StoredResponse") -> None:
        """Redact an answer."""
        await redact(self.store, response.session_id, response.entry_id, reason="deleted by the client")

    def forget(self, session_id: str) -> None:
        """Read the session again next time."""
        self._places.pop(session_id, None)


class ConversationRecord:
    """The record of one request and its answer."""

    def __init__(self, recorder: Recorder, key: GatewayKey, request: ClientRequest) -> None:
        self._recorder = recorder
        self._key = key
        self._request = request
        self._beginning: asyncio.Task[str] | None = None  # stores the history, and returns the id of its last entry
        self._last_seq = 0  # the last seq of the session when its history was stored
        self.session_id = ""

    def begin(self, request: ModelRequest) -> None:
        """Store what is new in the history, while the upstream is already working."""
        if self._beginning is not None:
            return
        messages = [message for message in request.messages if message.role != "system"]
        name = self._request.session_key
        first = chained(_ROOT, messages[0]) if messages else _ROOT
        is_side = name is not None and not request.tools
        own_id = session_id_for(self._key, f"side {name} {first}")
        self.session_id = own_id if is_side else session_id_for(self._key, first if name is None else f"name {name}")
        self._beginning = asyncio.ensure_future(self._store_history(messages, first, own_id, is_side=is_side))

    def new_response_id(self) -> str:
        """An id that leads to the answer, after `begin`; see `Recorder.response`."""
        unique = self._recorder.store.environment.new_id().replace("-", "")
        return f"{_RESPONSE}{self.session_id.removeprefix(SESSION_PREFIX)}{unique}"

    async def place(self) -> tuple[str, str, int]:
        """The session, its entry that the answer follows, and the seq of its last entry, once the history is stored.
        Raises `StoreError`."""
        assert self._beginning is not None, "begin() comes first"
        parent_id = await asyncio.shield(self._beginning)
        return self.session_id, parent_id, self._last_seq

    async def end(self, fact: Fact) -> None:
        """Store the answer, or how it failed. Raises `StoreError`."""
        if self._beginning is not None:
            await append_after(self._recorder.store, self.session_id, [fact], await self._beginning)

    async def _store_history(self, messages: Sequence[Message], first: str, own_id: str, *, is_side: bool) -> str:
        places = await self._recorder.places(self.session_id, self._header(messages, is_side=is_side))
        if places.first_digest not in ("", first):
            self.session_id = own_id
            places = await self._recorder.places(self.session_id, self._header(messages, is_side=True))
        try:
            async with places.lock:
                return await self._append_new(messages, places)
        except Conflict:
            # A call has one result in a session. An edited history that repeats results gets a session of its own.
            self._recorder.forget(self.session_id)
            self.session_id = session_id_for(self._key, f"{self.session_id} {_chain_of(messages)}")
            places = await self._recorder.places(self.session_id, self._header(messages, is_side=is_side))
            return await self._append_new(messages, places)

    async def _append_new(self, messages: Sequence[Message], places: _Places) -> str:
        chain, parent_id = _ROOT, places.root_id
        count = 0
        for message in messages:
            chain = chained(chain, message)
            if chain not in places.entry_ids:
                break
            parent_id = places.entry_ids[chain]
            count += 1
        if count < len(messages):
            parent_id = await append_after(self._recorder.store, self.session_id, messages[count:], parent_id)
            await places.update(self._recorder.store, self.session_id)
        self._last_seq = places.last_seq
        return parent_id

    def _header(self, messages: Sequence[Message], *, is_side: bool) -> SessionHeader:
        texts = [text.strip() for message in messages if message.role == "user" for text in _texts(message)]
        # Programs put reminders and descriptions of their environment, in tags, before what the user wrote.
        text = next((text for text in texts if text and not text.startswith("<")), next(iter(texts), ""))
        metadata = {
            "gatewayKey": self._key.name,
            _KEY_ID: self._key.id,
            "client": self._request.format,
            "sideCall": is_side,
        }
        return SessionHeader(title=title_from(text), metadata=metadata)


async def append_after(store: SessionStore, session_id: str, facts: Sequence[Fact], parent_id: str) -> str:
    """Append facts after this entry, whatever others append meanwhile; returns the id of the last one."""
    while True:
        tail = await store.tail_of(session_id)
        entries = next_entries(session_id, tail, facts, store.environment, parent_id=parent_id)
        try:
            return (await store.append(session_id, entries, tail.entry_id)).entry_id
        except Conflict as conflict:
            if conflict.tail in (None, tail.entry_id):  # not because of others
                raise


def answer_fact(
    assembler: MessageAssembler, error: Failed | None, response_id: str | None, duration_ms: int | None = None
) -> Fact:
    """An answer as its session has it. `response_id` replaces that of the upstream."""
    message = assembler.snapshot()
    meta = message.meta or Meta()
    if response_id is not None:
        meta = replace(meta, response_id=response_id)
    if error is None:
        return replace(message, meta=meta)
    return StreamFailed(
        error=error,
        parts=assembler.parts,
        usage=assembler.usage,
        model=meta.model,
        response_id=meta.response_id,
        duration_ms=duration_ms,
    )


def session_id_for(key: GatewayKey, name: str) -> str:
    """The id of a session; only requests with this key lead to it."""
    return f"{SESSION_PREFIX}{hashlib.sha256(f'{key.id} {name}'.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def _chain_of(messages: Iterable[Message]) -> str:
    chain = _ROOT
    for message in messages:
        chain = chained(chain, message)
    return chain


def chained(chain: str, message: Message) -> str:
    """The digest of a message and all before it."""
    form = [chain, message.role, "".join(_texts(message)).strip(), [*filter(None, map(_form, message.parts))]]
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()


def _texts(message: Message) -> Iterable[str]:
    return (part.text for part in message.parts if isinstance(part, Text) and not part.ignored)


def _form(part: Part) -> list[object] | None:
    match part:
        case Text() | Thinking():
            return None
        case ToolCall():
            return ["call", part.tool_name, part.raw_args_text or part.arguments]
        case ToolResult():
            return ["result", _content_form(part.content)]
        case Image() | FileRef():
            return ["media", hashlib.sha256(part.data or (part.url or "").encode()).hexdigest()]


def _content_form(content: ToolContent) -> object:
    if isinstance(content, str | dict):
        return content
    texts = "".join(part.text for part in content if isinstance(part, Text))
    return [texts, *(_form(part) for part in content if not isinstance(part, Text))]
