"""`ToolSettings`, which an agent passes to its tool calls, and `ToolRound`, what the calls of one answer share."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import Fact
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.tools.approval import ApprovalPolicy, Approver, by_definition
from bartack.tools.registry import ToolRegistry
from bartack.tools.runtime import Runtime

__all__ = ["AfterTool", "BeforeTool", "ToolRound", "ToolSettings", "WriteFailed"]

BeforeTool = Callable[[ToolCall], Coroutine[Any, Any, ToolCall | ToolResult | None]]
AfterTool = Callable[[ToolCall, ToolResult], Coroutine[Any, Any, ToolResult | None]]
T = TypeVar("T")

TIMEOUT_MS = 60_000  # for a tool that declares no limit of its own
GRACE_MS = 2_000  # between cancelling a tool, a hook or an approver and abandoning it; not measured
RETRY_DELAY_MS = 100  # before the first retry of a tool; doubles with each further one


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """How an agent's tool calls are executed."""

    registry: ToolRegistry
    environment: Environment
    agent: Any = None  # for tools with `requires_agent`
    runtime: Runtime | None = None
    max_parallel: int | None = None
    timeout_ms: int = TIMEOUT_MS
    approval: ApprovalPolicy = by_definition
    approver: Approver | None = None
    approval_timeout_ms: int | None = None
    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None


class WriteFailed(Exception):
    """A fact could not be recorded; `ToolRound.failure` is the cause."""


class ToolRound:
    """The calls of one answer while they run: where facts are recorded, and the signal to stop."""

    def __init__(
        self, settings: ToolSettings, record: Callable[[Fact], Awaitable[None]], run_id: str, session_id: str
    ) -> None:
        self.settings = settings
        self.run_id = run_id
        self.session_id = session_id
        self.stop = asyncio.Event()
        self.aborted = False  # by the approver
        self.failure: BaseException | None = None
        self._record = record

    async def record(self, fact: Fact) -> None:
        """Make a fact durable. After the first failure nothing more is recorded."""
        if self.failure is not None:
            raise WriteFailed
        try:
            await self._record(fact)
        except BaseException as error:
            self.fail(error)
            raise WriteFailed from error

    def fail(self, error: BaseException) -> None:
        """Stop the round, which then raises `error`."""
        self.failure = self.failure or error
        self.stop.set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless the round is stopped."""
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({stopping}, timeout=seconds)
        stopping.cancel()

    async def run_unless_stopped(
        self, work: Coroutine[Any, Any, T], *, seconds: float | None, patient: bool = False
    ) -> "asyncio.Task[T] | None":
        """The finished task; None if it took too long or the round was stopped first.

        With `patient`, work that has begun is given the grace period before it is cancelled.
        """
        if self.stop.is_set() and not patient:
            work.close()
            return None
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self.stop.wait())
        grace = GRACE_MS / 1000
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
            task.exception()  # too late to matter; retrieved so that asyncio does not log it
        return None
