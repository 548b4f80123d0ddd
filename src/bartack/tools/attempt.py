"""One attempt at running a tool: it ends by itself, by its time limit, or because the round is stopped.

An async tool is a task and is cancelled. A plain function runs in a thread of its own, which nobody can end: it is told
by ``ctx.cancelled``. Either gets a grace period, then it is left alone and the attempt is over anyway, so no tool can
hold up a run. The thread is a daemon and not one of a pool: an abandoned one must neither keep the process alive nor
take a place that another tool needs.
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

__all__ = ["Ending", "attempt"]


class Ending(Struct, frozen=True, kw_only=True):
    """How an attempt ended. `left_running` says that the tool did not stop when told to."""

    how: Literal["returned", "raised", "timed_out", "stopped"]
    value: Any = None
    error: BaseException | None = None
    left_running: bool = False


_left: set["asyncio.Future[Any]"] = set()  # the event loop holds tasks weakly; these still run


async def attempt(
    definition: ToolDefinition,
    values: dict[str, Any],
    context: ToolContext,
    *,
    timeout_ms: int,
    grace_ms: int,
    stop: asyncio.Event,
) -> Ending:
    """Run the tool once."""
    work = _started(definition, values, context)
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
        return _ending(work)
    if isinstance(work, asyncio.Task):
        work.cancel()
    await asyncio.wait({work}, timeout=grace_ms / 1000)
    if not work.done():
        _left.add(work)
        work.add_done_callback(_forget)
        return Ending(how="stopped" if stop.is_set() else "timed_out", left_running=True)
    ending = _ending(work)
    if not stop.is_set():
        return Ending(how="timed_out")
    # A tool that finished its work on being stopped has done it: saying that it was aborted would be untrue.
    return ending if ending.how == "returned" else Ending(how="stopped")


def _ending(work: "asyncio.Future[Any]") -> Ending:
    if work.cancelled():
        return Ending(how="raised", error=ToolError("the tool cancelled itself"))
    error = work.exception()
    return Ending(how="returned", value=work.result()) if error is None else Ending(how="raised", error=error)


def _forget(work: "asyncio.Future[Any]") -> None:
    _left.discard(work)
    if not work.cancelled():
        work.exception()  # looked at, so that asyncio does not report it as lost


def _started(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> "asyncio.Future[Any]":
    if definition.is_async:
        return asyncio.create_task(_guarded(definition, values, context))
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    state = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(value) if error is None else future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = state.run(_plainly, definition, values, context)
        except BaseException as raised:  # noqa: BLE001 - a thread has nobody above it; the attempt's ending carries it
            error = _carried(raised)
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=run, name=f"bartack-tool-{definition.name}", daemon=True).start()
    return future


async def _guarded(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    try:
        return await definition.execute(values, context)
    except (SystemExit, StopIteration, StopAsyncIteration) as raised:
        raise _carried(raised) from raised


def _plainly(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    value = definition.execute(values, context)
    if inspect.iscoroutine(value):
        value.close()
        raise ToolError(f"tool {definition.name!r} is a plain function that gave a coroutine; it must be async")
    return value


def _carried(raised: BaseException) -> BaseException:
    """What a future can carry: an exit or the end of an iteration would do things of their own on the way."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration | StopAsyncIteration):
        return raised
    return ToolError(f"{type(raised).__name__}: {raised}", code=ErrorCode.TOOL_FAILED, cause=raised)
