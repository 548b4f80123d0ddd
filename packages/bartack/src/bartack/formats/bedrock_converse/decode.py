"""Bedrock's ConverseStream to deltas: one format for every model family on Bedrock.

Blocks have an index. Only tools, their results and images begin with a `contentBlockStart`; text and reasoning begin
with their first delta. `messageStop` has the stop reason and is the terminal signal. The usage follows it in
`metadata`, so `done` waits for that, or for the end of the bytes. An error is a frame whose `:message-type` is not
``event``. Reference: ConverseStream in the Bedrock API reference.

How blocks become parts:
- Text is emitted as it arrives, its citations on the block's last delta. So is reasoning, with its signature or its
  redacted content as continuation data.
- `toolUse` is a call for the client, unless its type is ``server_tool_use``: then it stays open until its `toolResult`
  block arrives, which is kept readable in the result and raw in the continuation data
  (recordings/bedrock-converse/pydantic-ai--test_bedrock-test_bedrock_model_code_execution_tool_stream--0-f109eb).
- A generated image is a call of the provider tool ``image_output``. No recording has one.
- A block of an unknown kind is an empty thinking part that carries what its start and its deltas add up to.

Recorded streams never interleave blocks. If blocks do overlap, a later one waits until the earlier one has ended, so
that no text is split; arguments have keys of their own and need not wait.

All fields of an event are optional, and unknown ones are ignored. The name of an event is in its frame; recordings
without frames, and Nova behind InvokeModel, write ``{"contentBlockDelta": {...}}`` instead, so an event may hold
events.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from itertools import groupby
from typing import Any, ClassVar, TypedDict

import msgspec
from msgspec import Struct

from bartack.formats.body_values import beyond, text_of
from bartack.formats.decoder import Decoder, joined_pieces
from bartack.formats.framing import Frame, FramingName
from bartack.formats.usage import token_count
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Image, Text, ToolContent

__all__ = ["SERVER_TOOL", "BedrockConverse", "ConverseContinuation"]

# -- the events


SERVER_TOOL = "server_tool_use"


class _KeptCall(TypedDict, total=False):
    name: str


class _KeptBlock(TypedDict, total=False):
    text: str
    toolUse: _KeptCall
    toolResult: dict[str, Any]


class ConverseContinuation(TypedDict, total=False):
    """What a part keeps of its block: the decoder and the reader write it, the encoder reads it."""

    block: _KeptBlock  # a whole block that no part can represent
    cachePoint: Any  # a cache point that follows the part
    callId: str
    citations: Any
    reasoningText: dict[str, Any]  # the fields of reasoning besides its text: the signature, if there is one
    redactedContent: str
    role: str  # "system": a system message between the others
    toolResult: dict[str, Any]  # the raw result of a provider call
    toolUse: dict[str, Any]  # the fields of a call that no part has
    type: str  # the type of a provider call


class _Struct(Struct, rename="camel", gc=False):
    pass


class _ToolUse(_Struct):
    tool_use_id: str | None = None
    name: str | None = None
    type: str | None = None
    input: str | None = None


class _Reasoning(_Struct):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None  # bytes, in base64


class _ConverseBlockDelta(_Struct):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None
    citation: dict[str, Any] | None = None
    tool_result: list[dict[str, Any]] | None = None
    image: dict[str, Any] | None = None


class _ImageStart(_Struct):
    format: str | None = None


class _BlockStart(_Struct):
    tool_use: _ToolUse | None = None
    tool_result: dict[str, Any] | None = None
    image: _ImageStart | None = None


class _ConverseCounts(_Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_write_input_tokens: float | None = None
    cache_read_input_token_count: float | None = None  # Nova's name for it behind InvokeModel
    cache_write_input_token_count: float | None = None


class _Wrapped(_Struct):
    """An event inside an object that has its name as the only key."""

    message_start: "_ConverseEvent | None" = None
    content_block_start: "_ConverseEvent | None" = None
    content_block_delta: "_ConverseEvent | None" = None
    content_block_stop: "_ConverseEvent | None" = None
    message_stop: "_ConverseEvent | None" = None
    metadata: "_ConverseEvent | None" = None
    internal_server_exception: "_ConverseEvent | None" = None
    model_stream_error_exception: "_ConverseEvent | None" = None
    model_timeout_exception: "_ConverseEvent | None" = None
    service_unavailable_exception: "_ConverseEvent | None" = None
    throttling_exception: "_ConverseEvent | None" = None
    validation_exception: "_ConverseEvent | None" = None


class _ConverseEvent(_Wrapped):
    content_block_index: int | None = None
    delta: _ConverseBlockDelta | None = None
    start: _BlockStart | None = None
    stop_reason: str | None = None
    usage: _ConverseCounts | None = None
    message: str | None = None
    original_status_code: int | None = None
    original_message: str | None = None


def _usage_of(counts: _ConverseCounts) -> Usage:
    """The usage in our terms: Bedrock counts cache reads and writes apart from `inputTokens`."""
    cache_read = token_count(counts.cache_read_input_tokens, counts.cache_read_input_token_count)
    cache_write = token_count(counts.cache_write_input_tokens, counts.cache_write_input_token_count)
    return Usage(
        (token_count(counts.input_tokens) or 0) + (cache_read or 0) + (cache_write or 0),
        token_count(counts.output_tokens) or 0,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )


def _joined_base64(pieces: list[str]) -> str:
    """The base64 of all the pieces' bytes; a single piece is kept as it is."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join(b64decode(piece, validate=True) for piece in pieces)).decode()
    except ValueError:  # not base64, or not ASCII
        return "".join(pieces)


def _joined_texts(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a result, consecutive texts joined."""
    content: list[dict[str, Any]] = []
    for is_text, group in groupby(pieces, lambda piece: isinstance(piece.get("text"), str)):
        run = list(group)
        content += [{"text": "".join(piece["text"] for piece in run)}] if is_text else run
    return content


def _readable_result(content: list[dict[str, Any]]) -> ToolContent:
    """The content of a provider tool's result: a single object or text as it is, anything else as texts."""
    if len(content) == 1 and isinstance(content[0].get("json"), dict):
        value: dict[str, Any] = content[0]["json"]
        return value
    texts = [_readable(piece) for piece in content]
    return texts[0] if len(texts) == 1 else tuple(Text(text) for text in texts)


def _readable(piece: dict[str, Any]) -> str:
    text = piece.get("text")
    return text if isinstance(text, str) else json_text(piece.get("json", piece))


# -- the decoder


_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # Also if the guardrail only masked words: openllmetry--test_nova-test_nova_converse_stream--0-77ac65.
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_NO_BLOCK = -1
_CALL_FIELDS = frozenset(("toolUseId", "name", "type", "input"))
_EMPTY, _NO_REASONING = _ConverseBlockDelta(), _Reasoning()


class BedrockConverse(Decoder):
    """Decodes `contentBlockDelta` and related events, named by their frames or wrapped in their names."""

    format: ClassVar[str] = "bedrock-converse"
    framing: ClassVar[FramingName] = "aws"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_ConverseEvent)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._current = _NO_BLOCK  # index of the text or reasoning block that is open
        self._is_fresh = False  # nothing of that block has been emitted yet
        self._last_kind = ""
        self._is_reasoning = False
        self._signature: list[str] = []
        self._redacted: list[str] = []
        self._citations: list[dict[str, Any]] = []
        self._reasoning_fields: list[dict[str, Any]] = []
        self._waiting: dict[int, list[tuple[str, _ConverseEvent, Frame]]] = {}  # events of overlapping blocks, by index
        self._calls: dict[int, int] = {}  # index -> the key of the last call opened under it
        self._made_keys = 0
        self._client_calls: set[int] = set()  # indexes of calls that end with their block
        self._unanswered: dict[str, int] = {}  # id of a provider call without a result -> key
        self._results: dict[int, dict[str, Any]] = {}  # index -> the `toolResult` block so far
        self._images: dict[int, tuple[str, list[dict[str, Any]]]] = {}  # index -> format and the deltas so far
        self._unknown: dict[int, list[dict[str, Any]]] = {}  # index -> the pieces so far of a block of an unknown kind

    def read(self, event: _ConverseEvent, frame: Frame) -> None:
        name = frame.event
        if name == "contentBlockDelta":
            self._read_delta(event, frame)
        elif frame.headers.get(":message-type", "event") != "event":
            self._read_exception(event, frame, name)
        elif name:
            self._dispatch(name, event, frame)
        else:
            self._read_wrapped(event, frame)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(_ConverseEvent(), frame, frame.event)
            return True
        if self.out.finish_reason is not None:
            return True
        return bool(frame.event) and frame.event not in _EVENTS

    def read_end(self) -> None:
        self._close_blocks()
        if self.out.finish_reason is None:
            self.truncated("messageStop")
        else:
            self.out.done()

    def _read_wrapped(self, event: _ConverseEvent, frame: Frame) -> None:
        if event.content_block_delta is not None:
            self._read_delta(event.content_block_delta, frame)
            return
        for name, field in _WRAPPED.items():
            inner = getattr(event, field)
            if inner is not None:
                self._dispatch(name, inner, frame)
                return
        if event.message is not None:  # the body of an HTTP error
            self._read_exception(event, frame, None)

    def _dispatch(self, name: str, event: _ConverseEvent, frame: Frame) -> None:
        if name.endswith("Exception"):
            self._read_exception(event, frame, name)
            return
        read = _EVENTS.get(name)
        if read is not None:
            read(self, event, frame)

    # -- deltas

    def _read_delta(self, event: _ConverseEvent, frame: Frame) -> None:
        delta, index = event.delta, event.content_block_index or 0
        if delta is None:
            return
        if index == self._current:
            self._write(delta, frame)
        elif delta.tool_use is not None and index in self._calls:
            self.out.call_args(self._calls[index], delta.tool_use.input or "")
        elif self._current != _NO_BLOCK:
            self._wait("contentBlockDelta", event, frame)
        elif index in self._results:
            self._collect(self._results[index]["content"], delta.tool_result or [], frame)
        elif index in self._images:
            self._collect(self._images[index][1], [delta.image or {}], frame)
        elif index in self._unknown or delta == _EMPTY:
            self._collect_unknown(index, self._payload("contentBlockDelta", frame)["delta"], frame)
        elif delta.tool_use is None:  # arguments without an open call are ignored
            self._current, self._is_fresh = index, True
            self._write(delta, frame)

    def _write(self, delta: _ConverseBlockDelta, frame: Frame) -> None:
        if delta.text is not None:
            if self._is_fresh:
                self._emit("text", delta.text)
            else:
                self.out.text(delta.text)
        elif delta.reasoning_content is not None:
            piece = delta.reasoning_content
            self._is_reasoning = True
            self._emit("thinking", piece.text or "")
            if piece.signature:
                self._signature.append(piece.signature)
                self._pending.hold(len(frame.data))
            if piece.redacted_content:
                self._redacted.append(piece.redacted_content)
                self._pending.hold(len(frame.data))
            if piece == _NO_REASONING:
                fields = self._payload("contentBlockDelta", frame)["delta"]["reasoningContent"]
                self._collect(self._reasoning_fields, [fields], frame)
        elif delta.citation is not None:
            self._collect(self._citations, [delta.citation], frame)
        else:
            self._collect_unknown(self._current, self._payload("contentBlockDelta", frame)["delta"], frame)

    def _emit(self, kind: str, piece: str, continuation: dict[str, Any] | None = None) -> None:
        if piece or continuation:
            emit = self.out.text if kind == "text" else self.out.thinking
            emit(piece, new_part=self._is_fresh and self._last_kind == kind, continuation=continuation)
            self._is_fresh = False
            self._last_kind = kind

    def _collect(self, gathered: list[dict[str, Any]], pieces: list[dict[str, Any]], frame: Frame) -> None:
        if self._pending.can_keep(pieces):
            gathered += pieces
            self._pending.hold(len(frame.data))

    def _collect_unknown(self, index: int, piece: dict[str, Any], frame: Frame) -> None:
        fields = {name: value for name, value in piece.items() if value is not None}
        if fields:
            self._collect(self._unknown.setdefault(index, []), [fields], frame)

    def _payload(self, name: str, frame: Frame) -> dict[str, Any]:
        """The event of a frame, with the fields that `ConverseEvent` does not declare."""
        event: dict[str, Any] = self.plain_json(frame)
        inner = event.get(name)
        return inner if isinstance(inner, dict) else event

    # -- blocks

    def _read_block_start(self, event: _ConverseEvent, frame: Frame) -> None:
        start, index = event.start, event.content_block_index or 0
        if self._current not in (_NO_BLOCK, index):
            self._wait("contentBlockStart", event, frame)
            return
        self._end_block(index)
        if start is None:
            return
        if start.tool_use is not None:
            self._open_call(index, start.tool_use, frame)
        elif start.tool_result is not None:
            if self._pending.can_keep(start.tool_result):
                self._results[index] = {**start.tool_result, "content": []}
        elif start.image is not None:
            self._images[index] = (start.image.format or "png", [])
            self.out.open_call(self._new_key(index), "image_output", executed_by="provider")
        else:
            self._collect_unknown(index, self._payload("contentBlockStart", frame)["start"], frame)

    def _open_call(self, index: int, tool: _ToolUse, frame: Frame) -> None:
        is_provider_call = tool.type == SERVER_TOOL
        data: dict[str, Any] = {"type": SERVER_TOOL} if is_provider_call else {}
        start = self._payload("contentBlockStart", frame)["start"]["toolUse"]
        fields = beyond(start, *_CALL_FIELDS)
        if fields and self._pending.can_keep(fields):
            data["toolUse"] = fields
        key = self._new_key(index)
        self.out.open_call(
            key,
            tool.name or "",
            provider_id=tool.tool_use_id,
            executed_by="provider" if is_provider_call else "client",
            continuation=data or None,
        )
        if is_provider_call:
            self._unanswered[tool.tool_use_id or ""] = key
        else:
            self._client_calls.add(index)

    def _new_key(self, index: int) -> int:
        # An index may be reused while a call that was opened under it is still waiting for its result.
        self._made_keys += 1
        self._calls[index] = self._made_keys
        self._last_kind = "tool_call"
        return self._made_keys

    def _read_block_stop(self, event: _ConverseEvent, frame: Frame) -> None:
        index = event.content_block_index or 0
        if self._current not in (_NO_BLOCK, index) and index not in self._client_calls:
            self._wait("contentBlockStop", event, frame)
        else:
            self._end_block(index)
            self._read_waiting()

    def _end_block(self, index: int) -> None:
        if index == self._current:
            self._close_current()
        elif index in self._client_calls:
            self._client_calls.remove(index)
            self.out.close_call(self._calls[index])
        elif index in self._results:
            self._finish_result(self._results.pop(index))
        elif index in self._images:
            self._finish_image(index)
        else:
            self._finish_unknown(index)

    def _finish_unknown(self, index: int) -> None:
        pieces = self._unknown.pop(index, [])
        if pieces:
            self._is_fresh = True
            self._emit("thinking", "", {"block": joined_pieces(pieces)})

    def _finish_result(self, block: dict[str, Any]) -> None:
        call = self._unanswered.pop(text_of(block, "toolUseId"), None)
        block["content"] = _joined_texts(block["content"])
        if call is None:
            self._is_fresh = True
            self._emit("thinking", "", {"block": {"toolResult": block}})
            return
        self.out.close_call(
            call,
            continuation={"toolResult": block},
            result=_readable_result(block["content"]),
            result_is_error=block.get("status") == "error",
        )

    def _finish_image(self, index: int) -> None:
        image_format, deltas = self._images.pop(index)
        result, is_error = _image_of(f"image/{image_format}", deltas)
        self.out.close_call(self._calls[index], result=result, result_is_error=is_error)

    def _close_current(self) -> None:
        """End the block: attach what applies to all of it to its last delta."""
        index, self._current = self._current, _NO_BLOCK
        if self._redacted:
            self._emit("thinking", "", {"redactedContent": _joined_base64(self._redacted)})
        elif self._is_reasoning:
            signature = "".join(self._signature)
            # Even empty, it marks the reasoning as this model's own, which may be sent back to it.
            fields = {**joined_pieces(self._reasoning_fields), **({"signature": signature} if signature else {})}
            self._emit("thinking", "", {"reasoningText": fields})
        if self._citations:
            self._emit("text", "", {"citations": self._citations})
        self._is_reasoning = False
        self._signature, self._redacted, self._citations, self._reasoning_fields = [], [], [], []
        self._finish_unknown(index)

    def _wait(self, name: str, event: _ConverseEvent, frame: Frame) -> None:
        self._waiting.setdefault(event.content_block_index or 0, []).append((name, event, frame))
        self._pending.hold(len(frame.data))

    def _read_waiting(self) -> None:
        """Read the events that waited for the block that has just ended, one block after another."""
        while self._current == _NO_BLOCK and self._waiting:
            index = next(iter(self._waiting))
            for name, event, frame in self._waiting.pop(index):
                if name == "contentBlockStop":
                    self._end_block(index)
                else:
                    self._dispatch(name, event, frame)

    def _close_blocks(self) -> None:
        """Close the blocks that have no `contentBlockStop`."""
        while self._current != _NO_BLOCK or self._waiting:
            self._close_current()
            self._read_waiting()
        for index in list(self._results):
            self._finish_result(self._results.pop(index))
        for index in list(self._images):
            self._finish_image(index)
        for index in list(self._unknown):
            self._finish_unknown(index)

    # -- the message

    def _read_message_start(self, event: _ConverseEvent, frame: Frame) -> None:
        self.out.start()

    def _read_message_stop(self, event: _ConverseEvent, frame: Frame) -> None:
        self._close_blocks()
        reason = event.stop_reason
        self.out.finish(_FINISH.get(reason or "", "other"), reason)

    def _read_metadata(self, event: _ConverseEvent, frame: Frame) -> None:
        if event.usage is not None:
            self.out.usage(_usage_of(event.usage))
        if self.out.finish_reason is not None:
            self.out.done()

    def _read_exception(self, event: _ConverseEvent, frame: Frame, name: str | None) -> None:
        self._close_blocks()
        reported = event.message or event.original_message or frame.headers.get(":error-message")
        message = str(reported) if reported else f"The stream ended with {name or 'an error'}."
        self.out.refused(message, raw_code=name or None, status=event.original_status_code)


def _image_of(mime_type: str, deltas: list[dict[str, Any]]) -> tuple[ToolContent, bool]:
    """The image joined from its pieces, or an error message; and whether it is an error."""
    data = bytearray()
    for delta in deltas:
        source, error = delta.get("source"), delta.get("error")
        if isinstance(error, dict):
            return text_of(error, "message") or "the image could not be generated", True
        if isinstance(source, dict):
            location = source.get("s3Location")
            if isinstance(location, dict) and isinstance(location.get("uri"), str):
                return (Image(mime_type, url=location["uri"]),), False
            try:
                data += b64decode(text_of(source, "bytes"), validate=True)
            except ValueError:  # not base64, or not ASCII
                return "the image is not valid base64", True
    return (Image(mime_type, data=bytes(data)),), False


_EVENTS: dict[str, Callable[[BedrockConverse, _ConverseEvent, Frame], None]] = {
    "messageStart": BedrockConverse._read_message_start,
    "contentBlockStart": BedrockConverse._read_block_start,
    "contentBlockDelta": BedrockConverse._read_delta,
    "contentBlockStop": BedrockConverse._read_block_stop,
    "messageStop": BedrockConverse._read_message_stop,
    "metadata": BedrockConverse._read_metadata,
}
_WRAPPED = dict(zip(_Wrapped.__struct_encode_fields__, _Wrapped.__struct_fields__, strict=True))
