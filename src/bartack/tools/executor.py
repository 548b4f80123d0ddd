"""`ToolExecutor`: runs the calls of one answer and leaves a result for each, whatever happens.

    round = await executor.run(message.tool_calls, record=append, run_id=run_id, session_id=session_id)

Everything that becomes true is handed to `record` before anything is built on it: a tool runs after its start is
stored, and its result is stored before anyone sees it. If `record` fails, nothing more runs.

The work is done in a task of its own. Whoever awaits `run` may be cancelled at any moment; the work is then told to
stop, ends its tools, records a result for each call that has none, and only then does the cancellation go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bartack.environment import Environment
from bartack.nouns.entries import Fact
from bartack.nouns.errors import ErrorCode
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.nouns.tool_states import ToolState
from bartack.tools.approval import ApprovalPolicy, Approver, by_definition
from bartack.tools.call_history import CallHistory
from bartack.tools.call_life import CallLife
from bartack.tools.registry import ToolRegistry
from bartack.tools.round import AfterTool, BeforeTool, Round, Rules, WriteFailed

__all__ = ["ToolExecutor", "ToolRound"]

TIMEOUT_MS = 60_000  # for a tool that declares none
_RECORDING_MS = 5_000  # how long results may take to be stored after a cancellation
_GRACES = 3  # a tool, the hook after it and an approver may each use one up
_NO_HISTORIES: Mapping[str, CallHistory] = {}
_NONE_REFUSED: Mapping[str, tuple[ErrorCode, str]] = {}


class ToolRound(Struct, frozen=True, kw_only=True):
    """What the calls of one answer came to."""

    results: tuple[ToolResult, ...]  # in the order of the calls
    waiting: tuple[str, ...] = ()  # calls without a result: a human must decide about them or one before them
    aborted: bool = False


class ToolExecutor:
    """Runs tool calls under one set of rules."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        environment: Environment | None = None,
        agent: Any = None,
        runtime: Any = None,
        max_parallel: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
        grace_ms: int = 2_000,
        retry_delay_ms: int = 100,
        approval: ApprovalPolicy = by_definition,
        approver: Approver | None = None,
        approval_timeout_ms: int | None = None,
        before: BeforeTool | None = None,
        after: AfterTool | None = None,
    ) -> None:
        self._rules = Rules(
            registry=registry,
            environment=environment or Environment(),
            agent=agent,
            runtime=runtime,
            max_parallel=max_parallel,
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            retry_delay_ms=retry_delay_ms,
            approval=approval,
            approver=approver,
            approval_timeout_ms=approval_timeout_ms,
            before=before,
            after=after,
        )

    async def run(
        self,
        calls: Sequence[ToolCall],
        *,
        record: Callable[[Fact], Awaitable[None]],
        run_id: str,
        session_id: str,
        histories: Mapping[str, CallHistory] = _NO_HISTORIES,
        refused: Mapping[str, tuple[ErrorCode, str]] = _NONE_REFUSED,
        abort: asyncio.Event | None = None,
        on_change: Callable[[str, ToolState], None] | None = None,
    ) -> ToolRound:
        """A result for every call, except those that wait for a human. Raises what `record` raised."""
        round = Round(self._rules, record, run_id, session_id, on_change)
        lives = [
            CallLife(round, call, histories.get(call.tool_call_id, CallHistory()), refused.get(call.tool_call_id))
            for call in calls
            if call.executed_by == "client" and not histories.get(call.tool_call_id, CallHistory()).finished
        ]
        work = asyncio.create_task(_work(round, lives, abort))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            round.stop.set()
            await _settled(work, (_GRACES * self._rules.grace_ms + _RECORDING_MS) / 1000)
            raise
        return ToolRound(
            results=tuple(life.result for life in lives if life.result is not None),
            waiting=tuple(life.call.tool_call_id for life in lives if life.result is None),
            aborted=round.aborted or (abort is not None and abort.is_set()),
        )


async def _settled(work: "asyncio.Task[None]", seconds: float) -> None:
    """Wait for the work to end, also when cancelled again: the results come first. Over the limit it is dropped."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not work.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({work}, timeout=left)
        except asyncio.CancelledError:
            continue
    if not work.done():
        work.cancel()
    elif not work.cancelled():
        work.exception()  # a failed write; the cancellation is what the caller is told


async def _work(round: Round, lives: list[CallLife], abort: asyncio.Event | None) -> None:
    watch = None if abort is None else asyncio.create_task(_pass_on(abort, round.stop))
    slots = asyncio.Semaphore(round.rules.max_parallel or max(len(lives), 1))
    try:
        await _guarded(round, _prepare(lives))
        for group in _groups(lives):
            if round.failure is not None:
                break
            await asyncio.gather(*(_guarded(round, life.run(slots)) for life in group))
            if any(life.result is None for life in group):
                break
    finally:
        if watch is not None:
            watch.cancel()
    if round.failure is not None:
        raise round.failure


async def _pass_on(abort: asyncio.Event, stop: asyncio.Event) -> None:
    await abort.wait()
    stop.set()


async def _prepare(lives: list[CallLife]) -> None:
    """One after the other, so that the questions to a human stand in the order of the calls."""
    for life in lives:
        await life.prepare()


async def _guarded(round: Round, step: Awaitable[None]) -> None:
    """A step whose fault stops the whole round, and is raised when the other calls have ended."""
    try:
        await step
    except WriteFailed:
        pass  # the round holds the cause
    except BaseException as error:  # noqa: BLE001 - raised again by _work
        round.fail(error)


def _groups(lives: list[CallLife]) -> list[list[CallLife]]:
    """Calls that may run at the same time, in order; a sequential tool is a group of its own."""
    groups: list[list[CallLife]] = []
    alone = True
    for life in lives:
        sequential = life.definition is not None and life.definition.sequential
        if sequential or alone:
            groups.append([])
        groups[-1].append(life)
        alone = sequential
    return groups
