"""Generates files of Qwen Code: trees of messages, compressions and events."""

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
        lambda id, text: {"functionResponse": {"id": id, "name": "f", "response": {"output": text}}}, _ids, words
    ),
    values,
)
_contents = st.builds(
    lambda role, parts: {"role": role, "parts": parts}, st.sampled_from(["user", "model"]), st.lists(_parts, max_size=3)
)
_usage = st.fixed_dictionaries(
    {"promptTokenCount": scalars, "candidatesTokenCount": st.integers(-1, 9), "thoughtsTokenCount": scalars}
)
_events = st.builds(
    lambda name, status, text: {"event.name": name, "status_code": status, "error_message": text, "model": "m"},
    st.sampled_from(["qwen-code.api_error", "api_cancel", "qwen-code.api_response"]) | words,
    st.sampled_from([429, 500, 7]) | values,
    words,
)
_lines = st.one_of(
    st.builds(
        lambda kind, message, usage, status, display: {
            "type": kind,
            "message": message,
            "usageMetadata": usage,
            "model": "m",
            "toolCallResult": {"status": status, "resultDisplay": display},
        },
        st.sampled_from(["user", "assistant", "tool_result", "system"]),
        _contents | values,
        _usage | values,
        st.sampled_from(["success", "error"]),
        st.just({"subagentName": "explore"}) | values,
    ),
    st.builds(
        lambda history: {"type": "system", "subtype": "agent_bootstrap", "systemPayload": {"history": history}},
        st.lists(_contents | values, max_size=3) | values,
    ),
    st.builds(
        lambda history: {"type": "system", "subtype": "chat_compression", "systemPayload": history},
        st.builds(lambda contents: {"compressedHistory": contents}, st.lists(_contents | values, max_size=3)) | values,
    ),
    st.builds(
        lambda event: {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": event}}, _events
    ),
    st.builds(
        lambda title: {"type": "system", "subtype": "custom_title", "systemPayload": {"customTitle": title}}, values
    ),
)


@st.composite
def _file(draw: st.DrawFn) -> bytes:
    lines: list[Json] = []
    for number in range(draw(st.integers(0, 12))):
        line = dict(draw(_lines))
        parent = draw(st.sampled_from([number - 1, number - 1, draw(st.integers(0, max(0, number - 1)))]))
        if draw(st.integers(0, 9)):
            line |= {"uuid": f"e{number}", "parentUuid": f"e{parent}" if number else None}
        lines.append({**line, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/work"})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


files = _file()
