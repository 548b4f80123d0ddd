"""Generates files of libraries: lists of messages, and lines of conversations."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

_ids = st.sampled_from(["c1", "c2", "c3", ""])
_usage = st.dictionaries(st.sampled_from(["input_tokens", "output_tokens", "cache_read_tokens"]), scalars)


def _list_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda items, indent: json.dumps(items, indent=indent).encode(),
        st.lists(items | values, max_size=6),
        st.sampled_from([None, 1]),
    )


# -- Chat Completions

_chat_content = words | st.none() | st.lists(st.builds(lambda text: {"type": "text", "text": text}, words), max_size=2)
_chat_call = st.builds(
    lambda id, args: {"id": id, "type": "function", "function": {"name": "f", "arguments": args}}, _ids, words | values
)
_chat = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content}, words | st.just("user"), _chat_content),
    st.builds(
        lambda content, calls: {"role": "assistant", "content": content, "tool_calls": calls},
        _chat_content,
        st.lists(_chat_call, max_size=2) | values,
    ),
    st.builds(lambda id, content: {"role": "tool", "tool_call_id": id, "content": content}, _ids, _chat_content),
)
_chat_line = (
    _chat
    | st.builds(lambda messages: {"messages": messages}, st.lists(_chat | values, max_size=4) | values)
    | st.builds(lambda messages: {"body": {"messages": messages}}, st.lists(_chat, max_size=2))
    | values
)
chats = st.lists(_chat_line, max_size=6).map(lambda lines: "".join(json.dumps(line) + "\n" for line in lines).encode())

# -- pydantic-ai

_prompt = words | st.lists(
    words
    | st.just({"kind": "binary", "data": "AAAA", "media_type": "image/png"})
    | st.builds(lambda url: {"kind": "image-url", "url": url}, words)
    | values,
    max_size=2,
)
_kinds = st.sampled_from(
    [
        "system-prompt",
        "user-prompt",
        "tool-return",
        "retry-prompt",
        "text",
        "thinking",
        "tool-call",
        "builtin-tool-call",
        "builtin-tool-return",
    ]
)
_part = st.builds(
    lambda kind, content, id, args, fields: {
        "part_kind": kind,
        "content": content,
        "tool_call_id": id,
        "tool_name": "f",
        "args": args,
        "signature": fields,
        "provider_name": "anthropic",
        "outcome": "failed",
    },
    _kinds | words,
    _prompt | values,
    _ids,
    values | st.just('{"a": 1}'),
    words | values,
)
pydantic_ai = _list_of(
    st.builds(
        lambda kind, parts, usage: {"kind": kind, "parts": parts, "usage": usage, "model_name": "m"},
        st.sampled_from(["request", "response"]) | words,
        st.lists(_part | values, max_size=4) | values,
        _usage | values,
    )
)

# -- LangChain

_block = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, words, words | values),
    st.builds(
        lambda url: {"type": "image_url", "image_url": {"url": url}}, words | st.just("data:image/png;base64,AAAA")
    ),
    st.builds(lambda data: {"type": "image", "base64": data, "mime_type": "image/png"}, words | st.just("AAAA")),
    words,
    values,
)
_calls = st.lists(st.builds(lambda id, args: {"id": id, "name": "f", "args": args}, _ids, values), max_size=2) | values
_fields = st.builds(
    lambda kind, content, calls, invalid, id, usage: {
        "type": kind,
        "content": content,
        "tool_calls": calls,
        "invalid_tool_calls": invalid,
        "tool_call_id": id,
        "usage_metadata": usage,
        "response_metadata": {"model_name": "claude-x"},
    },
    st.sampled_from(["human", "ai", "system", "tool", "AIMessageChunk"]) | words,
    words | st.lists(_block, max_size=3) | values,
    _calls,
    _calls,
    _ids,
    _usage | values,
)
langchain = _list_of(
    st.builds(lambda fields: {"type": fields["type"], "data": fields}, _fields)
    | st.builds(lambda fields, ids: {"lc": 1, "type": "constructor", "id": ids, "kwargs": fields}, _fields, values)
)

# -- AI SDK

_ui_part = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text: {"type": "reasoning", "text": text}, words),
    st.just({"type": "step-start"}),
    st.builds(
        lambda id, state, input, output: {
            "type": "tool-f",
            "toolCallId": id,
            "state": state,
            "input": input,
            "output": output,
            "errorText": "no",
        },
        _ids,
        st.sampled_from(["input-streaming", "input-available", "output-available", "output-error"]) | words,
        values,
        values,
    ),
    st.builds(lambda url: {"type": "file", "mediaType": "image/png", "url": url}, words | st.just("https://x/y.png")),
    values,
)
ai_sdk = _list_of(
    st.builds(
        lambda id, role, parts: {"id": id, "role": role, "parts": parts},
        words,
        st.sampled_from(["user", "assistant", "system"]) | words,
        st.lists(_ui_part, max_size=4) | values,
    )
)

# -- the Messages API, as Cline stores it

_block = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, words),
    st.builds(lambda id, args: {"type": "tool_use", "id": id, "name": "f", "input": args}, _ids, values),
    st.builds(lambda id, text: {"type": "tool_result", "tool_use_id": id, "content": text}, _ids, words),
    values,
)
anthropic = _list_of(
    st.builds(
        lambda role, content, time: {"role": role, "content": content, "ts": time},
        st.sampled_from(["user", "assistant"]) | words,
        words | st.lists(_block, max_size=3) | values,
        scalars,
    )
)

# -- Amp, Cursor and SWE-agent

_run = st.builds(
    lambda status, result, kind: {"status": status, kind: result},
    st.sampled_from(["done", "error", "cancelled"]) | words,
    words | values,
    st.sampled_from(["result", "error", "progress"]),
)
_amp_block = _block | st.builds(lambda id, run: {"type": "tool_result", "toolUseID": id, "run": run}, _ids, _run)
_amp_message = st.builds(
    lambda role, content, time, usage: {"role": role, "content": content, "meta": {"sentAt": time}, "usage": usage},
    st.sampled_from(["user", "assistant", "info"]) | words,
    st.lists(_amp_block, max_size=3) | values,
    scalars,
    st.builds(lambda count: {"model": "m", "inputTokens": count, "outputTokens": 1}, scalars) | values,
)
amp = st.builds(
    lambda messages, title: json.dumps(
        {"id": "T-1", "created": 1, "messages": messages, "title": title, "env": {"initial": {}}}
    ).encode(),
    st.lists(_amp_message | values, max_size=6),
    words | values,
)
cursor = st.lists(
    st.builds(
        lambda role, content: {"role": role, "message": {"content": content}},
        st.sampled_from(["user", "assistant"]) | words,
        st.lists(_block, max_size=3) | values,
    )
    | values,
    max_size=6,
).map(lambda lines: "".join(json.dumps(line) + "\n" for line in lines).encode())
swe_agent = st.builds(
    lambda key, messages: json.dumps({"trajectory": [], key: messages, "info": {}}).encode(),
    st.sampled_from(["history", "messages"]),
    st.lists(
        _chat | st.builds(lambda ids: {"role": "tool", "content": "x", "tool_call_ids": ids}, st.lists(_ids)) | values,
        max_size=6,
    ),
)
