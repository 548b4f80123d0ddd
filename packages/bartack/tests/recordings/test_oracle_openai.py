"""The oracle for chat and responses streams, checked against the bytes and against facts verified by hand."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.recordings.oracle_openai import CHAT_APIS, RESPONSES_APIS, oracle_error, read_stream, stream_error
from tests.recordings.plain import Case, PlainReading, PlainUsage, case_dirs, load_case, recordings_root, sse_events

pytestmark = pytest.mark.skipif(
    not recordings_root().is_dir(), reason="no recordings here: set BARTACK_RECORDINGS to the folder that holds them"
)

ALL_CASES = [path for api in CHAT_APIS + RESPONSES_APIS for path in case_dirs(api)]
STREAMS = [path for path in ALL_CASES if not (path / "response.json").exists()]


@cache
def reading_of(path: Path) -> PlainReading:
    return read_stream(path.parent.name, path)


def the_case(api: str, start: str) -> Path:
    """The one case of an api whose name begins like this."""
    (case_dir,) = [path for path in case_dirs(api) if path.name.startswith(start)]
    return case_dir


def case_id(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


every_case = pytest.mark.parametrize("path", ALL_CASES, ids=case_id)
every_stream = pytest.mark.parametrize("path", STREAMS, ids=case_id)


def test_all_fifteen_folders_have_cases() -> None:
    assert {api for api in CHAT_APIS + RESPONSES_APIS if case_dirs(api)} == set(CHAT_APIS + RESPONSES_APIS)


@every_case
def test_a_case_has_content_or_a_reason_for_having_none(path: Path) -> None:
    reading = reading_of(path)
    assert reading.text or reading.thinking or reading.calls or reading.finish in ("error", "length")
    assert (path / "response.json").exists() <= (reading.finish == "error")


@every_case
def test_no_recorded_stream_is_truncated_and_no_finish_is_unknown(path: Path) -> None:
    reading = reading_of(path)
    assert reading.finish in ("stop", "length", "tool_calls", "refusal", "error")
    assert reading.finish != "error" or reading.raw_finish is None


@every_stream
def test_client_calls_and_only_they_turn_a_stop_into_tool_calls(path: Path) -> None:
    reading = reading_of(path)
    client_calls = [call for call in reading.calls if not call.server_side]
    assert (reading.finish == "tool_calls") == bool(client_calls)
    for call in client_calls:
        assert call.name
        assert call.provider_id
        assert isinstance(call.arguments, dict)
    assert ("tool_call" in reading.order) == bool(reading.calls)
    assert ("text" in reading.order) == bool(reading.text)
    assert ("thinking" in reading.order) == bool(reading.thinking)


@every_stream
def test_input_and_output_make_the_total_that_the_provider_reports(path: Path) -> None:
    usage = reading_of(path).usage
    totals = [int(digits) for digits in re.findall(rb'"total_tokens":\s*(\d+)', load_case(path).body)]
    reported = [total for total in totals if total]
    assert (usage is None) == (not reported)
    if usage is not None:
        assert usage.input + usage.output == reported[-1]


@every_stream
def test_ids_and_continuation_data_appear_in_the_bytes_unchanged(path: Path) -> None:
    reading, body = reading_of(path), load_case(path).body.decode("utf-8")
    call_ids = [call.provider_id for call in reading.calls]
    for verbatim in [reading.response_id, reading.model, *call_ids, *reading.continuation]:
        assert verbatim is None or json.dumps(verbatim) in body
    assert len(reading.continuation) == len(set(reading.continuation))


@pytest.mark.parametrize("path", [p for p in STREAMS if p.parent.name in RESPONSES_APIS], ids=case_id)
def test_the_deltas_of_a_response_join_to_its_items(path: Path) -> None:
    if path.name.startswith("ai--openai-phase"):
        pytest.skip("its source kept the first delta of each message only")
    joined = {"text": "", "thinking": ""}
    for event in events_of(load_case(path)):
        match event["type"]:
            case "response.output_text.delta" | "response.refusal.delta":
                joined["text"] += str(event["delta"])
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                joined["thinking"] += str(event["delta"])
            case _:
                pass
    assert joined == {"text": reading_of(path).text, "thinking": reading_of(path).thinking}


def events_of(case: Case) -> list[dict[str, object]]:
    texts = [data for _, data in sse_events(case.body)] if case.file == "response.sse" else case.body.splitlines()
    return [json.loads(text) for text in texts if text not in ("[DONE]", b"")]


def test_perplexity_repeats_the_whole_answer_in_its_last_chunk() -> None:
    path = the_case("perplexity-chat", "prism--perplexity-stream-basic-text")
    last = json.dumps(events_of(load_case(path))[-1]["choices"])
    assert json.loads(last)[0]["message"]["content"] == reading_of(path).text


# Facts read from the recordings by hand: api, start of the case's name, and what must hold.
FACTS: list[tuple[str, str, Callable[[PlainReading], bool]]] = [
    ("openai-chat", "openai-python--inline", lambda r: r.finish == "refusal" and r.text.endswith("with that request.")),
    ("openai-chat", "openllmetry--test_functions-test_open_ai_function_calls_tools_streaming_parallel--", lambda r: (
        [call.arguments for call in r.calls] == [{"location": "San Francisco"}, {"location": "Boston"}]
    )),
    ("openai-chat", "opencode--openai-chat-streams-tool-call", lambda r: (
        (r.finish, r.raw_finish) == ("tool_calls", "stop")
    )),
    ("openai-chat", "opentelemetry-py--test_chat_completion_multiple_choices", lambda r: (
        len(r.text) == 277 and r.usage == PlainUsage(26, 104, 0, None, 0)
    )),
    ("openai-chat", "prism--openai-stream-falsy-argument", lambda r: r.calls[0].arguments == {"modelId": 0}),
    ("azure-openai-chat", "ai--azure-model-router", lambda r: (
        r.model == "gpt-5-nano-2025-08-07" and r.response_id == "chatcmpl-CYPS1lijGoK8gd9lYzY3r9Sx50nbt"
    )),
    ("groq-chat", "langchain--test_code_interpreter", lambda r: (
        r.finish == "stop"
        and r.order == ["thinking", "tool_call", "thinking", "text"]
        and [(call.name, call.server_side, call.provider_id) for call in r.calls] == [("python", True, None)]
        and r.response_id == "chatcmpl-7ae22ccb-f094-471d-a09d-39b853808884"
    )),
    ("groq-chat", "pydantic-ai--test_groq-test_tool_use_failed_error_streaming_with_text--0", lambda r: (
        (r.finish, r.order, len(r.text), r.usage) == ("error", ["thinking", "text"], 5, None)
    )),
    ("mistral-chat", "prism--mistral-stream-reasoning-model", lambda r: (
        (len(r.thinking), len(r.text)) == (500, 16) and r.usage == PlainUsage(10, 142, 64, None, None)
    )),
    ("mistral-chat", "prism--mistral-stream-with-tools-1-1", lambda r: (
        [call.provider_id for call in r.calls] == ["yBvJuId6u", "ihQrVBDfy"]
    )),
    ("deepseek-chat", "ai--deepseek-tool-call", lambda r: r.usage == PlainUsage(339, 83, 320, None, 39)),
    ("xai-chat", "ai--xai-text--0-c3a10e", lambda r: r.usage == PlainUsage(12, 291, 11, None, 290)),
    ("zai-chat", "req_llm--zai-glm_4_5_air-object", lambda r: r.order == ["text", "thinking", "text", "tool_call"]),
    ("openrouter-chat", "pydantic-ai--test_openrouter-test_openrouter_stream_error", lambda r: (
        (r.finish, r.raw_finish) == ("error", None) and r.usage == PlainUsage(43, 10, 0, None, 11)
    )),
    ("openrouter-chat", "req_llm--openrouter-google_gemini_2_5_flash_lite-object", lambda r: (
        (r.finish, r.raw_finish, r.text) == ("tool_calls", "stop", "\n")
        and r.order == ["thinking", "tool_call", "text"]
    )),
    ("openrouter-chat", "req_llm--openrouter-mistralai_mistral_small_3_1_24b", lambda r: (
        (r.finish, r.order, r.calls) == ("length", [], [])
    )),
    ("openrouter-chat", "req_llm--openrouter-openai_o4_mini", lambda r: (
        r.thinking == "" and [text[:5] for text in r.continuation] == ["rs_0e", "gAAAA"]
    )),
    ("cerebras-chat", "req_llm--cerebras-qwen_3_235b_a22b_thinking", lambda r: (
        r.finish == "length" and r.thinking == "" and len(r.text) == 446
    )),
    ("openai-compat-chat", "ai--alibaba-tool-call", lambda r: (
        [(call.raw, call.provider_id) for call in r.calls]
        == [('{"location": "San Francisco"}', "call_eee11723464a4b9eb8cee71d")]
    )),
    ("openai-compat-chat", "opencode--cloudflare-workers-ai-cloudflare-workers-ai-llama", lambda r: (
        r.usage == PlainUsage(45, 2, None, None, None)
    )),
    ("openai-compat-chat", "pydantic-ai--test_snowflake-test_snowflake_thinking", lambda r: (
        (r.finish, r.raw_finish, r.response_id, r.thinking) == ("stop", None, None, "15 * 27 = 405")
    )),
    ("openai-compat-chat", "openllmetry--test_chat-test_writer_async_streaming_chat_multiple_tool", lambda r: (
        len(r.calls) == 7 and r.calls[6].arguments == {"location": "Lublin"}
    )),
    ("openai-responses", "ai--github-copilot-id-rotation", lambda r: (
        (r.response_id, r.continuation) == ("capture-id-1", ["capture-id-8"])
    )),
    ("openai-responses", "ai--openai-shell-skills", lambda r: (
        [(call.name, call.server_side) for call in r.calls] == [("shell", True)] * 2 and r.finish == "stop"
    )),
    ("openai-responses", "ai--openai-shell-tool", lambda r: (
        [(call.name, call.server_side) for call in r.calls] == [("shell", False)] and r.finish == "tool_calls"
    )),
    ("openai-responses", "ai--programmatic-tool-calling.1", lambda r: (
        [(call.name, call.server_side) for call in r.calls] == [("program", True), ("getInventory", False)]
    )),
    ("openai-responses", "langchain--test_codex_custom_tool", lambda r: (
        [(call.arguments, call.raw) for call in r.calls] == [({"input": "print(3**3)"}, "print(3**3)")]
    )),
    ("openai-responses", "langchain--test_incomplete_response", lambda r: (
        (r.finish, r.raw_finish) == ("length", "max_output_tokens")
    )),
    ("openai-responses", "langchain--test_mcp_builtin_zdr", lambda r: (
        [call.name for call in r.calls] == ["mcp_list_tools", "mcp_approval_request"] and r.finish == "tool_calls"
    )),
    ("openai-responses", "pydantic-ai--test_vercel_ai-test_run", lambda r: (
        len(r.calls) == 7 and len(r.continuation) == 16 and r.thinking == ""
    )),
    ("openai-compat-responses", "ai--lmstudio-tool-call.1", lambda r: (
        r.order == ["thinking", "text", "tool_call"] and r.calls[0].raw == '{"location":"San Francisco"}'
    )),
    ("openai-compat-responses", "pydantic-ai--test_bedrock_mantle-test_reused_tool_call_ids-stream--2", lambda r: (
        r.usage == PlainUsage(158, 32, 0, 43, 10)
    )),
    ("xai-responses", "ai--xai-x-search-tool", lambda r: (
        [call.name for call in r.calls] == ["x_keyword_search", "view_x_video", *["web_search"] * 4]
        and all(call.server_side for call in r.calls)
        and r.finish == "stop"
    )),
]  # fmt: skip


@pytest.mark.parametrize(("api", "start", "holds"), FACTS, ids=[f"{api}/{start}" for api, start, _ in FACTS])
def test_a_recording_contains_the_facts_verified_by_hand(
    api: str, start: str, holds: Callable[[PlainReading], bool]
) -> None:
    reading = reading_of(the_case(api, start))
    assert holds(reading), reading


@pytest.mark.parametrize(
    ("api", "start", "status", "word", "message"),
    [
        ("openai-chat", "req_llm--openai-text_embedding_3_large", 403, "invalid_request_error", "You are not allowed"),
        ("groq-chat", "req_llm--groq-gemma2_9b_it-streaming", 401, "invalid_api_key", "Invalid API Key"),
        ("xai-chat", "req_llm--xai-grok_beta", 404, "Some requested entity was not found", "The model grok-beta"),
        ("openrouter-chat", "req_llm--openrouter-featherless", 404, "404", "No endpoints found"),
        ("openai-responses", "langchain--TestChatOpenAICodex", 401, None, "Could not parse"),
        ("openai-responses", "req_llm--openai-o1_mini", 400, "model_not_found", "The requested model"),
    ],
)
def test_an_http_error_keeps_the_providers_own_words(
    api: str, start: str, status: int, word: str | None, message: str
) -> None:
    case = load_case(the_case(api, start))
    error = oracle_error(case.body, case.meta)
    assert error[:2] == (status, word)
    assert error[2].startswith(message)


@every_stream
def test_a_stream_has_an_error_inside_exactly_if_it_ends_in_one(path: Path) -> None:
    assert (stream_error(path) is not None) == (reading_of(path).finish == "error")


def test_an_error_inside_a_stream_keeps_the_providers_own_words() -> None:
    assert stream_error(the_case("openrouter-chat", "pydantic-ai--test_openrouter-test_openrouter_stream_error")) == (
        "400",
        "Token limit reached",
    )
    failed = stream_error(the_case("openai-responses", "prism--openai-stream-rate-limited"))
    assert failed is not None
    assert failed[0] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("api", "start", "end"),
    [
        ("openai-chat", "ai--openai-text", b'"finish_reason":"stop"'),
        ("cerebras-chat", "req_llm--cerebras-gpt_oss_120b-streaming", b'"finish_reason":"stop"'),
        ("openai-compat-chat", "pydantic-ai--test_snowflake-test_snowflake_model", b"data: [DONE]"),
        ("openai-responses", "ai--openai-shell-tool", b'{"type":"response.completed"'),
    ],
)
def test_a_body_cut_before_its_terminal_signal_is_truncated(api: str, start: str, end: bytes, tmp_path: Path) -> None:
    case = load_case(the_case(api, start))
    head = case.body[: case.body.index(end)]
    cut = tmp_path / api / case.name
    cut.mkdir(parents=True)
    (cut / "meta.json").write_text(json.dumps(case.meta), "utf-8")
    (cut / case.file).write_bytes(head[: head.rindex(b"\n") + 1])
    reading = read_stream(api, cut)
    assert (reading.finish, reading.raw_finish) == ("truncated", None)
    assert reading.order == reading_of(case.path).order
