"""The application inside another one: under a path, and on a server that knows nothing about live streams."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from bartack import MemoryStore
from bartack_server.web import app
from lab.repository import import_path
from tests.web.agents import Gate, new_agent
from tests.web.serving import LIMIT_S, Client, is_entry, served

SCRIPT = Path(__file__).with_name("mounted_script.py")


@pytest.mark.parametrize("has_lifespan", [True, False])
async def test_live_streams_of_a_mounted_application_arrive_piece_by_piece(gate: Gate, has_lifespan: bool) -> None:
    inner = app(new_agent(gate), store=MemoryStore())
    lifespan = {"lifespan": inner.lifespan} if has_lifespan else {}
    outer = Starlette(routes=[Mount("/deep/agents", inner)], **lifespan)  # type: ignore[arg-type]
    async with served(outer) as plain, Client(f"{plain.url}/deep/agents", inner.token) as client:
        await client.post("/sessions/s/runs", text="slow walk")
        async with client.events("s") as stream:
            await stream.until(lambda event: event.event in ("deltas", "reset"))  # before the answer is complete
            gate.open()
            await stream.until(is_entry("run_ended"))
        inner.service.closing.set()
    await inner.service.close()


async def test_it_is_mounted_in_fastapi_beside_other_routes(gate: Gate) -> None:
    fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    inner = app(new_agent(gate), store=MemoryStore())
    outer = fastapi.FastAPI(lifespan=inner.lifespan)

    async def marked(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["x-outer"] = "yes"
        return response

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    outer.middleware("http")(marked)
    outer.add_middleware(GZipMiddleware)
    outer.get("/team/health")(health)
    outer.mount("/team/agents", inner)
    async with served(outer) as plain, Client(f"{plain.url}/team/agents", inner.token) as client:
        assert (await plain.send("GET", "/team/health"))[:2] == (200, {"status": "ok"})
        status, page, headers = await client.send("GET", "/")
        assert (status, headers["x-outer"], b"bartack-app" in page) == (200, "yes", True)
        assert (await plain.send("GET", "/team/agents/api/me"))[0] == 401
        assert (await client.send("GET", "/api/nothing"))[1]["error"]["code"] == "not_found"
        assert "/api/sessions" in (await client.get("/openapi.json"))["paths"]
        message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "slow walk"}]}
        body = {"id": "s", "messages": [message]}
        async with client._http.post(f"{client.url}/api/ai-sdk/v6/chat", json=body) as response:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            await response.content.readuntil(b'"type":"text-delta"')  # before the answer is complete
            gate.open()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        async with client.events("s") as stream:
            await stream.until(is_entry("run_ended"))
        while inner.service.hub.viewers("s"):  # noqa: ASYNC110 - until the server has noticed who left
            await asyncio.sleep(0.01)


async def test_a_server_with_open_streams_stops_when_it_is_asked_to(gate: Gate) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path()}
    words = (sys.executable, str(SCRIPT), str(gate.path))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with Client(f"http://127.0.0.1:{port}/agents", "t" * 32) as client:
            await client.post("/sessions/s/runs", text="slow walk")
            async with client.events("s") as stream:
                await stream.until(lambda event: event.event in ("deltas", "reset"))
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(LIMIT_S):
                    async for _ in stream:  # it ends
                        pass
                    await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
