"""Bedrock's ConverseStream -> deltas. One format for every model family behind it.

Blocks have an index. Only tools, their results and images announce themselves with `contentBlockStart`; text and
reasoning begin with their first delta. `messageStop` says why the model stopped and is the terminal signal; the usage
comes after it in `metadata`, so `done` waits for that, or for the end of the bytes. An error is a frame whose
`:message-type` is not ``event``.

How blocks become parts:
- Text as it comes; its citations stand on the block's last delta. Reasoning likewise, with `reasoningText` (the
  signature, where there is one) or `redactedContent` as continuation data.
- `toolUse` is a call of the client, unless its type says ``server_tool_use``: then it stays open until its
  `toolResult` block has come, and holds it, readable in the result and raw in the continuation.
- A generated image is a call of the provider's tool ``image_output``.

The provider writes one block after the other. Should blocks overlap, the later one waits until the earlier one has
ended, so that no text is torn; arguments have keys and need not wait.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from bartack.formats.bedrock_converse.events import (
    BlockDelta,
    Event,
    ToolUse,
    joined_base64,
    joined_texts,
    readable_result,
    usage_of,
)
from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.nouns.deltas import FinishReason
from bartack.nouns.parts import Image, ToolContent

__all__ = ["BedrockConverse"]

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",  # also where the guardrail only masked some words
    "content_filtered": "content_filter",
}
_NO_BLOCK = -1


class BedrockConverse(Decoder):
    """Reads `contentBlockDelta` and its kin, named by their frames or wrapped in their names."""

    format: ClassVar[str] = "bedrock-converse"
    framing: ClassVar[FramingName] = "aws"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Event)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._writing = _NO_BLOCK  # index of the block whose text or reasoning is coming
        self._is_fresh = False  # nothing of that block has been said yet
        self._last_kind = ""
        self._is_reasoning = False
        self._signature: list[str] = []
        self._redacted: list[str] = []
        self._citations: list[dict[str, Any]] = []
        self._waiting: dict[int, list[tuple[str, Event, Frame]]] = {}  # events of blocks that have to wait, by index
        self._is_resuming = False
        self._calls: dict[int, int] = {}  # index -> the key of the call that was opened there last
        self._made_keys = 0
        self._client_calls: set[int] = set()  # indexes of calls that end with their block
        self._server_calls: dict[str, int] = {}  # the provider's id of a call without result -> key
        self._results: dict[int, dict[str, Any]] = {}  # index -> the `toolResult` block so far
        self._images: dict[int, tuple[str, list[dict[str, Any]]]] = {}  # index -> format and the deltas so far

    def read(self, event: Event, frame: Frame) -> None:
        name = frame.event
        if name == "contentBlockDelta":
            self._read_delta(event, frame)
        elif frame.headers.get(":message-type", "event") != "event":
            self._read_exception(event, frame, name)
        elif name:
            self._step(name, event, frame)
        else:
            self._read_wrapped(event, frame)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(Event(), frame, frame.event)
            return True
        if self.out.finish_reason is not None:
            return True
        return bool(frame.event) and frame.event not in _STEPS

    def read_end(self) -> None:
        self._finish_blocks()
        if self.out.finish_reason is None:
            self.truncated("messageStop")
        else:
            self.out.done()

    def _read_wrapped(self, event: Event, frame: Frame) -> None:
        if event.content_block_delta is not None:
            self._read_delta(event.content_block_delta, frame)
            return
        for name, field in _WRAPPED.items():
            inner = getattr(event, field)
            if inner is not None:
                self._step(name, inner, frame)
                return
        if event.message is not None:  # the body of an HTTP error
            self._read_exception(event, frame, None)

    def _step(self, name: str, event: Event, frame: Frame) -> None:
        if name.endswith("Exception"):
            self._read_exception(event, frame, name)
            return
        step = _STEPS.get(name)
        if step is not None:
            step(self, event, frame)

    # -- deltas

    def _read_delta(self, event: Event, frame: Frame) -> None:
        delta, index = event.delta, event.content_block_index or 0
        if delta is None:
            return
        if index == self._writing:
            self._write(delta, frame)
        elif delta.tool_use is not None and index in self._calls:
            self.out.call_args(self._calls[index], delta.tool_use.input or "")
        elif self._writing != _NO_BLOCK:
            self._wait("contentBlockDelta", event, frame)
        elif index in self._results:
            self._gather(self._results[index]["content"], delta.tool_result or [], frame)
        elif index in self._images:
            self._gather(self._images[index][1], [delta.image or {}], frame)
        elif delta.tool_use is None:  # arguments of a call that nobody opened belong nowhere
            self._writing, self._is_fresh = index, True
            self._write(delta, frame)

    def _write(self, delta: BlockDelta, frame: Frame) -> None:
        if delta.text is not None:
            if self._is_fresh:
                self._tell("text", delta.text)
            else:
                self.out.text(delta.text)
        elif delta.reasoning_content is not None:
            piece = delta.reasoning_content
            self._is_reasoning = True
            self._tell("thinking", piece.text or "")
            if piece.signature:
                self._signature.append(piece.signature)
                self._pending.hold(len(frame.data))
            if piece.redacted_content:
                self._redacted.append(piece.redacted_content)
                self._pending.hold(len(frame.data))
        elif delta.citation is not None:
            self._gather(self._citations, [delta.citation], frame)

    def _tell(self, kind: str, piece: str, continuation: dict[str, Any] | None = None) -> None:
        if piece or continuation:
            tell = self.out.text if kind == "text" else self.out.thinking
            tell(piece, new_part=self._is_fresh and self._last_kind == kind, continuation=continuation)
            self._is_fresh = False
            self._last_kind = kind

    def _gather(self, gathered: list[dict[str, Any]], pieces: list[dict[str, Any]], frame: Frame) -> None:
        if self._pending.can_keep(pieces):
            gathered += pieces
            self._pending.hold(len(frame.data))

    # -- blocks

    def _read_block_start(self, event: Event, frame: Frame) -> None:
        start, index = event.start, event.content_block_index or 0
        if self._writing not in (_NO_BLOCK, index):
            self._wait("contentBlockStart", event, frame)
            return
        self._end_block(index)
        if start is None:
            return
        if start.tool_use is not None:
            self._open_call(index, start.tool_use)
        elif start.tool_result is not None:
            if self._pending.can_keep(start.tool_result):
                self._results[index] = {**start.tool_result, "content": []}
        elif start.image is not None:
            self._images[index] = (start.image.format or "png", [])
            self.out.open_call(self._new_key(index), "image_output", executed_by="provider")

    def _open_call(self, index: int, tool: ToolUse) -> None:
        is_server = tool.type == "server_tool_use"
        key = self._new_key(index)
        self.out.open_call(
            key,
            tool.name or "",
            provider_id=tool.tool_use_id,
            executed_by="provider" if is_server else "client",
            continuation={"type": "server_tool_use"} if is_server else None,
        )
        if is_server:
            self._server_calls[tool.tool_use_id or ""] = key
        else:
            self._client_calls.add(index)

    def _new_key(self, index: int) -> int:
        # An index may be used again while a call that was opened there still waits for its result.
        self._made_keys += 1
        self._calls[index] = self._made_keys
        self._last_kind = "tool_call"
        return self._made_keys

    def _read_block_stop(self, event: Event, frame: Frame) -> None:
        index = event.content_block_index or 0
        if self._writing not in (_NO_BLOCK, index) and index not in self._client_calls:
            self._wait("contentBlockStop", event, frame)
        else:
            self._end_block(index)
            self._resume()

    def _end_block(self, index: int) -> None:
        if index == self._writing:
            self._close_writing()
        elif index in self._client_calls:
            self._client_calls.remove(index)
            self.out.close_call(self._calls[index])
        elif index in self._results:
            self._finish_result(self._results.pop(index))
        elif index in self._images:
            self._finish_image(index)

    def _finish_result(self, block: dict[str, Any]) -> None:
        call = self._server_calls.pop(str(block.get("toolUseId") or ""), None)
        block["content"] = joined_texts(block["content"])
        if call is None:
            self._is_fresh = True
            self._tell("thinking", "", {"block": {"toolResult": block}})
            return
        self.out.close_call(
            call,
            continuation={"toolResult": block},
            result=readable_result(block["content"]),
            result_is_error=block.get("status") == "error",
        )

    def _finish_image(self, index: int) -> None:
        image_format, deltas = self._images.pop(index)
        result, is_error = _image_of(f"image/{image_format}", deltas)
        self.out.close_call(self._calls[index], result=result, result_is_error=is_error)

    def _close_writing(self) -> None:
        """The block has ended: what belongs to all of it stands on its last delta."""
        self._writing = _NO_BLOCK
        if self._redacted:
            self._tell("thinking", "", {"redactedContent": joined_base64(self._redacted)})
        elif self._is_reasoning:
            signature = "".join(self._signature)
            # Empty data still says that the reasoning is this model's own and may go back to it.
            self._tell("thinking", "", {"reasoningText": {"signature": signature} if signature else {}})
        if self._citations:
            self._tell("text", "", {"citations": self._citations})
        self._is_reasoning = False
        self._signature, self._redacted, self._citations = [], [], []

    def _wait(self, name: str, event: Event, frame: Frame) -> None:
        self._waiting.setdefault(event.content_block_index or 0, []).append((name, event, frame))
        self._pending.hold(len(frame.data))

    def _resume(self) -> None:
        """Read what waited for the block that has just ended, one block after the other, until one goes on writing."""
        if self._is_resuming:  # a block that ends while it is read here needs no second round
            return
        self._is_resuming = True
        while self._writing == _NO_BLOCK and self._waiting and not self.out.ended:
            for name, event, frame in self._waiting.pop(next(iter(self._waiting))):
                if not self.out.ended:
                    self._step(name, event, frame)
        self._is_resuming = False

    def _finish_blocks(self) -> None:
        """End what was never stopped."""
        while (self._writing != _NO_BLOCK or self._waiting) and not self.out.ended:
            self._close_writing()
            self._resume()
        if self.out.ended:
            return
        for index in list(self._results):
            self._finish_result(self._results.pop(index))
        for index in list(self._images):
            self._finish_image(index)

    # -- the message

    def _read_message_start(self, event: Event, frame: Frame) -> None:
        self.out.start()

    def _read_message_stop(self, event: Event, frame: Frame) -> None:
        self._finish_blocks()
        reason = event.stop_reason
        self.out.finish(_FINISH.get(reason or "", "other"), reason)

    def _read_metadata(self, event: Event, frame: Frame) -> None:
        if event.usage is not None:
            self.out.usage(usage_of(event.usage))
        if self.out.finish_reason is not None:
            self.out.done()

    def _read_exception(self, event: Event, frame: Frame, name: str | None) -> None:
        self._finish_blocks()
        said = event.message or event.original_message or frame.headers.get(":error-message")
        message = str(said) if said else f"the stream broke off with {name or 'an error'}"
        self.out.refused(message, raw_code=name or None, status=event.original_status_code)


def _image_of(mime_type: str, deltas: list[dict[str, Any]]) -> tuple[ToolContent, bool]:
    """The image that came in pieces, or what the provider says instead; and whether that is an error."""
    data = bytearray()
    for delta in deltas:
        source, error = delta.get("source"), delta.get("error")
        if isinstance(error, dict):
            return str(error.get("message") or "the image could not be made"), True
        if isinstance(source, dict):
            location = source.get("s3Location")
            if isinstance(location, dict) and isinstance(location.get("uri"), str):
                return (Image(mime_type, url=location["uri"]),), False
            try:
                data += b64decode(str(source.get("bytes") or ""), validate=True)
            except binascii.Error:
                return "the image is not valid base64", True
    return (Image(mime_type, data=bytes(data)),), False


_STEPS: dict[str, Callable[[BedrockConverse, Event, Frame], None]] = {
    "messageStart": BedrockConverse._read_message_start,
    "contentBlockStart": BedrockConverse._read_block_start,
    "contentBlockDelta": BedrockConverse._read_delta,
    "contentBlockStop": BedrockConverse._read_block_stop,
    "messageStop": BedrockConverse._read_message_stop,
    "metadata": BedrockConverse._read_metadata,
}
_WRAPPED: dict[str, str] = {
    "messageStart": "message_start",
    "contentBlockStart": "content_block_start",
    "contentBlockStop": "content_block_stop",
    "messageStop": "message_stop",
    "metadata": "metadata",
    "internalServerException": "internal_server_exception",
    "modelStreamErrorException": "model_stream_error_exception",
    "modelTimeoutException": "model_timeout_exception",
    "serviceUnavailableException": "service_unavailable_exception",
    "throttlingException": "throttling_exception",
    "validationException": "validation_exception",
}
