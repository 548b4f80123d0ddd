"""`Journal`: makes an arriving answer readable in other processes, and preserves it if this process dies.

Deltas are collected and written to the store's journal several times a second (`LoopConfig.journal_ms`), with pieces of
text joined, in a separate task: neither a slow store nor a slow reader blocks the model. The journal is a convenience.
A failed write is retried; if it keeps failing, the run is not affected, because the answer ends up in the log.

An attempt at an answer goes through three steps. `begin` names it by its generation (`bartack.store.live`), so that
batches of an earlier attempt, which a slow store may still be writing, cannot be taken for its own. `add` starts the
task that writes, if none is running: it waits for one interval, writes what has gathered, and ends when the model is
silent for an interval. Batches are numbered, and after a failure the same batch is written again under its number,
because the first attempt may have reached the disk. `end` follows once the log has the answer. From then on readers get
the entry, so what was not written yet is dropped, and the journal is cleared in the background; the next attempt does
not write before that is done.

If the process dies instead, the journal stays. The next one to continue the run turns it into a `stream_failed` fact
(`interrupted_answer`), which keeps the text and the usage of the lost answer, unless the log has ended that answer.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from bartack.agent.run_log import start
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.entries import Fact, MessageDeltaBatch, StreamFailed
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.session.run_state import RunState
from bartack.store.live import assembled, ends_answer
from bartack.store.session_store import SessionStore

__all__ = ["INTERRUPTED", "Journal", "interrupted_answer"]

INTERRUPTED = Failed(ErrorCode.STREAM_TRUNCATED, "The process ended while the answer was arriving.")


class JournalLog(Protocol):
    """Writes to the journal of a session whose lease it has."""

    async def write_journal(self, batch: MessageDeltaBatch) -> None: ...
    async def clear_journal(self) -> None: ...


class Journal:
    """The journal of the answers of one run, one after the other."""

    def __init__(self, log: JournalLog, interval_ms: int) -> None:
        self._log = log
        self._interval_s = interval_ms / 1000
        self._generation = 0
        self._number = 0
        self._has_written = False  # since the journal was cleared
        self._deltas: list[MessageDelta] = []
        self._writing: asyncio.Task[None] | None = None
        self._clearing: asyncio.Task[None] | None = None

    def begin(self, generation: int) -> None:
        """The deltas that follow belong to a new attempt at an answer."""
        self._generation, self._number = generation, 0

    def add(self, delta: MessageDelta) -> None:
        """Write this delta, soon."""
        self._deltas.append(delta)
        if self._writing is None:
            self._writing = start(self._write())

    async def _write(self) -> None:
        if self._clearing is not None:
            await asyncio.wait([self._clearing])
            self._clearing = None
        await asyncio.sleep(self._interval_s)
        while self._deltas:
            batch = MessageDeltaBatch(
                deltas=tuple(map(_without_raw, self._deltas)), generation=self._generation, number=self._number
            )
            self._deltas.clear()
            await self._store(batch)
            self._number, self._has_written = self._number + 1, True
            await asyncio.sleep(self._interval_s)
        self._writing = None  # the model is silent; the next delta starts a new task

    async def _store(self, batch: MessageDeltaBatch) -> None:
        """Write the batch, and repeat the same one after a failure: the first attempt may have stored it."""
        while True:
            with suppress(StoreError):
                await self._log.write_journal(batch)
                return
            await asyncio.sleep(self._interval_s)

    def end(self) -> None:
        """The answer, or its failure, is in the log."""
        self._deltas.clear()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
            self._has_written = True
        if self._has_written:
            self._has_written = False
            self._clearing = start(self._clear())

    async def _clear(self) -> None:
        with suppress(StoreError):
            await self._log.clear_journal()

    async def close(self) -> None:
        """Empty the journal: the log has what there is of the last answer."""
        self.end()
        if self._clearing is not None:
            await asyncio.wait([self._clearing])


def _without_raw(delta: MessageDelta) -> MessageDelta:
    """The delta without its debugging data, which nothing checks and followers do not need."""
    return delta if delta.provider_raw is None else replace(delta, provider_raw=None)


async def interrupted_answer(store: SessionStore, session_id: str, state: RunState) -> list[Fact]:
    """The journalled part of an answer whose process died, as the fact that keeps it; nothing if there is none."""
    batches = await store.read_journal(session_id)
    if not batches:
        return []
    later = await store.entries(session_id, after_seq=batches[0].generation)
    if any(ends_answer(entry.fact) for entry in later):
        return []
    assembler = assembled(batches)
    meta = assembler.snapshot().meta
    failed = StreamFailed(
        error=INTERRUPTED,
        parts=assembler.parts,
        usage=assembler.usage,
        model=state.model,
        response_id=None if meta is None else meta.response_id,
        model_call_index=state.call_index,
        attempt=state.failed_attempts + 1,
    )
    return [failed]
