"""A worker on another machine whose network is cut while it is in a model call and in a tool."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bartack import ScriptedModel
from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.nouns.entries import Entry, RunEnded, RunStarted, ToolStarted
from bartack.nouns.errors import NotFound
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from lab.chaos_report import pid_of, problems_of
from tests.agent.kit import within
from tests.workers.network import linked_server

SILENCE_S = 11.0  # longer than a lease, and than a connection is kept on which nothing is acknowledged


async def until(holds: Callable[..., Awaitable[bool]], *arguments: Any) -> None:
    async with asyncio.timeout(240):
        while not await holds(*arguments):  # noqa: ASYNC110 - it changes in the store
            await asyncio.sleep(0.05)


async def entries_of(store: SessionStore, session: str) -> tuple[Entry, ...]:
    try:
        return tuple(await store.entries(session))
    except NotFound:
        return ()


async def has(store: SessionStore, session: str, kind: type[Any], count: int = 1) -> bool:
    return sum(isinstance(entry.fact, kind) for entry in await entries_of(store, session)) >= count


async def test_a_worker_that_is_cut_off_does_no_harm_and_works_on_afterwards(tmp_path: Path) -> None:
    engine = "dbos" if find_spec("dbos") else "store"  # connections of both drivers fall silent with DBOS
    log = tmp_path / "tools"
    environment = {**os.environ, "BARTACK_CHAOS_LOG": str(log), "BARTACK_CHAOS_STEP_S": "2"}
    with linked_server() as (link, cluster):
        async with AsyncExitStack() as stack:
            store = await open_store(cluster.url)
            stack.push_async_callback(store.close)
            address = StoreAddress.parse(cluster.url)
            queue = await stack.enter_async_context(opened_queue(address, store, engine=engine))
            agent = Agent(ScriptedModel([]), store=store, name="bartack")

            async def started(host: str, *prefix: str) -> asyncio.subprocess.Process:
                words = ("worker", "--agents", "lab.chaos_agents:agents", "--engine", engine, "--drain", "1")
                command = (*prefix, sys.executable, "-m", "bartack.cli", *words)
                url = cluster.url.replace("127.0.0.1", host)
                process = await asyncio.create_subprocess_exec(
                    *command, "--store", url, env=environment, stdout=-3, stderr=-3
                )
                stack.push_async_callback(process.wait)
                stack.callback(_kill, process)
                return process

            async def are_workers(*pids: int) -> bool:
                return {worker.pid for worker in (await queue.status()).workers} == set(pids)

            far = await started(link.address, *link.on_other_machine())
            await until(are_workers, far.pid)
            for session in ("tool", "model"):
                await agent.submit("order", session=session, queue=queue)
                await until(has, store, "tool", ToolStarted)
            await until(has, store, "model", RunStarted)
            link.cut()
            near = await started("127.0.0.1")
            await asyncio.sleep(SILENCE_S)
            for session in ("tool", "model"):
                await until(has, store, session, RunStarted, 2)
            await until(are_workers, near.pid)
            link.restore()
            await until(are_workers, near.pid, far.pid)
            for session in ("tool", "model"):
                await until(has, store, session, RunEnded)
            near.send_signal(signal.SIGTERM)
            await within(near.wait())
            await agent.submit("order", session="afterwards", queue=queue)
            await until(has, store, "afterwards", RunEnded)
            for session in ("tool", "model", "afterwards"):
                entries = await entries_of(store, session)
                assert list(problems_of(session, entries)) == []
                assert pid_of(entries[-2]) == (far.pid if session == "afterwards" else near.pid)
    calls = Counter(tuple(line.split()[:2]) for line in log.read_text(encoding="utf-8").splitlines())
    assert set(calls.values()) == {1}


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
