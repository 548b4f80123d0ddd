"""How a request body differs from the request, and why.

An encoder writes the provider's body and adds to `Losses` whatever the provider cannot receive: unsupported settings
and media, and continuation data of other providers, which is sent back only to the provider it came from. Text that was
added, and content that was moved to another message, is recorded as well.
"""

from typing import Any, Literal

from msgspec import convert

from bartack.formats.trail import Trail
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Continuation, Part, Thinking

__all__ = ["Encoded", "Loss", "LossReport", "Losses"]


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
