"""Checking, repairing and purging sessions, in any store: `bartack sessions fsck` and `bartack sessions purge`.

`check` reads everything, changes nothing, and reports whatever it cannot read as a finding too. `repair` sets
half-written data aside, appends a result for each tool call without one, and records permanent damage so that it is
reported only once; stored entries are never rewritten. `purge` is the only way to actually remove data.
"""

import glob
import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from msgspec.structs import replace

from bartack.formats.repair import INTERRUPTED
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, Fact, SessionHeader, ToolProgress
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, PartValidationError, StoreError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, tool_message
from bartack.nouns.parts import ToolResult
from bartack.session.outline import REPAIRED
from bartack.session.redaction import is_subagent_session, subagent_sessions, visible
from bartack.session.run_state import SESSION
from bartack.store.entries import Entries, envelope_of
from bartack.store.foreign import is_foreign, mark_foreign, remove_mark
from bartack.store.index import results_of
from bartack.store.open_work import OpenWork
from bartack.store.session_store import (
    RESERVED,
    Finding,
    FindingKind,
    Inspection,
    Lease,
    SessionStore,
    all_sessions,
    next_entries,
)

__all__ = ["Checked", "can_repair", "check", "check_all", "files_with", "purge", "repair"]

_DAMAGE = frozenset({"checksum", "bad_json", "gap", "repeat", "broken_parent", "wrong_session", "damaged"})
_BLOCK = 1024 * 1024  # bytes of a file that are searched at a time

Named = TypeVar("Named", ToolProgress, ToolResult)


@runtime_checkable
class Erasing(Protocol):
    """A store in which deleted content can remain until its files are rewritten."""

    async def erase_deleted(self) -> None:
        """Rewrite the files without the remains of what was deleted."""


class Checked(NamedTuple):
    """The result of `check_all`: how many sessions were checked, which of them a run is using, which were repaired, and
    what is wrong."""

    sessions: int
    live: tuple[str, ...]
    repaired: tuple[str, ...]
    findings: tuple[Finding, ...]


async def check(store: SessionStore, session_id: str | None = None) -> list[Finding]:
    """The problems of a session, or of the whole store."""
    if session_id is None:
        return list((await check_all(store)).findings)
    return (await _check(store, session_id)).findings


class _CheckedSession(NamedTuple):
    findings: list[Finding]
    is_live: bool


async def _check(store: SessionStore, session_id: str, *, is_ours: bool = False) -> _CheckedSession:
    """`is_ours`: the caller holds the lease, so that no run can be live."""
    findings, entries, lease = await _inspected(session_id, store.inspect(session_id))
    is_live = lease is not None and not is_ours
    if entries is None:
        return _CheckedSession(list(findings), is_live)
    recorded = _known(entries)
    problems = [*findings, *_check_entries(entries), *_check_calls(entries, is_live=is_live)]
    return _CheckedSession([finding for finding in problems if _key(finding) not in recorded], is_live)


async def check_all(
    store: SessionStore,
    sessions: Sequence[str] | None = None,
    *,
    do_repair: bool = False,
    on_session: Callable[[], None] = lambda: None,
) -> Checked:
    """Check these sessions, or the whole store, and repair what can be repaired. `on_session` is called after each
    session.
    """
    findings = [] if sessions else await _store_findings(store)
    if do_repair and any(can_repair(finding) for finding in findings):
        findings = await _repair_store(store, findings)
    names = list(sessions or ())
    if not sessions:
        try:
            names = [info.id for kind in (False, True) async for info in all_sessions(store, reserved=kind)]
        except StoreError as error:
            findings.append(_unreadable(None, error))
    count = 0
    live: list[str] = []
    repaired: list[str] = []
    for name in names:
        try:
            problems, is_live = await _check(store, name)
            # The records of Bartack itself consist of what others append to them: a note would not belong there.
            if do_repair and not name.startswith(RESERVED) and any(can_repair(finding) for finding in problems):
                problems, is_repaired = await _repair_if_free(store, name, problems)
                repaired += [name] * is_repaired
        except NotFound:
            if sessions:
                raise
            continue  # deleted since it was listed
        count += 1
        live += [name] * is_live
        findings += problems
        on_session()
    return Checked(count, tuple(live), tuple(repaired), tuple(findings))


async def _repair_if_free(store: SessionStore, session_id: str, findings: list[Finding]) -> tuple[list[Finding], bool]:
    """The remaining problems, and whether the session was repaired. Raises `NotFound`."""
    try:
        return await repair(store, session_id), True
    except NotFound:
        raise
    except StoreError as error:  # the session may be in use
        message = f"not repaired: {error.message}"
        return [*findings, Finding(session_id=session_id, fault="damaged", message=message)], False


async def _inspected(session_id: str | None, inspection: Awaitable[Inspection]) -> Inspection:
    """The inspection; a store that cannot be read is itself a finding. Raises `NotFound`."""
    try:
        return await inspection
    except NotFound:
        raise
    except StoreError as error:
        return Inspection((_unreadable(session_id, error),))


async def _store_findings(store: SessionStore) -> list[Finding]:
    return list((await _inspected(None, store.inspect())).findings)


def _unreadable(session_id: str | None, error: StoreError) -> Finding:
    return Finding(session_id=session_id, fault="damaged", message=f"cannot be read: {error.message}")


def can_repair(finding: Finding) -> bool:
    """Whether `repair` fixes the problem, or records it as known because the damage is permanent."""
    return finding.repairable or (finding.fault in _DAMAGE and finding.seq is not None)


async def _repair_store(store: SessionStore, findings: Sequence[Finding]) -> list[Finding]:
    """Repair the store as a whole, and sessions that are not listed because nothing of them can be read."""
    for name in dict.fromkeys(finding.session_id for finding in findings if can_repair(finding)):
        with suppress(NotFound):  # nothing can be read of it, or it was deleted
            await _inspected(name, store.inspect(name, repair=True))
    return await _store_findings(store)


async def repair(store: SessionStore, session_id: str) -> list[Finding]:
    """Fix what can be fixed, record what cannot, and return the remaining problems.

    Raises `Conflict` while the session is in use.
    """
    earlier = await check(store, session_id)
    lease = await store.acquire_lease(session_id, "bartack fsck")
    try:
        await store.inspect(session_id, repair=True)
        await _close_calls(store, lease)
        findings, _ = await _check(store, session_id, is_ours=True)
        await _record_damage(
            store, lease, [*earlier, *findings], [finding for finding in findings if finding.fault == "dangling_call"]
        )
    finally:
        await store.release_lease(lease)
    return await check(store, session_id)


async def _record_damage(
    store: SessionStore, lease: Lease, findings: Iterable[Finding], dangling: Iterable[Finding]
) -> None:
    """Append a note about entries that are lost, so that they are not reported again. It ends what it leaves open."""
    damage = {_key(finding): finding for finding in findings if finding.fault in _DAMAGE and can_repair(finding)}
    if damage:
        damage |= {_key(finding): finding for finding in findings if finding.fault == "orphan_result"}
        damage |= {_key(finding): finding for finding in dangling}
        tail = await store.tail_of(lease.session_id)
        note = Custom(name=REPAIRED, data={"damage": [list(key) for key in damage]})
        await _append(store, lease, tail.entry_id, note)


def _key(finding: Finding) -> tuple[int | None, str, str]:
    return finding.seq, finding.fault, finding.message


def _known(entries: Entries) -> set[tuple[object, ...]]:
    """The keys of the findings that a repair has recorded. The note may be from a file, with anything in it."""
    notes = [entries[place].fact for place, text in enumerate(entries.texts) if REPAIRED.encode() in text]
    recorded = [fact.data.get("damage") for fact in notes if isinstance(fact, Custom) and fact.name == REPAIRED]
    return {
        (seq, fault, message)
        for keys in recorded
        if isinstance(keys, list)
        for key in keys
        if isinstance(key, list) and len(key) == 3
        for seq, fault, message in [key]
        if isinstance(seq, int | None) and isinstance(fault, str) and isinstance(message, str)
    }


def _check_entries(entries: Entries) -> Iterator[Finding]:
    """Problems of each entry in its place."""
    ids: set[str] = set()
    last = 0
    for seq, text in zip(entries.seqs, entries.texts, strict=True):
        try:
            entry = wire.decode(Entry, text)
        except PartValidationError as error:
            yield _finding(entries, seq, "bad_json", f"not an entry: {error}")
            envelope = envelope_of(text)
            ids.update([] if envelope is None else [envelope.id])
            last = seq
            continue
        for kind, message in _problems(entry, entries.session_id, last, ids):
            yield _finding(entries, entry.seq, kind, message)
        ids.add(entry.id)
        last = max(last, entry.seq)


def _problems(entry: Entry, session_id: str, last: int, ids: set[str]) -> Iterator[tuple[FindingKind, str]]:
    if entry.session_id != session_id:
        yield "wrong_session", f"entry {entry.id!r} belongs to session {entry.session_id!r}"
    if entry.seq > last + 1:
        yield "gap", f"seq {last + 1} to {entry.seq - 1} are missing"
    if entry.seq <= last:
        yield "repeat", f"seq {entry.seq} comes after {last}"
    if entry.id in ids:
        yield "repeat", f"entry id {entry.id!r} occurs twice"
    if entry.parent_id is None and entry.seq > 1:
        yield "broken_parent", f"entry {entry.id!r} has no parent"
    if entry.parent_id is not None and entry.parent_id not in ids:
        yield "broken_parent", f"the parent {entry.parent_id!r} of entry {entry.id!r} does not exist before it"


def _check_calls(entries: Entries, *, is_live: bool) -> Iterator[Finding]:
    """Tool calls without a result, and results without a call. While a run is live, its calls may have no result yet.

    In a transcript of another program, a call without a result is nothing unusual: such programs leave them behind when
    they are stopped. Nothing executes it, and every request is repaired.
    """
    called: dict[str, int] = {}
    ended: dict[str, int] = {}
    foreign: set[str] = set()
    header = entries[0].fact if entries else None
    is_imported = isinstance(header, SessionHeader) and header.origin is not None
    for entry in entries:
        called.update(dict.fromkeys(_calls_of(entry), entry.seq))
        if is_imported and entry.run_id is None:
            foreign.update(_calls_of(entry))
        for call in results_of(entry.fact):
            if call not in called:
                yield _finding(entries, entry.seq, "orphan_result", f"result for unknown call {call!r}")
            if call in ended:
                yield _finding(entries, entry.seq, "repeat", f"call {call!r} already has a result at seq {ended[call]}")
            ended[call] = entry.seq
    for call, seq in called.items():
        if call not in ended and call not in foreign and not is_live:
            yield _finding(entries, seq, "dangling_call", f"call {call!r} has no result", repairable=True)


def _finding(entries: Entries, seq: int, kind: FindingKind, message: str, *, repairable: bool = False) -> Finding:
    return Finding(session_id=entries.session_id, seq=seq, fault=kind, message=message, repairable=repairable)


def _calls_of(entry: Entry) -> list[str]:
    return [call.tool_call_id for call in entry.fact.tool_calls] if isinstance(entry.fact, Message) else []


async def _close_calls(store: SessionStore, lease: Lease) -> None:
    """Append a result for each open call, at the end of a branch with that call. The newest branch stays the newest."""
    *older, newest = OpenWork(await store.entries(lease.session_id)).branches()
    for branch in (*older, newest):
        head = branch.head
        for call in branch.calls:
            head = await _close_call(store, lease, head, call)
    if older and not newest.calls:
        await _append(store, lease, newest.head, Custom(name=REPAIRED, data={"closedCallsOfOtherBranches": True}))


async def _close_call(store: SessionStore, lease: Lease, head: str, call: str) -> str:
    """Append a result, unless the store has recorded one, which is damaged; the end of the branch after it."""
    result = ToolResult(call, INTERRUPTED, is_error=True, error_code=ErrorCode.TOOL_INTERRUPTED)
    try:
        return await _append(store, lease, head, tool_message(result))
    except Conflict as error:
        if error.tail != (await store.tail_of(lease.session_id)).entry_id:
            raise
        return head


async def _append(store: SessionStore, lease: Lease, head: str, fact: Message | Custom) -> str:
    tail = await store.tail_of(lease.session_id)
    (entry,) = next_entries(lease.session_id, tail, [fact], store.environment, parent_id=head)
    await store.append(lease.session_id, [entry], tail.entry_id, lease=lease)
    return entry.id


async def purge(store: SessionStore, session_id: str, *, everything: bool = False) -> str | None:
    """Rewrite a session without its redacted content, and delete the original; returns the id of the new session.

    Entry ids stay the same. The sessions of its sub-agents are rewritten with it, below the new id. The entries of the
    originals, their words in the search index and the blobs that no other session uses are deleted. With `everything`
    nothing is kept, and the result is None. A SQLite file, or the tables of a PostgreSQL store, are rewritten, because
    deleted content can remain in their pages. After a crash, purge again.

    Raises:
        Conflict: The session is in use, or was appended to meanwhile.
        StoreError: Among others, if the store could not be rewritten, for example because another process does not stop
            reading it. The session is deleted then, and the next purge of any session rewrites the store.
    """
    tail = await store.tail_of(session_id)
    new_id = None if everything else derived_id(session_id, f"purged/{tail.entry_id}")
    await _move(store, session_id, new_id)
    if isinstance(store, Erasing):
        try:
            await store.erase_deleted()
        except StoreError as error:
            outcome = "was deleted" if new_id is None else f"is now {new_id!r}"
            text = f"Session {session_id!r} {outcome}, but the store could not be rewritten: {error.message}"
            raise StoreError(f"{text} Deleted content may remain in it until the next purge.", cause=error) from error
    return new_id


async def _move(store: SessionStore, session_id: str, new_id: str | None) -> None:
    """Move what is visible of a session and of its sub-agents' sessions; without a new id, delete them."""
    lease = await store.acquire_lease(session_id, "bartack purge")
    try:
        tail = await store.tail_of(session_id)
        entries = await store.entries(session_id)
        for inner_id in _sessions_below(session_id, entries):  # first: afterwards, nothing would name them
            with suppress(NotFound):  # in another store, or moved before a crash
                await _move(store, inner_id, None if new_id is None else f"{new_id}{inner_id[len(session_id) :]}")
        if new_id is not None:
            if await is_foreign(store, session_id):
                await mark_foreign(store, new_id)
            await store.append(new_id, _moved(session_id, new_id, visible(entries)), None)
        await store.drop_session(session_id, expected_tail=tail.entry_id)
        await remove_mark(store, session_id)
    finally:
        with suppress(NotFound):  # deleted with its session
            await store.release_lease(lease)


def _sessions_below(session_id: str, entries: Entries) -> list[str]:
    """The sessions of the sub-agents of a session."""
    inner_ids = subagent_sessions(entries, {entry.id for entry in entries})
    return [inner_id for inner_id in inner_ids if is_subagent_session(inner_id, session_id)]


def files_with(path: Path, text: str) -> list[Path]:
    """The files of a store whose raw bytes contain the text, as it is or as JSON escapes it."""
    forms = {json.dumps(text, ensure_ascii=is_ascii)[1:-1].encode(errors="replace") for is_ascii in (False, True)}
    forms.add(text.encode(errors="replace"))
    beside = [file for file in path.parent.glob(f"{glob.escape(path.name)}*") if file != path]
    files = [file for place in (path, *beside) for file in (place, *_files_below(place))]
    return sorted(file for file in files if file.is_file() and _contains(file, forms))


def _files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder that others may be changing; none if it is not a folder. `Path.rglob` would raise."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _contains(file: Path, forms: Collection[bytes]) -> bool:
    """Whether the file contains one of these, also across the blocks in which it is read."""
    overlap = max(map(len, forms))
    block = b""
    try:
        with file.open("rb") as opened:
            while data := opened.read(_BLOCK):
                block = block[-overlap:] + data
                if any(form in block for form in forms):
                    return True
    except FileNotFoundError:  # deleted meanwhile
        pass
    return False


def _moved(old_id: str, session_id: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries in another session, without gaps; an entry whose parent is missing follows the one before it."""
    moved: list[Entry] = []
    ids: set[str] = set()
    for entry in entries:
        parent = entry.parent_id
        if moved and parent not in ids:
            parent = moved[-1].id
        fact = _with_moved_subagent(entry.fact, old_id, session_id)
        moved.append(replace(entry, session_id=session_id, seq=len(moved) + 1, parent_id=parent, fact=fact))
        ids.add(entry.id)
    return moved


def _with_moved_subagent(fact: Fact, old_id: str, session_id: str) -> Fact:
    """The fact with the new id of a sub-agent's session, if it names one."""

    def moved(noun: Named) -> Named:
        inner_id = (noun.metadata or {}).get(SESSION)
        if not is_subagent_session(inner_id, old_id):
            return noun
        return replace(noun, metadata={**(noun.metadata or {}), SESSION: f"{session_id}{inner_id[len(old_id) :]}"})

    match fact:
        case ToolProgress():
            return moved(fact)
        case Message() if fact.tool_results:
            return replace(
                fact, parts=tuple(moved(part) if isinstance(part, ToolResult) else part for part in fact.parts)
            )
        case _:
            return fact
