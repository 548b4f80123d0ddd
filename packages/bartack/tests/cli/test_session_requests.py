"""`bartack sessions post`, `approve` and the others, from another process while a run is live."""

import asyncio
import json
import os
import pty
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bartack import ErrorCode, Message, ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, LiveApprover, Run
from bartack.models import ScriptedModel
from bartack.nouns.entries import ApprovalDecided, ModelChange
from bartack.session.decisions import question_digest
from bartack.store import SessionStore, open_store
from bartack.store.requests import pending_approvals
from bartack.tools import LocalRuntime, file_tools
from tests.agent.kit import SESSION, Waiting, call, facts, kinds, messages, results, transfer, within

ASK = assistant(call("c1", "transfer", amount=5), call("c2", "transfer", amount=6))


async def bartack(address: str, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bartack.cli", "sessions", *words),
        env=os.environ | {"BARTACK_STORE": address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await within(process.communicate())
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture(params=["sqlite", "jsonl"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / 'store'}"


async def test_calls_of_a_live_run_are_decided_from_the_command_line(address: str) -> None:
    store = await open_store(address)
    agent = Agent(ScriptedModel([ASK, "Done."]), tools=[transfer], store=store, approver=LiveApprover())
    async with agent.stream("Go", session=SESSION) as run:
        await within(_asked(run, 2))
        status, _, err = await bartack(address, "approve", SESSION)
        assert (status, 'awaiting approval: c1 (transfer {"amount":5}), c2 ' in err) == (2, True)
        status, _, err = await bartack(address, "approve", SESSION, "c1")
        assert (status, "pass --question" in err) == (2, True)  # nobody has seen what is approved
        question = ("--question", await _digest(store, "c1"))
        status, _, err = await bartack(address, "approve", SESSION, "c1", *question, "--arguments", '{"amount": "x"}')
        assert (status, "Invalid arguments" in err) == (2, True)
        changed = ("--arguments", '{"amount": 1}', "--json")
        status, out, _ = await bartack(address, "approve", SESSION, "c1", *question, *changed)
        assert (status, json.loads(out)["payload"]["decision"]) == (0, "modify_args")
        status, out, err = await bartack(address, "deny", SESSION, "c2", "--reason", "no", "--by", "ann")
        assert (status, out.startswith("denied: entry "), err) == (0, True, "")
        assert (await within(run.wait())).output == "Done."
    stored = await results(store)
    assert str(stored["c1"].content).startswith("moved 1")
    assert (stored["c2"].error_code, stored["c2"].content) == (ErrorCode.TOOL_DENIED, "The call was denied: no")
    status, _, err = await bartack(address, "approve", SESSION, "c1")
    assert (status, "already acted on" in err, "no call is awaiting approval" in err) == (1, True, True)
    await store.close()


async def test_a_call_of_a_sub_agent_is_decided_from_the_command_line(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    store = await open_store(address)
    inner = Agent(ScriptedModel([assistant(call("t", "transfer", amount=5)), "Moved."]), tools=[transfer])
    request = assistant(ToolCall("a", "move", {"prompt": "5"}))
    agent = Agent(ScriptedModel([request, "Done."]), tools=[inner.as_tool("move", "Moves money.")], store=store)
    await agent.run("Go", session=SESSION)
    digest = await _digest(store, "a/t")
    status, out, err = await bartack(address, "approve", SESSION, "--question", digest, "--json")
    assert (status, json.loads(out)["payload"]["toolCallId"]) == (0, "a/t"), err
    assert (await agent.resume(SESSION)).output == "Done."
    await store.close()


async def _digest(store: SessionStore, call_id: str) -> str:
    """The digest of the question about a call."""
    questions = {question.tool_call_id: question for question in await pending_approvals(store, SESSION)}
    return question_digest(questions[call_id])


async def test_an_approval_from_another_process_is_of_the_question_that_was_shown(tmp_path: Path) -> None:
    address, file = f"sqlite:{tmp_path / 'store'}", tmp_path / "work" / "a.txt"
    file.parent.mkdir()
    file.write_text("mine\n")
    store = await open_store(address)
    write = assistant(ToolCall("c1", "write_file", {"path": "a.txt", "text": "theirs\n"}))
    model = ScriptedModel([write, "Done."])
    async with Agent(model, tools=file_tools(), runtime=LocalRuntime(file.parent), store=store) as agent:
        await agent.run("Write", session=SESSION)
        first = await _digest(store, "c1")
        _, shown, _ = await bartack(address, "show", SESSION)
        assert f"Question {first}:" in shown
        assert '  | ["-",1,"mine"]' in shown
        file.write_text("saved meanwhile\n")
        status, _, err = await bartack(address, "approve", SESSION, "--question", first)
        assert (status, err) == (0, "")
        assert (await agent.resume(SESSION)).status == "awaiting_human"  # it is asked about again
        status, _, err = await bartack(address, "approve", SESSION, "--question", first)
        assert (status, "another question" in err, "sessions show" in err) == (1, True, True)
        assert (await agent.resume(SESSION)).status == "awaiting_human"
        assert file.read_text() == "saved meanwhile\n"
        status, out, _ = await bartack(address, "show", SESSION, "--json")
        (question,) = json.loads(out)["questions"]
        assert question["questionDigest"] == await _digest(store, "c1") != first
        await bartack(address, "approve", SESSION, "--question", question["questionDigest"])
        assert (await agent.resume(SESSION)).output == "Done."
    assert file.read_text() == "theirs\n"
    await store.close()


async def test_a_command_that_hides_between_blank_lines_is_shown_whole(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    command = "echo safe" + "\n" * 60 + "touch hidden.txt\x1b[8m" + "\n" * 60 + "echo safe"
    store = await open_store(address)
    run = assistant(ToolCall("c1", "run_command", {"command": command}))
    async with Agent(ScriptedModel([run]), tools=file_tools(), runtime=LocalRuntime(tmp_path), store=store) as agent:
        await agent.run("Go", session=SESSION)
    _, shown, _ = await bartack(address, "show", SESSION)
    question = shown[shown.index("Allow the tool run_command?") :]
    lines = question.rstrip("\n").split("\n")[1:]
    assert question.startswith(f"Allow the tool run_command? {len(lines)} lines, ")
    assert "  | touch hidden.txt\\x1b[8m" in lines
    assert lines.count("  | ") == 118
    await store.close()


def answer_in_terminal(address: str, call_id: str, key: bytes) -> tuple[int, list[str]]:
    """Answer the question of a process in a window of 80 by 24; its exit status, and what it showed before each key."""
    process, terminal = pty.fork()
    if process == 0:
        arguments = [sys.executable, "-m", "bartack.cli", "sessions", "approve", SESSION, call_id]
        own = {"BARTACK_STORE": address, "COLUMNS": "80", "LINES": "24"}
        os.execve(sys.executable, arguments, os.environ | own)
    windows, screen = [], b""
    with suppress(OSError):  # the end of a pseudo-terminal
        while piece := os.read(terminal, 4096):
            screen += piece
            if screen.endswith((b"Enter shows more] ", b"Approve? [y/N]: ")):
                windows.append(screen.decode())
                os.write(terminal, key if b"Approve?" in screen else b"\n")
                screen = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), windows


async def test_on_a_terminal_no_part_of_a_question_scrolls_by_unseen(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    hidden = "echo safe" + "\n" * 60 + "touch hidden.txt; echo " + "é" * 200 + "\n" * 60 + "echo safe"
    store = await open_store(address)
    run = assistant(ToolCall("c1", "run_command", {"command": hidden}))
    async with Agent(ScriptedModel([run]), tools=file_tools(), runtime=LocalRuntime(tmp_path), store=store) as agent:
        await agent.run("Go", session=SESSION)
    status, windows = await within(asyncio.to_thread(answer_in_terminal, address, "c1", b"n\n"))
    assert status == 1
    assert len(windows) > 5
    lines = [window.split("\r\n") for window in windows]
    assert max(map(len, lines)) <= 24
    shown = "".join(windows)
    assert "  | touch hidden.txt; echo é" in shown
    assert shown.count("\r\n  ... é") == 6
    assert all(len(line) <= 80 for window in lines for line in window)
    await store.close()


async def test_on_a_terminal_the_question_is_shown_whole_before_it_is_approved(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    store = await open_store(address)
    agent = Agent(ScriptedModel([ASK, "Done."]), tools=[transfer], store=store)
    await agent.run("Go", session=SESSION)

    status, screen = await within(asyncio.to_thread(answer_in_terminal, address, "c1", b"n\n"))
    (window,) = screen
    assert (status, "Allow the tool transfer? 1 line" in window, "amount: 5" in window) == (1, True, True)
    status, _ = await within(asyncio.to_thread(answer_in_terminal, address, "c2", b"y\n"))
    decided = [fact for fact in await facts(store) if isinstance(fact, ApprovalDecided)]
    assert (status, [fact.tool_call_id for fact in decided]) == (0, ["c2"])
    await store.close()


async def _asked(run: Run, count: int) -> None:
    """Read the events until this many approvals were requested."""
    async for event in run:
        count -= isinstance(event, ApprovalRequested)
        if not count:
            return


async def test_messages_models_notes_and_redactions_reach_a_live_run(address: str) -> None:
    store, waiting = await open_store(address), Waiting()
    second = ScriptedModel(["As you wish.", "And that."], model_id="second")
    model = ScriptedModel([assistant(ToolCall("c1", "wait", {})), "never"])
    agent = Agent(model, tools=[waiting.tool], store=store, fallback_models=[second])
    task = asyncio.create_task(agent.run("My password is xyzzy", session=SESSION))
    await within(waiting.started.wait())
    prompt = await _prompt_id(store)
    for words in (
        ("post", SESSION, "Rather Rome", "--steer"),
        ("post", SESSION, "And Oslo?", "--by", "ann"),
        ("note", SESSION, "reviewed"),
        ("redact", SESSION, prompt, "--reason", "a secret"),
        ("switch", SESSION, "scripted:second"),
    ):
        status, _, err = await bartack(address, *words)
        assert (status, err) == (0, ""), words
    waiting.proceed.set()
    assert (await within(task)).output == "And that."
    assert [message.text for message in await messages(store) if message.role == "user"][1:] == [
        "Rather Rome",
        "And Oslo?",
    ]
    assert "xyzzy" not in repr(second.calls)
    assert [fact.model.model for fact in await facts(store) if isinstance(fact, ModelChange)] == ["second"]
    assert (await kinds(store)).count("custom") == 1
    await store.close()


async def _prompt_id(store: SessionStore) -> str:
    entries = await store.load(SESSION)
    return next(entry.id for entry in entries if isinstance(entry.fact, Message) and entry.fact.role == "user")


async def test_a_live_run_is_aborted_from_the_command_line(address: str) -> None:
    store, waiting = await open_store(address), Waiting()
    agent = Agent(ScriptedModel([assistant(ToolCall("c1", "wait", {}))]), tools=[waiting.tool], store=store)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    status, out, _ = await bartack(address, "abort", SESSION, "--reason", "enough")
    assert (status, out.startswith("abort requested: entry ")) == (0, True)
    result = await within(task)
    assert (result.status, result.reason) == ("aborted", "enough")
    status, _, err = await bartack(address, "abort", SESSION)
    assert (status, "has no open run" in err) == (1, True)
    status, _, err = await bartack(address, "post", "nowhere", "hello")
    assert (status, "does not exist" in err, "bartack sessions list" in err) == (1, True, True)
    await store.close()


@pytest.mark.parametrize("arguments", ["{", "[1]"])
async def test_arguments_must_be_a_json_object(tmp_path: Path, arguments: str) -> None:
    status, _, err = await bartack(f"jsonl:{tmp_path}", "approve", SESSION, "c1", "--arguments", arguments)
    assert (status, "--arguments" in err) == (2, True)
