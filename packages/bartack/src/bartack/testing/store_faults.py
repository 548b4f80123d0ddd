"""What a store must survive. `kill_writers` kills processes that write to one store, one at a time, while the others
continue; `check_damage` damages what is stored.

Each writer appends batches to a session of its own and to one that all of them share, and records every attempt and its
outcome in a file. A record reaches the operating system before the writer continues, so it survives the kill.
Afterwards:

- every acknowledged entry is stored, byte for byte and exactly once;
- the entries of an append are all there or none is, and seq has no gaps;
- an append in progress can be repeated, and every session can be appended to;
- `bartack.store.maintenance.check` finds nothing.

After each kill, every survivor must get another entry acknowledged: a dead process must not block the others.
"""

import asyncio
import inspect
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, SessionHeader
from bartack.nouns.errors import Conflict, NotFound, StoreError
from bartack.nouns.messages import user
from bartack.store.maintenance import check
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.store.transfer import export_session
from bartack.testing.store_steps import HANG_S, OpenStore, add, opened

__all__ = ["Damage", "KillReport", "check_damage", "kill_writers"]

T = TypeVar("T")

_KILLS_PER_SESSION = 20  # then new sessions are started, so that checking them stays fast
_RETRY_S = 0.02
_PAUSE_S = 0.002  # after an append, so that a fast store does not fill up with more than the kills need

_spawn = get_context("spawn")  # a forked process would share the connections of its parent


class KillReport(msgspec.Struct):
    """What was killed, and what was found afterwards."""

    kills: int = 0
    acknowledged: int = 0  # entries
    faults: list[str] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.acknowledged} acknowledged entries, {len(self.faults)} faults"


class Note(msgspec.Struct):
    """One line of a writer's record: what it tries to append, or the outcome."""

    session_id: str
    outcome: Literal["tried", "stored", "refused", "failed"]
    texts: list[str] = msgspec.field(default_factory=list)  # the entries of an attempt
    error: str = ""


# -- the writer


def _write(open_store: OpenStore, record: Path, sessions: Sequence[str]) -> None:
    asyncio.run(_write_forever(open_store, record, sessions))


async def _write_forever(open_store: OpenStore, record: Path, sessions: Sequence[str]) -> None:
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(value: Note) -> None:
        os.write(descriptor, msgspec.json.encode(value) + b"\n")

    try:
        store = await _retry(open_store)
        await asyncio.gather(*(_write_session(store, session_id, note) for session_id in sessions))
    except StoreError as error:
        note(Note("", "failed", error=f"{type(error).__name__}: {error}"))
        raise


async def _write_session(store: SessionStore, session_id: str, note: Callable[[Note], None]) -> None:
    tail = await _tail(store, session_id)
    for number in count():
        entries = _batch(session_id, tail, number, store)
        note(Note(session_id, "tried", [wire.encode(entry).decode() for entry in entries]))
        try:
            tail = await _retry(partial(store.append, session_id, entries, tail.entry_id))
        except Conflict:  # another writer of a shared session was first
            note(Note(session_id, "refused"))
            tail = await _tail(store, session_id)
        else:
            note(Note(session_id, "stored"))
        await asyncio.sleep(_PAUSE_S)


async def _tail(store: SessionStore, session_id: str) -> Tail:
    try:
        return await _retry(partial(store.tail_of, session_id))
    except NotFound:
        (header,) = next_entries(session_id, None, [SessionHeader()], store.environment)
        return await _retry(partial(store.append, session_id, [header], None))


async def _retry(work: Callable[[], Awaitable[T]]) -> T:
    """The outcome of `work`, which is repeated for as long as it may succeed later."""
    while True:
        try:
            return await work()
        except StoreError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(_RETRY_S)


def _batch(session_id: str, tail: Tail, number: int, store: SessionStore) -> tuple[Entry, ...]:
    """One to three entries."""
    facts = [
        Custom(name="part", data={"number": number, "pad": "x" * (number % 7) * 300}) for _ in range(number % 3 + 1)
    ]
    return next_entries(session_id, tail, facts, store.environment)


# -- the parent


class _WriterProcess:
    """A writer process, and the contents of its record so far."""

    def __init__(self, open_store: OpenStore, record: Path, sessions: Sequence[str]) -> None:
        self._record = record
        self._read = 0
        self.attempts: list[Note] = []  # each with its last known outcome
        self._last: dict[str, Note] = {}  # the last one of each session
        self._acknowledged = 0
        self.error = ""
        self.process = _spawn.Process(target=_write, args=(open_store, record, tuple(sessions)), daemon=True)
        self.process.start()

    def read(self) -> int:
        """Read on; the number of acknowledged appends."""
        for note in self._notes():
            match note.outcome:
                case "tried":
                    self.attempts.append(note)
                    self._last[note.session_id] = note
                case "failed":
                    self.error = note.error
                case outcome:
                    self._last[note.session_id].outcome = outcome
                    self._acknowledged += outcome == "stored"
        return self._acknowledged

    def _notes(self) -> Iterator[Note]:
        if not self._record.exists():
            return
        with self._record.open("rb") as file:
            file.seek(self._read)
            complete, newline, _ = file.read().rpartition(b"\n")
        self._read += len(complete) + len(newline)
        for line in complete.splitlines():
            yield msgspec.json.decode(line, type=Note)

    def wait_beyond(self, acknowledged: int, patience_s: float) -> str:
        """Wait until more appends than these are acknowledged; what went wrong if that does not happen."""
        end = time.monotonic() + patience_s
        while self.read() <= acknowledged:
            if not self.process.is_alive():
                self.read()
                return f"a writer that was not killed exited with status {self.process.exitcode}: {self.error}"
            if time.monotonic() > end:
                return f"a writer that was not killed got nothing acknowledged within {patience_s:.0f} s"
            time.sleep(0.005)
        return ""

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.read()


def kill_writers(
    open_store: OpenStore,
    kills: int,
    *,
    writers: int = 3,
    seed: int = 1,
    patience_s: float = HANG_S,
    disturb: Callable[[int], None] | None = None,
) -> KillReport:
    """Kill this many writers, and check the store after every twenty kills, or up to the first fault.

    `open_store` is pickled, and called in every writer. `disturb` is called with the number of the kill just before it,
    for instance to restart a database server: writers repeat an append whose error is retryable. A survivor that gets
    nothing acknowledged within `patience_s` is a fault. This function blocks: in a coroutine, call it with
    `asyncio.to_thread`.
    """
    report = KillReport()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        while report.kills < kills and not report.faults:
            some = min(_KILLS_PER_SESSION, kills - report.kills)
            _kill_some(
                open_store,
                some,
                report,
                folder=Path(folder),
                writers=writers,
                chance=chance,
                patience_s=patience_s,
                disturb=disturb,
            )
    return report


def _kill_some(
    open_store: OpenStore,
    kills: int,
    report: KillReport,
    *,
    folder: Path,
    writers: int,
    chance: random.Random,
    patience_s: float,
    disturb: Callable[[int], None] | None,
) -> None:
    prefix = Environment().new_id()  # the store may have sessions of an earlier call
    started: list[_WriterProcess] = []

    def start(place: int) -> _WriterProcess:
        record = folder / f"{prefix}-{len(started)}"
        started.append(_WriterProcess(open_store, record, (f"{prefix}-{place}", f"{prefix}-shared")))
        return started[-1]

    asyncio.run(_create(open_store, f"{prefix}-shared"))
    running = [start(place) for place in range(writers)]
    try:
        for number in range(kills):
            place = number % writers
            victim = running[place]
            report.faults += filter(None, [victim.wait_beyond(0, patience_s)])
            time.sleep(chance.uniform(0.0, 0.1))
            if disturb is not None:
                disturb(report.kills)
            victim.kill()
            report.kills += 1
            survivors = [writer for writer in running if writer is not victim]
            report.faults += filter(None, [writer.wait_beyond(writer.read(), patience_s) for writer in survivors])
            if report.faults:
                break
            running[place] = start(place)
    finally:
        for writer in running:
            writer.kill()
    attempts = [attempt for writer in started for attempt in writer.attempts]
    report.acknowledged += sum(len(attempt.texts) for attempt in attempts if attempt.outcome == "stored")
    if not report.faults:  # what has stopped the writers would stop the check, too
        report.faults += asyncio.run(_faults(open_store, attempts))


async def _create(open_store: OpenStore, session_id: str) -> None:
    store = await open_store()
    await store.create_session(session_id)
    await store.close()


async def _faults(open_store: OpenStore, attempts: Sequence[Note]) -> list[str]:
    """What is wrong with the store after these attempts."""
    store = await open_store()
    try:
        faults: list[str] = []
        for session_id in sorted({attempt.session_id for attempt in attempts}):
            mine = [attempt for attempt in attempts if attempt.session_id == session_id]
            faults += [f"{session_id}: {fault}" for fault in await _faults_of(store, session_id, mine)]
        return faults + [f"check: {finding.session_id}: {finding.message}" for finding in await check(store)]
    finally:
        await store.close()


async def _faults_of(store: SessionStore, session_id: str, attempts: Sequence[Note]) -> list[str]:
    try:
        stored = {text.decode() for text in (await store.entries(session_id)).texts}
        faults = [fault for attempt in attempts for fault in _missing(attempt, stored)]
        if faults:
            return faults
        for attempt in attempts:
            if attempt.outcome == "tried":
                await _repeat(store, [wire.decode(Entry, text) for text in attempt.texts])
        await add(store, session_id, Custom(name="after the kills", data={}))
        entries = await store.entries(session_id)
    except StoreError as error:
        return [f"cannot be read or appended to: {error}"]
    if list(entries.seqs) != list(range(1, len(entries) + 1)):
        faults.append("seq has a gap")
    if len({entry.id for entry in entries}) != len(entries):
        faults.append("an entry is stored twice")
    return faults


def _missing(attempt: Note, stored: Set[str]) -> list[str]:
    missing = [text for text in attempt.texts if text not in stored]
    if attempt.outcome == "stored":
        return [f"acknowledged but lost: {text[:120]}" for text in missing]
    if 0 < len(missing) < len(attempt.texts):
        return [f"{len(missing)} of {len(attempt.texts)} entries of one append are missing"]
    return []


async def _repeat(store: SessionStore, entries: Sequence[Entry]) -> None:
    """Append again what was in progress. It may be stored already, and another writer may have been first."""
    try:
        await store.append(entries[0].session_id, entries, entries[0].parent_id)
    except Conflict:
        pass


# -- damage to one session is found, and everything else stays usable

Damage = Callable[[str], Awaitable[None] | None]

_DAMAGED, _INTACT = "damaged", "intact"


async def check_damage(open_store: OpenStore, damage: Damage) -> None:
    """Check that a store survives what `damage` does to it; raises `AssertionError` with the violation.

    `damage` is called while the store is closed, with the id of a session of six entries. It damages how one of them is
    stored, as a failing disk would. Only the entry with seq 3 contains the word ``needle``, and only the one with seq 5
    is so large that a store may keep a part of it elsewhere.

    Afterwards `bartack.store.maintenance.check` must find the damage, but none in another session, which must be usable
    as before. Of the damaged session, the five other entries must still be there. It must be listed, loaded and
    exported without an error, and accept another entry.
    """
    async with opened(open_store) as store:
        sessions = {session_id: await _fill(store, session_id) for session_id in (_DAMAGED, _INTACT)}
        findings = await check(store)
        assert not findings, f"an intact store has the findings {findings}"
    done = damage(_DAMAGED)
    if inspect.isawaitable(done):
        await done
    async with opened(open_store) as store:
        await _check_findings(store)
        try:
            await _check_intact(store, sessions[_INTACT])
        except StoreError as error:
            raise AssertionError(f"damage to one session makes another one unusable: {error}") from error
        try:
            await _check_damaged(store, sessions[_DAMAGED])
        except StoreError as error:
            raise AssertionError(f"a damaged session cannot be used any more: {error}") from error


async def _fill(store: SessionStore, session_id: str) -> list[Entry]:
    facts = [user("one"), user(f"a needle in {session_id}"), user("three"), user(session_id * 10_000), user("five")]
    entries = next_entries(session_id, None, [SessionHeader(title=session_id), *facts], store.environment)
    await store.append(session_id, entries[:1], None)
    for entry in entries[1:]:
        await store.append(session_id, [entry], entry.parent_id)
    return list(entries)


async def _check_findings(store: SessionStore) -> None:
    try:
        findings = await check(store)
    except StoreError as error:
        raise AssertionError(f"the check must report damage, not stop at it: {error}") from error
    assert findings, "the check does not find the damage"
    wrong = [finding for finding in findings if finding.session_id == _INTACT]
    assert not wrong, f"the check finds damage in a session that has none: {wrong}"


async def _check_intact(store: SessionStore, entries: list[Entry]) -> None:
    assert await store.load(_INTACT) == entries, "damage to one session changed another one"
    assert _INTACT in [info.id for info in (await store.sessions()).items], "an intact session is no longer listed"
    hits = [hit.seq for hit in await store.search(f"needle {_INTACT}")]
    assert hits == [3], f"search finds {hits} in an intact session, expected its seq 3"
    await add(store, _INTACT, user("more"))


async def _check_damaged(store: SessionStore, entries: list[Entry]) -> None:
    listed = [info.id for info in (await store.sessions()).items]
    assert _DAMAGED in listed, f"the damaged session is no longer listed, only {listed}"
    for name, readable_ids in {
        "entries": {entry.id for entry in await store.entries(_DAMAGED) if entry in entries},
        "load": {entry.id for entry in await store.load(_DAMAGED) if entry in entries},
    }.items():
        lost = [entry.seq for entry in entries if entry.id not in readable_ids]
        assert len(lost) <= 1, f"one entry was damaged, but {name} does not return those with seq {lost}"
    lines = b"".join([line async for line in export_session(store, _DAMAGED)])
    missing = [entry.seq for entry in entries if entry.id.encode() not in lines]
    assert len(missing) <= 1, f"one entry was damaged, but those with seq {missing} are not exported"
    (added,) = await add(store, _DAMAGED, Custom(name="after the damage", data={}))
    assert (await store.entries(_DAMAGED))[-1] == added, "an entry that was added after the damage is not the last one"
