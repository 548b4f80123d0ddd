"""`Trail`: what the messages of a request leave behind for the messages after them.

A conversation grows at its end, and most of each request has been sent before. `bartack.formats.request_writer` keeps
the JSON of that part and has only the messages after it encoded, so an encoder may be given the end of a history alone.
Whatever it needs to know about earlier messages, it notes here while it writes them, and finds here when it continues.

An encoder that can continue calls `wrote`. It may assume that its first message is a user's after an answer, or an
answer after tool results, that every call is on the same side as its result, and that a later request continues in the
same way. For example, the encoder of the Responses API notes the item ids that it has written, because an id must not
occur twice.

If what an encoder writes for a message depends on more of what follows, it calls `hold`. If what it has written in an
earlier request would have to change, `PrefixChanged` makes it start from the first message.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

__all__ = ["Facts", "PrefixChanged", "Trail"]

Facts = dict[str, dict[Any, Any]]


class PrefixChanged(Exception):
    """What was written for earlier messages no longer applies: the history has to be encoded from its start."""


class Trail:
    """The facts about earlier messages, by kind and key, and those that this request adds."""

    def __init__(self, first: int = 0, facts: Facts | None = None) -> None:
        """`first` is the index of the first message to write. `facts_before` adds to `facts`."""
        self.first = first
        self.items: list[Any] | None = None  # the list in the body that grows with the messages
        self.starts: list[int] = []  # the index of the first message in each item
        self._end: int | None = None
        self._facts = {} if facts is None else facts
        self._noted: list[tuple[int, str, Any, Any]] = []

    def known(self, kind: str) -> Mapping[Any, Any]:
        """The facts of this kind that earlier messages left, without those noted now."""
        return self._facts.get(kind, {})

    def note(self, index: int, kind: str, key: Any = "", value: Any = None) -> None:
        """Leave a fact about the message at this index; it replaces an earlier one with the same key."""
        self._noted.append((index, kind, key, value))

    def hold(self, index: int) -> None:
        """Declare that messages from this index on may be written differently in a later request."""
        self._end = index if self._end is None else min(self._end, index)

    def wrote(self, items: list[Any], starts: list[int]) -> None:
        """Declare the list in the body that the messages became, and for each of its items the first message in it."""
        self.items, self.starts = items, starts

    def can_end_before(self, index: int) -> bool:
        """Whether the next request may continue with the message at this index."""
        place = bisect_left(self.starts, index)
        is_start = place < len(self.starts) and self.starts[place] == index
        return is_start and (self._end is None or index <= self._end)

    def facts_before(self, index: int) -> Facts:
        """All facts about messages before this index."""
        for place, kind, key, value in self._noted:
            if place < index:
                self._facts.setdefault(kind, {})[key] = value
        return self._facts
