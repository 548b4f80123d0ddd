"""Drafts: answers in progress in files, so that a gateway that is killed loses nothing that it has sent.

An answer is stored in its session when it has ended. Until then, its deltas are appended to a file of its own before
the bytes that they became are sent: one write for all that is sent together, which takes microseconds, where a store
would take milliseconds. The file outlives the process, though not necessarily the machine. It is deleted once the
session has the answer.

The first line of a file names its process and the place of the answer, or the question if the store did not have that
yet; each further line is a delta. The last line may be incomplete.

A gateway that starts stores the drafts of processes that have died: a complete answer as it is, any other as one that
failed.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.deltas import Delta, Failed, MessageDelta
from bartack.nouns.entries import Fact, StreamFailed
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun
from bartack.nouns.tables import AssemblyStatus
from bartack.store.address import StoreAddress, default_path
from bartack.store.files import make_folder, write_all
from bartack.store.leases import Holder, is_dead, this_process
from bartack.stream.assembler import MessageAssembler
from bartack_server.gateway.recording import ConversationRecord, Place, Question, Recorder, answer_fact, failed_attempts

__all__ = ["AnswerDraft", "Drafts", "drafts_folder"]

_log = logger("gateway")
_DRAFT = "draft"  # the run of the deltas: an answer through a gateway has none
_ABANDONED_S = 3600.0  # without a change; for processes of another boot or container, which cannot be looked up
_INTERRUPTED = Failed(ErrorCode.STREAM_TRUNCATED, "The gateway ended while the answer was arriving.")


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


class _Header(Noun, frozen=True, kw_only=True):
    """The first line of a draft."""

    holder: Holder
    place: tuple[str, str] | None = None  # the session, and its entry that the answer follows
    question: Question | None = None  # what to store first, if that was not done
    response_id: str | None = None


class AnswerDraft:
    """The file of one answer. It is created by the first `flush`."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self._folder = folder
        self._environment = environment
        self._deltas: list[Delta] = []
        self._seq = 0
        self._path: Path | None = None
        self._descriptor: int | None = None

    def add(self, deltas: Iterable[Delta]) -> None:
        """Add deltas whose bytes are about to be sent."""
        self._deltas += deltas

    def flush(self, conversation: ConversationRecord, response_id: str | None) -> None:
        """Write what was added. Raises `OSError`."""
        if not self._deltas:
            return
        lines: list[bytes] = []
        if self._descriptor is None:
            self._path = self._folder / f"{self._environment.new_id()}.jsonl"
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            place = conversation.place
            header = _Header(
                holder=this_process(),
                place=None if place is None else (place.session_id, place.entry_id),
                question=conversation.question if place is None else None,
                response_id=response_id,
            )
            lines.append(wire.encode(header))
        now = self._environment.now()
        for delta in self._deltas:
            lines.append(wire.encode(MessageDelta(_DRAFT, self._seq, delta, now)))
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


class Drafts:
    """The drafts in one folder, of any number of gateways on this machine."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        """Creates the folder. Raises `StoreError`, or `OSError`."""
        make_folder(folder)
        self._folder = folder
        self._recorder = recorder

    def new(self) -> AnswerDraft:
        """A draft for an answer."""
        return AnswerDraft(self._folder, self._recorder.store.environment)

    async def recover(self) -> None:
        """Store the answers of gateways that have died."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with suppress(FileNotFoundError), _claimed(path) as is_claimed:  # unless another gateway was faster
                if is_claimed:
                    await self._recover(path)

    async def _recover(self, path: Path) -> None:
        abandoned = _abandoned(path)
        if abandoned is None:
            return
        header, fact = abandoned
        try:
            place = None if header.place is None else Place(*header.place)
            if header.question is not None:
                place = await self._recorder.record(header.question)
            if place is not None and not await self._has(place, fact):
                await self._recorder.store_answer(place, fact)
        except StoreError as error:
            _log.error("The answer in %s could not be stored: %s", path, error)
        else:
            _delete(path)

    async def _has(self, place: Place, fact: Fact) -> bool:
        """Whether the gateway died between storing the answer and deleting its draft."""
        entries = await self._recorder.store.entries(place.session_id)
        parents = failed_attempts(entries, place.entry_id)
        others = (entry.fact for entry in entries if entry.parent_id in parents)
        return any(isinstance(other, Message | StreamFailed) and other.parts == _parts(fact) for other in others)


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Keep other gateways that start from recovering a draft at the same time; False if one of them already does."""
    with path.open("rb") as file:
        if sys.platform != "win32":  # where only one gateway at a time can have a port
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
        yield True


def _abandoned(path: Path) -> tuple[_Header, Fact] | None:
    """What a draft contains if its process has died; None if it may still be written."""
    first, *lines = path.read_bytes().split(b"\n")
    try:
        header = wire.decode(_Header, first)
    except PartValidationError:
        return None  # just created
    if not is_dead(header.holder) and time.time() - path.stat().st_mtime < _ABANDONED_S:
        return None
    return header, _assembled(lines, header)


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)


def _parts(fact: Fact) -> object:
    return fact.parts if isinstance(fact, Message | StreamFailed) else None


def _assembled(lines: Iterable[bytes], header: _Header) -> Fact:
    assembler = MessageAssembler(_DRAFT)
    with suppress(BartackError):  # a delta that the contract refused when it was received
        for delta in _deltas_in(lines):
            assembler.consume(delta)
    error = None if assembler.status is AssemblyStatus.DONE else assembler.get_error() or _INTERRUPTED
    return answer_fact(assembler, error, header.response_id)


def _deltas_in(lines: Iterable[bytes]) -> Iterator[MessageDelta]:
    """The deltas of these lines, up to one of which only a part was written."""
    for line in lines:
        try:
            yield wire.decode(MessageDelta, line)
        except PartValidationError:
            return
