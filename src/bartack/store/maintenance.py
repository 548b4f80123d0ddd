"""Checking, repairing and purging sessions, in any store: `bartack sessions fsck` and `bartack sessions purge`.

`check` reads everything and changes nothing. `repair` moves what a crash left half-written to a separate file, and
appends a result for each tool call without one; stored entries are never rewritten. `purge` is the only way to really
remove data.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from bartack.formats.repair import INTERRUPTED
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import ErrorCode, NotFound, PartValidationError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, tool_message
from bartack.nouns.parts import ToolResult
from bartack.session.redaction import visible
from bartack.store.entries import Entries, envelope_of
from bartack.store.index import results_of
from bartack.store.session_store import Finding, FindingKind, Lease, SessionStore, next_entries

__all__ = ["REPAIRED", "check", "purge", "repair"]

REPAIRED = "bartack.repaired"


async def check(store: SessionStore, session_id: str | None = None) -> list[Finding]:
    """The problems of a session, or of the whole store."""
    if session_id is not None:
        findings = list(await store.inspect(session_id))
        entries = await store.entries(session_id)
        return [*findings, *_check_entries(entries), *_check_calls(entries)]
    findings = list(await store.inspect())
    cursor: str | None = None
    while True:
        page = await store.sessions(100, cursor)
        for info in page.items:
            findings += await check(store, info.id)
        cursor = page.cursor
        if cursor is None:
            return findings


async def repair(store: SessionStore, session_id: str) -> list[Finding]:
    """Fix what can be fixed, and return the remaining problems. Raises `Conflict` while the session is in use."""
    lease = await store.acquire_lease(session_id, "bartack fsck")
    try:
        await store.inspect(session_id, repair=True)
        await _close_calls(store, lease)
    finally:
        await store.release_lease(lease)
    return await check(store, session_id)


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


def _check_calls(entries: Entries) -> Iterator[Finding]:
    """Tool calls without a result, and results without a call."""
    called: dict[str, int] = {}
    ended: dict[str, int] = {}
    for entry in entries:
        called.update(dict.fromkeys(_calls_of(entry), entry.seq))
        for call in results_of(entry.fact):
            if call not in called:
                yield _finding(entries, entry.seq, "orphan_result", f"result for unknown call {call!r}")
            if call in ended:
                yield _finding(entries, entry.seq, "repeat", f"call {call!r} already has a result at seq {ended[call]}")
            ended[call] = entry.seq
    for call, seq in called.items():
        if call not in ended:
            yield _finding(entries, seq, "dangling_call", f"call {call!r} has no result", repairable=True)


def _finding(entries: Entries, seq: int, kind: FindingKind, message: str, *, repairable: bool = False) -> Finding:
    return Finding(session_id=entries.session_id, seq=seq, fault=kind, message=message, repairable=repairable)


def _calls_of(entry: Entry) -> list[str]:
    return [call.tool_call_id for call in entry.fact.tool_calls] if isinstance(entry.fact, Message) else []


async def _close_calls(store: SessionStore, lease: Lease) -> None:
    """Append a result for each open call, at the end of a branch with that call. The newest branch stays the newest."""
    session_id = lease.session_id
    entries = await store.entries(session_id)
    open_calls = {call for entry in entries for call in _calls_of(entry)}
    open_calls -= {call for entry in entries for call in results_of(entry.fact)}
    *others, newest = await store.heads(session_id)
    to_close: list[tuple[str, list[str]]] = []
    for head in (newest, *others):
        on_branch = [call for entry in await store.load(session_id, head=head) for call in _calls_of(entry)]
        calls = [call for call in on_branch if call in open_calls]
        open_calls.difference_update(calls)
        to_close.append((head, calls))
    for head, calls in reversed(to_close):
        if calls:
            results = [
                ToolResult(call, INTERRUPTED, is_error=True, error_code=ErrorCode.TOOL_INTERRUPTED) for call in calls
            ]
            await _append(store, lease, head, tool_message(*results))
    if any(calls for _, calls in to_close[1:]) and not to_close[0][1]:
        await _append(store, lease, newest, Custom(REPAIRED, {"closedCallsOfOtherBranches": True}))


async def _append(store: SessionStore, lease: Lease, head: str, fact: Message | Custom) -> None:
    tail = await store.tail_of(lease.session_id)
    entries = next_entries(lease.session_id, tail, [fact], store.environment, parent_id=head)
    await store.append(lease.session_id, entries, tail.entry_id, lease=lease)


async def purge(store: SessionStore, session_id: str, *, everything: bool = False) -> str | None:
    """Rewrite a session without its redacted content, and delete the original; returns the id of the new session.

    Entry ids stay the same. The original's entries, its words in the search index and the blobs that no other session
    uses are deleted. With `everything` nothing is kept, and the result is None. After a crash, purge again.

    Raises:
        Conflict: The session is in use, or was appended to meanwhile.
    """
    lease = await store.acquire_lease(session_id, "bartack purge")
    tail = await store.tail_of(session_id)
    new_id = None
    try:
        if not everything:
            new_id = derived_id(session_id, f"purged/{tail.entry_id}")
            await store.append(new_id, _moved(new_id, visible(await store.entries(session_id))), None)
        await store.drop_session(session_id, expected_tail=tail.entry_id)
    finally:
        try:
            await store.release_lease(lease)
        except NotFound:
            pass  # deleted with its session
    return new_id


def _moved(session_id: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries in another session, without gaps; an entry whose parent is missing follows the one before it."""
    moved: list[Entry] = []
    ids: set[str] = set()
    for entry in entries:
        parent = entry.parent_id
        if moved and parent not in ids:
            parent = moved[-1].id
        moved.append(replace(entry, session_id=session_id, seq=len(moved) + 1, parent_id=parent))
        ids.add(entry.id)
    return moved
