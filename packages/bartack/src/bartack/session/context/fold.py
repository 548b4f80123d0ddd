"""`ContextFold`: turns the entries of one branch, one by one, into the items of a context.

The cost of an entry does not depend on how many came before it. Two kinds affect earlier items: a compaction removes
what it summarises, and a redaction rebuilds the rest, so that a session gives the same items whether the redaction was
added while it was open or before it was loaded.
"""

from collections.abc import Iterable, Sequence
from typing import Self, assert_never

from msgspec import Struct

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.messages import Message, ModelRef
from bartack.session.context.shortening import for_model
from bartack.session.context.window import ContextItem, Window, WindowLimits, branch_message, summary_message
from bartack.session.outline import Outline, is_readable, last_readable
from bartack.session.redaction import REDACTED, redacted

__all__ = ["ContextFold", "relevant_entries"]

_Setting = RunStarted | ModelChange | SystemPromptOverride | ThinkingLevelChange  # the last one of each applies
_Relevant = BranchSummary | CompactionSummary | _Setting  # besides messages
_Ignored = (  # they are not part of a conversation; redactions are applied before
    SessionHeader
    | ToolStarted
    | ToolProgress
    | ApprovalRequired
    | ApprovalDecided
    | StreamFailed
    | RuntimeInit
    | Redaction
    | MessageDeltaBatch
    | MessageQueued
    | ResultPosted
    | AbortRequested
    | RunEnded
    | Custom
)


class _StillRelevant(Struct, frozen=True, gc=False):
    """What is kept of an entry that is still relevant."""

    id: str
    seq: int
    fact: "Message | _Relevant"


class ContextFold:
    """The state that the entries so far add up to."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}  # the seq of every entry pushed, by id
        self._answers: set[tuple[str, int, int | None]] = set()
        self._redacted: set[str] = set()
        self._relevant: list[_StillRelevant] = []  # with redactions applied
        self._clear()

    def _clear(self) -> None:
        self.items: list[ContextItem] = []
        self.instructions: list[Message] = []  # system messages from before a compaction; they are never summarised
        self.summary: Message | None = None
        self.system_prompt: str | None = None  # the override, if any
        self.thinking_level: str | None = None
        self.model: ModelRef | None = None
        self._model_is_declared = False
        self._window: Window | None = None  # the last one used; reset by any change other than a new item

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The fold of one branch, in order."""
        fold = cls()
        for entry in entries:
            fold.push(entry)
        return fold

    @classmethod
    def of_branch(cls, entries: Sequence[Entry], outlines: Sequence[Outline]) -> Self:
        """The fold of one branch, which reads only the entries that are still relevant."""
        fold = cls()
        relevant = relevant_entries(entries, outlines)
        pushed = set(relevant)
        for index, outline in enumerate(outlines):
            fold._seqs[outline.id] = outline.seq
            if index not in pushed and outline.answer_key is not None:
                fold._answers.add(outline.answer_key)
        declared: bytes | None = None
        for index in relevant:
            outline = outlines[index]
            if outline.kind == RunStarted.kind and outline.model == declared:
                continue  # most runs use the model of the one before
            entry = entries[index]
            fold._push(entry)
            if _SETTINGS.get(outline.kind) == "model" and is_readable(entry):
                declared = outline.model
        return fold

    def push(self, entry: Entry) -> None:
        """Add the next entry of the branch; an entry pushed before is ignored."""
        if entry.id not in self._seqs:
            self._seqs[entry.id] = entry.seq
            self._push(entry)

    def _push(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, Message):  # comes first, like most of what is pushed
            if fact.role == "assistant" and self._is_duplicate(entry, fact):
                return
        elif isinstance(fact, Redaction):
            self._redact(fact.entry_id)
            return
        self._accept(entry.id, entry.seq, redacted(fact) if entry.id in self._redacted else fact)

    def window(self, limits: WindowLimits) -> Window:
        """The items that fit these limits. With the same limits as before, only new items cost time."""
        if self._window is None or self._window.limits != limits:
            self._window = Window(limits)
        for index in range(len(self._window.items), len(self.items)):
            self._window.add(self.items[index])
        return self._window

    def _is_duplicate(self, entry: Entry, answer: Message) -> bool:
        """Whether this answer is already included: a model call has one answer per attempt (D-7.10)."""
        meta = answer.meta
        run_id = entry.run_id or answer.run_id
        if meta is None or meta.model_call_index is None or run_id is None:
            return False
        key = (run_id, meta.model_call_index, meta.attempt)
        is_duplicate = key in self._answers
        self._answers.add(key)
        return is_duplicate

    def _redact(self, entry_id: str) -> None:
        self._redacted.add(entry_id)
        if all(entry.id != entry_id for entry in self._relevant):
            return
        entries, self._relevant = self._relevant, []
        self._clear()
        for entry in entries:
            self._accept(entry.id, entry.seq, redacted(entry.fact) if entry.id == entry_id else entry.fact)

    def _accept(self, id: str, seq: int, fact: "Message | _Relevant | _Ignored") -> None:
        if isinstance(fact, Message):
            self._relevant.append(_StillRelevant(id, seq, fact))
            self._add_message(id, seq, fact)
        elif isinstance(fact, _Relevant) and not (isinstance(fact, RunStarted) and fact.model is None):
            self._relevant.append(_StillRelevant(id, seq, fact))
            self._apply(id, seq, fact)

    def _apply(self, id: str, seq: int, fact: _Relevant) -> None:
        match fact:
            case BranchSummary():
                self.items.append(ContextItem(id, seq, branch_message(fact.summary), self.model, is_summary=True))
            case CompactionSummary():
                self._compact(seq, fact)
            case RunStarted() | ModelChange():
                self.model, self._model_is_declared = fact.model, True
            case SystemPromptOverride():
                # A redacted prompt no longer applies; the agent's own does.
                self.system_prompt = None if fact.text == REDACTED else fact.text
            case ThinkingLevelChange():
                self.thinking_level = fact.level
            case _:
                assert_never(fact)

    def _add_message(self, id: str, seq: int, fact: Message) -> None:
        message = for_model(fact)
        if message is None:
            return
        reported = None
        if message.role == "assistant" and message.meta is not None:
            usage = message.meta.usage
            # Every request has input, so a count of zero means that the provider did not count.
            reported = usage.input_tokens + usage.output_tokens if usage and usage.input_tokens > 0 else None
            if not self._model_is_declared:  # an imported session records only which models answered
                self.model = message.meta.model
        self.items.append(ContextItem(id, seq, message, self.model, reported))

    def _compact(self, seq: int, fact: CompactionSummary) -> None:
        # If the id is not on this branch, the summary replaces everything before it.
        first = min(self._seqs.get(fact.first_kept_entry_id, seq), seq)
        self._window = None
        self.instructions += [item.message for item in self.items if item.seq < first and item.message.role == "system"]
        self.items = [item for item in self.items if item.seq >= first]
        for item in self.items:
            item.reported = None  # it included what is now summarised
        self.summary = summary_message(fact.summary)
        self._relevant = _remaining(self._relevant, first)


def _remaining(entries: list[_StillRelevant], first: int) -> list[_StillRelevant]:
    """The entries still relevant after the compaction at their end, which keeps those from `first` on."""
    remaining = [entries[-1]]
    settings: set[type] = set()
    for entry in reversed(entries[:-1]):
        fact = entry.fact
        if isinstance(fact, CompactionSummary):
            continue  # the new summary includes it
        if entry.seq >= first or (isinstance(fact, Message) and fact.role == "system"):
            remaining.append(entry)
        elif isinstance(fact, _Setting):
            kind = ModelChange if isinstance(fact, RunStarted) else type(fact)
            if kind not in settings:
                settings.add(kind)
                remaining.append(entry)
    return remaining[::-1]


_CONTENT = frozenset({Message.kind, BranchSummary.kind, CompactionSummary.kind})
# The last one of each group applies.
_SETTINGS = {
    RunStarted.kind: "model",
    ModelChange.kind: "model",
    SystemPromptOverride.kind: "system prompt",
    ThinkingLevelChange.kind: "thinking level",
}


def relevant_entries(entries: Sequence[Entry], outlines: Sequence[Outline]) -> list[int]:
    """The indexes of the entries to fold, in order; folding them has the same result as folding all entries.

    Everything before the last compaction is summarised, except system messages and the settings that still apply. Facts
    about tools, approvals and the ends of runs are never part of a context. Neither kind needs to be read.
    """
    first = _first_kept(entries, outlines)
    relevant: list[int] = []
    settings: dict[str, list[int]] = {}  # before `first`
    for index, outline in enumerate(outlines):
        kind, is_kept = outline.kind, outline.seq >= first
        if kind in _CONTENT:
            if is_kept or outline.payload.role == "system":
                relevant.append(index)
        elif kind == Redaction.kind:
            relevant.append(index)
        elif kind in _SETTINGS and _has_effect(outline):
            (relevant if is_kept else settings.setdefault(_SETTINGS[kind], [])).append(index)
    for indexes in settings.values():
        relevant += last_readable(indexes, entries)
    return sorted(relevant)


def _has_effect(setting: Outline) -> bool:
    return setting.kind != RunStarted.kind or setting.model is not None


def _first_kept(entries: Sequence[Entry], outlines: Sequence[Outline]) -> int:
    """The seq of the first entry that is not summarised; 0 if all entries must be folded."""
    places = [index for index, outline in enumerate(outlines) if outline.kind == CompactionSummary.kind]
    compactions = [outlines[index] for index in places if is_readable(entries[index])]
    if not compactions:
        return 0
    seqs = {outline.id: outline.seq for outline in outlines}
    firsts = [
        min(seqs.get(compaction.payload.first_kept_entry_id, compaction.seq), compaction.seq)
        for compaction in compactions
    ]
    # In an imported session, which model answered an earlier message may decide which one is current.
    is_declared = any(
        _SETTINGS.get(outline.kind) == "model" and _has_effect(outline)
        for outline in outlines
        if outline.seq < firsts[-1]
    )
    return firsts[-1] if is_declared and firsts == sorted(firsts) else 0
