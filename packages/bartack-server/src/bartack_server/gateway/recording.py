"""Conversations of clients as sessions.

A client sends the whole history with every request. The recorder stores only what is new: it finds the longest
beginning of the history that the session already has, and appends the rest after it. A history that was edited or
compacted by its client becomes a branch, because a session is a tree. A request that repeats another one whose answer
failed is a retry: its answer follows the failed attempt, as it does in a run.

Messages are compared by their meaning: role, text, calls, results and media. Thinking, ids and continuation data are
left out, because many clients do not send them back, or rename them. The chain digest of a message covers everything
before it as well, so that one lookup per message finds the place in the tree, on any branch.

The session of a request follows from the client's own name for its conversation, together with the key that it uses: no
client can reach the session of another. Without such a name, it follows from the first message. A request of a named
conversation that begins differently, or has no tools, is a side call (a title, a summary, a sub-agent). It gets a
session of its own, which is marked.

What is stored when:

1. The reservation of a key with a budget, before the upstream is asked: another process must see it.
2. The question, while the upstream works. Nothing waits for it, because nothing of it was promised to the client. If
   the answer is complete first, both are stored together.
3. The answer in its draft (`bartack_server.gateway.drafts`), before its bytes are sent: the client has it then, even
   if this process is killed. The draft includes the question as long as the store does not have it.
4. The answer in the session, once it is complete. The next request of the conversation in this process is stored after
   it, however soon it comes; another process waits a moment for an answer that it misses. Only an answer that the
   client may refer to by its id is stored before its end is sent.

While an answer arrives, it is in the journal of its session as that of a run is (`LiveAnswer`).
"""

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from bartack.agent.journal import Journal
from bartack.agent.run_log import start
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.entries import Entry, Fact, MessageDeltaBatch, Redaction, SessionHeader, StreamFailed
from bartack.nouns.errors import Conflict, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import Message, Meta
from bartack.nouns.noun import Noun
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.session.title import title_from
from bartack.store.leases import Lease
from bartack.store.requests import redact
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.stream.assembler import MessageAssembler
from bartack_server.gateway.client_requests import ClientRequest
from bartack_server.gateway.keys import GatewayKey

__all__ = [
    "ConversationRecord",
    "LiveAnswer",
    "Place",
    "Question",
    "Recorder",
    "StoredResponse",
    "answer_fact",
    "failed_attempts",
    "session_id_for",
]

_SESSION_PREFIX = "gateway-"
_OWNER = "the gateway"  # It owns the lease while an answer arrives.
_MAX_SESSIONS = 1000  # Places of more sessions are read again when they are needed.
_RESPONSE = "resp_"
_RESPONSE_ID = re.compile(r"resp_([0-9a-f]{24})[0-9a-f]{32}")
_SHORT = 16  # Histories of more messages are stored at once, so that no draft repeats them.
_EARLY_S = 0.05
_WAITS_S = (0.02, 0.08, 0.2)
_KEY_ID, _SIDE = "gatewayKeyId", "sideCall"  # in the metadata of a session
_ROOT = ""  # the chain digest before the first message


class Question(Noun, frozen=True, kw_only=True):
    """The history of a request, and the session for it."""

    session_id: str
    side_session_id: str  # if the other one begins differently
    header: SessionHeader
    messages: tuple[Message, ...]


class Place(NamedTuple):
    """Where an answer goes: after this entry, if that has not been answered by a failed attempt."""

    session_id: str
    entry_id: str
    seq: int = 0  # The last entry of the session had it when the history was stored.


class _Places:
    """Where each beginning of a conversation ends in its session."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.tail: Tail | None = None
        self.first_digest = ""
        self._root_id = ""
        self._entry_ids: dict[str, str] = {}  # chain digest -> the entry of its last message
        self._chains: dict[str, str] = {}  # entry id -> the chain digest up to it
        self._attempts: dict[str, str] = {}  # entry id -> the failed attempt that follows it

    async def update(self, store: SessionStore, session_id: str) -> None:
        """Add the entries that are new."""
        self.add(await store.entries(session_id, 0 if self.tail is None else self.tail.seq))

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries, after those before them."""
        for entry in entries:
            if self.tail is not None and entry.seq <= self.tail.seq:
                continue
            chain = self._chains.get(entry.parent_id or "", _ROOT)
            if isinstance(entry.fact, Message):
                chain = chained(chain, entry.fact)
                self.first_digest = self.first_digest or chain
                self._entry_ids.setdefault(chain, entry.id)
            elif isinstance(entry.fact, StreamFailed) and entry.parent_id is not None:
                self._attempts[entry.parent_id] = entry.id
            self._root_id = self._root_id or entry.id
            self._chains[entry.id] = chain
            self.tail = Tail(entry.id, entry.seq)

    def longest_beginning(self, messages: Sequence[Message]) -> tuple[str, int]:
        """The entry of the last message that is known, and how many are."""
        chain, entry_id = _ROOT, self._root_id
        for count, message in enumerate(messages):
            chain = chained(chain, message)
            if chain not in self._entry_ids:
                return entry_id, count
            entry_id = self._entry_ids[chain]
        return entry_id, len(messages)

    def after_attempts(self, entry_id: str) -> str:
        """The entry, or the last failed attempt to answer it."""
        while entry_id in self._attempts:
            entry_id = self._attempts[entry_id]
        return entry_id


def failed_attempts(entries: Iterable[Entry], entry_id: str) -> set[str]:
    """This entry, and the failed attempts to answer it."""
    attempts = {entry_id}
    for entry in entries:
        if isinstance(entry.fact, StreamFailed) and entry.parent_id in attempts:
            attempts.add(entry.id)
    return attempts


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
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._leases: dict[str, Lease] = {}  # of the sessions whose answers arrive here

    def conversation(self, key: GatewayKey, request: ClientRequest) -> "ConversationRecord | None":
        """The record of one request; None if it is not to be recorded."""
        if not key.records or request.headers.get("x-bartack-record", "").lower() == "off":
            return None
        return ConversationRecord(self, key, request)

    def order_of(self, session_id: str) -> asyncio.Lock:
        """What is stored for one conversation, one after the other: whoever waits first is first."""
        lock = self._orders.get(session_id)
        if lock is None:
            lock = self._orders[session_id] = asyncio.Lock()
        return lock

    async def record(self, question: Question, answer: Fact | None = None) -> Place:
        """Store what is new in a history, and its answer; returns the place of the last of it. Raises `StoreError`."""
        session_id, header, messages = question.session_id, question.header, question.messages
        while True:
            try:
                place = await self._store_history(session_id, header, messages, answer)
            except Conflict as conflict:
                places = self._places_in(session_id)
                if isinstance(conflict, SessionInUse) or places.tail is None:
                    raise
                # A call has one result in a session. An edited history that repeats results gets a session of its own,
                # named by what comes first in it that this one does not have: later requests get there as well.
                _, count = places.longest_beginning(messages)
                session_id = _session_id(f"{session_id} {_chain_of(messages[: count + 1])}")
            else:
                if place is not None:
                    return place
                session_id, header = question.side_session_id, _side_header(header)

    async def _store_history(
        self, session_id: str, header: SessionHeader, messages: Sequence[Message], answer: Fact | None
    ) -> Place | None:
        """Returns None if the session begins differently."""
        first = _chain_of(messages[:1])
        places = self._places_in(session_id)
        waits = iter(_WAITS_S)
        while places.first_digest in ("", first):
            entry_id, count = places.longest_beginning(messages)
            # An answer that is missing may be one that another gateway has just given, and is about to store.
            if any(message.role == "assistant" for message in messages[count:]) and (wait_s := next(waits, 0.0)):
                await asyncio.sleep(wait_s)
                with suppress(NotFound):
                    await places.update(self.store, session_id)
                continue
            facts: list[Fact] = [*messages[count:], *([] if answer is None else [answer])]
            if places.tail is None:  # a new session, as far as is known here
                facts.insert(0, header)
            elif not facts:
                return Place(session_id, entry_id, places.tail.seq)
            last = await self._append(session_id, places, facts, places.after_attempts(entry_id) or None)
            if last is not None:
                return Place(session_id, last.id, last.seq)
        return None

    async def store_answer(self, place: Place, fact: Fact) -> None:
        """Store an answer, or how it failed. Raises `StoreError`."""
        places, last = self._places_in(place.session_id), None
        while last is None:
            if places.tail is None:
                await places.update(self.store, place.session_id)
            last = await self._append(place.session_id, places, [fact], places.after_attempts(place.entry_id))

    async def _append(
        self, session_id: str, places: _Places, facts: Sequence[Fact], parent_id: str | None
    ) -> Entry | None:
        """The last entry of those that these facts become; None, with newer places, if others have appended."""
        tail = places.tail
        entries = next_entries(session_id, tail, facts, self.store.environment, parent_id=parent_id)
        try:
            await self._write(session_id, entries, None if tail is None else tail.entry_id)
        except Conflict as conflict:
            if conflict.tail in (None, None if tail is None else tail.entry_id):  # not because of others
                raise
            await places.update(self.store, session_id)
            return None
        except NotFound:
            if tail is None:
                raise
            places.forget()  # the session was purged
            return None
        places.add(entries)
        return entries[-1]

    async def _write(self, session_id: str, entries: Sequence[Entry], expected_tail: str | None) -> None:
        try:
            await self.store.append(session_id, entries, expected_tail, lease=self._leases.get(session_id))
        except LeaseLost:
            self._leases.pop(session_id, None)
            await self._write(session_id, entries, expected_tail)
        except SessionInUse as error:
            if not error.owner.startswith(_OWNER):
                raise
            # Another gateway shows an answer of this session while it arrives. It will store it, but stop showing it.
            lease = await self.store.acquire_lease(session_id, self._new_owner(), takeover=True)
            try:
                await self.store.append(session_id, entries, expected_tail, lease=lease)
            finally:
                await self.store.release_lease(lease)

    def _new_owner(self) -> str:
        return f"{_OWNER} ({self.store.environment.new_id()})"

    async def lease(self, session_id: str) -> Lease | None:
        """The lease of a session whose answer is about to arrive; None if another one arrives there."""
        try:
            lease = await self.store.acquire_lease(session_id, self._new_owner())
        except SessionInUse:
            return None
        self._leases[session_id] = lease
        return lease

    async def renew(self, lease: Lease) -> None:
        """Raises `LeaseLost`."""
        self._leases[lease.session_id] = await self.store.renew_lease(lease)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. Raises `StoreError`."""
        self._leases.pop(lease.session_id, None)
        await self.store.release_lease(lease)

    def _places_in(self, session_id: str) -> _Places:
        """The places in a session; without any, if it was not used lately."""
        places = self._places.setdefault(session_id, _Places())
        self._places.move_to_end(session_id)
        while len(self._places) > _MAX_SESSIONS:
            self._places.popitem(last=False)
        return places

    async def response(self, key: GatewayKey, response_id: str) -> "StoredResponse | None":
        """An answer that was given to this key, by the id of its response."""
        match = _RESPONSE_ID.fullmatch(response_id)
        if match is None:
            return None
        session_id = f"{_SESSION_PREFIX}{match[1]}"
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


class ConversationRecord:
    """The record of one request and its answer."""

    def __init__(self, recorder: Recorder, key: GatewayKey, request: ClientRequest) -> None:
        self.recorder = recorder
        self._key = key
        self._request = request
        self._order = asyncio.Lock()  # replaced by that of the session
        self._beginning: asyncio.Task[Place] | None = None  # stores the history
        self._is_waiting = True  # for an answer that is complete so early that both are stored together
        self._has_answer = asyncio.Event()
        self._answer: Fact | None = None
        self.is_answered = False  # the session has the answer
        self.question: Question | None = None

    @property
    def session_id(self) -> str:
        """The session, as far as it is known yet."""
        place = self.place
        return place.session_id if place is not None else "" if self.question is None else self.question.session_id

    @property
    def place(self) -> Place | None:
        """Where the answer goes; None while its history is not stored."""
        task = self._beginning
        return None if task is None or not task.done() or task.exception() is not None else task.result()

    def begin(self, request: ModelRequest) -> None:
        """Store what is new in the history, while the upstream is already working."""
        if self._beginning is not None:
            return
        messages = tuple(message for message in request.messages if message.role != "system")
        name = self._request.session_key
        first = _chain_of(messages[:1])
        side_id = session_id_for(self._key, f"side {name} {first}")
        is_side = name is not None and not request.tools
        own_id = session_id_for(self._key, first if name is None else f"name {name}")
        self.question = Question(
            session_id=side_id if is_side else own_id,
            side_session_id=side_id,
            header=self._header(messages, is_side=is_side),
            messages=messages,
        )
        self._order = self.recorder.order_of(self.question.session_id)
        self._beginning = start(self._store_question(self.question))

    async def _store_question(self, question: Question) -> Place:
        if len(question.messages) <= _SHORT:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EARLY_S):
                    await self._has_answer.wait()
        self._is_waiting, answer = False, self._answer
        async with self._order:
            place = await self.recorder.record(question, answer)
        self.is_answered = answer is not None
        return place

    def new_response_id(self) -> str:
        """An id that leads to the answer, after `begin`; see `Recorder.response`."""
        unique = self.recorder.store.environment.new_id().replace("-", "")
        return f"{_RESPONSE}{self.session_id.removeprefix(_SESSION_PREFIX)}{unique}"

    async def stored(self) -> Place:
        """Where the answer goes, once its history is stored. Raises `StoreError`."""
        assert self._beginning is not None, "begin() comes first"
        return await asyncio.shield(self._beginning)

    async def end(self, fact: Fact | None) -> None:
        """Store the answer, or how it failed, before what comes later. It is None if no model was asked.

        Raises `StoreError`.
        """
        if self._beginning is None:
            return
        if self._is_waiting:
            self._answer = fact
            self._has_answer.set()
            await self._beginning
            return
        async with self._order:
            place = await self._beginning
            if fact is not None:
                await self.recorder.store_answer(place, fact)
                self.is_answered = True

    def _header(self, messages: Sequence[Message], *, is_side: bool) -> SessionHeader:
        texts = [text.strip() for message in messages if message.role == "user" for text in _texts(message)]
        # Programs put reminders and descriptions of their environment, in tags, before what the user wrote.
        text = next((text for text in texts if text and not text.startswith("<")), next(iter(texts), ""))
        metadata = {
            "gatewayKey": self._key.name,
            _KEY_ID: self._key.id,
            "client": self._request.format,
            _SIDE: is_side,
        }
        return SessionHeader(title=title_from(text), metadata=metadata)


def _side_header(header: SessionHeader) -> SessionHeader:
    return replace(header, metadata={**(header.metadata or {}), _SIDE: True})


class LiveAnswer:
    """Shows an answer while it arrives to whoever follows its session, in any process on the store.

    It needs the lease of the session, so answers that are short, which is most of those to tools, are not shown. Of
    several answers at the same time in one session, one is shown.
    """

    def __init__(self, conversation: ConversationRecord) -> None:
        self._conversation = conversation
        self._store = conversation.recorder.store
        self._deltas: list[MessageDelta] = []  # until there is a journal
        self._journal: Journal | None = None
        self._lease: Lease | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, delta: MessageDelta) -> None:
        """Show a delta, soon."""
        if self._journal is not None:
            self._journal.add(delta)
            return
        self._deltas.append(delta)
        if self._task is None:
            self._task = asyncio.ensure_future(self._show())

    async def _show(self) -> None:
        recorder = self._conversation.recorder
        with suppress(StoreError):  # the answer is worth more than its preview
            await asyncio.sleep(_SHOWN_AFTER_S)
            place = await self._conversation.stored()
            self._lease = await recorder.lease(place.session_id)
            if self._lease is None or self._conversation.is_answered:
                return
            journal = Journal(self, _JOURNAL_MS)
            journal.begin(place.seq)
            for delta in self._deltas:
                journal.add(delta)
            self._journal = journal
            while True:
                await asyncio.sleep(self._lease.ttl_s / 3)
                await recorder.renew(self._lease)

    async def write_journal(self, batch: MessageDeltaBatch) -> None:
        """Add a batch to the journal of the session. Raises `StoreError`."""
        assert self._lease is not None
        await self._store.write_journal(self._lease, batch)

    async def clear_journal(self) -> None:
        """Empty the journal of the session. Raises `StoreError`."""
        assert self._lease is not None
        await self._store.clear_journal(self._lease)

    async def end(self) -> None:
        """The session has the answer, or the process ends."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._journal is not None:
            await self._journal.close()
        if self._lease is not None:
            with suppress(StoreError):
                await self._conversation.recorder.release(self._lease)


_SHOWN_AFTER_S = 0.3
_JOURNAL_MS = 150


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
    return _session_id(f"{key.id} {name}")


def _session_id(name: str) -> str:
    return f"{_SESSION_PREFIX}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


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
