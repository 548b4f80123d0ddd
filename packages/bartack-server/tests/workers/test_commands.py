"""`bartack worker`, `bartack workers` and `bartack run --detach`, as processes on one store."""

import asyncio
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bartack.app.agent_setup import load_agents
from bartack.nouns.errors import PartValidationError
from bartack.queues import StoreQueue
from bartack.queues.state import WorkerLeft
from bartack.store import open_store
from bartack_code.run.detached import next_at
from tests.agent.kit import messages, within
from tests.queues.kit import worker as worker_info

AGENTS = """
from bartack import Agent, ScriptedModel, ToolCall, assistant, tool

@tool(requires_approval=True)
async def pay(amount: int) -> str:
    '''Pay.'''
    return f"paid {amount}"

def answer(history):
    last = history[-1]
    return "Paid." if last.role == "tool" else assistant(ToolCall("c1", "pay", {"amount": 5}))

agents = [Agent(ScriptedModel([answer] * 9), tools=[pay], name="bartack")]
twice = [*agents, *agents]
by_name = {"other": agents[0]}
nothing = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_agents.py").write_text(AGENTS)
    return tmp_path


async def start(folder: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bartack.cli", *words),
        env=os.environ | {"BARTACK_STORE": f"sqlite:{folder / 'q.db'}"},
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def bartack(folder: Path, *words: str) -> tuple[int, str, str]:
    process = await start(folder, *words)
    out, err = await within(process.communicate())
    return process.returncode or 0, out.decode(), err.decode()


async def workers(folder: Path) -> dict[str, Any]:
    status, out, err = await bartack(folder, "workers", "--json")
    assert status == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


async def test_a_detached_run_pauses_for_approval_and_is_continued_by_the_worker(folder: Path) -> None:
    status, out, err = await bartack(folder, "run", "--detach", "Pay 5", "--session", "s")
    assert (status, out) == (0, "s\n"), err
    assert err == "queued; follow it with: bartack show s\n"  # BARTACK_STORE names the store
    assert (await workers(folder))["waiting"] == 1
    worker = await start(folder, "worker", "--agents", "my_agents:agents")
    try:
        while (report := await workers(folder))["outcomes"] != {"paused": 1}:
            assert worker.returncode is None
        assert [worker_row["agents"] for worker_row in report["workers"]] == [["bartack"]]
        _, shown, _ = await bartack(folder, "sessions", "show", "s", "--json")
        (question,) = json.loads(shown)["questions"]
        status, _, err = await bartack(folder, "sessions", "approve", "s", "--question", question["questionDigest"])
        assert status == 0, err
        while (await workers(folder))["outcomes"] != {"paused": 1, "completed": 1}:
            assert worker.returncode is None
        worker.send_signal(signal.SIGTERM)
        _, notes = await within(worker.communicate())
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    assert (worker.returncode, b"worked on 2 runs" in notes) == (0, True), notes
    assert (await workers(folder))["workers"] == []
    store = await open_store(f"sqlite:{folder / 'q.db'}")
    assert [message.text for message in await messages(store, "s")][-1] == "Paid."
    await store.close()
    status, out, err = await bartack(folder, "workers", "--cancel", "s")
    assert (status, out, "has no queued or live run" in err) == (0, "", True)


async def test_agents_are_loaded_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert list(load_agents("my_agents:agents")) == ["bartack"]
    assert list(load_agents("my_agents:by_name")) == ["other"]
    for name, problem in {
        "my_agents": "module:name",
        "my_agents:unknown": "no attribute",
        "no_such_module:x": "no module",
        "my_agents:twice": "same name",
        "my_agents:nothing": "got int",
    }.items():
        with pytest.raises(PartValidationError, match=problem):
            load_agents(name)
    sys.modules.pop("my_agents")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("run --detach Hi --store memory:", "A store in memory cannot be shared with a worker."),
        ("worker --agents my_agents:agents --store memory:", "A store in memory cannot be shared with a worker."),
        ("serve --model local --workers --port 0 --store memory:", "A store in memory cannot be shared with a worker."),
        ("serve --model local --workers --port 0 --engine dbos", "The engine dbos needs a PostgreSQL store"),
        ("run --detach Hi --session s --engine dbos", "The engine dbos needs a PostgreSQL store"),
        ("worker --agents my_agents:agents --engine dbos", "The engine dbos needs a PostgreSQL store"),
    ],
)
async def test_a_store_that_workers_cannot_use_is_an_error_in_one_line(folder: Path, words: str, problem: str) -> None:
    status, _, err = await bartack(folder, *words.split())
    assert status != 0
    assert err.startswith(f"bartack: {problem}")
    assert len(err.splitlines()) == 2  # the error and a hint


@pytest.mark.parametrize(
    ("current", "time_of_day", "expected"),
    [
        ("2026-03-28T22:00+00:00", "1900-01-01T09:00", "2026-03-29T07:00+00:00"),  # the clock changes in that night
        ("2026-03-28T22:00+00:00", "1900-01-01T23:30", "2026-03-28T22:30+00:00"),
        ("2026-03-28T22:00+00:00", "2026-10-25T09:00", "2026-10-25T08:00+00:00"),
    ],
)
def test_a_time_of_day_is_the_next_one_by_the_clock_on_the_wall(
    monkeypatch: pytest.MonkeyPatch, current: str, time_of_day: str, expected: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        scheduled = next_at(datetime.fromisoformat(time_of_day), datetime.fromisoformat(current))
        assert scheduled is not None
        assert scheduled.astimezone(UTC) == datetime.fromisoformat(expected)
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_runs_that_were_set_aside_are_listed_with_the_reason_and_retried(folder: Path) -> None:
    assert (await bartack(folder, "run", "--detach", "--session", "s", "--quiet", "Pay"))[0] == 0
    store = await open_store(f"sqlite:{folder / 'q.db'}")
    queue, own = StoreQueue(store, max_deaths=1), worker_info("w", "bartack")
    await queue.heartbeat(own)
    assert await queue.claim(own, 1.0) is not None
    await queue._append(
        lambda state: WorkerLeft(worker="w", at=queue._now(), is_lost=True, max_deaths=1) if state.workers else None
    )
    status, out, err = await bartack(folder, "workers", "failed")
    assert (status, "1 run set aside" in err) == (0, True)
    assert "1 worker died while running it, the last one was process 1 on h" in out
    assert (await workers(folder))["stuck"][0]["problem"].startswith("1 worker died")
    assert (
        "no run of session other was set aside" in (await bartack(folder, "workers", "failed", "--retry", "other"))[2]
    )
    assert "queued again" in (await bartack(folder, "workers", "failed", "--retry", "s"))[2]
    assert ((await workers(folder))["stuck"], (await workers(folder))["waiting"]) == ([], 1)
    assert await queue.retry("s") == ()
    await store.close()
