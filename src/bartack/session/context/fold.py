"""`ContextFold`: the entries of one branch, taken one by one, as the items that a model may be told.

An entry costs the same however many came before it. Two kinds reach back: a compaction lets go of what it summarises,
and a redaction makes what is left anew, so that a session comes to the same whether a redaction was heard while it went
on or was there when it was loaded.
"""

from collections.abc import Iterable
from typing import Self, assert_never

from msgspec.structs import replace

from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    ModelChange,
    Redaction,
    RunStarted,
    SystemPromptOverride,
    ThinkingLevelChange,
)
from bartack.nouns.messages import Message, ModelRef
from bartack.session.context.item import Item, branch_message, summary_message
from bartack.session.context.spoken import spoken
from bartack.session.context.window import Limits, Window
from bartack.session.redaction import REDACTED, redacted

__all__ = ["ContextFold"]

_Setting = RunStarted | ModelChange | SystemPromptOverride | ThinkingLevelChange  # of each, the last one holds
_Told = Message | BranchSummary | CompactionSummary | _Setting


class ContextFold:
    """What the entries so far amount to. Looking changes nothing."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}  # of every entry that was pushed
        self._answers: set[tuple[str, int, int | None]] = set()
        self._hidden: set[str] = set()
        self._entries: list[Entry] = []  # those that still matter, as everybody may see them
        self._clear()

    def _clear(self) -> None:
        self.items: list[Item] = []
        self.instructions: list[Message] = []  # system messages from before the compaction: they are never summarised
        self.summary: Message | None = None
        self.system_prompt: str | None = None  # the override, where one holds
        self.thinking_level: str | None = None
        self.model: ModelRef | None = None
        self._is_declared = False
        self._window: Window | None = None  # the last one asked for; none after a change that is not one item more

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The fold of one branch, in order."""
        fold = cls()
        for entry in entries:
            fold.push(entry)
        return fold

    def push(self, entry: Entry) -> None:
        """Take the next entry of the branch; one that was taken before changes nothing."""
        if entry.id in self._seqs:
            return
        self._seqs[entry.id] = entry.seq
        if isinstance(entry.fact, Redaction):
            self._hide(entry.fact.entry_id)
        elif not self._is_repeat(entry):
            self._take(_without_content(entry) if entry.id in self._hidden else entry)

    def window(self, limits: Limits) -> Window:
        """What of the items fits into these limits. The same limits as before cost only what is new."""
        if self._window is None or self._window.limits != limits:
            self._window = Window(limits)
        for index in range(len(self._window.items), len(self.items)):
            self._window.add(self.items[index])
        return self._window

    def _is_repeat(self, entry: Entry) -> bool:
        """Whether this answer is there already: a run's model call has one answer per attempt (D-7.10)."""
        fact = entry.fact
        meta = fact.meta if isinstance(fact, Message) and fact.role == "assistant" else None
        run_id = entry.run_id or (fact.run_id if isinstance(fact, Message) else None)
        if meta is None or meta.model_call_index is None or run_id is None:
            return False
        key = (run_id, meta.model_call_index, meta.attempt)
        is_repeat = key in self._answers
        self._answers.add(key)
        return is_repeat

    def _hide(self, entry_id: str) -> None:
        self._hidden.add(entry_id)
        seen, self._entries = self._entries, []
        if all(entry.id != entry_id for entry in seen):
            self._entries = seen
            return
        self._clear()
        for entry in seen:
            self._take(_without_content(entry) if entry.id == entry_id else entry)

    def _take(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, _Told) and not (isinstance(fact, RunStarted) and fact.model is None):
            self._entries.append(entry)
            self._add(entry, fact)

    def _add(self, entry: Entry, fact: _Told) -> None:
        match fact:
            case Message():
                self._say(entry, fact)
            case BranchSummary():
                told = branch_message(fact.summary)
                self.items.append(Item(entry.id, entry.seq, told, self.model, is_summary=True))
            case CompactionSummary():
                self._compact(entry, fact)
            case RunStarted() | ModelChange():
                self.model, self._is_declared = fact.model, True
            case SystemPromptOverride():
                # A prompt of which only the placeholder is left instructs nobody: the agent's own holds again.
                self.system_prompt = None if fact.text == REDACTED else fact.text
            case ThinkingLevelChange():
                self.thinking_level = fact.level
            case _:
                assert_never(fact)

    def _say(self, entry: Entry, fact: Message) -> None:
        message = spoken(fact)
        if message is None:
            return
        reported = None
        if message.role == "assistant" and message.meta is not None:
            usage = message.meta.usage
            # No provider reads nothing: a count of zero is one that it did not make.
            reported = usage.input_tokens + usage.output_tokens if usage and usage.input_tokens > 0 else None
            if not self._is_declared:  # an imported session says which models answered, not which were asked
                self.model = message.meta.model
        self.items.append(Item(entry.id, entry.seq, message, self.model, reported))

    def _compact(self, entry: Entry, fact: CompactionSummary) -> None:
        # An id that is not on this branch keeps nothing: the summary tells all that came before it.
        first = self._seqs.get(fact.first_kept_entry_id, entry.seq)
        self._window = None
        self.instructions += [item.message for item in self.items if item.seq < first and item.message.role == "system"]
        self.items = [item for item in self.items if item.seq >= first]
        for item in self.items:
            item.reported = None  # it counted what is now summarised
        self.summary = summary_message(fact.summary)
        self._entries = _remaining(self._entries, first)


def _without_content(entry: Entry) -> Entry:
    return replace(entry, fact=redacted(entry.fact), extra=None)


def _remaining(entries: list[Entry], first: int) -> list[Entry]:
    """The entries that still matter after the compaction at the end of them, which keeps those from `first` on."""
    kept = [entries[-1]]
    settings: set[type] = set()
    for entry in reversed(entries[:-1]):
        fact = entry.fact
        if isinstance(fact, CompactionSummary):
            continue  # it is part of what the new summary tells
        if entry.seq >= first or (isinstance(fact, Message) and fact.role == "system"):
            kept.append(entry)
        elif isinstance(fact, _Setting):
            kind = ModelChange if isinstance(fact, RunStarted) else type(fact)
            if kind not in settings:
                settings.add(kind)
                kept.append(entry)
    return kept[::-1]
