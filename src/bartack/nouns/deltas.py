"""The nine things a model stream can say (000 §4), and the stamp the edge puts around each.

A decoder makes deltas and knows no run and no clock; whoever reads the stream stamps them as `MessageDelta`.
A tool call's arguments come as text and stay text here: they are parsed once, when the call ends.
"""

from datetime import datetime
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

# The deltas that come by the thousand are made with ``gc=False``: they cannot hold themselves, so the garbage collector
# need not look at them, and looking would cost more than making them.

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other"]


class _Continued(Noun, frozen=True, kw_only=True):
    # Merged key by key into the part's continuation data; a later key wins. (D-3.9)
    continuation: dict[str, Any] | None = None


class _Piece(_Continued, frozen=True, kw_only=True):
    new_part: bool = False  # the provider opened another block of the same kind (D-3.2)


class _Origin(Noun, frozen=True, kw_only=True):
    provider: str | None = None


class Start(_Origin, frozen=True):
    """The stream begins. `request_id` is the provider's id of this answer, or a local one where it gave none."""

    kind: ClassVar = "start"
    model_id: str
    request_id: str


class TextDelta(_Piece, frozen=True, gc=False):
    """More visible text."""

    kind: ClassVar = "text"
    text_delta: str


class ThinkingDelta(_Piece, frozen=True, gc=False):
    """More reasoning; empty where only continuation data came."""

    kind: ClassVar = "thinking"
    text_delta: str


class _Executor(_Continued, frozen=True, kw_only=True):
    executed_by: Literal["client", "provider"] = "client"


class ToolCallStart(_Executor, frozen=True):
    """A tool call opens. Its id is unique in the run."""

    kind: ClassVar = "tool_call_start"
    tool_call_id: str
    tool_name: str


class ToolCallArgs(Noun, frozen=True, gc=False):
    """More of one call's argument text."""

    kind: ClassVar = "tool_call_args"
    tool_call_id: str
    args_text_delta: str


class _Outcome(_Continued, frozen=True, kw_only=True):
    # Only for calls that the provider executed itself (D-3.10).
    result: ToolContent | None = None
    result_is_error: bool = False


class ToolCallEnd(_Outcome, frozen=True):
    """One call's arguments are complete."""

    kind: ClassVar = "tool_call_end"
    tool_call_id: str


class _UsageDetails(Noun, frozen=True, kw_only=True):
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None  # US dollars, where the provider itself says so


class Usage(_UsageDetails, frozen=True):
    """Tokens so far: cumulative, the last one holds (D-3.4).

    `input_tokens` includes cache reads and writes and `output_tokens` includes reasoning; the other counts are
    their breakdown and None where the provider does not say.
    """

    kind: ClassVar = "usage"
    input_tokens: int
    output_tokens: int
    total_tokens: int = -1  # the sum, unless the provider says otherwise

    def __post_init__(self) -> None:
        if self.total_tokens < 0:
            force_setattr(self, "total_tokens", self.input_tokens + self.output_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        """The usage of both; a count that only one of them reports is that one's."""
        return added(self, other)


TOKEN_COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))


def added(one: N, other: N) -> N:
    """Two values of the same class, added field by field. None means unknown and counts for nothing."""
    names = [name for name in one.__struct_fields__ if name != "extra"]
    pairs = ((getattr(one, name), getattr(other, name)) for name in names)
    sums = [second if first is None else first if second is None else first + second for first, second in pairs]
    return type(one)(**dict(zip(names, sums, strict=True)))


class _FinishDetails(Noun, frozen=True, kw_only=True):
    raw_finish_reason: str | None = None  # the provider's own word


class Done(_FinishDetails, frozen=True):
    """The provider said that its answer is complete."""

    kind: ClassVar = "done"
    finish_reason: FinishReason


class _FailureDetails(Noun, frozen=True, kw_only=True):
    retryable: bool = False
    status: int | None = None  # of the HTTP response
    retry_after_ms: int | None = None
    raw_code: str | None = None  # the provider's own code
    rule: str | None = None  # the rule in docs/spec.md that a contract violation broke


class Failed(_FailureDetails, frozen=True):
    """The stream ended in an error: there is no final message. Wire name: ``error``."""

    kind: ClassVar = "error"
    always_written: ClassVar = ("retryable",)
    error_code: ErrorCode
    message: str = ""


Delta = Start | TextDelta | ThinkingDelta | ToolCallStart | ToolCallArgs | ToolCallEnd | Usage | Done | Failed


class _Attempt(Noun, frozen=True, kw_only=True):
    # With run_id and seq they tell two attempts at one model call apart (D-7 "retry").
    model_call_index: int | None = None
    attempt: int | None = None
    provider_raw: Any = None  # for debugging only: carried, never read (000 §6)


class MessageDelta(_Attempt, frozen=True, gc=False):
    """A delta with the stamps of the edge: which run, which place in the stream, when."""

    spliced: ClassVar = "delta"
    run_id: str
    seq: int
    delta: Delta
    timestamp: datetime
