"""Small seeds for `lab.fuzz` where there are no recordings: one stream and one request of each format."""

import json
from base64 import b64encode
from typing import Any

__all__ = ["ERRORS", "REQUESTS", "STREAMS"]

Json = dict[str, Any]

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
_PIXEL = "iVBORw0KGgo="

_MESSAGES: list[Json] = [
    {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s", "name": "w"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "t"}]},
    },
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "Grüße"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
    {"type": "content_block_stop", "index": 3},
    {
        "type": "content_block_start",
        "index": 4,
        "content_block": {
            "type": "tool_use",
            "id": "t",
            "name": "f",
            "input": {"city": "Paris"},
            "caller": {"type": "code", "tool_id": "s"},
        },
    },
    {"type": "content_block_stop", "index": 4},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
_CHAT: list[Json] = [
    {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
    {"id": "r", "choices": [{"index": 0, "delta": {"content": "Hi", "annotations": [{"type": "url"}]}}]},
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": {"city": "Paris"}}}]
                }
            }
        ]
    },
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.1}},
]
_CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"city":"Paris"}'}
_SAID = {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
_REASONED = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
_USAGE = {"input_tokens": 3, "output_tokens": 4}
_RESPONSES: list[Json] = [
    {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs", "summary": []}},
    {"type": "response.reasoning_summary_text.delta", "item_id": "rs", "summary_index": 0, "delta": "hm"},
    {"type": "response.output_item.done", "output_index": 0, "item": {**_REASONED, "encrypted_content": "e"}},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "msg", "content": []}},
    {"type": "response.output_text.delta", "item_id": "msg", "output_index": 1, "content_index": 0, "delta": "Hi"},
    {"type": "response.output_item.done", "output_index": 1, "item": _SAID},
    {"type": "response.output_item.added", "output_index": 2, "item": {**_CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.done", "item_id": "fc", "arguments": '{"city":"Paris"}'},
    {"type": "response.output_item.done", "output_index": 2, "item": _CALL},
    {
        "type": "response.completed",
        "response": {
            "id": "r",
            "status": "completed",
            "output": [_REASONED, _SAID, _CALL],
            "usage": {"input_tokens": 3},
        },
    },
]
_GEMINI: list[Json] = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": True}]}}], "modelVersion": "g"},
    {"candidates": [{"content": {"parts": [{"text": "Hi", "thoughtSignature": "cw=="}]}}]},
    {"candidates": [{"content": {"parts": [{"executableCode": {"language": "PYTHON", "code": "1"}}]}}]},
    {"candidates": [{"content": {"parts": [{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}]}}]},
    {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"city": "Paris"}}}]}}]},
    {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}},
]
_INTERACTIONS: list[Json] = [
    {"event_type": "interaction.created", "interaction": {"id": "i", "model": "g"}},
    {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}},
    {"event_type": "step.stop", "index": 0},
    {"event_type": "step.start", "index": 1, "step": {"type": "function_call", "id": "c", "name": "f"}},
    {"event_type": "step.delta", "index": 1, "delta": {"type": "arguments_delta", "arguments": "{}"}},
    {"event_type": "step.stop", "index": 1},
    {"event_type": "interaction.completed", "interaction": {"id": "i", "status": "completed"}},
]
_CONVERSE: list[tuple[str, Json]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s"}}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "Hi"}}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("contentBlockStart", {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c", "name": "f"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{}"}}}),
    ("contentBlockStop", {"contentBlockIndex": 2}),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 3, "outputTokens": 4}}),
]
_COHERE: list[Json] = [
    {"type": "message-start", "id": "m", "delta": {"message": {"role": "assistant"}}},
    {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "hm"}}},
    {
        "type": "tool-call-start",
        "index": 0,
        "delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "f", "arguments": ""}}}},
    },
    {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "{}"}}}}},
    {"type": "tool-call-end", "index": 0},
    {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}},
    {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {"start": 0, "end": 2, "sources": []}}}},
    {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 3}}}},
]
_OLLAMA: list[Json] = [
    {"model": "m", "created_at": "", "message": {"role": "assistant", "thinking": "hm"}, "done": False},
    {"model": "m", "created_at": "", "message": {"content": "Hi"}, "done": False},
    {
        "message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"city": "Paris"}}}]},
        "done": False,
    },
    {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4},
]


_ERROR: Json = {"type": "error", "code": 400, "error": {"type": "x", "code": "y", "message": "no", "status": "X"}}


def _named(events: list[Json], key: str = "") -> list[tuple[str, Json]]:
    return [(str(event.get(key, "")), event) for event in [*events, _ERROR]]


STREAMS: dict[str, list[tuple[str, Json]]] = {
    "anthropic-messages": _named(_MESSAGES, "type"),
    "openai-chat": _named(_CHAT),
    "openai-responses": _named(_RESPONSES, "type"),
    "gemini-generate": _named(_GEMINI),
    "gemini-interactions": _named(_INTERACTIONS, "event_type"),
    "bedrock-converse": _CONVERSE,
    "bedrock-invoke": [("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()}) for event in _MESSAGES],
    "cohere-v2": _named(_COHERE, "type"),
    "ollama-chat": _named(_OLLAMA),
}

_FUNCTION = {"name": "f", "description": "Weather.", "parameters": _SCHEMA}
_CHAT_BODY: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": "auto",
    "temperature": 0.5,
    "max_tokens": 100,
    "stop": ["x"],
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": _SCHEMA, "strict": True}},
}
_MESSAGES_BODY: Json = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "x", "title": "t"}]},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"city": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain"}]},
    ],
    "tools": [{"name": "f", "input_schema": _SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": _SCHEMA}},
    "stop_sequences": ["x"],
    "temperature": 1,
}
_RESPONSES_BODY: Json = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {**_REASONED, "encrypted_content": "e"},
        _SAID,
        _CALL,
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
    ],
    "tools": [{"type": "function", **_FUNCTION, "strict": False}, {"type": "web_search"}],
    "tool_choice": {"type": "function", "name": "f"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": _SCHEMA}},
    "max_output_tokens": 100,
    "temperature": 0.5,
    "include": ["reasoning.encrypted_content"],
    "store": False,
}
_GEMINI_BODY: Json = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": _PIXEL}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "cw=="}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "rain"}}}]},
    ],
    "tools": [{"functionDeclarations": [_FUNCTION]}, {"googleSearch": {}}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {
        "temperature": 0.5,
        "maxOutputTokens": 100,
        "stopSequences": ["x"],
        "thinkingConfig": {"thinkingBudget": 128, "includeThoughts": True},
    },
}
_CONVERSE_BODY: Json = {
    "system": [{"text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"text": "Hi"}, {"image": {"format": "png", "source": {"bytes": _PIXEL}}}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                {"toolUse": {"toolUseId": "c", "name": "f", "input": {"city": "Paris"}}},
            ],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "rain"}]}}]},
    ],
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": _SCHEMA}}}, {"cachePoint": {"type": "default"}}],
        "toolChoice": {"tool": {"name": "f"}},
    },
    "inferenceConfig": {"maxTokens": 100, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]},
    "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}
_HI = {"type": "text", "text": "Hi"}
REQUESTS: dict[str, Json] = {
    "anthropic-messages": _MESSAGES_BODY,
    "openai-chat": _CHAT_BODY,
    "openai-responses": _RESPONSES_BODY,
    "gemini-generate": _GEMINI_BODY,
    "gemini-interactions": {
        "model": "g",
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}],
    },
    "bedrock-converse": _CONVERSE_BODY,
    "bedrock-invoke": {**_MESSAGES_BODY, "anthropic_version": "bedrock-2023-05-31"},
    "cohere-v2": _CHAT_BODY,
    "ollama-chat": _CHAT_BODY,
}

# The bodies of error responses.
ERRORS: list[Any] = [
    {"error": {"message": "Rate limit reached. Please try again in 1.242s.", "type": "tokens", "code": "rate_limit"}},
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"},
    [
        {
            "error": {
                "code": 429,
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"retryDelay": "17s"}],
            }
        }
    ],
    {"__type": "com.amazon#ThrottlingException", "message": "Too many requests"},
    {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error": {"message": "busy"}}'}}},
    {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "1741305600000"}}}},
    {"detail": [{"loc": ["body"], "msg": "field required", "type": "missing"}]},
    {"message": "invalid", "error": "not found"},
    "<html><head><title>502 Bad Gateway</title></head></html>",
    "retry in 6m0s, or try again in 1e999 h",
    "",
]
