"""The tools of a server are ordinary tools: names, schemas, approval, digests, results, questions, resources."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from bartack import (
    BartackError,
    ErrorCode,
    FileRef,
    Image,
    Message,
    NotFound,
    ScriptedModel,
    Text,
    ToolCall,
    ToolResult,
    assistant,
)
from bartack.agent import Agent, ApprovalRequested, Hooks, LiveApprover
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.tools import Decision, ToolRegistry
from bartack.tools.mcp import McpServer, mcp, mcp_servers
from bartack.tools.mcp.definitions import offered_tools, tool_name
from tests.tools.mcp.kit import agent_with, calls, fault_server, results_of

ECHO = ("f_echo", {"text": "hi"})
ADA = {"name": "Ada", "age": 36}


class Answering:
    """An approver that gives one decision and remembers the questions."""

    def __init__(self, decision: str = "approve", **details: Any) -> None:
        self.decision = Decision(decision, **details)  # type: ignore[arg-type]
        self.asked: list[ApprovalRequired] = []

    async def decide(self, request: ApprovalRequired) -> Decision:
        self.asked.append(request)
        return self.decision if "/" in request.tool_call_id else Decision("approve")


async def opened(server: McpServer) -> McpServer:
    await server.open()
    return server


# -- names, lists and schemas


async def test_tools_have_the_name_of_their_server_in_front_and_valid_names(tmp_path: Path) -> None:
    server = await opened(fault_server(tmp_path))
    names = [tool.name for tool in server.tools]
    assert "f_echo" in names
    assert "f_bad_name_with_spaces" in names
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)
    await server.close()
    assert server.tools == ()


def test_names_that_are_long_or_taken_get_a_digest() -> None:
    long = tool_name("f_", "x" * 100)
    assert len(long) == 64
    assert long != tool_name("f_", "x" * 101)
    assert tool_name("f_", "a.b", used_names=["f_a_b"]) == tool_name("f_", "a.b", used_names=["f_a_b"]) != "f_a_b"


async def test_allowed_denied_prefixed_and_filtered_tools(tmp_path: Path) -> None:
    allowed = await opened(fault_server(tmp_path, allow=["echo", "crash"], deny=["crash"], prefix="my_"))
    assert [tool.name for tool in allowed.tools] == ["my_echo"]
    assert ("crash", "filtered") in allowed.status.left_out
    registry = ToolRegistry([allowed]).prefixed("our_").filtered(lambda tool: tool.name.endswith("echo"))
    assert registry.names == ("our_my_echo",)
    [answer] = await results_of(registry, ("our_my_echo", {"text": "hi"}))
    assert answer.content == "echo: hi"


async def test_a_tool_whose_schema_cannot_be_checked_is_left_out(tmp_path: Path) -> None:
    server = await opened(fault_server(tmp_path))
    assert [name for name, reason in server.status.left_out if "schema" in reason.lower()] == ["bad_schema"]
    await server.close()


async def test_arguments_are_checked_before_the_server_sees_them(tmp_path: Path) -> None:
    [refused] = await results_of(fault_server(tmp_path), ("f_echo", {"text": 3}))
    assert refused.error_code is ErrorCode.TOOL_BAD_ARGUMENTS


async def test_descriptions_contain_nothing_that_a_reader_would_not_see(tmp_path: Path) -> None:
    server = await opened(fault_server(tmp_path))
    [sneaky] = [tool for tool in server.tools if tool.name == "f_sneaky"]
    assert sneaky.description == "Hidden text"
    assert server.status.described["f_sneaky"] == "Hidden\u202e\U000e0041 \x1b[31mtext"
    await server.close()


async def _unused(*_: object) -> None:
    raise AssertionError("not called")


def test_parameters_contain_nothing_that_a_reader_would_not_see() -> None:
    hidden = "\u202e\U000e0041\u200b\U000e0158"
    prose = {"title": f"A{hidden}", "description": f"B{hidden}", "type": "object", "properties": {}}
    values: list[dict[str, Any]] = [
        {"type": "string", "enum": ["a", f"a{hidden}"]},
        {"type": "string", "const": f"a{hidden}"},
        {"type": "string", "default": f"a{hidden}"},
        {"anyOf": [{"type": "string", "pattern": f"a{hidden}"}]},
    ]
    nested = {"type": "object", "properties": {"title": prose, "b": {"items": prose}}}
    schemas = [nested, *({"type": "object", "properties": {"p": value}} for value in values)]
    schemas.append({"type": "object", "properties": {f"p{hidden}": {"type": "string"}}})
    offered = offered_tools(
        [types.Tool(name=f"t{number}", input_schema=schema) for number, schema in enumerate(schemas)],
        _unused,
        prefix="",
        keep=lambda _: True,
        known_digest=lambda _: None,
        trust_hints=False,
        max_output_chars=1000,
    )
    [clean] = offered.definitions
    seen = {"title": "A", "description": "B", "type": "object", "properties": {}}
    assert clean.parameter_schema["properties"] == {"title": seen, "b": {"items": seen}}
    assert [name for name, _ in offered.left_out] == ["t1", "t2", "t3", "t4", "t5"]
    assert "invisible characters: 'a\\u202e\\U000e0041\\u200b\\U000e0158'" in offered.left_out[0][1]


async def test_instructions_reach_the_model_only_if_enabled(tmp_path: Path) -> None:
    prompts: list[str] = []

    async def see(request: ModelRequest) -> None:
        prompts.append("".join(message.text for message in request.messages))

    for enabled in (False, True):
        server = fault_server(tmp_path, instructions=enabled)
        assert await results_of(server, hooks=Hooks(before_model=see)) == []
    assert prompts == ["go", "Instructions of the MCP server 'f':\nUse echo.go"]


# -- approval and changes


async def test_every_call_needs_approval_unless_hints_are_trusted(tmp_path: Path) -> None:
    approver = Answering()
    script: list[Any] = [assistant(ToolCall("c1", *ECHO), ToolCall("c2", "f_seen", {})), "done"]
    for trust_hints, expected in ((False, ["f_echo", "f_seen"]), (True, ["f_seen"])):
        approver.asked.clear()
        server = fault_server(tmp_path, trust_hints=trust_hints)
        async with Agent(ScriptedModel(script), tools=[server], store="memory:", approver=approver) as agent:
            assert (await agent.run("go")).output == "done"
        assert [request.tool_name for request in approver.asked] == expected


async def test_a_tool_that_changed_since_it_was_last_used_is_asked_about_whatever_the_policy(tmp_path: Path) -> None:
    approver = Answering()
    calls = (ECHO, "f_change", ECHO, ECHO)
    first, _, changed, again = await results_of(fault_server(tmp_path), *calls, approver=approver)
    assert first.content == changed.content == again.content == "echo: hi"
    [question] = approver.asked  # the policy of the test asks about nothing, and the change is asked about once
    assert question.tool_name == "f_echo"
    assert question.reason == "the server has changed the definition of this tool since it was last used"
    # In a new session of a new process, the server has the first definition again: a change as well.
    await results_of(fault_server(tmp_path), ECHO, approver=approver)
    assert len(approver.asked) == 2
    await results_of(fault_server(tmp_path), ECHO, approver=approver)
    assert len(approver.asked) == 2


async def test_a_call_approved_for_another_definition_is_asked_about_again(tmp_path: Path) -> None:
    shared = fault_server(tmp_path)

    asked: list[str | None] = []

    class Slow:
        """Approves, the first time after the server has changed the tool."""

        async def decide(self, request: ApprovalRequired) -> Decision:
            if request.tool_name == "f_echo":
                asked.append(request.definition_digest)
                if len(asked) == 1:
                    await agent_with(shared, "f_change").run("go")
            return Decision("approve")

    async with Agent(
        ScriptedModel([assistant(ToolCall("c1", *ECHO)), "done"]),
        tools=[shared],
        store="memory:",
        approver=Slow(),
    ) as agent:
        result = await agent.run("go")
        [done] = (tool_result for message in result.messages for tool_result in message.tool_results)
    assert len(asked) == len(set(asked)) == 2
    assert done.content == "echo: hi"


async def test_tools_that_appear_are_offered_in_the_next_turn(tmp_path: Path) -> None:
    changed, late = await results_of(fault_server(tmp_path), "f_change", "f_late")
    assert changed.content == "changed"
    assert late.content == "called late"


async def test_a_run_continues_without_the_server_that_its_session_used(tmp_path: Path) -> None:
    store = MemoryStore()
    call = assistant(ToolCall("c1", *ECHO))
    async with Agent(ScriptedModel([call]), tools=[fault_server(tmp_path)], store=store) as agent:
        paused = await agent.run("go", session="s")
    assert paused.status is AgentStatus.AWAITING_HUMAN
    missing = mcp("bartack-no-such-program", name="f", known_tools=tmp_path / "known.json")
    async with Agent(ScriptedModel(calls(ECHO)), tools=[missing], store=store) as successor:
        await successor.approve("s", "c1")
        assert (await successor.resume("s")).output == "done"
    without = Agent(ScriptedModel(calls(ECHO)), store=store)
    assert (await without.run("and now?", session="s")).output == "done"
    facts = [entry.fact for entry in await store.load("s")]
    results = [result for fact in facts if isinstance(fact, Message) for result in fact.tool_results]
    assert [result.error_code for result in results] == [ErrorCode.TOOL_NOT_FOUND] * 3
    assert "the command 'bartack-no-such-program' was not found" in str(results[0].content)


# -- results


async def test_results_become_parts_and_lose_terminal_control(tmp_path: Path) -> None:
    contents, control, data = await results_of(fault_server(tmp_path), "f_contents", "f_control", "f_structured")
    assert isinstance(contents.content, tuple)
    text, image, broken, audio, link, inside, resource, again = contents.content
    assert text == Text("look")
    assert isinstance(image, Image)
    assert image.mime_type == "image/png"  # recognized by its content, whatever the server claims
    assert broken == Text("[image: the server sent data that is not valid base64]")
    assert audio == FileRef("audio", data=b"RIFF", mime_type="audio/wav", size=4)
    assert link == Text("[Resource a.txt (file:///a.txt, text/plain)]")
    assert inside == Text("[Resource file:///b.txt]\ninside")
    assert resource == Text("[Resource file:///c.png]")
    assert again == image
    assert control.content == "abc\ndef\n\tg"
    assert data.content == {"temperature": 22.5}


async def test_structured_content_is_kept_as_data_next_to_the_text(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path), ECHO)
    assert answer.content == "echo: hi"
    assert answer.value == {"echoed": "hi"}
    assert answer.metadata is not None
    assert answer.metadata["mcp"]["tool"] == "echo"


async def test_structured_content_is_checked_against_the_output_schema(tmp_path: Path) -> None:
    blocking = {"degrees": 1, "at": "a" * 60 + "!"}  # takes Python's `re` practically forever
    values = [{"degrees": 21.5}, {"degrees": 99}, {"celsius": 1}, blocking]
    calls = [("f_measure", {"text": json.dumps(value)}) for value in values]
    good, hot, misnamed, blocked = await results_of(fault_server(tmp_path), *calls)
    assert good.value == {"degrees": 21.5}
    for result in (hot, misnamed, blocked):
        assert result.is_error
        assert "'measure' does not match its output schema" in str(result.content)


async def test_structured_content_that_cannot_be_checked_is_left_out(tmp_path: Path) -> None:
    [answer] = await results_of(fault_server(tmp_path), ("f_unclear", {"text": "{}"}))
    assert answer.value == answer.content == "unclear: {}"


async def test_the_trace_context_of_a_tool_reaches_the_server(tmp_path: Path) -> None:
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    with use_span(span):
        assert trace.get_current_span() is span
        [answer] = await results_of(fault_server(tmp_path), "f_meta")
    assert json.loads(str(answer.content))["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


# -- questions of the server


@pytest.mark.parametrize(
    ("approver", "answer"),
    [
        (Answering(), {"action": "accept", "content": {"age": 30}}),
        (Answering("modify_args", arguments=ADA), {"action": "accept", "content": ADA}),
        (Answering("modify_args", arguments={"age": "old"}), {"action": "cancel"}),
        (Answering("deny"), {"action": "decline"}),
        (None, {"action": "decline"}),
    ],
    ids=["defaults", "filled in", "invalid", "denied", "no approver"],
)
async def test_a_server_may_ask_the_user_through_the_approver(
    approver: Answering | None, answer: dict[str, Any], tmp_path: Path
) -> None:
    [result] = await results_of(fault_server(tmp_path, timeout_ms=5_000), "f_ask", approver=approver)
    assert json.loads(str(result.content)) == answer
    if approver is not None:
        [question] = approver.asked
        assert question.tool_name == "f_ask/ask for input"
        assert question.reason == "MCP server 'f': Who are you?"
        assert question.arguments == {"age": 30}


async def test_the_owner_of_a_live_run_answers_such_a_question(tmp_path: Path) -> None:
    async with agent_with(fault_server(tmp_path), "f_ask", approver=LiveApprover()) as agent:
        async with agent.stream("go") as run:
            async for event in run:
                if isinstance(event, ApprovalRequested):
                    run.approve(event.request.tool_call_id, arguments={"name": "Ada", "age": 36})
        [result] = run.result.messages[2].tool_results
    assert json.loads(str(result.content))["content"] == {"name": "Ada", "age": 36}


async def test_a_question_is_withdrawn_when_its_call_ends(tmp_path: Path) -> None:
    async with agent_with(fault_server(tmp_path), "f_ask", approver=LiveApprover()) as agent:
        async with agent.stream("go") as run:
            async for event in run:
                if isinstance(event, ApprovalRequested):
                    run.abort()
        assert run.result.status is AgentStatus.ABORTED
        with pytest.raises(NotFound):
            run.approve("c0/1")


async def test_sampling_uses_the_given_model_after_approval(tmp_path: Path) -> None:
    model = ScriptedModel(["Four."])
    [result] = await results_of(fault_server(tmp_path, sampling=model), "f_sample", approver=Answering())
    answer = json.loads(str(result.content))
    assert answer["content"] == {"type": "text", "text": "Four."}
    assert [message.text for message in model.calls[0].messages] == ["Be brief.", "What is 2 + 2?"]
    [denied] = await results_of(fault_server(tmp_path, sampling=model), "f_sample", approver=Answering("deny"))
    assert json.loads(str(denied.content))["message"] == "The user rejected the request."


async def test_what_is_not_enabled_is_not_offered_to_the_server(tmp_path: Path) -> None:
    server = fault_server(tmp_path, elicitation=False)
    counts, sample, ask, roots = await results_of(
        server, "f_seen", "f_sample", "f_ask", "f_roots", approver=Answering()
    )
    assert json.loads(str(counts.content))["capabilities"] == {}
    for refused in (sample, ask, roots):
        assert "not supported" in str(refused.content)


async def test_roots_are_announced_to_the_server(tmp_path: Path) -> None:
    [result] = await results_of(fault_server(tmp_path, roots=[tmp_path]), "f_roots")
    assert json.loads(str(result.content))["roots"][0]["uri"] == tmp_path.as_uri()


# -- resources and prompts


async def test_resources_and_prompts_are_read_by_programs_and_by_models(tmp_path: Path) -> None:
    server = fault_server(tmp_path, resources=True, prompts=True)
    assert [resource["name"] for resource in await server.list_resources()] == ["a.txt", "files"]
    assert await server.read_resource("file:///a.txt") == (Text("[Resource file:///a.txt]\ncontent of file:///a.txt"),)
    assert [prompt["name"] for prompt in await server.list_prompts()] == ["greet"]
    [message] = await server.get_prompt("greet", {"who": "Ada"})
    assert (message.role, message.text) == ("user", "Greet Ada.")
    calls: tuple[Any, ...] = (
        "f_list_resources",
        ("f_read_resource", {"uri": "file:///b"}),
        "f_list_prompts",
        ("f_get_prompt", {"name": "greet", "arguments": {"who": "Bob"}}),
    )
    results: list[ToolResult] = await results_of(server, *calls)
    assert "file:///a.txt" in str(results[0].content)
    assert "content of file:///b" in str(results[1].content)
    assert "greet" in str(results[2].content)
    assert "Greet Bob." in str(results[3].content)


# -- configuration mistakes


def test_a_setting_that_does_not_apply_is_refused() -> None:
    with pytest.raises(BartackError, match="A server that is a process has no setting 'headers'"):
        mcp("npx server", headers={"A": "b"})
    with pytest.raises(BartackError, match="A server at a URL has no setting 'env'"):
        mcp("https://example.com/mcp", env={"A": "b"})
    with pytest.raises(BartackError, match="timeoutMs must be positive"):
        mcp("npx server", timeout_ms=0)
    [server] = mcp_servers({"mcpServers": {"a": {"command": "x", "deny": ["y"]}}}, trust_hints=True)
    assert (server.config.trust_hints, server.config.deny) == (True, ("y",))


@pytest.mark.parametrize("server", ["", [], "'unclosed", "  "])
def test_a_server_needs_a_command_or_a_url(server: Any) -> None:
    with pytest.raises(BartackError) as caught:
        mcp(server)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
