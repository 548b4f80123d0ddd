"""What a provider sends that is unknown here goes back to it: whole blocks, fields of blocks, and pieces of streams.

Each stream is decoded, stored, loaded and encoded for the same provider. The answer in the request is compared with
the blocks of the stream, which are written by hand.
"""

import json
from typing import Any

import pytest

from bartack.formats import Encoded, ModelRequest, decoder, encode, read_request
from bartack.formats.framing import FramingName
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, user
from bartack.nouns.wire import dump, load
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]


def sent_back(
    format: str, events: list[Json], model: str, *, framing: FramingName = "sse", provider: str = ""
) -> Encoded:
    lines = [json.dumps(event) for event in events]
    body = "".join(f"data: {line}\n\n" for line in lines) if framing == "sse" else "\n".join(lines) + "\n"
    deltas = decoded(decoder(format, framing=framing, provider=provider or format), body.encode())
    answer = load(Message, json.loads(json.dumps(dump(assembler_of(deltas).build_final_message()))))
    messages = (user("Hi"), answer, user("Go on"))
    return encode(format, ModelRequest(messages, config=ModelConfig(model), provider=provider))


# -- Anthropic


def claude_stream(*blocks: tuple[Json, list[Json]]) -> list[Json]:
    events: list[Json] = [{"type": "message_start", "message": {"id": "m", "model": "claude-opus-4-8", "content": []}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


CLAUDE_TEXT: tuple[Json, list[Json]] = ({"type": "text", "text": "Hello"}, [])


@pytest.mark.parametrize(
    ("block", "deltas", "expected"),
    [
        (
            {"type": "hologram", "data": "", "rays": [1], "size": {"x": 1}},
            [
                {"type": "hologram_delta", "data": "ab"},
                {"type": "hologram_delta", "data": "c", "rays": [2], "done": True},
            ],
            {"type": "hologram", "data": "abc", "rays": [1, 2], "size": {"x": 1}, "done": True},
        ),
        (
            {"type": "hologram", "text": "", "size": {"x": 1}, "note": None},
            [{"type": "text_delta", "text": "a"}, {"type": "size_delta", "size": {"y": 2}}],
            {"type": "hologram", "text": "a", "size": {"x": 1, "y": 2}, "note": None},
        ),
        (
            {"type": "hologram_use", "id": "h", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"a":'}, {"type": "input_json_delta", "partial_json": "1}"}],
            {"type": "hologram_use", "id": "h", "input": {"a": 1}},
        ),
        (
            {"type": "text", "text": "", "mood": "calm"},
            [{"type": "text_delta", "text": "Hi"}, {"type": "mood_delta", "mood": "er"}],
            {"type": "text", "text": "Hi", "mood": "calmer"},
        ),
        (
            {"type": "thinking", "thinking": "", "signature": "", "depth": 2},
            [{"type": "thinking_delta", "thinking": "Hm"}, {"type": "signature_delta", "signature": "s"}],
            {"type": "thinking", "thinking": "Hm", "signature": "s", "depth": 2},
        ),
        (
            {"type": "redacted_thinking", "data": "x", "depth": 2},
            [],
            {"type": "redacted_thinking", "data": "x", "depth": 2},
        ),
        (
            {"type": "compaction", "content": None},
            [{"type": "compaction_delta", "content": "So far", "encrypted_content": "e", "tokens": 7}],
            {"type": "compaction", "content": "So far", "encrypted_content": "e", "tokens": 7},
        ),
    ],
)
def test_blocks_of_claude(block: Json, deltas: list[Json], expected: Json) -> None:
    encoded = sent_back("anthropic-messages", claude_stream((block, deltas), CLAUDE_TEXT), "claude-opus-4-8")
    assert encoded.body["messages"][1]["content"] == [expected, {"type": "text", "text": "Hello"}]
    assert encoded.report.losses == ()


def test_thinking_without_a_signature_is_reported_even_if_it_has_no_text() -> None:
    stream = claude_stream(({"type": "thinking", "thinking": "", "depth": 2}, []), CLAUDE_TEXT)
    encoded = sent_back("anthropic-messages", stream, "claude-opus-4-8")
    assert [(loss.where, loss.why) for loss in encoded.report.losses] == [
        ("messages[1].parts[0]", "it has no signature")
    ]


def test_an_unknown_delta_is_limited_like_everything_else() -> None:
    deep: Json = {}
    for _ in range(200):
        deep = {"a": deep}
    stream = claude_stream(({"type": "hologram"}, [{"type": "hologram_delta", "deep": deep}]), CLAUDE_TEXT)
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in stream).encode()
    end = decoded(decoder("anthropic-messages"), body)[-1]
    assert isinstance(end, Failed)
    assert end.error_code is ErrorCode.STREAM_TOO_LARGE


def test_half_a_surrogate_pair_in_an_unknown_delta_is_joined() -> None:
    deltas = [{"type": "hologram_delta", "data": half} for half in ("\ud83d", "\ude00")]
    stream = claude_stream(({"type": "hologram", "data": ""}, deltas), CLAUDE_TEXT)
    encoded = sent_back("anthropic-messages", stream, "claude-opus-4-8")
    assert encoded.body["messages"][1]["content"][0] == {"type": "hologram", "data": "\U0001f600"}


# -- Gemini


def gemini_stream(*parts: Json, **metadata: Any) -> list[Json]:
    chunks: list[Json] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return [*chunks, {"candidates": [{"finishReason": "STOP", **metadata}]}]


@pytest.mark.parametrize(
    "part",
    [
        {"hologram": {"x": 1}},
        {"hologram": {"x": 1}, "thoughtSignature": "s"},
        {"functionResponse": {"name": "f", "response": {}}},
        {"text": "Hm", "partMetadata": {"a": 1}},
        {"text": "", "thoughtSignature": "s", "partMetadata": {"a": 1}},
        {"text": "Hm", "thought": True, "partMetadata": {"a": 1}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "s", "videoMetadata": {"fps": 1}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "newField": {"a": 1}},
    ],
)
def test_parts_of_gemini(part: Json) -> None:
    encoded = sent_back("gemini-generate", gemini_stream(part, {"text": "Hello"}), "gemini-3-pro")
    assert encoded.body["contents"][1]["parts"] == [part, {"text": "Hello"}]
    assert encoded.report.losses == ()


def test_an_answer_of_one_unknown_part_goes_back() -> None:
    encoded = sent_back("gemini-generate", gemini_stream({"hologram": {"x": 1}}), "gemini-3-pro")
    assert encoded.body["contents"][1] == {"role": "model", "parts": [{"hologram": {"x": 1}}]}


def test_fields_beside_a_call_of_gemini_go_back() -> None:
    call = {"name": "f", "args": {}, "newField": {"b": 2}}
    part = {"functionCall": call, "thoughtSignature": "s", "partMetadata": {"a": 1}, "newField": 1}
    encoded = sent_back("gemini-generate", gemini_stream(part), "gemini-3-pro")
    assert encoded.body["contents"][1]["parts"] == [part]
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [part]}]
    read = read_request("gemini-generate", {"contents": contents}, model_id="gemini-3-pro")
    assert encode("gemini-generate", read).body["contents"][1]["parts"] == [part]


def test_parts_of_a_gemini_stream_that_are_too_deep_end_it() -> None:
    deep: Json = {}
    for _ in range(200):
        deep = {"a": deep}
    for part in ({"hologram": deep}, {"text": "Hi", "partMetadata": deep}):
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in gemini_stream(part)).encode()
        assert isinstance(decoded(decoder("gemini-generate"), body)[-1], Failed)


def test_metadata_without_a_place_in_requests_are_reported() -> None:
    grounding = {"webSearchQueries": ["q"]}
    encoded = sent_back("gemini-generate", gemini_stream({"text": "Hi"}, groundingMetadata=grounding), "gemini-3-pro")
    assert [(loss.where, loss.what) for loss in encoded.report.losses] == [
        ("messages[1].parts[0]", "groundingMetadata")
    ]


def test_unknown_parts_of_a_gemini_request_go_back() -> None:
    contents = [
        {"role": "user", "parts": [{"hologram": {"x": 1}}]},
        {"role": "model", "parts": [{"hologram": {"x": 2}}, {"text": "Hi"}]},
        {"role": "user", "parts": [{"text": "Go on", "newField": 1}]},
    ]
    encoded = encode(
        "gemini-generate", read_request("gemini-generate", {"contents": contents}, model_id="gemini-3-pro")
    )
    assert encoded.body["contents"] == contents
    assert encoded.report.losses == ()


# -- Bedrock


def converse_stream(*blocks: tuple[Json | None, list[Json]]) -> list[Json]:
    events: list[Json] = [{"messageStart": {"role": "assistant"}}]
    for index, (start, deltas) in enumerate(blocks):
        if start is not None:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    return [*events, {"messageStop": {"stopReason": "end_turn"}}]


CONVERSE_TEXT: tuple[None, list[Json]] = (None, [{"text": "Hello"}])


@pytest.mark.parametrize(
    ("start", "deltas", "expected"),
    [
        (
            {"hologram": {"a": 1}},
            [{"hologram": {"data": "a"}}, {"hologram": {"data": "b"}}],
            [{"hologram": {"a": 1, "data": "ab"}}],
        ),
        (None, [{"hologram": {"data": "a"}}], [{"hologram": {"data": "a"}}]),
        (None, [{}, {"text": None}], []),
        (None, [{"text": "Hm"}, {"hologram": {"data": "a"}}], [{"text": "Hm"}, {"hologram": {"data": "a"}}]),
        (
            None,
            [
                {"reasoningContent": {"text": "Hm"}},
                {"reasoningContent": {"depth": 2}},
                {"reasoningContent": {"signature": "s"}},
            ],
            [{"reasoningContent": {"reasoningText": {"text": "Hm", "depth": 2, "signature": "s"}}}],
        ),
    ],
)
def test_blocks_of_converse(start: Json | None, deltas: list[Json], expected: list[Json]) -> None:
    stream = converse_stream((start, deltas), CONVERSE_TEXT)
    encoded = sent_back("bedrock-converse", stream, "anthropic.claude-x", framing="lines")
    assert encoded.body["messages"][1]["content"] == [*expected, {"text": "Hello"}]
    assert encoded.report.losses == ()


def test_an_unknown_block_of_converse_without_its_end_goes_back() -> None:
    stream = converse_stream(CONVERSE_TEXT, ({"hologram": {"a": 1}}, []))
    del stream[-2]
    encoded = sent_back("bedrock-converse", stream, "anthropic.claude-x", framing="lines")
    assert encoded.body["messages"][1]["content"] == [{"text": "Hello"}, {"hologram": {"a": 1}}]


def test_fields_of_a_call_of_converse_go_back() -> None:
    stream = converse_stream(
        ({"toolUse": {"toolUseId": "t", "name": "f", "caller": "x"}}, [{"toolUse": {"input": "{}"}}])
    )
    encoded = sent_back("bedrock-converse", stream, "anthropic.claude-x", framing="lines")
    call = {"toolUseId": "t", "name": "f", "input": {}, "caller": "x"}
    assert encoded.body["messages"][1]["content"] == [{"toolUse": call}]


def test_an_image_of_converse_is_reported_with_its_reason() -> None:
    stream = converse_stream(({"image": {"format": "png"}}, [{"image": {"source": {"bytes": "aGk="}}}]), CONVERSE_TEXT)
    encoded = sent_back("bedrock-converse", stream, "amazon.nova-x", framing="lines")
    assert [loss.why for loss in encoded.report.losses] == ["only the user may send images"]


def test_an_unknown_block_of_nova_behind_invoke_keeps_its_place() -> None:
    thought: tuple[None, list[Json]] = (None, [{"reasoningContent": {"text": "Hm"}}])
    stream = converse_stream(thought, ({"hologram": {"a": 1}}, []), CONVERSE_TEXT)
    body = ("\n".join(map(json.dumps, stream)) + "\n").encode()
    answer = assembler_of(decoded(decoder("bedrock-invoke", framing="lines"), body)).build_final_message()
    assert [part.kind for part in answer.parts] == ["thinking", "thinking", "text"]


# -- OpenAI


def responses_stream(*items: Json) -> list[Json]:
    events: list[Json] = [{"type": "response.created", "response": {"id": "r", "model": "gpt-5", "output": []}}]
    for index, item in enumerate(items):
        for step in ("added", "done"):
            events.append({"type": f"response.output_item.{step}", "output_index": index, "item": item})
    response = {"id": "r", "model": "gpt-5", "output": list(items), "status": "completed"}
    return [*events, {"type": "response.completed", "response": response}]


ANNOTATED = {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation", "url": "u"}]}
OPENAI_MESSAGE: Json = {"type": "message", "id": "m", "role": "assistant", "phase": "final", "content": [ANNOTATED]}


@pytest.mark.parametrize(
    "item",
    [
        {"type": "hologram", "id": "h", "x": 1},
        {**OPENAI_MESSAGE, "id": "m2", "content": [{"type": "hologram", "x": 1}, {"type": "audio", "y": 2}, ANNOTATED]},
        {**OPENAI_MESSAGE, "id": "m2", "content": [{**ANNOTATED, "text": ""}, ANNOTATED]},
        {
            "type": "reasoning",
            "id": "rs",
            "encrypted_content": "e",
            "depth": 2,
            "summary": [{"type": "hologram", "x": 1}],
            "content": [{"type": "hologram", "y": 2}],
        },
    ],
)
def test_items_of_openai(item: Json) -> None:
    encoded = sent_back("openai-responses", responses_stream(item, OPENAI_MESSAGE), "gpt-5")
    assert encoded.body["input"][1:-1] == [item, OPENAI_MESSAGE]
    assert encoded.report.losses == ()


def test_a_repeated_item_id_is_reported() -> None:
    answer = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "Hi"}]}
    prompt = {"role": "user", "content": "Go on"}
    body = {"model": "gpt-5", "input": [prompt, answer, prompt, answer, prompt]}
    encoded = encode("openai-responses", read_request("openai-responses", body))
    assert [(loss.where, loss.what) for loss in encoded.report.losses] == [("messages[3].parts[0]", "item id")]


# -- Chat Completions


def test_pieces_of_content_go_back_in_their_places() -> None:
    """Mistral's references to sources."""
    content = [
        {"type": "text", "text": "a"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "b"},
    ]
    stream = [
        *({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": [piece]}}]} for piece in content),
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    encoded = sent_back("openai-chat", stream, "mistral-large", provider="mistral")
    assert encoded.body["messages"][1] == {"role": "assistant", "content": content}
    assert encoded.report.losses == ()


# -- Gemini's Interactions


def interaction(*steps: tuple[Json, list[Json]]) -> list[Json]:
    events: list[Json] = [{"event_type": "interaction.created", "interaction": {"id": "i", "model": "gemini-3-pro"}}]
    for index, (step, deltas) in enumerate(steps):
        events.append({"event_type": "step.start", "index": index, "step": step})
        events += [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"event_type": "step.stop", "index": index})
    return [*events, {"event_type": "interaction.completed", "interaction": {"status": "completed"}}]


OUTPUT: tuple[Json, list[Json]] = ({"type": "model_output"}, [{"type": "text", "text": "Hello"}])
HELLO = {"type": "model_output", "content": [{"type": "text", "text": "Hello"}]}


@pytest.mark.parametrize(
    ("step", "deltas", "expected"),
    [
        (
            {"type": "hologram", "x": 1},
            [{"type": "rays", "data": "a"}, {"type": "rays", "data": "b"}],
            [{"type": "hologram", "x": 1, "data": "ab"}, HELLO],
        ),
        (
            {"type": "function_result", "call_id": "q", "result": 1},
            [],
            [{"type": "function_result", "call_id": "q", "result": 1}, HELLO],
        ),
        (
            {"type": "thought", "depth": 2},
            [{"type": "thought_signature", "signature": "s"}],
            [{"type": "thought", "depth": 2, "signature": "s"}, HELLO],
        ),
        (
            {"type": "model_output"},
            [{"type": "hologram", "x": 1}],
            [{"type": "model_output", "content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "Hello"}]}],
        ),
    ],
)
def test_steps_of_an_interaction(step: Json, deltas: list[Json], expected: list[Json]) -> None:
    encoded = sent_back("gemini-interactions", interaction((step, deltas), OUTPUT), "gemini-3-pro")
    assert encoded.body["input"][1:-1] == expected
    assert encoded.report.losses == ()


def test_an_unknown_step_that_is_too_deep_ends_the_stream() -> None:
    deep: Json = {}
    for _ in range(200):
        deep = {"a": deep}
    stream = interaction(({"type": "hologram"}, [{"type": "rays", "deep": deep}]), OUTPUT)
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in stream).encode()
    assert isinstance(decoded(decoder("gemini-interactions"), body)[-1], Failed)


def test_annotations_of_no_text_are_reported() -> None:
    output = {"type": "model_output", "content": [{"type": "text", "annotations": [{"url": "u"}]}]}
    encoded = sent_back(
        "gemini-interactions", interaction((output, []), ({"type": "url_context_call"}, [])), "gemini-3"
    )
    assert [(loss.where, loss.what) for loss in encoded.report.losses] == [("messages[1].parts[0]", "annotations")]
