"""Servers for tests: in this process for most of them, in processes of their own for those that are killed."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import uvicorn

from bartack_server.web import WebApp
from bartack_server.web.access import TokenAccess
from bartack_server.web.connections import ConnectionLimits, LimitedProtocol, LimitedState
from lab.repository import import_path
from tests.web.agents import Gate

SCRIPT = Path(__file__).with_name("serve_script.py")
LIMIT_S = 600.0  # seconds; only a hang takes this long


class Client:
    """A client with a token."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.url, self.token = url, token
        self._http = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=LIMIT_S))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def send(self, method: str, path: str, **options: Any) -> tuple[int, Any, Mapping[str, str]]:
        """The status, the JSON or text, and the headers of a response."""
        async with self._http.request(method, self.url + path, allow_redirects=False, **options) as response:
            body = await response.read()
            is_json = response.headers.get("content-type", "").startswith("application/json")
            return response.status, json.loads(body) if is_json else body, response.headers

    async def get(self, path: str, **params: Any) -> Any:
        """The JSON of a successful response."""
        status, value, _ = await self.send("GET", f"/api{path}", params=params)
        assert status == 200, (status, value)
        return value

    async def post(self, path: str, **body: Any) -> Any:
        """The JSON of a successful response."""
        status, value, _ = await self.send("POST", f"/api{path}", json=body)
        assert status in (200, 201, 202), (status, value)
        return value

    @asynccontextmanager
    async def events(self, session: str, position: str = "", **options: Any) -> AsyncIterator["Events"]:
        """The live events of a session."""
        headers = {"last-event-id": position} if position else {}
        url = f"{self.url}/api/sessions/{session}/events"
        timeout = aiohttp.ClientTimeout(sock_read=LIMIT_S)
        async with self._http.get(url, headers=headers, params=options, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


@dataclass
class Event:
    """One server-sent event."""

    id: str
    event: str
    data: Any


class Events:
    """Reads server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        fields: dict[str, str] = {}
        async for line in self._response.content:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                return Event(fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"]))
            else:
                fields = {}
        raise StopAsyncIteration

    async def until(self, is_last: Any) -> list[Event]:
        """The events up to the first for which this is true."""
        events: list[Event] = []
        async for event in self:
            events.append(event)
            if is_last(event):
                return events
        raise AssertionError(f"the stream ended after {[event.event for event in events]}")


def is_entry(kind: str) -> Any:
    """Whether an event is an entry of this kind."""
    return lambda event: event.event == "entry" and event.data["kind"] == kind


@asynccontextmanager
async def served(app: Any, token: str | None = None, limits: ConnectionLimits | None = None) -> AsyncIterator[Client]:
    """A client of the application on a real server in this process."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(
        app, lifespan="on", http=LimitedProtocol, ws="none", log_config=None, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    server.server_state = LimitedState(limits or ConnectionLimits())
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            assert not task.done(), task.result()
            await asyncio.sleep(0.005)
        has_token = token is None and isinstance(app, WebApp) and isinstance(app.access, TokenAccess)
        access_token = app.token if has_token else token
        async with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", access_token) as client:
            yield client
    finally:
        if isinstance(app, WebApp):
            app.service.closing.set()
        server.should_exit = True
        await task


@dataclass
class ServerProcess:
    """A server in a process of its own."""

    process: asyncio.subprocess.Process
    url: str
    token: str
    code: str
    lines: list[str] = field(default_factory=list)

    def client(self) -> Client:
        return Client(self.url, self.token)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """The exit status, once it has ended."""
        async with asyncio.timeout(LIMIT_S):
            return await self.process.wait()


@asynccontextmanager
async def server_process(
    store: str, gate: Gate, *, port: int = 0, drain_s: float = 30.0
) -> AsyncIterator[ServerProcess]:
    """A server on this store; killed at the end if it is still there."""
    words = [sys.executable, str(SCRIPT), store, str(gate.path), str(port), str(drain_s)]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            line = await process.stdout.readline()
        assert line, "the server did not start"
        yield ServerProcess(process, **json.loads(line))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
