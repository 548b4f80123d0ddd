"""What every encoder takes and every reader of requests gives: a `Request`; and what was lost on the way.

An encoder turns a `Request` into the provider's body. A reader turns a body back into a `Request`, so that a history
made elsewhere can be brought along. Continuation data goes back to the provider it came from and to nobody else; what
a provider cannot be told is left out, and the `Losses` say what and why.
"""

from typing import Any

from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Continuation, Thinking

__all__ = ["Encoded", "Loss", "LossReport", "Losses", "Request"]


class Request(Noun, frozen=True, kw_only=True):
    """One model call, in our words. System prompts are system messages, wherever they stand."""

    messages: tuple[Message, ...]
    config: ModelConfig
    tools: tuple[ToolSpec, ...] = ()
    provider: str  # whose continuation data may go back


class Loss(Noun, frozen=True):
    """One thing that the provider is not told."""

    where: str  # for example messages[3].parts[0]
    what: str
    why: str


class LossReport(Noun, frozen=True):
    """All that was left out of one request."""

    losses: tuple[Loss, ...] = ()


class Encoded(Noun, frozen=True):
    """A request body, and what it does not say."""

    body: dict[str, Any]
    report: LossReport


class Losses:
    """Collects losses while a request is encoded."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.found: list[Loss] = []

    def add(self, where: str, what: str, why: str) -> None:
        """This was left out."""
        self.found.append(Loss(where, what, why))

    def continuation(self, where: str, continuation: Continuation | None) -> dict[str, Any]:
        """The continuation data that may go back; empty, with a loss noted, where it is another provider's."""
        if continuation is None:
            return {}
        if continuation.provider != self.provider:
            self.add(where, "continuation data", f"it belongs to {continuation.provider}")
            return {}
        return continuation.data

    def thinking(self, where: str, part: Thinking) -> dict[str, Any] | None:
        """The continuation data of thinking that may go back; None, with a loss noted, where it is not this provider's.

        Reasoning in the words of another model is told to nobody: it would be read as this model's own.
        """
        if part.continuation is None:
            self.add(where, "thinking", "nothing says which provider it came from")
            return None
        if part.continuation.provider != self.provider:
            self.add(where, "thinking", f"it belongs to {part.continuation.provider}")
            return None
        return part.continuation.data
