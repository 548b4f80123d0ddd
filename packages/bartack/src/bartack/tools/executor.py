"""`ToolExecutor`: executes the calls of one answer and produces a result for each, whatever happens.

    outcome = await executor.run(state.open_calls.values(), log=log, run_id=run_id, session_id=session_id)

Every fact is recorded in the log before anything relies on it: a tool runs after its start is stored, and a result is
stored before it is used. If recording fails, nothing more runs.

The work happens in a separate task. The caller of `run` may be cancelled at any moment; the work is then stopped, its
tools are ended, a result is recorded for each call that has none, and only then does the cancellation propagate.
"""

import asyncio
from collections.abc import Awaitable, Iterable

from msgspec import Struct

from bartack.nouns.parts import ToolResult
from bartack.session.run_state import OpenCall
from bartack.tools import tool_round
from bartack.tools.tool_round import (
    CallLog,
    Refusal,
    ToolRound,
    ToolSettings,
    WriteFailed,
    retrieve_exception,
    wait_uncancelled,
)
from bartack.tools.tool_run import ToolRun
from bartack.tools.tracer import ToolTracer, UntracedTools

__all__ = ["RoundOutcome", "ToolExecutor"]

# How long storing the results may take after a cancellation.
_RECORDING_MS = 5_000
_UNTRACED = UntracedTools()
_GRACES = 3  # a tool, the hook after it and an approver may each use one up


class RoundOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the calls of one answer."""

    results: tuple[ToolResult, ...] = ()  # ordered like the calls
    # Calls that wait for an approval, for a result from outside, or for earlier calls that do.
    waiting: tuple[str, ...] = ()
    aborted: bool = False  # whether the approver ended the run
    refusal: Refusal | None = None  # the hook that returned it has ended the run


class ToolExecutor:
    """Executes tool calls with one set of settings."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings

    async def run(
        self,
        calls: Iterable[OpenCall],
        *,
        log: CallLog,
        run_id: str,
        session_id: str,
        tracer: ToolTracer = _UNTRACED,
    ) -> RoundOutcome:
        """A result for every call, except those that need an approval or are deferred. Raises what the log raised."""
        round = ToolRound(self._settings, log, run_id, session_id, tracer)
        runs = [ToolRun(round, call) for call in calls if call.call.executed_by == "client"]
        work = asyncio.create_task(_work(round, runs))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            round.stop.set()
            await wait_uncancelled(work, (_GRACES * tool_round.GRACE_MS + _RECORDING_MS) / 1000)
            retrieve_exception(work)  # a failed write; the caller gets the cancellation
            raise
        return RoundOutcome(
            results=tuple(run.result for run in runs if run.result is not None),
            waiting=tuple(run.call.tool_call_id for run in runs if run.result is None),
            aborted=round.aborted,
            refusal=round.refusal,
        )


async def _work(round: ToolRound, runs: list[ToolRun]) -> None:
    slots = asyncio.Semaphore(round.settings.max_parallel or max(len(runs), 1))
    is_changing = False  # whether an earlier call may change what the preview of a later one shows: that one waits
    for run in runs:  # one after the other, so that questions are recorded in the order of the calls
        if not (is_changing and run.has_preview):
            await _guarded(round, run.prepare())
        is_changing = is_changing or (run.result is None and run.definition is not None and run.definition.sequential)
    for group in _groups(runs):
        if round.failure is not None:
            break
        await asyncio.gather(*(_guarded(round, run.run(slots)) for run in group))
        if any(run.result is None for run in group):
            break
    if round.failure is not None:
        raise round.failure


async def _guarded(round: ToolRound, step: Awaitable[None]) -> None:
    """Run a step. Its failure stops the round and is raised once the other calls have ended."""
    try:
        await step
    except WriteFailed:
        pass  # the round holds the cause
    except BaseException as error:  # noqa: BLE001 - raised again by _work
        round.fail(error)


def _groups(runs: list[ToolRun]) -> list[list[ToolRun]]:
    """Calls that may run at the same time, in order; a sequential tool is a separate group."""
    groups: list[list[ToolRun]] = []
    is_alone = True
    for run in runs:
        is_sequential = run.definition is not None and run.definition.sequential
        if is_sequential or is_alone:
            groups.append([])
        groups[-1].append(run)
        is_alone = is_sequential
    return groups
