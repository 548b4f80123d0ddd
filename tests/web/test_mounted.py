"""The application inside another one: under a path, and on a server that knows nothing about live streams."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from bartack import MemoryStore
from bartack.web import app
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


async def test_a_server_with_open_streams_stops_when_it_is_asked_to(gate: Gate) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
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
