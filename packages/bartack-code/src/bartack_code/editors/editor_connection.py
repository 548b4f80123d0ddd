"""The connection to an editor: JSON-RPC on stdin and stdout, one message per line.

A line that is not a message gets an error, as JSON-RPC requires, and the connection stays open: a fault of an editor
must not end the runs of its other sessions.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from acp.core import AgentSideConnection
from acp.stdio import stdio_streams

from bartack.nouns.json_values import MAX_DEPTH, is_within
from bartack_code.editors.acp_server import EditorAgent

__all__ = ["serve_editor"]

_MAX_BYTES = 50 * 1024 * 1024  # limit of one message; a prompt may contain images
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600

Json = dict[str, Any]


async def serve_editor(agent: EditorAgent) -> None:
    """Serve the editor at stdin and stdout until it closes them."""
    async with _protocol_streams() as (reader, writer):
        served: Any = agent  # the methods take the parameters that they need, and ignore the others
        messages = _EditorTransport(reader, writer)
        connection = AgentSideConnection(served, messages, listening=False, use_unstable_protocol=True)
        try:
            await connection.listen()
        finally:
            await asyncio.shield(connection.close())
            await agent.close()


class _EditorTransport:
    """The transport that the library reads from and writes to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()

    async def send(self, message: Json) -> None:
        async with self._writing:
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()

    async def receive(self) -> Json | None:
        """The next message; None at the end."""
        while True:
            line = await self._line()
            if line == b"":
                return None
            if line is None:
                await self._refuse(_INVALID_REQUEST, f"The message is larger than {_MAX_BYTES:,} bytes.")
                continue
            if not line.strip():
                continue
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                await self._refuse(_PARSE_ERROR, f"The message is not valid JSON: {error}", _leniently(line))
                continue
            if not _is_message(message):
                await self._refuse(_INVALID_REQUEST, "This is not a JSON-RPC message.", message)
                continue
            return message  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing is held back."""

    async def _line(self) -> bytes | None:
        """The next line; empty at the end, and None for one that is too long."""
        is_too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
                return None if is_too_long else line
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                is_too_long = True
            except asyncio.IncompleteReadError as error:
                return b"" if is_too_long else error.partial

    async def _refuse(self, code: int, text: str, message: Any = None) -> None:
        """Answer what cannot be dealt with, by its id if it has one, because the editor waits for that."""
        id = message.get("id") if isinstance(message, dict) else None
        id = id if isinstance(id, int | str) else None
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})


def _leniently(line: bytes) -> Any:
    """What Python makes of a line that is not strictly JSON, such as half of a surrogate pair in a text."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_message(message: Any) -> bool:
    """Whether this is a request, a notification or a response that can be dealt with."""
    if not isinstance(message, dict) or not is_within(message, MAX_DEPTH):
        return False
    if not isinstance(message.get("id"), int | str | None) or not isinstance(message.get("error", {}), dict):
        return False
    return isinstance(message["method"], str) if "method" in message else "id" in message


@asynccontextmanager
async def _protocol_streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Stdin and stdout, for the protocol alone: what anything else prints to stdout goes to stderr."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    printed: Any = sys.stdout
    sys.stdout = own  # `stdio_streams` takes it from there
    try:
        reader, writer = await stdio_streams(limit=_MAX_BYTES)
    finally:
        sys.stdout = printed
    yield reader, writer
