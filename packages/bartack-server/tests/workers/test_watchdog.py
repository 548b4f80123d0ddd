"""The watchdog: a blocked event loop is noticed from outside, reported with its stack, and ends the process."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack import ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.queues import StoreQueue
from bartack.store import MemoryStore
from bartack.tools import tool
from bartack_server.watchdog import BLOCKED_EXIT, Watchdog
from bartack_server.workers import Worker
from tests.agent.kit import SESSION, within


def block(is_over: Callable[[], object], seconds: float = 0.01) -> None:
    """Block the event loop until something has happened, however long a busy machine needs for it."""
    while not is_over():
        time.sleep(seconds)


async def test_the_line_that_blocks_is_logged_once_and_the_process_ends(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []
    with Watchdog(blocked_s=0.25, exit_s=1.0, live=lambda: ["s1"], end_process=ended.append):
        await asyncio.sleep(0.5)
        assert caplog.records == []
        block(lambda: caplog.records)
        await asyncio.sleep(0.1)
        assert ended == []
        block(lambda: ended)
    assert ended == [BLOCKED_EXIT]
    first, second, last = [record.getMessage() for record in caplog.records]
    for text in (first, second):
        assert "in block" in text
        assert "time.sleep(seconds)" in text
        assert "live sessions: 's1'" in text
    assert "this process ends" in last


async def test_the_line_that_blocks_is_logged_even_if_the_process_ends_early(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []
    with Watchdog(blocked_s=60, exit_s=0.2, end_process=ended.append):
        block(lambda: ended)
    assert ended == [BLOCKED_EXIT]
    report, last = [record.getMessage() for record in caplog.records]
    assert "in block" in report
    assert "this process ends" in last


async def test_a_loop_that_ticks_is_left_alone_and_the_thread_ends_with_the_block(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    with Watchdog(blocked_s=0.25, exit_s=0.5, end_process=ended.append) as watching:
        for _ in range(75):
            await asyncio.sleep(0.01)
    for thread in threading.enumerate():
        if thread.name == "bartack-watchdog":
            await asyncio.to_thread(thread.join, 30.0)
            assert not thread.is_alive()
    assert (ended, caplog.records) == ([], [])
    # A process that was stopped as a whole: the thread was not woken in time either.
    times, looks = iter([0.0, 100.0, 100.01]), iter([False, False, True])
    with monkeypatch.context() as patched:
        patched.setattr("bartack_server.watchdog.time.monotonic", lambda: next(times, 100.02))
        patched.setattr(watching._stopped, "wait", lambda _: next(looks))
        watching._watch()
    assert (ended, caplog.records) == ([], [])


async def test_a_worker_names_the_tool_that_blocks_it(caplog: pytest.LogCaptureFixture) -> None:
    @tool(name="hang")
    async def hanging() -> str:
        """Hang."""
        block(lambda: caplog.records)
        return "done"

    store = MemoryStore()
    model = ScriptedModel([assistant(ToolCall("c1", "hang", {})), "Done."])
    agent = Agent(model, tools=[hanging], store=store, name="a")
    worker = Worker(StoreQueue(store), {"a": agent}, store, blocked_s=0.15)
    task = asyncio.create_task(worker.run())
    await agent.submit("Go", session=SESSION)
    async with asyncio.timeout(30):
        while not worker.done:  # noqa: ASYNC110 - the jobs of a worker end at any time
            await asyncio.sleep(0.01)
    worker.stop()
    await within(task)
    texts = [record.getMessage() for record in caplog.records if record.name == "bartack_server.watchdog"]
    assert any("in hanging" in text and f"live sessions: '{SESSION}'" in text for text in texts)


async def test_a_blocked_process_really_exits(tmp_path: Path) -> None:
    script = tmp_path / "blocked.py"
    script.write_text(
        "import asyncio, time\n"
        "from bartack_server.watchdog import Watchdog\n"
        "async def main():\n"
        "    with Watchdog(blocked_s=0.2, exit_s=0.6):\n"
        "        time.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), stderr=asyncio.subprocess.PIPE)
    _, errors = await within(process.communicate(), 30)
    assert process.returncode == BLOCKED_EXIT
    assert b"time.sleep(60)" in errors
    assert logging.getLogger("bartack_server.watchdog").level == logging.NOTSET
