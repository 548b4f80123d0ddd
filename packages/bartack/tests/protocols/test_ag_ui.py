"""The events of AG-UI for every kind of change."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.events import Event
from bartack.nouns.deltas import Failed, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart, Usage
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    RunEnded,
    RunStarted,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import tool_message, user
from bartack.nouns.parts import Image, Thinking, ToolCall
from bartack.protocols.ag_ui import AgUiStream
from bartack.protocols.ag_ui_messages import read_run
from bartack.session.decisions import approval_id
from tests.protocols.ag_ui_client import AgUiClient
from tests.protocols.events import (
    BUSY,
    CALL,
    RUN,
    START,
    Events,
    Log,
    answer,
    call_deltas,
    deltas,
    failed,
    result,
    run_of,
)

Json = dict[str, Any]
IDS = {"threadId": "t", "runId": "r"}
FIRST, SECOND = f"{RUN}-1", f"{RUN}-2"


def events(read: Events, **options: Any) -> list[Json]:
    """The events, each accepted by the rules of the client."""
    stream = AgUiStream("t", "r", **options)
    client = AgUiClient(options.get("messages", ()))
    made = [one for event in read for one in stream.events(event)]
    for one in made:
        client.add(one)
    assert stream.messages == client.messages or any(one["type"] == "RUN_ERROR" for one in made)
    return made


def of(*facts: Any) -> list[Json]:
    """The events of a run with these facts, without those at its start and end."""
    start, *between, last = events(run_of(*facts))
    assert start == {"type": "RUN_STARTED", **IDS, "protocolVersion": "1.0"}
    assert last == {"type": "RUN_FINISHED", **IDS, "outcome": {"type": "success"}}
    return between


def types(found: list[Json]) -> list[str]:
    return [one["type"] for one in found]


def test_text_and_thinking() -> None:
    reasoning, text = {"messageId": f"{FIRST}-r1"}, {"messageId": FIRST}
    assert of(answer(Thinking("hm"), "It rains.")) == [
        {"type": "STEP_STARTED", "stepName": "step-1"},
        {"type": "REASONING_START", **reasoning},
        {"type": "REASONING_MESSAGE_START", **reasoning, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", **reasoning, "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", **reasoning},
        {"type": "REASONING_END", **reasoning},
        {"type": "TEXT_MESSAGE_START", **text, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", **text, "delta": "It rains."},
        {"type": "TEXT_MESSAGE_END", **text},
        {"type": "STEP_FINISHED", "stepName": "step-1"},
    ]


def test_a_call_with_progress_and_a_result() -> None:
    call = {"toolCallId": "c1"}
    found = of(
        answer("One.", CALL, "Two."),
        ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sea"}),
        ToolProgress(tool_call_id="c1", content="half"),
        result("c1", {"sky": "grey"}),
        result("c1"),
    )
    assert found[4:7] == [
        {"type": "TOOL_CALL_START", **call, "toolCallName": "look", "parentMessageId": FIRST},
        {"type": "TOOL_CALL_ARGS", **call, "delta": '{"at":"sky"}'},
        {"type": "TOOL_CALL_END", **call},
    ]
    assert found[-2:] == [
        {"type": "CUSTOM", "name": "tool_progress", "value": {"toolCallId": "c1", "content": "half", "title": None}},
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "c1-result",
            **call,
            "content": '{"sky":"grey"}',
            "role": "tool",
        },
    ]


def test_a_call_comes_before_the_text_and_results_stay_with_their_message() -> None:
    other = ToolCall("c2", "look", {})
    stream = AgUiStream("t", "r")
    for event in run_of(answer(CALL, other, "Wait."), answer("Done."), result("c2"), result("c1")):
        stream.events(event)
    assert [message["id"] for message in stream.messages] == [FIRST, "c2-result", "c1-result", SECOND]
    assert stream.messages[0]["content"] == "Wait."


def test_arguments_are_json_even_if_there_are_none() -> None:
    log = Log()
    found = events([*deltas(START, *call_deltas("c1", "look")), log(answer(ToolCall("c1", "look", {})))])
    assert [one["delta"] for one in found if one["type"] == "TOOL_CALL_ARGS"] == ["{}"]


def test_arguments_that_arrived_incompletely_are_corrected() -> None:
    log = Log()
    arrived = deltas(START, ToolCallStart("c1", "look"), ToolCallArgs("c1", '{  "at'))
    found = events([*arrived, log(answer(CALL))])
    (snapshot,) = [one for one in found if one["type"] == "MESSAGES_SNAPSHOT"]
    assert snapshot["messages"][0]["toolCalls"][0]["function"]["arguments"] == '{"at":"sky"}'


def test_a_call_that_was_cut_off_is_taken_back() -> None:
    cut = (ToolCallStart("c1", "look"), ToolCallArgs("c1", '{"a'))
    found = events([*deltas(START, *cut, TextDelta("It ")), Log()(answer("It ", aborted=True))])
    assert found[-1] == {
        "type": "MESSAGES_SNAPSHOT",
        "messages": [{"id": FIRST, "role": "assistant", "content": "It "}],
    }
    log = Log()
    both = (*call_deltas("c2", "look", "{}"), *cut)
    found = events([*deltas(START, *both), log(answer(ToolCall("c2", "look", {}), aborted=True))])
    assert [call["id"] for call in found[-1]["messages"][0]["toolCalls"]] == ["c2"]
    found = events([*deltas(START, *cut), log(RunEnded(status="aborted"))])
    assert types(found)[-3:] == ["STEP_FINISHED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert found[-2]["messages"] == []
    found = events(
        [*deltas(START, *call_deltas("c1", "look", "{}"), BUSY), log(failed()), log(RunEnded(status="aborted"))]
    )
    assert types(found)[-4:] == ["TOOL_CALL_END", "STEP_FINISHED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_a_retry_takes_back_what_the_failed_attempt_showed() -> None:
    log = Log()
    searched = call_deltas("w1", "search", "{}", result="found")
    history = [{"id": "u", "role": "user", "content": "Go"}, {"id": "old", "role": "reasoning", "content": "old"}]
    read: list[Event] = [
        *deltas(START, ThinkingDelta("hm"), TextDelta("It sn"), *searched, BUSY),
        log(failed()),
        *deltas(START, ThinkingDelta("aha")),
        log(failed()),
        *deltas(START, BUSY),
        log(failed()),
        *deltas(START, TextDelta("It rains.")),
        log(answer("It rains.")),
    ]
    found = events(read, messages=history)
    snapshots = [one["messages"] for one in found if one["type"] == "MESSAGES_SNAPSHOT"]
    empty = {"id": f"{FIRST}-r1", "role": "reasoning", "content": ""}
    assert snapshots == [[*history, empty]] * 3
    assert types(found)[-2:] == ["TEXT_MESSAGE_END", "STEP_FINISHED"]


def test_approvals_are_interrupts() -> None:
    log = Log()
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    when = datetime(2026, 1, 2, tzinfo=UTC)
    plain = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"})
    full = ApprovalRequired(
        tool_call_id="c2",
        tool_name="look",
        arguments={},
        reason="risky",
        expires_at=when,
        parameters=schema,
        preview={"text": "up"},
    )
    stream = AgUiStream("t", "r")
    assert stream.pause() == b""
    for event in (log(answer(CALL, ToolCall("c2", "look", {}))), log(plain), log(full)):
        assert not stream.is_waiting
        stream.frames(event)
    assert stream.is_waiting
    (frame,) = stream.pause().decode().split("\n\n")[:-1]
    first, second = json.loads(frame.removeprefix("data: "))["outcome"]["interrupts"]
    answer_schema = first["responseSchema"]["properties"]
    assert first == {
        "id": approval_id(plain),
        "reason": "tool_call",
        "toolCallId": "c1",
        "message": 'Allow the tool look? 1 line, 9 characters:\nat: "sky"',
        "responseSchema": {"type": "object", "properties": answer_schema, "required": ["approved"]},
    }
    assert second["message"].startswith("Allow the tool look (risky)?")
    assert second["metadata"] == {"preview": {"text": "up"}}
    assert second["expiresAt"] == "2026-01-02T00:00:00Z"
    assert second["responseSchema"]["properties"]["arguments"] == schema
    assert (
        types(of(answer(CALL), plain, ApprovalDecided(tool_call_id="c1", decision="approve"), result("c1")))[-1]
        == "TOOL_CALL_RESULT"
    )


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("1.0", '{"type":"success","pendingToolCallIds":["c1"]}'), (None, '{"type":"success"}')],
    ids=["1.0", "earlier"],
)
def test_deferred_calls_are_pending(version: str | None, outcome: str) -> None:
    """Clients before 1.0 refuse an outcome with their ids."""
    log = Log()
    stream = AgUiStream("t", "r", protocol_version=version)
    for event in (
        log(answer(CALL)),
        log(ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}, deferred=True)),
    ):
        stream.frames(event)
    assert f'"outcome":{outcome}'.encode() in stream.pause()


def test_messages_that_join_the_run() -> None:
    joined = of(answer("First."), user("Faster!"), user(""), answer("Second."))
    assert joined[5:8] == [
        {"type": "TEXT_MESSAGE_START", "messageId": "m4", "role": "user"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m4", "delta": "Faster!"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m4"},
    ]
    assert types(joined)[8:10] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    picture = Image("image/png", data=b"x")
    (snapshot,) = [one for one in of(answer("First."), user("See", picture)) if one["type"] == "MESSAGES_SNAPSHOT"]
    assert snapshot["messages"][-1]["content"][1]["type"] == "image"


def test_notes_are_the_state_or_custom_events() -> None:
    assert of(Custom(name="state", data={"a": 1}), Custom(name="weather", data={"b": 2})) == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}},
        {"type": "CUSTOM", "name": "weather", "value": {"b": 2}},
    ]


def test_how_a_run_ends() -> None:
    def last(end: RunEnded) -> Json:
        return events([Log()(end)])[-1]

    usage = Usage(3, 2**60, cache_read_tokens=1)
    done = last(RunEnded(status="completed", usage=usage))
    most = 2**53 - 1
    counts = {"inputTokens": 3, "outputTokens": most, "totalTokens": most, "cachedInputTokens": 1}
    assert done == {"type": "RUN_FINISHED", **IDS, "outcome": {"type": "success"}, "usage": [counts]}
    assert last(RunEnded(status="aborted")) == {"type": "RUN_FINISHED", **IDS}, "as clients before 1.0 accept it"
    current = AgUiStream("t", "r", protocol_version="1.0")
    assert current.events(Log()(RunEnded(status="aborted")))[-1]["outcome"] == {"type": "cancelled"}
    assert last(RunEnded(status="failed", error=BUSY)) == {"type": "RUN_ERROR", "message": "busy", "code": "overloaded"}
    assert last(RunEnded(status="failed", error=Failed(ErrorCode.REFUSED)))["message"] == "refused"
    assert last(RunEnded(status="failed", reason="limit")) == {"type": "RUN_ERROR", "message": "limit"}
    assert last(RunEnded(status="failed"))["message"] == "The run failed."


def test_a_client_that_opens_a_thread_gets_its_messages_first() -> None:
    messages = [{"id": "u", "role": "user", "content": "Go"}]
    stream = AgUiStream("t", "r", messages=messages, snapshot=True)
    frames = [json.loads(one.removeprefix("data: ")) for one in stream.finish().decode().split("\n\n")[:-1]]
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert frames[1]["messages"] == messages
    shared = AgUiStream("t", "r", parent_run_id="p", state={"theme": "dark"}, snapshot=True)
    started, _, state, _ = shared.closing_events()
    assert started["parentRunId"] == "p"
    assert state == {"type": "STATE_SNAPSHOT", "snapshot": {"theme": "dark"}}


def test_a_result_that_the_client_has_is_not_sent_again() -> None:
    log = Log()
    for fact in (
        RunStarted(),
        answer(CALL),
        ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}, deferred=True),
    ):
        log.entry(fact)
    own = [{"id": "x", "role": "tool", "toolCallId": "c1", "content": "grey"}]
    stream = AgUiStream("t", "r2", earlier=log.entries, messages=own)
    [sent] = read_run({"threadId": "t", "runId": "r", "messages": own}).outputs.values()
    assert types(stream.events(log(tool_message(sent)))) == ["RUN_STARTED"]
    other = AgUiStream("t", "r2", earlier=log.entries[:3], messages=own)  # whose output came too late
    assert types(other.events(log(result("c1", "blue")))) == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert other.messages == [{**own[0], "id": "c1-result", "content": "blue"}]
    stream = AgUiStream("t", "r2", earlier=log.entries[:3])
    assert types(stream.events(log(result("c1")))) == ["RUN_STARTED", "TOOL_CALL_RESULT"]
    assert stream.messages[-1]["content"] == "done"


def test_a_stream_without_further_events_ends_in_an_error() -> None:
    stream = AgUiStream("t", "r")
    for event in deltas(START, TextDelta("It ")):
        stream.frames(event)
    assert b'"type":"RUN_ERROR","message":"The connection to the run was lost."' in stream.close()
    assert stream.is_ended
    assert stream.close() == b""


STARTED = ToolProgress(
    tool_call_id="c1", content="reader has started.", metadata={"sessionId": "s/1", "agent": "reader"}
)
SUBAGENT = {"subagentRunId": "s/1"}


def test_a_sub_agent_begins_with_its_session_and_ends_with_its_call() -> None:
    for ended, last in (
        (result("c1"), {"type": "SUBAGENT_FINISHED", **SUBAGENT, "outcome": {"type": "success"}}),
        (result("c1", "No.", is_error=True), {"type": "SUBAGENT_ERROR", **SUBAGENT, "message": "No."}),
    ):
        found = of(
            answer(CALL),
            ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}),
            STARTED,
            ToolProgress(tool_call_id="c1", content="half"),
            ended,
        )
        begun = {"type": "SUBAGENT_STARTED", **SUBAGENT, "parentToolCallId": "c1", "name": "reader"}
        value = {"toolCallId": "c1", "content": "half", "title": None}
        assert found[5] == begun
        assert found[-3:-1] == [{"type": "CUSTOM", "name": "tool_progress", "value": value, **SUBAGENT}, last]
        assert types(found).count("SUBAGENT_STARTED") == 1


def test_a_sub_agent_that_waits_is_suspended_and_begins_again_when_the_run_continues() -> None:
    log = Log()
    question = ApprovalRequired(tool_call_id="c1/i1", tool_name="pay", arguments={})
    waiting = ToolProgress(
        tool_call_id="c1", content="Waiting", metadata={"sessionId": "s/1", "bartack.waiting": ["c1/i1"]}
    )
    stream = AgUiStream("t", "r")
    made = [
        one for fact in (RunStarted(), answer(CALL), STARTED, question, waiting) for one in stream.events(log(fact))
    ]
    assert stream.is_waiting
    made += [json.loads(frame.removeprefix("data: ")) for frame in stream.pause().decode().split("\n\n") if frame]
    suspended = {"type": "suspended", "interruptIds": [approval_id(question)]}
    assert made[-2] == {"type": "SUBAGENT_FINISHED", **SUBAGENT, "outcome": suspended}
    assert made[-1]["outcome"]["interrupts"][0]["subagentRunId"] == "s/1"
    again = AgUiStream("t", "r2", earlier=log.entries)
    continued = [
        one
        for fact in (
            ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}),
            result("c1"),
            RunEnded(status="completed"),
        )
        for one in again.events(log(fact))
    ]
    client = AgUiClient()
    for one in [*made, *continued]:
        client.add(one)
    assert "SUBAGENT_STARTED" in types(continued)


def test_a_sub_agent_ends_with_its_run_at_the_latest() -> None:
    found = events(run_of(answer(CALL), STARTED))
    assert found[-2] == {"type": "SUBAGENT_ERROR", **SUBAGENT, "message": "The run ended."}


def test_a_message_that_the_client_sent_with_its_answers_is_not_sent_back() -> None:
    log = Log()
    log.entry(RunStarted())
    log.entry(answer(CALL))
    own = {"id": "m3", "role": "user", "content": "Wait!"}  # as the log will name it
    stream = AgUiStream("t", "r2", earlier=log.entries, messages=[own])
    assert stream.call_ids == {"c1": "c1"}
    assert types(stream.events(log(user("Wait!")))) == ["RUN_STARTED"]
