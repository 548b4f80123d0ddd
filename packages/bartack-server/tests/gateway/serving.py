"""A gateway on a real socket, in this process, with models that play a script or a server that fails on purpose."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn
from msgspec import Struct

from bartack import MemoryStore
from bartack.models import GuardedStream, ModelInfo, connect
from bartack.models.guard import guarded_batches
from bartack.models.model import StreamingModel
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Start, TextDelta
from bartack.nouns.errors import StoreError
from bartack.nouns.requests import ModelRequest
from bartack.store.session_store import SessionStore, Tail
from bartack.testing import ExpectedOutcome, Scenario
from bartack.testing.faults import EVENT_WRITERS
from bartack_server.gateway import GatewayApp, gateway
from bartack_server.gateway.keys import GatewayKey, add_key, digest_of, new_secret

LIMIT_S = 600.0  # only a hang takes this long


class Gateway(Struct):
    """A gateway that serves, and a key for it."""

    url: str
    key: str
    store: SessionStore
    http: aiohttp.ClientSession
    app: GatewayApp

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, bytes, Mapping[str, str]]:
        """The status, body and headers of a response."""
        headers = {"x-api-key": self.key, **options.pop("headers", {})}
        async with self.http.post(self.url + path, json=body, headers=headers, **options) as response:
            return response.status, await response.read(), response.headers

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """The status and JSON of a response."""
        headers = {"x-api-key": self.key, **options.pop("headers", {})}
        async with self.http.get(self.url + path, headers=headers, **options) as response:
            return response.status, await response.json(content_type=None)

    async def until(self, status: int, secret: str) -> None:
        """Wait until requests with this key get this status."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                if (await self.get("/v1/models", headers={"x-api-key": secret}))[0] == status:
                    return
                await asyncio.sleep(0.02)


async def stored_key(store: SessionStore, **fields: Any) -> str:
    """The secret of a new key."""
    secret = new_secret()
    environment = store.environment
    key_id = environment.new_id()
    fields = {"name": key_id, **fields}
    await add_key(store, GatewayKey(id=key_id, digest=digest_of(secret), created=environment.now(), **fields))
    return secret


@asynccontextmanager
async def serving(
    models: Mapping[str, Sequence[str | StreamingModel]] | None = None,
    *,
    store: SessionStore | None = None,
    **options: Any,
) -> AsyncIterator[Gateway]:
    """A gateway for these models."""
    store = store or MemoryStore()
    app = gateway(models, store=store, **options)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="on", ws="none", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.005)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    secret = await stored_key(store)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as http:
        try:
            yield Gateway(url, secret, store, http, app)
        finally:
            await app.drain()
            server.should_exit = True
            await task


class BrokenStore(MemoryStore):
    """A store whose disk may be full."""

    is_broken = False

    async def append(self, *arguments: Any, **options: Any) -> Tail:
        if self.is_broken:
            raise StoreError("The disk is full.")
        return await super().append(*arguments, **options)


class WaitingModel(StreamingModel):
    """A model that never finishes its answer; `closed` is set when it is stopped."""

    def __init__(self) -> None:
        super().__init__(ModelConfig("waiting"))
        self.closed = asyncio.Event()
        self.asked = asyncio.Event()

    def model_info(self) -> ModelInfo:
        return ModelInfo("test", "waiting")

    def supports(self, feature: str) -> bool:
        return True

    def respond(self, request: ModelRequest) -> GuardedStream:
        return guarded_batches(self._batches(), request.metadata, self._environment)

    async def _batches(self) -> AsyncIterator[list[Delta]]:
        self.asked.set()
        try:
            yield [Start("waiting", "r1"), TextDelta("Hello.")]
            await asyncio.Event().wait()
        finally:
            self.closed.set()


def upstream(format: str, base_url: str, **options: Any) -> StreamingModel:
    """A model of a vendor with this format, at this address."""
    vendor = {
        "anthropic-messages": "anthropic",
        "openai-chat": "openai-compatible",
        "openai-responses": "openai",
        "gemini-generate": "google",
        "ollama-chat": "ollama",
    }[format]
    return connect(f"{vendor}:m", api_key="upstream-secret-key", base_url=base_url, **options)


def answering(format: str, *steps: Any, status: int = 200, **headers: str) -> Scenario:
    """A server that answers with these bytes."""
    return Scenario(
        name="-", format=format, status=status, headers=headers, steps=steps, outcome=ExpectedOutcome(end="done")
    )


def whole_answer(format: str) -> bytes:
    """A complete answer."""
    events = EVENT_WRITERS[format]
    return events.start() + events.text("Hello.") + events.finish("stop")
