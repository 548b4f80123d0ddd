"""How calls without a result are closed: after a crash, an abort or a failure, and when a new prompt comes instead of
the end of an earlier run (DESIGN: a session cannot be bricked)."""

from collections.abc import Iterable

from bartack.agent.progress import OpenCall, Progress
from bartack.nouns.entries import Fact, RunEnded
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import tool_message
from bartack.nouns.parts import ToolResult
from bartack.tools import error_result

__all__ = ["closing_facts", "stopped_results"]

_INTERRUPTED = "interrupted: it was started, and nobody knows whether it did its work"
_NOT_RUN = "not run: the run that asked for it ended before"
_STOPPED = "stopped: the run was ended while it ran; it may have done part of its work"
_NEVER_STARTED = "not run: the run was ended before it started"


def closing_facts(progress: Progress) -> list[Fact]:
    """What ends a run that nobody will go on with (D-5.8)."""
    facts: list[Fact] = [
        tool_message(
            error_result(call_id, ErrorCode.TOOL_NOT_RUN, _NOT_RUN)
            if one.started is None
            else error_result(call_id, ErrorCode.TOOL_INTERRUPTED, _INTERRUPTED)
        )
        for call_id, one in progress.open_calls.items()
    ]
    if progress.run_id is not None:
        ended = RunEnded("aborted", reason="interrupted", usage=progress.usage, cost_usd=progress.cost_usd)
        facts.append(ended)
    return facts


def stopped_results(calls: Iterable[OpenCall]) -> list[ToolResult]:
    """The results of calls that a run leaves when it is ended."""
    return [
        error_result(
            one.call.tool_call_id,
            ErrorCode.TOOL_ABORTED,
            _NEVER_STARTED if one.started is None else _STOPPED,
        )
        for one in calls
    ]
