"""The metrics of workers and their queue."""

import asyncio
from typing import Any

import pytest

from bartack import Agent, ErrorCode, Failed, MemoryStore, ScriptedModel
from bartack.nouns.errors import StoreError
from bartack.queues import QueueStatus, StoreQueue
from bartack_server.workers import Worker
from tests.agent.kit import within
from tests.telemetry.kit import Recorder

QUEUE = {"bartack.queue.name": "default", "bartack.queue.engine": "store"}
JOB = {**QUEUE, "gen_ai.agent.name": "guide"}


async def work(queue: StoreQueue, store: MemoryStore, recorder: Recorder, answers: list[Any]) -> None:
    agent = Agent(ScriptedModel(answers), store=store, name="guide")
    for number in range(len(answers)):
        await agent.submit("Will it rain?", session=f"s{number}", queue=queue)
    worker = Worker(queue, {"guide": agent}, store, slots=1, telemetry=recorder.telemetry())
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while worker.done < len(answers):  # noqa: ASYNC110 - a number, not an event
            await asyncio.sleep(0.01)
    worker.stop()
    await within(working)


async def test_a_worker_reports_its_jobs_and_the_queue() -> None:
    recorder, store = Recorder(), MemoryStore()
    await work(StoreQueue(store), store, recorder, ["Rain.", Failed(ErrorCode.AUTHENTICATION, "no key")])
    metrics = recorder.metrics()
    (wait,) = metrics["bartack.job.wait"]
    assert (dict(wait.attributes), wait.count) == (JOB, 2)
    assert 0 <= wait.sum < 60
    ended = [dict(point.attributes) for point in metrics["bartack.job.duration"]]
    outcomes = [
        {"bartack.job.outcome": "completed"},
        {"bartack.job.outcome": "failed", "error.type": str(ErrorCode.AUTHENTICATION)},
    ]
    assert sorted(ended, key=len) == [{**JOB, **outcome} for outcome in outcomes]
    gauges = {name: points[0] for name, points in metrics.items() if name.startswith("bartack.queue.")}
    assert all(dict(point.attributes) == QUEUE for point in gauges.values())
    assert gauges["bartack.queue.workers"].value == 1
    assert gauges["bartack.queue.stuck"].value == 0


async def test_a_queue_that_cannot_be_read_does_not_stop_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: StoreQueue) -> QueueStatus:
        raise StoreError("The disk is away.")

    monkeypatch.setattr(StoreQueue, "status", fail)
    recorder, store = Recorder(), MemoryStore()
    await work(StoreQueue(store), store, recorder, ["Rain."])
    assert recorder.metrics().keys() >= {"bartack.job.wait", "bartack.job.duration"}
    assert "bartack.queue.workers" not in recorder.metrics()
