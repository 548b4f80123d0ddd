"""An agent with a runtime: it is connected once, recorded in the session, and its hints are in the system prompt."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from bartack import AgentConfig, ContextConfig, ErrorCode, PartValidationError, ToolCall, ToolResult, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.config import RuntimeConfig
from bartack.nouns.entries import RuntimeInit
from bartack.nouns.messages import FileDiff, Summary, Workspace
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore, open_store
from bartack.store.address import default_path
from bartack.tools import LocalRuntime, file_tools, never
from bartack.views import document
from bartack.views.document_parts import AssistantInfo, DocumentModel, StepFinishPart, StepStartPart, UserInfo
from tests.agent.kit import SESSION, check_session, facts, kinds, make, results


async def test_the_runtime_is_recorded_once_and_its_tools_work(tmp_path: Path) -> None:
    """001-7.2"""
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


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("address", "file"),
    [("sqlite:{}/sessions.db", "sessions.db"), ("jsonl:{}/sessions", "sessions/bartack-store.json")],
)
async def test_a_runtime_from_the_configuration_cannot_read_the_session_store(
    tmp_path: Path, address: str, file: str, is_open: bool
) -> None:
    url = address.format(tmp_path)
    store = await open_store(url)
    results = await read_files(tmp_path, "a.txt", file, store=store if is_open else url)
    await store.close()
    assert (tmp_path / file).is_file()
    assert not results[0].is_error
    assert "is not allowed" in str(results[1].content)


async def test_a_runtime_from_the_configuration_cannot_read_the_default_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    results = await read_files(tmp_path, "a.txt", "bartack/sessions.db", store=None)
    assert default_path() == tmp_path / "bartack" / "sessions.db"
    assert not results[0].is_error
    assert "is not allowed" in str(results[1].content)


async def read_files(root: Path, *paths: str, store: SessionStore | str | None) -> list[ToolResult]:
    """The results of an agent that reads these files below `root`, the first of which is created here."""
    (root / paths[0]).write_text("hello")
    read = assistant(*(ToolCall(path, "read_file", {"path": path}) for path in paths))
    config = AgentConfig(runtime=RuntimeConfig(root=str(root)))
    async with Agent(ScriptedModel([read, "Done."]), tools=file_tools(), config=config, store=store) as agent:
        result = await agent.run("Read", session=SESSION)
    results = {part.tool_call_id: part for message in result.messages for part in message.tool_results}
    return [results[path] for path in paths]  # calls that run in parallel end in any order


def test_an_unknown_kind_of_runtime_is_an_error() -> None:
    with pytest.raises(PartValidationError):
        Agent(ScriptedModel([]), config=AgentConfig(runtime=RuntimeConfig(kind="moon", root="/")))


def test_a_kind_of_runtime_that_is_not_known_is_refused() -> None:
    """004-agent-config.1"""
    config = AgentConfig(runtime=RuntimeConfig(kind="docker"))
    with pytest.raises(PartValidationError, match="Unknown runtime kind 'docker'") as caught:
        Agent(ScriptedModel([]), config=config)
    assert (caught.value.path, caught.value.code) == ("$.runtime.kind", ErrorCode.INVALID_CONFIG)


async def test_the_steps_of_a_document_have_the_snapshots_and_the_summary_the_changes(tmp_path: Path) -> None:
    """003-3.6.1, 003-3.6.2, 003-3.8.1, 003-3.8.2"""
    await asyncio.to_thread(subprocess.run, ["git", "init", "--quiet", str(tmp_path)], check=True)
    write = assistant(ToolCall("c1", "write_file", {"path": "b.txt", "text": "x\n"}))
    story = "A long story. " * 600
    config = AgentConfig(
        runtime=RuntimeConfig(root=str(tmp_path), snapshots=True),
        context=ContextConfig(max_tokens=8_000),
    )
    answers: list[ScriptedResponse] = [write, story, story, "A summary.\nOf it."]
    agent, store, _ = make(answers, *file_tools(), config=config, approval=never, name="helper")
    await agent.run("Write", session=SESSION)
    await agent.run("And tell", session=SESSION)
    assert (await agent.compact(SESSION)).reason == "compacted"
    messages = document.Document.of(await store.load(SESSION)).messages()
    steps = [part for message in messages for part in message.parts if isinstance(part, StepStartPart | StepFinishPart)]
    before, later_snapshot, *later = (step.snapshot for step in steps)
    assert before is not None
    assert later_snapshot not in (None, before)
    assert set(later) == {later_snapshot}
    _, answer, _, prompt, _ = (message.info for message in messages)
    assert isinstance(prompt, UserInfo)
    assert isinstance(answer, AssistantInfo)
    assert (prompt.agent, prompt.model) == ("helper", DocumentModel("scripted", "scripted"))
    assert prompt.tools == {tool.name: True for tool in file_tools()}
    assert answer.path == Workspace(str(tmp_path), str(tmp_path))
    changed = (FileDiff(file="b.txt", additions=1, deletions=0),)
    assert prompt.summary == Summary(title="A summary.", body="A summary.\nOf it.", diffs=changed)
    await agent.close()
