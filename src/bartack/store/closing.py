"""Closes a session that was imported or restored: adds results for its open calls, and ends its open runs.

An imported file may be from anyone, so nothing in it may act. A backup is trusted but old: work that was open in it may
have been completed since.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import Custom, Entry, Fact, Redaction, RunEnded
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import tool_message
from bartack.nouns.parts import ToolResult
from bartack.store.open_work import OpenBranch, OpenWork
from bartack.store.session_store import SessionStore, Tail, next_entries

__all__ = ["Closing", "Origin", "close_session", "closing_entries", "closing_facts"]

Origin = Literal["imported", "restored"]

_NOT_RUN = "Not executed: the session was imported before this call was started."


class Closing(NamedTuple):
    """A fact that closes something."""

    fact: Fact
    parent_id: str | None = None  # None: the entry before it
    run_id: str | None = None


async def close_session(store: SessionStore, session_id: str, origin: Origin) -> None:
    """Close what a stored session leaves open."""
    tail = await store.tail_of(session_id)
    work = OpenWork(await store.entries(session_id))
    entries = closing_entries(session_id, tail, closing_facts(work, origin), store)
    if entries:
        await store.append(session_id, entries, tail.entry_id)


def closing_entries(session_id: str, tail: Tail, closing: Iterable[Closing], store: SessionStore) -> list[Entry]:
    """The facts as entries after this tail."""
    entries: list[Entry] = []
    for fact, parent_id, run_id in closing:
        entries += next_entries(session_id, tail, [fact], store.environment, parent_id=parent_id, run_id=run_id)
        tail = Tail(entries[-1].id, entries[-1].seq)
    return entries


def closing_facts(work: OpenWork, origin: Origin) -> Iterator[Closing]:
    """The facts that close everything open. Queued messages of an import are withdrawn; those of a backup are kept."""
    *others, newest = work.branches()
    closed = [one for branch in others for one in _closing_branch(work, branch, origin)]
    yield from closed
    withdrawn = [Redaction(entry_id, reason=origin) for entry_id in work.queued] if origin == "imported" else []
    last = [*_closing_branch(work, newest, origin), *(Closing(fact) for fact in withdrawn)]
    if closed and not last:  # the newest branch stays the newest
        last.append(Closing(Custom(f"bartack.{origin}", {"closedCallsOfOtherBranches": True})))
    if last:
        yield last[0]._replace(parent_id=newest.head)
        yield from last[1:]


def _closing_branch(work: OpenWork, branch: OpenBranch, origin: Origin) -> list[Closing]:
    facts: list[Fact] = []
    for call in branch.calls:
        may_have_run = origin == "restored" or call in work.started
        code = ErrorCode.TOOL_INTERRUPTED if may_have_run else ErrorCode.TOOL_NOT_RUN
        result = ToolResult(call, INTERRUPTED if may_have_run else _NOT_RUN, is_error=True, error_code=code)
        facts.append(tool_message(result))
    if branch.has_run:
        facts.append(RunEnded("aborted", reason=origin))
    parents = [branch.head, *(None for _ in facts)]
    return [Closing(fact, parent, branch.run_id) for fact, parent in zip(facts, parents, strict=False)]
