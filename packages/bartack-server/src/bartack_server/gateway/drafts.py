"""Recovery: a gateway that is killed loses nothing that it has sent.

When a gateway starts, it stores the drafts (`bartack_server.answer_drafts`) of processes that have died: a complete
answer as it is, any other as one that failed.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bartack.nouns import wire
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Fact, StreamFailed
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.tables import AssemblyStatus
from bartack.store.files import make_folder
from bartack.store.leases import is_dead
from bartack.store.session_store import SessionStore
from bartack.stream.assembler import MessageAssembler
from bartack_server.answer_drafts import DRAFT, AnswerDraft, DraftHeader, deltas_in
from bartack_server.gateway.recording import answer_fact, append_after

__all__ = ["Drafts"]

_log = logger("gateway")
_ABANDONED_S = 3600.0  # without a change; for processes of another boot or container, which cannot be looked up
_INTERRUPTED = Failed(ErrorCode.STREAM_TRUNCATED, "The gateway ended while the answer was arriving.")


class Drafts:
    """The drafts in one folder, of any number of gateways on this machine."""

    def __init__(self, folder: Path, store: SessionStore) -> None:
        """Creates the folder. Raises `StoreError`, or `OSError`."""
        make_folder(folder)
        self._folder = folder
        self._store = store

    def new(self) -> AnswerDraft:
        """A draft for an answer."""
        return AnswerDraft(self._folder, self._store.environment)

    async def recover(self) -> None:
        """Store the answers of gateways that have died."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with suppress(FileNotFoundError):  # another gateway was faster
                await self._recover(path)

    async def _recover(self, path: Path) -> None:
        abandoned = _abandoned(path)
        if abandoned is None:
            return
        header, fact = abandoned
        try:
            if not await self._has(header, fact):
                await append_after(self._store, header.session_id, [fact], header.parent_id)
        except StoreError as error:
            _log.error("The answer in %s could not be stored: %s", path, error)
        else:
            _delete(path)

    async def _has(self, header: DraftHeader, fact: Fact) -> bool:
        """Whether the gateway died between storing the answer and deleting its draft."""
        entries = await self._store.entries(header.session_id)
        others = (entry.fact for entry in entries if entry.parent_id == header.parent_id)
        return any(isinstance(other, Message | StreamFailed) and other.parts == _parts(fact) for other in others)


def _abandoned(path: Path) -> tuple[DraftHeader, Fact] | None:
    """What a draft contains if its process has died; None if it may still be written."""
    first, *lines = path.read_bytes().split(b"\n")
    try:
        header = wire.decode(DraftHeader, first)
    except PartValidationError:
        return None  # just created
    if not is_dead(header.holder) and time.time() - path.stat().st_mtime < _ABANDONED_S:
        return None
    return header, _assembled(lines, header)


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)


def _parts(fact: Fact) -> object:
    return fact.parts if isinstance(fact, Message | StreamFailed) else None


def _assembled(lines: Iterable[bytes], header: DraftHeader) -> Fact:
    assembler = MessageAssembler(DRAFT)
    with suppress(BartackError):  # a delta that the contract refused when it was received
        for delta in deltas_in(lines):
            assembler.consume(delta)
    error = None if assembler.status is AssemblyStatus.DONE else assembler.get_error() or _INTERRUPTED
    return answer_fact(assembler, error, header.response_id)
