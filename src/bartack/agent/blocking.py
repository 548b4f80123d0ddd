"""`blocking`: what a coroutine method of an agent returns, for programs without an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bartack.nouns.errors import AgentError, ErrorCode
from bartack.tools.tool_context import in_event_loop

__all__ = ["blocking"]

T = TypeVar("T")


def blocking(work: Callable[[], Awaitable[T]], close: Callable[[], Awaitable[None]], method: str) -> T:
    """Run the work in a new event loop, close its connections, and return the result.

    Raises `AgentError` inside an event loop: await `method` there instead.
    """
    if in_event_loop():
        raise AgentError(f"Inside an event loop, use `await agent.{method}(...)`.", code=ErrorCode.INVALID_CONFIG)

    async def once() -> T:
        try:
            return await work()
        finally:
            await close()

    return asyncio.run(once())
