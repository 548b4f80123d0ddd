"""The check of request bodies: recorded requests that were accepted have no faults, and known faults are found."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.validity.checks import faults
from tests.recordings.oracle_openai import CHAT_APIS
from tests.recordings.plain import case_dirs, recordings_root

FOLDERS = {
    "anthropic-messages": ("anthropic-messages", ""),
    "bedrock-converse": ("bedrock-converse", ""),
    "bedrock-invoke": ("bedrock-invoke", ""),
    "cohere-v2": ("cohere-v2", ""),
    "gemini-generate": ("gemini-generate", ""),
    "gemini-interactions": ("gemini-interactions", ""),
    "ollama-chat": ("ollama-chat", ""),
    "openai-responses": ("openai-responses", ""),
    "openai-compat-responses": ("openai-responses", "openai-compat"),
    **{api: ("openai-chat", api.removesuffix("-chat")) for api in CHAT_APIS},
}
CASES = [
    case
    for api in FOLDERS
    for folder in (api, f"{api}-requests")
    for case in case_dirs(folder)
    if (case / "request.json").is_file()
]


def was_accepted(case: Path) -> bool:
    status = json.loads((case / "meta.json").read_bytes())["http_status"]
    return not isinstance(status, int) or status < 400


ACCEPTED = [case for case in CASES if was_accepted(case)]


@pytest.mark.skipif(not ACCEPTED, reason=f"no recordings at {recordings_root()}; BARTACK_RECORDINGS names their folder")
@pytest.mark.parametrize("api", FOLDERS)
def test_recorded_requests_have_no_faults(api: str) -> None:
    format, provider = FOLDERS[api]
    for case in ACCEPTED:
        if case.parent.name.removesuffix("-requests") == api:
            body = json.loads((case / "request.json").read_bytes())
            model = str(json.loads((case / "meta.json").read_bytes()).get("model") or "")
            reported = faults(
                format, body, model=str(body.get("model") or body.get("modelId") or model), provider=provider
            )
            assert reported == [], case


# -- negative controls: a small body that is accepted, and the fault that each change to it causes


def test_text_that_is_not_json_is_refused() -> None:
    assert faults("openai-chat", {"model": "m", "messages": [{"role": "user", "content": "\ud800"}]})
    assert faults("openai-chat", {"model": "m", "messages": [{"role": "user", "content": b"x"}]})


USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def claude_body(*turns: Any, **settings: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": content} for place, content in enumerate(turns)]
    return {"model": "claude-sonnet-4-5", "max_tokens": 4096, "messages": messages, **settings}


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (claude_body("Hi", [USE], [RESULT]), None),
        (claude_body("Hi", [THOUGHT, USE], [RESULT], **BUDGET), None),
        (claude_body(), "at least one message"),
        (claude_body([]), "non-empty content"),
        (claude_body([{"type": "text", "text": " "}]), "non-whitespace"),
        (claude_body("Hi", [USE], "Ho"), "are answered by []"),
        (claude_body("Hi", "Ho", [RESULT]), "are answered by ['a']"),
        (claude_body("Hi", [THOUGHT], "Ho"), "cannot be thinking"),
        (claude_body("Hi", [{**THOUGHT, "signature": None}, USE], [RESULT]), "signature is missing"),
        (claude_body("Hi", [USE], [RESULT], **BUDGET), "Expected thinking"),
        (claude_body("Hi", [{**USE, "id": "a.b"}], [{**RESULT, "tool_use_id": "a.b"}]), "does not match"),
        (claude_body([MARKED] * 5), "maximum of 4"),
        (claude_body([{"type": "image", "source": {"type": "url", "url": "file:///x"}}]), "can fetch"),
        (claude_body("Hi", "Ho "), "trailing whitespace"),
    ],
)
def test_faults_in_anthropics_format_are_found(body: dict[str, Any], fault: str | None) -> None:
    check_one("anthropic-messages", body, fault)


def check_one(format: str, body: dict[str, Any], fault: str | None, **whose: str) -> None:
    reported = faults(format, body, **whose)
    assert (reported == []) if fault is None else (fault in "\n".join(reported)), reported


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
ANSWER = {"role": "tool", "tool_call_id": "abcdefghi", "content": "x"}


@pytest.mark.parametrize(
    ("messages", "provider", "fault"),
    [
        ([*ASKED, ANSWER], "", None),
        ([*ASKED, ANSWER], "mistral", None),
        ([], "", "empty array"),
        ([{"role": "user", "content": ""}], "", "must not be empty"),
        ([{"role": "assistant", "content": None}], "", "either content or tool_calls"),
        (ASKED, "", "did not have response"),
        ([ANSWER], "", "respond to a preceding"),
        ([*ASKED, ANSWER, {"role": "user", "content": "Ho"}], "mistral", None),
        ([*ASKED, ANSWER, {"role": "user", "content": "Ho"}], "perplexity", "Unexpected role"),
        ([*ASKED, ANSWER, {"role": "system", "content": "Ho"}], "mistral", "Unexpected role"),
        ([*ASKED, ANSWER, {"role": "assistant", "content": "Ho"}], "mistral", "Expected last role"),
        ([*ASKED, ANSWER], "deepseek", "must be passed back"),
        ([ASKED[0], ASKED[0]], "perplexity", "alternate"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "", "can fetch"),
    ],
)
def test_faults_in_chat_completions_are_found(messages: list[Any], provider: str, fault: str | None) -> None:
    check_one("openai-chat", {"model": "m", "messages": messages}, fault, provider=provider)


ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
REASON = {"type": "reasoning", "summary": [], "encrypted_content": "e"}


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([REASON, ITEM, OUTPUT], None),
        ([], "must be provided"),
        ([ITEM], "No tool output found"),
        ([OUTPUT], "No tool call found"),
        ([ITEM, OUTPUT, REASON], "required following item"),
        ([{**REASON, "encrypted_content": None}, ITEM, OUTPUT], "not persisted"),
        ([{**ITEM, "id": "msg_1"}, OUTPUT], "does not match"),
        ([{"role": "user", "id": "msg_1", "content": "a"}] * 2, "Duplicate item"),
        ([{"role": "user", "content": []}], "empty array"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "a"}]}], "output_text"),
    ],
)
def test_faults_in_the_responses_format_are_found(items: list[Any], fault: str | None) -> None:
    check_one("openai-responses", {"model": "m", "store": False, "input": items}, fault)


def gemini_body(*turns: Any) -> dict[str, Any]:
    return {"contents": [{"role": ("user", "model")[index % 2], "parts": parts} for index, parts in enumerate(turns)]}


HI, CALLED = {"text": "Hi"}, {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}
GIVEN = {"functionResponse": {"name": "f", "response": {}}}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (gemini_body([HI], [CALLED], [GIVEN]), None),
        (gemini_body(), "not specified"),
        (gemini_body([]), "must not be empty"),
        (gemini_body([{"text": ""}]), "text is empty"),
        (gemini_body([HI], [CALLED], [HI]), "function responses []"),
        (gemini_body([HI], [CALLED], [GIVEN, GIVEN]), "to calls"),
        (gemini_body([HI], [CALLED], [GIVEN, HI]), "in a separate content"),
        (gemini_body([HI], [HI]), "ending with a model turn"),
        (gemini_body([HI], [{"functionCall": {"name": "f"}}], [GIVEN]), "thought_signature"),
        (gemini_body([{"inlineData": {"mimeType": "image/gif", "data": "eA=="}}]), "Unsupported MIME type"),
    ],
)
def test_faults_in_geminis_format_are_found(body: dict[str, Any], fault: str | None) -> None:
    check_one("gemini-generate", body, fault, model="gemini-3-pro")


STEPS = [
    {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]},
    {"type": "function_call", "id": "a", "name": "f", "arguments": {}},
    {"type": "function_result", "call_id": "a", "result": "x"},
]


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        (STEPS, None),
        ([], "empty"),
        (STEPS[:2], "have results []"),
        ([{"type": "user_input", "content": []}], "content is empty"),
        ([*STEPS, {"type": "model_output", "content": [{"type": "text", "text": "x"}]}], "ends with"),
    ],
)
def test_faults_in_interactions_are_found(steps: list[Any], fault: str | None) -> None:
    check_one("gemini-interactions", {"model": "m", "input": steps}, fault)


TOOL_USE = {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}
TOOL_RESULT = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
TOOLS = {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]}}
PDF = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "eA=="}}}


def converse_body(*turns: Any, **settings: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[index % 2], "content": blocks} for index, blocks in enumerate(turns)],
        **settings,
    }


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (converse_body([HI], [TOOL_USE], [TOOL_RESULT], **TOOLS), None),
        (converse_body(), "must start with a user"),
        (converse_body([]), "content field is empty"),
        (converse_body([{"text": " "}]), "is blank"),
        (converse_body([HI], [TOOL_USE], [TOOL_RESULT]), "toolConfig field must be defined"),
        (converse_body([HI], [TOOL_USE], [HI], **TOOLS), "is answered by []"),
        (converse_body([HI], [HI]), None),
        (converse_body([HI], [{"text": "Ho "}]), "trailing whitespace"),
        (converse_body([PDF]), "text block must be included"),
        (converse_body([PDF, PDF, HI]), "Duplicate document names"),
        (converse_body([HI], [{"reasoningContent": {"reasoningText": {"text": "x"}}}, HI], [HI]), "no signature"),
        (converse_body([{"cachePoint": {"type": "default"}}, HI]), "must follow content"),
    ],
)
def test_faults_in_converse_are_found(body: dict[str, Any], fault: str | None) -> None:
    check_one("bedrock-converse", body, fault, model="anthropic.claude-sonnet-4-5")


@pytest.mark.parametrize("model", ["anthropic.claude-sonnet-4-6", "amazon.nova-pro-v1:0"])
def test_a_model_that_does_not_continue_answers_refuses_them_in_converse(model: str) -> None:
    check_one("bedrock-converse", converse_body([HI], [HI]), "must end with a user", model=model)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([*ASKED, ANSWER], None),
        ([], "at least 1 token"),
        (
            [ASKED[0], {"role": "assistant", "content": "x", "tool_calls": [CALL]}, ANSWER],
            "text content is not allowed",
        ),
        ([ASKED[0], {"role": "system", "content": "x"}, ASKED[0]], "must be the first"),
        ([*ASKED, ASKED[0]], "did not have response"),
        ([{"role": "user", "content": "Hi", "mood": 1}], "unknown key"),
    ],
)
def test_faults_in_coheres_format_are_found(messages: list[Any], fault: str | None) -> None:
    check_one("cohere-v2", {"model": "m", "messages": messages}, fault)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([ASKED[0]], None),
        ([], "is empty"),
        ([{"role": "assistant", "content": ""}], "is empty"),
        (ASKED, "object of arguments"),
        ([ANSWER], "without a call"),
        ([{"role": "user", "content": "x", "images": ["?"]}], "not base64"),
    ],
)
def test_faults_in_ollamas_format_are_found(messages: list[Any], fault: str | None) -> None:
    check_one("ollama-chat", {"model": "m", "messages": messages}, fault)
