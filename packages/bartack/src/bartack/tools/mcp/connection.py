"""`Connection`: one connection to a server, from its start to its end.

The SDK's client must be entered and left in the same task, so each connection has one. Calls are made from the tasks
of their tools, whose trace context the SDK passes on in ``_meta``.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, Protocol

from mcp import Client, MCPError, types
from mcp.client import IncomingMessage
from mcp.client.session import ElicitationFnT, ListRootsFnT, SamplingFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bartack.nouns.errors import BartackError
from bartack.tools.mcp.config import ServerFailure, mask_values, plain_text

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # a private name for a pair of streams

__all__ = ["Callbacks", "Connection", "Transport"]

for _name in ("mcp", "client"):  # the loggers of the SDK; without a handler, Python prints their warnings
    logging.getLogger(_name).addHandler(logging.NullHandler())

_CLOSE_S = 10.0  # a process has two seconds to exit and one after SIGTERM
_LISTEN_S = 5.0  # between two subscriptions, if a server ends the first one
_CLOSED = -32000  # the SDK's code for a connection that was closed


class Transport(Protocol):
    """How the messages reach a server."""

    secrets: dict[str, str]  # values that must not appear in messages, by their names
    failure: str | None  # why it can no longer be used

    def transport(self) -> "AbstractAsyncContextManager[TransportStreams]":
        """The streams, until the context is left."""

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error."""


class Callbacks(Protocol):
    """Answers the requests and notifications of a server."""

    elicitation: ElicitationFnT | None
    sampling: SamplingFnT | None
    roots: ListRootsFnT | None

    async def notice(self, message: IncomingMessage) -> None:
        """React to a notification."""


class Connection:
    """A connection that is open after `open` and until it fails or is closed."""

    client: Client

    def __init__(self, new_transport: Callable[[Callable[[], None]], Transport], callbacks: Callbacks) -> None:
        """`new_transport` gets a function to call when the server has closed the connection."""
        self._new_transport = new_transport
        self._callbacks = callbacks
        self._transport: Transport | None = None
        self._is_closed = False
        self._wake = asyncio.Event()  # when the connection is to be closed, or the server has closed it
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the connection can no longer be used; None while it can."""
        own = None if self._transport is None else self._transport.failure
        return self.without_secrets(own or self._failure or "") or None

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error, without secrets."""
        return "" if self._transport is None else self.without_secrets(self._transport.stderr)

    def without_secrets(self, text: str) -> str:
        """The text without control characters and secrets."""
        return plain_text(mask_values(text, {} if self._transport is None else self._transport.secrets))

    async def open(self, timeout_s: float) -> None:
        """Connect and negotiate; `ServerFailure` if that fails or takes too long."""
        self._task = asyncio.create_task(self._live())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._failure = self.failure or f"it did not respond within {timeout_s:g} s"
            await self.close()
            raise ServerFailure(self._failure) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection and wait until nothing of it is left."""
        self._is_closed = True
        self._wake.set()
        self._failure = self._failure or "the connection was closed"
        task = self._task
        if task is None or task.done():
            return
        if not self._ready.done():
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=_CLOSE_S)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_S)

    async def _live(self) -> None:
        try:
            try:
                await self._stay_connected("auto")
            except Exception as error:
                cause = _innermost(error)
                is_closed = isinstance(cause, MCPError) and cause.code == _CLOSED
                if self._ready.done() or self._is_closed or not is_closed:
                    raise
                await self._stay_connected("legacy")  # some servers exit when asked about newer versions
        except asyncio.CancelledError:
            self._fail("the connection was closed")
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported, and ends this connection only
            self._fail(_reason(error))
        else:
            self._fail("the connection was closed")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        if not self._ready.done():
            self._ready.set_exception(ServerFailure(self.failure or reason))
            self._ready.exception()  # retrieved, because `open` may have given up

    async def _stay_connected(self, mode: Literal["auto", "legacy"]) -> None:
        """Connect, and stay connected until the connection is closed or lost."""
        self._wake.clear()
        transport = self._transport = self._new_transport(self._wake.set)
        callbacks = self._callbacks
        client = Client(
            transport.transport(),
            mode=mode,
            elicitation_callback=callbacks.elicitation,
            sampling_callback=callbacks.sampling,
            list_roots_callback=callbacks.roots,
            message_handler=callbacks.notice,
            client_info=types.Implementation(name="bartack", version=version("bartack")),
            cache=None,
        )
        async with client:
            # The SDK checks results with Python's `re`, which a pattern of a hostile server can block for hours.
            setattr(client.session, "validate_tool_result", _skip_validation)  # noqa: B010 - a method cannot be assigned to
            self.client = client
            self._ready.set_result(None)
            async with self._listening(client):
                if not self._is_closed:
                    await self._wake.wait()

    @asynccontextmanager
    async def _listening(self, client: Client) -> AsyncIterator[None]:
        """Receive changes of lists, which servers of the newest protocol send to a subscription only."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            yield
            return
        listening = asyncio.create_task(self._listen(client))
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self, client: Client) -> None:
        while True:
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        await self._callbacks.notice(types.ToolListChangedNotification())
            except SubscriptionLost:
                pass
            except MCPError:  # the server has no subscriptions, or is gone
                return
            await asyncio.sleep(_LISTEN_S)
            await self._callbacks.notice(types.ToolListChangedNotification())  # anything may have changed by now


async def _skip_validation(name: str, result: types.CallToolResult) -> None:
    return None


def _innermost(error: BaseException) -> BaseException:
    """The error itself: task groups raise it inside of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """The error as the rest of a sentence."""
    error = _innermost(error)
    if isinstance(error, ServerFailure):
        return str(error)
    if isinstance(error, BartackError):
        return error.message
    if isinstance(error, MCPError):
        return f"it answered with an error: {error}"
    return f"{type(error).__name__}: {error}"
