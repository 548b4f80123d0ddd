"""`relevant_entries`: which entries of a branch a context depends on.

Everything before the last compaction is summarised, except system messages and the settings that still apply. Facts
about tools, approvals and the ends of runs are never part of a context. Neither kind needs to be read.
"""

from collections.abc import Sequence

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
from bartack.nouns.messages import Message
from bartack.session.outline import Outline, is_readable, last_readable

__all__ = ["relevant_entries"]

_CONTENT = frozenset({Message.kind, BranchSummary.kind, CompactionSummary.kind})
# The last one of each group applies.
_SETTINGS = {
    RunStarted.kind: "model",
    ModelChange.kind: "model",
    SystemPromptOverride.kind: "system prompt",
    ThinkingLevelChange.kind: "thinking level",
}


def relevant_entries(entries: Sequence[Entry], outlines: Sequence[Outline]) -> list[int]:
    """The indexes of the entries to fold, in order; folding them has the same result as folding all entries."""
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
    return setting.kind != RunStarted.kind or setting.payload.model is not None


def _first_kept(entries: Sequence[Entry], outlines: Sequence[Outline]) -> int:
    """The seq of the first entry that is not summarised; 0 if all entries must be folded."""
    found = [index for index, outline in enumerate(outlines) if outline.kind == CompactionSummary.kind]
    compactions = [outlines[index] for index in found if is_readable(entries[index])]
    if not compactions:
        return 0
    seqs = {outline.id: outline.seq for outline in outlines}
    firsts = [min(seqs.get(one.payload.first_kept_entry_id, one.seq), one.seq) for one in compactions]
    # In an imported session, which model answered an earlier message may decide which one is current.
    is_declared = any(
        _SETTINGS.get(outline.kind) == "model" and _has_effect(outline)
        for outline in outlines
        if outline.seq < firsts[-1]
    )
    return firsts[-1] if is_declared and firsts == sorted(firsts) else 0
