"""The chunks of the AI SDK for every kind of change, in each version."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.display.question_text import question_text
from bartack.nouns.deltas import Failed, TextDelta, Usage
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    Fact,
    RunEnded,
    RunStarted,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import user
from bartack.nouns.parts import STRUCTURED, FileRef, Image, Text, Thinking, ToolCall
from bartack.protocols.ai_sdk import DONE, HEADERS, Chunk, UIMessageStream, Version
from bartack.session.decisions import approval_id, question_digest
from tests.protocols.events import BUSY, CALL, RUN, START, Events, Log, answer, deltas, failed, result, run_of

VERSIONS: tuple[Version, ...] = (5, 6, 7)
CALL_KEYS = {"toolCallId": "c1", "dynamic": True}
NAMED = {**CALL_KEYS, "toolName": "look"}
QUESTION = ApprovalRequired(
    tool_call_id="c1",
    tool_name="look",
    arguments={"at": "sky"},
    reason="risky",
    expires_at=datetime(2026, 1, 2, tzinfo=UTC),
)
DENIED = result("c1", "No.", is_error=True, error_code=ErrorCode.TOOL_DENIED)


def chunks(events: Events, version: Version = 6, **options: Any) -> list[Chunk]:
    stream = UIMessageStream(version, **options)
    return [chunk for event in events for chunk in stream.chunks(event)]


def of(*facts: Any, version: Version = 6) -> list[Chunk]:
    """The chunks of a run with these facts, without those at its start and end."""
    start, *between, last = chunks(run_of(*facts), version)
    assert start == {"type": "start", "messageId": RUN}
    assert last == {"type": "finish", "finishReason": "stop"}
    return between


def types(found: list[Chunk]) -> list[str]:
    return [chunk["type"] for chunk in found]


def test_text_and_thinking() -> None:
    assert of(answer(Thinking("hm"), "It rains.")) == [
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "t1"},
        {"type": "reasoning-delta", "id": "t1", "delta": "hm"},
        {"type": "reasoning-end", "id": "t1"},
        {"type": "text-start", "id": "t2"},
        {"type": "text-delta", "id": "t2", "delta": "It rains."},
        {"type": "text-end", "id": "t2"},
        {"type": "finish-step"},
    ]


def test_a_call_with_progress_and_a_result() -> None:
    found = of(
        answer(CALL),
        ToolStarted(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}),
        ToolProgress(tool_call_id="c1", content="half"),
        result("c1"),
    )
    assert found[1:-1] == [
        {"type": "tool-input-start", **NAMED},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"at":"sky"}'},
        {"type": "tool-input-available", **NAMED, "input": {"at": "sky"}},
        {"type": "tool-output-available", **CALL_KEYS, "output": "half", "preliminary": True},
        {"type": "tool-output-available", **CALL_KEYS, "output": "done"},
    ]


def test_tools_that_the_page_has_types_for_are_not_dynamic() -> None:
    found = chunks(run_of(answer(CALL), result("c1")), static_tools={"look"})
    assert not any("dynamic" in chunk for chunk in found)


def test_results_are_text_objects_lists_or_parts() -> None:
    def output(message: Any) -> Any:
        return of(answer(CALL), message)[-2]["output"]

    assert output(result("c1", {"sky": "grey"})) == {"sky": "grey"}
    assert output(result("c1", "[1]", metadata={STRUCTURED: [1]})) == [1]
    parts = (Text("a"), Image("image/png", data=b"x"), FileRef("a.txt", url="https://x/a.txt"), FileRef("b"))
    assert output(result("c1", parts)) == [
        {"type": "text", "text": "a"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,eA=="},
        {"type": "file", "mediaType": "application/octet-stream", "url": "https://x/a.txt", "filename": "a.txt"},
        {"type": "file", "mediaType": "application/octet-stream", "url": "b", "filename": "b"},
    ]


def test_calls_that_fail() -> None:
    bad = ToolCall("c1", "look", {}, raw_args_text="{")
    found = of(answer(bad, bad_args={"c1": "not JSON"}), result("c1", {"why": 1}, is_error=True))
    assert found[-3] == {"type": "tool-input-error", **NAMED, "input": "{", "errorText": "not JSON"}
    assert found[-2] == {"type": "tool-output-error", **CALL_KEYS, "errorText": '{"why":1}'}


def test_calls_that_were_cut_off() -> None:
    log = Log()
    found = chunks([log(failed(CALL)), log(RunEnded(status="failed", error=BUSY))])
    reason = "Not executed: the model call failed."
    assert found[-3] == {"type": "tool-input-error", **NAMED, "input": None, "errorText": reason}
    assert types(found)[-2:] == ["finish-step", "error"]


def test_calls_of_the_provider() -> None:
    call = ToolCall("c1", "look", {}, executed_by="provider", result=result("c1").tool_results[0])
    found = of(answer(call))
    by_type = {chunk["type"]: chunk.get("providerExecuted") for chunk in found if chunk["type"].startswith("tool-")}
    assert by_type == {
        "tool-input-start": True,
        "tool-input-delta": None,
        "tool-input-available": True,
        "tool-output-available": True,
    }


def test_approvals_in_each_version() -> None:
    facts = (answer(CALL), QUESTION, ApprovalDecided(tool_call_id="c1", decision="deny", reason="No."), DENIED)
    id = approval_id(QUESTION)
    request = {"type": "tool-approval-request", "approvalId": id, "toolCallId": "c1"}
    denied = {"type": "tool-output-denied", "toolCallId": "c1"}
    response = {"type": "tool-approval-response", "approvalId": id, "approved": False, "reason": "No."}
    asked, decided, failed_call = of(*facts, version=5)[4:-1]
    assert of(*facts)[4:-1] == [asked, request, decided, denied]
    assert of(*facts, version=7)[4:-1] == [asked, {**request, "reason": "risky"}, decided, response, denied]
    assert asked["id"] == id
    assert asked["data"] == {
        "toolCallId": "c1",
        "toolName": "look",
        "input": {"at": "sky"},
        "reason": "risky",
        "expiresAt": "2026-01-02T00:00:00Z",
        "preview": None,
        "text": question_text(QUESTION),
    }
    assert (decided["id"], decided["data"]["approved"], decided["data"]["reason"]) == (asked["id"], False, "No.")
    assert failed_call == {"type": "tool-output-error", **CALL_KEYS, "errorText": "No."}


def test_an_approval_without_details() -> None:
    plain = ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"})
    facts = (
        answer(CALL),
        plain,
        ApprovalDecided(tool_call_id="c1", decision="pause"),
        ApprovalDecided(tool_call_id="c1", decision="approve"),
        result("c1"),
    )
    assert types(of(*facts, version=7)[4:-1]) == [
        "data-approval",
        "tool-approval-request",
        "data-approval",
        "tool-approval-response",
        "tool-output-available",
    ]
    response = {"type": "tool-approval-response", "approvalId": approval_id(plain), "approved": True}
    assert of(*facts, version=7)[7] == response
    assert of(*facts, version=5)[4]["data"]["expiresAt"] is None


def test_a_question_that_is_asked_again_has_another_id_and_old_decisions_are_not_shown_for_it() -> None:
    first, second = (
        ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"at": "sky"}, preview={"text": text})
        for text in ("blue", "grey")
    )
    old = ApprovalDecided(tool_call_id="c1", decision="approve", question_digest=question_digest(first))
    found = of(answer(CALL), first, old, second, old, version=7)[4:-1]
    questions = [chunk for chunk in found if chunk["type"] == "tool-approval-request"]
    assert [chunk["approvalId"] for chunk in questions] == [approval_id(first), approval_id(second)]
    assert found[-1] == questions[-1]
    assert found[-2]["data"]["preview"] == {"text": "grey"}


def test_a_denial_without_a_question_is_an_error() -> None:
    unasked = ApprovalDecided(tool_call_id="c1", decision="deny")
    assert of(answer(CALL), unasked, DENIED) == of(answer(CALL), DENIED)
    assert of(answer(CALL), DENIED)[-2] == {"type": "tool-output-error", **CALL_KEYS, "errorText": "No."}


def test_a_void_step_in_each_version() -> None:
    log = Log()
    events = [
        *deltas(START, TextDelta("It sn"), BUSY),
        log(failed()),
        *deltas(START, TextDelta("It rains.")),
        log(answer("It snows.")),
    ]
    found = chunks(events, 7)
    assert types(found)[2:7] == ["text-start", "text-delta", "text-end", "reset-step", "text-start"]
    found = chunks(events, 6)
    retries = [chunk for chunk in found if chunk["type"] == "data-retry"]
    assert [(chunk["id"], chunk["data"]) for chunk in retries] == [
        ("retry-1", {"reason": "busy"}),
        ("retry-2", {"reason": "The answer was changed."}),
    ]
    at = types(found).index("data-retry")
    assert types(found)[at + 1 : at + 3] == ["finish-step", "start-step"]
    silent = failed(error=Failed(ErrorCode.OVERLOADED))
    log = Log()
    found = chunks([*deltas(START, TextDelta("a")), log(silent), *deltas(START)], 5)
    assert found[-3]["data"] == {"reason": "overloaded"}


def test_messages_that_join_the_run() -> None:
    facts = (answer("First."), user("Faster!"), answer("Second."))
    parts = [{"type": "text", "text": "Faster!"}]
    joined = of(*facts, version=7)[5]
    assert joined == {"type": "steering-message", "id": "e4", "parts": parts}
    joined = of(*facts)[5]
    assert joined == {"type": "data-user-message", "id": "e4", "data": {"parts": parts}}
    assert types(of(*facts))[4:7] == ["finish-step", "data-user-message", "start-step"]


def test_notes_are_data_parts() -> None:
    assert of(Custom(name="weather", data={"rain": 1})) == [{"type": "data-weather", "id": "e3", "data": {"rain": 1}}]


@pytest.mark.parametrize("version", VERSIONS)
def test_how_a_run_ends(version: Version) -> None:
    def last(end: RunEnded) -> list[Chunk]:
        return chunks([Log()(end)], version)[1:]

    assert last(RunEnded(status="completed", reason="tool_calls")) == [{"type": "finish", "finishReason": "tool-calls"}]
    assert last(RunEnded(status="completed", reason="pause")) == [{"type": "finish", "finishReason": "other"}]
    assert last(RunEnded(status="failed", error=BUSY)) == [{"type": "error", "errorText": "busy"}]
    assert last(RunEnded(status="failed", error=Failed(ErrorCode.REFUSED))) == [
        {"type": "error", "errorText": "refused"}
    ]
    assert last(RunEnded(status="failed", reason="limit")) == [{"type": "error", "errorText": "limit"}]
    assert last(RunEnded(status="failed")) == [{"type": "error", "errorText": "The run failed."}]
    assert last(RunEnded(status="aborted")) == [{"type": "abort"}]
    stopped = {"type": "abort"} if version == 5 else {"type": "abort", "reason": "user"}
    assert last(RunEnded(status="aborted", reason="user")) == [stopped]


def test_usage_and_cost_are_metadata_of_the_message() -> None:
    end = RunEnded(status="completed", usage=Usage(3, 4), cost_usd=0.5)
    metadata = chunks([Log()(end)])[1]["messageMetadata"]
    assert (metadata["usage"]["totalTokens"], metadata["costUsd"]) == (7, 0.5)
    assert types(chunks([Log()(end)], metadata=False)) == ["start", "finish"]


def test_frames_end_with_done() -> None:
    stream = UIMessageStream()
    first, *others = run_of(answer("It rains."))
    assert stream.frames(first) == b""
    sent = b"".join(map(stream.frames, others))
    assert sent.startswith(b'data: {"type":"start","messageId":"run-1"}\n\ndata: {"type":"start-step"}\n\n')
    assert sent.endswith(b'data: {"type":"finish","finishReason":"stop"}\n\n' + DONE)
    assert stream.is_ended
    assert stream.close() == b""
    assert HEADERS["content-type"].startswith("text/event-stream")


def test_a_run_that_waits_is_paused() -> None:
    stream = UIMessageStream(7)
    log = Log()
    assert stream.pause() == b""
    for event in (log(answer(CALL)), log(QUESTION)):
        assert not stream.is_waiting
        stream.frames(event)
    assert stream.is_waiting
    assert stream.pause() == (
        b'data: {"type":"finish-step"}\n\ndata: {"type":"finish","finishReason":"tool-calls"}\n\n' + DONE
    )


def test_data_of_your_own() -> None:
    stream = UIMessageStream()
    sent = stream.data("plan", [1], id="p") + stream.data("beat", None, transient=True)
    frames = [json.loads(frame.removeprefix("data: ")) for frame in sent.decode().split("\n\n") if frame]
    assert frames == [
        {"type": "start"},
        {"type": "data-plan", "data": [1], "id": "p"},
        {"type": "data-beat", "data": None, "transient": True},
    ]
    assert stream.close().endswith(
        b'data: {"type":"error","errorText":"The connection to the run was lost."}\n\n' + DONE
    )
    with pytest.raises(PartValidationError, match="ended"):
        stream.data("late", 1)


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(PartValidationError, match="known: 5, 6, 7"):
        UIMessageStream(4)  # type: ignore[arg-type]


def test_a_sub_agent_is_named_once_and_its_calls_have_a_step_of_their_own() -> None:
    log = Log()
    stream = UIMessageStream()
    metadata = {"sessionId": "s/1", "agent": "reader"}
    facts: list[Fact] = [
        RunStarted(),
        answer(CALL),
        ToolProgress(tool_call_id="c1", content="reader has started.", metadata=metadata),
        ToolProgress(tool_call_id="c1", content="half"),
        ApprovalRequired(tool_call_id="c1/i1", tool_name="pay", arguments={}),
    ]
    found = [chunk for fact in facts for chunk in stream.chunks(log(fact))]
    named = [chunk for chunk in found if chunk["type"] == "data-subagent"]
    assert [chunk["data"] for chunk in named] == [{"toolCallId": "c1", "name": "reader", "sessionId": "s/1"}]
    kinds = [chunk["type"] for chunk in found]
    assert kinds[-7:-4] == ["finish-step", "start-step", "tool-input-start"]
    assert stream.call_ids == {"c1": "c1", "c1/i1": "c1/i1"}
