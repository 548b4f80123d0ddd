"""Generates files of Copilot CLI: events in a chain, with branches."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
_ids = st.sampled_from(["c1", "c2", "c3"])
_requests = st.builds(lambda id, args: {"toolCallId": id, "name": "bash", "arguments": args}, _ids, values)
_events = st.one_of(
    st.builds(
        lambda text, source, path: (
            "user.message",
            {"content": text, "source": source, "attachments": [{"path": path}]},
        ),
        words,
        st.sampled_from([None, "user", "skill-pdf"]),
        scalars,
    ),
    st.builds(
        lambda text, thinking, calls, tokens, outer: (
            "assistant.message",
            {
                "content": text,
                "reasoningText": thinking,
                "toolRequests": calls,
                "outputTokens": tokens,
                "model": "gpt-5",
                **({"parentToolCallId": "c9"} if outer else {}),
            },
        ),
        words,
        words | st.none(),
        st.lists(_requests, max_size=2) | values,
        scalars,
        st.booleans(),
    ),
    st.builds(
        lambda id, text, success: (
            "tool.execution_complete",
            {"toolCallId": id, "success": success, "result": {"content": text}},
        ),
        _ids,
        words,
        st.booleans(),
    ),
    st.builds(lambda name: ("session.model_change", {"newModel": name}), words),
    st.builds(lambda title: ("session.title_changed", {"title": title}), words | values),
    st.builds(
        lambda text, count: ("session.compaction_complete", {"summaryContent": text, "preCompactionTokens": count}),
        words,
        scalars,
    ),
    st.builds(lambda text, status: ("session.error", {"message": text, "statusCode": status}), words, scalars),
    st.just(("abort", {"reason": "user_initiated"})),
    st.builds(lambda data: ("hook.start", data), values),
)


@st.composite
def _file(draw: st.DrawFn) -> bytes:
    start: Json = {"sessionId": "s", "version": 1, "context": {"cwd": "/work"}}
    lines: list[Json] = [{"type": "session.start", "data": start, "id": "e0", "parentId": None}]
    for number in range(1, draw(st.integers(1, 12))):
        kind, data = draw(_events)
        parent = draw(st.sampled_from([number - 1, number - 1, draw(st.integers(0, number - 1))]))
        lines.append({"type": kind, "data": data, "id": f"e{number}", "parentId": f"e{parent}"})
    return "".join(json.dumps({**line, "timestamp": "2026-01-01T00:00:00Z"}) + "\n" for line in lines).encode()


files = _file()
