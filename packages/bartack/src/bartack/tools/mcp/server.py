"""`McpServer`: an MCP (Model Context Protocol) server as a toolset.

A server is an untrusted program. Whatever it does (not start, crash, hang, flood, change its tools) ends in one tool
error that names it, and the next turn reconnects, after a delay that grows with each failure.
"""

import asyncio
import contextvars
import hashlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from bartack.nouns.errors import BartackError, ErrorCode, ToolError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart
from bartack.tools.definition import MAX_OUTPUT_CHARS, ToolDefinition
from bartack.tools.mcp.config import (
    SESSION_EXPIRED,
    ServerConfig,
    ServerFailure,
    StdioServer,
    plain_text,
    tool_prefix,
    visible_prose,
)
from bartack.tools.mcp.saved_files import KnownTools
from bartack.tools.tool_context import ToolContext

if TYPE_CHECKING:
    import httpx2
    from mcp import types

    from bartack.tools.mcp.connection import Connection, Transport
    from bartack.tools.mcp.definitions import Offered
    from bartack.tools.mcp.oauth import LoopbackSignIn
    from bartack.tools.mcp.questions import SamplingModel

__all__ = ["McpServer", "ServerStatus"]

TIMEOUT_MS = 60_000  # how long a call may go without progress
CONNECT_TIMEOUT_MS = 30_000  # a package runner may have to download the server first
_SIGN_IN_S = 310.0
_PATIENCE_S = 5.0  # how long a turn waits for a server that failed before; connecting continues in the background
_CHECK_S = 10.0  # how long a server that let a call time out has to respond
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 60.0  # after the second failure in a row; doubles with each further one
_MAX_PAGES = 100
_CLOSED = -32000  # the SDK's code for a connection that was closed
_MAX_HINTS_CHARS = 4_000
_PROGRESS_S, _MAX_PROGRESS_CHARS = 0.1, 1_000
T = TypeVar("T")
_log = logger("tools")


class _SessionExpired(ToolError):
    """The server has forgotten the session, so it has not executed the call."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """A server as people see it. All texts come from the server and may contain anything: print them escaped."""

    name: str
    address: str  # the command or URL, without secrets
    state: Literal["connected", "connecting", "failed", "closed"]
    problem: str | None = None
    stderr: str = ""  # the end of what a failed process wrote
    title: str | None = None  # what the server calls itself, with its version
    protocol: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    described: Mapping[str, str] = {}  # the descriptions with everything that a model does not get, by tool
    left_out: tuple[tuple[str, str], ...] = ()  # tools that are not offered, and why
    instructions: str | None = None


class McpServer:
    """A connection to one server, opened when needed, with the server's tools."""

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        *,
        prefix: str | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        elicitation: bool = True,
        sampling: "SamplingModel | None" = None,
        roots: Sequence[str | Path] = (),
        known_tools: Path | None = None,
        auth: "httpx2.Auth | LoopbackSignIn | None" = None,
        tokens: Path | None = None,
    ) -> None:
        """Accesses neither network nor disk. See `mcp` for the arguments."""
        self.name = name
        self.config = config
        self._prefix = tool_prefix(name) if prefix is None else prefix
        self._connect_timeout_s = self._start_s = connect_timeout_ms / 1000
        if hasattr(auth, "redirect_uri"):
            self._start_s += _SIGN_IN_S  # a person may have to sign in
        self._timeout_s = (config.timeout_ms or TIMEOUT_MS) / 1000
        self._max_output_chars = max_output_chars
        self._elicitation, self._sampling, self._roots = elicitation, sampling, tuple(roots)
        self._auth, self._tokens = auth, tokens
        self._known = KnownTools(known_tools, _identity(name, config))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._connection: Connection | None = None
        self._questions: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()  # connections that are being closed
        self._offered: Offered | None = None
        self._failure: str | None = None
        self._stderr = ""
        self._failures = 0  # consecutive failures to connect
        self._retry_at = 0.0
        self._attempts = 0
        self._is_stale = self._is_suspect = False

    # -- as a toolset

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the server listed last, even while it is not connected."""
        return () if self._offered is None else (*self._offered.definitions, *self._reading_tools)

    @property
    def hints(self) -> str | None:
        """The server's instructions, if they are enabled."""
        if not self.config.instructions or self._connection is None:
            return None
        text = visible_prose(self._connection.client.instructions or "")[:_MAX_HINTS_CHARS]
        return f"Instructions of the MCP server {self.name!r}:\n{text}" if text else None

    async def open(self) -> None:
        """Connect if needed, or read the list of tools again if it has changed. Takes a limited time; never raises
        because of the server."""
        if self._loop is not asyncio.get_running_loop():
            self._leave_loop()
            self._loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is not None and connection.failure is not None:
            self._drop(connection.failure)
        if self._connection is not None:
            if self._is_stale or self._is_suspect:
                await self._update()
            return
        if self._connecting is None and self._loop.time() >= self._retry_at:
            # A context of its own: the connection outlives the run that opened it.
            connecting = self._connect()
            self._connecting = asyncio.create_task(connecting, context=contextvars.Context())
        if self._connecting is not None:
            patience = self._start_s + _PATIENCE_S if self._attempts == 0 else _PATIENCE_S
            await asyncio.wait({self._connecting}, timeout=patience)

    async def close(self) -> None:
        """Close the connection. A server process ends with everything it started."""
        if self._loop is not asyncio.get_running_loop():
            self._leave_loop()
            return
        while (connecting := self._connecting) is not None:
            connecting.cancel()
            await asyncio.wait({connecting})
        connection, leaving = self._connection, self._leaving
        self._reset()  # a run that opens the server from now on gets a connection of its own
        if connection is not None:
            await connection.close()
        if leaving:
            await asyncio.wait(leaving)

    def _leave_loop(self) -> None:
        """Forget what belongs to another event loop. If that still runs, it closes the connection; if not, the
        connection ended with it."""
        if self._connection is not None and self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop)
        self._reset()

    def problem(self, tool_name: str) -> str | None:
        """Why this server has no such tool, if the name has its prefix."""
        if not self._prefix or not tool_name.startswith(self._prefix):
            return None
        if "__" in tool_name and not self._prefix.endswith("__"):
            return None  # the tool of another server, whose name begins with that of this one
        if self._connection is None:
            return self._unavailable_error().message
        return f"MCP server {self.name!r} has no tool {tool_name.removeprefix(self._prefix)!r}."

    @property
    def status(self) -> ServerStatus:
        """The current status, without waiting."""
        connection, offered = self._connection, self._offered
        client = None if connection is None else connection.client
        info = None if client is None else client.server_info
        state: Any = "connected" if client is not None else "failed" if self._failure else "closed"
        return ServerStatus(
            name=self.name,
            address=self.config.address,
            state="connecting" if self._connecting is not None else state,
            problem=self._failure,
            stderr=self._stderr,
            title=None if info is None else f"{info.name} {info.version}",
            protocol=None if client is None else client.protocol_version,
            tools=self.tools,
            described={} if offered is None else offered.described,
            left_out=() if offered is None else offered.left_out,
            instructions=None if client is None else client.instructions,
        )

    # -- connecting

    async def _connect(self) -> None:
        await asyncio.to_thread(import_module, "bartack.tools.mcp.connection")  # the SDK takes a second to import
        from bartack.tools.mcp.connection import Connection  # noqa: PLC0415
        from bartack.tools.mcp.questions import Questions  # noqa: PLC0415

        questions = Questions(
            self.name,
            elicitation=self._elicitation,
            sampling=self._sampling,
            roots=self._roots,
            on_tools_changed=self._mark_stale,
        )
        connection = Connection(self._new_transport, questions)
        try:
            await connection.open(self._start_s)
            async with asyncio.timeout(self._connect_timeout_s):
                offered = await self._list_tools(connection)
        except asyncio.CancelledError:
            await connection.close()
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server provokes is its failure, and is reported as such
            self._fail(_reason(error), connection.stderr)
            await connection.close()
        else:
            self._connection, self._questions, self._offered = connection, questions, offered
            self._failure, self._stderr, self._failures = None, "", 0
        finally:
            self._connecting = None
            self._attempts += 1
            if self._auth is not None and hasattr(self._auth, "close"):
                self._auth.close()

    def _new_transport(self, on_end: Callable[[], None]) -> "Transport":
        if isinstance(self.config, StdioServer):
            from bartack.tools.mcp.transports import ServerProcess  # noqa: PLC0415 - as above

            return ServerProcess(self.config, on_end)
        from bartack.tools.mcp.oauth import auth_for, default_tokens_path  # noqa: PLC0415
        from bartack.tools.mcp.transports import HttpTransport  # noqa: PLC0415

        auth = auth_for(self.config, self._auth, self._tokens or default_tokens_path())
        return HttpTransport(self.config, auth, on_end)

    def _mark_stale(self) -> None:
        self._is_stale = True

    async def _update(self) -> None:
        """Read the list of tools again, which also shows whether the server still responds."""
        connection = self._connection
        assert connection is not None
        self._is_stale = self._is_suspect = False
        try:
            async with asyncio.timeout(_CHECK_S):
                offered = await self._list_tools(connection)
        except Exception as error:  # noqa: BLE001 - as in `_connect`
            if self._connection is connection:  # another run may have replaced it already
                self._drop(connection.failure or _reason(error))
            await self.open()
        else:
            if self._connection is connection:
                self._offered = offered

    async def _list_tools(self, connection: "Connection") -> "Offered":
        from bartack.tools.mcp.definitions import MAX_TOOLS, offered_tools  # noqa: PLC0415

        config, tools = self.config, list["types.Tool"]()
        if connection.client.server_capabilities.tools is not None:
            request = partial(self._request, connection)
            tools = await _all_pages(request, connection.client.list_tools, "tools", most=MAX_TOOLS)
        return offered_tools(
            tools[:MAX_TOOLS],
            self._call,
            prefix=self._prefix,
            keep=lambda name: (config.allow is None or name in config.allow) and name not in config.deny,
            known_digest=self._known.get,
            trust_hints=config.trust_hints,
            max_output_chars=self._max_output_chars,
        )

    async def _request(self, connection: "Connection", request: Awaitable[T]) -> T:
        """The answer to a request; `ServerFailure` if the connection failed, `ToolError` if the server refused."""
        from mcp import MCPError  # noqa: PLC0415 - as above
        from pydantic import ValidationError  # noqa: PLC0415 - the SDK brings it

        try:
            return await request
        except MCPError as error:
            if connection.failure is not None or error.code == _CLOSED:
                raise ServerFailure(connection.failure or "the connection was closed") from None
            raise ToolError(connection.without_secrets(f"MCP server {self.name!r}: {error.error.message}")) from None
        except ValidationError:
            raise ToolError(f"MCP server {self.name!r} sent an invalid answer.") from None
        except (OSError, RuntimeError) as error:
            raise ServerFailure(connection.failure or f"{type(error).__name__}: {error}") from None

    def _drop(self, reason: str) -> None:
        """Give up the connection. The next use connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._fail(reason, connection.stderr)
            task = asyncio.create_task(connection.close(), context=contextvars.Context())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _fail(self, reason: str, stderr: str) -> None:
        self._failure, self._stderr = plain_text(reason), stderr
        self._failures += 1
        delay = 0.0 if self._failures == 1 else min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self._failures - 2, 10))
        self._retry_at = asyncio.get_running_loop().time() + delay
        _log.warning("MCP server %s failed (%d in a row)", self.name, self._failures)

    def _unavailable_error(self) -> ToolError:
        reason = self._failure or ("it is still connecting" if self._connecting is not None else "it is not connected")
        text = f"MCP server {self.name!r} is not available: {reason}."
        if self._loop is not None and self._failure and (wait_s := self._retry_at - self._loop.time()) > 0:
            text += f" The next attempt to connect is possible in {math.ceil(wait_s)} s."
        return ToolError(text)

    # -- calls

    async def _call(self, tool: str, digest: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Execute a call, in a new session if the server has forgotten this one."""
        try:
            return await self._call_once(tool, digest, arguments, context)
        except _SessionExpired:
            return await self._call_once(tool, digest, arguments, context)

    async def _call_once(self, tool: str, digest: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Execute a call. What was approved is the definition with this digest."""
        from bartack.tools.mcp.content import output_of  # noqa: PLC0415 - as above

        async with self._using() as connection:
            offered = self._offered
            current = None if offered is None else offered.digests.get(tool)
            if offered is None or current is None:
                text = f"MCP server {self.name!r} no longer has the tool {tool!r}."
                raise ToolError(text, code=ErrorCode.TOOL_NOT_FOUND)
            if current != digest:
                text = f"Not executed: MCP server {self.name!r} has changed the definition of {tool!r}. Call it again."
                raise ToolError(text, code=ErrorCode.TOOL_NOT_RUN)
            self._is_stale = self._is_stale or self._known.get(tool) not in (None, digest)  # no longer a change
            await asyncio.to_thread(self._known.record, tool, digest)
            result = await self._call_with_timeout(connection, tool, arguments, context)
        result = offered.checked(result, tool)
        return output_of(result, {"mcp": {"server": self.name, "tool": tool, "digest": digest}})

    async def _call_with_timeout(
        self, connection: "Connection", tool: str, arguments: dict[str, Any], context: ToolContext
    ) -> "types.CallToolResult":
        """The result of a call. The limit counts from the last progress, and not while a person is asked."""
        from bartack.tools.mcp.questions import RunningCall  # noqa: PLC0415 - as above

        running = RunningCall(context, self._timeout_s)
        clock, next_at = asyncio.get_running_loop().time, 0.0

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal next_at
            running.extend()
            if not context.cancelled and clock() >= next_at:  # each one is stored, so that a flood would fill the disk
                next_at = clock() + _PROGRESS_S
                share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
                text = plain_text(message or share)[:_MAX_PROGRESS_CHARS]
                await context.progress(text, progress=progress, total=total)

        questions = self._questions
        questions.running.append(running)
        try:
            async with running.scope:
                call = connection.client.call_tool(tool, arguments, progress_callback=on_progress)
                return await self._request(connection, call)
        except TimeoutError:
            raise self._timeout_error() from None
        finally:
            running.end()
            questions.running.remove(running)

    @asynccontextmanager
    async def _using(self) -> AsyncIterator["Connection"]:
        """The connection, opened if needed; `ToolError` if there is none, or if it fails inside."""
        await self.open()
        connection = self._connection
        if connection is None:
            raise self._unavailable_error()
        try:
            yield connection
        except ServerFailure as failure:
            if self._connection is connection:
                self._drop(str(failure))
            if str(failure) == SESSION_EXPIRED:
                raise _SessionExpired(f"MCP server {self.name!r} has ended the session; call again.") from None
            text = f"MCP server {self.name!r} failed during the call: {failure}. The outcome of the call is unknown."
            raise ToolError(text) from None

    # -- resources and prompts

    async def list_resources(self) -> list[dict[str, Any]]:
        """The resources and templates of resources, as JSON; `ToolError` if the server cannot list them."""
        async with self._using() as connection:
            client, request = connection.client, partial(self._request_with_timeout, connection)
            if client.server_capabilities.resources is None:
                return []
            resources = await _all_pages(request, client.list_resources, "resources")
            templates = await _all_pages(request, client.list_resource_templates, "resource_templates")
            return [_plain(resource) for resource in (*resources, *templates)]

    async def read_resource(self, uri: str) -> tuple[ContentPart, ...]:
        """The contents of a resource; `ToolError` if the server cannot read it."""
        from bartack.tools.mcp.content import resource_parts  # noqa: PLC0415 - as above

        async with self._using() as connection:
            return resource_parts(
                (await self._request_with_timeout(connection, connection.client.read_resource(uri))).contents
            )

    async def list_prompts(self) -> list[dict[str, Any]]:
        """The prompts with their arguments, as JSON; `ToolError` if the server cannot list them."""
        async with self._using() as connection:
            client, request = connection.client, partial(self._request_with_timeout, connection)
            if client.server_capabilities.prompts is None:
                return []
            return [_plain(prompt) for prompt in await _all_pages(request, client.list_prompts, "prompts")]

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[Message]:
        """The messages of a prompt, to pass to a run; `ToolError` if the server cannot provide it."""
        from bartack.tools.mcp.content import prompt_messages  # noqa: PLC0415 - as above

        async with self._using() as connection:
            prompt = await self._request_with_timeout(connection, connection.client.get_prompt(name, arguments))
            return prompt_messages(prompt.messages)

    async def _request_with_timeout(self, connection: "Connection", request: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._request(connection, request)
        except TimeoutError:
            raise self._timeout_error() from None

    def _timeout_error(self) -> ToolError:
        """The error for a request that took too long. Before the next turn, the server has to show that it responds."""
        self._is_suspect = True
        text = f"MCP server {self.name!r} did not answer within {self._timeout_s:g} s."
        return ToolError(text, code=ErrorCode.TOOL_TIMEOUT)

    @cached_property
    def _reading_tools(self) -> tuple[ToolDefinition, ...]:
        """Tools for resources and prompts, if they are enabled."""
        from bartack.tools.mcp.content import prompt_tools, resource_tools  # noqa: PLC0415 - a cycle otherwise

        needs_approval = not self.config.trust_hints
        resources = resource_tools(self, self._prefix, needs_approval) if self.config.resources else ()
        prompts = prompt_tools(self, self._prefix, needs_approval) if self.config.prompts else ()
        return (*resources, *prompts)


async def _all_pages(
    request: Callable[[Awaitable[Any]], Awaitable[Any]],
    list_page: Callable[..., Awaitable[Any]],
    attribute: str,
    *,
    most: float = math.inf,
) -> list[Any]:
    """What the pages of a list contain, as far as they are read: a server may have pages without end."""
    items: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await request(list_page(cursor=cursor))
        items += getattr(page, attribute)
        cursor = page.next_cursor
        if cursor is None or len(items) > most:
            break
    return items


def _identity(name: str, config: ServerConfig) -> str:
    """The server by its name and address. The address is hashed, because it may contain a secret."""
    address = [config.command, *config.args] if isinstance(config, StdioServer) else [config.url]
    return f"{name} {hashlib.sha256(json.dumps(address).encode()).hexdigest()[:16]}"


def _reason(error: Exception) -> str:
    match error:
        case BartackError():
            return error.message
        case ServerFailure():
            return str(error)
        case TimeoutError():
            return "it did not list its tools in time"
        case _:
            return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> dict[str, Any]:
    """A description by the server as JSON, without terminal control."""
    fields: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "icons"})
    return {key: plain_text(text) if isinstance(text, str) else text for key, text in fields.items()}
