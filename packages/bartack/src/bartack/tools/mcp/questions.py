"""What a server asks for: input from the user, an answer of a model, and the folders it may work in.

A question belongs to the tool call that is running, and goes to the approver of its run. Without one it is declined.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from mcp import types
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.client.session import ElicitationFnT, ListRootsFnT, SamplingFnT
from pydantic import FileUrl

from bartack.nouns.deltas import MessageDelta
from bartack.nouns.errors import BartackError, ToolError
from bartack.nouns.messages import Message, assistant, system, user
from bartack.nouns.parts import Text
from bartack.session.decisions import Decision
from bartack.session.schema_check import argument_check
from bartack.stream.assembler import MessageAssembler
from bartack.tools.mcp.config import visible_prose
from bartack.tools.tool_context import ToolContext

__all__ = ["Questions", "RunningCall", "SamplingModel"]

_MAX_SAMPLING_CHARS = 100_000


class SamplingModel(Protocol):
    """A model that may answer for a server; every `bartack.models.Model` is one."""

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[MessageDelta]:
        """The answer."""


class RunningCall:
    """A tool call while its server works on it, with its time limit."""

    def __init__(self, context: ToolContext, limit_s: float) -> None:
        self.context = context
        self._limit_s = limit_s
        self._scope = asyncio.timeout(limit_s)
        self._ended = asyncio.Event()

    @property
    def scope(self) -> asyncio.Timeout:
        """The time limit, to be entered."""
        return self._scope

    def extend(self) -> None:
        """Restart the clock, after progress."""
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    def end(self) -> None:
        """Withdraw the questions that are still open."""
        self._ended.set()

    async def ask(self, action: str, arguments: dict[str, Any], **question: Any) -> Decision:
        """The approver's decision, while the clock stands still; denied if the call ends before."""
        if not self._scope.expired():
            self._scope.reschedule(None)
        asking = asyncio.create_task(self.context.ask(action, arguments, **question))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return Decision("deny", reason="the call has ended")
            return asking.result()
        finally:
            ended.cancel()
            asking.cancel()
            if not self._ended.is_set():
                self.extend()


class Questions:
    """The callbacks of one server."""

    def __init__(
        self,
        server: str,
        *,
        elicitation: bool,
        sampling: SamplingModel | None,
        roots: Sequence[str | Path],
        on_tools_changed: Callable[[], None],
    ) -> None:
        self._server = server
        self._model = sampling
        self._roots = [Path(root).expanduser().absolute() for root in roots]
        self._on_tools_changed = on_tools_changed
        self.elicitation: ElicitationFnT | None = self._elicit if elicitation else None
        self.sampling: SamplingFnT | None = None if sampling is None else self._sample
        self.roots: ListRootsFnT | None = self._list_roots if self._roots else None
        self.running: list[RunningCall] = []

    async def notice(self, message: IncomingMessage) -> None:
        """Note that the list of tools has changed; it is read again before the next turn or call."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(path.as_uri()), name=path.name) for path in self._roots]
        )

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The user's answer to a form, or whether the user has agreed to open a URL."""
        if isinstance(params, types.ElicitRequestURLParams):
            decision = await self._ask("open a URL", {"url": params.url}, params.message, None)
            action = _ACTIONS.get("deny" if decision.decision == "modify_args" else decision.decision, "cancel")
            return types.ElicitResult(action=action)
        schema = dict(params.requested_schema)
        defaults = {
            name: shape["default"]
            for name, shape in (schema.get("properties") or {}).items()
            if isinstance(shape, dict) and "default" in shape
        }
        decision = await self._ask("ask for input", defaults, params.message, schema)
        action = _ACTIONS.get(decision.decision, "cancel")
        if action != "accept":
            return types.ElicitResult(action=action)
        content = defaults if decision.decision == "approve" else decision.arguments or {}
        try:
            argument_check(schema)(content)
        except ToolError:  # the user has left out something required
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content=content)

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """The answer of the model to the messages of the server, if the user has agreed."""
        assert self._model is not None
        try:
            messages = _sampling_messages(params)
        except BartackError as error:
            return types.ErrorData(code=types.INVALID_PARAMS, message=error.message)
        arguments = {"messages": [f"{message.role}: {message.text}" for message in messages]}
        decision = await self._ask("use the model", arguments, "wants the model to answer these messages", None)
        if decision.decision != "approve":
            return types.ErrorData(
                code=-1, message="The user rejected the request."
            )  # the code that the protocol names
        assembler = MessageAssembler()
        async for delta in self._model.stream(messages):
            assembler.consume(delta)
        failed = assembler.get_error()
        if failed is not None:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=f"The model failed: {failed.error_code}.")
        answer = assembler.build_final_message()
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=answer.text[:_MAX_SAMPLING_CHARS]),
            model=answer.meta.model.model if answer.meta is not None and answer.meta.model is not None else "unknown",
            stop_reason="endTurn",
        )

    async def _ask(self, action: str, arguments: dict[str, Any], text: str, schema: dict[str, Any] | None) -> Decision:
        """The approver's decision, on behalf of the call that started last; denied if none is running."""
        if not self.running:
            return Decision("deny", reason="no tool of this server is running")
        call = self.running[-1]
        reason = f"MCP server {self._server!r}: {visible_prose(text)}"
        decision = await call.ask(action, arguments, reason=reason, parameters=schema)
        if not call.context.cancelled:
            await call.context.progress(f"The server asked to {action}: {decision.decision}.")
        return decision


_ACTIONS: dict[str, Any] = {"approve": "accept", "modify_args": "accept", "deny": "decline"}


def _sampling_messages(params: types.CreateMessageRequestParams) -> list[Message]:
    """The messages that the model would get; `BartackError` if they are more than text."""
    messages = [system(visible_prose(params.system_prompt))] if params.system_prompt else []
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
        if len(texts) != len(blocks):
            raise ToolError("Only text is supported in sampling.")
        messages.append((user if message.role == "user" else assistant)(*map(Text, texts)))
    return messages
