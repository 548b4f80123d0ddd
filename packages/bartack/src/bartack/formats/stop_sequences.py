"""`StopSequences`: ends an answer at the first stop sequence in its text, for a model that cannot do so itself.

OpenAI's Responses API has no such setting, and an agent ignores it. A client that asked for stop sequences relies on
them, as classifiers do whose answer is one short tag. Text that may be the beginning of a sequence is held back until
it is known whether it is one. So the answer does not depend on how the stream was cut: it ends before the sequence that
is complete first, and before the longest of those that end at the same character. A sequence lies within one part, and
thinking is not searched.

What follows the sequence is left out, except for usage and the rest of calls that had begun before.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)

__all__ = ["STOP_SEQUENCE", "StopSequences"]

STOP_SEQUENCE = "stop_sequence"  # the provider's own word for the finish reason; only Anthropic has one


class StopSequences:
    """The deltas of one answer, up to the first stop sequence."""

    def __init__(self, sequences: Iterable[str]) -> None:
        self._sequences = sorted({sequence for sequence in sequences if sequence}, key=len, reverse=True)
        self._held = ""
        self._begins_part = False  # whether the text that is held back begins a new part
        self._calls: set[str] = set()
        self.matched: str | None = None

    def deltas(self, delta: Delta) -> Iterator[Delta]:
        """What a delta becomes."""
        match delta:
            case Start() | Usage():
                yield delta
            case ToolCallArgs() | ToolCallEnd():
                if delta.tool_call_id in self._calls:
                    yield delta
            case Failed() if self.matched is not None:
                yield delta
            case Done() if self.matched is not None:
                yield Done("stop", raw_finish_reason=STOP_SEQUENCE)
            case TextDelta() if self.matched is None:
                if delta.new_part:
                    yield from self._release()
                yield from self._search(delta)
            case ThinkingDelta() | ToolCallStart() | Done() | Failed() if self.matched is None:
                yield from self._release()
                if isinstance(delta, ToolCallStart):
                    self._calls.add(delta.tool_call_id)
                yield delta
            case _:
                pass  # it follows the sequence

    def _release(self) -> Iterator[TextDelta]:
        """The text that was held back, and is no stop sequence."""
        if self._held:
            yield TextDelta(self._held, new_part=self._begins_part)
            self._held = ""
            self._begins_part = False

    def _search(self, delta: TextDelta) -> Iterator[TextDelta]:
        text = self._held + delta.text_delta
        is_new = self._begins_part or delta.new_part
        starts = {sequence: text.find(sequence) for sequence in self._sequences}
        matches = [(start + len(sequence), start) for sequence, start in starts.items() if start >= 0]
        if matches:
            end, start = min(matches)
            self.matched = text[start:end]
            self._held = ""
        else:
            start = len(text) - self._pending_length(text)
            self._held = text[start:]
        if start or delta.continuation:
            yield replace(delta, text_delta=text[:start], new_part=is_new)
            is_new = False
        self._begins_part = is_new

    def _pending_length(self, text: str) -> int:
        """The length of the longest end of the text that a sequence begins with."""
        longest = min(len(text), max(map(len, self._sequences), default=0))
        sizes = range(longest, 0, -1)
        return next((size for size in sizes if any(word.startswith(text[-size:]) for word in self._sequences)), 0)
