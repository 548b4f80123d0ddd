"""Decoding Gemini's Interactions API, one rule at a time, with small hand-made streams."""

import base64
import json
from typing import Any

import pytest

from bartack.formats.framing import LIMIT
from bartack.formats.gemini_interactions.decode import GeminiInteractions
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ThinkingDelta, ToolCallArgs, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]
CREATED: Json = {"event_type": "interaction.created", "interaction": {"id": "i1", "model": "gemini-x"}}
PNG = base64.b64encode(b"picture").decode()


def started(index: int, kind: str, **step: Any) -> Json:
    return {"event_type": "step.start", "index": index, "step": {"type": kind, **step}}


def piece(index: int, kind: str, **delta: Any) -> Json:
    return {"event_type": "step.delta", "index": index, "delta": {"type": kind, **delta}}


def stopped(index: int) -> Json:
    return {"event_type": "step.stop", "index": index}


def completed(status: str = "completed", **interaction: Any) -> Json:
    return {"event_type": "interaction.completed", "interaction": {"status": status, **interaction}}


def deltas_of(*events: Json) -> list[Delta]:
    body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    return decoded(GeminiInteractions(framing="lines"), body)


def message_of(*events: Json) -> Message:
    return assembler_of(deltas_of(CREATED, *events, completed())).build_final_message()


def failure_of(*events: Json) -> Failed:
    end = deltas_of(*events)[-1]
    assert isinstance(end, Failed)
    return end


def data_of(part: Part) -> Json:
    assert part.continuation is not None
    return part.continuation.data


def text_step(index: int, *pieces: str) -> list[Json]:
    return [started(index, "model_output"), *(piece(index, "text", text=p) for p in pieces), stopped(index)]


# -- the stream


def test_a_stream_of_server_sent_events_becomes_deltas() -> None:
    events = [CREATED, {"event_type": "interaction.status_update"}, *text_step(0, "Hel", "lo"), completed()]
    lines = [f"event: {event['event_type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    body = "".join([*lines, "event: done\ndata: [DONE]\n\n"]).encode()
    assert decoded(GeminiInteractions(), body) == [
        Start("gemini-x", "i1", provider="gemini-interactions"),
        TextDelta("Hel", new_part=True),
        TextDelta("lo"),
        Done("stop", raw_finish_reason="completed"),
    ]


def test_the_sse_event_name_is_used_if_the_data_has_no_type() -> None:
    body = b'event: interaction.completed\ndata: {"interaction": {"status": "completed"}}\n\n'
    assert decoded(GeminiInteractions(), body)[-1] == Done("stop", raw_finish_reason="completed")


def test_a_stream_without_completion_is_truncated() -> None:
    """D-3.5: [DONE] alone does not complete an interaction."""
    body = b"data: [DONE]\n\n"
    end = decoded(GeminiInteractions(), body)[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize(
    ("status", "reason"),
    [("completed", "stop"), ("requires_action", "tool_calls"), ("incomplete", "length"), ("cancelled", "other")],
)
def test_statuses_map_to_finish_reasons(status: str, reason: str) -> None:
    """D-3.4.5."""
    assert deltas_of(CREATED, completed(status))[-1] == Done(reason, raw_finish_reason=status)  # type: ignore[arg-type]


def test_events_without_content_are_ignored() -> None:
    nothing: list[Json] = [
        {"event_type": kind}
        for kind in ("interaction.created", "step.start", "step.delta", "step.stop", "invented.later")
    ]
    assert deltas_of(*nothing, {}, {"event_type": "interaction.completed"})[-1] == Done("other")


def test_a_failed_interaction_is_an_error() -> None:
    errors = [{"code": "https://google.dev/errors/unavailable", "message": "try later"}]
    end = failure_of(CREATED, completed("failed", errors=errors))
    assert (end.error_code, end.message, end.raw_code) == (ErrorCode.OVERLOADED, "try later", "unavailable")
    assert failure_of(completed("failed")).message == "the interaction failed"


def test_an_error_event_ends_the_stream() -> None:
    assert failure_of({"event_type": "error", "error": {"message": "no"}}).message == "no"
    assert failure_of({"event_type": "error"}).error_code is ErrorCode.PROVIDER_ERROR
    refused = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slowly"}}
    assert failure_of(refused).error_code is ErrorCode.RATE_LIMITED


def test_an_error_in_an_output_ends_the_stream() -> None:
    end = failure_of(CREATED, started(0, "model_output", error={"code": 13, "message": "internal"}))
    assert end.message == "internal"


# -- usage


def test_usage_is_read_from_any_event_and_at_the_end() -> None:
    """D-3.4."""
    running = {"metadata": {"usage": {"total_input_tokens": 5}}}
    total = {"metadata": {"total_usage": {"total_input_tokens": 5, "total_output_tokens": 1}}}
    counts = {
        "total_input_tokens": 5,
        "total_tool_use_tokens": 2,
        "total_cached_tokens": 3,
        "total_output_tokens": 7,
        "total_thought_tokens": 4,
    }
    deltas = deltas_of({**CREATED, **running}, {**stopped(9), **total}, completed(usage=counts))
    assert [delta for delta in deltas if isinstance(delta, Usage)] == [
        Usage(5, 0),
        Usage(5, 1),
        Usage(7, 11, cache_read_tokens=3, reasoning_tokens=4),
    ]


def test_usage_without_counts_is_ignored() -> None:
    """D-3.4.3."""
    assert not [delta for delta in deltas_of(completed(usage={})) if isinstance(delta, Usage)]


# -- text and thoughts


def test_each_thought_is_a_part_with_its_signature() -> None:
    """D-3.9."""
    message = message_of(
        started(0, "thought"),
        piece(0, "thought_summary", content={"type": "text", "text": "hm"}),
        piece(0, "thought_signature", signature=""),
        piece(0, "thought_summary", content=None),
        piece(0, "thought_summary", content={"type": "text", "text": "m"}),
        piece(0, "thought_signature", signature="s1"),
        stopped(0),
        started(1, "thought", signature="s2", summary=[{"type": "text", "text": "so"}]),
        stopped(1),
    )
    assert [part.text for part in message.parts if isinstance(part, Thinking)] == ["hmm", "so"]
    assert [data_of(part) for part in message.parts] == [
        {"type": "thought", "signature": "s1"},
        {"type": "thought", "signature": "s2"},
    ]


def test_a_thought_with_only_a_signature_is_kept() -> None:
    [part] = message_of(started(0, "thought"), piece(0, "thought_signature", signature="s"), stopped(0)).parts
    assert (part.kind, data_of(part)) == ("thinking", {"type": "thought", "signature": "s"})


def test_each_output_is_a_part_of_its_own() -> None:
    message = message_of(*text_step(0, "a", ""), *text_step(1, "b"))
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["a", "b"]


def test_a_whole_output_in_step_start_is_emitted() -> None:
    content = [
        {"type": "text", "text": "a", "annotations": [1]},
        "?",
        {"type": "image", "data": PNG, "mime_type": "image/png"},
    ]
    message = message_of(started(0, "model_output", content=content), piece(0, "text", text="b"), stopped(0))
    assert [part.kind for part in message.parts] == ["text", "tool_call", "text"]
    assert data_of(message.parts[0]) == {"annotations": [1]}


def test_annotations_are_collected_on_their_text() -> None:
    message = message_of(
        started(0, "model_output"),
        piece(0, "text", text="a"),
        piece(0, "text_annotation_delta", annotations=[{"n": 1}]),
        piece(0, "text_annotation_delta", annotations=[{"n": 2}]),
        piece(0, "text_annotation_delta"),
        stopped(0),
    )
    assert data_of(message.parts[0]) == {"annotations": [{"n": 1}, {"n": 2}]}


def test_a_step_without_step_start_begins_with_its_first_delta() -> None:
    message = message_of(
        piece(0, "thought_signature", signature="s"),
        stopped(0),
        piece(1, "text", text="a"),
        piece(2, "arguments_delta"),
    )
    assert [part.kind for part in message.parts] == ["thinking", "text"]


def test_overlapping_steps_are_read_one_after_another() -> None:
    """D-3.2.2: the later text waits for the earlier one."""
    deltas = deltas_of(
        CREATED,
        started(0, "model_output"),
        piece(0, "text", text="a"),
        started(1, "thought"),
        piece(1, "thought_summary", content={"text": "t"}),
        started(2, "function_call", id="c", name="f"),
        piece(2, "arguments_delta", arguments="{}"),
        stopped(1),
        piece(0, "text", text="b"),
        stopped(0),
        stopped(2),
        completed("requires_action"),
    )
    message = assembler_of(deltas).build_final_message()
    assert [part.text for part in message.parts if isinstance(part, Text | Thinking)] == ["ab", "t"]
    assert [delta.text_delta for delta in deltas if isinstance(delta, TextDelta | ThinkingDelta)] == ["a", "b", "t"]


def test_held_back_data_is_limited() -> None:
    """D-3.11.2."""
    long = piece(1, "text", text="x" * (LIMIT // 2))
    end = failure_of(CREATED, started(0, "model_output"), started(1, "model_output"), long, long)
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


def test_pending_events_are_dropped_after_an_error() -> None:
    bad = piece(1, "image", data="no base64!", mime_type="image/png")
    waiting = [started(1, "model_output"), bad, piece(1, "text", text="not deltas")]
    deltas = deltas_of(CREATED, started(0, "model_output"), *waiting, completed())
    assert [type(delta) for delta in deltas] == [Start, Failed]


def test_nothing_follows_an_error_in_a_whole_step() -> None:
    content = [{"type": "image", "data": "no base64!"}, {"type": "text", "text": "not deltas"}]
    call = started(1, "google_search_call", id="c")
    deltas = deltas_of(
        CREATED, started(0, "model_output"), call, started(2, "model_output", content=content), completed()
    )
    assert [type(delta) for delta in deltas] == [Start, Failed]


# -- calls of the client


def test_the_arguments_of_a_function_call_are_joined() -> None:
    deltas = deltas_of(
        CREATED,
        started(0, "function_call", id="c1", name="f", arguments={}, signature=""),
        piece(0, "arguments_delta", arguments='{"a":'),
        piece(0, "arguments_delta", partial_arguments="1}"),
        piece(0, "arguments_delta"),
        stopped(0),
        completed("requires_action"),
    )
    [call] = assembler_of(deltas).build_final_message().tool_calls
    assert (call.tool_call_id, call.tool_name, call.arguments, call.continuation) == ("c1", "f", {"a": 1}, None)
    assert [delta.args_text_delta for delta in deltas if isinstance(delta, ToolCallArgs)] == ['{"a":', "1}"]


def test_whole_arguments_are_emitted_at_the_end_of_the_step() -> None:
    message = message_of(
        started(0, "function_call", id="c1", name="f", arguments={"a": 1}, signature="s"),
        started(1, "function_call", name="g"),
        piece(1, "arguments_delta", arguments={"b": 2}),
    )
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"b": 2}]
    assert data_of(message.tool_calls[0]) == {"signature": "s"}


# -- calls of the provider


def test_a_provider_call_holds_its_result() -> None:
    """D-3.10."""
    message = message_of(
        started(0, "google_search_call", id="c1", signature="", search_type="web_search"),
        piece(0, "google_search_call", arguments={"queries": ["q"]}, signature="s"),
        stopped(0),
        started(1, "google_search_result", call_id="c1"),
        piece(1, "google_search_result", result=[{"url": "u"}], is_error=False),
        stopped(1),
    )
    [call] = message.tool_calls
    assert (call.tool_call_id, call.tool_name, call.executed_by) == ("c1", "google_search", "provider")
    assert call.arguments == {"queries": ["q"]}
    assert call.result is not None
    assert call.result.content == {"result": [{"url": "u"}]}
    assert data_of(call) == {
        "step": {
            "type": "google_search_call",
            "id": "c1",
            "signature": "s",
            "search_type": "web_search",
            "arguments": {"queries": ["q"]},
        },
        "resultStep": {"type": "google_search_result", "call_id": "c1", "result": [{"url": "u"}], "is_error": False},
    }


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        ({"a": 1}, {"a": 1}),
        ([{"type": "text", "text": "a"}], (Text("a"),)),
        ([{"type": "image", "data": PNG}], (Image("image/*", data=b"picture"),)),
        ([{"type": "image"}], {"result": [{"type": "image"}]}),
        ([], {"result": []}),
        (None, {"result": None}),
    ],
)
def test_results_of_every_shape_are_readable(result: Any, content: ToolContent) -> None:
    message = message_of(
        started(0, "mcp_server_tool_call", id="c1", name="look", server_name="s", arguments={}),
        stopped(0),
        started(1, "mcp_server_tool_result", call_id="c1", result=result, is_error=True),
        stopped(1),
    )
    [call] = message.tool_calls
    assert call.tool_name == "look"
    assert call.result is not None
    assert (call.result.content, call.result.is_error) == (content, True)


def test_a_provider_call_without_a_result_is_closed() -> None:
    [call] = message_of(started(0, "code_execution_call", id="c1", arguments={"code": "1"})).tool_calls
    assert call.result is None


def test_a_result_without_its_call_is_kept_as_a_call() -> None:
    [call] = message_of(started(0, "url_context_result", call_id="c9", result="page")).tool_calls
    assert (call.tool_call_id, call.tool_name, call.executed_by) == ("c9", "url_context", "provider")


def test_function_results_and_unknown_steps_are_kept_without_text() -> None:
    parts = message_of(started(0, "function_result", call_id="c1", result="x"), started(1, "novelty")).parts
    assert [part.text for part in parts if isinstance(part, Text)] == ["", ""]


def test_generated_media_are_results_of_provider_calls() -> None:
    message = message_of(
        started(0, "model_output"),
        piece(0, "image", data=PNG, mime_type="image/png"),
        piece(0, "audio", uri="https://x/a.wav"),
        stopped(0),
    )
    picture, sound = message.tool_calls
    assert picture.result is not None
    assert sound.result is not None
    assert (picture.tool_name, picture.result.content) == ("image_output", (Image("image/png", data=b"picture"),))
    assert data_of(picture) == {"content": {"type": "image", "mime_type": "image/png"}}
    assert sound.result.content == (FileRef("audio_output", mime_type="audio/*", url="https://x/a.wav"),)


@pytest.mark.parametrize(
    "event",
    [
        started(0, "model_output", deep=None),
        piece(9, "image", data=PNG, mime_type="image/png", deep=None),
        piece(9, "text_annotation_delta", annotations=[None]),
        piece(8, "arguments_delta", arguments={"deep": None}),
        piece(7, "google_search_call", arguments={"deep": None}),
    ],
)
def test_data_nested_too_deep_ends_the_stream(event: Json) -> None:
    """D-3.11.2."""
    deep = "[" * 80 + "]" * 80
    body = b"".join(
        json.dumps(item).replace("null", deep).encode() + b"\n"
        for item in (
            CREATED,
            started(7, "google_search_call"),
            started(8, "function_call", name="f"),
            started(9, "model_output"),
            event,
            completed(),
        )
    )
    end = decoded(GeminiInteractions(framing="lines"), body)[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


def test_a_repeated_call_id_is_replaced_and_kept() -> None:
    """D-3.8.1."""
    body = b"".join(
        json.dumps(item).encode() + b"\n" for item in (started(0, "function_call", id="c", name="f"), completed())
    )
    deltas = decoded(GeminiInteractions(framing="lines", used_call_ids=["c"]), body)
    [call] = assembler_of(deltas).build_final_message().tool_calls
    assert isinstance(call, ToolCall)
    assert data_of(call) == {"callId": "c"}
