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
    "added",
]

N = TypeVar("N", bound=Noun)

# Deltas that arrive by the thousand use ``gc=False``: they cannot be part of a cycle, and tracking them would cost more
# than creating them.

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other"]


class _Continued(Noun, frozen=True, kw_only=True):
    # Merged key by key into the part's continuation data; the last value wins (D-3.9).
    continuation: dict[str, Any] | None = None


class _TextFields(_Continued, frozen=True, kw_only=True):
    new_part: bool = False  # the provider opened another block of the same kind (D-3.2)


class _StartFields(Noun, frozen=True, kw_only=True):
    provider: str | None = None


class Start(_StartFields, frozen=True):
    """The beginning of a stream. `request_id` is the provider's id of the response, or a local one if it sent none."""

    kind: ClassVar[Literal["start"]] = "start"
    model_id: str
    request_id: str


class TextDelta(_TextFields, frozen=True, gc=False):
    """More visible text."""

    kind: ClassVar[Literal["text"]] = "text"
    text_delta: str


class ThinkingDelta(_TextFields, frozen=True, gc=False):
    """More reasoning; empty if only continuation data was received."""

    kind: ClassVar[Literal["thinking"]] = "thinking"
    text_delta: str


class _CallFields(_Continued, frozen=True, kw_only=True):
    executed_by: Literal["client", "provider"] = "client"


class ToolCallStart(_CallFields, frozen=True):
    """The beginning of a tool call. Its id is unique in the run."""

    kind: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    tool_call_id: str
    tool_name: str


class ToolCallArgs(Noun, frozen=True, gc=False):
    """More of a call's argument text."""

    kind: ClassVar[Literal["tool_call_args"]] = "tool_call_args"
    tool_call_id: str
    args_text_delta: str


class _EndFields(_Continued, frozen=True, kw_only=True):
    # Only for calls executed by the provider (D-3.10).
    result: ToolContent | None = None
    result_is_error: bool = False


class ToolCallEnd(_EndFields, frozen=True):
    """The end of a call's arguments."""

    kind: ClassVar[Literal["tool_call_end"]] = "tool_call_end"
    tool_call_id: str


class _UsageFields(Noun, frozen=True, kw_only=True):
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None  # US dollars, if the provider reports it


class Usage(_UsageFields, frozen=True):
    """Tokens used so far. Usage is cumulative: in a stream, the last one counts (D-3.4).

    `input_tokens` includes cache reads and writes, and `output_tokens` includes reasoning. The other counts break
    these down; None means that the provider did not report it.
    """

    kind: ClassVar[Literal["usage"]] = "usage"
    input_tokens: int
    output_tokens: int
    total_tokens: int = -1  # input + output, unless the provider reports another total

    def __post_init__(self) -> None:
        if self.total_tokens < 0:
            force_setattr(self, "total_tokens", self.input_tokens + self.output_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        """Add every count; one that is None counts as 0, unless both are."""
        return added(self, other)


TOKEN_COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))


def added(one: N, other: N) -> N:
    """Add two values of the same class field by field; None means unknown, and counts as 0 unless both are."""
    names, values = _counted(type(one))
    sums = {
        name: second if first is None else first if second is None else first + second
        for name, first, second in zip(names, values(one), values(other), strict=True)
    }
    return type(one)(**sums)


@cache
def _counted(cls: type[Noun]) -> tuple[tuple[str, ...], Callable[[Noun], tuple[Any, ...]]]:
    names = tuple(name for name in cls.__struct_fields__ if name != "extra")
    return names, attrgetter(*names)


class _DoneFields(Noun, frozen=True, kw_only=True):
    raw_finish_reason: str | None = None  # as the provider sent it


class Done(_DoneFields, frozen=True):
    """The provider reported that its answer is complete."""

    kind: ClassVar[Literal["done"]] = "done"
    finish_reason: FinishReason


class _FailedFields(Noun, frozen=True, kw_only=True):
    retryable: bool = False
    status: int | None = None  # of the HTTP response
    retry_after_ms: int | None = None
    raw_code: str | None = None  # the provider's own code
    rule: str | None = None  # the rule in docs/spec.md that a contract violation broke


class Failed(_FailedFields, frozen=True):
    """The stream ended in an error, and there is no final message. Its wire name is ``error``."""

    kind: ClassVar[Literal["error"]] = "error"
    always_written: ClassVar[tuple[str, ...]] = ("retryable",)
    error_code: ErrorCode
    message: str = ""


Delta = Start | TextDelta | ThinkingDelta | ToolCallStart | ToolCallArgs | ToolCallEnd | Usage | Done | Failed


class _StampFields(Noun, frozen=True, kw_only=True):
    # Together with run_id and seq, these identify a delta across retries (D-7.10).
    model_call_index: int | None = None
    attempt: int | None = None
    provider_raw: dict[str, Any] | None = None  # for debugging; Bartack never reads it (000 §6)


class MessageDelta(_StampFields, frozen=True, gc=False):
    """A delta with its run, its number in the stream and the time it was received; `start` has that of the request."""

    spliced: ClassVar[str] = "delta"
    run_id: str
    seq: int
    delta: Delta
    timestamp: datetime
