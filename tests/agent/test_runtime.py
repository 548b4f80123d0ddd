"""An agent with a runtime: it is connected once, recorded in the session, and its hints are in the system prompt."""

from pathlib import Path

import pytest

from bartack import AgentConfig, AgentStatus, PartValidationError, RuntimeConfig, RuntimeInit, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.tools import LocalRuntime, file_tools, never
from tests.agent.kit import SESSION, check_session, facts, kinds, make, results


async def test_the_runtime_is_recorded_once_and_its_tools_work(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    read = assistant(ToolCall("c1", "read_file", {"path": "a.txt"}))
    runtime = LocalRuntime(tmp_path)
    agent, store, model = make([read, "It says hello.", "Bye."], *file_tools(), runtime=runtime, instructions="Help.")
    assert (await agent.run("What does it say?", session=SESSION)).output == "It says hello."
    assert "hello" in str((await results(store))["c1"].content)
    await agent.run("Thanks", session=SESSION)
    assert (await kinds(store)).count("runtime_init") == 1
    fact = next(fact for fact in await facts(store) if isinstance(fact, RuntimeInit))
    assert fact.runtime == runtime.name
    assert model.calls[0].messages[0].text.startswith("Help.")
    assert runtime.get_hints() in model.calls[0].messages[0].text
    await agent.close()
    assert runtime.status == "closed"


async def test_writing_awaits_approval_unless_the_policy_allows_it(tmp_path: Path) -> None:
    write = assistant(ToolCall("c1", "write_file", {"path": "b.txt", "text": "x"}))
    agent, store, _ = make([write, "Written."], *file_tools(), runtime=LocalRuntime(tmp_path))
    assert (await agent.run("Write", session=SESSION)).status is AgentStatus.AWAITING_HUMAN
    assert not (tmp_path / "b.txt").exists()
    await agent.close()
    agent, store, _ = make([write, "Written."], *file_tools(), runtime=LocalRuntime(tmp_path), approval=never)
    assert (await agent.run("Write", session=SESSION)).output == "Written."
    assert (tmp_path / "b.txt").read_text() == "x"
    await check_session(store)
    await agent.close()


async def test_a_runtime_from_the_configuration_cannot_read_the_session_store(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    config = AgentConfig(runtime=RuntimeConfig(root=str(tmp_path)))
    read = assistant(
        ToolCall("c1", "read_file", {"path": "a.txt"}), ToolCall("c2", "read_file", {"path": "sessions.db"})
    )
    async with Agent(
        ScriptedModel([read, "Done."]), tools=file_tools(), config=config, store=tmp_path / "sessions.db"
    ) as agent:
        result = await agent.run("Read", session=SESSION)
    found = {part.tool_call_id: part for message in result.messages for part in message.tool_results}
    assert (found["c1"].is_error, found["c2"].is_error) == (False, True)
    with pytest.raises(PartValidationError):
        Agent(ScriptedModel([]), config=AgentConfig(runtime=RuntimeConfig(kind="moon", root="/")))
