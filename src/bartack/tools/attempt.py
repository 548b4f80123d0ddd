"""One attempt at running a tool: it ends by itself, at its time limit, or when the round is stopped.

An async tool is a task, which is cancelled. A regular function runs in a thread, which cannot be ended from outside; it
can check ``ctx.cancelled``. Either gets a grace period and is then abandoned, so no tool can hold up a run. The thread
is a daemon outside any pool: when abandoned, it must not keep the process alive or take up a worker.
"""

import asyncio
import contextvars
import inspect
import threading
from typing import Any, Literal

from msgspec import Struct

from bartack.nouns.errors import ErrorCode, ToolError
from bartack.tools.definition import ToolDefinition
from bartack.tools.tool_context import ToolContext

__all__ = ["AttemptOutcome", "attempt"]


class AttemptOutcome(Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    how: Literal["returned", "raised", "timed_out", "stopped"]
    value: Any = None
    error: BaseException | None = None
    left_running: bool = False  # the tool did not stop in time and was abandoned


_abandoned: set["asyncio.Future[Any]"] = set()  # still running; the event loop itself holds tasks weakly


async def attempt(
    definition: ToolDefinition,
    values: dict[str, Any],
    context: ToolContext,
    *,
    timeout_ms: int,
    grace_ms: int,
    stop: asyncio.Event,
) -> AttemptOutcome:
    """Run the tool once."""
    work = _start(definition, values, context)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopping}, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        work.cancel()
        raise
    finally:
        stopping.cancel()
        context.end()
    if work.done():
        return _outcome(work)
    if isinstance(work, asyncio.Task):
        work.cancel()
    await asyncio.wait({work}, timeout=grace_ms / 1000)
    if not work.done():
        _abandoned.add(work)
        work.add_done_callback(_forget)
        return AttemptOutcome(how="stopped" if stop.is_set() else "timed_out", left_running=True)
    outcome = _outcome(work)
    if not stop.is_set():
        return AttemptOutcome(how="timed_out")
    # A tool that completed its work when stopped has done it; reporting an abort would be wrong.
    return outcome if outcome.how == "returned" else AttemptOutcome(how="stopped")


def _outcome(work: "asyncio.Future[Any]") -> AttemptOutcome:
    if work.cancelled():
        return AttemptOutcome(how="raised", error=ToolError("The tool cancelled itself."))
    error = work.exception()
    if error is not None:
        return AttemptOutcome(how="raised", error=error)
    return AttemptOutcome(how="returned", value=work.result())


def _forget(work: "asyncio.Future[Any]") -> None:
    _abandoned.discard(work)
    if not work.cancelled():
        work.exception()  # retrieved so that asyncio does not log it


def _start(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> "asyncio.Future[Any]":
    if definition.is_async:
        return asyncio.create_task(_run_async(definition, values, context))
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    state = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(value) if error is None else future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = state.run(_run_sync, definition, values, context)
        except BaseException as raised:  # noqa: BLE001 - reported as the outcome of the attempt
            error = _portable(raised)
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the event loop has been closed

    threading.Thread(target=run, name=f"bartack-tool-{definition.name}", daemon=True).start()
    return future


async def _run_async(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    try:
        return await definition.execute(values, context)
    except (SystemExit, StopIteration, StopAsyncIteration) as raised:
        raise _portable(raised) from raised


def _run_sync(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    value = definition.execute(values, context)
    if inspect.iscoroutine(value):
        value.close()
        raise ToolError(f"Tool {definition.name!r} is a regular function but returned a coroutine; use async def.")
    return value


def _portable(raised: BaseException) -> BaseException:
    """An exception that a future can carry: SystemExit and StopIteration would have effects of their own."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration | StopAsyncIteration):
        return raised
    return ToolError(f"{type(raised).__name__}: {raised}", code=ErrorCode.TOOL_FAILED, cause=raised)
