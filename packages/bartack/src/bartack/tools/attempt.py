"""One attempt at running a tool: it ends when the tool returns, at its time limit, or when the round is stopped.

An async tool is a task, which is cancelled. A regular function runs in a thread, which cannot be ended from outside; it
can check ``ctx.cancelled``. Either gets a grace period and is then abandoned, so no tool can hold up a run. The thread
is a daemon outside any pool: when abandoned, it must not keep the process alive or take up a worker.
"""

import asyncio
import contextvars
import inspect
import threading
from typing import Any

from bartack.nouns.errors import ErrorCode, ToolError
from bartack.session.tool_state import TIMED_OUT
from bartack.tools.definition import ToolDefinition
from bartack.tools.tool_context import ToolContext
from bartack.tools.tool_round import ToolRound, contained, portable_error, retrieve_exception

__all__ = ["attempt"]

_abandoned: set["asyncio.Future[Any]"] = set()  # still running; the event loop itself holds tasks weakly


async def attempt(
    definition: ToolDefinition, values: dict[str, Any], context: ToolContext, round: ToolRound, *, timeout_ms: int
) -> Any:
    """Run the tool once and return its value.

    Raises what the tool raises, and `ToolError` if it times out or is stopped. A time-out is retryable if the tool is
    idempotent and has really ended.
    """
    work = _start(definition, values, context)
    if await round.finishes(work, timeout_ms / 1000, on_end=context.end):
        if work.cancelled():
            raise ToolError("The tool cancelled itself.")
        error = work.exception()
        if error is not None:
            raise portable_error(error)
        return work.result()
    warning = ""
    if not work.done():
        _abandoned.add(work)
        work.add_done_callback(_forget)
        warning = " The tool did not stop when cancelled and may still be running."
    if not round.stop.is_set():
        is_retryable = definition.idempotent and work.done()
        text = f"{TIMED_OUT.format(timeout_ms)}{warning}"
        raise ToolError(text, code=ErrorCode.TOOL_TIMEOUT, retryable=is_retryable)
    if work.done() and not work.cancelled() and work.exception() is None:
        return work.result()  # it completed its work when stopped; reporting an abort would be wrong
    output = context.partial_output()
    partial = f" Output until then:\n{output}" if output else ""
    raise ToolError(f"Aborted while running.{warning}{partial}", code=ErrorCode.TOOL_ABORTED)


def _forget(work: "asyncio.Future[Any]") -> None:
    _abandoned.discard(work)
    retrieve_exception(work)


def _start(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> "asyncio.Future[Any]":
    if definition.is_async:
        return asyncio.create_task(contained(_awaited(definition, values, context)))
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
        except BaseException as raised:  # noqa: BLE001 - raised again by `attempt`
            error = portable_error(raised)
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the event loop has been closed

    threading.Thread(target=run, name=f"bartack-tool-{definition.name}", daemon=True).start()
    return future


async def _awaited(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    return await definition.execute(values, context)


def _run_sync(definition: ToolDefinition, values: dict[str, Any], context: ToolContext) -> Any:
    value = definition.execute(values, context)
    if inspect.iscoroutine(value):
        value.close()
        raise ToolError(f"Tool {definition.name!r} is a regular function but returned a coroutine; use async def.")
    return value
