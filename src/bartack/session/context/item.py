"""`Item`: one message that a model may be told, in its place in the session, with what it weighs."""

from dataclasses import dataclass
from functools import cached_property

from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text
from bartack.session.context.spoken import shortened
from bartack.session.context.tokens import message_tokens

__all__ = ["Item", "branch_message", "summary_message"]

_SUMMARY = "Summary of the conversation up to here; the messages themselves are no longer shown:\n\n"
_BRANCH = "Summary of another branch of this conversation, which was left:\n\n"


@dataclass(eq=False)
class Item:
    """One message in its place."""

    entry_id: str
    seq: int
    message: Message
    model: ModelRef | None  # that was to answer when it was said
    reported: int | None = None  # the provider's count of everything up to and with this message
    is_summary: bool = False

    @cached_property
    def tokens(self) -> int:
        """The estimate for the whole message."""
        return message_tokens(self.message)

    @cached_property
    def short(self) -> tuple[Message, int] | None:
        """The message with its tool outputs cut, and its estimate; None if that saves nothing."""
        message = shortened(self.message)
        tokens = 0 if message is None else message_tokens(message)
        return None if message is None or tokens >= self.tokens else (message, tokens)


def branch_message(text: str) -> Message:
    """The summary of a branch that was left, as it is told to a model."""
    return Message("user", (Text(_BRANCH + text, synthetic=True),))


def summary_message(text: str) -> Message:
    """A compaction's summary as it is told to a model."""
    return Message("user", (Text(_SUMMARY + text, synthetic=True),))
