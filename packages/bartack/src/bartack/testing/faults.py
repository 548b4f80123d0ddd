"""The ways in which a provider's stream fails, as data: the bytes in each format, and the correct outcome.

The rule behind all of them: a truncated response never passes for an answer, and no call that must not run is handed
over. A call may run if its stream ended in `done`, its finish reason is not `length`, and its arguments could be
parsed.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bartack.nouns.errors import ErrorCode
from bartack.testing.event_writers import EVENT_WRITERS, EventWriter

__all__ = ["FAULT_FORMATS", "ExpectedOutcome", "Reset", "Scenario", "Stall", "scenarios"]

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
