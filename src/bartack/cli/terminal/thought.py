"""A model's thinking, while it goes on and after; both screens keep it so."""

from collections.abc import Callable

from bartack.cli.terminal.looks import whole_seconds
from bartack.cli.terminal.safe_text import safe_text
from bartack.nouns.deltas import ThinkingDelta

__all__ = ["Thought", "Thoughts", "words"]


_TAIL = 2_000  # characters; more than the few lines that anybody sees of it


class Thought:
    """One stretch of it: grows with the deltas; knows its words and its time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._ended: float | None = None
        self._pieces: list[str] = []
        self._tail = ""

    def add(self, text: str, *, new_part: bool) -> None:
        """The model thinks on; a new part is a paragraph of its own."""
        if new_part and self._pieces:
            text = f"\n\n{text}"
        self._pieces.append(text)
        self._tail = (self._tail + text)[-_TAIL:]

    def end(self) -> None:
        """It is over."""
        self._ended = self._ended or self._clock()

    @property
    def seconds(self) -> float:
        """How long it took, so far."""
        return (self._ended or self._clock()) - self._began

    @property
    def text(self) -> str:
        """All of it, safe to print."""
        self._pieces = ["".join(self._pieces)]
        return safe_text(self._pieces[0]).strip()

    @property
    def tail(self) -> str:
        """Its end, safe to print: as much as anybody sees while it goes on."""
        return safe_text(self._tail).strip()

    @property
    def is_worth_a_line(self) -> bool:
        """Whether there is anything to tell: providers also send thinking without a word."""
        return bool(self.text) or self.seconds >= 1

    @property
    def summary(self) -> str:
        """One line about it."""
        return f"thought for {whole_seconds(self.seconds)}{words(self.text)}"


class Thoughts:
    """The stretch that goes on, the one before it, and whether they are shown in full."""

    def __init__(self, clock: Callable[[], float], *, are_unfolded: bool) -> None:
        self.are_unfolded = are_unfolded
        self.current: Thought | None = None
        self._last: Thought | None = None
        self._clock = clock

    def add(self, delta: ThinkingDelta) -> bool:
        """Take what the model thinks; gives whether it is any thinking. Providers also send their own data so, between
        the words of an answer, and that ends no answer."""
        if not delta.text_delta and self.current is None:
            return False
        self.current = self.current or Thought(self._clock)
        self.current.add(delta.text_delta, new_part=delta.new_part)
        return True

    def end(self) -> Thought | None:
        """The model does something else now: the thought that is over, if it is worth a line."""
        thought, self.current = self.current, None
        if thought is None:
            return None
        thought.end()
        self._last = thought
        return thought if thought.is_worth_a_line else None

    def toggle(self) -> bool:
        """Fold or unfold from here on."""
        self.are_unfolded = not self.are_unfolded
        return self.are_unfolded

    @property
    def last_text(self) -> str | None:
        """All of the last one that has any words."""
        thought = self.current or self._last
        return None if thought is None else thought.text or None


def words(text: str) -> str:
    """How many words, in brackets; nothing for none."""
    count = len(text.split())
    return f" ({count} word{'s' if count != 1 else ''})" if count else ""
