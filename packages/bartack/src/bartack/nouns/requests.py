"""One call to a model, from the context that produced it to the encoder that writes its body."""

from collections.abc import Sequence
from typing import Any, Self

from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun

__all__ = ["History", "ModelRequest", "RequestMetadata"]


class History(tuple[Message, ...]):
    """The messages of a conversation that keeps growing, as a context builds them.

    Histories with the same `thread` have the same message objects, as far as both go, after the first `head` messages.
    So a message that was known in one does not have to be compared in the next.
    """

    head: int
    thread: object

    @classmethod
    def of(cls, head: Sequence[Message], tail: Sequence[Message], thread: object) -> Self:
        """The history that begins with `head` and continues with the messages of the thread."""
        history = cls((*head, *tail))
        history.head, history.thread = len(head), thread
        return history


class RequestMetadata(Noun, frozen=True, kw_only=True):
    """Where a call belongs. Its deltas are stamped with the run id and the two numbers.

    A model over HTTP sends the `traceparent`, or else the trace id, in a header (`bartack.models.provider`). It does
    not send the session id, which may be a name that people chose: that is for hooks, for models of your own, and for
    the log.
    """

    session_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None  # the span of this call, if it is traced (W3C Trace Context)
    model_call_index: int | None = None
    attempt: int | None = None


class _RequestSettings(Noun, frozen=True, kw_only=True):
    config: ModelConfig
    tools: tuple[ToolSpec, ...] = ()
    provider: str = ""  # only this provider's continuation data is sent back; empty means the wire format's name
    metadata: RequestMetadata = RequestMetadata()
    invocation_state: dict[str, Any] | None = (
        None  # the caller's own data, for models that use it; never sent or stored
    )


class ModelRequest(_RequestSettings, frozen=True):
    """The messages sent to a model, with the settings and tools for this call. System prompts are system messages."""

    messages: tuple[Message, ...]
