"""Programs that the user configures."""

import asyncio
import time
from pathlib import Path

import pytest

from bartack.app.platform import loop_factory
from bartack_code.workspace.hooks import Ended, run_user_program


def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    """With the event loop of the chat, in which writing to a closed pipe raised RuntimeError now and then."""

    async def many() -> set[Ended]:
        runs = [run_user_program("exit 2", tmp_path, {"text": "x" * 100_000}, timeout_s=60) for _ in range(30)]
        return set(await asyncio.gather(*runs))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(many()) == {Ended(2, "", "")}


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(run_user_program("sleep 600", tmp_path, {}, timeout_s=0.05))


def test_a_program_is_killed_with_its_children(tmp_path: Path) -> None:
    command = "sleep 600 & echo $! > child.new; mv child.new child; wait"

    async def run() -> None:
        running = asyncio.create_task(run_user_program(command, tmp_path, {}, timeout_s=600))
        while not (tmp_path / "child").exists():  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
    _wait_for_end(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("steps", range(8))
def test_a_program_is_killed_with_its_children_if_it_is_cancelled_while_it_starts(tmp_path: Path, steps: int) -> None:
    command = "sleep 600 & echo $! > child.new; mv child.new child; wait"

    async def run() -> None:
        running = asyncio.create_task(run_user_program(command, tmp_path, {}, timeout_s=600))
        for _ in range(steps):
            await asyncio.sleep(0)
        deadline = time.monotonic() + 0.5
        while not (tmp_path / "child").exists() and time.monotonic() < deadline:
            time.sleep(0.01)  # noqa: ASYNC251 - the program runs while the event loop does not
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
    if (tmp_path / "child").exists():  # otherwise it was cancelled before it began
        _wait_for_end(int((tmp_path / "child").read_text()))


def _wait_for_end(pid: int) -> None:
    """Wait until a process that was killed has ended; fails if it was not."""
    deadline = time.monotonic() + 60
    while _is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path("/proc", str(pid), "stat").read_text()
    except FileNotFoundError:
        return False


def test_stdin_stdout_and_stderr(tmp_path: Path) -> None:
    ended = asyncio.run(run_user_program("cat; echo two >&2; exit 1", tmp_path, {"a": 1}, timeout_s=60))
    assert ended == Ended(1, '{"a": 1}', "two\n")
