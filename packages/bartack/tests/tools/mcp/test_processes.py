"""No process of a server is left behind, however this one ends; and a server gets no secrets that are not for it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.tools.mcp import McpServer
from bartack.tools.mcp import supervisor as supervisor_module
from lab.repository import ROOT
from tests.tools.mcp.kit import agent_with, fault_server, is_alive, results_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def spawned(server: McpServer) -> list[int]:
    """The ids of the server process and of two processes that it started and that ignore SIGTERM."""
    async with agent_with(server, "f_spawn") as agent:
        [result] = (await agent.run("go")).messages[2].tool_results
        pids: list[int] = json.loads(str(result.content))
        assert all(map(is_alive, pids))
        return pids


async def test_closing_the_agent_ends_the_server_and_everything_it_started(tmp_path: Path) -> None:
    pids = await spawned(fault_server(tmp_path))
    assert not any(map(is_alive, pids))


CLIENT = """
import asyncio, sys
from pathlib import Path
from tests.tools.mcp.kit import agent_with, fault_server

async def main():
    server = fault_server(Path(sys.argv[1]))
    agent = agent_with(server, "f_spawn")
    result = await agent.run("go")
    print(result.messages[2].tool_results[0].content, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_killing_the_client_ends_the_server_and_everything_it_started(tmp_path: Path) -> None:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(tmp_path), stdout=subprocess.PIPE, cwd=ROOT
    )
    assert client.stdout is not None
    pids: list[int] = json.loads(await client.stdout.readline())
    assert all(map(is_alive, pids))
    client.kill()
    await client.wait()
    await until(lambda: not any(map(is_alive, pids)))


async def test_killing_the_supervisor_ends_the_server_too(tmp_path: Path) -> None:
    server = fault_server(tmp_path)
    async with agent_with(server, "f_spawn") as agent:
        [result] = (await agent.run("go")).messages[2].tool_results
        pid, *_ = json.loads(str(result.content))
        os.kill(parent_of(pid), signal.SIGKILL)
        await until(lambda: not is_alive(pid))
        await until(lambda: server._connection is None or server._connection.failure is not None)
        again = agent_with(server, ("f_echo", {"text": "hi"}))
        assert (await again.run("go")).messages[2].tool_results[0].content == "echo: hi"
    for survivor in json.loads(str(result.content))[1:]:
        os.kill(survivor, signal.SIGKILL)


async def test_a_server_that_crashes_leaves_nothing_it_started(tmp_path: Path) -> None:
    server = fault_server(tmp_path)
    spawn, crash, echo = await results_of(server, "f_spawn", "f_crash", ("f_echo", {"text": "hi"}))
    assert crash.is_error
    assert echo.content == "echo: hi"
    await until(lambda: not any(map(is_alive, json.loads(str(spawn.content)))))


async def test_a_server_gets_harmless_variables_and_those_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-servers")
    monkeypatch.setenv("FAULT_SECRET", "a-secret-value")
    server = fault_server(tmp_path, env={"FAULT_TOKEN": "${FAULT_SECRET}", "FAULT_MODE": "${FAULT_UNSET:-plain}"})
    allowed, refused = await results_of(server, "f_environment", "f_rpc_error")
    environment = json.loads(str(allowed.content))
    assert environment["FAULT_TOKEN"] == "a-secret-value"
    assert environment["FAULT_MODE"] == "plain"
    assert environment.keys() & {"ANTHROPIC_API_KEY", "FAULT_SECRET"} == set()
    assert refused.content == "MCP server 'f': failed with ${FAULT_TOKEN}"  # not its value


def test_the_supervisor_reports_what_cannot_be_started_and_passes_on_exit_codes() -> None:
    supervisor = [sys.executable, "-I", "-S", supervisor_module.__file__]
    read, write = os.pipe()
    for command, code, stderr in (
        (["/no/such/program"], 127, b"/no/such/program: No such file or directory\n"),
        ([sys.executable, "-c", "import sys; sys.exit(5)"], 5, b""),
    ):
        done = subprocess.run([*supervisor, str(read), *command], pass_fds=(read,), capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (code, stderr)
    os.close(read)
    os.close(write)
