"""`bartack sessions post`, `approve` and the others, from another process while a run is live."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bartack import ErrorCode, Message, ModelChange, ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, LiveApprover, Run
from bartack.models import ScriptedModel
from bartack.store import SessionStore, open_store
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
        status, _, err = await bartack(address, "approve", SESSION, "c1", "--arguments", '{"amount": "much"}')
        assert (status, "Invalid arguments" in err) == (2, True)
        status, out, _ = await bartack(address, "approve", SESSION, "c1", "--arguments", '{"amount": 1}', "--json")
        assert (status, json.loads(out)["payload"]["decision"]) == (0, "modify_args")
        status, out, err = await bartack(address, "deny", SESSION, "c2", "--reason", "no", "--by", "ann")
        assert (status, out.startswith("denied: entry "), err) == (0, True, "")
        assert (await within(run.wait())).output == "Done."
    found = await results(store)
    assert str(found["c1"].content).startswith("moved 1")
    assert (found["c2"].error_code, found["c2"].content) == (ErrorCode.TOOL_DENIED, "The call was denied: no")
    status, _, err = await bartack(address, "approve", SESSION, "c1")
    assert (status, "already acted on" in err, "no call is awaiting approval" in err) == (1, True, True)
    await store.close()


async def test_a_call_of_a_sub_agent_is_decided_from_the_command_line(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    store = await open_store(address)
    inner = Agent(ScriptedModel([assistant(call("t", "transfer", amount=5)), "Moved."]), tools=[transfer])
    asked = assistant(ToolCall("a", "move", {"prompt": "5"}))
    agent = Agent(ScriptedModel([asked, "Done."]), tools=[inner.as_tool("move", "Moves money.")], store=store)
    await agent.run("Go", session=SESSION)
    status, out, err = await bartack(address, "approve", SESSION, "--json")
    assert (status, json.loads(out)["payload"]["toolCallId"]) == (0, "a/t"), err
    assert (await agent.resume(SESSION)).output == "Done."
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
