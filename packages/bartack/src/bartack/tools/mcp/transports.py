"""The ways to a server, as transports for the SDK: the standard streams of a process, and streamable HTTP.

The SDK's own transport for a process keeps a line of any length and waits for its process without a supervisor. This
one limits what a server can send, and leaves no process behind, even if this one is killed (see `supervisor`).
"""

import asyncio
import os
import shutil
import sys
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from mcp.types.jsonrpc import JSONRPCNotification

from bartack.tools.mcp.config import (
    NEEDS_SIGN_IN,
    SESSION_EXPIRED,
    HttpServer,
    ServerFailure,
    StdioServer,
    expand_variables,
    secrets_in,
)
from bartack.tools.shell import safe_environment

__all__ = ["HttpTransport", "ServerProcess"]

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # a private name for a pair of streams


MAX_MESSAGE_BYTES = 16_000_000  # one line; an image of 10 MB in base64 fits
_MAX_GARBAGE = 100  # lines that are not messages; some servers print a banner
# The most notifications without an answer in between: about a second of a flood.
MAX_NOTIFICATIONS = 20_000
_READ_BYTES = 65_536
_STDERR_BYTES = 4_000
_EXIT_S = 2.0  # the time a server has to exit after its input is closed
_KILL_S = 5.0  # the supervisor waits a second before it kills
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


class ServerProcess:
    """One start of a server. `transport` is entered once."""

    def __init__(self, config: StdioServer, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the server has closed its output."""
        self._variables = {name: expand_variables(value) for name, value in config.env.items()}
        self.secrets = {**self._variables, **secrets_in([*config.env.values(), *config.args])}
        self._config = config
        self._on_end = on_end
        self._stderr: deque[bytes] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._control = -1
        self._is_responsive = False  # it has sent a message
        self.failure: str | None = None  # why it can no longer be used

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error."""
        return b"".join(self._stderr)[-_STDERR_BYTES:].decode("utf-8", "replace")

    @asynccontextmanager
    async def transport(self) -> AsyncIterator["TransportStreams"]:
        """The streams of messages, until the context is left; `ServerFailure` if the process cannot be started."""
        process = self._process = await self._start()
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, process, incoming)
                tasks.start_soon(self._write, process, outgoing)
                tasks.start_soon(self._drain_stderr, process)
                try:
                    yield read_stream, write_stream
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (incoming, read_stream, write_stream, outgoing):
                stream.close()
            with anyio.CancelScope(shield=True):
                await self._stop(process)

    async def _start(self) -> asyncio.subprocess.Process:
        config = self._config
        if not hasattr(os, "killpg"):
            raise ServerFailure("MCP servers started as processes require a POSIX system.")
        environment = {**safe_environment(os.environ), **self._variables}
        words = [expand_variables(word) for word in (config.command, *config.args)]
        directory = _directory(config)
        words[0] = _executable(words[0], directory, environment)
        control, self._control = os.pipe()
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_SUPERVISOR), str(control), *words,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env=environment, cwd=directory, pass_fds=(control,), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(self._control)
            raise ServerFailure(f"cannot start {config.command!r}: {error.strerror}") from None
        finally:
            os.close(control)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """Close the server's input, then let the supervisor terminate what is left."""
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):
            process.stdin.close()
        if self._is_responsive and self.failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_S):
                    await _wait_for_exit(process)
        os.close(self._control)
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await _wait_for_exit(process)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await _wait_for_exit(process)
        transport = getattr(process, "_transport", None)  # otherwise open while a descendant holds a pipe
        if transport is not None:
            transport.close()

    async def _read(
        self, process: asyncio.subprocess.Process, incoming: "anyio.abc.ObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        """Pass messages on until the server closes its output, or sends what it must not."""
        async with incoming:
            try:
                await self._read_messages(process, incoming)
            except ServerFailure as failure:
                self.failure = str(failure)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                self.failure = self.failure or "the connection was closed"
            else:
                self.failure = self.failure or await self._exit_reason(process)
            finally:
                self._on_end()

    async def _read_messages(
        self, process: asyncio.subprocess.Process, incoming: "anyio.abc.ObjectSendStream[SessionMessage | Exception]"
    ) -> None:
        assert process.stdout is not None
        pieces: list[bytes] = []
        size = garbage = notifications = 0
        while data := await process.stdout.read(_READ_BYTES):
            *lines, remainder = data.split(b"\n")
            for line in lines:
                message = _message(b"".join([*pieces, line]))
                pieces, size = [], 0
                self._is_responsive = self._is_responsive or message is not None
                if message is None:
                    garbage += 1
                elif isinstance(message.message, JSONRPCNotification):
                    notifications += 1
                    await incoming.send(message)
                else:
                    notifications = 0
                    await incoming.send(message)
                if garbage > _MAX_GARBAGE:
                    raise ServerFailure("it sends data that is not JSON-RPC")
                if notifications > MAX_NOTIFICATIONS:
                    raise ServerFailure("it sends too many notifications")
            pieces.append(remainder)
            size += len(remainder)
            if size > MAX_MESSAGE_BYTES:
                raise ServerFailure(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")

    async def _exit_reason(self, process: asyncio.subprocess.Process) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await _wait_for_exit(process)
        code = process.returncode
        return "it closed its output" if code is None else f"it exited with code {code}"

    async def _write(
        self, process: asyncio.subprocess.Process, outgoing: "anyio.abc.ObjectReceiveStream[SessionMessage]"
    ) -> None:
        assert process.stdin is not None
        async with outgoing:
            with suppress(OSError):  # the server is gone, which the reader reports
                async for message in outgoing:
                    process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                    process.stdin.write(b"\n")
                    await process.stdin.drain()

    async def _drain_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(_READ_BYTES):
            self._stderr.append(data[-_STDERR_BYTES:])
            while len(self._stderr) > 1 and sum(map(len, self._stderr)) - len(self._stderr[0]) >= _STDERR_BYTES:
                self._stderr.popleft()


def _directory(config: StdioServer) -> Path | None:
    return None if config.cwd is None else Path(expand_variables(config.cwd)).expanduser()


def _executable(command: str, directory: Path | None, environment: Mapping[str, str]) -> str:
    """The program to execute; `ServerFailure` if there is none. A path is relative to the server's directory."""
    if directory is not None and not directory.is_dir():
        raise ServerFailure(f"the directory {str(directory)!r} does not exist")
    if os.sep in command:
        path = Path(directory or Path.cwd(), Path(command).expanduser())
        command = str(path)
    executable = shutil.which(command, path=environment["PATH"])
    if executable is None:
        raise ServerFailure(f"the command {command!r} was not found")
    return executable


async def _wait_for_exit(process: asyncio.subprocess.Process) -> None:
    """Wait for the process alone: `wait` also waits until its pipes are closed, which a descendant may hold."""
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event for this alone
        await asyncio.sleep(0.01)


def _message(line: bytes) -> SessionMessage | None:
    """The message in a line; None if there is none. Lines without content are allowed."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


# -- a server at a URL
#
# Streamable HTTP, with headers, sign-in and a limit on bodies.

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # a private name for a pair of streams


# The limit of an answer that is not a stream. The SDK limits each event of a stream itself.
_MAX_BODY_BYTES = 16_000_000
_PIECE_BYTES = 65_536
"""How much is unpacked at once."""
_SESSION_HEADER = "mcp-session-id"
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)  # a server may hold a stream open without sending anything


class HttpTransport:
    """The connection to one URL. `transport` is entered once."""

    stderr = ""
    failure: str | None = None

    def __init__(self, config: HttpServer, auth: httpx2.Auth | None, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the transport has ended."""
        self._headers = {name: expand_variables(value) for name, value in config.headers.items()}
        self.secrets = {**self._headers, **secrets_in([*config.headers.values(), config.url])}
        self._url = expand_variables(config.url)
        self._auth = auth
        self._on_end = on_end

    @asynccontextmanager
    async def transport(self) -> AsyncIterator["TransportStreams"]:
        """The streams of messages, until the context is left."""
        client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "gzip", **self._headers},
            timeout=_TIMEOUT,
            auth=self._auth,
            event_hooks={"response": [self._check]},
        )
        try:
            async with client, streamable_http_client(self._url, http_client=client) as streams:
                yield streams
        finally:
            self._on_end()

    async def _check(self, response: httpx2.Response) -> None:
        """Refuse an answer that asks for credentials if there are none, and limit the size of any other."""
        if response.status_code == 401 and self._auth is None:
            raise ServerFailure(NEEDS_SIGN_IN)
        if response.status_code == 404 and _SESSION_HEADER in response.request.headers:
            self.failure = SESSION_EXPIRED
            self._on_end()
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _unpack(response, response.stream)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedBody(response.stream)


def _unpack(response: httpx2.Response, body: httpx2.AsyncByteStream) -> httpx2.AsyncByteStream:
    """The body without its compression. The client would unpack each piece as a whole, so that a few kilobytes could
    become gigabytes before anything is counted; this way, limits apply to what was unpacked."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ServerFailure(f"it sent an answer in an encoding that was not requested ({encoding!r})")
    del response.headers["content-encoding"]
    return _UnpackedBody(body)


class _UnpackedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib
        try:
            async for packed in self._body:
                while packed and not unpacker.eof:
                    yield unpacker.decompress(packed, _PIECE_BYTES)
                    packed = unpacker.unconsumed_tail
        except zlib.error:
            raise ServerFailure("it sent an answer that cannot be unpacked") from None
        if not unpacker.eof:
            raise ServerFailure("it sent an answer whose compressed data is cut off")

    async def aclose(self) -> None:
        await self._body.aclose()


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = _MAX_BODY_BYTES
        async for data in self._body:
            remaining -= len(data)
            if remaining < 0:
                raise ServerFailure(f"it sent an answer of more than {_MAX_BODY_BYTES:,} bytes")
            yield data

    async def aclose(self) -> None:
        await self._body.aclose()
