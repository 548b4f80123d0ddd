"""Commands in the background."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bartack.nouns.errors import ToolError
from bartack.tools import LocalRuntime
from bartack.tools.runtime import CheckJob, Operation, ReadFile, RunCommand

WAIT_MS = 300_000  # only a hang takes this long


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, timeout_ms=100)
    await runtime.connect()
    yield runtime
    await runtime.close()


async def output_of(runtime: LocalRuntime, operation: Operation) -> str:
    return str((await runtime.execute(operation)).content)


async def start(runtime: LocalRuntime, command: str, **options: int) -> str:
    output = await runtime.execute(RunCommand(command=command, background=True, **options))  # type: ignore[arg-type]
    assert output.metadata is not None
    return str(output.metadata["job"])


async def checked_until(runtime: LocalRuntime, job: str, text: str) -> str:
    """The output of as many checks as it takes until the text is there."""
    output = ""
    while text not in output:
        output += await output_of(runtime, CheckJob(job=job))
        await asyncio.sleep(0.02)
    return output


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_job_outlives_its_call_and_the_usual_time_limit(runtime: LocalRuntime, tmp_path: Path) -> None:
    command = "echo begun; while ! [ -e go ]; do sleep 0.02; done; echo over; exit 3"
    job = await start(runtime, command)
    assert job == "job-1"
    assert "[job-1: running, " in await checked_until(runtime, job, "begun\n")
    await asyncio.sleep(0.3)  # longer than the time limit of a command in the foreground
    assert await output_of(runtime, CheckJob(job=job)) == "[job-1: running, no new output]"
    (tmp_path / "go").touch()
    last = await output_of(runtime, CheckJob(job=job, wait_ms=WAIT_MS))
    assert last.startswith("over\n[job-1: exit code 3, ")
    (only,) = runtime.jobs.all
    assert not only.is_running
    assert await output_of(runtime, ReadFile(path=str(only.log))) == "begun\nover\n"


async def test_killing_a_job_terminates_all_that_it_started(runtime: LocalRuntime, tmp_path: Path) -> None:
    job = await start(runtime, "sleep 600 & echo $! > child; echo ready; wait")
    await checked_until(runtime, job, "ready")
    child = int((tmp_path / "child").read_text(encoding="ascii"))
    assert is_alive(child)
    assert "[job-1: killed, no new output]" in await output_of(runtime, CheckJob(job=job, kill=True))
    assert not is_alive(child)


async def test_jobs_end_with_the_runtime(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path)
    await runtime.connect()
    for number in range(3):
        await start(runtime, f"echo $$ > pid{number}; echo ready; exec sleep 600")
        await checked_until(runtime, f"job-{number + 1}", "ready")
    processes = [int((tmp_path / f"pid{number}").read_text(encoding="ascii")) for number in range(3)]
    assert all(map(is_alive, processes))
    await runtime.close()
    assert not any(map(is_alive, processes))
    assert [job.status for job in runtime.jobs.all] == ["killed"] * 3


async def test_a_job_can_have_a_time_limit(runtime: LocalRuntime) -> None:
    job = await start(runtime, "sleep 600", timeout_ms=50)
    assert "[job-1: timed out," in await output_of(runtime, CheckJob(job=job, wait_ms=WAIT_MS))


async def test_cancelling_a_check_leaves_the_job_running(runtime: LocalRuntime) -> None:
    job = await start(runtime, "sleep 600")
    check = asyncio.create_task(runtime.execute(CheckJob(job=job, wait_ms=WAIT_MS)))
    await asyncio.sleep(0.1)
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert runtime.jobs.named(job).is_running


async def test_wrong_calls_are_explained(runtime: LocalRuntime) -> None:
    with pytest.raises(ToolError, match=r"no job 'job-9'\. Jobs: none"):
        await runtime.execute(CheckJob(job="job-9"))
    with pytest.raises(ToolError, match="missing"):
        await runtime.execute(RunCommand(command="true", directory="missing", background=True))
    for _ in range(16):
        await start(runtime, "sleep 600")
    with pytest.raises(ToolError, match="16 jobs are running"):
        await start(runtime, "true")


async def test_a_request_for_approval_says_that_the_command_stays(runtime: LocalRuntime) -> None:
    preview = await runtime.preview(RunCommand(command="true", background=True))
    assert preview is not None
    assert preview["background"] is True
    assert await runtime.preview(CheckJob(job="job-1")) is None
