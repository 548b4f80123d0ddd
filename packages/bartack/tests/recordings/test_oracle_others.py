"""The oracle of the non-OpenAI streams, tested by laws of every reading, by known facts, and by hand-made streams.

The facts were read off the recordings by hand, not taken from the output of the oracle.
"""

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import oracle_anthropic, oracle_bedrock, oracle_gemini, oracle_small
from tests.recordings.oracle_others import APIS, oracle_error, read_stream
from tests.recordings.plain import PlainReading, PlainUsage, case_dirs, load_case, parsed_arguments, recordings_root

CASES = [pytest.param(api, path, id=f"{api}/{path.name}") for api in APIS for path in case_dirs(api)]
FINISHES = {"stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other", "error"}

needs_recordings = pytest.mark.skipif(
    not CASES, reason=f"no recordings in {recordings_root()} (set BARTACK_RECORDINGS)"
)


def case_dir(api: str, digest: str) -> Path:
    """The case whose name ends in these six digits: the beginning of its response's SHA-256."""
    [path] = [path for path in case_dirs(api) if path.name.endswith(f"-{digest}")]
    return path


def reading_of(api: str, digest: str) -> PlainReading:
    return read_stream(api, case_dir(api, digest))


# -- laws


@needs_recordings
@pytest.mark.parametrize(("api", "path"), CASES)
def test_every_reading_is_consistent(api: str, path: Path) -> None:
    reading = read_stream(api, path)
    failed = load_case(path).http_status >= 400
    assert (reading == PlainReading(finish="error")) is failed
    assert reading.finish in FINISHES
    assert set(reading.order) == {
        kind
        for kind, content in [("text", reading.text), ("thinking", reading.thinking), ("tool_call", reading.calls)]
        if content
    }
    assert all(kind != next_kind for kind, next_kind in zip(reading.order, reading.order[1:], strict=False))
    assert all(reading.continuation)
    client_calls = [call for call in reading.calls if not call.server_side]
    assert (reading.finish == "tool_calls") is bool(client_calls and reading.finish != "length")
    for call in reading.calls:
        assert call.name
        assert isinstance(call.arguments, dict) or parsed_arguments(call.raw) is None


@needs_recordings
@pytest.mark.parametrize(("api", "path"), CASES)
def test_the_breakdown_of_usage_fits_into_its_totals(api: str, path: Path) -> None:
    if load_case(path).http_status >= 400:
        return
    usage = read_stream(api, path).usage
    assert usage is not None
    assert (usage.cache_read or 0) + (usage.cache_write or 0) <= usage.input
    assert (usage.reasoning or 0) <= usage.output


TOTALS = {
    "gemini-generate": "totalTokenCount",
    "gemini-interactions": "total_tokens",
    "bedrock-converse": "totalTokens",
}


@needs_recordings
@pytest.mark.parametrize(("api", "key"), TOTALS.items())
def test_input_and_output_add_up_to_the_reported_total(api: str, key: str) -> None:
    checked = 0
    for path in case_dirs(api):
        usage = read_stream(api, path).usage
        totals = re.findall(rf'"{key}"\s*:\s*(\d+)'.encode(), load_case(path).body)
        if usage is not None and totals:
            assert usage.input + usage.output == int(totals[-1]), path.name
            checked += 1
    assert checked > 5


@needs_recordings
@pytest.mark.parametrize(("api", "path"), CASES)
def test_continuation_strings_occur_unchanged_in_the_body(api: str, path: Path) -> None:
    body = load_case(path).body
    for text in read_stream(api, path).continuation:
        forms = [json.dumps(text, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)]
        assert any(form in body for form in forms)


@needs_recordings
def test_every_api_has_cases() -> None:
    assert [api for api in APIS if not case_dirs(api)] == []


# -- facts checked by hand


@needs_recordings
def test_anthropic_arguments_cut_at_the_token_limit_are_kept_as_text() -> None:
    reading = reading_of("anthropic-messages", "e0e79e")
    assert (reading.finish, reading.raw_finish) == ("length", "max_tokens")
    [call] = reading.calls
    assert (call.name, call.arguments) == ("make_file", None)
    assert call.raw.startswith('{"filename": "taxes.txt"')
    assert reading.usage == PlainUsage(450, 124, cache_read=0, cache_write=0)


@needs_recordings
def test_anthropic_message_start_may_have_the_whole_message() -> None:
    reading = reading_of("anthropic-messages", "1e2e88")
    [call] = reading.calls
    assert (call.name, call.arguments, call.raw, call.server_side) == ("rollDie", {"player": "player2"}, "", False)
    assert (reading.finish, reading.usage) == ("tool_calls", PlainUsage(0, 0))
    assert [text[:10] for text in reading.continuation] == ["container_"]


@needs_recordings
def test_anthropic_server_tools_and_client_tools_are_distinguished() -> None:
    reading = reading_of("anthropic-messages", "75eeac")
    assert [(call.name, call.server_side) for call in reading.calls] == [
        ("code_execution", True),
        ("get_weather", False),
    ]
    assert reading.calls[1].arguments == {"location": "Boston"}
    assert reading.finish == "tool_calls"


@needs_recordings
def test_anthropic_pause_turn_ends_with_a_search_without_a_result() -> None:
    reading = reading_of("anthropic-messages", "607c7c")
    assert (reading.finish, reading.raw_finish) == ("pause", "pause_turn")
    assert {(call.name, call.server_side) for call in reading.calls} == {("web_search", True)}
    assert reading.order[-1] == "tool_call"
    assert reading.usage == PlainUsage(404500, 943, cache_read=0, cache_write=0, reasoning=261)


@needs_recordings
def test_anthropic_cache_tokens_are_part_of_the_input() -> None:
    write_only = reading_of("anthropic-messages", "068709")
    assert write_only.usage == PlainUsage(4 + 1165, 201, cache_read=0, cache_write=1165)
    read = reading_of("anthropic-messages", "44bb30")
    assert read.usage == PlainUsage(9 + 5752, 5, cache_read=5752, cache_write=0)
    read_and_write = reading_of("anthropic-messages", "54fd16")
    assert read_and_write.usage == PlainUsage(6 + 3337 + 6289, 198, cache_read=6289, cache_write=3337, reasoning=0)


@needs_recordings
def test_anthropic_redacted_thinking_is_continuation_and_not_text() -> None:
    reading = reading_of("anthropic-messages", "074ca9")
    assert (reading.thinking, reading.order) == ("", ["text"])
    assert [len(text) for text in reading.continuation] == [456, 400, 800]


@needs_recordings
def test_anthropic_compaction_is_continuation_and_not_text() -> None:
    reading = reading_of("anthropic-messages", "7ec22e")
    assert [len(text) for text in reading.continuation] == [2192]
    assert reading.text.startswith("Based")
    assert reading.usage == PlainUsage(612, 2819, cache_read=0, cache_write=0)


@needs_recordings
def test_gemini_streamed_arguments_become_one_object() -> None:
    reading = reading_of("gemini-generate", "8fc68e")
    [call] = reading.calls
    assert call.arguments == {
        "operations": [
            {"action": "add", "description": "Fresh red apple", "itemid": "apple_001", "price": 0.5},
            {"action": "add", "description": "Ripe yellow banana", "itemid": "banana_001", "price": 0.3},
        ]
    }
    assert (reading.finish, reading.raw_finish) == ("tool_calls", "STOP")
    assert reading.usage == PlainUsage(54, 74 + 121, reasoning=121)


@needs_recordings
def test_gemini_strings_in_pieces_are_joined() -> None:
    [call] = reading_of("gemini-generate", "3518ea").calls
    assert isinstance(call.arguments, dict)
    recipe = call.arguments["recipe"]
    assert (len(recipe["ingredients"]), len(recipe["steps"])) == (10, 10)
    assert recipe["ingredients"][6] == {"amount": "1", "name": "Egg"}
    assert recipe["steps"][4] == "In a 9x13 baking dish, spread a thin layer of meat sauce."


@needs_recordings
def test_gemini_calls_without_arguments_and_ids_are_separate() -> None:
    reading = reading_of("gemini-generate", "458bb6")
    assert [(call.name, call.arguments) for call in reading.calls] == [
        ("read_theme", {}),
        ("read_screen", {"id": "A"}),
        ("read_screen", {"id": "B"}),
        ("read_screen", {"id": "C"}),
    ]
    assert {call.provider_id for call in reading.calls} == {None}


@needs_recordings
def test_gemini_code_execution_is_a_server_side_call_and_its_prompt_is_input() -> None:
    reading = reading_of("gemini-generate", "011c67")
    [call] = reading.calls
    assert (call.name, call.provider_id, call.server_side) == ("code_execution", "8xju7mua", True)
    assert reading.usage == PlainUsage(147 + 360, 108 + 168, reasoning=168)
    assert (reading.finish, reading.order, len(reading.continuation)) == ("stop", ["tool_call", "text"], 2)


@needs_recordings
def test_a_gemini_finish_reason_may_be_a_number() -> None:
    reading = reading_of("gemini-generate", "f49e97")
    assert (reading.finish, reading.raw_finish) == ("stop", "1")
    assert reading.usage == PlainUsage(11, 16 + 232, reasoning=232)


@needs_recordings
def test_gemini_cached_tokens_are_part_of_the_prompt() -> None:
    assert reading_of("gemini-generate", "7c5e4a").usage == PlainUsage(1200, 2, cache_read=1100)


@needs_recordings
def test_interactions_end_with_their_status() -> None:
    reading = reading_of("gemini-interactions", "0cb5f1")
    assert (reading.finish, reading.raw_finish) == ("tool_calls", "requires_action")
    assert reading.calls[0].raw == '{"location":"San Francisco"}'
    cut = reading_of("gemini-interactions", "0d209f")
    assert (cut.finish, cut.raw_finish, cut.text) == ("length", "incomplete", "The image displays")
    assert cut.usage == PlainUsage(266, 3 + 57, cache_read=0, reasoning=57)


@needs_recordings
def test_interactions_report_a_search_after_the_text() -> None:
    reading = reading_of("gemini-interactions", "7f6a23")
    [call] = reading.calls
    assert (call.name, call.provider_id, call.server_side) == ("google_search", "7xveqyd2", True)
    assert reading.order == ["text", "tool_call"]
    assert reading.usage == PlainUsage(22 + 198, 590 + 1173, cache_read=0, reasoning=1173)


@needs_recordings
def test_bedrock_code_execution_is_a_server_side_call() -> None:
    reading = reading_of("bedrock-converse", "f109eb")
    assert [(call.name, call.arguments, call.server_side) for call in reading.calls] == [
        ("nova_code_interpreter", {"snippet": "1234 * 5678"}, True),
        ("final_result", {"result": 7006652.0}, False),
    ]
    assert (reading.finish, reading.usage) == ("tool_calls", PlainUsage(1002, 59))


@needs_recordings
def test_bedrock_guardrails_end_converse_and_only_mark_invoke() -> None:
    masked = reading_of("bedrock-converse", "77ac65")
    assert (masked.finish, masked.raw_finish) == ("content_filter", "guardrail_intervened")
    reading = reading_of("bedrock-invoke", "30c8be")
    assert (reading.finish, reading.raw_finish, reading.usage) == ("stop", "FINISH", PlainUsage(28, 188))
    blocked = reading_of("bedrock-invoke", "ac9d3c")
    assert (blocked.finish, blocked.raw_finish, blocked.text) == ("content_filter", "INTERVENED", "Input blocked")


@needs_recordings
def test_bedrock_invoke_reads_three_families() -> None:
    claude = reading_of("bedrock-invoke", "0cc80a")
    assert (claude.model, len(claude.calls), claude.usage) == ("claude-3-5-sonnet-20240620", 2, PlainUsage(702, 130))
    nova = reading_of("bedrock-invoke", "4d8a07")
    assert nova.text == "The three primary colors are red, blue, and yellow."
    assert nova.usage == PlainUsage(12, 13, cache_read=0, cache_write=0)
    titan = reading_of("bedrock-invoke", "176ff3")
    assert (titan.finish, titan.raw_finish, titan.usage) == ("length", "LENGTH", PlainUsage(5, 10))


@needs_recordings
def test_cohere_plans_are_thinking_and_unbilled_tokens_are_counted() -> None:
    empty = reading_of("cohere-v2", "9bac6b")
    assert [(call.name, call.arguments, call.raw) for call in empty.calls] == [("currentTime", {}, "")]
    assert (empty.order, empty.usage) == (["thinking", "tool_call"], PlainUsage(1445, 43, cache_read=704))
    assert empty.finish == "tool_calls"


@needs_recordings
def test_ollama_calls_turn_a_stop_into_tool_calls_and_tags_stay_text() -> None:
    called = reading_of("ollama-chat", "19651c")
    assert [(call.name, call.provider_id) for call in called.calls] == [("weather", None), ("search", None)]
    assert (called.finish, called.raw_finish, called.usage) == ("tool_calls", "stop", PlainUsage(218, 306))
    tagged = reading_of("ollama-chat", "41217a")
    assert (tagged.text[:7], tagged.thinking, len(tagged.text)) == ("<think>", "", 794)


@needs_recordings
@pytest.mark.parametrize(
    ("api", "digest", "status", "code", "beginning"),
    [
        ("anthropic-messages", "0b80fa", 400, "invalid_request_error", "messages.1"),
        ("anthropic-messages", "80b9c7", 404, "not_found_error", "model: "),
        ("bedrock-converse", "0cafb6", 400, None, "The provided model"),
        ("gemini-generate", "bc1b91", 400, "INVALID_ARGUMENT", "API key not valid"),
        ("gemini-generate", "dd709a", 404, "NOT_FOUND", "models/gemini-live"),
    ],
)
def test_http_errors_have_status_type_and_message(
    api: str, digest: str, status: int, code: str | None, beginning: str
) -> None:
    case = load_case(case_dir(api, digest))
    *identified, message = oracle_error(case.body, case.meta)
    assert identified == [status, code]
    assert message.startswith(beginning)


# -- not in any recording


def frame(headers: dict[str, str], payload: dict[str, Any]) -> bytes:
    packed = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(packed) + len(data), len(packed))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + data
    return message + struct.pack(">I", zlib.crc32(message))


def event(name: str, payload: dict[str, Any]) -> bytes:
    return frame({":message-type": "event", ":event-type": name}, payload)


def test_a_wrong_checksum_raises_and_a_truncated_frame_is_omitted() -> None:
    message = event("messageStart", {"role": "assistant"})
    assert oracle_bedrock.frames(message + message[:-1]) == [("messageStart", {"role": "assistant"})]
    with pytest.raises(ValueError, match="checksum"):
        oracle_bedrock.frames(message[:-1] + bytes([message[-1] ^ 1]))


def test_an_exception_frame_is_an_error_that_keeps_what_arrived() -> None:
    hello = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hel"}})
    failure = frame({":message-type": "exception", ":exception-type": "throttlingException"}, {"message": "slow down"})
    reading = oracle_bedrock.read_converse(oracle_bedrock.frames(hello + failure))
    assert (reading.finish, reading.text) == ("error", "Hel")
    chunk = {"type": "message_start", "message": {"id": "m", "content": [], "usage": None}}
    inner = event("chunk", {"bytes": base64.b64encode(json.dumps(chunk).encode()).decode()})
    assert oracle_bedrock.read_invoke(oracle_bedrock.frames(inner + failure)).finish == "error"


def test_streams_without_their_terminal_signal_are_truncated() -> None:
    start = {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": None}}
    stop_reason = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None}
    assert oracle_anthropic.read_events([start, stop_reason]).finish == "truncated"
    assert oracle_anthropic.read_events([start, stop_reason, {"type": "message_stop"}]).finish == "stop"
    assert oracle_gemini.read_chunks([{"candidates": [{"content": {"parts": [{"text": "a"}]}}]}]).finish == "truncated"
    assert oracle_gemini.read_interaction([]).finish == "truncated"
    assert oracle_bedrock.read_converse([("messageStart", {})]).finish == "truncated"
    assert oracle_small.read_cohere([{"type": "message-start", "id": "x"}]).finish == "truncated"
    line = {"model": "m", "message": {"content": "a"}, "done": False}
    assert oracle_small.read_ollama([line]).finish == "truncated"


def test_in_band_errors_end_in_error() -> None:
    start = {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": None}}
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    assert oracle_anthropic.read_events([start, overloaded]).finish == "error"
    assert oracle_gemini.read_chunks([{"error": {"code": 503, "status": "UNAVAILABLE"}}]).finish == "error"
    assert oracle_small.read_ollama([{"error": "out of memory"}]).finish == "error"
    end = {"type": "message-end", "delta": {"finish_reason": "ERROR"}}
    assert oracle_small.read_cohere([end]).finish == "error"


def test_gemini_images_and_blocked_prompts() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "s"}
    done = {"candidates": [{"content": {"parts": [image]}, "finishReason": "STOP"}]}
    reading = oracle_gemini.read_chunks([done])
    [call] = reading.calls
    assert (call.name, call.arguments, call.raw, call.server_side) == ("image_output", {}, "", True)
    assert (reading.finish, reading.continuation, reading.usage) == ("stop", ["s"], None)
    blocked = oracle_gemini.read_chunks([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}])
    assert (blocked.finish, blocked.raw_finish) == ("content_filter", "PROHIBITED_CONTENT")


def test_json_paths_are_split_at_names_quotes_and_indexes() -> None:
    assert oracle_gemini.path_steps("$.a[0].b") == ["a", 0, "b"]
    assert oracle_gemini.path_steps("$['a.b'][12][\"c d\"]") == ["a.b", 12, "c d"]
    with pytest.raises(ValueError, match="JSON path"):
        oracle_gemini.path_steps("$a")


def test_unknown_events_raise() -> None:
    with pytest.raises(ValueError, match="unknown"):
        oracle_anthropic.read_events([{"type": "novelty"}])
    with pytest.raises(ValueError, match="unknown"):
        oracle_gemini.read_chunks([{"candidates": [{"content": {"parts": [{"novelty": {}}]}}]}])
    with pytest.raises(ValueError, match="unknown"):
        oracle_bedrock.read_converse([("novelty", {})])
    with pytest.raises(ValueError, match="unknown"):
        oracle_small.read_cohere([{"type": "novelty"}])
