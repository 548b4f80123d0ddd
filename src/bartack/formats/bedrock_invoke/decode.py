"""Bedrock's InvokeModelWithResponseStream -> deltas.

The frames are Amazon's; a `chunk` holds, in base64, one event of the model's own language. The first chunk tells which
language that is, and its decoder reads the rest:

- Claude speaks Anthropic's Messages, and so does nobody else: its events have a `type`.
- Nova speaks the events of Converse, each wrapped in its name.
- Models that speak Chat Completions (gpt-oss, Qwen, Jamba, ...) send `choices` with a `delta`.
- All others send pieces of plain text under a name of their own (`bedrock_completions`).

A frame whose `:message-type` is not "event" is an error and ends the stream. The counts that Bedrock adds to the last
chunk (`amazon-bedrock-invocationMetrics`) leave out some of Claude's tokens, so they are read only where the model
itself reports none. Guardrails that masked some words say so on every chunk; the model's own stop word holds.
"""

from typing import Any, ClassVar

import msgspec

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.bedrock_invoke.completions import BedrockCompletions
from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.openai_chat.decode import OpenAIChat

__all__ = ["BedrockInvoke"]

_CONVERSE_EVENTS = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)


class _Envelope(msgspec.Struct, gc=False):
    payload: bytes | None = msgspec.field(default=None, name="bytes")  # msgspec takes the base64 off
    message: str | None = None
    Message: str | None = None
    original_message: str | None = msgspec.field(default=None, name="originalMessage")
    original_status: int | None = msgspec.field(default=None, name="originalStatusCode")


class _Choice(msgspec.Struct, gc=False):
    delta: dict[str, Any] | None = None


class _Choices(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


class _Nova(BedrockConverse):
    """Nova gives every piece of text a block of its own: they are one text all the same."""

    def _tell(self, kind: str, piece: str, continuation: dict[str, Any] | None = None) -> None:
        self._is_fresh = False
        super()._tell(kind, piece, continuation)


class BedrockInvoke(Decoder):
    """Unwraps chunks and hands them to the decoder of the model's own language."""

    format: ClassVar[str] = "bedrock-invoke"
    framing: ClassVar[FramingName] = "aws"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Envelope)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._model: Decoder | None = None

    def read(self, event: _Envelope, frame: Frame) -> None:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(event, frame)
        elif event.payload is not None:
            self._read_chunk(event.payload)
        elif not frame.event:  # recorded without the frames around it
            self._read_chunk(frame.data)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(_Envelope(), frame)
            return True
        if frame.event:
            return frame.event != "chunk"
        self._read_chunk(frame.data)  # the events of most languages are no envelopes
        return True

    def read_end(self) -> None:
        if self._model is None:
            self.truncated("the first chunk")
        else:
            self._model.read_end()

    def _read_chunk(self, payload: bytes) -> None:
        if self._model is None:
            language = _language_of(payload)
            if language is None:
                return
            self._model = language(out=self.out)
        self._model.receive_frame(Frame(payload))

    def _read_exception(self, event: _Envelope, frame: Frame) -> None:
        said = event.message or event.Message or event.original_message or frame.headers.get(":error-message")
        message = str(said) if said else f"the stream broke off with {frame.event or 'an error'}"
        self.out.refused(message, raw_code=frame.event or None, status=event.original_status)


def _language_of(payload: bytes) -> type[Decoder] | None:
    """The decoder of a model's first chunk; None if the chunk says nothing of the model."""
    try:
        names = msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BedrockCompletions  # which will say that this is no event
    if all(name.startswith("amazon-bedrock-") for name in names):
        return None
    if names & _CONVERSE_EVENTS:
        return _Nova
    if "choices" in names and _has_delta(payload):
        return OpenAIChat
    return AnthropicMessages if "type" in names and "completion" not in names else BedrockCompletions


def _has_delta(payload: bytes) -> bool:
    try:
        choices = msgspec.json.decode(payload, type=_Choices).choices or []
    except msgspec.DecodeError:
        return False
    return not choices or any(choice.delta is not None for choice in choices)
