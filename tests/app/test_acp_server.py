"""`EditorAgent` with an editor in this process: sessions that are opened again, MCP servers, and starts that fail."""

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
from bartack.tools import Approver
from bartack.tools.mcp import McpServer
from tests.tools.mcp.kit import FAULT_SERVER


class Editor:
    """What an editor shows, and what it was asked. It allows everything."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[Any] = []

    async def session_update(self, session_id: str, update: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any) -> Any:
        self.questions.append(tool_call)
        outcome = wire.AllowedOutcome(option_id="allow", outcome="selected")
        return wire.RequestPermissionResponse(outcome=outcome)

    def text(self) -> str:
        chunks = [one for one in self.updates if one.session_update == "agent_message_chunk"]
        return "".join(one.content.text for one in chunks)


class Opened:
    """An agent with an editor and a store."""

    def __init__(self, *script: Any, **settings: Any) -> None:
        self.store, self.editor = MemoryStore(), Editor()
        model = ScriptedModel(list(script))

        def make(runtime: EditorRuntime, approver: Approver, servers: Sequence[McpServer]) -> Agent:
            return Agent(model, tools=servers, store=self.store, runtime=runtime, approver=approver, **settings)

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

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

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
