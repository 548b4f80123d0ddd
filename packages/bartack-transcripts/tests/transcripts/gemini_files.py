"""Generates files of Gemini CLI: messages, updates, new lists and rewinds; and the single object of old versions."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
_ids = st.sampled_from(["c1", "c2", "c3"])
_parts = st.one_of(
    st.builds(lambda text: {"text": text}, words),
    st.builds(lambda text: {"text": text, "thought": True}, words),
    st.builds(lambda id, args: {"functionCall": {"id": id, "name": "f", "args": args}}, _ids, values),
    st.builds(
        lambda id, out: {"functionResponse": {"id": id, "name": "f", "response": out}},
        _ids,
        st.builds(lambda text: {"output": text}, words) | values,
    ),
    st.just({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
    values,
)
_content = words | st.lists(_parts, max_size=3) | st.just("/help") | st.just("<state_snapshot>\nso\n</state_snapshot>")
_calls = st.lists(
    st.builds(
        lambda id, args, result, status, agent: {
            "id": id,
            "name": "f",
            "args": args,
            "result": result,
            "status": status,
            "agentId": agent,
        },
        _ids,
        st.just({"a": 1}) | values,
        st.lists(_parts, max_size=2) | words | values,
        st.sampled_from(["success", "error", "cancelled"]),
        st.none() | words | values,
    ),
    max_size=2,
)
_messages = st.one_of(
    st.builds(lambda content: {"type": "user", "content": content}, _content),
    st.builds(
        lambda content, calls, thoughts, tokens: {
            "type": "gemini",
            "content": content,
            "toolCalls": calls,
            "thoughts": thoughts,
            "tokens": tokens,
            "model": "gemini-x",
        },
        _content,
        _calls,
        st.lists(st.builds(lambda text: {"subject": text, "description": text}, words), max_size=1) | values,
        st.fixed_dictionaries({"input": scalars, "output": st.integers(-1, 9), "cached": scalars}) | values,
    ),
    st.builds(lambda kind, content: {"type": kind, "content": content}, words | st.just("error"), _content),
)


@st.composite
def _message(draw: st.DrawFn) -> Json:
    return {"id": draw(st.sampled_from("abcdef")), "timestamp": "2026-01-01T00:00:00Z", **draw(_messages)}


_lines = st.one_of(
    _message(),
    _message(),
    _message(),
    st.just({"$set": {"lastUpdated": "2026-01-01T00:00:00Z"}}),
    st.builds(lambda messages: {"$set": {"messages": messages}}, st.lists(_message() | values, max_size=4)),
    st.builds(lambda id: {"$rewindTo": id}, st.sampled_from("abcdef")),
    st.dictionaries(words, values, max_size=2),
)
_header = {"sessionId": "8cb7f799", "projectHash": "05", "startTime": "2026-01-01T00:00:00Z", "kind": "main"}
files = st.lists(_lines, max_size=10).map(
    lambda lines: "".join(json.dumps(line) + "\n" for line in [_header, *lines]).encode()
)
old_files = st.lists(_message() | values, max_size=6).map(
    lambda messages: json.dumps({**_header, "messages": messages}, indent=2).encode()
)
