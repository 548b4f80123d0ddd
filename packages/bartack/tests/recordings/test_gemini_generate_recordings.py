"""Every recorded Gemini stream, decoded, compared with the oracle and sent back; every recorded request, read and
encoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.gemini_generate.decode import TEXT_METADATA, GeminiGenerate
from bartack.formats.gemini_generate.encode import encode
from bartack.formats.gemini_generate.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, ToolCallStart
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import camel
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import PlainReading, case_dirs, json_lines, load_case, sse_events

Json = dict[str, Any]
STREAMS = [case for case in case_dirs("gemini-generate") if load_case(case).http_status < 400]
REQUESTS = [
    path
    for api in ("gemini-generate", "gemini-generate-requests")
    for case in case_dirs(api)
    if (path := case / "request.json").is_file()
]


def decoder_for(case_dir: Path) -> GeminiGenerate:
    return GeminiGenerate(framing=FRAMINGS[Path(load_case(case_dir).file).suffix], provider="google")


def with_local_ids(reading: PlainReading, deltas: list[Delta]) -> PlainReading:
    """The reading with the local ids of calls that have none."""
    starts = [delta for delta in deltas if isinstance(delta, ToolCallStart)]
    for call, start in zip(reading.calls, starts, strict=True):
        if call.provider_id is None:
            assert start.tool_call_id.startswith("local-")
            call.provider_id = start.tool_call_id
    return reading


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, with_local_ids(read_stream("gemini-generate", case_dir), deltas))


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


# -- answers


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_an_answer_is_sent_back_part_by_part(case_dir: Path) -> None:
    """Signatures on their own parts, results after their calls. What may differ: pieces of text without a signature are
    joined, empty ones dropped, and a call whose arguments were streamed is one part."""
    message = assembler_of(decoded(decoder_for(case_dir), load_case(case_dir).body)).build_final_message()
    losses = Losses("google")
    request = ModelRequest(messages=(user("hi"), message), config=ModelConfig("gemini-2.5-pro"), provider="google")
    contents = encode(request, losses)["contents"]
    parts = contents[1]["parts"] if len(contents) > 1 else []
    assert parts == expected_parts(case_dir)
    # Metadata about a text has no place in a request.
    assert [loss for loss in losses.found if loss.what not in TEXT_METADATA] == []


def expected_parts(case_dir: Path) -> list[Json]:
    parts: list[Json] = []
    for chunk in chunks_of(case_dir):
        for part in chunk["candidates"][0].get("content", {}).get("parts", []):
            add_part(parts, part)
    arguments = iter(call.arguments for call in read_stream("gemini-generate", case_dir).calls if not call.server_side)
    return [with_arguments(part, next(arguments)) if "functionCall" in part else part for part in parts]


def chunks_of(case_dir: Path) -> list[Json]:
    case = load_case(case_dir)
    if case.file == "response.json":
        array: list[Json] = json.loads(case.body)
        return array
    if case.file == "response.sse":
        return [json.loads(data) for _, data in sse_events(case.body)]
    return [json.loads(line) for line in json_lines(case.body)]


def add_part(parts: list[Json], part: Json) -> None:
    last = parts[-1] if parts else {}
    is_text = "text" in part and "thoughtSignature" not in part
    if is_text and not part["text"]:
        return
    if is_text and "text" in last and "thoughtSignature" not in last and last.get("thought") == part.get("thought"):
        parts[-1] = {**last, "text": last["text"] + part["text"]}
    elif "name" in part.get("functionCall", {"name": ""}):
        parts.append(part)


def with_arguments(part: Json, arguments: Any) -> Json:
    call = {key: part["functionCall"][key] for key in ("id", "name") if key in part["functionCall"]}
    return {**part, "functionCall": {**call, "args": arguments}}


# -- requests


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.parent.name[-30:])
def test_a_recorded_request_survives_a_round_trip(path: Path) -> None:
    """Encoding what was read gives the recorded body again, up to what is the same to Google:

    - names may be ``snake_case``, base64 in either alphabet, enums in either case;
    - a list of one tool may be the tool itself; `parameters` and `responseSchema` are the older forms of
      `parametersJsonSchema` and `responseJsonSchema`, with the types in capitals;
    - the role of the system instruction, one candidate and empty settings have no meaning.
    """
    body = json.loads(path.read_bytes())
    model_id = json.loads((path.parent / "meta.json").read_bytes())["model"]
    losses = Losses("google")
    encoded = encode(read_request(body, provider="google", model_id=model_id), losses)
    assert normalised(encoded) == normalised(body)
    assert losses.found == []


OLDER = {"parameters": "parametersJsonSchema", "responseSchema": "responseJsonSchema"}


def normalised(value: Any, key: str = "") -> Any:
    if key == "systemInstruction":
        value = {"parts": value["parts"]}
    if key == "tools" and isinstance(value, dict):
        value = [value]
    if key in ("parametersJsonSchema", "responseJsonSchema"):
        return with_small_types(value)
    if key in ("args", "response"):
        return value
    if key == "thinkingLevel":
        return value.lower()
    if key == "data":
        return value.replace("-", "+").replace("_", "/")
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    if key == "generationConfig":
        value = {name: item for name, item in value.items() if name != "candidateCount"}
    names = {name: OLDER.get(camel(name), camel(name)) for name in value}
    fields = {names[name]: normalised(item, names[name]) for name, item in value.items()}
    return {name: item for name, item in fields.items() if item != {} or key}


def with_small_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [with_small_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else with_small_types(value)
        for key, value in schema.items()
    }
