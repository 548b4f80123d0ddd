"""`MessageAssembler`: assembles the deltas of one stream into one assistant message (000 §5, 001).

Input: stamped deltas. Output: snapshots while the stream runs, and the final message after `done`. Text is kept in
lists and joined on demand, so the cost of a stream depends on its length, not on the number of deltas. Tool call
arguments are parsed once, when the call ends. Invalid arguments are data, not an exception: the text is kept in
`raw_args_text`, `Meta.bad_args` has the reason, and the call is never executed.

A part ends when a part of another kind begins, or at a delta with ``new_part``. Arguments, the end of a call, and usage
begin no part, so they may be interleaved with the pieces of a text.

**The machine.** `Contract` decides whether a delta is allowed, before anything changes; the assembler only applies it.
It has a list of builders in the order of the parts, and two ways into it: `_text`, the text or thinking part that is
still growing, and `tool_calls_buffer`, the calls by id, since the arguments of several calls may alternate. `_STEPS`
has one method for each kind of delta. A snapshot asks every builder for its part: a builder joins its pieces once and
keeps the result, so a snapshot after every delta copies each text once more, but never piece by piece.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ModelError, PartValidationError, StreamError
from bartack.nouns.json_values import MAX_DEPTH, json_name
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Continuation, Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tables import ASSEMBLY, AssemblyStatus, advance
from bartack.nouns.wire import load
from bartack.stream.contract import Contract, StreamLimits

__all__ = ["MessageAssembler", "parse_arguments"]


class MessageAssembler:
    """Assembles one stream at a time."""

    def __init__(
        self,
        run_id: str | None = None,
        *,
        message_id: str | None = None,
        limits: StreamLimits | None = None,
        guarded: bool = False,
    ) -> None:
        """With `guarded`, the deltas come from a guard that has checked them and are not checked again."""
        for name, value in (("run_id", run_id), ("message_id", message_id)):
            if value is not None and (type(value) is not str or not value):
                raise PartValidationError(f"{name} must be a non-empty text", path=f"$.{name}", rule="001-2.2.3")
        self.run_id = run_id
        self._message_id = message_id
        self._limits = limits
        self._is_guarded = guarded
        self.reset()

    def reset(self) -> None:
        """Discard the stream and return to `idle`."""
        self._contract = None if self._is_guarded else Contract(self.run_id, self._limits)
        self.status: AssemblyStatus = AssemblyStatus.IDLE
        self._last: MessageDelta | None = None
        self._builders: list[_TextBuilder | _CallBuilder] = []
        self._text: _TextBuilder | None = None
        self.tool_calls_buffer: dict[str, _CallBuilder] = {}
        self.usage: Usage | None = None
        self.error: Failed | None = None
        self._start: Start | None = None
        self._first: MessageDelta | None = None
        self._ended_at: datetime | None = None
        self._done: Done | None = None

    @property
    def last_seq(self) -> int:
        """The `seq` of the last delta, or -1."""
        return -1 if self._last is None else self._last.seq

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts received so far."""
        return tuple(builder.part(self._origin) for builder in self._builders)

    def consume(self, delta: MessageDelta) -> None:
        """Apply the next delta.

        Raises:
            StreamError: The delta violates the contract. The assembler is unchanged.
        """
        if self._contract is not None:
            self._contract.admit(delta)
        bare = delta.delta
        _STEPS[type(bare)](self, bare, delta)
        self._last = delta

    def snapshot(self) -> Message:
        """The message received so far, for display. Open calls have no arguments, only `raw_args_text`."""
        return Message(
            "assistant",
            self.parts,
            id=self._message_id,
            run_id=self.run_id if self._first is None else self._first.run_id,
            timestamp=None if self._first is None else self._first.timestamp,
            meta=self._meta(),
        )

    def build_final_message(self) -> Message:
        """Return the finished message.

        Raises:
            StreamError: The stream has not ended.
            ModelError: The stream ended in an error.
        """
        if self.error is not None:
            raise ModelError(
                self.error.message or f"the stream failed with {self.error.error_code}",
                code=self.error.error_code,
                retryable=self.error.retryable,
                status=self.error.status,
                retry_after_ms=self.error.retry_after_ms,
            )
        if self.status is not AssemblyStatus.DONE:
            raise StreamError(f"no final message before done (status: {self.status})", rule="001-4.2.4")
        return self.snapshot()

    def get_error(self) -> Failed | None:
        """The error that ended the stream, or None."""
        return self.error

    # -- one step for each kind of delta

    def _on_start(self, delta: Start, stamped: MessageDelta) -> None:
        self._start, self._first = delta, stamped
        self.status = advance(ASSEMBLY, self.status, delta.kind)

    def _on_text(self, delta: TextDelta | ThinkingDelta, stamped: MessageDelta) -> None:
        text = self._text
        if text is None or text.delta_type is not type(delta) or delta.new_part:
            text = self._text = _TextBuilder(type(delta), stamped.timestamp)
            self._builders.append(text)
        text.pieces.append(delta.text_delta)
        text.end = stamped.timestamp
        if delta.continuation is not None:
            text.continuation.update(delta.continuation)

    def _on_call_start(self, delta: ToolCallStart, stamped: MessageDelta) -> None:
        call = self.tool_calls_buffer[delta.tool_call_id] = _CallBuilder(delta)
        self._builders.append(call)
        self._text = None

    def _on_call_args(self, delta: ToolCallArgs, stamped: MessageDelta) -> None:
        self.tool_calls_buffer[delta.tool_call_id].pieces.append(delta.args_text_delta)

    def _on_call_end(self, delta: ToolCallEnd, stamped: MessageDelta) -> None:
        self.tool_calls_buffer[delta.tool_call_id].close(delta)

    def _on_usage(self, delta: Usage, stamped: MessageDelta) -> None:
        self.usage = delta

    def _on_done(self, delta: Done, stamped: MessageDelta) -> None:
        self._done, self._ended_at = delta, stamped.timestamp
        self.status = advance(ASSEMBLY, self.status, delta.kind)

    def _on_failed(self, delta: Failed, stamped: MessageDelta) -> None:
        self.error, self._ended_at = delta, stamped.timestamp
        self.status = advance(ASSEMBLY, self.status, delta.kind)

    # -- metadata

    @property
    def _origin(self) -> ModelRef:
        start = self._start
        return ModelRef("", "") if start is None else ModelRef(start.provider or "", start.model_id)

    def _meta(self) -> Meta | None:
        if self._start is None or self._first is None:
            return None
        calls = self.tool_calls_buffer.items()
        done, first = self._done, self._first
        return Meta(
            model=self._origin,
            response_id=self._start.request_id,
            usage=self.usage,
            cost_usd=None if self.usage is None else self.usage.cost,
            duration_ms=None if self._ended_at is None else max(0, (self._ended_at - first.timestamp) // _MILLISECOND),
            completed_at=None if done is None else self._ended_at,
            finish_reason=None if done is None else done.finish_reason,
            raw_finish_reason=None if done is None else done.raw_finish_reason,
            bad_args={call_id: call.fault for call_id, call in calls if call.fault is not None} or None,
            open_calls=tuple(call_id for call_id, call in calls if call.is_open) or None,
            model_call_index=first.model_call_index,
            attempt=first.attempt,
        )


_STEPS: dict[type[Delta], Callable[[MessageAssembler, Any, MessageDelta], None]] = {
    Start: MessageAssembler._on_start,
    TextDelta: MessageAssembler._on_text,
    ThinkingDelta: MessageAssembler._on_text,
    ToolCallStart: MessageAssembler._on_call_start,
    ToolCallArgs: MessageAssembler._on_call_args,
    ToolCallEnd: MessageAssembler._on_call_end,
    Usage: MessageAssembler._on_usage,
    Done: MessageAssembler._on_done,
    Failed: MessageAssembler._on_failed,
}

_MILLISECOND = timedelta(milliseconds=1)


class _TextBuilder:
    """A text or thinking part under construction."""

    __slots__ = ("continuation", "delta_type", "end", "pieces", "start")

    def __init__(self, delta_type: type[TextDelta | ThinkingDelta], start: datetime) -> None:
        self.delta_type = delta_type
        self.start = start
        self.end = start
        self.pieces: list[str] = []
        self.continuation: dict[str, Any] = {}

    def part(self, origin: ModelRef) -> Text | Thinking:
        if len(self.pieces) > 1:  # joined once, so that the next snapshot copies one text
            self.pieces = ["".join(self.pieces)]
        make = Text if self.delta_type is TextDelta else Thinking
        return make(
            self.pieces[0],
            time=Span(start=self.start, end=self.end),
            continuation=_continuation(origin, self.continuation),
        )


class _CallBuilder:
    """A tool call under construction; its arguments are parsed when it is closed."""

    __slots__ = ("arguments", "continuation", "end", "fault", "is_open", "pieces", "start")

    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.end: ToolCallEnd | None = None
        self.is_open = True
        self.pieces: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.fault: str | None = None
        self.continuation = dict(start.continuation or {})

    @property
    def args_text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return "".join(self.pieces)

    def close(self, end: ToolCallEnd) -> None:
        self.end, self.is_open = end, False
        self.continuation.update(end.continuation or {})
        try:
            self.arguments = parse_arguments(self.args_text)
        except PartValidationError as error:
            self.fault = str(error)

    def part(self, origin: ModelRef) -> ToolCall:
        start = self.start
        return ToolCall(
            start.tool_call_id,
            start.tool_name,
            self.arguments,
            raw_args_text=self.args_text if self.is_open or self.fault is not None else None,
            executed_by=start.executed_by,
            result=self._result(),
            continuation=_continuation(origin, self.continuation),
        )

    def _result(self) -> ToolResult | None:
        if self.end is None or self.end.result is None:
            return None
        return ToolResult(self.start.tool_call_id, self.end.result, is_error=self.end.result_is_error)


def _continuation(origin: ModelRef, data: dict[str, Any]) -> Continuation | None:
    return Continuation(origin.provider, origin.model, dict(data)) if data else None


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse a tool call's arguments; raises `PartValidationError` unless the text is a JSON object or empty."""
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return _checked_arguments(text)  # the slower parser reports what is wrong, and where
    if type(value) is not dict or text.count("{") + text.count("[") > MAX_DEPTH:
        return _checked_arguments(text)
    return value


def _checked_arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise PartValidationError(f"nested more than {MAX_DEPTH} levels deep", rule="D-3.11.2") from None
    except ValueError as error:
        raise PartValidationError(f"not JSON: {error}", rule="000-5.6") from None
    if type(value) is not dict:
        raise PartValidationError(f"arguments must be an object, got {json_name(value)}", rule="000-3.3.1")
    checked: dict[str, Any] = load(dict[str, Any], value)
    return checked


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
