"""Cohere's v2 chat stream to deltas.

`message-start` is followed by content blocks (`content-start`, `content-delta` and `content-end` under one index), the
plan for using tools (`tool-plan-delta`), tool calls (`tool-call-start`, `-delta`, `-end`) and citations. `message-end`
is the terminal signal and has the finish reason and the usage. Reference: docs.cohere.com/reference/chat-stream.

Content of type ``thinking`` and the tool plan both become thinking. Their continuation data records which of the two
they were, since they are sent back in different fields. Citations refer to the text by position and may arrive between
its pieces or after them, so they are collected and attached to the part's last delta.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypedDict

import msgspec

from bartack.formats.decoder import Decoder, event_type
from bartack.formats.framing import Frame
from bartack.formats.usage import token_count
from bartack.nouns.deltas import FinishReason, Usage

__all__ = ["CohereContinuation", "CohereV2"]

_FINISH: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}
_FAILURES = frozenset(("ERROR", "ERROR_TOXIC", "ERROR_LIMIT", "TIMEOUT"))


class CohereContinuation(TypedDict, total=False):
    """What a part keeps of its content: the decoder and the reader write it, the encoder reads it."""

    citations: list[Any]
    type: Literal["thinking", "tool_plan"]  # the field that thinking came from


class _Content(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    # One value at a time. Only `message-start` has lists, and they are empty.
    content: _Content | list[Any] | str | None = None
    tool_plan: str | None = None
    tool_calls: _ToolCall | list[Any] | None = None
    citations: dict[str, Any] | list[Any] | None = None


class _Counts(msgspec.Struct, gc=False):
    input_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct, gc=False):
    tokens: _Counts | None = None
    cached_tokens: float | None = None


class _Delta(msgspec.Struct, gc=False):
    message: _Message | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    message: str | None = None  # the message of an error body


_PLAN_INDEX = -1  # the tool plan has no index of its own


class CohereV2(Decoder):
    """Decodes the events of `/v2/chat`."""

    format: ClassVar[str] = "cohere-v2"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Event)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._block: int | None = None  # index of the content block that is being written
        self._last_kind = ""
        self._citations: list[dict[str, Any]] = []

    def read(self, event: _Event, frame: Frame) -> None:
        if event.type == "content-delta":
            self._read_content(event, frame)
            return
        read = _EVENTS.get(event.type or frame.event)
        if read is not None:
            read(self, event, frame)
        elif event.message is not None:
            self.out.refused(event.message)

    def read_unparsed(self, frame: Frame) -> bool:
        return frame.data == b"[DONE]" or event_type(frame.data) not in (None, *_EVENTS)

    def read_end(self) -> None:
        self._emit_citations()
        self.truncated("message-end")

    # -- content

    def _read_content(self, event: _Event, frame: Frame) -> None:
        delta = event.delta
        if delta is None or delta.message is None:
            return
        content = delta.message.content
        if type(content) is not _Content:
            return
        if content.text:
            if event.index == self._block and self._last_kind == "text":
                self.out.text(content.text)
            else:
                self._emit("text", content.text, event.index)
        if content.thinking:
            self._emit("thinking", content.thinking, event.index, {"type": "thinking"})

    def _read_plan(self, event: _Event, frame: Frame) -> None:
        plan = _message_of(event).tool_plan
        if plan:
            self._emit("thinking", plan, _PLAN_INDEX, {"type": "tool_plan"})

    def _emit(self, kind: str, piece: str, block: int | None, origin: dict[str, Any] | None = None) -> None:
        is_new = block != self._block or kind != self._last_kind
        if is_new:
            self._emit_citations()
        emit = self.out.text if kind == "text" else self.out.thinking
        emit(piece, new_part=is_new and kind == self._last_kind, continuation=origin if is_new else None)
        self._block, self._last_kind = block, kind

    def _read_citation(self, event: _Event, frame: Frame) -> None:
        citation = _message_of(event).citations
        if isinstance(citation, dict) and self._pending.can_keep(citation):
            self._citations.append(citation)
            self._pending.hold(len(frame.data))

    def _emit_citations(self) -> None:
        if self._citations:
            emit = self.out.thinking if self._last_kind == "thinking" else self.out.text
            emit("", continuation={"citations": self._citations})
            self._citations = []

    # -- tool calls

    def _read_call_start(self, event: _Event, frame: Frame) -> None:
        call = _call_of(event)
        if call is None:
            return
        self._emit_citations()
        self._block, self._last_kind = None, "tool_call"
        function = call.function or _Function()
        index = event.index or 0
        self.out.open_call(index, function.name or "", provider_id=call.id)
        self.out.call_args(index, function.arguments or "")

    def _read_call_delta(self, event: _Event, frame: Frame) -> None:
        call = _call_of(event)
        if call is not None and call.function is not None:
            self.out.call_args(event.index or 0, call.function.arguments or "")

    def _read_call_end(self, event: _Event, frame: Frame) -> None:
        self.out.close_call(event.index or 0)

    # -- the message

    def _read_start(self, event: _Event, frame: Frame) -> None:
        self.out.start(None, event.id)

    def _read_message_end(self, event: _Event, frame: Frame) -> None:
        self._emit_citations()
        delta = event.delta or _Delta()
        if delta.usage is not None and delta.usage.tokens is not None:
            counts, cached = delta.usage.tokens, delta.usage.cached_tokens
            # `billed_units` beside it is what is charged, not what was read: 46 of 1,445 input tokens in
            # recordings/cohere-v2/ai--cohere-empty-tool-call--0-9bac6b.
            self.out.usage(
                Usage(
                    token_count(counts.input_tokens) or 0,
                    token_count(counts.output_tokens) or 0,
                    cache_read_tokens=token_count(cached),
                    reasoning_tokens=token_count(counts.reasoning_tokens),
                )
            )
        reason = delta.finish_reason
        if delta.error or reason in _FAILURES:
            self.out.refused(delta.error or f"The model stopped with {reason}.", raw_code=reason)
            return
        self.out.finish(_FINISH.get(reason or "", "other"), reason)
        self.out.done()


def _message_of(event: _Event) -> _Message:
    return (event.delta and event.delta.message) or _Message()


def _call_of(event: _Event) -> _ToolCall | None:
    call = _message_of(event).tool_calls
    return call if type(call) is _ToolCall else None


def _skip(decoder: CohereV2, event: _Event, frame: Frame) -> None:
    pass


_EVENTS: dict[str, Callable[[CohereV2, _Event, Frame], None]] = {
    "content-delta": CohereV2._read_content,
    "content-start": CohereV2._read_content,
    "content-end": _skip,
    "tool-plan-delta": CohereV2._read_plan,
    "tool-call-start": CohereV2._read_call_start,
    "tool-call-delta": CohereV2._read_call_delta,
    "tool-call-end": CohereV2._read_call_end,
    "citation-start": CohereV2._read_citation,
    "citation-end": _skip,
    "message-start": CohereV2._read_start,
    "message-end": CohereV2._read_message_end,
}
