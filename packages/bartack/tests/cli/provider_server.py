"""A scripted provider on the loopback address, in the streaming chat format of OpenAI.

Reach it with ``-m openai-compatible:test`` and ``OPENAI_COMPATIBLE_BASE_URL`` set to its `base_url`.

A script is a list of answers, one for each request in turn; the last one is repeated for all later requests. An answer
is a list of steps:

- ``"a text"``: a piece of the answer's text;
- ``{"pause": 0.5}``: a pause in seconds; ``{"pause": null}``: until the client disconnects;
- ``{"think": "a text"}``: a piece of reasoning;
- ``{"call": "read_file", "arguments": {"path": "x"}}``: a tool call, its arguments in three pieces;
- ``{"finish": "length"}``: the finish reason, where it is not ``stop`` or ``tool_calls``;
- ``{"status": 401, "error": "no such key", "headers": {...}}``: an error instead of a stream, as the only step;
- ``{"cut": true}``: the connection is closed here.

In a test::

    with provider([["Hel", "lo"]]) as server:
        ...
    assert server.requests[0]["messages"][-1]["content"] == "hi"

From a shell: ``python -m tests.cli.provider_server SCRIPT.json PORTFILE``. SCRIPT.json contains the script; the port is
written to PORTFILE once the server listens, and each request is appended to ``PORTFILE.requests`` as a line of JSON.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

__all__ = ["ProviderServer", "Script", "Step", "provider"]

Step = str | dict[str, Any]
Script = Sequence[Sequence[Step]]


class ProviderServer:
    """Answers by a script and records the requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []  # the bodies
        self.headers: list[dict[str, str]] = []  # one item per request
        self.port = 0
        self.record: Path | None = None  # a file to append each body to
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """The value for OPENAI_COMPATIBLE_BASE_URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=100_000_000)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        steps = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        if self.record is not None:
            with self.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(body) + "\n")
        first = steps[0] if steps else ""
        if isinstance(first, dict) and "status" in first:
            error = {"error": {"message": first.get("error", "error")}}
            return web.json_response(error, status=first["status"], headers=first.get("headers"))
        return await self._stream(request, steps)

    async def _stream(self, request: web.Request, steps: Sequence[Step]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        finish, calls = "stop", 0
        await response.write(_chunk({"role": "assistant", "content": ""}))
        for step in steps:
            match step:
                case str():
                    await response.write(_chunk({"content": step}))
                case {"pause": seconds}:
                    await asyncio.sleep(3600 if seconds is None else seconds)
                case {"think": text}:
                    await response.write(_chunk({"reasoning_content": text}))
                case {"call": name, "arguments": arguments}:
                    finish = "tool_calls"
                    for delta in _call(name, arguments, calls, len(self.requests)):
                        await response.write(_chunk(delta))
                    calls += 1
                case {"finish": reason}:
                    finish = reason
                case {"cut": True}:
                    if request.transport is not None:
                        request.transport.abort()
                    return response
                case _:
                    raise ValueError(f"unknown step: {step!r}")
        await response.write(_chunk({}, finish_reason=finish))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        await response.write(_event({**_FRAME, "choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


_FRAME = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test"}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return _event({**_FRAME, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _call(name: str, arguments: dict[str, Any], index: int, request: int) -> Iterator[dict[str, Any]]:
    text = json.dumps(arguments)
    third = len(text) // 3
    head = {"index": index, "id": f"call_{request}_{index}", "type": "function"}
    yield {"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}
    for piece in (text[:third], text[third : 2 * third], text[2 * third :]):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


@contextmanager
def provider(script: Script) -> Iterator[ProviderServer]:
    """A server in its own thread."""
    server = ProviderServer(script)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(300)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(300)
        loop.close()


async def _serve(script: Script, port_file: Path) -> None:
    server = ProviderServer(script)
    server.record = port_file.with_name(f"{port_file.name}.requests")
    await server.start()
    draft = port_file.with_name(f"{port_file.name}.new")
    draft.write_text(str(server.port), encoding="utf-8")
    draft.replace(port_file)  # atomically, so that a reader sees the whole port
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])))
    except KeyboardInterrupt:
        pass
