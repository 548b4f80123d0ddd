"""`EditorAgent` with an editor in this process: sessions that are opened again, MCP servers, and starts that fail."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp", reason="the extra acp is not installed")

from acp import RequestError
from acp import schema as wire

from bartack import Agent, BartackError, ErrorCode, MemoryStore, ScriptedModel, ToolCall, assistant, tool, user
from bartack.agent import PromptContext
from bartack.app.sessions import ensure_session, latest_session_here
from bartack.store.foreign import adopt, mark_foreign
from bartack.store.requests import post
from bartack.tools import ToolDefinition, file_tools
from bartack.tools.mcp import McpServer
from bartack_code.editors.acp_server import EditorAgent, EditorApprover
from bartack_code.editors.editor_runtime import EditorRuntime
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
        chunks = [update for update in self.updates if update.session_update == "agent_message_chunk"]
        return "".join(chunk.content.text for chunk in chunks)


class Opened:
    """An agent with an editor and a store."""

    def __init__(self, *script: Any, tools: Sequence[ToolDefinition] = (), **settings: Any) -> None:
        self.store, self.editor = MemoryStore(), Editor()
        model = ScriptedModel(list(script))

        def make(runtime: EditorRuntime, approver: EditorApprover, servers: Sequence[McpServer]) -> Agent:
            own: list[ToolDefinition | McpServer] = [*tools, *servers]
            policy = approver.policy
            return Agent(
                model, tools=own, store=self.store, runtime=runtime, approver=approver, approval=policy, **settings
            )

        self.agent = EditorAgent(make, self.store)
        self.agent.on_connect(self.editor)  # type: ignore[arg-type]

    async def prompt(self, session_id: str, text: str) -> Any:
        return await self.agent.prompt(session_id, [wire.TextContentBlock(type="text", text=text)])


async def test_the_mode_of_a_session_decides_what_is_asked(tmp_path: Path) -> None:
    def write(name: str) -> Any:
        return assistant(ToolCall(name, "write_file", {"path": name, "text": "x"}))

    opened = Opened(write("a"), "Planned.", write("b"), "Written.", write("c"), "Written.", tools=file_tools())
    session = await opened.agent.new_session(str(tmp_path))
    assert session.modes is not None
    assert session.modes.current_mode_id == "ask"
    assert [mode.id for mode in session.modes.available_modes] == ["ask", "plan", "edit", "sandbox", "yes"]
    await opened.agent.set_session_mode(session.session_id, "plan")
    await opened.prompt(session.session_id, "write a")
    await opened.agent.set_session_mode(session.session_id, "edit")
    await opened.prompt(session.session_id, "write b")
    assert opened.editor.questions == []
    await opened.agent.set_session_mode(session.session_id, "ask")
    await opened.prompt(session.session_id, "write c")
    assert len(opened.editor.questions) == 1
    assert [os.access(tmp_path / name, os.F_OK) for name in "abc"] == [False, True, True]
    with pytest.raises(RequestError):
        await opened.agent.set_session_mode(session.session_id, "other")


async def test_a_session_is_resumed_without_showing_it_again(tmp_path: Path) -> None:
    opened = Opened("It rains.", "Still.")
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Will it rain?")
    await opened.agent.close_session(session.session_id)
    opened.editor.updates.clear()
    await opened.agent.resume_session(session.session_id, str(tmp_path))
    assert opened.editor.updates == []
    await opened.prompt(session.session_id, "And now?")
    assert opened.editor.text() == "Still."
    with pytest.raises(RequestError) as caught:
        await opened.agent.resume_session("unknown", str(tmp_path))
    assert caught.value.code == -32002
    await opened.agent.close()


async def test_the_mcp_servers_of_the_editor_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    opened = Opened(assistant(ToolCall("c1", "files_echo", {"text": "hello"})), "Done.")
    server = wire.McpServerStdio(name="files", command=sys.executable, args=["-I", str(FAULT_SERVER)], env=[])
    session = await opened.agent.new_session(str(tmp_path), mcp_servers=[server])
    await opened.prompt(session.session_id, "Go")
    ended = [update for update in opened.editor.updates if getattr(update, "status", None) == "completed"]
    assert "hello" in str(ended[0].raw_output or ended[0].content)
    assert [question.title for question in opened.editor.questions] == ["files_echo"]  # every call needs permission
    await opened.agent.close()


async def test_a_server_over_http_is_accepted_and_one_over_sse_is_refused(tmp_path: Path) -> None:
    opened = Opened("Hi.")
    offered = await opened.agent.initialize(1)
    assert offered.agent_capabilities is not None
    assert offered.agent_capabilities.mcp_capabilities == wire.McpCapabilities(http=True)
    header = wire.HttpHeader(name="Authorization", value="Bearer x")
    http = wire.HttpMcpServer(type="http", name="h", url="http://127.0.0.1:9/mcp", headers=[header])
    await opened.agent.new_session(str(tmp_path), mcp_servers=[http])
    sse = wire.SseMcpServer(type="sse", name="s", url="http://127.0.0.1:9/sse", headers=[])
    with pytest.raises(RequestError) as caught:
        await opened.agent.new_session(str(tmp_path), mcp_servers=[sse])
    assert caught.value.code == -32602
    await opened.agent.close()


async def test_a_prompt_that_cannot_start_leaves_no_session(tmp_path: Path) -> None:
    def missing(context: PromptContext[Any]) -> str:
        raise BartackError("No instructions.", code=ErrorCode.INVALID_CONFIG)

    opened = Opened("never", instructions=missing)
    session = await opened.agent.new_session(str(tmp_path))
    with pytest.raises(RequestError, match="No instructions"):
        await opened.prompt(session.session_id, "Hello")
    assert (await opened.store.sessions()).items == ()
    await opened.agent.close()


async def test_a_prompt_instead_of_a_decision_about_a_call_of_before_is_answered(tmp_path: Path) -> None:
    opened = Opened("Then not.")
    session = await opened.agent.new_session(str(tmp_path))
    call = assistant(ToolCall("c1", "pay", {}))
    await Agent(ScriptedModel([call]), tools=[pay], store=opened.store).run("Pay", session=session.session_id)
    reply = await opened.prompt(session.session_id, "Never mind")
    assert (reply.stop_reason, opened.editor.text()) == ("end_turn", "Then not.")
    await opened.agent.close()


async def test_a_directory_lists_its_sessions_of_all_programs_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened("It rains.")
    monkeypatch.chdir(tmp_path)
    earlier_id = await ensure_session(opened.store, None, prompt="Old", program="chat")
    for number in range(60):  # more than a page
        await opened.store.create_session(f"other {number}")
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Will it rain?")
    listed = await opened.agent.list_sessions(cwd=str(tmp_path))
    assert [(info.session_id, info.title) for info in listed.sessions] == [
        (session.session_id, "Will it rain?"),
        (earlier_id, "Old"),
    ]
    assert listed.next_cursor is None
    assert await latest_session_here(opened.store) == session.session_id, "the terminal finds it as well"
    first = await opened.agent.list_sessions()
    second_page = await opened.agent.list_sessions(cursor=first.next_cursor)
    assert (len(first.sessions), len(second_page.sessions), second_page.next_cursor) == (50, 12, None)


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_prompt_can_be_cancelled_from_its_first_moment(tmp_path: Path, steps: int) -> None:
    opened = Opened(assistant(ToolCall("c1", "pay", {})), "Done.", tools=[pay])
    session = await opened.agent.new_session(str(tmp_path))
    prompt = asyncio.create_task(opened.prompt(session.session_id, "Pay"))
    for _ in range(steps):
        await asyncio.sleep(0)
    await opened.agent.cancel(session.session_id)
    assert (await prompt).stop_reason == "cancelled"
    await opened.agent.close()


async def test_a_second_prompt_is_refused_and_the_first_can_still_be_cancelled(tmp_path: Path) -> None:
    opened = Opened("It rains.")
    session = await opened.agent.new_session(str(tmp_path))
    prompt = asyncio.create_task(opened.prompt(session.session_id, "Will it rain?"))
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="in progress"):
        await opened.prompt(session.session_id, "And now?")
    await opened.agent.cancel(session.session_id)
    assert (await prompt).stop_reason == "cancelled"
    await opened.agent.close()


@pytest.mark.parametrize("reopen", ["no", "load", "resume"])
async def test_a_model_that_uses_an_id_again_gets_another_call_in_the_editor(tmp_path: Path, reopen: str) -> None:
    calls = [assistant(ToolCall("c1", "pay", {"amount": amount})) for amount in (1, 2, 3)]
    opened = Opened(calls[0], calls[1], "Paid.", calls[2], "Paid again.", tools=[pay])
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Pay twice")
    if reopen == "load":
        opened.editor.updates.clear()
        await opened.agent.load_session(str(tmp_path), session.session_id)
    if reopen == "resume":
        await opened.agent.resume_session(session.session_id, str(tmp_path))
    await opened.prompt(session.session_id, "And again")
    call_ids = [update.tool_call_id for update in opened.editor.updates if update.session_update == "tool_call"]
    assert len(set(call_ids)) == len(call_ids) == 3
    assert opened.editor.questions[-1].tool_call_id == call_ids[-1]
    ended = {
        update.tool_call_id: update.raw_output
        for update in opened.editor.updates
        if getattr(update, "raw_output", None)
    }
    assert [ended[id] for id in call_ids] == ["paid 1", "paid 2", "paid 3"]
    await opened.agent.close()


async def test_what_the_user_always_allows_is_not_asked_again_until_the_session_is_opened_again(tmp_path: Path) -> None:
    calls = [assistant(ToolCall(f"c{amount}", "pay", {"amount": amount})) for amount in (1, 2, 3)]
    opened = Opened(calls[0], calls[1], "Paid.", calls[2], "Not paid.", tools=[pay])
    session = await opened.agent.new_session(str(tmp_path))
    opened.editor.answer = "always-0"
    await opened.prompt(session.session_id, "Pay twice")
    assert [(option.kind, option.name) for option in opened.editor.options] == [
        ("allow_once", "Allow"),
        ("allow_always", "Always allow every call of pay"),
        ("reject_once", "Reject"),
    ]
    assert len(opened.editor.questions) == 1
    opened.editor.answer = "always-7"  # this option was not offered
    await opened.agent.load_session(str(tmp_path), session.session_id)
    await opened.prompt(session.session_id, "And again")
    assert len(opened.editor.questions) == 2
    outputs = [update.raw_output for update in opened.editor.updates if getattr(update, "status", None) == "completed"]
    assert "paid 3" not in outputs
    await opened.agent.close()


class ChangesAFile(Editor):
    """Someone saves a file while the user reads the first question; the user allows that one, and rejects others."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    async def request_permission(self, session_id: str, tool_call: Any, options: Any) -> Any:
        if self.questions:
            self.answer = "reject"
        else:
            self.file.write_text("saved meanwhile\n")
        return await super().request_permission(session_id, tool_call, options)


async def test_a_yes_does_not_apply_to_a_file_that_has_changed_since_it_was_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine\n")
    write = assistant(ToolCall("c1", "write_file", {"path": "a.txt", "text": "theirs\n"}))
    opened = Opened(write, "Sorry.", tools=file_tools())
    opened.editor = ChangesAFile(file)
    opened.agent.on_connect(opened.editor)  # type: ignore[arg-type]
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Write")
    assert file.read_text() == "saved meanwhile\n"
    shown = [question.content[0].old_text for question in opened.editor.questions]
    assert shown == ["mine\n", "saved meanwhile\n"]
    await opened.agent.close()


HIDDEN = "echo safe" + "\n" * 60 + "touch hidden.txt" + "\n" * 60 + "echo safe"


async def test_a_command_is_shown_whole_in_a_block_that_it_cannot_end(tmp_path: Path) -> None:
    command = f"{HIDDEN}\n```\n**Allow the tool read_file?**\u202e"
    opened = Opened(assistant(ToolCall("c1", "run_command", {"command": command})), "Sorry.", tools=file_tools())
    opened.editor.answer = "reject"
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Go")
    (question,) = opened.editor.questions
    (block,) = question.content
    fence, head, *lines, end = block.content.text.split("\n")
    assert (fence, end) == ("````", "````")
    assert head.startswith(f"Allow the tool run_command? {len(lines)} lines, ")
    assert "  | touch hidden.txt" in lines
    assert "  | **Allow the tool read_file?**\\u202e" in lines
    assert "\n" not in question.title
    assert all("\n" not in option.name for option in opened.editor.options)
    await opened.agent.close()


async def test_a_change_with_invisible_characters_is_also_shown_as_text(tmp_path: Path) -> None:
    calls = [
        ToolCall(f"c{i}", "write_file", {"path": "a", "text": text}) for i, text in enumerate(("\ta\n", "a\u200b\n"))
    ]
    opened = Opened(*map(assistant, calls), "Sorry.", tools=file_tools())
    opened.editor.answer = "reject"
    session = await opened.agent.new_session(str(tmp_path))
    await opened.prompt(session.session_id, "Go")
    kinds = [[block.type for block in question.content] for question in opened.editor.questions]
    assert kinds == [["diff"], ["diff", "content"]]
    assert "a\\u200b" in opened.editor.questions[1].content[1].content.text
    await opened.agent.close()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_an_editor_gets_the_version_that_is_supported(version: int) -> None:
    assert (await Opened().agent.initialize(version)).protocol_version == 1


async def test_a_fork_of_an_imported_session_has_to_be_adopted_too(tmp_path: Path) -> None:
    opened = Opened("Hello.")
    await opened.store.create_session("s")
    await post(opened.store, "s", user("Do it"))
    await mark_foreign(opened.store, "s")
    forked = await opened.agent.fork_session("s", str(tmp_path))
    with pytest.raises(RequestError, match="adopt"):
        await opened.prompt(forked.session_id, "Go on")
    await adopt(opened.store, forked.session_id)
    await opened.prompt(forked.session_id, "Go on")
    assert opened.editor.text() == "Hello."
