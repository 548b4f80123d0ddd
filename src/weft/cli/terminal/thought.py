"""One stretch of a model's thinking, while it goes on and after."""

from collections.abc import Callable

from weft.cli.terminal.looks import seconds
from weft.cli.terminal.safe_text import safe_text

__all__ = ["Thought", "words"]


class Thought:
    """Grows with the deltas; knows its words and its time."""

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
        return f"thought for {seconds(self.seconds)}{words(self.text)}"


_TAIL = 2_000  # characters; more than three lines of any window


def words(text: str) -> str:
    """How many words, in brackets; nothing for none."""
    count = len(text.split())
    return f" ({count} word{'s' if count != 1 else ''})" if count else ""
