"""A server that misbehaves in any way costs one tool error; the run continues, and the next turn works."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from bartack import ErrorCode, ScriptedModel, ToolResult
from bartack.agent import Agent, EntryAppended
from bartack.nouns.entries import ToolProgress
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.tools import never
from bartack.tools.mcp import mcp, server, transports
from bartack.tools.mcp.supervisor import descendants
from tests.tools.mcp.kit import agent_with, calls, fault_server, results_of, until

ECHO = ("f_echo", {"text": "hi"})


def text_of(result: ToolResult) -> str:
    assert isinstance(result.content, str)
    return result.content


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("crash", "it exited with code 3"),
        ("flood", "it sends too many notifications"),
        ("garbage", "it sends data that is not JSON-RPC"),
        ("huge_line", "it sent a message of more than"),
    ],
)
async def test_a_server_that_breaks_during_a_call_is_one_error_and_the_next_turn_works(
    fault: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "MAX_MESSAGE_BYTES", 2_000_000)
    monkeypatch.setattr(transports, "MAX_NOTIFICATIONS", 2_000)
    broken, next_one = await results_of(fault_server(tmp_path), f"f_{fault}", ECHO)
    assert broken.error_code is ErrorCode.TOOL_FAILED
    assert text_of(broken).startswith(f"MCP server 'f' failed during the call: {reason}")
    assert text_of(next_one) == "echo: hi"


@pytest.mark.parametrize("fault", ["hang", "freeze"])
async def test_a_call_without_an_answer_times_out_and_a_server_that_is_stuck_is_replaced(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_CHECK_S", 0.5)
    stuck, next_one = await results_of(fault_server(tmp_path, timeout_ms=2_000), f"f_{fault}", ECHO)
    assert stuck.error_code is ErrorCode.TOOL_TIMEOUT
    assert text_of(stuck) == "MCP server 'f' did not answer within 2 s."
    assert text_of(next_one) == "echo: hi"


async def test_a_call_that_is_given_up_is_cancelled_at_the_server(tmp_path: Path) -> None:
    hung, counts = await results_of(fault_server(tmp_path, timeout_ms=2_000), "f_hang", "f_seen")
    assert hung.error_code is ErrorCode.TOOL_TIMEOUT
    assert json.loads(text_of(counts))["cancelled"] == 1


async def test_aborting_the_run_cancels_the_call(tmp_path: Path) -> None:
    shared = fault_server(tmp_path)
    async with agent_with(shared, "f_hang") as agent:
        async with agent.stream("go", session="s") as run:
            async for event in run:
                if isinstance(event, EntryAppended) and isinstance(event.entry.fact, ToolProgress):
                    run.abort()
        assert run.result.status is AgentStatus.ABORTED
        counts = (await agent_with(shared, "f_seen").run("go")).messages[2].tool_results[0]
        assert json.loads(text_of(counts))["cancelled"] == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("exit",), "it exited with code 7"),
        (("silent",), "it did not respond within 0.5 s"),
        (("garbage",), "it sends data that is not JSON-RPC"),
    ],
)
async def test_a_server_that_does_not_start_is_an_error_of_the_call_alone(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    options = {"connect_timeout_ms": 500} if words == ("silent",) else {}
    broken = fault_server(tmp_path, *words, **options)
    async with agent_with(broken, ECHO) as agent:
        result = await agent.run("go")
        assert result.output == "done"
        status = broken.status
        assert (status.state, status.problem) == ("failed", reason)
        [answer] = result.messages[2].tool_results
    assert answer.error_code is ErrorCode.TOOL_NOT_FOUND
    assert text_of(answer).startswith(f"MCP server 'f' is not available: {reason}.")
    assert "cannot open the database" in status.stderr or words != ("exit",)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("bartack-no-such-program", "the command 'bartack-no-such-program' was not found"),
        ("./no-such-script", "no-such-script' was not found"),
        ("http://127.0.0.1:1/mcp", "ConnectError"),
    ],
)
async def test_a_missing_server_is_named_in_the_error(command: str, reason: str, tmp_path: Path) -> None:
    missing = mcp(command, name="f", known_tools=tmp_path / "known.json")
    [answer] = await results_of(missing, ECHO)
    assert text_of(answer).startswith("MCP server 'f' is not available: ")
    assert reason in text_of(answer)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path, cwd=tmp_path / "nowhere"), ECHO)
    assert "nowhere' does not exist" in text_of(answer)


async def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path, env={"TOKEN": "${BARTACK_NO_SUCH_NAME}"}), ECHO)
    assert "BARTACK_NO_SUCH_NAME is not set" in text_of(answer)


async def test_a_server_that_fails_once_is_connected_in_the_next_turn(tmp_path: Path) -> None:
    flaky = fault_server(tmp_path, "exit", str(tmp_path / "state"))
    # Asking about the newest protocol makes the first process exit; the second start is the first one that counts.
    first, second = await results_of(flaky, ECHO, ECHO)
    assert text_of(second) == "echo: hi"
    assert first.error_code in (None, ErrorCode.TOOL_NOT_FOUND)


async def test_attempts_to_connect_are_delayed_more_and_more(tmp_path: Path) -> None:
    broken = fault_server(tmp_path, "exit")
    await broken.open()  # the first failure: the next attempt may follow at once
    clock = asyncio.get_running_loop().time
    delays = []
    for _ in range(10):
        broken._fail("it exited with code 7", "")
        delays.append(round(broken._retry_at - clock(), 1))
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    await broken.open()  # too early: nothing is started
    assert broken._failures == 11
    assert "The next attempt to connect is possible in 60 s." in str(broken.problem("f_echo"))
    await broken.close()


async def test_a_server_that_exits_when_asked_about_newer_protocols_is_started_again(tmp_path: Path) -> None:
    server = fault_server(tmp_path, "old")
    [answer] = await results_of(server, ECHO)
    assert text_of(answer) == "echo: hi"


async def test_a_banner_is_ignored(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path), "f_some_garbage")
    assert text_of(answer) == "after some garbage"


async def test_invalid_answers_and_errors_of_the_server_are_tool_errors(tmp_path: Path) -> None:
    invalid, refused, failed = await results_of(fault_server(tmp_path), "f_bad_result", "f_rpc_error", "f_tool_error")
    assert (invalid.is_error, text_of(invalid)) == (True, "MCP server 'f' sent an invalid answer.")
    assert (refused.is_error, text_of(refused)) == (True, "MCP server 'f': failed with None")
    assert (failed.error_code, text_of(failed)) == (ErrorCode.TOOL_FAILED, "it failed on purpose")


async def test_a_large_result_is_cut_and_kept_whole_in_a_file(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path, max_output_chars=1_000), "f_huge_text")
    assert isinstance(answer.content, tuple)
    excerpt, file = answer.content
    assert len(excerpt.text) < 1_100  # type: ignore[union-attr]
    assert file.data == b"y" * 1_000_000  # type: ignore[union-attr]


async def test_progress_is_recorded_and_restarts_the_clock(tmp_path: Path) -> None:
    store = MemoryStore()
    [answer] = await results_of(fault_server(tmp_path, timeout_ms=3_000), "f_progress", store=store)
    assert text_of(answer) == "done"  # after 4 s
    [info] = (await store.sessions(10)).items
    steps = [entry.fact for entry in await store.load(info.id) if isinstance(entry.fact, ToolProgress)]
    assert [step.content for step in steps] == [f"{number} of 5" for number in range(1, 6)]


async def test_a_server_that_refuses_to_list_its_tools_is_connected_again(tmp_path: Path) -> None:
    refused, works = await results_of(fault_server(tmp_path), "f_refuse", ECHO)
    assert text_of(refused) == "refused"
    assert text_of(works) == "echo: hi"


async def test_a_flood_of_progress_is_stored_in_part(tmp_path: Path) -> None:
    store = MemoryStore()
    [answer] = await results_of(fault_server(tmp_path), "f_progress_flood", store=store)
    assert text_of(answer) == "done"
    [info] = (await store.sessions(10)).items
    steps = [entry.fact for entry in await store.load(info.id) if isinstance(entry.fact, ToolProgress)]
    assert 1 <= len(steps) < 1_000
    assert all(len(step.content) <= 1_000 for step in steps)


async def test_tools_that_would_fill_the_context_are_left_out(tmp_path: Path) -> None:
    server = fault_server(tmp_path, "many")
    await server.open()
    assert len(server.tools) < 100
    assert ("big99", "the tools of this server exceed 200,000 characters") in server.status.left_out
    await server.close()


async def test_two_servers_do_not_affect_each_other(tmp_path: Path) -> None:
    well = fault_server(tmp_path)
    broken = fault_server(tmp_path, "exit", name="g")
    script = ScriptedModel(calls(("g_echo", {"text": "x"}), ECHO))
    async with Agent(script, tools=[broken, well], store="memory:", approval=never) as agent:
        result = await agent.run("go")
        first, second = (tool_result for message in result.messages for tool_result in message.tool_results)
    assert first.error_code is ErrorCode.TOOL_NOT_FOUND
    assert text_of(second) == "echo: hi"


async def test_a_server_that_is_opened_while_it_is_closed_leaves_no_process(tmp_path: Path) -> None:
    before = {*descendants(os.getpid())}  # processes of other tests
    shared = fault_server(tmp_path)
    await asyncio.gather(*(shared.open() for _ in range(10)))
    assert len({*descendants(os.getpid())} - before) == 2  # one supervisor and its server
    closing = asyncio.create_task(shared.close())
    await asyncio.sleep(0)
    opening = asyncio.create_task(shared.open())
    await closing
    await asyncio.gather(opening, shared.open())
    assert shared.status.state == "connected"
    await shared.close()
    await until(lambda: before.issuperset(descendants(os.getpid())))


async def test_a_server_is_used_again_in_another_event_loop(tmp_path: Path) -> None:
    before = {*descendants(os.getpid())}  # processes of other tests
    shared = fault_server(tmp_path)
    agent = agent_with(shared, ECHO)

    def elsewhere() -> str:
        agent = agent_with(shared, ECHO)
        return text_of(agent.run_sync("go").messages[2].tool_results[0])

    assert await asyncio.to_thread(elsewhere) == "echo: hi"
    assert text_of((await agent.run("go")).messages[2].tool_results[0]) == "echo: hi"
    await agent.close()
    await until(lambda: before.issuperset(descendants(os.getpid())))
