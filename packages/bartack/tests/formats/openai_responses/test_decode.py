"""Decoding the Responses API, with small made-up streams for each rule and quirk."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from bartack import user
from bartack.formats import ModelRequest, encode
from bartack.formats.openai_responses.decode import OpenAIResponses
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Failed, FinishReason, Start, TextDelta, ThinkingDelta, ToolCallArgs, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Image, Part, Text, Thinking, ToolCall
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]


def sse(*events: Json | str) -> bytes:
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


def deltas_of(*events: Json | str, **options: Any) -> list[Delta]:
    return decoded(OpenAIResponses(**options), sse(*events))


def answer(*events: Json | str, **response: Any) -> Message:
    """The message made from these events and the end of the response."""
    return assembler_of(deltas_of(*events, completed(**response))).build_final_message()


def failure(*events: Json | str) -> Failed:
    end = deltas_of(*events)[-1]
    assert isinstance(end, Failed)
    return end


def event(kind: str, index: int | None = 0, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **({} if index is None else {"output_index": index}), **fields}


def added(item: Json, index: int | None = 0) -> Json:
    return event("output_item.added", index, item=item)


def done(item: Json, index: int | None = 0) -> Json:
    return event("output_item.done", index, item=item)


def text(piece: str, index: int | None = 0, **fields: Any) -> Json:
    return event("output_text.delta", index, **{"content_index": 0, "delta": piece, **fields})


def summary(piece: str, index: int = 0, nth: int = 0) -> Json:
    return event("reasoning_summary_text.delta", index, summary_index=nth, delta=piece)


def completed(**response: Any) -> Json:
    return {"type": "response.completed", "response": {"id": "resp", "model": "m", "status": "completed", **response}}


def message(*texts: str, **fields: Any) -> Json:
    entries = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg", "role": "assistant", "content": entries, **fields}


def reasoning(*summaries: str, **fields: Any) -> Json:
    entries = [{"type": "summary_text", "text": text} for text in summaries]
    return {"type": "reasoning", "id": "rs", "summary": entries, **fields}


def function(arguments: str = "{}", **fields: Any) -> Json:
    return {"type": "function_call", "id": "fc", "call_id": "call", "name": "add", "arguments": arguments, **fields}


def data(part: Part) -> Json:
    assert part.continuation is not None
    return part.continuation.data


def only_call(reply: Message) -> ToolCall:
    (call,) = reply.tool_calls
    return call


# -- texts


def test_text_is_emitted_in_pieces_and_its_item_is_kept() -> None:
    """D-3.9."""
    reply = answer(added(message()), text("Hel"), text("lo"), done(message("Hello", phase="final_answer")))
    (part,) = reply.parts
    assert isinstance(part, Text)
    assert part.text == "Hello"
    assert data(part) == {
        "item": {"type": "message", "id": "msg", "role": "assistant", "phase": "final_answer"},
        "field": "content",
        "nth": 0,
        "part": {"type": "output_text", "annotations": []},
    }


@pytest.mark.parametrize(
    "events",
    [
        [added(message()), text("Hel"), done(message("Hello"))],
        [added(message()), text("Hel"), text(""), event("output_text.done", content_index=0, text="Hello")],
        [added(message()), event("output_text.done", content_index=0, text="Hello"), done(message("Hello"))],
        [event("content_part.done", content_index=0, part={"type": "output_text", "text": "Hello"})],
        [text("Hel"), text("lo"), completed(output=[message("Hello")])],
        [text("Hel", None), text("lo", None), done(message("Hello"), None), completed(output=[message("Hello")])],
        [done(message("Hello")), done(message("Hello")), text(" again")],
        [
            text("Hel", None),
            {"type": "ping"},
            text("lo", None),
            done(message("Hello"), None),
            done(message("Hello"), None),
        ],
        [
            text("Hello", None, item_id="a"),
            completed(output=[{"type": "message", "content": []}, message("Hello", id="a")]),
        ],
        [done(message("Hello")), completed(output=[message("Hello", id="renamed")])],
        [completed(output=[message("Hello"), "no item", None])],
        [{"type": "response.done", "response": {"output": [message("Hello")]}}],
    ],
)
def test_text_is_emitted_once_whatever_events_a_server_sends(events: list[Json]) -> None:
    reply = answer(*events)
    assert [part.text for part in reply.parts if isinstance(part, Text) and part.text] == ["Hello"]


def test_the_type_of_an_event_may_be_in_the_frame_only() -> None:
    body = b'event: response.output_text.delta\ndata: {"output_index": 0, "delta": "Hi"}\n\n' + sse(completed())
    assert assembler_of(decoded(OpenAIResponses(), body)).build_final_message().text == "Hi"


def test_several_texts_of_one_message_are_several_parts_of_one_item() -> None:
    """D-3.2.1."""
    entry = {"type": "output_text", "text": "one", "annotations": [{"url": "u"}]}
    item = message("one", "two", "three")
    reply = answer(
        text("one"),
        event("content_part.done", content_index=0, part=entry),
        text("two", content_index=1),
        done(item),
    )
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["one", "two", "three"]
    assert [data(part)["nth"] for part in reply.parts if isinstance(part, Text)] == [0, 1, 2]
    assert data(reply.parts[0])["part"] == {"type": "output_text", "annotations": [{"url": "u"}]}
    assert data(reply.parts[2])["item"]["id"] == "msg"


def test_the_first_of_several_texts_refers_to_their_common_item() -> None:
    reply = answer(added(message()), text("one"), text("two", content_index=1), done(message("one", "two")))
    assert data(reply.parts[0])["item"] == {"id": "msg"}


def test_two_messages_in_a_row_are_two_parts() -> None:
    reply = answer(text("one"), done(message("one")), text("two", 1), done(message("two", id="other"), 1))
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["one", "two"]


def test_a_message_without_text_is_kept() -> None:
    reply = answer(done(message()), done(message("", id="other"), 1))
    assert [data(part) for part in reply.parts if isinstance(part, Text)] == [
        {"item": {"type": "message", "id": "msg", "role": "assistant"}},
        {
            "item": {"type": "message", "id": "other", "role": "assistant"},
            "field": "content",
            "nth": 0,
            "part": {"type": "output_text", "annotations": []},
        },
    ]


def test_annotations_that_arrive_one_by_one_are_kept() -> None:
    reply = answer(
        text("see"),
        event("output_text.annotation.added", content_index=0, annotation={"url": "u"}),
        event("output_text.annotation.added", content_index=0, annotation=None),
        done(message("see")),
    )
    (part,) = reply.parts
    assert data(part)["part"]["annotations"] == [{"url": "u"}]


def test_a_refusal_is_text_with_its_own_finish_reason() -> None:
    """D-3.4.5."""
    refusal = {**message(), "content": [{"type": "refusal", "refusal": "I won't."}]}
    finished = event("refusal.done", content_index=0, refusal="I won't.")
    for events in ([event("refusal.delta", content_index=0, delta="I wo"), finished], [], [finished]):
        reply = answer(*events, done(refusal))
        assert reply.text == "I won't."
        assert reply.meta is not None
        assert reply.meta.finish_reason == "refusal"
        assert data(reply.parts[0])["part"] == {"type": "refusal"}


def test_an_unknown_entry_of_a_message_is_read_as_text() -> None:
    item = {**message(), "content": [{"type": "new_text", "text": "Hi"}, "no entry"]}
    reply = answer(done(item))
    assert (reply.text, data(reply.parts[0])["part"]) == ("Hi", {"type": "new_text"})


# -- reasoning


def test_reasoning_summaries_are_parts_and_the_ciphertext_follows_the_last() -> None:
    reply = answer(
        added(reasoning(encrypted_content="early")),
        summary("one"),
        event("reasoning_summary_text.done", summary_index=0, text="one"),
        event("reasoning_summary_part.done", summary_index=0, part={"type": "summary_text", "text": "one"}),
        summary("two", nth=1),
        done(reasoning("one", "two", encrypted_content="final")),
    )
    first, second = reply.parts
    assert isinstance(first, Thinking)
    assert isinstance(second, Thinking)
    assert (first.text, second.text) == ("one", "two")
    assert data(first) == {"item": {"id": "rs"}, "field": "summary", "nth": 0, "part": {"type": "summary_text"}}
    assert data(second)["item"] == {"type": "reasoning", "id": "rs", "encrypted_content": "final"}


def test_reasoning_without_text_is_a_part_with_continuation_data_only() -> None:
    reply = answer(added(reasoning()), done(reasoning(encrypted_content="x")), done(message("Hi"), 1))
    assert [part.kind for part in reply.parts] == ["thinking", "text"]
    assert reply.thinking == ""
    assert data(reply.parts[0]) == {"item": {"type": "reasoning", "id": "rs", "encrypted_content": "x"}}


def test_reasoning_text_and_summaries_are_separate_parts() -> None:
    item = {**reasoning("short"), "content": [{"type": "reasoning_text", "text": "long"}]}
    reply = answer(summary("short"), event("reasoning_text.delta", content_index=0, delta="long"), done(item))
    assert [data(part)["field"] for part in reply.parts if isinstance(part, Thinking)] == ["summary", "content"]
    assert reply.thinking == "shortlong"


def test_reasoning_that_is_closed_at_the_very_end_does_not_delay_the_answer() -> None:
    """llama.cpp sends no output_index, and finishes every item only after the last delta."""
    thought = {**reasoning(), "content": [{"type": "reasoning_text", "text": "hmm"}], "encrypted_content": ""}
    decoder = OpenAIResponses()
    early = decoder.receive_data(
        sse(
            added(reasoning(), None),
            event("reasoning_text.delta", None, item_id="rs", delta="hmm"),
            added(message(), None),
            text("Hi", None, item_id="msg"),
        )
    )
    assert [type(delta) for delta in early] == [Start, ThinkingDelta, ThinkingDelta, TextDelta]
    late = decoder.receive_data(sse(done(thought, None), done(message("Hi"), None), completed()))
    reply = assembler_of(early + late).build_final_message()
    assert [type(part) for part in reply.parts] == [Thinking, Text]


def test_a_ciphertext_after_the_answer_becomes_an_empty_text() -> None:
    reply = answer(
        added(reasoning()),
        summary("hmm"),
        text("Hi", 1),
        done(message("Hi"), 1),
        done(reasoning("hmm", encrypted_content="x")),
    )
    thought, spoken, late = reply.parts
    assert isinstance(thought, Thinking)
    assert isinstance(spoken, Text)
    assert isinstance(late, Text)
    assert (thought.text, spoken.text, late.text) == ("hmm", "Hi", "")
    assert data(late) == {"item": {"type": "reasoning", "id": "rs", "encrypted_content": "x"}}


def test_open_reasoning_without_content_keeps_its_place() -> None:
    """It must be sent back before the item it led to."""
    reply = answer(
        added(reasoning()), added(function(), 1), done(function(), 1), done(reasoning(encrypted_content="x"))
    )
    assert [part.kind for part in reply.parts] == ["thinking", "tool_call", "text"]
    assert data(reply.parts[0]) == {"item": {"type": "reasoning", "id": "rs"}}


def test_reasoning_that_continues_during_the_answer_follows_it() -> None:
    reply = answer(
        added(reasoning()), summary("a"), text("Hi", 1), summary("b"), done(message("Hi"), 1), done(reasoning("ab"))
    )
    assert [(type(part), part.text) for part in reply.parts if isinstance(part, Text | Thinking)] == [
        (Thinking, "a"),
        (Text, "Hi"),
        (Thinking, "b"),
    ]
    assert data(reply.parts[0])["nth"] == data(reply.parts[2])["nth"] == 0


# -- one text at a time


def test_two_interleaved_messages_are_not_mixed() -> None:
    reply = answer(
        text("one "),
        text("two ", 1),
        added(function(), 2),
        event("function_call_arguments.delta", 2, delta='{"a":'),
        summary("thought", 3),
        text("and one"),
        text("and two", 1),
        done(message("one and one")),
        done(function('{"a":1}'), 2),
        done(message("two and two", id="other"), 1),
        done(reasoning("thought"), 3),
    )
    assert [part.text if isinstance(part, Text | Thinking) else part.kind for part in reply.parts] == [
        "one and one",
        "two and two",
        "tool_call",
        "thought",
    ]
    assert only_call(reply).arguments == {"a": 1}


def test_waiting_reasoning_is_suspended_for_the_next_waiting_item() -> None:
    reply = answer(text("say"), summary("thought", 1), summary("other", 2), done(message("say")))
    assert [part.text for part in reply.parts if isinstance(part, Thinking)] == ["thought", "other"]


def test_waiting_text_is_emitted_before_the_error_of_a_truncated_stream() -> None:
    """D-3.5, D-3.5.2."""
    deltas = deltas_of(text("one"), text("two", 1), text("three", 2))
    assert [delta.text_delta for delta in deltas if isinstance(delta, TextDelta)] == ["one", "two", "three"]
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].error_code is ErrorCode.STREAM_TRUNCATED


def test_waiting_events_have_a_limit() -> None:
    """D-3.11.2."""
    piece = "x" * (1024 * 1024)
    assert failure(text("one"), *[text(piece, 1) for _ in range(17)]).error_code is ErrorCode.STREAM_TOO_LARGE


PIECE = "x" * (1024 * 1024)


@pytest.mark.parametrize(
    "repeated",
    [
        lambda nth: text(PIECE),
        lambda nth: text(PIECE, nth),
        lambda nth: text(PIECE, content_index=nth),
        lambda nth: event("output_text.done", text=str(nth) + PIECE),
        lambda nth: event("output_text.done", content_index=nth, text=PIECE),
        lambda nth: event("content_part.done", part={"type": "output_text", "text": str(nth) + PIECE}),
        lambda nth: summary(PIECE, nth=nth),
        lambda nth: event("function_call_arguments.delta", item_id="fc", delta=PIECE),
        lambda nth: event("function_call_arguments.done", item_id="fc", arguments=str(nth) + PIECE),
        lambda nth: added(message(PIECE, id=str(nth)), nth),
        lambda nth: done(
            {"type": "shell_call", "call_id": str(nth), "environment": {"type": "x"}, "action": PIECE}, nth
        ),
    ],
    ids=range(11),
)
def test_everything_that_is_kept_has_a_limit(repeated: Callable[[int], Json]) -> None:
    """D-3.11.2."""
    start = [added(message()), added(function(), 99), text("a")]
    assert failure(*start, *map(repeated, range(7))).error_code is ErrorCode.STREAM_TRUNCATED
    assert failure(*start, *map(repeated, range(17))).error_code is ErrorCode.STREAM_TOO_LARGE


@pytest.mark.parametrize(
    "repeated",
    [
        lambda nth: text("a", nth, item_id=str(nth)),
        lambda nth: text("a", content_index=nth),
        lambda nth: added(message(id=str(nth)), nth),
        lambda nth: added(function(id="same"), nth),
        lambda nth: done(reasoning(id="same"), nth),
    ],
    ids=range(5),
)
def test_the_number_of_items_and_texts_has_a_limit(repeated: Callable[[int], Json]) -> None:
    """D-3.11.2."""
    assert failure(*map(repeated, range(5_000))).error_code is ErrorCode.STREAM_TRUNCATED
    assert failure(*map(repeated, range(20_000))).error_code is ErrorCode.STREAM_TOO_LARGE


def test_finished_items_do_not_count_as_kept() -> None:
    """A response may have several images of a few megabytes each."""
    images = [{"type": "image_generation_call", "id": str(nth), "result": 4 * PIECE} for nth in range(5)]
    reply = answer(*[done(image, nth) for nth, image in enumerate(images)])
    assert len(reply.tool_calls) == 5


def test_data_nested_too_deep_is_an_error() -> None:
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    assert failure(done(message(deep=deep))).error_code is ErrorCode.STREAM_TOO_LARGE
    assert failure(added(message(deep=deep))).error_code is ErrorCode.STREAM_TOO_LARGE
    assert failure(completed(output=[message(deep=deep)])).error_code is ErrorCode.STREAM_TOO_LARGE


# -- finding the item of an event


def test_an_item_whose_id_changes_with_every_event_is_found_by_its_index() -> None:
    """GitHub Copilot."""
    reply = answer(
        added(message(id="a")),
        text("Hel", item_id="b"),
        text("lo", item_id="c"),
        done(message("Hello", id="d")),
    )
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["Hello"]
    assert data(reply.parts[0])["item"]["id"] == "d"


def test_items_with_the_same_index_are_distinguished_by_id() -> None:
    reply = answer(
        added(message(id="a")),
        text("one", item_id="a"),
        done(message("one", id="a")),
        added(message(id="b")),
        text("two", item_id="b"),
        done(message("two", id="b")),
        done(message("three", id="c")),
    )
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["one", "two", "three"]


def test_items_without_id_and_index_are_distinguished_by_order() -> None:
    reply = answer(
        text("one", None),
        done({"type": "message", "content": []}, None),
        added(function(), None),
        text("two", None),
        {"type": "ping"},
        added(function(id="fc2", call_id="call2"), None),
        text(" too", None),
        done({"type": "message", "content": [{"type": "output_text", "text": "two too"}]}, None),
    )
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["one", "two too"]
    assert len(reply.tool_calls) == 2


def test_an_item_announced_twice_is_one_item() -> None:
    reply = answer(added(function()), added(function()), done(function()))
    assert only_call(reply).tool_name == "add"


@pytest.mark.parametrize("index", [None, 1])
def test_two_items_with_the_same_id_are_both_kept(index: int | None) -> None:
    first, second = (reasoning(text, id="rs", encrypted_content=text) for text in ("one", "two"))
    places = (None, None) if index is None else (0, 1)
    ends = [done(first, places[0]), done(second, places[1])]
    announced = [added(first, places[0]), ends[0], added(second, places[1]), ends[1]]
    at_once = [added(first, places[0]), added(second, places[1]), *ends]
    last = done(message("Hi"), None if index is None else 2)
    output = [first, second, message("Hi")]
    for events in (ends, announced, *([] if index is None else [at_once])):
        for response in ({}, {"output": output}):
            reply = answer(*events, last, **response)
            thoughts = [part for part in reply.parts if isinstance(part, Thinking)]
            assert [part.text for part in thoughts] == ["one", "two"]
            assert [data(part)["item"]["encrypted_content"] for part in thoughts] == ["one", "two"]
            assert [data(part).get("again") for part in thoughts] == [None, 1]
            request = ModelRequest((user("a"), reply), config=ModelConfig("grok"), provider="openai-responses")
            items = encode("openai-responses", request).body["input"]
            assert [item for item in items if item.get("type") == "reasoning"] == [first, second]


def test_pieces_of_items_with_the_same_id_are_kept_apart_by_their_index() -> None:
    def piece(text: str, index: int) -> Json:
        return event("reasoning_summary_text.delta", index, item_id="rs", summary_index=0, delta=text)

    reply = answer(
        piece("one", 0), done(reasoning("one"), 0), piece("two", 1), done(reasoning("two"), 1), piece("late", 1)
    )
    assert [part.text for part in reply.parts if isinstance(part, Thinking)] == ["one", "two"]


@pytest.mark.parametrize("index", [None, 0])
def test_an_item_that_is_finished_twice_is_one_item(index: int | None) -> None:
    reply = answer(done(message("Hi"), index), done(message("Hi"), index), done(function(), 1), done(function(), 1))
    assert reply.text == "Hi"
    assert len(reply.tool_calls) == 1


def test_open_items_with_the_same_id_are_finished_in_their_order() -> None:
    reply = answer(added(reasoning(), 0), added(reasoning(), 1), output=[reasoning("one"), reasoning("two")])
    assert [part.text for part in reply.parts if isinstance(part, Thinking)] == ["one", "two"]


def test_a_finished_call_is_not_mistaken_for_another_one_with_its_call_id() -> None:
    unnamed = {key: value for key, value in function('{"b":2}').items() if key != "id"}
    reply = answer(added(function("")), output=[function('{"a":1}'), unnamed])
    assert [call.arguments for call in reply.tool_calls] == [{"a": 1}, {"b": 2}]


def test_the_id_of_a_call_does_not_hide_an_open_item_of_that_id() -> None:
    reply = answer(
        added(function("", id="x", call_id="c1"), 0),
        added(function("", id="y", call_id="x"), 1),
        event("function_call_arguments.delta", None, item_id="x", delta='{"a":1}'),
        done(function('{"a":1}', id="x", call_id="c1"), 0),
        done(function("{}", id="y", call_id="x"), 1),
    )
    assert [(call.tool_call_id, call.arguments) for call in reply.tool_calls] == [("c1", {"a": 1}), ("x", {})]


def test_text_for_an_item_of_another_kind_is_an_item_of_its_own() -> None:
    reply = answer(added(function()), text("Hi"), done(function()))
    assert reply.text == "Hi"
    assert only_call(reply).tool_name == "add"


def test_a_result_and_its_call_may_share_an_id() -> None:
    reply = answer(done(function(id="same")), done({"type": "message", "id": "same", "content": []}, 1))
    assert [part.kind for part in reply.parts] == ["tool_call", "text"]


# -- calls


def test_arguments_are_emitted_in_pieces() -> None:
    """D-3.3."""
    deltas = deltas_of(
        added(function("")),
        event("function_call_arguments.delta", item_id="fc", delta='{"a"'),
        event("function_call_arguments.delta", item_id="fc", delta=":"),
        event("function_call_arguments.delta", item_id="fc", delta=""),
        event("function_call_arguments.done", item_id="fc", arguments='{"a":1}'),
        done(function('{"a":1}')),
        completed(),
    )
    assert [delta.args_text_delta for delta in deltas if isinstance(delta, ToolCallArgs)] == ['{"a"', ":", "1}"]
    reply = assembler_of(deltas).build_final_message()
    call = only_call(reply)
    assert (call.tool_call_id, call.tool_name, call.arguments) == ("call", "add", {"a": 1})
    assert data(call) == {"item": {"type": "function_call", "id": "fc"}}
    assert reply.meta is not None
    assert reply.meta.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "events",
    [
        [done(function('{"a":1}'))],
        [added(function("", name="")), event("function_call_arguments.delta", delta='{"a'), done(function('{"a":1}'))],
        [added(function("")), event("function_call_arguments.done", arguments='{"a":1}')],
        [event("function_call_arguments.delta", delta='{"a'), done(function('{"a":1}'))],
        [completed(output=[function('{"a":1}')])],
        [added(function(""), None), event("function_call_arguments.delta", None, item_id="call", delta='{"a":1}')],
    ],
)
def test_a_call_is_emitted_once_whatever_events_a_server_sends(events: list[Json]) -> None:
    call = only_call(answer(*events))
    assert (call.tool_call_id, call.arguments) == ("call", {"a": 1})


def test_arguments_of_a_call_that_never_started_or_finished_are_ignored() -> None:
    assert answer(event("function_call_arguments.delta", delta="{}"), text("Hi", 1)).tool_calls == ()


def test_arguments_after_the_end_of_a_call_are_ignored() -> None:
    late = event("function_call_arguments.delta", delta="more")
    assert only_call(
        answer(done(function('{"a":1}')), late, event("function_call_arguments.done", arguments=5))
    ).arguments == {"a": 1}


def test_arguments_that_are_not_compact_json_are_kept_as_written() -> None:
    assert data(only_call(answer(done(function('{"a": 1}')))))["item"]["arguments"] == '{"a": 1}'
    bad = answer(done(function('{"a')))
    assert only_call(bad).raw_args_text == '{"a'
    assert data(only_call(bad))["item"]["arguments"] == '{"a'


def test_repeated_ids_become_unique_and_the_original_is_kept() -> None:
    """D-3.8.1."""
    deltas = deltas_of(done(function()), completed(), used_call_ids=["call"], local_id="r1")
    call = only_call(assembler_of(deltas).build_final_message())
    assert call.tool_call_id == "r1-1"
    assert data(call)["callId"] == "call"


def test_parallel_calls_may_interleave() -> None:
    """D-3.3."""
    second = function('{"b":2}', id="fc2", call_id="call2")
    reply = answer(
        added(function("")),
        added({**second, "arguments": ""}, 1),
        event("function_call_arguments.delta", 0, delta='{"a":'),
        event("function_call_arguments.delta", 1, delta='{"b":'),
        event("function_call_arguments.delta", 0, delta="1}"),
        event("function_call_arguments.delta", 1, delta="2}"),
        done(second, 1),
        done(function('{"a":1}')),
    )
    assert [call.arguments for call in reply.tool_calls] == [{"a": 1}, {"b": 2}]


CUSTOM = {"type": "custom_tool_call", "id": "ctc", "call_id": "call", "name": "run", "input": 'say "hi"\n\U0001f600'}


@pytest.mark.parametrize("pieces", [[], ['say "h'], ['say "', 'hi"\n', "\U0001f600"]])
def test_free_text_input_becomes_an_argument(pieces: list[str]) -> None:
    """The raw text is the argument, so it is sent back exactly."""
    events = [event("custom_tool_call_input.delta", delta=piece) for piece in pieces]
    events.append(event("custom_tool_call_input.done", input=CUSTOM["input"]))
    call = only_call(answer(added({**CUSTOM, "input": ""}), *events, done(CUSTOM)))
    assert (call.arguments, call.executed_by) == ({"input": CUSTOM["input"]}, "client")
    assert data(call) == {"item": {"type": "custom_tool_call", "id": "ctc"}}


def test_free_text_that_the_finished_item_omits_is_kept() -> None:
    hollow = {key: value for key, value in CUSTOM.items() if key != "input"}
    piece = event("custom_tool_call_input.delta", delta="abc")
    assert only_call(answer(added(hollow), piece, done(hollow))).arguments == {"input": "abc"}
    assert only_call(answer(done(hollow))).arguments == {}


@pytest.mark.parametrize(
    ("tools", "executor"),
    [
        ([], "client"),
        ([{"type": "custom", "name": "run"}], "client"),
        ([{"type": "namespace", "name": "ns", "tools": [{"type": "custom", "name": "run"}]}], "client"),
        ([{"type": "x_search"}, "odd"], "provider"),
    ],
)
def test_a_free_text_call_of_an_undeclared_tool_is_a_provider_call(tools: list[Any], executor: str) -> None:
    """xAI's X search."""
    created = {"type": "response.created", "response": {"id": "resp", "model": "m", "tools": tools}}
    reply = answer(created, done({**CUSTOM, "status": "completed"}))
    assert only_call(reply).executed_by == executor
    assert reply.meta is not None
    assert reply.meta.finish_reason == ("tool_calls" if executor == "client" else "stop")


# -- tools of the provider


def provider_call(item: Json, *events: Json) -> ToolCall:
    """D-3.10."""
    call = only_call(answer(*events, done(item)))
    assert call.executed_by == "provider"
    return call


def result_of(call: ToolCall) -> Any:
    assert call.result is not None
    return call.result.content


def test_a_web_search_has_its_action_and_sources() -> None:
    item = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}}
    call = provider_call(item, added({**item, "status": "in_progress"}))
    assert (call.tool_call_id, call.tool_name, call.arguments) == ("ws", "web_search", {"type": "search", "query": "q"})
    assert result_of(call) == {"status": "completed"}
    assert data(call) == {"item": item}
    sources = [{"type": "url", "url": "u"}]
    assert result_of(provider_call({**item, "action": {"sources": sources}})) == {"sources": sources}
    no_status = {key: value for key, value in item.items() if key != "status"}
    assert provider_call(no_status).result is None


def test_code_is_emitted_while_it_is_written() -> None:
    item = {"type": "code_interpreter_call", "id": "ci", "code": "print(1)", "outputs": [{"type": "logs", "logs": "1"}]}
    call = provider_call(
        item,
        added({**item, "code": ""}),
        event("code_interpreter_call_code.delta", delta="print"),
        event("code_interpreter_call_code.done", code="print(1)"),
    )
    assert call.arguments == {"code": "print(1)"}
    assert result_of(call) == {"outputs": [{"type": "logs", "logs": "1"}]}


def test_null_code_stays_null() -> None:
    assert provider_call({"type": "code_interpreter_call", "id": "ci", "code": None}).arguments == {"code": None}


def test_a_generated_image_is_the_result_and_not_kept_twice() -> None:
    encoded = b64encode(b"picture").decode()
    item = {
        "type": "image_generation_call",
        "id": "ig",
        "status": "completed",
        "output_format": "webp",
        "result": encoded,
    }
    partial = event("image_generation_call.partial_image", partial_image_b64=encoded)
    call = provider_call(item, added({"type": "image_generation_call", "id": "ig"}), partial)
    assert result_of(call) == (Image("image/webp", data=b"picture"),)
    assert "result" not in data(call)["item"]
    broken = provider_call({**item, "result": "~"})
    assert result_of(broken) == "~"
    assert data(broken)["item"]["result"] == "~"


def test_mcp_calls_have_their_result_or_error() -> None:
    item = {
        "type": "mcp_call",
        "id": "mcp",
        "name": "ask",
        "server_label": "wiki",
        "arguments": '{"q":1}',
        "output": "yes",
    }
    call = provider_call(item, added({**item, "arguments": ""}), event("mcp_call_arguments.delta", delta='{"q":'))
    assert (call.tool_name, call.arguments, result_of(call)) == ("ask", {"q": 1}, "yes")
    failed = provider_call({**item, "output": None, "error": {"message": "down"}})
    assert result_of(failed) == {"message": "down"}
    assert failed.result is not None
    assert failed.result.is_error


def test_an_approval_request_is_a_question_that_the_client_answers() -> None:
    item = {"type": "mcp_approval_request", "id": "mcpr", "name": "ask", "server_label": "wiki", "arguments": "{}"}
    reply = answer(done(item))
    question = only_call(reply)
    assert (question.executed_by, question.tool_name) == ("client", "mcp_approval_request")
    assert question.arguments == {"server_label": "wiki", "name": "ask", "arguments": {}}
    assert reply.meta is not None
    assert reply.meta.finish_reason == "tool_calls"
    unreadable = only_call(answer(done({**item, "arguments": "{"})))
    assert unreadable.arguments["arguments"] == "{"


def test_tool_lists_that_never_finish_are_closed_by_the_response() -> None:
    item = {"type": "mcp_list_tools", "id": "mcpl", "server_label": "wiki", "tools": []}
    reply = answer(added(item), text("Hi", 1), output=[{**item, "tools": [{"name": "ask"}]}, message("Hi")])
    assert result_of(only_call(reply)) == {"tools": [{"name": "ask"}]}
    assert result_of(only_call(answer(added(item)))) == {"tools": []}


def test_a_failed_search_is_an_error() -> None:
    call = provider_call(
        {"type": "file_search_call", "id": "fs", "status": "failed", "queries": ["q"], "results": None}
    )
    assert call.arguments == {"queries": ["q"]}
    assert call.result is not None
    assert call.result.is_error


@pytest.mark.parametrize(
    ("item", "name", "executor"),
    [
        ({"type": "local_shell_call", "action": {"command": ["ls"]}}, "local_shell", "client"),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", "client"),
        ({"type": "shell_call", "environment": {"type": "local"}, "action": {}}, "shell", "client"),
        ({"type": "apply_patch_call", "operation": {"type": "create_file"}}, "apply_patch", "client"),
        ({"type": "computer_call", "action": {"type": "screenshot"}}, "computer", "client"),
        ({"type": "tool_search_call", "execution": "client", "arguments": {"goal": "g"}}, "tool_search", "client"),
        ({"type": "brand_new_call"}, "brand_new", "provider"),
    ],
)
def test_calls_are_executed_by_the_client_or_the_provider(item: Json, name: str, executor: str) -> None:
    item = {**item, "id": "item", "call_id": "call"}
    call = only_call(answer(added(item), done(item)))
    assert (call.tool_call_id, call.tool_name, call.executed_by) == ("call", name, executor)
    assert data(call)["item"] == item
    expected = [value for key, value in item.items() if key in ("action", "operation", "arguments")]
    assert [call.arguments] == (expected or [{}])


SHELL = {
    "type": "shell_call",
    "id": "sh",
    "call_id": "call",
    "action": {"commands": ["ls"]},
    "environment": {"type": "c"},
}
SHELL_OUTPUT = {"type": "shell_call_output", "id": "sho", "call_id": "call", "output": [{"stdout": "a"}]}


def test_a_result_item_belongs_to_its_call() -> None:
    delta = event("shell_call_output_content.delta", delta={"stdout": "a"})
    reply = answer(done(SHELL), delta, done(message("Hi"), 1), added(SHELL_OUTPUT, 2), done(SHELL_OUTPUT, 2))
    assert result_of(only_call(reply)) == {"output": [{"stdout": "a"}]}
    assert data(only_call(reply)) == {"item": SHELL, "output": SHELL_OUTPUT}


def test_a_call_without_its_result_item_is_closed_without_a_result() -> None:
    reply = answer(done({**SHELL, "call_id": None}))
    assert only_call(reply).result is None
    assert data(only_call(reply))["item"]["id"] == "sh"


def test_items_that_only_their_provider_understands_are_kept_on_an_empty_text() -> None:
    compaction = {"type": "compaction", "id": "cmp", "encrypted_content": "x"}
    approval = {"type": "mcp_approval_response", "id": "mcpa", "approve": True}
    reply = answer(done(SHELL_OUTPUT), done(compaction, 1), done(approval, 2))
    assert [data(part) for part in reply.parts if isinstance(part, Text) and not part.text] == [
        {"item": SHELL_OUTPUT},
        {"item": compaction},
        {"item": approval},
    ]


# -- the response


def test_start_has_the_first_model_and_id() -> None:
    created = {"type": "response.queued", "response": {"id": "first", "model": "m1"}}
    start = deltas_of({"type": "ping"}, created, completed(id="second", model="m2"))[0]
    assert start == Start("m1", "first", provider="openai-responses")
    odd = deltas_of({"type": "response.created", "response": {"id": 5, "model": None}}, model_id="mine")[0]
    assert odd == Start("mine", "local", provider="openai-responses")


def test_usage_includes_its_breakdown() -> None:
    """D-3.4.2."""
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 3},
        "cost": 0.5,
    }
    usages = [delta for delta in deltas_of(completed(usage=usage)) if isinstance(delta, Usage)]
    assert usages == [Usage(10, 5, 15, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3, cost=0.5)]
    bare = [
        delta
        for delta in deltas_of(completed(usage={"input_tokens": 1, "output_tokens": 2}))
        if isinstance(delta, Usage)
    ]
    assert bare == [Usage(1, 2)]


@pytest.mark.parametrize("usage", [None, 5, {}, {"input_tokens": "1", "output_tokens": 1}])
def test_usage_without_counts_is_ignored(usage: Any) -> None:
    """D-3.4.3."""
    assert not [delta for delta in deltas_of(completed(usage=usage)) if isinstance(delta, Usage)]


@pytest.mark.parametrize(
    ("end", "finish", "raw"),
    [
        (completed(), "stop", "completed"),
        ({"type": "response.completed"}, "stop", "completed"),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            "length",
            "max_output_tokens",
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
            "content_filter",
            "content_filter",
        ),
        ({"type": "response.incomplete", "response": {}}, "other", "incomplete"),
        (
            completed(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "max_output_tokens",
        ),
        (completed(status="incomplete"), "other", "incomplete"),
    ],
)
def test_how_a_response_ends(end: Json, finish: FinishReason, raw: str) -> None:
    """D-3.4.5, D-3.4.6."""
    assert deltas_of(text("Hi"), end)[-1] == Done(finish, raw_finish_reason=raw)


def test_events_after_the_end_are_ignored() -> None:
    """D-3.1."""
    deltas = deltas_of(completed(), {"type": "ping"}, "[DONE]", text("more"), "{")
    assert isinstance(deltas[-1], Done)
    assert len(deltas) == 2


def test_done_as_in_the_chat_format_does_not_end_the_stream() -> None:
    """D-3.5."""
    assert failure(text("Hi"), "[DONE]").error_code is ErrorCode.STREAM_TRUNCATED
    assert failure("nonsense").error_code is ErrorCode.STREAM_MALFORMED


@pytest.mark.parametrize(
    ("event", "code", "raw", "message"),
    [
        (
            {"type": "error", "error": {"type": "t", "code": "insufficient_quota", "message": "m"}},
            ErrorCode.QUOTA_EXCEEDED,
            "insufficient_quota",
            "m",
        ),
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "m"},
            ErrorCode.RATE_LIMITED,
            "rate_limit_exceeded",
            "m",
        ),
        ({"error": {"code": 503, "message": "m"}}, ErrorCode.OVERLOADED, "503", "m"),
        ({"type": "error", "error": "went wrong"}, ErrorCode.PROVIDER_ERROR, None, "went wrong"),
        ({"message": "went wrong"}, ErrorCode.PROVIDER_ERROR, None, "went wrong"),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}},
            ErrorCode.SERVER_ERROR,
            "server_error",
            "m",
        ),
        ({"type": "response.failed", "response": {"error": "m"}}, ErrorCode.PROVIDER_ERROR, None, "m"),
        ({"type": "response.failed"}, ErrorCode.PROVIDER_ERROR, None, "The provider reported an error."),
        (completed(status="failed"), ErrorCode.PROVIDER_ERROR, None, "The provider reported an error."),
        (completed(status="cancelled"), ErrorCode.CANCELLED, "cancelled", "The response was cancelled."),
        ({"type": "response.cancelled"}, ErrorCode.CANCELLED, "cancelled", "The response was cancelled."),
    ],
)
def test_errors_in_the_stream(event: Json, code: ErrorCode, raw: str | None, message: str) -> None:
    failed = failure(text("Hi"), event)
    assert (failed.error_code, failed.raw_code, failed.message) == (code, raw, message)


def test_an_error_that_is_reported_twice_is_one_error() -> None:
    deltas = deltas_of(
        {"type": "error", "message": "m"}, {"type": "response.failed", "response": {"error": {"message": "m"}}}
    )
    assert len([delta for delta in deltas if isinstance(delta, Failed)]) == 1


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "response.brand_new", "delta": 5},
        {"type": "response.output_text.delta", "delta": {"text": "odd"}},
        {"type": "response.output_text.done", "text": 5},
        {"type": "response.content_part.done", "part": {"type": "brand_new"}},
        {"type": "response.content_part.done", "part": "odd"},
        {"type": "response.output_item.added", "item": "odd"},
        {"type": "response.output_item.done", "item": None},
        {"type": "response.function_call_arguments.delta", "delta": None},
    ],
)
def test_malformed_and_unknown_events_are_ignored(event: Json) -> None:
    reply = answer(event, done(message("Hi"), 7))
    assert (reply.text, reply.tool_calls) == ("Hi", ())


def test_text_after_its_item_is_done_is_ignored() -> None:
    late = [
        text("more", item_id="msg"),
        event("output_text.done", item_id="msg", text="more and more"),
        event("content_part.done", item_id="msg", part={"type": "output_text", "text": "more and more"}),
    ]
    assert answer(added(message()), done(message("Hi")), *late).text == "Hi"


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    first = '{"type":"response.output_text.delta","output_index":0,"delta":"\\ud83d"}'
    second = '{"type":"response.output_text.delta","output_index":0,"delta":"\\ude00"}'
    assert answer(first, second).text == "\U0001f600"


# -- finished texts that differ from what was streamed


@pytest.mark.parametrize(
    ("indexes", "final"),
    [
        ([1], ["Hello"]),  # numbered across the items of the response
        ([1, 2], ["Hello", "again"]),  # index 1 is that of the second entry, too
        ([0, 1], ["Hello", "again"]),
        ([5], ["Hello", "again"]),  # the second entry was never streamed
        ([1], ["Hello", "again"]),  # and its index is taken
    ],
)
def test_a_finished_entry_is_matched_with_its_streamed_text_whatever_its_index(
    indexes: list[int], final: list[str]
) -> None:
    pieces = [text(piece, content_index=index) for piece, index in zip(["Hello", "again"], indexes, strict=False)]
    reply = answer(added(message()), *pieces, done(message(*final)))
    assert [part.text for part in reply.parts if isinstance(part, Text)] == final
    assert [data(part)["nth"] for part in reply.parts] == list(range(len(final)))


def test_a_finished_entry_takes_only_streamed_text_of_its_own_type() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    reply = answer(added(message()), text("Hello", content_index=3), done(message(content=[refusal])))
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["Hello", "No."]


@pytest.mark.parametrize("final", ["Hi, there!", "Hi", "hello, world"])
def test_a_finished_text_that_does_not_continue_the_streamed_one_is_recorded_beside_it(final: str) -> None:
    finished = event("output_text.done", content_index=0, text=final)
    reply = answer(added(message()), text("Hel"), text("lo"), finished, done(message(final)))
    (part,) = reply.parts
    assert isinstance(part, Text)
    assert part.text == "Hello"
    assert data(part)["final"] == [final]


def test_a_finished_text_shorter_than_the_streamed_one_is_not_a_contradiction() -> None:
    (part,) = answer(added(message()), text("Hello"), done(message("Hel"))).parts
    assert isinstance(part, Text)
    assert part.text == "Hello"
    assert "final" not in data(part)


def test_a_finished_thought_that_contradicts_the_streamed_one_is_recorded_after_the_answer() -> None:
    events = [added(reasoning(), 0), summary("Hmm"), added(message(), 1), text("Hello", 1), done(message("Hello"), 1)]
    thought, spoken, late = answer(*events, done(reasoning("Well"), 0)).parts
    assert isinstance(thought, Thinking)
    assert thought.text == "Hmm"
    assert "final" not in data(spoken)
    assert data(late)["final"] == ["Well"]


def test_finished_arguments_that_do_not_continue_the_streamed_ones_are_recorded_beside_them() -> None:
    piece = event("function_call_arguments.delta", delta='{"a":1}')
    call = only_call(answer(added(function("")), piece, done(function('{"a": 1, "b": 2}'))))
    assert call.arguments == {"a": 1}
    assert data(call)["final"] == ['{"a": 1, "b": 2}']


def test_a_finished_text_continues_one_that_was_cut_inside_a_character() -> None:
    cut = json.dumps(text("Hi \N{GRINNING FACE}"))[: -len('\\ude00"}')] + '"}'
    (part,) = answer(added(message()), cut, done(message("Hi \N{GRINNING FACE}!"))).parts
    assert isinstance(part, Text)
    assert part.text == "Hi \N{GRINNING FACE}!"
    assert "final" not in data(part)


@pytest.mark.parametrize("status", ["completed", "in_progress", None])
def test_a_response_that_was_not_streamed_is_read_once_it_is_complete(status: str | None) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"city":"Paris"}'}
    usage = {"input_tokens": 1, "output_tokens": 2}
    body = {"id": "resp_1", "object": "response", "status": status, "error": None, "output": [call], "usage": usage}
    deltas = deltas_of(body)
    if status == "completed":
        message = assembler_of(deltas).build_final_message()
        assert message.tool_calls[0].arguments == {"city": "Paris"}
        assert message.meta is not None
        assert message.meta.usage == Usage(1, 2)
        assert deltas[-1] == Done("tool_calls", raw_finish_reason="completed")
    else:
        assert failure(body).error_code is ErrorCode.STREAM_TRUNCATED
    assert failure({**body, "object": "other"}).error_code is ErrorCode.STREAM_TRUNCATED
