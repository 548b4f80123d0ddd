"""Several gateways behind one port share keys, budgets and sessions."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bartack.nouns.messages import Message
from bartack.store import open_store
from bartack.testing import ExpectedOutcome, Scenario, fault_server
from bartack.testing.faults import EVENT_WRITERS
from bartack_server.gateway.keys import Budget
from tests.gateway.serving import LIMIT_S, stored_key
from tests.gateway.test_command import COMMAND, environment
from tests.store import postgres_server

CHAT = "openai-chat"
ANSWER = "One."


@asynccontextmanager
async def gateway_on(port: str, address: str, upstream_url: str, folder: Path) -> AsyncIterator[tuple[Any, str]]:
    """A gateway in a process of its own, and its URL."""
    words = ["--to", "openai-compatible:m", "--port", port, "--reuse-port", "--store", address]
    env = environment(folder) | {"OPENAI_COMPATIBLE_BASE_URL": upstream_url, "OPENAI_COMPATIBLE_API_KEY": "-"}
    process = await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip().removeprefix("Listening on ")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_processes_behind_one_port_share_keys_budgets_and_sessions(kind: str, tmp_path: Path) -> None:
    address = postgres_server.address(str(tmp_path)) if kind == "postgres" else str(tmp_path / "sessions.db")
    events = EVENT_WRITERS[CHAT]
    steps = (events.start() + events.text(ANSWER) + events.finish("stop"),)
    scenario = Scenario(name="-", format=CHAT, steps=steps, outcome=ExpectedOutcome(end="done"))
    store = await open_store(address)
    async with (
        asyncio.timeout(LIMIT_S),
        fault_server(scenario) as upstream,
        AsyncExitStack() as processes,
        # Each request has a connection of its own, which any of the processes may accept.
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http,
    ):
        first, url = await processes.enter_async_context(gateway_on("0", address, upstream.base_url, tmp_path))
        port = url.rpartition(":")[2]
        for _ in range(2):
            await processes.enter_async_context(gateway_on(port, address, upstream.base_url, tmp_path))
        secret = await stored_key(store, name="poor", day=Budget(tokens=5000))
        turns_secret = await stored_key(store, name="turns")

        async def post(key: str, *texts: str) -> int:
            messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
            body = {"model": "m", "messages": messages, "stream": True, "max_tokens": 1000}
            async with http.post(f"{url}/v1/chat/completions", json=body, headers={"x-api-key": key}) as response:
                await response.read()
                return response.status

        for key in (secret, turns_secret):
            known = 0
            while known < 10:  # in a row: every process knows the key
                async with http.get(f"{url}/v1/models", headers={"x-api-key": key}) as response:
                    known = known + 1 if response.status == 200 else 0
        statuses = await asyncio.gather(*(post(secret, f"question {number}") for number in range(20)))
        # Each reserves its limit and a few tokens of input: four fit, and a later one once an earlier one has settled.
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 4

        texts: list[str] = []
        for number in range(6):
            texts.append(f"turn {number}")
            assert await post(turns_secret, *texts) == 200
            texts.append(ANSWER)
            if number == 3:
                first.terminate()
                assert await first.wait() == 0
        while True:
            infos = [info for info in (await store.sessions()).items if info.title == "turn 0"]
            if len(infos) == 1 and infos[0].entries >= len(texts) + 1:
                break
            await asyncio.sleep(0.02)
        assert len(await store.heads(infos[0].id)) == 1
        branch = [entry.fact for entry in await store.load(infos[0].id)]
    assert [fact.text for fact in branch if isinstance(fact, Message)] == texts
    await store.close()
