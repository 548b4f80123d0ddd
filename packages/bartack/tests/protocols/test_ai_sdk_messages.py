"""What clients of the AI SDK send, and the messages of a session for a page that opens it."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    Entry,
    RunEnded,
    RunStarted,
    StreamFailed,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Meta, assistant, system, user
from bartack.nouns.parts import Image, Text, Thinking
from bartack.protocols.ai_sdk import Version
from bartack.protocols.ai_sdk_messages import ChatBody, read_chat, read_ui_messages, ui_messages
from bartack.session.decisions import Decision, approval_id
from tests.protocols.events import CALL, END, Log, answer, failed, result

HELLO = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}


def said(*parts: Any, role: str = "assistant") -> dict[str, Any]:
    return {"id": "a1", "role": role, "parts": list(parts)}


def tool_part(state: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c1", "input": {"at": "sky"}}
    return {**part, "state": state, **fields}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "trip", "messages": list(messages), "trigger": "submit-message", **fields}


def test_the_last_user_message_is_the_prompt() -> None:
    request = read_chat(body(HELLO, said({"type": "text", "text": "Hi."}), {**HELLO, "id": "u2"}, messageId="u2"))
    assert (request.chat_id, request.trigger, request.message_id) == ("trip", "submit-message", "u2")
    assert request.prompt is not None
    assert (request.prompt.id, request.prompt.text) == ("u2", "Hello")
    assert [message.text for message in request.history] == ["Hello", "Hi."]
    assert (request.decisions, request.outputs) == ({}, {})


def test_decisions_are_in_the_last_message_or_in_the_body() -> None:
    part = tool_part("approval-responded", approval={"id": "d1 c1", "approved": False, "reason": "No."})
    request = read_chat(body(HELLO, said(part), approvals=[{"id": "d2 c2", "approved": True}]))
    assert request.prompt is None
    assert request.decisions == {
        "c1": Decision("deny", reason="No.", question_digest="d1"),
        "c2": Decision("approve", question_digest="d2"),
    }
    assert len(request.history) == 2


def test_outputs_of_tools_that_the_page_executed() -> None:
    request = (
        read_chat(ChatBody("trip", [], messageId=None))
        if False
        else read_chat(body(HELLO, said(tool_part("output-available", output=[1]))))
    )
    assert request.outputs["c1"].value == [1]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], "$"),
        ({"messages": []}, "$"),
        (body(), "$.messages"),
        (body({"id": 1}), "$.messages[0].id"),
        (body(said()), None),
        (body(said(role="user")), "$.messages[0].parts"),
        (body(said({"type": "text"}, role="user")), "$.messages[0].parts[0].text"),
        (body(said({"type": "file", "url": "file:///x"}, role="user")), "$.messages[0].parts[0]"),
        (body(said({"type": "steering-message", "parts": []})), "$.messages[0].parts[0].parts"),
        (body(said({"type": "data-user-message", "data": 1})), "$.messages[0].parts[0].data"),
        (body(said(tool_part("input-available", toolCallId=1))), "$.messages[0].parts[0].toolCallId"),
        (body(said(tool_part("approval-responded"))), "$.messages[-1].parts[0].approval"),
        (body(said({"type": "text"})), "$.messages[0].parts[0].text"),
        (body(said({"type": 1})), "$.messages[0].parts[0].type"),
        (body(HELLO, trigger="other"), "$.trigger"),
    ],
)
def test_invalid_requests_name_the_place(value: Any, path: str | None) -> None:
    if path is None:
        assert read_chat(value).prompt is None
        return
    with pytest.raises(PartValidationError) as error:
        read_chat(value)
    assert error.value.path == path


def test_a_body_that_was_converted_is_read_too() -> None:
    with pytest.raises(PartValidationError, match="must not be empty"):
        read_chat(ChatBody(id="trip", messages=[]))


def test_every_part_of_a_client_is_read_or_left_out() -> None:
    messages = read_ui_messages(
        [
            said({"type": "text", "text": "Be brief."}, role="system"),
            said(
                {"type": "text", "text": "See"},
                {"type": "data-x", "data": 1},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,eA=="},
                role="user",
            ),
            said(
                {"type": "step-start"},
                {"type": "text", "text": "void"},
                {"type": "data-retry", "data": {}},
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "One."},
                tool_part("output-available", output="done"),
                {**tool_part("output-error", errorText="bad"), "type": "tool-look", "toolCallId": "c2"},
                tool_part("output-denied", toolCallId="c3"),
                tool_part("input-available", toolCallId="c4"),
                tool_part("output-available", toolCallId="c5", output=1, preliminary=True),
                tool_part("input-streaming", toolCallId="c6"),
                tool_part("output-error", toolCallId="c7", input=None),
                tool_part("output-available", toolCallId="c8", providerExecuted=True),
                {"type": "data-user-message", "data": {"parts": [{"type": "text", "text": "Faster!"}]}},
                {"type": "step-start"},
                {"type": "text", "text": "Two."},
                {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "Slower!"}]},
                {"type": "source-url"},
            ),
        ]
    )
    assert messages[0] == system("Be brief.")
    assert messages[1].parts == (Text("See"), Image("image/png", data=b"x"))
    assert [message.role for message in messages[2:]] == ["assistant", "tool", "user", "assistant", "user"]
    first, results = messages[2:4]
    assert first.parts[:2] == (Thinking("hm"), Text("One."))
    assert [call.tool_call_id for call in first.tool_calls] == ["c1", "c2", "c3", "c4", "c5"]
    assert [(one.tool_call_id, one.is_error) for one in results.tool_results] == [
        ("c1", False),
        ("c2", True),
        ("c3", True),
    ]
    assert results.tool_results[2].error_code is ErrorCode.TOOL_DENIED
    assert [message.text for message in messages[4:]] == ["Faster!", "Two.", "Slower!"]


# -- a stored session


def session(*facts: Any) -> list[Entry]:
    log = Log()
    for fact in facts:
        log.entry(fact)
    return log.entries


def brief(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (message["role"], "".join(part.get("text", f"<{part['type']}>") for part in message["parts"]))
        for message in messages
    ]


def test_a_run_is_one_message() -> None:
    note = Custom(name="weather", data={})
    entries = session(RunStarted(), user("Go"), note, answer(CALL), result("c1"), user("Faster!"), answer("Done."), END)
    messages = ui_messages(entries)
    assert [message["id"] for message in messages] == ["m2", "run-1"]
    assert brief(messages)[1][1] == "<data-weather><step-start><dynamic-tool><data-user-message><step-start>Done."


def test_a_message_that_was_queued_belongs_to_the_answer_as_in_the_stream() -> None:
    queued = replace(user("Faster!"), meta=Meta(request_id="e9"))
    opening = (RunStarted(), queued, user("Go"), queued)
    joined = "<data-user-message><data-user-message>"
    assert brief(ui_messages(session(*opening, answer("Done."), END))) == [
        ("user", "Go"),
        ("assistant", f"{joined}<step-start>Done."),
    ]
    assert brief(ui_messages(session(*opening))) == [("user", "Go"), ("assistant", joined)]
    assert brief(ui_messages(session(*opening), include_open=False)) == [("user", "Go")]


def test_an_open_run_can_be_left_out() -> None:
    entries = session(RunStarted(), user("Go"), answer(CALL))
    assert len(ui_messages(entries)) == 2
    assert len(ui_messages(entries, include_open=False)) == 1


def test_history_and_runs_without_an_end_are_messages_of_their_own() -> None:
    log = Log()
    for fact in (RunStarted(), user("Old?"), assistant("Old.", CALL), result("c1"), user("Go"), answer("New.")):
        log.entry(fact)
    log.entry(RunStarted(), run_id="run-2")
    log.entry(answer("More."), run_id="run-2")
    log.entry(RunEnded(status="completed"), run_id="run-2")
    log.entry(user(Text("correct it", synthetic=True)), run_id="run-3")
    messages = ui_messages(log.entries)
    assert brief(messages) == [
        ("user", "Old?"),
        ("assistant", "<step-start>Old.<dynamic-tool>"),
        ("user", "Go"),
        ("assistant", "<step-start>New."),
        ("assistant", "<step-start>More."),
    ]
    assert [message["id"] for message in messages] == ["m2", "e3", "m5", "run-1", "run-2"]


def test_a_run_that_failed_shows_what_had_arrived() -> None:
    entries = session(RunStarted(), user("Go"), failed(Text("It sn")), RunEnded(status="failed"))
    assert isinstance(entries[2].fact, StreamFailed)
    assert brief(ui_messages(entries, 7)) == [("user", "Go"), ("assistant", "<step-start>It sn")]


def test_nothing_is_shown_of_a_run_without_an_answer() -> None:
    assert brief(
        ui_messages(session(RunStarted(), user("Go"), Custom(name="x", data={}), failed(), RunEnded(status="failed")))
    ) == [
        ("user", "Go"),
        ("assistant", "<data-x>"),
    ]
    assert brief(ui_messages(session(RunStarted(), user("Go"), failed(), RunEnded(status="failed")))) == [
        ("user", "Go")
    ]


@pytest.mark.parametrize("version", [6, 7])
def test_a_page_that_opens_the_session_knows_what_was_decided(version: Version) -> None:
    asked, decided = (
        ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}),
        ApprovalDecided(tool_call_id="c1", decision="approve", reason="Fine."),
    )
    facts = (
        RunStarted(),
        user("Go"),
        answer(CALL),
        asked,
        ApprovalDecided(tool_call_id="c1", decision="pause"),
        decided,
    )
    (_, open_message) = ui_messages(session(*facts), version)
    assert open_message["parts"][-2]["state"] == "approval-responded"
    (_, ended) = ui_messages(session(*facts, result("c1"), decided, END), version)
    assert ended["parts"][-2]["approval"] == {"id": approval_id(asked), "approved": True, "reason": "Fine."}
    assert ended["parts"][-2]["state"] == "output-available"


@pytest.mark.parametrize("version", [6, 7])
def test_a_question_that_was_never_answered_is_left_out_once_the_call_has_ended(version: Version) -> None:
    asked = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"})
    facts = (RunStarted(), user("Go"), answer(CALL), asked)
    (_, open_message) = ui_messages(session(*facts), version)
    assert open_message["parts"][-2]["approval"] == {"id": approval_id(asked)}
    (_, ended) = ui_messages(session(*facts, result("c1"), END), version)
    assert "approval" not in ended["parts"][-2]


@pytest.mark.parametrize("version", [6, 7])
def test_a_call_whose_arguments_were_changed_is_answered_until_it_ends(version: Version) -> None:
    """The SDK refuses to load a call with an approval that is only complete."""
    asked = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"})
    changed = ApprovalDecided(tool_call_id="c1", decision="modify_args", arguments={"at": "sea"})
    started = ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sea"})
    (_, message) = ui_messages(session(RunStarted(), user("Go"), answer(CALL), asked, changed, started), version)
    part = next(part for part in message["parts"] if "approval" in part)
    assert part["state"] == "approval-responded"
    assert part["input"] == {"at": "sea"}
