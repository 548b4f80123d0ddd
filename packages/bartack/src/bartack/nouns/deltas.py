"""The nine kinds of deltas in a model stream (000 §4), and the stamp around each.

A decoder produces deltas without access to a run or a clock; the shell that reads the stream stamps them as
`MessageDelta`. Tool call arguments stay text here and are parsed once, when the call ends.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeVar

from msgspec.structs import force_setattr

from bartack.nouns.errors import ErrorCode
from bartack.nouns.noun import Noun
from bartack.nouns.parts import ToolContent

__all__ = [
    "TOKEN_COUNTS",
    "Delta",
    "Done",
    "Failed",
    "FinishReason",
    "MessageDelta",
    "Start",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallArgs",
    "ToolCallEnd",
    "ToolCallStart",
    "Usage",
    "add_counts",
]

N = TypeVar("N", bound=Noun)

# Deltas that arrive by the thousand use ``gc=False``: they cannot be part of a cycle, and tracking them would cost more
# than creating them.
#
# `continuation` is merged key by key into the continuation data of the part; the last value wins (D-3.9).

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other"]


class Start(Noun, frozen=True):
    """The beginning of a stream. `request_id` is the provider's id of the response, or a local one if it sent none."""

    kind: ClassVar[Literal["start"]] = "start"
    model_id: str
    request_id: str
    provider: str | None = None


class TextDelta(Noun, frozen=True, gc=False):
    """More visible text."""

    kind: ClassVar[Literal["text"]] = "text"
    text_delta: str
    continuation: dict[str, Any] | None = None
    new_part: bool = False  # the provider opened another block of the same kind (D-3.2)


class ThinkingDelta(Noun, frozen=True, gc=False):
    """More reasoning; empty if only continuation data was received."""

    kind: ClassVar[Literal["thinking"]] = "thinking"
    text_delta: str
    continuation: dict[str, Any] | None = None
    new_part: bool = False  # the provider opened another block of the same kind (D-3.2)


class ToolCallStart(Noun, frozen=True):
    """The beginning of a tool call. Its id is unique in the run."""

    kind: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    tool_call_id: str
    tool_name: str
    continuation: dict[str, Any] | None = None
    executed_by: Literal["client", "provider"] = "client"


class ToolCallArgs(Noun, frozen=True, gc=False):
    """More of a call's argument text."""

    kind: ClassVar[Literal["tool_call_args"]] = "tool_call_args"
    tool_call_id: str
    args_text_delta: str


class ToolCallEnd(Noun, frozen=True):
    """The end of a call's arguments; of a call that the provider executed, also its result (D-3.10)."""

    kind: ClassVar[Literal["tool_call_end"]] = "tool_call_end"
    tool_call_id: str
    continuation: dict[str, Any] | None = None
    result: ToolContent | None = None
    result_is_error: bool = False


class Usage(Noun, frozen=True, gc=False):
    """Tokens used so far. Usage is cumulative: in a stream, the last one counts (D-3.4).

    `input_tokens` includes cache reads and writes, and `output_tokens` includes reasoning. The other counts break
    these down; None means that the provider did not report it.
    """

    kind: ClassVar[Literal["usage"]] = "usage"
    input_tokens: int
    output_tokens: int
    total_tokens: int = -1  # input + output, unless the provider reports another total
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | int | None = None  # US dollars, if the provider reports it

    def __post_init__(self) -> None:
        if self.total_tokens < 0:
            force_setattr(self, "total_tokens", self.input_tokens + self.output_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        """Add every count; one that is None counts as 0, unless both are."""
        return add_counts(self, other)


TOKEN_COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))


def add_counts(first: N, second: N) -> N:
    """Add two values of the same class field by field; None means unknown, and counts as 0 unless both are."""
    names, values = _counts_of(type(first))
    sums = {
        name: addend if count is None else count if addend is None else count + addend
        for name, count, addend in zip(names, values(first), values(second), strict=True)
    }
    return type(first)(**sums)


@cache
def _counts_of(cls: type[Noun]) -> tuple[tuple[str, ...], Callable[[Noun], tuple[Any, ...]]]:
    names = tuple(name for name in cls.__struct_fields__ if name != "extra")
    return names, attrgetter(*names)


class Done(Noun, frozen=True):
    """The provider reported that its answer is complete."""

    kind: ClassVar[Literal["done"]] = "done"
    finish_reason: FinishReason
    raw_finish_reason: str | None = None  # the provider's own word


class Failed(Noun, frozen=True):
    """The stream ended in an error, and there is no final message. Its wire name is ``error``."""

    kind: ClassVar[Literal["error"]] = "error"
    always_written: ClassVar[tuple[str, ...]] = ("retryable",)
    error_code: ErrorCode
    message: str = ""
    retryable: bool = False
    status: int | None = None  # the HTTP status
    retry_after_ms: int | None = None
    raw_code: str | None = None  # the provider's own code
    rule: str | None = None  # the rule in docs/spec.md that a contract violation broke


Delta = Start | TextDelta | ThinkingDelta | ToolCallStart | ToolCallArgs | ToolCallEnd | Usage | Done | Failed


class MessageDelta(Noun, frozen=True, gc=False):
    """A delta with its run, its number in the stream and the time it was received; `start` has that of the request."""

    spliced: ClassVar[str] = "delta"
    run_id: str
    seq: int
    delta: Delta
    timestamp: datetime
    # Together with run_id and seq, these identify a delta across retries (D-7.10).
    model_call_index: int | None = None
    attempt: int | None = None
    provider_raw: dict[str, Any] | None = None  # kept for debugging and never read (000 §6)
