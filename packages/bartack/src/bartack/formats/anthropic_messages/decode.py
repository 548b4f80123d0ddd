"""Anthropic's Messages stream to deltas. Vertex AI sends the same events, and Bedrock wraps them (`bedrock_invoke`).

A message is a list of blocks. Each block is a `content_block_start`, its deltas and a `content_block_stop`, all with
one `index`. `message_delta` has the stop reason and the usage; `message_stop` is the terminal signal. A response that
was not streamed is one event of type `message`, with whole blocks.

How blocks become parts (the cases named here are in recordings/anthropic-messages):
- `text` and `thinking` are emitted as they arrive. What applies to a whole block (signature, citations) is collected
  and attached to the block's last delta.
- `tool_use` is a call for the client. `server_tool_use` and `mcp_tool_use` are executed by the provider: they stay open
  until their result block arrives, which is kept readable in the result and raw in the continuation data.
- A result that does not directly follow its call leaves an empty thinking part with `resultOf` in its
  place, so that the encoder can restore the order of the blocks. Calls may run in parallel
  (pydantic-ai--test_anthropic-test_anthropic_text_editor_code_execution_tool_stream--0-fe7f63) or inside each other
  (ai--anthropic-web-fetch-tool-20260209.1--0-cf948f).
- Everything without a counterpart in our parts (`redacted_thinking`, `compaction`, files in a container, a result whose
  call is in an earlier message, future block types) is an empty thinking part that carries the block, with what its
  deltas added to it. Fields and deltas of other blocks that are unknown here are kept with the part.
- The `container` in which the provider ran its tools is only known after the last block. It is attached to the last
  part; the end of a call is therefore delayed until something follows it.

Recorded streams never interleave blocks. If blocks do overlap, a later one waits until the earlier one has ended, so
that no part is split. Calls have keys of their own and may overlap.

Every field of an event may be missing or null: servers that imitate the format omit what they do not have.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, NotRequired, TypedDict

import msgspec

from bartack.formats.body_values import beyond, parsed_object, text_of
from bartack.formats.decoder import Decoder, event_type, joined_pieces
from bartack.formats.framing import Frame
from bartack.formats.usage import token_count
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Text, ToolContent

__all__ = ["FINISH_REASONS", "AnthropicContinuation", "AnthropicMessages", "readable_result"]

# -- the events


class _Block(TypedDict):
    type: str
    text: NotRequired[str]
    tool_use_id: NotRequired[str]


class _Caller(TypedDict, total=False):
    tool_id: str


class _Container(TypedDict, total=False):
    id: str


class AnthropicContinuation(TypedDict, total=False):
    """What a part keeps of its block: the decoder and the reader write it, the encoder and the writer read it.

    Other fields of a block (cache_control, title, ...) are kept under Anthropic's names.
    """

    block: _Block  # a whole block that no part can represent
    callId: str
    caller: _Caller | str  # Anthropic's field: the code that made a client call
    citations: Any
    container: _Container  # where the provider ran its tools; on the last part of a message
    data: str  # the content of redacted thinking
    result: _Block  # the raw result block of a provider call
    resultOf: str  # on a placeholder part: the id of the provider call whose result block was here
    signature: str
    turn: dict[str, Any]  # the fields of a turn besides its role and content; on its first part
    type: str  # the block's type, where the part alone does not imply it


class _ErrorBody(msgspec.Struct, gc=False):
    type: str | None = None
    message: str | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _AnthropicCounts(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_creation: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None


class _MessageBody(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    usage: _AnthropicCounts | None = None
    container: dict[str, Any] | None = None


class _BlockDelta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    container: dict[str, Any] | None = None


class _AnthropicEvent(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: _BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: _MessageBody | str | None = None
    usage: _AnthropicCounts | None = None
    error: _ErrorBody | str | None = None


def _usage_of(counts: _AnthropicCounts) -> Usage:
    """The usage in our terms: Anthropic counts cache reads and writes apart from `input_tokens`."""
    cache_read, cache_write = (
        token_count(counts.cache_read_input_tokens),
        token_count(counts.cache_creation_input_tokens),
    )
    details = counts.output_tokens_details
    return Usage(
        (token_count(counts.input_tokens) or 0) + (cache_read or 0) + (cache_write or 0),
        token_count(counts.output_tokens) or 0,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=None if details is None else token_count(details.thinking_tokens),
        extra=_separately_priced(counts),
    )


def _separately_priced(counts: _AnthropicCounts) -> dict[str, Any] | None:
    """Counts with prices of their own: cache writes by lifetime, requests made by the provider's tools."""
    reported = {"cacheCreation": counts.cache_creation, "serverToolUse": counts.server_tool_use}
    groups = {
        name: {key: count for key, count in (group or {}).items() if isinstance(count, int) and count > 0}
        for name, group in reported.items()
    }
    return {name: group for name, group in groups.items() if group} or None


def readable_result(block: dict[str, Any]) -> tuple[ToolContent, bool]:
    """The content of a result block, and whether it is an error.

    Strings that only the provider can decrypt are omitted: they are long, and the raw block is kept beside the result.
    """
    content = _readable(block.get("content"))
    if isinstance(content, dict):
        return content, block.get("is_error") is True or text_of(content, "type").endswith("_error")
    is_error = block.get("is_error") is True
    if isinstance(content, str):
        return content, is_error
    items = content if isinstance(content, list) else []
    if items and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in items):
        return tuple(Text(item["text"]) for item in items), is_error
    return {"content": items}, is_error


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items() if not key.startswith("encrypted_")}
    return [_readable(item) for item in value] if isinstance(value, list) else value


# -- the decoder


# docs.claude.com, "Handling stop reasons".
FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",  # the turn continues once the compaction block has been sent back
}
_CALL_KEYS = frozenset(("type", "id", "name", "input"))
# Fields that parts represent, or that have a key of their own in the continuation data.
_TEXT_KEYS = frozenset(("type", "text", "thinking", "signature", "data", "citations"))
_KNOWN_DELTAS = frozenset(("text_delta", "thinking_delta", "signature_delta", "citations_delta"))
_NO_INDEX = float("nan")  # equal to no index


class _CallEnd(NamedTuple):
    """The end of a call, delayed because the container may still have to be added to it."""

    key: str | int
    continuation: dict[str, Any]
    result: ToolContent | None = None
    is_error: bool = False


class AnthropicMessages(Decoder):
    """Decodes `content_block_delta` and related events."""

    format: ClassVar[str] = "anthropic-messages"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_AnthropicEvent)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # The block that is open, unless it is a call or a result.
        self._current: int | None = None
        self._kind = ""
        self._block: list[dict[str, Any]] = []  # the block of its start event, and deltas that are unknown here
        self._signature: list[str] = []
        self._citations: list[Any] = []
        self._new_part = False
        self._last_kind = ""  # the kind of the last part that was emitted
        # Indexes whose next text or argument piece needs no further checks: the fast path of `read`.
        self._text_index: float = _NO_INDEX
        self._args_index: float = _NO_INDEX
        self._args_call_id = ""
        # Calls.
        self._last_opened: str | int | None = None  # a call's key, or the index of another block
        self._keys: dict[int, str | int] = {}  # the open calls: client calls by index, provider calls by id
        self._unanswered: set[str] = set()  # keys of provider calls without a result
        self._inputs: dict[int, str] = {}  # arguments in `content_block_start`, unless deltas follow
        self._call_end: _CallEnd | None = None
        self._waiting: dict[int, list[tuple[_AnthropicEvent, Frame]]] = {}  # events of overlapping blocks, by index
        self._counts = _AnthropicCounts()
        self._container: dict[str, Any] | None = None

    def read(self, event: _AnthropicEvent, frame: Frame) -> None:
        if event.type == "content_block_delta":
            delta = event.delta
            if event.index == self._text_index and delta is not None and delta.text:
                self.out.more_text(delta.text)
            elif event.index == self._args_index and delta is not None and delta.partial_json:
                self.out.more_args(self._args_call_id, delta.partial_json)
            else:
                self._read_delta(event, frame)
            return
        read = _EVENTS.get(event.type or frame.event)
        if read is not None:
            read(self, event, frame)
        elif event.error is not None or (event.type is None and isinstance(event.message, str)):
            self._read_error(event, frame)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.data == b"[DONE]":  # added by gateways that speak several formats; not verified
            if self.out.finish_reason is not None:
                self._read_message_stop(_AnthropicEvent(), frame)
            return True
        return event_type(frame.data) not in (None, "content_block_delta", *_EVENTS)

    def read_end(self) -> None:
        self._close_blocks()
        self._end_call()
        self.truncated("message_stop")

    # -- deltas

    def _read_delta(self, event: _AnthropicEvent, frame: Frame) -> None:
        delta, index = event.delta, event.index or 0
        if delta is None:
            return
        kind = delta.type
        if index == self._current:
            if self._kind not in ("text", "thinking") or kind not in _KNOWN_DELTAS:
                self._collect_unknown(frame)
            elif kind == "text_delta":
                self._emit_text(delta.text)
            elif kind == "thinking_delta":
                self._emit_thinking(delta.thinking)
            else:
                self._collect(delta, frame)
        elif self._current is not None:
            self._wait(index, event, frame)
        elif kind == "input_json_delta":
            key = self._keys.get(index)
            # A result ends its call even without a stop event.
            has_ended = isinstance(key, str) and key not in self._unanswered
            if delta.partial_json and key is not None and not has_ended:
                self._inputs.pop(index, None)
                self._args_index, self._args_call_id = index, self.out.call_id(key)
                self.out.more_args(self._args_call_id, delta.partial_json)
        elif kind in ("text_delta", "thinking_delta"):  # without a content_block_start
            self._open(index, {"type": kind.removesuffix("_delta")})
            self._read_delta(event, frame)

    def _emit_text(self, piece: str | None) -> None:
        if piece:
            self.out.text(piece, new_part=self._new_part)
            self._new_part = False
            self._last_kind = "text"
            self._text_index = self._current or 0

    def _emit_thinking(self, piece: str | None) -> None:
        if piece and self._last_kind == "thinking" and not self._new_part:
            self.out.more_thinking(piece)
        elif piece:
            self.out.thinking(piece, new_part=self._new_part)
            self._new_part = False
            self._last_kind = "thinking"

    def _collect(self, delta: _BlockDelta, frame: Frame) -> None:
        if delta.citation is not None and self._pending.can_keep(delta.citation):
            self._citations.append(delta.citation)
        if delta.signature:
            self._signature.append(delta.signature)
        self._pending.hold(len(frame.data))

    def _collect_unknown(self, frame: Frame) -> None:
        """Keep a delta that adds to a block in a way that is unknown here."""
        piece = beyond(self.plain_json(frame)["delta"], "type")
        if self._pending.can_keep(piece):
            self._block.append(piece)
            self._pending.hold(len(frame.data))

    def _wait(self, index: int, event: _AnthropicEvent, frame: Frame) -> None:
        self._waiting.setdefault(index, []).append((event, frame))
        self._pending.hold(len(frame.data))

    # -- blocks

    def _read_block_start(self, event: _AnthropicEvent, frame: Frame) -> None:
        index, block = event.index or 0, event.content_block
        if block is None or not self._pending.can_keep(block):
            return
        if self._current not in (None, index):
            self._wait(index, event, frame)
            return
        if index == self._current:
            self._close_current()
        self._open(index, block)

    def _read_block_stop(self, event: _AnthropicEvent, frame: Frame) -> None:
        index = event.index or 0
        if self._current not in (None, index):
            self._wait(index, event, frame)
            return
        self._stop(index)
        self._read_waiting()

    def _open(self, index: int, block: dict[str, Any]) -> None:
        self._args_index = _NO_INDEX
        self._end_call()
        kind = text_of(block, "type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            self._open_call(index, block, kind)
        elif kind.endswith("_tool_result"):
            self._read_result(block)
        elif kind == "redacted_thinking":
            self._carry({"type": kind, "data": text_of(block, "data"), **_unknown_fields(block)})
        elif kind:
            self._current, self._kind, self._block = index, kind, [block]
            self._last_opened = index
            if kind in ("text", "thinking"):
                self._new_part = self._last_kind == kind
                self._emit_text(text_of(block, "text"))
                self._emit_thinking(text_of(block, "thinking"))

    def _open_call(self, index: int, block: dict[str, Any], kind: str) -> None:
        self._emit_whole_input(index)
        call_id = text_of(block, "id")
        extra = beyond(block, *_CALL_KEYS)
        if kind == "tool_use":
            key: str | int = index
            self.out.open_call(key, text_of(block, "name"), provider_id=call_id, continuation=extra or None)
        else:
            key = call_id
            self._unanswered.add(key)
            self.out.open_call(
                key,
                text_of(block, "name"),
                provider_id=call_id,
                executed_by="provider",
                continuation={"type": kind, **extra},
            )
        self._keys[index] = self._last_opened = key
        self._last_kind = "tool_call"
        if block.get(
            "input"
        ):  # whole when code calls a tool: langchain--test_programmatic_tool_use_streaming--0-75eeac
            self._inputs[index] = json_text(block["input"])

    def _read_result(self, block: dict[str, Any]) -> None:
        key = text_of(block, "tool_use_id")
        if key not in self._unanswered:
            self._carry({"block": block})
            return
        self._unanswered.remove(key)
        if key != self._last_opened:
            self._carry({"resultOf": key})
        self._call_end = _CallEnd(key, {"result": block}, *readable_result(block))

    def _carry(self, data: dict[str, Any]) -> None:
        """Emit an empty thinking part that keeps provider data at its position."""
        self.out.thinking("", new_part=True, continuation=data)
        self._last_kind = "thinking"
        self._last_opened = None

    def _stop(self, index: int) -> None:
        self._args_index = _NO_INDEX
        if index == self._current:
            self._close_current()
            return
        self._emit_whole_input(index)
        key = self._keys.pop(index, None)
        if isinstance(key, int):  # provider calls stay open until their result arrives
            self._end_call()
            self._call_end = _CallEnd(key, {})

    def _end_call(self, extra: dict[str, Any] | None = None) -> None:
        end, self._call_end = self._call_end, None
        if end is not None:
            data = {**end.continuation, **(extra or {})}
            self.out.close_call(end.key, continuation=data or None, result=end.result, result_is_error=end.is_error)

    def _emit_whole_input(self, index: int) -> None:
        if index in self._inputs:
            self.out.call_args(self._keys[index], self._inputs.pop(index))

    def _close_current(self) -> None:
        block, signature, citations = joined_pieces(self._block), "".join(self._signature), self._citations
        self._current, self._text_index = None, _NO_INDEX
        self._block, self._signature, self._citations = [], [], []
        if self._kind not in ("text", "thinking"):
            self._carry({"block": _with_whole_input(block)})
            return
        data = _unknown_fields(block)
        if self._kind == "thinking":
            data |= _filled("signature", text_of(block, "signature") + signature)
        else:
            opening_citations = block.get("citations")
            data |= _filled(
                "citations",
                [*(opening_citations if isinstance(opening_citations, list) else ()), *citations],
            )
        if data:
            emit = self.out.thinking if self._kind == "thinking" else self.out.text
            emit("", new_part=self._new_part, continuation=data)
            self._last_kind = self._kind

    def _read_waiting(self) -> None:
        """Read the events that waited for the block that has just ended, one block after another."""
        while self._current is None and self._waiting:
            index = next(iter(self._waiting))
            for event, frame in self._waiting.pop(index):
                if event.type == "content_block_stop":
                    self._stop(index)
                else:
                    self.read(event, frame)

    def _close_blocks(self) -> None:
        """Close the blocks that have no `content_block_stop`."""
        self._read_waiting()
        while self._current is not None:
            self._close_current()
            self._read_waiting()
        for index in list(self._inputs):
            self._emit_whole_input(index)

    # -- the message

    def _read_message_start(self, event: _AnthropicEvent, frame: Frame) -> None:
        message = event.message
        if not isinstance(message, _MessageBody):
            return
        self.out.start(message.model, message.id)
        # Blocks that come whole: ai--anthropic-programmatic-tool-calling.1--1-1e2e88.
        if message.content and self._pending.can_keep(message.content):
            for index, block in enumerate(message.content):
                self._open(index, block)
                self._stop(index)
        self._read_outcome(message.stop_reason, message.container, message.usage)

    def _read_whole(self, event: _AnthropicEvent, frame: Frame) -> None:
        """Read a response that was not streamed."""
        if self.out.started:
            return
        try:
            message = msgspec.convert(self.plain_json(frame), _MessageBody)
        except ValueError as error:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"Invalid {self.format} message: {error}")
            return
        self._read_message_start(_AnthropicEvent(message=message), frame)
        if self.out.finish_reason is not None:  # else the end of the bytes is an error
            self._read_message_stop(event, frame)

    def _read_message_delta(self, event: _AnthropicEvent, frame: Frame) -> None:
        delta = event.delta or _BlockDelta()
        self._read_outcome(delta.stop_reason, delta.container, event.usage)

    def _read_outcome(
        self, stop_reason: str | None, container: dict[str, Any] | None, counts: _AnthropicCounts | None
    ) -> None:
        if stop_reason:
            self.out.finish(FINISH_REASONS.get(stop_reason, "other"), stop_reason)
        if container and self._pending.can_keep(container):
            self._container = container
        if counts is not None and not self.out.ended:
            self._update_counts(counts)

    def _update_counts(self, counts: _AnthropicCounts) -> None:
        # Older streams repeat only `output_tokens` at the end, newer ones every count: the last value of each holds.
        # Older: openllmetry--test_thinking-test_anthropic_thinking_streaming_legacy--0-cc912a.
        for name in _AnthropicCounts.__struct_fields__:
            value = getattr(counts, name)
            if value is not None:
                setattr(self._counts, name, value)
        if self._counts.input_tokens is not None or self._counts.output_tokens is not None:
            self.out.usage(_usage_of(self._counts))

    def _read_message_stop(self, event: _AnthropicEvent, frame: Frame) -> None:
        self._close_blocks()
        if self._container is not None:
            self._attach_container({"container": self._container})
        self._end_call()
        self.out.done()

    def _attach_container(self, data: dict[str, Any]) -> None:
        key = self._last_opened
        if self._call_end is not None:
            self._end_call(data)
        elif self._last_kind == "text":
            self.out.text("", continuation=data)
        elif isinstance(key, str) and self.out.is_open(key):
            self.out.close_call(key, continuation=data)
        else:
            self.out.thinking("", continuation=data)

    def _read_error(self, event: _AnthropicEvent, frame: Frame) -> None:
        self._close_blocks()
        self._end_call()
        error = event.error
        if isinstance(error, _ErrorBody):
            self.out.refused(error.message or error.type or "", raw_code=error.type)
        else:
            message = error or event.message
            self.out.refused(message if isinstance(message, str) else "The provider gave no reason.")

    def _skip(self, event: _AnthropicEvent, frame: Frame) -> None:
        pass


def _unknown_fields(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name not in _TEXT_KEYS and value is not None}


def _with_whole_input(block: dict[str, Any]) -> dict[str, Any]:
    """A block whose input, if it arrived as pieces of JSON text, is the object."""
    input = parsed_object(text_of(block, "partial_json"))
    if input is None:
        return block
    return {**beyond(block, "partial_json"), "input": input}


def _filled(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}


_EVENTS: dict[str, Callable[[AnthropicMessages, _AnthropicEvent, Frame], None]] = {
    "content_block_start": AnthropicMessages._read_block_start,
    "content_block_stop": AnthropicMessages._read_block_stop,
    "message_start": AnthropicMessages._read_message_start,
    "message_delta": AnthropicMessages._read_message_delta,
    "message_stop": AnthropicMessages._read_message_stop,
    "error": AnthropicMessages._read_error,
    "ping": AnthropicMessages._skip,
    "message": AnthropicMessages._read_whole,
}
