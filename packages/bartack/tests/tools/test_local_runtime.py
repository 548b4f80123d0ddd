"""`LocalRuntime` and the file tools: limited commands, files below a root, approval for changes."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import which
from typing import Any

import msgspec
import pytest

from bartack import ErrorCode, Image, Text, ToolError
from bartack.nouns.entries import ToolProgress
from bartack.tools import LocalRuntime, Runtime, ToolRegistry, file_tools, never
from bartack.tools.runtime import (
    EditFile,
    ListFiles,
    Operation,
    ReadFile,
    Replacement,
    RunCommand,
    SearchFiles,
    WriteFile,
)
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
    assert "the command was stopped" in (await running).content


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


async def test_commands_get_the_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_AUTH_SOCK", "DATABASE_URL", "DATABASE_NAME", "VIRTUAL_ENV", "OTHER_KEY"):
        monkeypatch.setenv(name, "value")
    runtime = LocalRuntime(tmp_path, variables=["SSH_AUTH_SOCK", "DATABASE_*"])
    await runtime.connect()
    text = await output_of(runtime, RunCommand(command="env | grep =value | sort"))
    assert text.split() == [
        "DATABASE_NAME=value", "DATABASE_URL=value", "SSH_AUTH_SOCK=value", "VIRTUAL_ENV=value",
    ]  # fmt: skip
    await runtime.close()


@pytest.mark.skipif(which("bash") is None, reason="needs bash")
async def test_commands_run_in_bash_where_there_is_one(runtime: LocalRuntime) -> None:
    assert await output_of(runtime, RunCommand(command="a=(1 2); [[ ${#a[@]} == 2 ]] && echo {x,y}")) == "x y\n"


async def test_the_whole_output_is_in_a_file_that_the_model_can_read(runtime: LocalRuntime) -> None:
    bench = Bench(*file_tools(), runtime=runtime, approval=never)
    round = await bench.run(call("run_command", "c1", command="seq 200000"))
    result = round.results[0]
    assert isinstance(result.content, tuple)
    shown = result.content[0]
    assert isinstance(shown, Text)
    assert shown.text.startswith("1\n2\n")
    assert shown.text.endswith("199999\n200000\n")
    assert "all 200,000 lines (1,288,895 bytes) are in" in shown.text
    assert len(shown.text) < 31_000
    assert result.metadata is not None
    assert result.metadata["lines"] == 200_000
    file = result.metadata["whole_output"]["file"]
    assert file in shown.text
    assert await output_of(runtime, ReadFile(path=file, offset=100_000, limit=1)) == (
        "100000\n[more lines follow; continue with offset=100001]"
    )
    assert "123456" in await output_of(runtime, SearchFiles(pattern="^123456$", path=file))
    assert "is outside" in await error_of(runtime, WriteFile(path=file, text="x"))
    assert "is outside" in await error_of(runtime, ReadFile(path=f"{Path(file).parent.parent}/other"))
    await runtime.close()
    assert not os.access(file, os.F_OK)


async def test_the_output_of_a_running_command_is_its_progress(runtime: LocalRuntime) -> None:
    bench = Bench(*file_tools(), runtime=runtime, approval=never)
    command = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"
    running = asyncio.create_task(bench.run(call("run_command", "c1", command=command)))
    progress: list[ToolProgress] = []

    def has_progress() -> bool:
        progress[:] = [fact for fact in bench.log.facts if isinstance(fact, ToolProgress)]
        return bool(progress)

    assert await eventually(has_progress)
    assert (progress[0].content, progress[0].metadata) == ("first", {"lines": 1})
    (runtime.root / "go").touch()
    assert (await running).results[0].content == "first\nlast\n"


async def test_a_stopped_command_leaves_what_it_printed_for_the_model(runtime: LocalRuntime) -> None:
    bench = Bench(*file_tools(), runtime=runtime, approval=never)
    running = asyncio.create_task(bench.run(call("run_command", "c1", command="echo printed before; sleep 600")))
    assert await eventually(lambda: any(isinstance(fact, ToolProgress) for fact in bench.log.facts))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = bench.log.results[0]
    assert result.error_code is ErrorCode.TOOL_ABORTED
    assert str(result.content).endswith(" Output until then:\nprinted before\n")


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
    started_at = time.monotonic()
    message = await output_of(runtime, RunCommand(command="echo begun; sleep 600", timeout_ms=2_000))
    assert time.monotonic() - started_at < 300
    assert message.startswith("begun\n[timed out after 2000 ms")


async def test_a_call_may_ask_for_more_time_within_the_limit_of_the_runtime(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, timeout_ms=100, max_timeout_ms=60_000)
    await runtime.connect()
    assert "timed out after 100 ms" in await output_of(runtime, RunCommand(command="sleep 30"))
    assert await output_of(runtime, RunCommand(command="sleep 0.5; echo done", timeout_ms=60_000)) == "done\n"
    for timeout_ms in (60_001, -1):
        too_long = RunCommand(command="true", timeout_ms=timeout_ms)
        assert "timeout_ms must be between 1 and 60000" in await error_of(runtime, too_long)
        with pytest.raises(ToolError, match="timeout_ms"):  # before anybody is asked
            await runtime.preview(too_long)
    preview = await runtime.preview(RunCommand(command="true", timeout_ms=50_000))
    assert preview is not None
    assert preview["timeout_ms"] == 50_000
    await runtime.close()


STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo $! > child; echo $$ > leader; wait"


async def pids(runtime: LocalRuntime) -> list[int]:
    files = [runtime.root / name for name in ("child", "leader")]
    assert await eventually(lambda: all(file.exists() and file.read_text().strip() for file in files))
    process_ids = [int(file.read_text()) for file in files]
    assert all(map(alive, process_ids))
    return process_ids


async def test_a_timeout_kills_the_whole_group_even_if_it_ignores_sigterm(runtime: LocalRuntime) -> None:
    running = asyncio.create_task(runtime.execute(RunCommand(command=STUBBORN, timeout_ms=3_000)))
    process_ids = await pids(runtime)
    assert "timed out" in (await running).content
    assert (await running).is_error
    assert await eventually(lambda: not any(map(alive, process_ids)))


async def test_cancellation_kills_the_whole_group_before_it_propagates(runtime: LocalRuntime) -> None:
    running = asyncio.create_task(runtime.execute(RunCommand(command=STUBBORN)))
    process_ids = await pids(runtime)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await eventually(lambda: not any(map(alive, process_ids)))


async def test_killing_only_the_leader_would_leave_the_child(runtime: LocalRuntime) -> None:
    """Control for the two tests above: the child outlives its parent."""
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", STUBBORN, cwd=runtime.root, start_new_session=True)
    process_ids = await pids(runtime)
    process.kill()
    await process.wait()
    child = process_ids[0]
    assert alive(child)
    os.kill(child, signal.SIGKILL)
    assert await eventually(lambda: not alive(child))


async def test_background_processes_are_killed_when_the_command_ends(runtime: LocalRuntime) -> None:
    started_at = time.monotonic()
    text = await output_of(runtime, RunCommand(command="sleep 600 & echo $!"))
    assert time.monotonic() - started_at < 300
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


@pytest.mark.parametrize(("command", "problem"), [("a\0b", "NUL"), ("", "is empty"), (" \n", "is empty")])
async def test_a_command_without_a_meaning_is_rejected(runtime: LocalRuntime, command: str, problem: str) -> None:
    assert problem in await error_of(runtime, RunCommand(command=command))


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
    assert [path.name for path in file.parent.iterdir()] == ["c.sh"]


async def test_a_file_that_another_process_deletes_right_after_the_write_was_written(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_delete(source: str, target: str, **options: Any) -> None:
        link(source, target, **options)
        (runtime.root / "a.txt").unlink()

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link_and_delete)
        assert "Created a.txt" in await output_of(runtime, WriteFile(path="a.txt", text="mine"))
    assert "Created a.txt" in await output_of(runtime, WriteFile(path="a.txt", text="again"))


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


async def test_several_edits_are_made_together_or_not_at_all(runtime: LocalRuntime) -> None:
    file = runtime.root / "a.py"
    file.write_text("a = 1\nb = 2\nc = 2\n")
    edits = (Replacement("2", "3", everywhere=True),)
    operation = EditFile(path="a.py", old="a = 1", new="a = 10", edits=edits)
    assert (await output_of(runtime, operation)).splitlines() == [
        "Replaced 1 occurrence at line 1 of a.py.",
        "Replaced 2 occurrences, the first at line 2 of a.py.",
    ]
    assert file.read_text() == "a = 10\nb = 3\nc = 3\n"
    wrong = EditFile(path="a.py", old="a = 10", new="a = 0", edits=(Replacement("nothing like it", "x"),))
    message = await error_of(runtime, wrong)
    assert message.startswith("Edit 2 of 2: The text to replace was not found")
    assert message.endswith("Nothing was changed.")
    assert file.read_text() == "a = 10\nb = 3\nc = 3\n"


async def test_an_edit_tolerates_other_whitespace_and_shows_the_result(runtime: LocalRuntime) -> None:
    file = runtime.root / "a.py"
    file.write_text("def f():\n    if x:  \n        return 1\n")
    text = await output_of(runtime, EditFile(path="a.py", old="if x:\n    return 1", new="if y:\n    return 2"))
    assert text == (
        "Replaced 1 occurrence at line 2 of a.py. The whitespace of old differed; the lines are now:\n"
        "    if y:\n        return 2"
    )
    assert file.read_text() == "def f():\n    if y:\n        return 2\n"
    file.write_text("  x = 1\n    x = 1\n")
    message = await error_of(runtime, EditFile(path="a.py", old="\tx = 1", new="\tx = 2"))
    assert "2 places differ from it only in whitespace" in message


async def test_a_text_that_is_missing_is_answered_with_the_nearest_lines(runtime: LocalRuntime) -> None:
    (runtime.root / "a.py").write_text("import os\n\ndef total(items):\n    return sum(items)\n")
    message = await error_of(runtime, EditFile(path="a.py", old="def total(item):\n    return 1", new="x"))
    assert message.endswith("The nearest lines, from line 3:\ndef total(items):\n    return sum(items)")
    assert "nearest" not in await error_of(runtime, EditFile(path="a.py", old="@@@@", new="x"))


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
        "[first 2 matches; there are more]",
    ]
    assert await find(pattern="IMPORT", ignore_case=True) == "a.py:1: import os"
    assert await find(pattern="os", path="a.py") == "a.py:1: import os\na.py:2: x = os.path"
    assert await find(pattern="nowhere") == "No matches."
    assert len(await find(pattern="needle")) < 400
    assert await find(pattern="OS", limit=3) == "\n".join(f"b.txt:{line}: OS and os." for line in (1, 2, 3))
    assert "Invalid regular expression" in await error_of(runtime, SearchFiles(pattern="("))
    assert "No such file" in await error_of(runtime, SearchFiles(pattern="x", path="no"))


def write_files(root: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("*.{py,ts}", ["a.py", "src/b.py", "src/d.ts", "src/deep/c.py"]),
        ("./src/*.py", ["src/b.py"]),
        ("/src/*.py", ["src/b.py"]),
        ("src/*.{py,ts}", ["src/b.py", "src/d.ts"]),
        ("src/", ["src/b.py", "src/d.ts", "src/deep/c.py"]),
        ("{src,docs}/**", ["docs/e.md", "src/b.py", "src/d.ts", "src/deep/c.py"]),
        ("deep/*.py", []),
        ("[ab].py", ["a.py", "src/b.py"]),
    ],
)
async def test_patterns_find_what_they_find_in_a_shell(runtime: LocalRuntime, pattern: str, paths: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "docs/e.md"):
        write_files(runtime.root, {name: "needle\n"})
    searched = await output_of(runtime, SearchFiles(pattern="needle", files=pattern))
    assert searched == ("\n".join(sorted(f"{path}:1: needle" for path in paths)) or "No matches.")
    listed = (await output_of(runtime, ListFiles(pattern=pattern, recursive=True))).splitlines()
    assert sorted(line.removesuffix(" (7 bytes)") for line in listed if not line.endswith("/")) == (
        paths or ["No matches."]
    )


async def test_a_pattern_is_seen_from_the_root_and_from_the_searched_directory(runtime: LocalRuntime) -> None:
    write_files(runtime.root, {"src/b.py": "needle", "src/deep/c.py": "needle"})
    for pattern in ("src/deep/*.py", "deep/*.py", str(runtime.root.resolve() / "src/deep/*.py")):
        searched = await output_of(runtime, SearchFiles(pattern="needle", path="src", files=pattern))
        assert searched == "src/deep/c.py:1: needle"
    assert await output_of(runtime, ListFiles(pattern="src/**/*.py")) == "src/b.py (6 bytes)\nsrc/deep/c.py (6 bytes)"


async def test_ignored_files_are_left_out_and_named(runtime: LocalRuntime) -> None:
    write_files(runtime.root, {".gitignore": "dist/\n*.log\n!keep.log\n", "dist/bundle.js": "needle\n" * 200})
    write_files(runtime.root, {"a.js": "needle", "b.log": "needle", "keep.log": "needle", "sub/dist/x": "needle"})
    write_files(runtime.root, {"node_modules/m.js": "needle", "sub/.gitignore": "/y", "sub/y": "needle"})
    text = await output_of(runtime, SearchFiles(pattern="needle"))
    names = "b.log, dist/, node_modules/, sub/dist/, sub/y"
    note = f"[ignored by .gitignore or as a cache: {names}; include_ignored includes them]"
    assert text.splitlines() == ["a.js:1: needle", "keep.log:1: needle", note]
    everything = await output_of(runtime, SearchFiles(pattern="needle", include_ignored=True, limit=300))
    assert len(everything.splitlines()) == 206
    assert (await output_of(runtime, SearchFiles(pattern="needle", path="dist", limit=1))).splitlines() == [
        "dist/bundle.js:1: needle",
        "[first 1 matches; there are more]",
    ]
    listed = (await output_of(runtime, ListFiles(recursive=True))).splitlines()
    assert listed[:-1] == [
        ".gitignore (22 bytes)", "a.js (6 bytes)", "keep.log (6 bytes)", "sub/", "sub/.gitignore (2 bytes)",
    ]  # fmt: skip
    assert "dist/" in await output_of(runtime, ListFiles())  # a plain list shows what is there


async def test_rules_above_the_root_apply_in_a_git_work_tree(tmp_path: Path) -> None:
    write_files(tmp_path, {".git/info/exclude": "local\n", ".gitignore": "/work/out\n", "work/out/a": "needle"})
    write_files(tmp_path, {"work/local": "needle", "work/b": "needle", "work/sub/out": "needle"})
    runtime = LocalRuntime(tmp_path / "work")
    await runtime.connect()
    text = await output_of(runtime, SearchFiles(pattern="needle"))
    assert text.splitlines()[:2] == ["b:1: needle", "sub/out:1: needle"]
    assert "local, out/" in text
    await runtime.close()


@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_rules_that_are_no_regular_file_are_not_read(tmp_path: Path, kind: str) -> None:
    exclude = tmp_path / ".git" / "info" / "exclude"
    exclude.parent.mkdir(parents=True)
    os.mkfifo(exclude) if kind == "pipe" else exclude.symlink_to("/dev/zero")
    (tmp_path / "a.txt").touch()
    runtime = LocalRuntime(tmp_path)
    await runtime.connect()
    assert "a.txt" in str((await runtime.execute(ListFiles(recursive=True))).content)
    await runtime.close()


async def test_files_that_are_too_large_to_search_are_named(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(runtime.root, {"a": "needle", "b": "needle" * 10, "c": "needle"})
    monkeypatch.setattr("bartack.tools.file_operations._MAX_SEARCHED_BYTES", 20)
    assert (await output_of(runtime, SearchFiles(pattern="needle"))).splitlines() == [
        "a:1: needle", "c:1: needle", "[not searched, larger than 20 bytes: b]",
    ]  # fmt: skip
    monkeypatch.setattr("bartack.tools.file_operations._MAX_SEARCHED_TOTAL", 6)
    text = await output_of(runtime, SearchFiles(pattern="needle"))
    assert text.splitlines()[2] == "[stopped after 6 bytes, before c; narrow the search with path or files]"


async def test_a_match_in_a_long_line_is_shown_with_what_is_around_it(runtime: LocalRuntime) -> None:
    write_files(runtime.root, {"a.min.js": "x" * 5_000 + "needle" + "y" * 5_000, "b": "1\x0c\u2028\nneedle\r\n"})
    text = await output_of(runtime, SearchFiles(pattern="needle"))
    first, second = text.splitlines()
    assert "xxxneedleyyy" in first
    assert len(first) < 400
    assert second == "b:2: needle"


async def test_searching_returns_more_matches_than_a_pipe_holds(runtime: LocalRuntime) -> None:
    for number in range(20):
        (runtime.root / f"{number}.txt").write_text(f"{'match ' * 40}\n" * 2_000)
    text = await output_of(runtime, SearchFiles(pattern="match", limit=1_000))
    assert text.count("\n") == 1_000


async def test_a_catastrophic_pattern_times_out(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.file_operations._SEARCH_SECONDS", 1)
    (runtime.root / "a").write_text("a" * 50 + "b\n")
    searching = asyncio.create_task(error_of(runtime, SearchFiles(pattern="(a+)+$")))
    ticks = 0
    while not searching.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 2, "the event loop is blocked"
    assert "timed out after 1 s" in await searching


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
    assert len(registry) == 7
    for definition in registry:
        changes = definition.name in {"write_file", "edit_file", "run_command"}
        assert definition.requires_approval is changes
        assert definition.sequential is changes
        assert definition.idempotent is (not changes and definition.name != "check_job")
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
    process_ids = await pids(runtime)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.log.results[0].error_code is ErrorCode.TOOL_ABORTED
    assert "still be running" not in str(bench.log.results[0].content)
    assert await eventually(lambda: not any(map(alive, process_ids)))


def test_an_operation_can_be_serialized() -> None:
    operation = EditFile(path="a", old="b", new="c")
    assert msgspec.json.decode(msgspec.json.encode(operation), type=Operation) == operation
