"""Generates what programs keep in databases and folders: rows of opencode and llm, folders of strands."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
Rows = dict[str, bytes]
_calls = st.sampled_from(["c1", "c2", "c3"])
_small = st.integers(0, 3)


def _data(value: Any) -> bytes:
    return json.dumps(value).encode()


# -- opencode

_states = st.one_of(
    st.builds(lambda text: {"status": "completed", "input": {"a": 1}, "output": text, "title": text}, words),
    st.builds(lambda text: {"status": "error", "input": {}, "error": text}, words),
    st.builds(lambda value: {"status": "pending", "input": value, "raw": "{"}, values),
    values,
)
_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text, data: {"type": "reasoning", "text": text, "metadata": data}, words, values),
    st.builds(lambda id, state: {"type": "tool", "callID": id, "tool": "f", "state": state}, _calls, _states),
    st.just({"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}),
    st.builds(lambda id: {"type": "compaction", "tail_start_id": f"msg_{id}"}, _small),
    values,
)
_infos = st.one_of(
    st.builds(lambda time: {"role": "user", "time": {"created": time}}, scalars),
    st.builds(
        lambda time, tokens, summary, error: {
            "role": "assistant",
            "time": {"created": time, "completed": time},
            "providerID": "p",
            "modelID": "m",
            "tokens": tokens,
            "summary": summary,
            "error": error,
        },
        st.integers(0, 9),
        st.fixed_dictionaries({"input": scalars, "output": st.integers(-1, 9), "cache": values}) | values,
        st.sampled_from([None, None, True]),
        st.none() | st.just({"name": "MessageAbortedError"}) | values,
    ),
    values,
)


@st.composite
def _opencode(draw: st.DrawFn) -> Rows:
    rows: Rows = {}
    for number in range(draw(st.integers(0, 2))):
        columns = draw(st.fixed_dictionaries({"title": values, "parent_id": values, "revert": values}))
        rows[f"session/ses_{number}"] = _data({"id": f"ses_{number}", "time_created": number, **columns})
    for number in range(draw(st.integers(0, 5))):
        columns = {"id": f"msg_{number}", "session_id": f"ses_{draw(_small)}", "time_created": number}
        rows[f"message/msg_{number}"] = _data({**columns, "data": json.dumps(draw(_infos))})
    for number in range(draw(st.integers(0, 6))):
        columns = {"id": f"prt_{number}", "message_id": f"msg_{draw(_small)}", "session_id": f"ses_{draw(_small)}"}
        rows[f"part/prt_{number}"] = _data({**columns, "data": json.dumps(draw(_parts))})
    return rows


opencode = _opencode()
opencode_exports = st.builds(
    lambda info, messages: {"export.json": _data({"info": {"id": "ses_1", **info}, "messages": messages})},
    st.dictionaries(st.sampled_from(["title", "directory", "time", "revert"]), values, max_size=2),
    st.lists(
        st.builds(lambda info, parts: {"info": info, "parts": parts}, _infos, st.lists(_parts, max_size=3)) | values,
        max_size=4,
    ),
)

# -- strands

_blocks = st.one_of(
    st.builds(lambda text: {"text": text}, words),
    st.builds(lambda id, args: {"toolUse": {"toolUseId": id, "name": "f", "input": args}}, _calls, values),
    st.builds(
        lambda id, text, status: {"toolResult": {"toolUseId": id, "status": status, "content": [{"text": text}]}},
        _calls,
        words,
        st.sampled_from(["success", "error"]) | values,
    ),
    st.builds(
        lambda text, sign: {"reasoningContent": {"reasoningText": {"text": text, "signature": sign}}}, words, words
    ),
    st.builds(
        lambda data: {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": data}}}},
        st.just("AAAA") | values,
    ),
    values,
)
_strands_messages = st.builds(
    lambda role, content, usage, redacted: {
        "message": {"role": role, "content": content, "metadata": {"usage": usage}},
        "redact_message": redacted,
        "created_at": "2026-01-01T00:00:00+00:00",
    },
    st.sampled_from(["user", "assistant"]) | words,
    st.lists(_blocks, max_size=3) | values,
    st.dictionaries(st.sampled_from(["inputTokens", "outputTokens", "totalTokens"]), scalars) | values,
    st.none() | values,
)


@st.composite
def _strands(draw: st.DrawFn) -> Rows:
    manager = st.fixed_dictionaries({"removed_message_count": scalars, "summary_message": values}) | values
    files = {"session.json": _data({"session_id": draw(words | st.just("s1")), "session_type": "AGENT"})}
    for agent in draw(st.sampled_from([["default"], ["default", "b"], ["é"]])):
        folder = f"agents/agent_{agent}"
        files[f"{folder}/agent.json"] = _data({"agent_id": agent, "conversation_manager_state": draw(manager)})
        for number in range(draw(st.integers(0, 4))):
            files[f"{folder}/messages/message_{number}.json"] = _data(draw(_strands_messages | values))
    return files


strands = _strands()
strands_snapshots = st.builds(
    lambda messages, files: {
        "snap.json": _data({"scope": "agent", "schema_version": "1.0", "data": {"messages": messages}, **files})
    },
    st.lists(st.builds(lambda role, content: {"role": role, "content": content}, words, st.lists(_blocks)) | values),
    st.dictionaries(words, values, max_size=1),
)

# -- llm

_llm_parts = st.builds(
    lambda of, kind, text, payload: {"message_hash": of, "type": kind, "text": text, "payload": payload},
    st.sampled_from("abc"),
    st.sampled_from(["text", "reasoning", "tool_call", "tool_result", "attachment"]) | words,
    words | values,
    st.builds(
        lambda id, args: json.dumps({"tool_call_id": id, "name": "f", "arguments": args, "output": "x"}),
        _calls,
        values,
    )
    | values,
)


@st.composite
def _llm(draw: st.DrawFn) -> Rows:
    rows: dict[str, Json] = {}
    links = st.sampled_from([None, "a", "b", "c", "?"])
    for id in draw(st.sampled_from(["", "t", "tu"])):
        rows[f"thread/{id}"] = {"id": id, "name": draw(values), "tip_message_hash": draw(links)}
    for number in range(draw(_small)):
        turn = {"thread_id": draw(st.sampled_from("tu")), "tip_message_hash": draw(links), "model": draw(values)}
        rows[f"turn/{number}"] = {"id": f"{number}", **turn, "input_tokens": draw(scalars)}
    for id in draw(st.sampled_from(["", "a", "ab", "abc"])):
        roles = st.sampled_from(["user", "assistant", "tool", "system"])
        rows[f"message/{id}"] = {"id": id, "parent_hash": draw(links), "role": draw(roles)}
    for number in range(draw(st.integers(0, 5))):
        rows[f"part/{number}"] = {"id": number, **draw(_llm_parts)}
    for id in draw(st.sampled_from(["", "k", "kt"])):
        rows[f"conversation/{id}"] = {"id": id, "name": draw(values)}
    for number in range(draw(_small)):
        columns_of_call = draw(st.fixed_dictionaries({"prompt": values, "response": values, "system": values}))
        rows[f"response/{number}"] = {
            "id": f"{number}",
            "conversation_id": draw(st.sampled_from("kt")),
            **columns_of_call,
        }
    for number in range(draw(_small)):
        columns_of_call = {"response_id": f"{draw(_small)}", "tool_call_id": draw(_calls), "name": "f"}
        rows[f"tool_call/{number}"] = {"id": number, **columns_of_call, "arguments": draw(values)}
        rows[f"tool_result/{number}"] = {"id": number, **columns_of_call, "output": draw(values)}
    return {name: _data(row) for name, row in rows.items()}


llm = _llm()
