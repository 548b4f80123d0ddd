"""Generates rollout files of Codex: answers of several items, results, usage, compactions, rollbacks and events."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
_ids = st.sampled_from(["c1", "c2", "c3"])
_text = st.builds(
    lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["input_text", "output_text"]), words
)
_message = st.builds(
    lambda role, content: {"type": "message", "role": role, "content": content},
    st.sampled_from(["user", "assistant", "developer"]),
    st.lists(_text, max_size=2) | values,
)
_items = st.one_of(
    _message,
    _message,
    st.builds(
        lambda text, blob: {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}],
            "encrypted": blob,
        },
        words,
        scalars,
    ),
    st.builds(
        lambda id, name, args: {"type": "function_call", "call_id": id, "name": name, "arguments": args},
        _ids,
        st.just("f") | values,
        st.sampled_from(["{}", '{"a":1}', "{broken"]) | values,
    ),
    st.builds(lambda id, text: {"type": "custom_tool_call", "call_id": id, "name": "g", "input": text}, _ids, words),
    st.builds(lambda id, out: {"type": "function_call_output", "call_id": id, "output": out}, _ids, words | values),
    st.builds(lambda id, out: {"type": "custom_tool_call_output", "call_id": id, "output": out}, _ids, words),
    st.builds(lambda id, value: {"type": "tool_search_output", "call_id": id, "tools": value}, _ids, values),
    st.builds(lambda content: {"type": "agent_message", "content": content}, st.lists(_text, max_size=2) | values),
    st.just({"type": "compaction", "encrypted_content": "x"}),
    st.builds(lambda kind, value: {"type": kind, "x": value}, words, values),
)
_usage = st.fixed_dictionaries({"input_tokens": scalars, "output_tokens": st.integers(-1, 9)})
_shown = st.one_of(
    words.map(lambda text: {"type": "user_message", "message": text, "images": ["data:image/png;base64,AAAA", text]}),
    words.map(lambda text: {"type": "agent_message", "message": text}),
    words.map(lambda text: {"type": "agent_reasoning", "text": text}),
    st.builds(
        lambda kind, id, text, value: {
            "type": "item_completed",
            "item": {
                "type": kind,
                "id": id,
                "content": [{"type": "Text", "text": text}],
                "summary_text": [text],
                "status": "failed",
                "command": value,
                "result": value,
                "tool": text,
            },
        },
        st.sampled_from(["UserMessage", "AgentMessage", "Reasoning", "CommandExecution", "FileChange", "McpToolCall"]),
        _ids | values,
        words,
        values,
    ),
).map(lambda event: ("event_msg", event))
_others = st.one_of(
    _items.map(lambda item: ("response_item", item)),
    _items.map(lambda item: ("response_item", item)),
    _usage.map(lambda usage: ("token_usage_record", {"usage": usage, "response_id": "r1"})),
    _usage.map(lambda usage: ("event_msg", {"type": "token_count", "info": {"last_token_usage": usage}})),
    values.map(lambda value: ("session_meta", {"id": "x", "cwd": value, "git": value, "source": value})),
    words.map(lambda name: ("turn_context", {"model": name, "effort": "high"})),
    st.integers(-1, 3).map(lambda turns: ("event_msg", {"type": "thread_rolled_back", "num_turns": turns})),
    words.map(lambda text: ("event_msg", {"type": "task_complete", "error": {"message": text}})),
    values.map(lambda value: ("event_msg", {"type": "turn_aborted", "reason": value})),
    (words | values).map(lambda value: ("inter_agent_communication", {"content": value})),
    st.builds(
        lambda id, result: ("event_msg", {"type": "mcp_tool_call_end", "call_id": id, "result": result}),
        _ids | values,
        values.map(lambda value: {"Ok": value}) | values,
    ),
    st.tuples(words | st.just(""), st.lists(_message | _items, max_size=2) | values).map(
        lambda pair: ("compacted", {"message": pair[0], "replacement_history": pair[1]})
    ),
    st.tuples(words, values),
    _shown,
)
_events = st.one_of(_shown, _shown, _others.filter(lambda pair: pair[0] != "response_item"))


def _line(pair: tuple[str, Any]) -> str:
    return json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": pair[0], "payload": pair[1]}) + "\n"


files = (st.lists(_others.map(_line), max_size=12) | st.lists(_events.map(_line), max_size=8)).map(
    lambda lines: "".join(lines).encode()
)
