"""Parts of each provider in a history, with the continuation data that its decoder gives them.

`LEFT` has a list of functions per format, each of which creates a part from a call id. `TEXTS_KEPT` are the strings in
that data which are private to the provider: signatures, ciphertext and item ids.
"""

import re
from collections.abc import Callable
from typing import Any

from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult

Make = Callable[[str], Part]
MODELS = {
    "anthropic-messages": "claude-sonnet-4-5",
    "bedrock-converse": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "bedrock-invoke": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "cohere-v2": "command-a-reasoning-08-2025",
    "gemini-generate": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "ollama-chat": "qwen3",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
}


def _of(format: str, data: dict[str, Any]) -> Continuation:
    is_nova = format == "bedrock-converse" and "type" in data
    return Continuation(format, "us.amazon.nova-pro-v1:0" if is_nova else MODELS[format], data)


def _text(format: str, text: str, data: dict[str, Any]) -> Make:
    return lambda call_id: Text(text, continuation=_of(format, data))


def _thinking(format: str, text: str, data: dict[str, Any]) -> Make:
    return lambda call_id: Thinking(text, continuation=_of(format, data))


def _call(format: str, data: dict[str, Any]) -> Make:
    return lambda call_id: ToolCall(call_id, "read", {"path": "x"}, continuation=_of(format, data))


def _executed(format: str, name: str, data: dict[str, Any], result: Any = "found") -> Make:
    def make(call_id: str) -> Part:
        call_id = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)[:40]  # a provider's own ids are of a form that it takes
        tool_result = None if result is None else ToolResult(call_id, result)
        return ToolCall(
            call_id, name, {"q": "x"}, executed_by="provider", result=tool_result, continuation=_of(format, data)
        )

    return make


def _claude(format: str) -> list[Make]:
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_SECRET", "content": []}
    return [
        _thinking(format, "hm", {"signature": "sig-SECRET"}),
        _thinking(format, "", {"type": "redacted_thinking", "data": "red-SECRET"}),
        _thinking(format, "unsigned", {}),
        _text(format, "cited", {"citations": [{"type": "char_location", "cited_text": "cited-SECRET"}]}),
        _call(format, {"caller": {"type": "direct"}}),
        _call(format, {"caller": {"type": "code_execution_20250825", "tool_id": "a"}}),
        _executed(format, "web_search", {"type": "server_tool_use", "result": result}),
        _executed(format, "web_search", {"type": "server_tool_use"}, None),
    ]


def _item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"item": {"type": kind, **fields}}


_MESSAGE = {"id": "msg_SECRET", "role": "assistant", "status": "completed"}
_PICTURE = (Image("image/png", data=b"\x89PNG"),)

LEFT: dict[str, list[Make]] = {
    "anthropic-messages": _claude("anthropic-messages"),
    "bedrock-invoke": _claude("bedrock-invoke"),
    "bedrock-converse": [
        _thinking("bedrock-converse", "hm", {"reasoningText": {"signature": "sig-SECRET"}}),
        _thinking("bedrock-converse", "", {"redactedContent": "cmVkLVNFQ1JFVA=="}),
        _executed(
            "bedrock-converse",
            "nova_grounding",
            {
                "type": "server_tool_use",
                "toolResult": {"toolUseId": "tooluse_SECRET", "content": [{"json": {}}], "type": "t"},
            },
        ),
        _executed("bedrock-converse", "nova_grounding", {"type": "server_tool_use"}, None),
    ],
    "cohere-v2": [
        _thinking("cohere-v2", "hm", {"type": "thinking"}),
        _thinking("cohere-v2", "first I look", {"type": "tool_plan"}),
        _text("cohere-v2", "cited", {"citations": [{"start": 0, "end": 5, "text": "cited-SECRET"}]}),
    ],
    "gemini-generate": [
        _thinking("gemini-generate", "hm", {"thought": True}),
        _thinking("gemini-generate", "hm", {"thought": True, "thoughtSignature": "c2lnLVNFQ1JFVA=="}),
        _text("gemini-generate", "", {"thoughtSignature": "c2lnLVNFQ1JFVA=="}),
        _text("gemini-generate", "cited", {"groundingMetadata": {"webSearchQueries": ["q-SECRET"]}}),
        _call("gemini-generate", {"id": "id-SECRET", "thoughtSignature": "c2lnLVNFQ1JFVA=="}),
        _executed(
            "gemini-generate",
            "code_execution",
            {
                "part": {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2lnLVNFQ1JFVA=="},
                "resultPart": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            },
        ),
        _executed("gemini-generate", "image_output", {"part": {"inlineData": {"mimeType": "image/png"}}}, _PICTURE),
    ],
    "gemini-interactions": [
        _thinking("gemini-interactions", "hm", {"signature": "sig-SECRET"}),
        _thinking("gemini-interactions", "", {"signature": "sig-SECRET"}),
        _text("gemini-interactions", "cited", {"annotations": [{"type": "url_citation", "url": "u-SECRET"}]}),
        _call("gemini-interactions", {"signature": "sig-SECRET"}),
        _executed(
            "gemini-interactions",
            "google_search",
            {
                "step": {"type": "google_search_call", "id": "id-SECRET", "arguments": {}, "signature": "sig-SECRET"},
                "resultStep": {"type": "google_search_result", "call_id": "id-SECRET", "result": []},
            },
        ),
        _executed("gemini-interactions", "image_output", {"content": {"type": "image"}}, _PICTURE),
    ],
    "ollama-chat": [_thinking("ollama-chat", "hm", {"thinking": {}})],
    "openai-chat": [
        _thinking("openai-chat", "hm", {"field": "reasoning_content"}),
        _thinking("openai-chat", "", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "enc-SECRET"}]}),
        _text("openai-chat", "I will not.", {"field": "refusal"}),
        _text("openai-chat", "cited", {"annotations": [{"type": "url_citation", "url": "u-SECRET"}]}),
        _text("openai-chat", "spoken", {"audio": {"id": "audio_SECRET"}}),
        _executed("openai-chat", "browser.search", {"executed_tool": {"type": "browser", "arguments": "id-SECRET"}}),
        _executed("openai-chat", "image_output", {}, _PICTURE),
    ],
    "openai-responses": [
        _thinking(
            "openai-responses",
            "hm",
            {
                **_item("reasoning", id="rs_SECRET", encrypted_content="enc-SECRET"),
                "field": "summary",
                "nth": 0,
                "part": {"type": "summary_text"},
            },
        ),
        _thinking("openai-responses", "", _item("reasoning", id="rs_SECRET2", encrypted_content="enc-SECRET")),
        _thinking("openai-responses", "", _item("reasoning", id="rs_SECRET3")),
        _text(
            "openai-responses",
            "yes",
            {
                **_item("message", **_MESSAGE),
                "field": "content",
                "nth": 0,
                "part": {"type": "output_text", "annotations": []},
            },
        ),
        _call("openai-responses", _item("function_call", id="fc_SECRET", status="completed", arguments='{"path":"x"}')),
        _executed("openai-responses", "web_search", _item("web_search_call", id="ws_SECRET", status="completed")),
        _executed("openai-responses", "image_output", _item("image_generation_call", id="ig_SECRET"), _PICTURE),
    ],
}
# Providers of an unknown format, whose data is never sent.
LEFT["elsewhere"] = [
    lambda call_id: Thinking("hm", continuation=Continuation("elsewhere", "m", {"signature": "sig-SECRET"})),
    lambda call_id: Text("said", continuation=Continuation("elsewhere", "m", {"id": "item-SECRET"})),
    lambda call_id: ToolCall(
        call_id, "search", {}, executed_by="provider", continuation=Continuation("elsewhere", "m", {"id": "SECRET"})
    ),
]
TEXTS_KEPT = ("SECRET", "U0VDUkVU", "VNFQ1JFV")  # the plain text, and its forms inside base64
