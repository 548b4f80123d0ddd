"""`EditorAgent` with an editor in this process: sessions that are opened again, MCP servers, and starts that fail."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp", reason="the extra acp is not installed")

from acp import RequestError
from acp import schema as wire

from bartack import Agent, BartackError, ErrorCode, MemoryStore, ScriptedModel, ToolCall, assistant, tool
from bartack.agent import PromptContext
from bartack.app.acp_server import EditorAgent
from bartack.app.editor_runtime import EditorRuntime
from bartack.app.sessions import ensure_session, latest_session_here
from bartack.tools import Approver, ToolDefinition
from bartack.tools.mcp import McpServer
from tests.tools.mcp.kit import FAULT_SERVER


@tool(requires_approval=True)
async def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


class Editor:
    """What an editor shows, and what it was asked. It allows everything."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.options: list[Any] = []
        self.answer = "allow"

    async def session_update(self, session_id: str, update: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any) -> Any:
        self.questions.append(tool_call)
        self.options = options
        outcome = wire.AllowedOutcome(option_id=self.answer, outcome="selected")
        return wire.RequestPermissionResponse(outcome=outcome)

    def text(self) -> str:
        chunks = [one for one in self.updates if one.session_update == "agent_message_chunk"]
        return "".join(one.content.text for one in chunks)


class Opened:
    """An agent with an editor and a store."""

    def __init__(self, *script: Any, tools: Sequence[ToolDefinition] = (), **settings: Any) -> None:
        self.store, self.editor = MemoryStore(), Editor()
        model = ScriptedModel(list(script))

        def make(runtime: EditorRuntime, approver: Approver, servers: Sequence[McpServer]) -> Agent:
            own: list[ToolDefinition | McpServer] = [*tools, *servers]
            return Agent(model, tools=own, store=self.store, runtime=runtime, approver=approver, **settings)

        self.agent = EditorAgent(make, self.store)
        self.agent.on_connect(self.editor)  # type: ignore[arg-type]

    async def prompt(self, session_id: str, text: str) -> Any:
        return await self.agent.prompt(session_id, [wire.TextContentBlock(type="text", text=text)])


async def test_a_session_is_resumed_without_showing_it_again(tmp_path: Path) -> None:
    one = Opened("It rains.", "Still.")
    found = await one.agent.new_session(str(tmp_path))
    await one.prompt(found.session_id, "Will it rain?")
    await one.agent.close_session(found.session_id)
    one.editor.updates.clear()
    await one.agent.resume_session(found.session_id, str(tmp_path))
    assert one.editor.updates == []
    await one.prompt(found.session_id, "And now?")
    assert one.editor.text() == "Still."
    with pytest.raises(RequestError) as caught:
        await one.agent.resume_session("unknown", str(tmp_path))
    assert caught.value.code == -32002
    await one.agent.close()


async def test_the_mcp_servers_of_the_editor_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one = Opened(assistant(ToolCall("c1", "files_echo", {"text": "hello"})), "Done.")
    server = wire.McpServerStdio(name="files", command=sys.executable, args=["-I", str(FAULT_SERVER)], env=[])
    found = await one.agent.new_session(str(tmp_path), mcp_servers=[server])
    await one.prompt(found.session_id, "Go")
    ended = [update for update in one.editor.updates if getattr(update, "status", None) == "completed"]
    assert "hello" in str(ended[0].raw_output or ended[0].content)
    assert [question.title for question in one.editor.questions] == ["files_echo"]  # every call needs permission
    await one.agent.close()


async def test_a_server_over_http_is_accepted_and_one_over_sse_is_refused(tmp_path: Path) -> None:
    one = Opened("Hi.")
    offered = await one.agent.initialize(1)
    assert offered.agent_capabilities is not None
    assert offered.agent_capabilities.mcp_capabilities == wire.McpCapabilities(http=True)
    header = wire.HttpHeader(name="Authorization", value="Bearer x")
    http = wire.HttpMcpServer(type="http", name="h", url="http://127.0.0.1:9/mcp", headers=[header])
    await one.agent.new_session(str(tmp_path), mcp_servers=[http])
    sse = wire.SseMcpServer(type="sse", name="s", url="http://127.0.0.1:9/sse", headers=[])
    with pytest.raises(RequestError) as caught:
        await one.agent.new_session(str(tmp_path), mcp_servers=[sse])
    assert caught.value.code == -32602
    await one.agent.close()


async def test_a_prompt_that_cannot_start_leaves_no_session(tmp_path: Path) -> None:
    def missing(context: PromptContext[Any]) -> str:
        raise BartackError("No instructions.", code=ErrorCode.INVALID_CONFIG)

    one = Opened("never", instructions=missing)
    found = await one.agent.new_session(str(tmp_path))
    with pytest.raises(RequestError, match="No instructions"):
        await one.prompt(found.session_id, "Hello")
    assert (await one.store.sessions()).items == ()
    await one.agent.close()


async def test_a_prompt_instead_of_a_decision_about_a_call_of_before_is_answered(tmp_path: Path) -> None:
    one = Opened("Then not.")
    made = await one.agent.new_session(str(tmp_path))
    call = assistant(ToolCall("c1", "pay", {}))
    await Agent(ScriptedModel([call]), tools=[pay], store=one.store).run("Pay", session=made.session_id)
    reply = await one.prompt(made.session_id, "Never mind")
    assert (reply.stop_reason, one.editor.text()) == ("end_turn", "Then not.")
    await one.agent.close()


async def test_a_directory_lists_its_sessions_of_all_programs_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened("It rains.")
    monkeypatch.chdir(tmp_path)
    old = await ensure_session(opened.store, None, prompt="Old", program="chat")
    for number in range(60):  # more than a page
        await opened.store.create_session(f"other {number}")
    made = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(made.session_id, "Will it rain?")
    listed = await opened.agent.list_sessions(cwd=str(tmp_path))
    assert [(one.session_id, one.title) for one in listed.sessions] == [
        (made.session_id, "Will it rain?"),
        (old, "Old"),
    ]
    assert listed.next_cursor is None
    assert await latest_session_here(opened.store) == made.session_id, "the terminal finds it as well"
    first = await opened.agent.list_sessions()
    rest = await opened.agent.list_sessions(cursor=first.next_cursor)
    assert (len(first.sessions), len(rest.sessions), rest.next_cursor) == (50, 12, None)


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_prompt_can_be_cancelled_from_its_first_moment(tmp_path: Path, steps: int) -> None:
    one = Opened(assistant(ToolCall("c1", "pay", {})), "Done.", tools=[pay])
    made = await one.agent.new_session(str(tmp_path))
    prompt = asyncio.create_task(one.prompt(made.session_id, "Pay"))
    for _ in range(steps):
        await asyncio.sleep(0)
    await one.agent.cancel(made.session_id)
    assert (await prompt).stop_reason == "cancelled"
    await one.agent.close()


async def test_a_second_prompt_is_refused_and_the_first_can_still_be_cancelled(tmp_path: Path) -> None:
    one = Opened("It rains.")
    made = await one.agent.new_session(str(tmp_path))
    prompt = asyncio.create_task(one.prompt(made.session_id, "Will it rain?"))
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="in progress"):
        await one.prompt(made.session_id, "And now?")
    await one.agent.cancel(made.session_id)
    assert (await prompt).stop_reason == "cancelled"
    await one.agent.close()


@pytest.mark.parametrize("reopen", ["no", "load", "resume"])
async def test_a_model_that_uses_an_id_again_gets_another_call_in_the_editor(tmp_path: Path, reopen: str) -> None:
    calls = [assistant(ToolCall("c1", "pay", {"amount": amount})) for amount in (1, 2, 3)]
    one = Opened(calls[0], calls[1], "Paid.", calls[2], "Paid again.", tools=[pay])
    made = await one.agent.new_session(str(tmp_path))
    await one.prompt(made.session_id, "Pay twice")
    if reopen == "load":
        one.editor.updates.clear()
        await one.agent.load_session(str(tmp_path), made.session_id)
    if reopen == "resume":
        await one.agent.resume_session(made.session_id, str(tmp_path))
    await one.prompt(made.session_id, "And again")
    shown = [update.tool_call_id for update in one.editor.updates if update.session_update == "tool_call"]
    assert len(set(shown)) == len(shown) == 3
    assert one.editor.questions[-1].tool_call_id == shown[-1]
    ended = {one.tool_call_id: one.raw_output for one in one.editor.updates if getattr(one, "raw_output", None)}
    assert [ended[id] for id in shown] == ["paid 1", "paid 2", "paid 3"]
    await one.agent.close()


async def test_what_the_user_always_allows_is_not_asked_again_until_the_session_is_opened_again(tmp_path: Path) -> None:
    calls = [assistant(ToolCall(f"c{amount}", "pay", {"amount": amount})) for amount in (1, 2, 3)]
    one = Opened(calls[0], calls[1], "Paid.", calls[2], "Not paid.", tools=[pay])
    made = await one.agent.new_session(str(tmp_path))
    one.editor.answer = "always-0"
    await one.prompt(made.session_id, "Pay twice")
    assert [(option.kind, option.name) for option in one.editor.options] == [
        ("allow_once", "Allow"),
        ("allow_always", "Always allow every call of pay"),
        ("reject_once", "Reject"),
    ]
    assert len(one.editor.questions) == 1
    one.editor.answer = "always-7"  # which was not offered
    await one.agent.load_session(str(tmp_path), made.session_id)
    await one.prompt(made.session_id, "And again")
    assert len(one.editor.questions) == 2
    outputs = [update.raw_output for update in one.editor.updates if getattr(update, "status", None) == "completed"]
    assert "paid 3" not in outputs
    await one.agent.close()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_an_editor_gets_the_version_that_is_supported(version: int) -> None:
    assert (await Opened().agent.initialize(version)).protocol_version == 1
