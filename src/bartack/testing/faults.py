"""The ways in which a provider's stream goes wrong, as data: bytes per format, and what a correct model makes of them.

The law behind all rows: nothing that was cut off passes for an answer, and no call is handed over that must not run. A
call may run if its stream ended in `done`, not with the reason `length`, and its arguments parsed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from bartack.nouns.errors import ErrorCode
from bartack.testing.dialects import DIALECTS, Dialect

__all__ = ["FAULT_FORMATS", "Outcome", "Reset", "Scenario", "Stall", "scenarios"]

FAULT_FORMATS = tuple(DIALECTS)


class Stall(Struct, frozen=True):
    """The server says nothing for so long, with the connection open."""

    seconds: float


class Reset(Struct, frozen=True):
    """The connection is torn down."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What may come out. `runnable` are the arguments of the calls that may run, in order."""

    end: Literal["done", "error"]
    codes: frozenset[ErrorCode] = frozenset()  # of an error: one of these
    finish_reason: str | None = None
    text: str | None = None
    runnable: tuple[dict[str, Any], ...] = ()
    bad_args: int = 0
    retryable: bool | None = None
    retry_after_ms: int | None = None


class Scenario(Struct, frozen=True, kw_only=True):
    """One answer of a server."""

    name: str
    format: str
    status: int = 200
    headers: Mapping[str, str] = {}
    steps: tuple[bytes | Stall | Reset, ...]
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.format}: {self.name}"


class _Story(Struct, frozen=True, kw_only=True):
    tell: Callable[[Dialect], tuple[bytes | Stall | Reset, ...]]
    outcome: Outcome
    status: int = 200
    headers: Mapping[str, str] = {}


_ARGS = '{"city":"Paris"}'
_PARIS = {"city": "Paris"}
_ROME = {"city": "Rome"}
_TRUNCATED = Outcome(end="error", codes=frozenset({ErrorCode.STREAM_TRUNCATED}), retryable=True)


def _half_text(d: Dialect) -> bytes:
    return d.start() + d.text("The transfer is ")


_STORIES: dict[str, _Story] = {
    "a whole text": _Story(  # a control: a kit that lets nothing through would prove nothing
        tell=lambda d: (d.start(), d.text("All is well."), d.finish("stop")),
        outcome=Outcome(end="done", finish_reason="stop", text="All is well."),
    ),
    "a whole call": _Story(
        tell=lambda d: (d.start(), d.call(0, "call_1", "look", _ARGS), d.finish("tool_calls")),
        outcome=Outcome(end="done", finish_reason="tool_calls", runnable=(_PARIS,)),
    ),
    "clean end in text": _Story(tell=lambda d: (_half_text(d),), outcome=_TRUNCATED),
    "reset in text": _Story(tell=lambda d: (_half_text(d), Reset()), outcome=_TRUNCATED),
    "end inside arguments": _Story(
        tell=lambda d: (d.start(), d.open_call(0, "call_1", "look"), d.args(0, "call_1", '{"city":"Pa')),
        outcome=_TRUNCATED,
    ),
    "end after arguments": _Story(
        tell=lambda d: (d.start(), d.call(0, "call_1", "look", _ARGS)),
        outcome=_TRUNCATED,
    ),
    "length inside arguments": _Story(
        tell=lambda d: (
            d.start(),
            d.open_call(0, "call_1", "look"),
            d.args(0, "call_1", '{"city":"Pa'),
            d.finish("length"),
        ),
        outcome=Outcome(end="done", finish_reason="length"),
    ),
    "length after arguments": _Story(
        tell=lambda d: (d.start(), d.call(0, "call_1", "look", _ARGS), d.finish("length")),
        outcome=Outcome(end="done", finish_reason="length"),
    ),
    "error in the stream": _Story(
        tell=lambda d: (_half_text(d), d.overloaded()),
        outcome=Outcome(end="error", codes=frozenset({ErrorCode.OVERLOADED}), retryable=True),
    ),
    "two calls with one id": _Story(
        tell=lambda d: (
            d.start(),
            d.call(0, "call_1", "look", _ARGS),
            d.call(1, "call_1", "see", '{"city":"Rome"}'),
            d.finish("tool_calls"),
        ),
        outcome=Outcome(end="done", finish_reason="tool_calls", runnable=(_PARIS, _ROME)),
    ),
    "two calls with one index": _Story(
        tell=lambda d: (
            d.start(),
            d.call(0, "call_1", "look", _ARGS),
            d.call(0, "call_2", "see", '{"city":"Rome"}'),
            d.finish("tool_calls"),
        ),
        outcome=Outcome(end="done", finish_reason="tool_calls", runnable=(_PARIS, _ROME)),
    ),
    "arguments that are not JSON": _Story(
        tell=lambda d: (d.start(), d.call(0, "call_1", "look", '{"city":Paris}'), d.finish("tool_calls")),
        outcome=Outcome(end="done", finish_reason="tool_calls", bad_args=1),
    ),
    "nothing after the start": _Story(tell=lambda d: (d.start(),), outcome=_TRUNCATED),
    "nothing at all": _Story(tell=lambda d: (), outcome=_TRUNCATED),
    "garbage after the end": _Story(
        tell=lambda d: (d.start(), d.text("All is well."), d.finish("stop"), b"<html>\x00\xff garbage\n\n"),
        outcome=Outcome(end="done", finish_reason="stop", text="All is well."),
    ),
    "garbage instead of events": _Story(
        tell=lambda d: (_half_text(d), b"data: {\x00\xff not json\n\n"),
        outcome=Outcome(
            end="error", codes=frozenset({ErrorCode.STREAM_MALFORMED, ErrorCode.STREAM_TRUNCATED}), retryable=True
        ),
    ),
    "429 with Retry-After": _Story(
        tell=lambda d: (d.refusal(429),),
        status=429,
        headers={"Content-Type": "application/json", "Retry-After": "7"},
        outcome=Outcome(end="error", codes=frozenset({ErrorCode.RATE_LIMITED}), retryable=True, retry_after_ms=7000),
    ),
    "500": _Story(
        tell=lambda d: (d.refusal(500),),
        status=500,
        headers={"Content-Type": "application/json"},
        outcome=Outcome(end="error", codes=frozenset({ErrorCode.SERVER_ERROR}), retryable=True),
    ),
    "silence in text": _Story(
        tell=lambda d: (_half_text(d), Stall(10), d.finish("stop")),
        outcome=Outcome(end="error", codes=frozenset({ErrorCode.TIMEOUT}), retryable=True),
    ),
}


def scenarios(format: str | None = None) -> tuple[Scenario, ...]:
    """The scenarios of one format, or of all that are told here."""
    return tuple(
        Scenario(
            name=name,
            format=dialect.format,
            status=story.status,
            headers=story.headers,
            steps=story.tell(dialect),
            outcome=story.outcome,
        )
        for dialect in DIALECTS.values()
        if format in (None, dialect.format)
        for name, story in _STORIES.items()
    )
