"""The ways in which a provider's stream fails, as data: the bytes in each format, and the correct outcome.

The rule behind all of them: a truncated response never passes for an answer, and no call that must not run is handed
over. A call may run if its stream ended in `done`, its finish reason is not `length`, and its arguments could be
parsed.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bartack.nouns.errors import ErrorCode

__all__ = ["FAULT_FORMATS", "ExpectedOutcome", "Reset", "Scenario", "Stall", "scenarios"]

# -- the events of three wire formats: just enough to write every scenario

Finish = Literal["stop", "length", "tool_calls"]


class EventWriter:
    """Writes the events of OpenAI's chat format; subclasses write those of other formats. Calls have an `index`."""

    format = "openai-chat"

    def call(self, index: int, call_id: str, name: str, args: str) -> bytes:
        """A complete call, with its arguments in two pieces."""
        half = len(args) // 2
        pieces = [self.args(index, call_id, args[:half]), self.args(index, call_id, args[half:])]
        return b"".join([self.open_call(index, call_id, name), *pieces, self.close_call(index, call_id, name, args)])

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "answer-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return _data({**head, "choices": [choice]})

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def open_call(self, index: int, call_id: str, name: str) -> bytes:
        function = {"name": name, "arguments": ""}
        return self._chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})

    def args(self, index: int, call_id: str, piece: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def close_call(self, index: int, call_id: str, name: str, args: str) -> bytes:
        return b""

    def finish(self, reason: Finish) -> bytes:
        """The finish reason and the terminal signal."""
        return self._chunk({}, reason) + b"data: [DONE]\n\n"

    def overloaded(self) -> bytes:
        """An error event in the stream."""
        return _data({"error": {"message": "too busy", "type": "server_error", "code": "overloaded"}})

    def error_body(self, status: int) -> bytes:
        """The body of a response with this status."""
        kind = {429: "rate_limit_exceeded", 500: "server_error"}[status]
        return _json({"error": {"message": "not now", "type": kind, "code": kind}})


class _AnthropicEventWriter(EventWriter):
    format = "anthropic-messages"

    def start(self) -> bytes:
        usage = {"input_tokens": 3, "output_tokens": 1}
        message = {
            "id": "answer-1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "m",
            "usage": usage,
        }
        return _event({"type": "message_start", "message": message})

    def text(self, piece: str) -> bytes:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": piece}
        return _event({"type": "content_block_start", "index": 9, "content_block": block}) + _event(
            {"type": "content_block_delta", "index": 9, "delta": delta}
        )

    def open_call(self, index: int, call_id: str, name: str) -> bytes:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        return _event({"type": "content_block_start", "index": index, "content_block": block})

    def args(self, index: int, call_id: str, piece: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": piece}
        return _event({"type": "content_block_delta", "index": index, "delta": delta})

    def close_call(self, index: int, call_id: str, name: str, args: str) -> bytes:
        return _event({"type": "content_block_stop", "index": index})

    def finish(self, reason: Finish) -> bytes:
        stop_reason = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[reason]
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        closed = _event({"type": "content_block_stop", "index": 9}) if reason == "stop" else b""
        return (
            closed
            + _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
            + _event({"type": "message_stop"})
        )

    def overloaded(self) -> bytes:
        return _event({"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}})

    def error_body(self, status: int) -> bytes:
        kind = {429: "rate_limit_error", 500: "api_error"}[status]
        return _json({"type": "error", "error": {"type": kind, "message": "not now"}})


class _ResponsesEventWriter(EventWriter):
    format = "openai-responses"

    def start(self) -> bytes:
        return _event({"type": "response.created", "response": self._response("in_progress")})

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": "answer-1", "object": "response", "model": "m", "status": status, "output": [], **fields}

    def text(self, piece: str) -> bytes:
        place = {"item_id": "msg_1", "output_index": 9, "content_index": 0}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        return (
            _event({"type": "response.output_item.added", "output_index": 9, "item": item})
            + _event({"type": "response.content_part.added", **place, "part": part})
            + _event({"type": "response.output_text.delta", **place, "delta": piece})
        )

    def _item(self, call_id: str, name: str, args: str, status: str) -> dict[str, Any]:
        facts = {"call_id": call_id, "name": name, "arguments": args, "status": status}
        return {"id": f"fc_{name}", "type": "function_call", **facts}

    def open_call(self, index: int, call_id: str, name: str) -> bytes:
        item = self._item(call_id, name, "", "in_progress")
        return _event({"type": "response.output_item.added", "output_index": index, "item": item})

    def args(self, index: int, call_id: str, piece: str) -> bytes:
        return _event({"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece})

    def close_call(self, index: int, call_id: str, name: str, args: str) -> bytes:
        done = {"type": "response.function_call_arguments.done", "output_index": index, "arguments": args}
        item = self._item(call_id, name, args, "completed")
        return _event(done) + _event({"type": "response.output_item.done", "output_index": index, "item": item})

    def finish(self, reason: Finish) -> bytes:
        usage = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
        if reason == "length":
            why = {"reason": "max_output_tokens"}
            response = self._response("incomplete", incomplete_details=why, usage=usage)
            return _event({"type": "response.incomplete", "response": response})
        return _event({"type": "response.completed", "response": self._response("completed", usage=usage)})

    def overloaded(self) -> bytes:
        error = {"type": "error", "code": "overloaded", "message": "too busy", "param": None}
        return _event({"type": "error", "error": error})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\n" + _data(value)


EVENT_WRITERS: dict[str, EventWriter] = {
    writer.format: writer for writer in (_AnthropicEventWriter(), EventWriter(), _ResponsesEventWriter())
}


FAULT_FORMATS = tuple(EVENT_WRITERS)


class Stall(Struct, frozen=True):
    """The server pauses, with the connection open."""

    seconds: float


class Reset(Struct, frozen=True):
    """The server resets the connection."""


class ExpectedOutcome(Struct, frozen=True, kw_only=True):
    """The correct outcome. `runnable` has the arguments of the calls that may run, in order."""

    end: Literal["done", "error"]
    codes: frozenset[ErrorCode] = frozenset()  # any of these, for an error
    finish_reason: str | None = None
    text: str | None = None
    runnable: tuple[dict[str, Any], ...] = ()
    bad_args: int = 0
    retryable: bool | None = None
    retry_after_ms: int | None = None


class Scenario(Struct, frozen=True, kw_only=True):
    """One response of a server."""

    name: str
    format: str
    status: int = 200
    headers: Mapping[str, str] = {}
    steps: tuple[bytes | Stall | Reset, ...]
    outcome: ExpectedOutcome

    def __str__(self) -> str:
        return f"{self.format}: {self.name}"


def scenarios(format: str | None = None) -> tuple[Scenario, ...]:
    """The scenarios in one format, or in all of `FAULT_FORMATS`."""
    writers = [writer for writer in EVENT_WRITERS.values() if format in (None, writer.format)]
    return tuple(scenario for writer in writers for scenario in _scenarios(writer))


def _error(*codes: ErrorCode, retry_after_ms: int | None = None) -> ExpectedOutcome:
    return ExpectedOutcome(end="error", codes=frozenset(codes), retryable=True, retry_after_ms=retry_after_ms)


_ARGS = '{"city":"Paris"}'
_PARIS, _ROME = {"city": "Paris"}, {"city": "Rome"}
_TRUNCATED = _error(ErrorCode.STREAM_TRUNCATED)
_MALFORMED = _error(ErrorCode.STREAM_MALFORMED, ErrorCode.STREAM_TRUNCATED)
_BAD_ARGS = ExpectedOutcome(end="done", finish_reason="tool_calls", bad_args=1)
_LENGTH = ExpectedOutcome(end="done", finish_reason="length")
_ALL_WELL = ExpectedOutcome(end="done", finish_reason="stop", text="All is well.")
_JSON = {"Content-Type": "application/json"}


def _scenarios(writer: EventWriter) -> tuple[Scenario, ...]:
    def scenario(name: str, outcome: ExpectedOutcome, *steps: bytes | Stall | Reset, **response: Any) -> Scenario:
        return Scenario(name=name, format=writer.format, steps=steps, outcome=outcome, **response)

    start, finish = writer.start(), writer.finish
    half_text = start + writer.text("The transfer is ")
    text = start + writer.text("All is well.")
    call = start + writer.call(0, "call_1", "look", _ARGS)
    half_call = start + writer.open_call(0, "call_1", "look") + writer.args(0, "call_1", '{"city":"Pa')
    bad_call = start + writer.call(0, "call_1", "look", '{"city":Paris}')
    same_id = writer.call(1, "call_1", "see", '{"city":"Rome"}')
    same_index = writer.call(0, "call_2", "see", '{"city":"Rome"}')
    one_call = ExpectedOutcome(end="done", finish_reason="tool_calls", runnable=(_PARIS,))
    two_calls = ExpectedOutcome(end="done", finish_reason="tool_calls", runnable=(_PARIS, _ROME))
    return (
        # Two controls: a check that nothing passes proves nothing.
        scenario("complete text", _ALL_WELL, text, finish("stop")),
        scenario("complete call", one_call, call, finish("tool_calls")),
        scenario("text cut off by a close", _TRUNCATED, half_text),
        scenario("text cut off by a reset", _TRUNCATED, half_text, Reset()),
        scenario("cut off inside arguments", _TRUNCATED, half_call),
        scenario("cut off after arguments", _TRUNCATED, call),
        scenario("length limit inside arguments", _LENGTH, half_call, finish("length")),
        scenario("length limit after arguments", _LENGTH, call, finish("length")),
        scenario("error event", _error(ErrorCode.OVERLOADED), half_text, writer.overloaded()),
        scenario("two calls with the same id", two_calls, call, same_id, finish("tool_calls")),
        scenario("two calls with the same index", two_calls, call, same_index, finish("tool_calls")),
        scenario("arguments that are not JSON", _BAD_ARGS, bad_call, finish("tool_calls")),
        scenario("nothing after the start", _TRUNCATED, start),
        scenario("empty body", _TRUNCATED),
        scenario("garbage after the end", _ALL_WELL, text, finish("stop"), b"<html>\x00\xff garbage\n\n"),
        scenario("garbage instead of events", _MALFORMED, half_text, b"data: {\x00\xff not json\n\n"),
        scenario(
            "429 with Retry-After",
            _error(ErrorCode.RATE_LIMITED, retry_after_ms=7000),
            writer.error_body(429),
            status=429,
            headers={**_JSON, "Retry-After": "7"},
        ),
        scenario("500", _error(ErrorCode.SERVER_ERROR), writer.error_body(500), status=500, headers=_JSON),
        scenario("silence", _error(ErrorCode.TIMEOUT), half_text, Stall(10), finish("stop")),
    )
