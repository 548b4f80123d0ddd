"""Is a session whole? What `bartack sessions fsck` asks of any store, and the mending that an append can do.

`check` reads everything and changes nothing. `repair` puts aside what a crash left half-written and appends a result
for each call that has none; nothing that is stored is ever rewritten.
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
from bartack.store.entries import Entries, peek
from bartack.store.index import results_of
from bartack.store.session_store import Fault, Finding, SessionStore, Tail, next_entries

__all__ = ["REPAIRED", "check", "purge", "repair"]

REPAIRED = "bartack.repaired"
_OWNER = "bartack fsck"


async def check(store: SessionStore, session_id: str | None = None) -> list[Finding]:
    """What is wrong with a session, or with the whole store."""
    if session_id is not None:
        return [*await store.inspect(session_id), *_findings(await store.entries(session_id))]
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
    """Mend what can be mended; gives what is left. `Conflict` while a run has the session's lease."""
    lease = await store.acquire_lease(session_id, _OWNER)
    try:
        await store.inspect(session_id, mend=True)
        await _close_calls(store, session_id)
    finally:
        await store.release_lease(lease)
    return await check(store, session_id)


def _findings(entries: Entries) -> list[Finding]:
    return [*_read(entries), *_calls(entries)]


def _read(entries: Entries) -> Iterator[Finding]:
    """What is wrong with each entry in its place."""
    ids: set[str] = set()
    last = 0
    for seq, text in zip(entries.seqs, entries.texts, strict=False):
        try:
            entry = wire.decode(Entry, text)
        except PartValidationError as error:
            yield _finding(entries, seq, "bad_json", f"not an entry: {error}")
            outside = peek(text)
            ids.update([] if outside is None else [outside.id])
            last = seq
            continue
        for fault, message in _faults(entry, entries.session_id, last, ids):
            yield _finding(entries, entry.seq, fault, message)
        ids.add(entry.id)
        last = max(last, entry.seq)


def _faults(entry: Entry, session_id: str, last: int, ids: set[str]) -> Iterator[tuple[Fault, str]]:
    if entry.session_id != session_id:
        yield "wrong_session", f"entry {entry.id!r} is of session {entry.session_id!r}"
    if entry.seq > last + 1:
        yield "gap", f"seq {last + 1} to {entry.seq - 1} are missing"
    if entry.seq <= last:
        yield "repeat", f"seq {entry.seq} comes after {last}"
    if entry.id in ids:
        yield "repeat", f"entry {entry.id!r} is there twice"
    if entry.parent_id is None and entry.seq > 1:
        yield "broken_parent", f"entry {entry.id!r} has no parent"
    if entry.parent_id is not None and entry.parent_id not in ids:
        yield "broken_parent", f"entry {entry.id!r} names {entry.parent_id!r}, which is not there before it"


def _calls(entries: Entries) -> Iterator[Finding]:
    """Calls and results that do not meet."""
    called: dict[str, int] = {}
    ended: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.fact, Message):
            called.update({call.tool_call_id: entry.seq for call in entry.fact.tool_calls})
        for call_id in results_of(entry.fact):
            if call_id not in called:
                yield _finding(entries, entry.seq, "orphan_result", f"nobody made the call {call_id!r}")
            if call_id in ended:
                yield _finding(entries, entry.seq, "repeat", f"call {call_id!r} ended at seq {ended[call_id]} already")
            ended[call_id] = entry.seq
    for call_id, seq in called.items():
        if call_id not in ended:
            yield _finding(entries, seq, "dangling_call", f"call {call_id!r} has no result", repairable=True)


def _finding(entries: Entries, seq: int, fault: Fault, message: str, *, repairable: bool = False) -> Finding:
    return Finding(session_id=entries.session_id, seq=seq, fault=fault, message=message, repairable=repairable)


async def _close_calls(store: SessionStore, session_id: str) -> None:
    """A result for each open call, at the end of a branch that made it. The newest branch stays the newest."""
    open_calls = {call for entry in await store.entries(session_id) for call in _made(entry)}
    open_calls -= {call for entry in await store.entries(session_id) for call in results_of(entry.fact)}
    *others, newest = await store.heads(session_id)
    wishes: list[tuple[str, list[str]]] = []
    for head in (newest, *others):
        on_branch = [call for entry in await store.load(session_id, head=head) for call in _made(entry)]
        calls = [call for call in on_branch if call in open_calls]
        open_calls.difference_update(calls)
        wishes.append((head, calls))
    for head, calls in reversed(wishes):
        if calls:
            results = [
                ToolResult(call, INTERRUPTED, is_error=True, error_code=ErrorCode.TOOL_INTERRUPTED) for call in calls
            ]
            await _append(store, session_id, head, tool_message(*results))
    if any(calls for _, calls in wishes[1:]) and not wishes[0][1]:
        await _append(store, session_id, newest, Custom(REPAIRED, {"closedCallsOfOtherBranches": True}))


def _made(entry: Entry) -> list[str]:
    if not isinstance(entry.fact, Message):
        return []
    return [call.tool_call_id for call in entry.fact.tool_calls]


async def _append(store: SessionStore, session_id: str, head: str, fact: Message | Custom) -> None:
    tail: Tail = await store.tail_of(session_id)
    entries = next_entries(session_id, tail, [fact], store.environment, parent_id=head)
    await store.append(session_id, entries, tail.entry_id)


async def purge(store: SessionStore, session_id: str, *, everything: bool = False) -> str | None:
    """The id of the session that takes this one's place; None with `everything`, which keeps nothing.

    `Conflict` while a run has the session's lease, or if something was appended meanwhile. After a crash, purging again
    finishes the work.
    """
    lease = await store.acquire_lease(session_id, "bartack purge")
    tail = await store.tail_of(session_id)
    new_id = None
    try:
        if not everything:
            new_id = derived_id(session_id, f"purged/{tail.entry_id}")
            entries = rewritten(new_id, visible(await store.entries(session_id)))
            await store.append(new_id, entries, None)
        await store.drop_session(session_id, expected_tail=tail.entry_id)
    finally:
        try:
            await store.release_lease(lease)
        except NotFound:
            pass  # it went with its session
    return new_id


def rewritten(session_id: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries as those of another session. Gaps are closed; who has lost its parent follows the one before it."""
    made: list[Entry] = []
    ids: set[str] = set()
    for entry in entries:
        parent = entry.parent_id
        if made and parent not in ids:
            parent = made[-1].id
        made.append(replace(entry, session_id=session_id, seq=len(made) + 1, parent_id=parent))
        ids.add(entry.id)
    return made
