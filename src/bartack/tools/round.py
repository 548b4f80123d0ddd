"""What the calls of one answer share while they run: the rules, the way to the store, and the word to stop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import Fact
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.nouns.tool_states import ToolState
from bartack.tools.approval import ApprovalPolicy, Approver
from bartack.tools.registry import ToolRegistry

__all__ = ["AfterTool", "BeforeTool", "Round", "Rules", "WriteFailed"]

BeforeTool = Callable[[ToolCall], Coroutine[Any, Any, ToolCall | ToolResult | None]]
AfterTool = Callable[[ToolCall, ToolResult], Coroutine[Any, Any, ToolResult]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What an executor was told to keep to."""

    registry: ToolRegistry
    environment: Environment
    agent: Any
    runtime: Any
    max_parallel: int | None
    timeout_ms: int
    grace_ms: int
    retry_delay_ms: int
    approval: ApprovalPolicy
    approver: Approver | None
    approval_timeout_ms: int | None
    before: BeforeTool | None
    after: AfterTool | None


class WriteFailed(Exception):
    """A fact could not be recorded; the round holds the cause."""


class Round:
    """One `ToolExecutor.run`."""

    def __init__(
        self,
        rules: Rules,
        record: Callable[[Fact], Awaitable[None]],
        run_id: str,
        session_id: str,
        on_change: Callable[[str, ToolState], None] | None,
    ) -> None:
        self.rules = rules
        self.run_id = run_id
        self.session_id = session_id
        self.stop = asyncio.Event()
        self.aborted = False
        self.failure: BaseException | None = None
        self._record = record
        self._on_change = on_change

    async def record(self, fact: Fact) -> None:
        """Make the fact durable; the first one that fails is the last one that is tried."""
        if self.failure is not None:
            raise WriteFailed
        try:
            await self._record(fact)
        except BaseException as error:
            self.fail(error)
            raise WriteFailed from error

    def fail(self, error: BaseException) -> None:
        """Stop the round; `error` is what its caller gets."""
        self.failure = self.failure or error
        self.stop.set()

    def changed(self, tool_call_id: str, state: ToolState) -> None:
        """Tell whoever watches."""
        if self._on_change is not None:
            self._on_change(tool_call_id, state)

    async def unless_stopped(
        self, work: Coroutine[Any, Any, T], *, seconds: float | None = None, patient: bool = False
    ) -> "asyncio.Task[T] | None":
        """The work as a task that has ended by itself, or None where the time was up or the round was stopped first.

        `patient`: what has begun gets the grace period before it is cancelled.
        """
        if self.stop.is_set() and not patient:
            work.close()
            return None
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self.stop.wait())
        grace = self.rules.grace_ms / 1000
        try:
            await asyncio.wait({task, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if patient and not task.done():
                await asyncio.wait({task}, timeout=grace)
            if task.done():
                return task
            task.cancel()
            await asyncio.wait({task}, timeout=grace)
        finally:
            stopping.cancel()
            task.cancel()
        if task.done() and not task.cancelled():
            task.exception()  # too late to matter, and looked at so that asyncio does not report it as lost
        return None
