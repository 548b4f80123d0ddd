"""How a request body differs from the request, and why.

An encoder writes the provider's body and adds to `Losses` whatever the provider cannot receive: unsupported settings
and media, and continuation data of other providers, which is sent back only to the provider it came from. Text that was
added, and content that was moved to another message, is recorded as well.

**The trail.** `Trail` is what the messages of a request leave behind for the messages after them.
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
from typing import Any, Literal

from msgspec import convert

from bartack.nouns.noun import Noun
from bartack.nouns.parts import Continuation, Part, Thinking

__all__ = ["Encoded", "Facts", "Loss", "LossReport", "Losses", "PrefixChanged", "Trail"]


class Loss(Noun, frozen=True, kw_only=True):
    """One thing that was not sent to the provider, that was added for it, or that was moved to another message."""

    where: str  # a path such as messages[3].parts[0]
    what: str
    why: str
    action: Literal["dropped", "added", "moved"] = "dropped"


class LossReport(Noun, frozen=True):
    """Everything left out of one request, added to it, or moved in it."""

    losses: tuple[Loss, ...] = ()


class Encoded(Noun, frozen=True):
    """A request body, and what was left out of it."""

    body: dict[str, Any]
    report: LossReport


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


class Losses:
    """Collects losses while a request is encoded, next to what the encoder notes for later messages."""

    def __init__(self, provider: str, trail: Trail | None = None) -> None:
        self.provider = provider
        self.trail: Trail = trail or Trail()
        self.found: list[Loss] = []
        self._shape: Any = dict[str, Any]

    def expect(self, shape: Any) -> None:
        """Declare the continuation data that the encoder reads, as a `TypedDict` whose keys may all be missing.

        What a provider sent is stored as it came, and may have any type. Values of another type are not sent back.
        """
        self._shape = shape

    def add(self, where: str, what: str, why: str, *, action: Literal["dropped", "added", "moved"] = "dropped") -> None:
        """Record that this was left out, added or moved."""
        self.found.append(Loss(where=where, what=what, why=why, action=action))

    def moved_media(self, where: str) -> None:
        """Record that the media of a tool result follow in the user's turn."""
        why = "not accepted in a tool result; sent as content of the user after it"
        self.add(where, "media of a tool result", why, action="moved")

    def own_data(self, part: Part) -> dict[str, Any]:
        """The part's continuation data if it belongs to this provider, else empty; no loss is recorded."""
        continuation = part.continuation
        if continuation is None or continuation.provider != self.provider:
            return {}
        return self._fitting(continuation.data)

    def continuation(self, where: str, continuation: Continuation | None) -> dict[str, Any]:
        """The continuation data to send back; empty if it belongs to another provider, which is recorded as a loss."""
        if continuation is None:
            return {}
        if continuation.provider != self.provider:
            self.add(where, "continuation data", f"it belongs to {continuation.provider}")
            return {}
        return self._fitting(continuation.data, where)

    def thinking(self, where: str, part: Thinking) -> dict[str, Any] | None:
        """The continuation data of thinking to send back; None, recorded as a loss, if another provider made it.

        Another model's reasoning is never sent: this model would take it for its own.
        """
        if part.continuation is None:
            self.add(where, "thinking", "the provider it came from is unknown")
            return None
        if part.continuation.provider != self.provider:
            self.add(where, "thinking", f"it belongs to {part.continuation.provider}")
            return None
        return self._fitting(part.continuation.data, where)

    def _fitting(self, data: dict[str, Any], where: str | None = None) -> dict[str, Any]:
        if self._fits(data):
            return data
        fitting = {key: value for key, value in data.items() if self._fits({key: value})}
        if where is not None:
            names = ", ".join(sorted(data.keys() - fitting))
            self.add(where, "continuation data", f"its format is unknown: {names}")
        return fitting

    def _fits(self, data: dict[str, Any]) -> bool:
        try:
            convert(data, self._shape)
        except ValueError:  # another type, or half a surrogate pair
            return False
        return True
