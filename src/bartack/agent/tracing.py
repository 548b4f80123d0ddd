"""Traces: runs that belong to one piece of work, across agents, processes and other programs.

    with in_trace("0af7651916cd43dd8448eb211c80319c"):
        await agent.run("Will it rain?")

A run takes the trace that it is started in, and the runs of its tools are in the same one. Outside of any trace, a run
starts a new one if its agent is configured with ``ObservabilityConfig(trace=True)``. The id is recorded in
`run_started` and in the metadata of each answer, and is sent to the provider in a header (see `bartack.models.trace`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["current_trace", "in_trace"]

_TRACE_ID: ContextVar[str | None] = ContextVar("bartack.trace_id", default=None)


def current_trace() -> str | None:
    """The id of the trace that this code runs in."""
    return _TRACE_ID.get()


@contextmanager
def in_trace(trace_id: str | None) -> Iterator[None]:
    """Let the runs that are started inside belong to this trace; None changes nothing."""
    if trace_id is None:
        yield
        return
    token = _TRACE_ID.set(trace_id)
    try:
        yield
    finally:
        _TRACE_ID.reset(token)
