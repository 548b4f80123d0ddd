"""What the entries of a session leave open on all branches (calls, runs and queued messages), and how it is closed.

`OpenWork` is a fold over the entries. `bartack.store.maintenance` closes what a crash or damage has left open. Sessions
that were imported or restored are closed here, with results for open calls and ends for open runs: an imported file may
be from anyone, so nothing in it may act, and a backup is trusted but old, so work that was open in it may have been
completed since.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import Custom, Entry, Fact, MessageQueued, Redaction, RunEnded, RunStarted, ToolStarted
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, tool_message
from bartack.nouns.parts import ToolResult
from bartack.session.outline import SCHEDULED, delivery_id
from bartack.store.index import results_of
from bartack.store.session_store import SessionStore, Tail, next_entries

__all__ = [
    "SCHEDULED",
    "Closing",
    "OpenBranch",
    "OpenWork",
    "Origin",
    "close_session",
    "closing_entries",
    "closing_facts",
    "delivery_id",
]


class OpenBranch(NamedTuple):
    """The end of a branch, and what is open on it. A call that is open on several branches belongs to one of them."""

    head: str
    calls: tuple[str, ...]
    has_run: bool
    run_id: str | None


class OpenWork:
    """A fold over the entries of a session, in order of `seq`."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.calls: dict[str, str] = {}  # tool calls without a result -> the entry with the call
        self.started: set[str] = set()  # tool calls that were started
        self.queued: dict[str, None] = {}  # entries with messages that were not delivered, also scheduled ones
        self._deliveries: dict[str, str] = {}  # entries that deliver scheduled ones -> the scheduled ones
        self._last_runs: dict[str, Entry | None] = {}  # every entry -> the last start or end of a run up to it
        self._parents: dict[str, str] = {}
        self._last_children: dict[str, str] = {}
        self._tail = ""
        for entry in entries:
            self.push(entry)

    def push(self, entry: Entry) -> None:
        """Add the next entry. If its parent is unknown, because that is damaged, it follows the one before it."""
        parent = entry.parent_id if entry.parent_id in self._parents else self._tail
        self._last_children[parent] = entry.id
        self._parents[entry.id] = parent
        self._tail = entry.id
        is_run = isinstance(entry.fact, RunStarted | RunEnded)
        self._last_runs[entry.id] = entry if is_run else self._last_runs.get(parent)
        match entry.fact:
            case Message() as message:
                self._push_message(entry.id, message)
            case ToolStarted(tool_call_id=call):
                self.started.add(call)
            case MessageQueued():
                self.queued[entry.id] = None
                self.queued.pop(self._deliveries.get(entry.id, ""), None)
            case Custom(name=name) if name == SCHEDULED:
                self.queued[entry.id] = None
                self._deliveries[delivery_id(entry.id)] = entry.id
            case Redaction(entry_id=target):
                self.queued.pop(target, None)
            case _:
                pass

    def _push_message(self, entry_id: str, message: Message) -> None:
        if message.role == "assistant":
            self.calls.update((call.tool_call_id, entry_id) for call in message.tool_calls)
        for call in results_of(message):
            self.calls.pop(call, None)
        if message.meta is not None and message.meta.request_id is not None:
            self.queued.pop(message.meta.request_id, None)

    def branches(self) -> list[OpenBranch]:
        """The branches with open calls, and the newest one, which comes last."""
        newest = set(self._to_root(self._tail))
        heads = self._heads()
        calls: dict[str, list[str]] = {}
        for call, entry_id in self.calls.items():
            head = self._tail if entry_id in newest else heads[entry_id]
            calls.setdefault(head, []).append(call)
        of_newest = calls.pop(self._tail, ())
        return [self._branch(head, open_calls) for head, open_calls in (*calls.items(), (self._tail, of_newest))]

    def _branch(self, head: str, calls: Iterable[str]) -> OpenBranch:
        last = self._last_runs.get(head)
        has_run = last is not None and isinstance(last.fact, RunStarted)
        return OpenBranch(head, tuple(calls), has_run, last.run_id if last is not None and has_run else None)

    def _to_root(self, entry_id: str) -> Iterator[str]:
        """The entry, its parent, and so on. A parent comes before its child, so this ends."""
        while entry_id in self._parents:
            yield entry_id
            entry_id = self._parents[entry_id]

    def _heads(self) -> dict[str, str]:
        """The end of a branch with each entry, found from the last entry to the first: no chain is walked twice."""
        heads: dict[str, str] = {}
        for entry_id in reversed(self._parents):
            heads[entry_id] = heads.get(self._last_children.get(entry_id, ""), entry_id)
        return heads


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
    *older, newest = work.branches()
    closed = [closing for branch in older for closing in _closing_branch(work, branch, origin)]
    yield from closed
    withdrawn = (
        [Redaction(entry_id=entry_id, reason=origin) for entry_id in work.queued] if origin == "imported" else []
    )
    last = [*_closing_branch(work, newest, origin), *(Closing(fact) for fact in withdrawn)]
    if closed and not last:  # the newest branch stays the newest
        last.append(Closing(Custom(name=f"bartack.{origin}", data={"closedCallsOfOtherBranches": True})))
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
        facts.append(RunEnded(status="aborted", reason=origin))
    parents = [branch.head, *(None for _ in facts)]
    return [Closing(fact, parent, branch.run_id) for fact, parent in zip(facts, parents, strict=False)]
