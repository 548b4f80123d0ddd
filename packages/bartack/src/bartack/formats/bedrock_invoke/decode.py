"""Bedrock's InvokeModelWithResponseStream to deltas.

The frames are Amazon's. A `chunk` holds, in base64, one event of the model's own format, and the first chunk decides
which decoder reads the rest:

- Claude sends Anthropic's Messages events, which alone have a `type`.
- Nova sends the events of Converse, each wrapped in its name.
- Models of the Chat Completions format (gpt-oss, Qwen, Jamba, ...) send `choices` with a `delta`. Not recorded.
- All others send pieces of plain text under a name of their own (`text_completions`).

A frame whose `:message-type` is not "event" is an error and ends the stream. The counts that Bedrock adds to the last
chunk (`amazon-bedrock-invocationMetrics`) omit some of Claude's tokens, 32 of 130 in
recordings/bedrock-invoke/openinference--TestInvokeModelWithStreamResponse.test_invoke--0-0cc80a, so they are used only
if the model reports none. A guardrail that masked words is named on every chunk, but the model's own stop reason holds
(recordings/bedrock-invoke/openllmetry--test_nova-test_nova_invoke_stream--0-bb275d).
"""

from typing import Any, ClassVar

import msgspec

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.bedrock_invoke.text_completions import TextCompletions
from bartack.formats.decoder import UNREADABLE, Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.openai_chat.decode import OpenAIChat

__all__ = ["BedrockInvoke"]

_CONVERSE_EVENTS = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)


class _Envelope(msgspec.Struct, gc=False):
    payload: bytes | None = msgspec.field(default=None, name="bytes")  # msgspec decodes the base64
    message: str | None = None
    Message: str | None = None
    original_message: str | None = msgspec.field(default=None, name="originalMessage")
    original_status: int | None = msgspec.field(default=None, name="originalStatusCode")


class _Choice(msgspec.Struct, gc=False):
    delta: dict[str, Any] | None = None


class _Choices(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


class _Nova(BedrockConverse):
    """Joins pieces of text, each of which Nova puts in a block of its own.

    Recorded: bedrock-invoke/openllmetry--test_nova-test_nova_invoke_stream--0-bb275d.
    """

    def _emit(self, kind: str, piece: str, continuation: dict[str, Any] | None = None) -> None:
        if "block" not in (continuation or {}):
            self._is_fresh = False
        super()._emit(kind, piece, continuation)


class BedrockInvoke(Decoder):
    """Unwraps chunks and passes them to the decoder of the model's own format."""

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
        elif not frame.event:  # a recording without frames
            self._read_chunk(frame.data)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(_Envelope(), frame)
            return True
        if frame.event:
            return frame.event != "chunk"
        self._read_chunk(frame.data)  # a recording without frames, whose events are not envelopes
        return True

    def read_end(self) -> None:
        if self._model is None:
            self.truncated("the first chunk")
        else:
            self._model.read_end()

    def _read_chunk(self, payload: bytes) -> None:
        if self._model is None:
            decoder = _decoder_for(payload)
            if decoder is None:
                return
            self._model = decoder(out=self.out)
        self._model.receive_frame(Frame(payload))

    def _read_exception(self, event: _Envelope, frame: Frame) -> None:
        reported = event.message or event.Message or event.original_message or frame.headers.get(":error-message")
        message = str(reported) if reported else f"The stream ended with {frame.event or 'an error'}."
        self.out.refused(message, raw_code=frame.event or None, status=event.original_status)


def _decoder_for(payload: bytes) -> type[Decoder] | None:
    """The decoder that a model's first chunk calls for; None if the chunk has only Bedrock's own fields."""
    try:
        names = msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).keys()
    except UNREADABLE:
        return TextCompletions  # it reports the chunk as malformed
    if all(name.startswith("amazon-bedrock-") for name in names):
        return None
    if names & _CONVERSE_EVENTS:
        return _Nova
    if "choices" in names and _has_delta(payload):
        return OpenAIChat
    return AnthropicMessages if "type" in names and "completion" not in names else TextCompletions


def _has_delta(payload: bytes) -> bool:
    try:
        choices = msgspec.json.decode(payload, type=_Choices).choices or []
    except UNREADABLE:
        return False
    return not choices or any(choice.delta is not None for choice in choices)
