"""Traces: runs that belong to one piece of work, across agents, processes and other programs.

    with in_trace("0af7651916cd43dd8448eb211c80319c"):
        await agent.run("Will it rain?")

A run joins the trace that it is started in, and so do the runs of its tools. Outside of any trace, a run starts a new
one if its agent is configured with ``ObservabilityConfig(trace=True)``. The id is recorded in `run_started` and in the
metadata of each answer, and is sent to the provider in a header (see `bartack.models.provider`).

What happens inside a run is reported to its `RunTracer`, which `bartack.telemetry` implements with spans. It comes from
the `TelemetrySink` of the agent, or of the agent whose tool started this run; without one, nothing is traced.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol, Self

from msgspec import Struct

from bartack.events import RunResult
from bartack.models.model import Model
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.entries import CompactionSummary, Entry, Fact
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.requests import ModelRequest
from bartack.stream.assembler import MessageAssembler
from bartack.tools import tracer

__all__ = [
    "CompactionSpan",
    "ModelCallSpan",
    "RunStart",
    "RunTracer",
    "SpanRef",
    "TelemetrySink",
    "Untraced",
    "current_trace",
    "in_trace",
]

_TRACE_ID: ContextVar[str | None] = ContextVar("bartack.trace_id", default=None)


def current_trace() -> str | None:
    """The id of the trace that this code runs in."""
    return _TRACE_ID.get()


@contextmanager
def in_trace(trace_id: str | None) -> Iterator[None]:
    """Runs started inside this context belong to this trace; None changes nothing."""
    if trace_id is None:
        yield
        return
    token = _TRACE_ID.set(trace_id)
    try:
        yield
    finally:
        _TRACE_ID.reset(token)


# -- what a run reports


class SpanRef(NamedTuple):
    """A span by its ids, in hexadecimal digits."""

    trace_id: str
    span_id: str


class RunStart(Struct, frozen=True, kw_only=True):
    """What is known when a run starts."""

    session_id: str
    run_id: str
    agent: str | None
    model: Model
    ref: ModelRef
    trace: str | None  # the trace around the run, set by `in_trace`
    continues: SpanRef | None  # the span of the same run in the process that it is resumed from
    is_resumed: bool
    visible: Callable[[], dict[str, Message]]  # keyed by entry id, without redacted messages


class ModelCallSpan(Protocol):
    """The span of one attempt at a model call."""

    traceparent: str | None  # the header of the request

    def received(self, delta: MessageDelta) -> bool:
        """A delta has arrived. Returns whether the next one should be reported too."""

    def finished(self, assembler: MessageAssembler, failed: Failed | None) -> None:
        """The stream has ended."""


class CompactionSpan(Protocol):
    """The span of one compaction."""

    def compacted(self, fact: CompactionSummary) -> None:
        """Older turns are replaced by this summary."""


class RunTracer(tracer.ToolTracer, Protocol):
    """Traces one run. Each span is current while its ``with`` block runs."""

    span: SpanRef | None  # the span of the run itself

    def active(self) -> AbstractContextManager[object, bool | None]:
        """The run while it works; its span ends with the block."""

    def see(self, entry: Entry) -> None:
        """An entry has been stored, by the run or by others."""

    def model_call(
        self, request: ModelRequest, model: Model, ref: ModelRef
    ) -> AbstractContextManager[ModelCallSpan, bool | None]:
        """The span of one attempt at a model call."""

    def retrying_call(self, failed: Failed, attempt: int, delay_ms: int) -> None:
        """A model call has failed and attempt number `attempt` follows."""

    def compaction(self, *, overflow: bool) -> AbstractContextManager[CompactionSpan, bool | None]:
        """The span of one compaction; `overflow` if the provider has refused the context."""

    def append(self, facts: Sequence[Fact]) -> AbstractContextManager[object, bool | None]:
        """The span of one append to the store."""

    def finished(self, result: RunResult) -> None:
        """The run has this result."""

    def not_started(self, error: Exception) -> None:
        """The session could not be claimed, so there is no run."""


class TelemetrySink(Protocol):
    """Where the spans and metrics of an agent's runs go."""

    def start_run(self, start: RunStart) -> RunTracer:
        """The tracer of a new run."""


class Untraced(tracer.UntracedTools):
    """A tracer that does nothing, and its own spans."""

    span: SpanRef | None = None
    traceparent: str | None = None

    def active(self) -> Self:
        return self

    def see(self, entry: Entry) -> None: ...

    def model_call(self, request: ModelRequest, model: Model, ref: ModelRef) -> Self:
        return self

    def received(self, delta: MessageDelta) -> bool:
        return False

    def retrying_call(self, failed: Failed, attempt: int, delay_ms: int) -> None: ...

    def compaction(self, *, overflow: bool) -> Self:
        return self

    def compacted(self, fact: CompactionSummary) -> None: ...

    def append(self, facts: Sequence[Fact]) -> Self:
        return self

    def finished(self, *_: object) -> None: ...

    def not_started(self, error: Exception) -> None: ...
