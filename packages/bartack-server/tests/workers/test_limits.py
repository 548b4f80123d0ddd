"""Limits that several real worker processes share."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bartack import ScriptedModel
from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.nouns.entries import RunEnded, RunStarted
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from tests.agent.kit import within
from tests.store import postgres_server

PROCESSES = {"store": 3, "dbos": 2}  # processes with DBOS start slowly
RUNS, AT_ONCE, STARTS = 9, 2, 6


async def spans(store: SessionStore) -> list[tuple[float, float]]:
    """When each run began and ended."""
    run_spans = []
    for number in range(RUNS):
        times: dict[type, float] = {}
        for entry in await store.entries(f"s{number}"):
            times.setdefault(type(entry.fact), entry.timestamp.timestamp())
        if RunStarted in times:
            run_spans.append((times[RunStarted], times.get(RunEnded, float("inf"))))
    return run_spans


@pytest.mark.parametrize("engine", PROCESSES)
async def test_no_limit_is_exceeded_however_many_workers_there_are(engine: str, tmp_path: Path) -> None:
    address = postgres_server.address(str(tmp_path))
    environment = {**os.environ, "BARTACK_CHAOS_STEP_S": "0.05"}
    words = ("worker", "--agents", "lab.chaos_agents:agents", "--store", address, "--engine", engine)
    limits = ("--limit", f"user={AT_ONCE}", "--limit", f"provider:scripted={STARTS}/3600", "--limit", "model=4")
    async with AsyncExitStack() as stack:
        store = await open_store(address)
        stack.push_async_callback(store.close)
        queue = await stack.enter_async_context(opened_queue(StoreAddress.parse(address), store, engine=engine))
        agent = Agent(ScriptedModel([]), store=store, name="bartack")
        for number in range(RUNS):
            await agent.submit("order", session=f"s{number}", queue=queue, user="u")
        for _ in range(PROCESSES[engine]):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bartack.cli", *words, *limits), env=environment, stdout=-3, stderr=-3
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        await within(_ended(store))
        await asyncio.sleep(1.5)  # one that should not start would do so by then
        run_spans = await spans(store)
    assert len(run_spans) == STARTS
    assert max(sum(start <= instant < ended for start, ended in run_spans) for instant, _ in run_spans) <= AT_ONCE


async def _ended(store: SessionStore) -> None:
    while sum(ended < float("inf") for _, ended in await spans(store)) < STARTS:  # noqa: ASYNC110 - in the store
        await asyncio.sleep(0.2)
