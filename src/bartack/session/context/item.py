"""`ContextItem`: one message that can be part of a context, with its position and size."""

from dataclasses import dataclass
from functools import cached_property

from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text
from bartack.session.context.shortening import shorten_output
from bartack.session.context.tokens import message_tokens

__all__ = ["ContextItem", "branch_message", "summary_message"]

_SUMMARY = "Summary of the conversation so far. The messages it covers are no longer included.\n\n"
_BRANCH = "Summary of another branch of this conversation, which was abandoned.\n\n"


@dataclass(eq=False)
class ContextItem:
    """One message at its position in the session."""

    entry_id: str
    seq: int
    message: Message
    model: ModelRef | None  # the session's model at this point
    reported: int | None = None  # the provider's token count of everything up to and including this message
    is_summary: bool = False

    @cached_property
    def tokens(self) -> int:
        """The estimated size of the message."""
        return message_tokens(self.message)

    @cached_property
    def short(self) -> tuple[Message, int] | None:
        """The message with truncated tool outputs, and its estimated size; None if that saves nothing."""
        message = shorten_output(self.message)
        tokens = 0 if message is None else message_tokens(message)
        return None if message is None or tokens >= self.tokens else (message, tokens)


def branch_message(summary: str) -> Message:
    """The summary of an abandoned branch, as a message to the model."""
    return Message("user", (Text(_BRANCH + summary, synthetic=True),))


def summary_message(summary: str) -> Message:
    """The summary of a compaction, as a message to the model."""
    return Message("user", (Text(_SUMMARY + summary, synthetic=True),))
