"""Laws of Gemini's two decoders: any events in any order decode to a stream that keeps the contract (D-3.11)."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bartack.formats.decoder import Decoder
from bartack.formats.gemini_generate.decode import GeminiGenerate
from bartack.formats.gemini_generate.encode import encode
from bartack.formats.gemini_generate.read import read_request
from bartack.formats.gemini_interactions.decode import GeminiInteractions
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Done, Failed, Start
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import assembler_of, decoded

Json = dict[str, Any]
SIGNED = {"thoughtSignature": "c2ln"}
PARTS: list[Json] = [
    {"text": "Grüße"},
    {"text": "", **SIGNED},
    {"text": "b", **SIGNED},
    {"text": "hm", "thought": True},
    {"text": "hm", "thought": True, **SIGNED},
    {"functionCall": {"name": "f", "args": {"a": 1}}, **SIGNED},
    {"functionCall": {"name": "g", "id": "i1", "args": {}}},
    {"executableCode": {"language": "PYTHON", "code": "1"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    {"toolCall": {"toolType": "FILE_SEARCH", "id": "t1"}, **SIGNED},
    {"toolResponse": {"toolType": "FILE_SEARCH", "id": "t1", "response": {"r": 1}}, **SIGNED},
    {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
]
STREAMED: list[Json] = [
    {"functionCall": {"name": "s", "willContinue": True}},
    {"functionCall": {"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "x", "willContinue": True}]}},
    {"functionCall": {"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "y"}], "willContinue": True}},
    {"functionCall": {"partialArgs": [{"jsonPath": "$.a[1]", "numberValue": 1}], "willContinue": True}},
    {"functionCall": {}},
]
ENDINGS: list[Json] = [
    {"candidates": [{"finishReason": "STOP", "groundingMetadata": {"webSearchQueries": ["q"]}}]},
    {"usageMetadata": {"promptTokenCount": 3, "thoughtsTokenCount": 1}},
    {"error": {"code": 500, "message": "oh", "status": "INTERNAL"}},
]
STEPS: list[Json] = [
    {"type": "model_output", "content": [{"type": "image", "data": "aGk=", "mime_type": "image/png"}]},
    {"type": "model_output"},
    {"type": "thought"},
    {"type": "function_call", "id": "f1", "name": "f"},
    {"type": "google_search_call", "id": "g1"},
    {"type": "google_search_result", "call_id": "g1"},
    {"type": "novelty"},
]
PIECES: list[Json] = [
    {"type": "text", "text": "Grüße"},
    {"type": "text_annotation_delta", "annotations": [{"n": 1}]},
    {"type": "thought_summary", "content": {"text": "hm"}},
    {"type": "thought_signature", "signature": "c2ln"},
    {"type": "arguments_delta", "arguments": "{}"},
    {"type": "google_search_call", "arguments": {"queries": ["q"]}},
    {"type": "google_search_result", "result": [{"url": "u"}]},
]


def chunk(part: Json) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}


INDEXES = st.integers(0, 3)
CHUNKS = st.sampled_from([*map(chunk, PARTS), *map(chunk, STREAMED), *ENDINGS])
EVENTS = st.one_of(
    st.builds(
        lambda index, step: {"event_type": "step.start", "index": index, "step": step}, INDEXES, st.sampled_from(STEPS)
    ),
    st.builds(
        lambda index, piece: {"event_type": "step.delta", "index": index, "delta": piece},
        INDEXES,
        st.sampled_from(PIECES),
    ),
    st.builds(lambda index: {"event_type": "step.stop", "index": index}, INDEXES),
    st.just({"event_type": "interaction.created", "interaction": {"id": "i", "model": "m"}}),
)
COMPLETED = {"event_type": "interaction.completed", "interaction": {"status": "completed"}}


def as_sse(events: list[Json]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events)


def assert_is_a_stream(make: type[Decoder], body: bytes, cut: int) -> None:
    deltas = decoded(make(), body)
    assert decoded(make(), body[:cut], body[cut:]) == deltas
    assert isinstance(deltas[0], Start)
    assert isinstance(deltas[-1], Done | Failed)
    assembler_of(deltas).snapshot()


@st.composite
def damaged(draw: st.DrawFn, events: st.SearchStrategy[list[Json]]) -> tuple[bytes, int]:
    body = bytearray(as_sse(draw(events)))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(body)))
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body), draw(st.integers(0, len(body)))


@given(damaged(st.lists(CHUNKS, max_size=12)))
def test_any_chunks_decode_to_a_stream(drawn: tuple[bytes, int]) -> None:
    assert_is_a_stream(GeminiGenerate, *drawn)


@given(damaged(st.lists(EVENTS, max_size=15).map(lambda events: [*events, COMPLETED])))
def test_any_steps_decode_to_a_stream(drawn: tuple[bytes, int]) -> None:
    assert_is_a_stream(GeminiInteractions, *drawn)


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_a_decoded_answer_survives_encoding_and_a_round_trip(parts: list[Json]) -> None:
    """D-3.9: every signature stays on its part, also after reading the body and encoding it again."""
    body = as_sse([*map(chunk, parts), ENDINGS[0]])
    message = assembler_of(decoded(GeminiGenerate(provider="google"), body)).build_final_message()
    config = ModelConfig("gemini-2.5-pro")
    encoded = encode(ModelRequest(messages=(user("hi"), message), config=config, provider="google"), Losses("google"))
    signed = [part for part in parts if "thoughtSignature" in part and "toolResponse" not in part]
    assert [
        part for part in encoded["contents"][1]["parts"] if "thoughtSignature" in part and "toolResponse" not in part
    ] == signed
    again = encode(read_request(encoded, provider="google", model_id=config.model_id), Losses("google"))
    assert again == encoded
