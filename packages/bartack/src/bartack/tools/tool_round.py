"""`ToolSettings`, which an agent passes to its tool calls, and `ToolRound`, what the calls of one answer share."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from bartack.environment import Environment
from bartack.nouns.entries import ApprovalRequired, Fact
from bartack.nouns.errors import ErrorCode, ToolError, exception_text
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.run_state import OpenCall
from bartack.tools.approval import ApprovalPolicy, Approver, by_definition
from bartack.tools.output import valid_text
from bartack.tools.registry import ToolRegistry
from bartack.tools.runtime import Runtime
from bartack.tools.tracer import ToolTracer, UntracedTools

__all__ = [
    "NOT_STARTED",
    "CallLog",
    "CallPaused",
    "Refusal",
    "Superseded",
    "ToolRound",
    "ToolSettings",
    "WriteFailed",
    "contained",
    "describe",
    "portable_error",
    "retrieve_exception",
    "wait_uncancelled",
]


class Refusal(Struct, frozen=True):
    """Returned by a hook to end the run. `by` is the name of the hook, if it is not to be its own."""

    reason: str
    by: str = ""


BeforeTool = Callable[[ToolCall], Coroutine[Any, Any, ToolCall | ToolResult | Refusal | None]]
AfterTool = Callable[[ToolCall, ToolResult], Coroutine[Any, Any, ToolResult | Refusal | None]]

TIMEOUT_MS = 60_000  # the default if a tool declares no limit
GRACE_MS = 2_000  # between cancelling a tool, a hook or an approver and abandoning it; not measured
RETRY_DELAY_MS = 100  # before the first retry of a tool; doubles with each further one
NOT_STARTED = "Aborted before the tool started."
_MAX_ERROR_CHARS = 4_000  # some exceptions carry a whole page
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """How an agent's tool calls are executed."""

    registry: ToolRegistry
    environment: Environment
    agent: Any = None  # passed to tools with `requires_agent`
    deps: Any = None  # what the caller of the run passes to its tools
    runtime: Runtime | None = None
    max_parallel: int | None = None
    timeout_ms: int = TIMEOUT_MS
    approval: ApprovalPolicy = by_definition
    approver: Approver | None = None
    approval_timeout_ms: int | None = None
    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None


def retrieve_exception(task: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a task that is not awaited, so that asyncio does not log it."""
    if task.done() and not task.cancelled():
        task.exception()


async def wait_uncancelled(task: "asyncio.Task[Any]", seconds: float) -> None:
    """Wait for the task, even while being cancelled; cancel it if it takes longer.

    The cancellations are not lost: `Task.cancelling` of the current task counts them.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while not task.done() and (remaining_s := deadline - clock()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=remaining_s)
    if not task.done():
        task.cancel()


async def contained(work: Awaitable[T]) -> T:
    """What user code returns, in a task of its own. A task does not carry every exception: `SystemExit` would end the
    event loop, and `StopIteration` would be replaced."""
    try:
        return await work
    except (SystemExit, StopIteration, StopAsyncIteration) as raised:
        raise portable_error(raised) from raised


def portable_error(raised: BaseException) -> BaseException:
    """An exception that a future can carry and `except Exception` catches."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration | StopAsyncIteration):
        return raised
    return ToolError(exception_text(raised), code=ErrorCode.TOOL_FAILED, cause=raised)


class WriteFailed(Exception):
    """A fact could not be recorded; `ToolRound.failure` is the cause."""


class CallPaused(Exception):
    """Raised by a tool that waits for a decision or a result. The call stays open; on resume, the tool runs again."""


class Superseded(Exception):
    """A fact was not recorded, because another process added something first that makes it obsolete."""


class CallLog(Protocol):
    """The session, as far as the calls of a round are concerned. Others may add decisions to it at any moment."""

    async def record(self, fact: Fact, *, still: Callable[[], bool] | None = None) -> None:
        """Make a fact durable. If `still` is false by then, raise `Superseded` and store nothing."""

    def find(self, tool_call_id: str) -> OpenCall | None:
        """What the session holds about a call at this moment; None if the call is not open."""

    async def changed(self) -> None:
        """Wait until others have added something."""

    def publish(self, question: ApprovalRequired) -> None:
        """Publish a question of a running tool as an event of the run. It is not stored."""


@dataclass(eq=False)
class ToolRound:
    """The calls of one answer while they run: where facts are recorded, and the signal to stop."""

    settings: ToolSettings
    log: CallLog
    run_id: str
    session_id: str
    tracer: ToolTracer = field(default_factory=UntracedTools)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: bool = False  # whether the approver ended the run
    refusal: Refusal | None = None  # the hook that returned it has ended the run
    failure: BaseException | None = None

    async def record(self, fact: Fact, *, still: Callable[[], bool] | None = None) -> None:
        """Make a fact durable (see `CallLog.record`). After the first failure nothing more is recorded."""
        if self.failure is not None:
            raise WriteFailed
        try:
            await self.log.record(fact, still=still)
        except (Superseded, asyncio.CancelledError):
            raise  # a tool may cancel its own report of progress, which is nevertheless recorded
        except BaseException as error:
            self.fail(error)
            raise WriteFailed from error

    def refuse(self, refusal: Refusal) -> None:
        """Stop the round because of a hook; the first refusal counts."""
        self.refusal = self.refusal or refusal
        self.stop.set()

    def fail(self, error: BaseException) -> None:
        """Stop the round, which then raises `error`."""
        self.failure = self.failure or error
        self.stop.set()

    async def call(self, name: str, work: Coroutine[Any, Any, T], seconds: float | None, *, patient: bool = False) -> T:
        """What user code returns; `ToolError` if it fails, does not finish in time, or the round is stopped."""
        aborted = ToolError(NOT_STARTED, code=ErrorCode.TOOL_ABORTED)
        if self.stop.is_set() and not patient:
            work.close()
            raise aborted
        task = asyncio.create_task(contained(work))
        if not await self.finishes(task, seconds, patient=patient):
            late = ToolError(f"{name} timed out.", code=ErrorCode.TOOL_TIMEOUT)
            raise aborted if self.stop.is_set() and not patient else late
        if task.cancelled():
            raise ToolError(f"{name} was cancelled.")
        error = task.exception()
        if error is not None:
            raise ToolError(f"{name} failed: {describe(error)}")
        return task.result()

    async def finishes(
        self,
        work: "asyncio.Future[Any]",
        seconds: float | None,
        *,
        patient: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait for the work; False if it took too long or the round was stopped first.

        It is then cancelled, if it is a task, and has the grace period to end. With `patient` it may use the grace
        period before that. `on_end` is called when the wait is over, before any grace period.
        """
        stopping = asyncio.create_task(self.stop.wait())
        grace = GRACE_MS / 1000
        try:
            await asyncio.wait({work, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            on_end()
            if patient and not work.done():
                await asyncio.wait({work}, timeout=grace)
            if work.done():
                return True
            if isinstance(work, asyncio.Task):
                work.cancel()
            await asyncio.wait({work}, timeout=grace)
        except asyncio.CancelledError:
            on_end()
            work.cancel()
            raise
        finally:
            stopping.cancel()
        retrieve_exception(work)
        return False


def describe(error: BaseException) -> str:
    """The error for a model to read."""
    text = error.message if isinstance(error, ToolError) else exception_text(error)
    return valid_text(text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]} [...]")
