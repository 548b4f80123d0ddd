"""Drafts: answers in progress through a gateway, in files, which outlive the process and can be read while they grow.

An answer is stored in its session when it has ended. Until then, its deltas are appended to a file of its own before
the bytes that they became are sent: one write for all that is sent together, which takes microseconds, where a store
would take milliseconds. The file outlives the process, though not necessarily the machine. It is deleted once the
session has the answer.

A gateway that starts stores the drafts of those that have died (`bartack_server.gateway.drafts`). `follow_drafts` shows
a draft to whoever follows its session on the same machine.

The first line of a file names its process, its session and its place in it; each further line is a delta. The last line
may be incomplete. The name of the file begins with the session.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from bartack.environment import Environment
from bartack.events import LiveDeltas, LiveEntry, LiveEvent, LiveReset
from bartack.nouns import wire
from bartack.nouns.deltas import Delta, MessageDelta, Start
from bartack.nouns.errors import BartackError, PartValidationError
from bartack.nouns.noun import Noun
from bartack.store.address import StoreAddress, default_path
from bartack.store.files import write_all
from bartack.store.leases import Holder, is_dead, this_process
from bartack.store.live import Position, ends_answer
from bartack.store.session_store import SessionStore
from bartack.stream.assembler import MessageAssembler

__all__ = [
    "DRAFT",
    "SESSION_PREFIX",
    "AnswerDraft",
    "DraftHeader",
    "answered_sessions",
    "deltas_in",
    "drafts_folder",
    "follow_drafts",
]

SESSION_PREFIX = "gateway-"  # Only sessions with such ids have drafts.
DRAFT = "draft"  # the run of the deltas: an answer through a gateway has none
_POLL_S = 0.1


def drafts_folder(address: StoreAddress) -> Path | None:
    """Where gateways on this machine keep the drafts for a store; None for one that does not outlive its process."""
    match address.kind:
        case "memory":
            return None
        case "postgres":
            return (
                default_path().with_name("gateway-drafts") / hashlib.sha256(address.display.encode()).hexdigest()[:16]
            )
        case _:
            assert address.path is not None
            return address.path.with_name(f"{address.path.name}-gateway-drafts")


class DraftHeader(Noun, frozen=True, kw_only=True):
    """The first line of a draft."""

    holder: Holder
    session_id: str
    parent_id: str  # the entry that the answer follows
    generation: int  # the seq of the session's last entry when the answer began
    response_id: str | None = None


# -- writing


class AnswerDraft:
    """The file of one answer. It is created by the first `flush`."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self._folder = folder
        self._environment = environment
        self._deltas: list[Delta] = []
        self._seq = 0
        self._path: Path | None = None
        self._descriptor: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not self._deltas

    def add(self, deltas: Iterable[Delta]) -> None:
        """Add deltas whose bytes are about to be sent."""
        self._deltas += deltas

    def flush(self, session_id: str, parent_id: str, generation: int, response_id: str | None) -> None:
        """Write what was added. Raises `OSError`."""
        lines: list[bytes] = []
        if self._descriptor is None:
            self._path = self._folder / f"{session_id}.{self._environment.new_id()}.jsonl"
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            header = DraftHeader(
                holder=this_process(),
                session_id=session_id,
                parent_id=parent_id,
                generation=generation,
                response_id=response_id,
            )
            lines.append(wire.encode(header))
        now = self._environment.now()
        for delta in self._deltas:
            lines.append(wire.encode(MessageDelta(DRAFT, self._seq, delta, now)))
            self._seq += 1
        self._deltas.clear()
        write_all(self._descriptor, b"".join(line + b"\n" for line in lines))

    def restart(self) -> None:
        """Forget everything: another upstream answers."""
        self.delete()
        self._deltas.clear()
        self._seq = 0

    def delete(self) -> None:
        """Delete the file: the session has the answer."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and leave it for the next gateway."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# -- reading


def deltas_in(lines: Iterable[bytes]) -> Iterator[MessageDelta]:
    """The deltas of these lines, up to one of which only a part was written."""
    for line in lines:
        try:
            yield wire.decode(MessageDelta, line)
        except PartValidationError:
            return


def answered_sessions(folder: Path) -> dict[str, str]:
    """The sessions in which gateways on this machine are answering, with the model that answers."""
    sessions: dict[str, str] = {}
    for path in _paths(folder):
        with suppress(FileNotFoundError, PartValidationError), path.open("rb") as file:  # it has just ended, or begun
            header = wire.decode(DraftHeader, file.readline())
            start = wire.decode(MessageDelta, file.readline()).delta
            if not is_dead(header.holder):
                sessions[header.session_id] = start.model_id if isinstance(start, Start) else ""
    return sessions


def _paths(folder: Path) -> list[Path]:
    """The drafts in a folder, which no gateway may have created yet."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


class _GrowingDraft:
    """A draft that someone else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: DraftHeader | None = None  # None: not written yet
        self._offset = 0
        self.assembler = MessageAssembler(DRAFT)

    def read(self) -> Sequence[MessageDelta]:
        """The deltas that are new.

        Raises `FileNotFoundError` once the session has the answer, and `BartackError` for deltas of an upstream that
        break the contract.
        """
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data, _, _ = file.read().rpartition(b"\n")
        lines = data.split(b"\n") if data else []
        self._offset += sum(len(line) + 1 for line in lines)
        if self.header is None and lines:
            self.header = wire.decode(DraftHeader, lines.pop(0))
        deltas = tuple(deltas_in(lines))
        for delta in deltas:
            self.assembler.consume(delta)
        return deltas


class _SessionDrafts:
    """The answers in progress of one session, one at a time, as live events."""

    def __init__(self, store: SessionStore, folder: Path, session_id: str, position: Position) -> None:
        self._store = store
        self._folder = folder
        self._session_id = session_id
        self._position = position
        self._draft: _GrowingDraft | None = None
        self._past: set[Path] = set()  # drafts of answers that the follower has, or will get as a whole

    def passed(self, event: LiveEvent) -> None:
        """Note an event of the store, which the follower has received."""
        self._position = Position.parse(event.position)
        draft = self._draft
        if draft is None or draft.header is None or not isinstance(event, LiveEntry):
            return
        if event.entry.seq > draft.header.generation and ends_answer(event.entry.fact):
            self._leave(draft)

    async def read(self) -> Sequence[LiveEvent]:
        """What has arrived since the last time."""
        draft = self._draft = self._draft or self._latest()
        if draft is None:
            return ()
        is_first = draft.header is None
        try:
            deltas = draft.read()
        except (FileNotFoundError, BartackError):  # the session has the answer, or will get it as one that failed
            self._leave(draft)
            return ()
        header = draft.header
        if header is None:
            return ()
        if header.generation > self._position.entry_seq:  # the entries before the answer come first
            self._draft = None
            return ()
        if is_first and await self._has_answer(header):
            self._leave(draft)
            return ()
        before = self._position
        is_known = (before.run_id, before.generation) == (DRAFT, header.generation)
        new_deltas = tuple(delta for delta in deltas if not is_known or delta.seq > before.seq)
        if not new_deltas:
            return ()
        position = self._position = Position(before.entry_seq, DRAFT, header.generation, new_deltas[-1].seq)
        if is_known:
            return (LiveDeltas(str(position), new_deltas),)
        return (LiveReset(str(position), draft.assembler.snapshot()),)

    async def _has_answer(self, header: DraftHeader) -> bool:
        """Whether the session has the answer already, which was so before its draft was deleted."""
        later = await self._store.entries(self._session_id, header.generation)
        return any(ends_answer(entry.fact) for entry in later)

    def _latest(self) -> _GrowingDraft | None:
        paths = {path for path in _paths(self._folder) if path.stem.rpartition(".")[0] == self._session_id}
        self._past &= paths
        return _GrowingDraft(max(paths - self._past)) if paths - self._past else None

    def _leave(self, draft: _GrowingDraft) -> None:
        self._past.add(draft.path)
        self._draft = None
        self._position = Position(self._position.entry_seq)


async def follow_drafts(
    store: SessionStore, folder: Path, session_id: str, position: str = ""
) -> AsyncGenerator[LiveEvent, None]:
    """What `SessionStore.follow_live` yields and, between that, the deltas of an answer through a gateway.

    Of several answers at the same time in one session, one is shown while it grows.
    """
    drafts = _SessionDrafts(store, folder, session_id, Position.parse(position))
    async with aclosing(store.follow_live(session_id, position)) as events:  # type: ignore[type-var]
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait((coming,), timeout=_POLL_S)
                if coming.done():
                    event = coming.result()
                    if event is None:
                        return  # the store was closed
                    drafts.passed(event)
                    yield event
                    coming = asyncio.ensure_future(anext(events, None))
                else:
                    for event in await drafts.read():
                        yield event
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
