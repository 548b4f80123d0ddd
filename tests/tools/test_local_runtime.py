"""`LocalRuntime` and the file tools: limited commands, files below a root, approval for changes."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bartack import ErrorCode, Image, ToolError
from bartack.tools import LocalRuntime, Runtime, ToolRegistry, file_tools, never
from bartack.tools.runtime import EditFile, ListFiles, Operation, ReadFile, RunCommand, SearchFiles, WriteFile
from bartack.tools.shell import safe_environment
from tests.tools.rounds import Bench, call


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    (tmp_path / "work").mkdir()
    runtime = LocalRuntime(tmp_path / "work", timeout_ms=10_000)
    await runtime.connect()
    yield runtime
    await runtime.close()


async def output_of(runtime: Runtime, operation: Operation) -> str:
    output = await runtime.execute(operation)
    assert isinstance(output.content, str)
    return output.content


async def error_of(runtime: Runtime, operation: Operation) -> str:
    with pytest.raises(ToolError) as caught:
        await runtime.execute(operation)
    return caught.value.message


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie has exited and waits to be reaped


async def eventually(condition: Any, seconds: float = 300) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(0.01)
    return False


# -- life cycle


async def test_a_runtime_connects_describes_itself_and_closes(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path)
    assert runtime.status == "closed"
    with pytest.raises(ToolError, match="not connected"):
        await runtime.execute(ListFiles())
    await runtime.connect()
    await runtime.connect()
    assert str(runtime.status) == "connected"
    data = await runtime.get_init_data()
    assert data["root"] == os.fspath(tmp_path)
    assert json.loads(json.dumps(data)) == data
    assert "relative" in runtime.get_hints()
    await runtime.close()
    await runtime.close()
    assert runtime.status == "closed"


async def test_a_missing_root_raises_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="No such file"):
        await LocalRuntime(tmp_path / "no").connect()
    with pytest.raises(ToolError, match="kernel"):
        await LocalRuntime("/proc").connect()


async def test_closing_stops_running_commands(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path)
    await runtime.connect()
    running = asyncio.create_task(runtime.execute(RunCommand(command="touch started; sleep 600")))
    assert await eventually((tmp_path / "started").exists)
    await asyncio.wait_for(runtime.close(), 300)
    with pytest.raises(ToolError, match="stopped"):
        await running


async def test_commands_can_be_disabled(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, commands=False)
    await runtime.connect()
    assert "run_command" not in runtime.capabilities
    assert "disabled" in await error_of(runtime, RunCommand(command="true"))
    assert "Commands" not in runtime.get_hints()
    await runtime.close()


# -- commands


async def test_a_command_runs_in_the_root_and_its_output_keeps_its_order(runtime: LocalRuntime) -> None:
    text = await output_of(runtime, RunCommand(command="pwd; echo out; echo err >&2; echo end"))
    assert text == f"{runtime.root.resolve()}\nout\nerr\nend\n"
    assert await output_of(runtime, RunCommand(command="true")) == "[exit code 0]"
    assert await output_of(runtime, RunCommand(command="echo no; exit 3")) == "no\n[exit code 3]"
    assert await output_of(runtime, RunCommand(command="kill -9 $$")) == "[killed by signal 9]"
    assert await output_of(runtime, RunCommand(command="cat")) == "[exit code 0]"  # stdin is empty


async def test_a_command_runs_only_in_directories_below_the_root(runtime: LocalRuntime, tmp_path: Path) -> None:
    (runtime.root / "sub").mkdir()
    (runtime.root / "link").symlink_to(tmp_path)
    assert await output_of(runtime, RunCommand(command="pwd", directory="sub")) == f"{runtime.root.resolve()}/sub\n"
    for directory in ("..", "/", "link", "sub/../.."):
        assert await error_of(runtime, RunCommand(command="pwd", directory=directory))


async def test_commands_get_no_secrets_from_the_environment(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "ODDLY_NAMED", "LD_PRELOAD_X"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    text = await output_of(runtime, RunCommand(command="env"))
    assert "hunter2" not in text
    assert "LC_TIME=C" in text
    assert "PATH=" in text
    assert "hunter2" in os.environ["OPENAI_API_KEY"]  # control: it could have leaked


async def test_commands_get_the_environment_given_to_the_runtime(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, environment={"GREETING": "hi"})
    await runtime.connect()
    assert await output_of(runtime, RunCommand(command="echo $GREETING")) == "hi\n"
    await runtime.close()
    assert safe_environment({}) == {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def test_output_is_limited_while_it_is_read(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, max_output_bytes=1_000)
    await runtime.connect()
    output = await runtime.execute(
        RunCommand(command="echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last")
    )
    assert output.content.startswith("first\nxxx")
    assert output.content.endswith("xxx\nlast\n")
    assert len(output.content) < 1_100
    assert output.metadata is not None
    assert output.metadata["omitted_bytes"] == 5_000_012 - 1_000
    await runtime.close()


async def test_a_command_that_takes_too_long_times_out(runtime: LocalRuntime) -> None:
    began = time.monotonic()
    message = await error_of(runtime, RunCommand(command="echo begun; sleep 600", timeout_ms=2_000))
    assert time.monotonic() - began < 300
    assert message.startswith("begun\n[timed out after 2000 ms")


async def test_a_call_cannot_raise_the_time_limit_of_the_runtime(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, timeout_ms=100)
    await runtime.connect()
    assert "timed out after 100 ms" in await error_of(runtime, RunCommand(command="sleep 30", timeout_ms=60_000))
    await runtime.close()


STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo $! > child; echo $$ > leader; wait"


async def pids(runtime: LocalRuntime) -> list[int]:
    files = [runtime.root / name for name in ("child", "leader")]
    assert await eventually(lambda: all(file.exists() and file.read_text().strip() for file in files))
    found = [int(file.read_text()) for file in files]
    assert all(map(alive, found))
    return found


async def test_a_timeout_kills_the_whole_group_even_if_it_ignores_sigterm(runtime: LocalRuntime) -> None:
    running = asyncio.create_task(runtime.execute(RunCommand(command=STUBBORN, timeout_ms=3_000)))
    found = await pids(runtime)
    with pytest.raises(ToolError, match="timed out"):
        await running
    assert await eventually(lambda: not any(map(alive, found)))


async def test_cancellation_kills_the_whole_group_before_it_propagates(runtime: LocalRuntime) -> None:
    running = asyncio.create_task(runtime.execute(RunCommand(command=STUBBORN)))
    found = await pids(runtime)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await eventually(lambda: not any(map(alive, found)))


async def test_killing_only_the_leader_would_leave_the_child(runtime: LocalRuntime) -> None:
    """Control for the two tests above: the child outlives its parent."""
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", STUBBORN, cwd=runtime.root, start_new_session=True)
    found = await pids(runtime)
    process.kill()
    await process.wait()
    child = found[0]
    assert alive(child)
    os.kill(child, signal.SIGKILL)
    assert await eventually(lambda: not alive(child))


async def test_background_processes_are_killed_when_the_command_ends(runtime: LocalRuntime) -> None:
    began = time.monotonic()
    text = await output_of(runtime, RunCommand(command="sleep 600 & echo $!"))
    assert time.monotonic() - began < 300
    assert await eventually(lambda: not alive(int(text)))


async def test_a_command_that_closes_its_output_is_awaited(runtime: LocalRuntime) -> None:
    await output_of(runtime, RunCommand(command="exec >&- 2>&-; sleep 0.2; touch after"))
    assert (runtime.root / "after").exists()


async def test_commands_do_not_block_the_event_loop(runtime: LocalRuntime) -> None:
    command = "touch started.$$; while [ ! -e go ]; do sleep 0.05; done"
    running = asyncio.gather(*(runtime.execute(RunCommand(command=command)) for _ in range(8)))
    assert await eventually(lambda: len(list(runtime.root.glob("started.*"))) == 8)  # all at once
    assert not running.done()
    (runtime.root / "go").touch()
    await running


@pytest.mark.parametrize("command", ["a\0b", ""])
async def test_nul_in_a_command_is_rejected_and_an_empty_command_is_harmless(
    runtime: LocalRuntime, command: str
) -> None:
    if command:
        assert "NUL" in await error_of(runtime, RunCommand(command=command))
    else:
        assert await output_of(runtime, RunCommand(command=command)) == "[exit code 0]"


# -- reading


async def test_reading_a_range_of_lines_announces_more(runtime: LocalRuntime) -> None:
    (runtime.root / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert await output_of(runtime, ReadFile(path="a.txt")) == "".join(f"{n}\n" for n in range(1, 11))
    part = await output_of(runtime, ReadFile(path="a.txt", offset=3, limit=2))
    assert part == "3\n4\n[more lines follow; continue with offset=5]"
    assert await output_of(runtime, ReadFile(path="a.txt", offset=9, limit=2)) == "9\n10\n"
    assert "ends before line 99" in await output_of(runtime, ReadFile(path="a.txt", offset=99))
    assert await output_of(runtime, ReadFile(path=str(runtime.root.resolve() / "a.txt"), limit=1)) == (
        "1\n[more lines follow; continue with offset=2]"
    )


async def test_a_huge_file_is_read_in_part(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, max_output_bytes=100_000)
    await runtime.connect()
    with (tmp_path / "big").open("wb") as file:
        file.write(b"start\n" + b"x" * 200_000)
        file.truncate(50_000_000_000)  # sparse
    text = await output_of(runtime, ReadFile(path="big"))
    assert text.startswith("start\nxxx")
    assert len(text) < 200_000
    assert "more lines follow" in text
    assert "too large" in await error_of(runtime, EditFile(path="big", old="start", new="end"))
    await runtime.close()


async def test_binary_files_are_rejected_and_images_are_returned(runtime: LocalRuntime) -> None:
    (runtime.root / "bin").write_bytes(b"ab\0cd")
    (runtime.root / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (runtime.root / "latin").write_bytes(b"caf\xe9\n")
    assert "binary file (5 bytes)" in await error_of(runtime, ReadFile(path="bin"))
    output = await runtime.execute(ReadFile(path="pic.png"))
    assert output.content == (Image("image/png", data=b"\x89PNG\r\n\x1a\n\0\0"),)
    assert "not valid UTF-8" in await output_of(runtime, ReadFile(path="latin"))
    assert "not valid UTF-8" in await error_of(runtime, EditFile(path="latin", old="caf", new="x"))


# -- writing and editing


async def test_writing_creates_directories_and_keeps_the_mode(runtime: LocalRuntime) -> None:
    assert "Created" in await output_of(runtime, WriteFile(path="a/b/c.sh", text="one"))
    file = runtime.root / "a/b/c.sh"
    file.chmod(0o750)
    assert "Replaced" in await output_of(runtime, WriteFile(path="a/b/c.sh", text="two"))
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o750
    assert [one.name for one in file.parent.iterdir()] == ["c.sh"]


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(runtime: LocalRuntime) -> None:
    file = runtime.root / "a.txt"
    file.write_text("old")
    await output_of(runtime, ReadFile(path="a.txt"))
    file.write_text("by another process")
    assert "changed since it was read" in await error_of(runtime, WriteFile(path="a.txt", text="mine"))
    assert file.read_text() == "by another process"
    await output_of(runtime, ReadFile(path="./a.txt"))
    await output_of(runtime, WriteFile(path="a.txt", text="mine"))
    await output_of(runtime, WriteFile(path="a.txt", text="mine again"))  # our own change is not a conflict
    assert file.read_text() == "mine again"


async def test_writing_does_not_change_the_target_of_a_hard_link(runtime: LocalRuntime, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    os.link(outside, runtime.root / "linked")
    await output_of(runtime, WriteFile(path="linked", text="mine"))
    assert outside.read_text() == "theirs"
    assert (runtime.root / "linked").read_text() == "mine"


async def test_an_edit_requires_a_unique_match(runtime: LocalRuntime) -> None:
    file = runtime.root / "a.py"
    file.write_text("x = 1\ny = 2\nx = 1\n")
    assert "occurs 2 times" in await error_of(runtime, EditFile(path="a.py", old="x = 1", new="x = 3"))
    assert "not found in 'a.py'" in await error_of(runtime, EditFile(path="a.py", old="z", new="x"))
    assert "empty" in await error_of(runtime, EditFile(path="a.py", old="", new="x"))
    assert "same" in await error_of(runtime, EditFile(path="a.py", old="x", new="x"))
    assert "No such file" in await error_of(runtime, EditFile(path="b.py", old="x", new="y"))
    assert file.read_text() == "x = 1\ny = 2\nx = 1\n"
    assert "1 occurrence at line 2" in await output_of(runtime, EditFile(path="a.py", old="y = 2", new="y = 5"))
    assert "2 occurrences" in await output_of(runtime, EditFile(path="a.py", old="x = 1", new="x = 3", everywhere=True))
    assert file.read_text() == "x = 3\ny = 5\nx = 3\n"


async def test_an_edit_with_lf_matches_a_file_with_crlf(runtime: LocalRuntime) -> None:
    file = runtime.root / "dos.txt"
    file.write_bytes(b"a\r\nb\r\nc\r\n")
    await output_of(runtime, EditFile(path="dos.txt", old="a\nb\n", new="x\ny\n"))
    assert file.read_bytes() == b"x\r\ny\r\nc\r\n"


async def test_concurrent_edits_are_all_applied(runtime: LocalRuntime) -> None:
    (runtime.root / "n.txt").write_text("".join(f"<{n}>\n" for n in range(20)))
    edits = [EditFile(path="n.txt", old=f"<{n}>", new=f"[{n}]") for n in range(20)]
    await asyncio.gather(*map(runtime.execute, edits))
    assert (runtime.root / "n.txt").read_text() == "".join(f"[{n}]\n" for n in range(20))


# -- listing and searching


async def test_listing_is_sorted_and_limited(runtime: LocalRuntime) -> None:
    for name in ("b.py", "a.txt", "sub/c.py", ".git/config"):
        (runtime.root / name).parent.mkdir(exist_ok=True)
        (runtime.root / name).write_text("x")
    (runtime.root / "way_out").symlink_to("/etc")
    os.mkfifo(runtime.root / "pipe")
    assert (await output_of(runtime, ListFiles())).splitlines() == [
        ".git/", "a.txt (1 bytes)", "b.py (1 bytes)", "pipe (special file)", "sub/", "way_out (link, not followed)",
    ]  # fmt: skip
    assert (await output_of(runtime, ListFiles(recursive=True, pattern="*.py"))).splitlines() == [
        "b.py (1 bytes)", "sub/c.py (1 bytes)",
    ]  # fmt: skip
    assert (await output_of(runtime, ListFiles(limit=2))).splitlines()[-1] == "[first 2 entries; there are more]"
    assert await output_of(runtime, ListFiles(path="sub")) == "sub/c.py (1 bytes)"
    (runtime.root / "empty").mkdir()
    assert await output_of(runtime, ListFiles(path="empty")) == "(empty)"


async def test_searching_returns_matching_lines_up_to_a_limit(runtime: LocalRuntime) -> None:
    (runtime.root / "a.py").write_text("import os\nx = os.path\n")
    (runtime.root / "b.txt").write_text("OS and os.\n" * 3)
    (runtime.root / "bin").write_bytes(b"os\0")
    (runtime.root / "long").write_text(f"needle{'x' * 5_000}\n")

    async def find(**query: Any) -> str:
        return await output_of(runtime, SearchFiles(**query))

    assert await find(pattern=r"^import \w+", files="*.py") == "a.py:1: import os"
    assert (
        await find(pattern="os.", literal=True)
        == "a.py:2: x = os.path\nb.txt:1: OS and os.\nb.txt:2: OS and os.\nb.txt:3: OS and os."
    )
    assert (await find(pattern="OS", limit=2)).splitlines() == [
        "b.txt:1: OS and os.",
        "b.txt:2: OS and os.",
        "[first 2 matches; there may be more]",
    ]
    assert await find(pattern="IMPORT", ignore_case=True) == "a.py:1: import os"
    assert await find(pattern="os", path="a.py") == "a.py:1: import os\na.py:2: x = os.path"
    assert await find(pattern="nowhere") == "No matches."
    assert len(await find(pattern="needle")) < 400
    assert "Invalid regular expression" in await error_of(runtime, SearchFiles(pattern="("))
    assert "No such file" in await error_of(runtime, SearchFiles(pattern="x", path="no"))


async def test_searching_returns_more_matches_than_a_pipe_holds(runtime: LocalRuntime) -> None:
    for number in range(20):
        (runtime.root / f"{number}.txt").write_text(f"{'match ' * 40}\n" * 2_000)
    text = await output_of(runtime, SearchFiles(pattern="match", limit=1_000))
    assert text.count("\n") == 1_000


async def test_a_catastrophic_pattern_times_out(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.file_operations._SEARCH_SECONDS", 2)
    (runtime.root / "a").write_text("a" * 50 + "b\n")
    searching = asyncio.create_task(error_of(runtime, SearchFiles(pattern="(a+)+$")))
    await asyncio.sleep(0.1)
    assert not searching.done()  # the event loop is not blocked
    assert "timed out after 2 s" in await searching


async def test_cancellation_stops_a_search(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.file_operations._SEARCH_SECONDS", 3600)
    (runtime.root / "a").write_text("a" * 50 + "b\n")
    searching = asyncio.create_task(runtime.execute(SearchFiles(pattern="(a+)+$")))
    await asyncio.sleep(0.1)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(searching, 300)


# -- the file tools


def test_tools_that_change_files_require_approval_and_run_in_order() -> None:
    registry = ToolRegistry(file_tools())
    assert len(registry) == 6
    for definition in registry:
        changes = definition.name in {"write_file", "edit_file", "run_command"}
        assert definition.requires_approval is changes
        assert definition.sequential is changes
        assert definition.idempotent is not changes
        assert definition.requires_runtime
        assert definition.description
        shapes = definition.parameter_schema["properties"]
        assert [name for name, shape in shapes.items() if "description" not in shape] == []


async def test_the_executor_runs_the_file_tools(runtime: LocalRuntime) -> None:
    bench = Bench(*file_tools(), runtime=runtime, approval=never)
    round = await bench.run(
        call("write_file", "c1", path="a.txt", text="one\n"),
        call("edit_file", "c2", path="a.txt", old="one", new="two"),
        call("run_command", "c3", command="cat a.txt"),
        call("read_file", "c4", path="a.txt"),
        call("list_files", "c5"),
        call("search_files", "c6", pattern="tw."),
        call("read_file", "c7", path="../secret"),
    )
    assert [result.content for result in round.results[2:6]] == ["two\n", "two\n", "a.txt (4 bytes)", "a.txt:1: two"]
    assert round.results[6].error_code is ErrorCode.TOOL_FAILED
    waiting = await Bench(*file_tools(), runtime=runtime).run(call("run_command", command="touch x"))
    assert waiting.waiting == ("c1",)
    assert not (runtime.root / "x").exists()


async def test_cancelling_a_tool_kills_its_command(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.tool_round.GRACE_MS", 3_000)
    bench = Bench(*file_tools(), runtime=runtime, approval=never)
    running = asyncio.create_task(bench.run(call("run_command", command=STUBBORN)))
    found = await pids(runtime)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.log.results[0].error_code is ErrorCode.TOOL_ABORTED
    assert "still be running" not in str(bench.log.results[0].content)
    assert await eventually(lambda: not any(map(alive, found)))


def test_an_operation_can_be_serialized() -> None:
    operation = EditFile(path="a", old="b", new="c")
    assert msgspec.json.decode(msgspec.json.encode(operation), type=Operation) == operation
