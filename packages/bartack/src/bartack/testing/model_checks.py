"""`check_stream` and `check_fault`: call a model as an agent would, and raise `AssertionError` for what is wrong."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing, nullcontext, suppress
from typing import Any

from msgspec import Struct

from bartack.models.model import Model
from bartack.nouns.config import ToolSpec
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.errors import StreamError
from bartack.nouns.messages import Message, user
from bartack.nouns.requests import RequestMetadata
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import Contract
from bartack.testing.faults import ExpectedOutcome, Reset, Scenario, Stall

__all__ = ["FaultServer", "ReceivedRequest", "StreamResult", "check_fault", "check_stream", "fault_server"]

# -- the server
#
# A small HTTP server on the loopback address that sends exactly the bytes of a scenario, and fails as it does.
#
# It uses asyncio streams, because web servers prevent the faults that are needed here.

_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 500: "Internal Server Error"}


class ReceivedRequest(Struct, frozen=True):
    """A request that the server received. Header names are in lower case."""

    target: str
    headers: Mapping[str, str]
    body: bytes


class FaultServer:
    """Plays the scenario for every request."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the scenario or the client closes it."""
        self.connections += 1
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):  # the client disconnected
            while await self._exchange(reader, writer):
                pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(ReceivedRequest(first.split(" ")[1], headers, body))
        return await self._answer(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        scenario = self.scenario
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **scenario.headers}
        lines = [f"HTTP/1.1 {scenario.status} {_PHRASES.get(scenario.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for step in scenario.steps:
            match step:
                case bytes():
                    writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                    await writer.drain()
                    await asyncio.sleep(0)
                case Stall(seconds=seconds):
                    await asyncio.sleep(seconds)
                case Reset():
                    await asyncio.sleep(0.05)  # let the data arrive first
                    _reset(writer)
                    return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: a linger time of zero discards unsent data."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def fault_server(scenario: Scenario) -> AsyncIterator[FaultServer]:
    """A server that runs inside the context."""
    fault = FaultServer(scenario)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(fault.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    fault.base_url = f"http://{host}:{port}"
    try:
        yield fault
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_TOOLS = tuple(
    ToolSpec(name, {"type": "object", "properties": {"city": {"type": "string"}}}, description="Look at a city.")
    for name in ("look", "see")
)


class StreamResult(Struct, frozen=True, kw_only=True):
    """All deltas of one stream, and the message or the error at its end."""

    deltas: tuple[MessageDelta, ...]
    message: Message | None = None
    error: Failed | None = None


async def check_stream(
    model: Model, messages: Sequence[Message] = (user("Hello"),), *, tool_specs: Sequence[ToolSpec] = (), **options: Any
) -> StreamResult:
    """Call a model once and check every delta against the contract. `options` are passed to `stream`."""
    metadata = options.pop("request_metadata", None) or RequestMetadata(run_id="checked-run")
    contract, assembler = Contract(metadata.run_id), MessageAssembler(metadata.run_id)
    deltas: list[MessageDelta] = []
    stream = model.stream(messages, tool_specs, request_metadata=metadata, **options)
    async with _closing(stream):
        async for delta in stream:
            try:
                contract.admit(delta)
            except StreamError as error:
                raise AssertionError(f"delta {len(deltas)}: {error}") from error
            assert not deltas or deltas[-1].timestamp <= delta.timestamp, f"delta {len(deltas)}: timestamp decreased"
            deltas.append(delta)
            assembler.consume(delta)
    assert contract.ended, f"the stream stopped after {len(deltas)} deltas without done or error"
    failed = assembler.get_error()
    message = assembler.build_final_message() if failed is None else None
    return StreamResult(deltas=tuple(deltas), message=message, error=failed)


async def check_fault(scenario: Scenario, make_model: Callable[[str], Model]) -> StreamResult:
    """Connect a model to a server that plays the scenario, and check the outcome. `make_model` gets the base URL."""
    async with fault_server(scenario) as server:
        model = make_model(server.base_url)
        try:
            result = await check_stream(model, tool_specs=_TOOLS)
        finally:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
    assert server.requests, f"{scenario}: the model sent no request"
    if scenario.outcome.end == "error":
        _check_error(scenario, scenario.outcome, result)
    else:
        _check_message(scenario, scenario.outcome, result)
    return result


def _closing(stream: Any) -> AbstractAsyncContextManager[Any]:
    return aclosing(stream) if hasattr(stream, "aclose") else nullcontext(stream)


def _check_error(scenario: Scenario, expected: ExpectedOutcome, result: StreamResult) -> None:
    error = result.error
    assert error is not None, f"{scenario}: expected an error, got a complete message: {result.message}"
    assert error.error_code in expected.codes, f"{scenario}: expected {set(expected.codes)}, got {error}"
    if expected.retryable is not None:
        assert error.retryable is expected.retryable, f"{scenario}: got retryable={error.retryable}"
    if expected.retry_after_ms is not None:
        assert error.retry_after_ms == expected.retry_after_ms, f"{scenario}: got retry_after_ms={error.retry_after_ms}"


def _check_message(scenario: Scenario, expected: ExpectedOutcome, result: StreamResult) -> None:
    message = result.message
    assert message is not None, f"{scenario}: expected a message, got {result.error}"
    meta = message.meta
    assert meta is not None
    assert meta.finish_reason == expected.finish_reason, f"{scenario}: got finish_reason={meta.finish_reason}"
    bad = meta.bad_args or {}
    if expected.finish_reason != "length":  # the calls of a message cut off by its length never run
        runnable = tuple(call.arguments for call in message.tool_calls if call.tool_call_id not in bad)
        assert runnable == expected.runnable, f"{scenario}: expected the calls {expected.runnable}, got {runnable}"
        assert len(bad) == expected.bad_args, f"{scenario}: expected {expected.bad_args} bad_args, got {bad}"
    if expected.text is not None:
        assert message.text == expected.text, f"{scenario}: expected the text {expected.text!r}, got {message.text!r}"
