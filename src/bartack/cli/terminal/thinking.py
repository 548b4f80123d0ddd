"""The thinking of a model, while it lasts and afterwards. Both screens use it."""

from collections.abc import Callable

from bartack.app.notices import format_seconds
from bartack.app.safe_text import safe_text
from bartack.nouns.deltas import ThinkingDelta

_TAIL = 2_000  # characters; more than the few lines shown while it lasts


class ThinkingBlock:
    """One uninterrupted block of thinking, and its duration."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_at = clock()
        self._ended_at: float | None = None
        self._pieces: list[str] = []
        self._tail = ""

    def add(self, text: str, *, new_part: bool) -> None:
        """Append text; a new part is a paragraph of its own."""
        if new_part and self._pieces:
            text = f"\n\n{text}"
        self._pieces.append(text)
        self._tail = (self._tail + text)[-_TAIL:]

    def end(self) -> None:
        """Stop the clock."""
        self._ended_at = self._ended_at or self._clock()

    @property
    def seconds(self) -> float:
        """The duration so far."""
        return (self._ended_at or self._clock()) - self._started_at

    @property
    def text(self) -> str:
        """All of it, safe to print."""
        self._pieces = ["".join(self._pieces)]
        return safe_text(self._pieces[0]).strip()

    @property
    def tail(self) -> str:
        """The end of it, safe to print."""
        return safe_text(self._tail).strip()

    @property
    def summary(self) -> str:
        """One line about it; empty for a short block without text, which providers also send."""
        if not self.text and self.seconds < 1:
            return ""
        return f"thought for {format_seconds(self.seconds)}{word_count(self.text)}"


class ThinkingTracker:
    """The current block of thinking, the last one, and whether they are shown in full."""

    def __init__(self, clock: Callable[[], float], *, is_expanded: bool) -> None:
        self.is_expanded = is_expanded
        self.current: ThinkingBlock | None = None
        self._last: ThinkingBlock | None = None
        self._clock = clock

    def add(self, delta: ThinkingDelta) -> bool:
        """Take a delta; False if it has no text and starts no block. Providers send such deltas, with data of their
        own, in the middle of an answer."""
        if not delta.text_delta and self.current is None:
            return False
        self.current = self.current or ThinkingBlock(self._clock)
        self.current.add(delta.text_delta, new_part=delta.new_part)
        return True

    def end(self) -> ThinkingBlock | None:
        """End the current block and give it, if it has a summary."""
        block, self.current = self.current, None
        if block is None:
            return None
        block.end()
        self._last = block
        return block if block.summary else None

    def toggle(self) -> bool:
        """Switch between summaries and the full text; gives whether it is the full text now."""
        self.is_expanded = not self.is_expanded
        return self.is_expanded

    @property
    def last_text(self) -> str | None:
        """The text of the current or last block, if it has any."""
        block = self.current or self._last
        return None if block is None else block.text or None


def word_count(text: str) -> str:
    """` (2 words)`; empty for a text without words."""
    count = len(text.split())
    return f" ({count} word{'s' if count != 1 else ''})" if count else ""
