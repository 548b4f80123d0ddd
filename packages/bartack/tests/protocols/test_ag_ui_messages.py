"""What clients of AG-UI send, and the messages of a session for one that opens it."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import RunStarted
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import assistant, system, user
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.protocols.ag_ui_messages import RunInput, ag_ui_messages, message_json, read_run, result_json
from bartack.session.decisions import Decision
from tests.protocols.events import CALL, END, Log, answer, result

HELLO = {"id": "u1", "role": "user", "content": "Hello"}
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"threadId": "trip", "runId": "r1", "messages": list(messages), **fields}


def part(kind: str, type: str = "data", value: str = "eA==", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": type, "value": value, **fields}}


def test_the_last_user_message_is_the_prompt() -> None:
    request = read_run(
        body(
            HELLO,
            {"id": "s", "role": "system", "content": "Be brief."},
            {"id": "x", "role": "activity", "content": {}},
            {"id": "a", "role": "assistant", "content": "Hi.", "toolCalls": [LOOK]},
            {"id": "t", "role": "tool", "toolCallId": "c1", "content": "grey"},
            {"id": "r", "role": "reasoning", "content": "hm"},
            {**HELLO, "id": "u2"},
            tools=[{"name": "pick", "description": "Pick.", "parameters": {"type": "object", "properties": {}}}],
            context=[{"description": "Page", "value": "home"}],
            state={"a": 1},
        )
    )
    assert (request.thread_id, request.run_id, request.state) == ("trip", "r1", {"a": 1})
    assert request.prompt is not None
    assert (request.prompt.id, request.prompt.text) == ("u2", "Hello")
    assert [message.role for message in request.history] == ["user", "system", "assistant", "tool"]
    assert request.history[1] == system("Be brief.")
    assert request.history[2] == assistant("Hi.", CALL)
    assert request.outputs == {}
    assert [(tool.name, tool.description) for tool in request.tools] == [("pick", "Pick.")]
    assert request.context == (("Page", "home"),)


def test_content_may_be_parts() -> None:
    content = [
        {"type": "text", "text": "See"},
        part("image", mimeType="image/png"),
        part("document", "url", "https://x/a.pdf"),
        part("audio", mimeType="audio/wav"),
        part("document"),
    ]
    request = read_run(body({**HELLO, "content": content}))
    assert request.prompt is not None
    assert request.prompt.parts == (
        Text("See"),
        Image("image/png", data=b"x"),
        FileRef("a.pdf", url="https://x/a.pdf", mime_type="application/pdf"),
        FileRef("file", data=b"x", mime_type="audio/wav", size=1),
        FileRef("file", data=b"x", size=1),
    )


def test_outputs_are_the_tool_messages_at_the_end() -> None:
    request = read_run(
        body(
            {"id": "t0", "role": "tool", "toolCallId": "c0", "content": "old"},
            {
                "id": "a",
                "role": "assistant",
                "toolCalls": [{"id": "c1", "function": {"name": "look", "arguments": "{"}}],
            },
            {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "grey"},
            {"id": "r", "role": "reasoning", "content": "hm"},
            {"id": "t2", "role": "tool", "toolCallId": "c2", "content": [part("image", mimeType="image/png")]},
            {"id": "t3", "role": "tool", "toolCallId": "c3", "content": "no", "error": "no"},
        )
    )
    assert request.prompt is None
    assert {key: (one.content, one.is_error) for key, one in request.outputs.items()} == {
        "c1": ("grey", False),
        "c2": ((Image("image/png", data=b"x"),), False),
        "c3": ("no", True),
    }
    assert request.history[1].tool_calls[0].raw_args_text == "{"


@pytest.mark.parametrize(
    ("entry", "decision"),
    [
        ({"status": "cancelled"}, Decision("deny", reason="Cancelled.")),
        ({"status": "resolved"}, Decision("approve")),
        ({"status": "resolved", "payload": True}, Decision("approve")),
        ({"status": "resolved", "payload": False}, Decision("deny")),
        ({"status": "resolved", "payload": {"approved": False, "reason": "No."}}, Decision("deny", reason="No.")),
        ({"status": "resolved", "payload": {"arguments": {"a": 1}}}, Decision("modify_args", arguments={"a": 1})),
    ],
)
def test_answers_to_interrupts(entry: dict[str, Any], decision: Decision) -> None:
    bound = replace(decision, question_digest="d1")
    assert read_run(body(resume=[{"interruptId": "d1 c1", **entry}])).decisions == {"c1": bound}
    unbound = replace(decision, question_digest="")  # no question has this digest
    assert read_run(body(resume=[{"interruptId": "c1", **entry}])).decisions == {"c1": unbound}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], "$"),
        ({"threadId": "t"}, "$"),
        (body({"role": "user"}), "$.messages[0]"),
        (body({**HELLO, "role": "robot"}), "$.messages[0].role"),
        (body({**HELLO, "content": 1}), "$.messages[0].content"),
        (body({**HELLO, "content": [{"type": "video"}]}), "$.messages[0].content[0]"),
        (body({**HELLO, "content": [part("other")]}), "$.messages[0].content[0]"),
        (body({**HELLO, "content": [part("image", "file")]}), "$.messages[0].content[0]"),
        (body({**HELLO, "content": [part("image", "url", "file:///x")]}), "$.messages[0].content[0]"),
        (body({"id": "t", "role": "tool", "content": ""}), "$.messages[0].toolCallId"),
        (body(resume=[{"interruptId": "c", "status": "resolved", "payload": 1}]), "$.resume[0].payload"),
    ],
)
def test_invalid_requests_name_the_place(value: Any, path: str) -> None:
    with pytest.raises(PartValidationError) as error:
        read_run(value)
    assert error.value.path == path


def test_a_body_that_was_converted_is_read_too() -> None:
    request = read_run(RunInput("t", "r"))
    assert (request.prompt, request.messages, request.history) == (None, [], ())


def test_the_messages_of_a_session() -> None:
    log = Log()
    facts = (
        RunStarted(),
        user("Old?"),
        assistant("Old."),
        user("Go"),
        answer(Thinking("hm"), "Looking.", CALL),
        result("c1", {"sky": "grey"}),
        user(Text("correct it", synthetic=True)),
        answer("It rains."),
        END,
    )
    for fact in facts:
        log.entry(fact)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
    assert ag_ui_messages(log.entries) == [
        {"id": "m2", "role": "user", "content": "Old?"},
        {"id": "m3", "role": "assistant", "content": "Old."},
        {"id": "m4", "role": "user", "content": "Go"},
        {"id": "run-1-1-r1", "role": "reasoning", "content": "hm"},
        {"id": "run-1-1", "role": "assistant", "content": "Looking.", "toolCalls": [call]},
        {"id": "c1-result", "role": "tool", "toolCallId": "c1", "content": '{"sky":"grey"}'},
        {"id": "run-1-2", "role": "assistant", "content": "It rains."},
    ]


def test_messages_have_the_order_in_which_a_client_has_seen_them() -> None:
    log = Log()
    others = [ToolCall(id, "look", {}) for id in ("c2", "c3")]
    for fact in (answer(Thinking("a"), "b", CALL, Thinking("c"), *others), result("c2"), result("c1"), result("c9")):
        log.entry(fact)
    shown = [(one["role"], one.get("toolCallId", one.get("content"))) for one in ag_ui_messages(log.entries)]
    assert shown == [
        ("reasoning", "a"),
        ("assistant", "b"),
        ("tool", "c2"),
        ("tool", "c1"),
        ("reasoning", "c"),
        ("tool", "c9"),
    ]
    assert [one["role"] for one in message_json("m", answer(Thinking("a")))] == ["reasoning"]


def test_messages_with_parts() -> None:
    content = (Text("a"), Image("image/png", url="https://x/a.png"), FileRef("a.txt", data=b"x"), FileRef("b"))
    (message,) = message_json("m", user(*content))
    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image", "source": {"type": "url", "value": "https://x/a.png", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "data", "value": "eA==", "mimeType": "application/octet-stream"}},
        {"type": "text", "text": "[file b]"},
    ]
    picture = {"type": "image", "source": {"type": "data", "value": "eA==", "mimeType": "image/png"}}
    named = {**picture, "metadata": {"filename": "a.png"}}
    run = read_run({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": [named]}]})
    assert run.prompt is not None
    assert message_json("m", run.prompt) == [{"id": "m", "role": "user", "content": [named]}]
    failed = {"id": "x", "role": "tool", "toolCallId": "c1", "content": "no", "error": "broken"}
    [output] = read_run({"threadId": "t", "runId": "r", "messages": [failed]}).outputs.values()
    assert result_json("c1", output) == failed
    searched = ToolCall(
        "w", "search", {}, raw_args_text="{", executed_by="provider", result=ToolResult("w", content[:1])
    )
    own, shown = message_json("m", assistant(searched))
    assert own["toolCalls"][0]["function"]["arguments"] == "{"
    assert shown["content"] == "a"
    assert message_json("m", answer()) == []
