"""`OpenWork`: what the entries of a session leave open, on all branches: calls, runs and queued messages.

`bartack.store.transfer` closes it after an import, `bartack.store.maintenance` after a crash or damage.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bartack.nouns.entries import Custom, Entry, MessageQueued, Redaction, RunEnded, RunStarted, ToolStarted
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message
from bartack.store.index import results_of

__all__ = ["SCHEDULED", "OpenBranch", "OpenWork", "delivery_id"]

SCHEDULED = "bartack.scheduled"  # the name of a fact with a message that a worker delivers later


def delivery_id(scheduled_id: str) -> str:
    """The id of the entry with which the message of a scheduled entry is delivered."""
    return derived_id(scheduled_id, "delivered")


class OpenBranch(NamedTuple):
    """The end of a branch, and what is open on it. A call that is open on several branches belongs to one of them."""

    head: str
    calls: tuple[str, ...]
    has_run: bool
    run_id: str | None  # of the run


class OpenWork:
    """A fold over the entries of a session, in order of `seq`."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.calls: dict[str, str] = {}  # tool calls without a result -> the entry with the call
        self.started: set[str] = set()  # tool calls that were started
        self.queued: dict[str, None] = {}  # entries with messages that were not delivered, also scheduled ones
        self._deliveries: dict[str, str] = {}  # entries that deliver scheduled ones -> the scheduled ones
        self._runs: dict[str, Entry] = {}  # starts and ends of runs
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
        match entry.fact:
            case Message() as message:
                self._push_message(entry.id, message)
            case ToolStarted(tool_call_id=call):
                self.started.add(call)
            case RunStarted() | RunEnded():
                self._runs[entry.id] = entry
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

    @property
    def has_run(self) -> bool:
        """Whether a run is open on the newest branch."""
        return self._branch(self._tail, ()).has_run

    def branches(self) -> list[OpenBranch]:
        """The branches with open calls, and the newest one, which comes last."""
        newest = set(self._to_root(self._tail))
        calls: dict[str, list[str]] = {}
        for call, entry_id in self.calls.items():
            head = self._tail if entry_id in newest else self._head_after(entry_id)
            calls.setdefault(head, []).append(call)
        of_newest = calls.pop(self._tail, ())
        return [self._branch(head, open_calls) for head, open_calls in (*calls.items(), (self._tail, of_newest))]

    def _branch(self, head: str, calls: Iterable[str]) -> OpenBranch:
        last = next((self._runs[id] for id in self._to_root(head) if id in self._runs), None)
        has_run = last is not None and isinstance(last.fact, RunStarted)
        return OpenBranch(head, tuple(calls), has_run, last.run_id if last is not None and has_run else None)

    def _to_root(self, entry_id: str) -> Iterator[str]:
        """The entry, its parent, and so on. A parent comes before its child, so this ends."""
        while entry_id in self._parents:
            yield entry_id
            entry_id = self._parents[entry_id]

    def _head_after(self, entry_id: str) -> str:
        """The end of a branch with this entry."""
        while entry_id in self._last_children:
            entry_id = self._last_children[entry_id]
        return entry_id
