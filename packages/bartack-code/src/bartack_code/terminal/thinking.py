"""The thinking of a model, while it lasts and afterwards."""

from collections.abc import Callable

from bartack.app.notices import format_seconds
from bartack.app.safe_text import safe_text

_TAIL = 2_000  # characters; more than the few lines shown while it lasts


class ThinkingTracker:
    """The current or last block of thinking, and whether thinking is shown in full."""

    def __init__(self, clock: Callable[[], float], *, is_expanded: bool) -> None:
        self.is_expanded = is_expanded
        self._clock = clock
        self._started_at: float | None = None  # None between blocks
        self._pieces: list[str] = []
        self._tail = ""

    @property
    def is_active(self) -> bool:
        """Whether a block has started and not ended."""
        return self._started_at is not None

    @property
    def seconds(self) -> float:
        """The duration of the current block so far."""
        return 0.0 if self._started_at is None else self._clock() - self._started_at

    @property
    def tail(self) -> str:
        """The end of the block, safe to print."""
        return safe_text(self._tail).strip()

    @property
    def text(self) -> str:
        """All of the block, safe to print."""
        self._pieces = ["".join(self._pieces)]
        return safe_text(self._pieces[0]).strip()

    def start_part(self) -> None:
        """Separate what comes next from the block so far: the model thinks in several parts."""
        if self.is_active:
            self.add("\n\n")

    def add(self, text: str) -> None:
        """Add text to the block, starting it if necessary."""
        if not self.is_active:
            self._started_at, self._pieces, self._tail = self._clock(), [], ""
        self._pieces.append(text)
        self._tail = (self._tail + text)[-_TAIL:]

    def end(self) -> str | None:
        """End the block and return one line about it; None for a short block without text, as some providers send."""
        seconds, was_active = self.seconds, self.is_active
        self._started_at = None
        if not was_active or (not self.text and seconds < 1):
            return None
        return f"thought for {format_seconds(seconds)}{word_count(self.text)}"


def word_count(text: str) -> str:
    """` (2 words)`; empty for a text without words."""
    count = len(text.split())
    return f" ({count} word{'s' if count != 1 else ''})" if count else ""
