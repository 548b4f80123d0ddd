"""`ToolContext`: what a running tool can see of its call, and how it reports progress.

The executor creates one for each attempt. A tool can be called in a test with an empty one:
``await weather("Paris", ToolContext())``.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic

from bartack.nouns.entries import ApprovalRequired, ToolProgress
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.session.decisions import Decision
from bartack.tools.output import valid_object, valid_text

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # its TypeVar has a default; no release before Python 3.13 does

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

__all__ = ["ToolContext", "in_event_loop"]

_ENDED = "The call has ended."
RecordProgress = Callable[[ToolProgress], Awaitable[None]]
Ask = Callable[[ApprovalRequired], Awaitable[Decision]]


class ToolContext(Generic[Deps]):
    """One attempt at one call, as its tool sees it.

    ``ToolContext[Database]`` declares the type of `deps`: whatever the run was started with as its dependencies.
    """

    def __init__(
        self,
        *,
        deps: Deps = None,  # type: ignore[assignment]
        tool_call_id: str = "",
        tool_name: str = "",
        run_id: str = "",
        session_id: str = "",
        attempt: int = 1,
        preview: dict[str, Any] | None = None,
        agent: Any = None,
        runtime: Any = None,
        record: RecordProgress | None = None,
        ask: Ask | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.deps: Deps = deps
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.run_id = run_id
        self.session_id = session_id
        self.attempt = attempt
        self.preview = preview  # what was approved, if the tool has a preview and the call needed approval
        self._agent = agent
        self._runtime = runtime
        self._record = record
        self._ask = ask
        self._questions = 0
        self._loop = loop
        self._ended = threading.Event()  # read from threads too
        self.metadata: dict[str, Any] = {}
        """Stored with the result, whatever the outcome: also if the tool fails or times out."""
        self.partial_output: Callable[[], str] = str
        """Returns what the tool has produced so far; if it is stopped, the model gets that with the message."""

    @property
    def agent(self) -> Any:
        """The agent that made the call. Requires ``requires_agent=True``."""
        return self._declared(self._agent, "agent")

    @property
    def runtime(self) -> Any:
        """The agent's runtime. Requires ``requires_runtime=True``."""
        return self._declared(self._runtime, "runtime")

    def _declared(self, value: Any, name: str) -> Any:
        if value is None:
            raise ToolError(f"Tool {self.tool_name!r} must be declared with requires_{name}=True to use ctx.{name}.")
        return value

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was stopped or timed out. A long-running thread should check this."""
        return self._ended.is_set()

    def end(self) -> None:
        """Mark the attempt as ended; progress is no longer recorded."""
        self._ended.set()

    async def progress(self, text: str, *, title: str | None = None, **metadata: Any) -> None:
        """Report progress, which is stored when this returns. `ToolError` once the call has ended."""
        if self.cancelled:
            raise ToolError(_ENDED, code=ErrorCode.TOOL_ABORTED)
        if valid_object(metadata) is None:
            raise ToolError("Progress metadata must be JSON.")
        if self._record is not None:
            title = None if title is None else valid_text(title)
            await self._record(
                ToolProgress(
                    tool_call_id=self.tool_call_id, content=valid_text(text), title=title, metadata=metadata or None
                )
            )

    async def ask(
        self, action: str, arguments: dict[str, Any], *, reason: str, parameters: dict[str, Any] | None = None
    ) -> Decision:
        """Ask the run's approver about something that the tool wants to do; denied if there is no approver.

        The question names the tool and `what`; the decision is about `arguments`, whose JSON Schema is `parameters`.
        The question is not stored.
        """
        if self._ask is None:
            return Decision("deny", reason="this run has no approver")
        self._questions += 1
        return await self._ask(
            ApprovalRequired(
                tool_call_id=f"{self.tool_call_id}/{self._questions}",
                tool_name=f"{self.tool_name}/{action}",
                arguments=arguments,
                reason=valid_text(reason),
                parameters=parameters,
            )
        )

    def report(self, text: str, *, title: str | None = None, **metadata: Any) -> None:
        """`progress` for a tool that is a regular function."""
        if self.cancelled:
            raise ToolError(_ENDED, code=ErrorCode.TOOL_ABORTED)
        if self._loop is None:
            return
        if in_event_loop():
            raise ToolError("An async tool must use `await ctx.progress()`; ctx.report() would deadlock.")
        asyncio.run_coroutine_threadsafe(self.progress(text, title=title, **metadata), self._loop).result()


def in_event_loop() -> bool:
    """Whether this is called inside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
