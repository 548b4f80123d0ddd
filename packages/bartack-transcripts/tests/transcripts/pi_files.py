"""Generates files of pi: trees of messages of several providers, compactions and settings."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
_ids = st.sampled_from(["c1", "c2", "c3"])
_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "thinkingSignature": sign}, words, scalars),
    st.builds(lambda id, args: {"type": "toolCall", "id": id, "name": "f", "arguments": args}, _ids, values),
    st.just({"type": "image", "data": "AAAA", "mimeType": "image/png"}),
    values,
)
_content = words | st.lists(_parts, max_size=3) | values
_messages = st.one_of(
    st.builds(lambda content: {"role": "user", "content": content}, _content),
    st.builds(
        lambda content, api, reason, usage: {
            "role": "assistant",
            "content": content,
            "api": api,
            "provider": "p",
            "model": "m",
            "stopReason": reason,
            "usage": usage,
            "errorMessage": "400 no",
        },
        _content,
        st.sampled_from(["anthropic-messages", "openai-responses", "other"]),
        st.sampled_from(["stop", "toolUse", "error", "aborted", "?"]),
        st.fixed_dictionaries({"input": scalars, "output": st.integers(-1, 9), "cost": values}) | values,
    ),
    st.builds(lambda id, content: {"role": "toolResult", "toolCallId": id, "content": content}, _ids, _content),
    st.builds(lambda role, value: {"role": role, "content": value, "command": value}, words, values),
)
_entries = st.one_of(
    _messages.map(lambda message: {"type": "message", "message": message}),
    _messages.map(lambda message: {"type": "message", "message": message}),
    st.builds(
        lambda text, first_kept: {"type": "compaction", "summary": text, "firstKeptEntryId": f"e{first_kept}"},
        words,
        st.integers(0, 12),
    ),
    st.builds(
        lambda text, origin: {"type": "branch_summary", "summary": text, "fromId": f"e{origin}"}, words, st.integers()
    ),
    st.builds(lambda name: {"type": "model_change", "provider": "p", "modelId": name}, words),
    st.builds(lambda level: {"type": "thinking_level_change", "thinkingLevel": level}, st.just("high") | values),
    st.builds(lambda kind, value: {"type": kind, "name": value}, words | st.just("session_info"), values),
)


@st.composite
def _file(draw: st.DrawFn) -> bytes:
    lines: list[Json] = [{"type": "session", "version": 3, "id": "x", "cwd": draw(words)}]
    for number in range(draw(st.integers(0, 12))):
        entry = dict(draw(_entries))
        parent = draw(st.sampled_from([number - 1, number - 1, draw(st.integers(0, max(0, number - 1)))]))
        if draw(st.integers(0, 9)):
            entry |= {"id": f"e{number}", "parentId": f"e{parent}" if number else None}
        lines.append({**entry, "timestamp": "2026-01-01T00:00:00Z"})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


files = _file()
