"""`ToolContext`: what a running tool is told about its call, and how it says how far it is.

The executor makes one for each attempt. It works without one too, so a tool can be called in a test:
``await weather("Paris", ToolContext())``.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from bartack.nouns.entries import ToolProgress
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.tools.storable import storable_object, storable_text

__all__ = ["ToolContext"]

RecordProgress = Callable[[ToolProgress], Awaitable[None]]


class ToolContext:
    """One attempt at one call, seen from inside the tool."""

    def __init__(
        self,
        *,
        tool_call_id: str = "",
        tool_name: str = "",
        run_id: str = "",
        session_id: str = "",
        attempt: int = 1,
        agent: Any = None,
        runtime: Any = None,
        record: RecordProgress | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.run_id = run_id
        self.session_id = session_id
        self.attempt = attempt
        self._agent = agent
        self._runtime = runtime
        self._record = record
        self._loop = loop
        self._over = threading.Event()  # a thread looks at it too

    @property
    def agent(self) -> Any:
        """The agent that made the call; only for a tool with ``requires_agent``."""
        return self._declared(self._agent, "requires_agent")

    @property
    def runtime(self) -> Any:
        """The runtime of the agent; only for a tool with ``requires_runtime``."""
        return self._declared(self._runtime, "requires_runtime")

    def _declared(self, value: Any, flag: str) -> Any:
        if value is None:
            raise ToolError(f"tool {self.tool_name!r} gets no such thing: it does not declare {flag}")
        return value

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more. A long loop in a thread looks here."""
        return self._over.is_set()

    def end(self) -> None:
        """Nobody waits any more: from here on nothing that the tool says is recorded."""
        self._over.set()

    async def progress(self, text: str, *, title: str | None = None, **metadata: Any) -> None:
        """Say how far the tool is; it is stored when this returns. `ToolError` once the call is over."""
        if self.cancelled:
            raise ToolError("the call is over", code=ErrorCode.TOOL_ABORTED)
        if storable_object(metadata) is None:
            raise ToolError("the metadata of progress is not JSON")
        if self._record is not None:
            title = None if title is None else storable_text(title)
            await self._record(
                ToolProgress(self.tool_call_id, storable_text(text), title=title, metadata=metadata or None)
            )

    def report(self, text: str, *, title: str | None = None, **metadata: Any) -> None:
        """`progress` for a tool that runs in a thread."""
        if self.cancelled:
            raise ToolError("the call is over", code=ErrorCode.TOOL_ABORTED)
        if self._loop is None:
            return
        if _in_loop():
            raise ToolError("an async tool awaits ctx.progress(); ctx.report() would wait for itself")
        asyncio.run_coroutine_threadsafe(self.progress(text, title=title, **metadata), self._loop).result()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
