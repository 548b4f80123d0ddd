"""Message Model System (002): its shapes, written out with values, load and dump unchanged."""

from typing import Any

import pytest

from bartack import Delta, MessageAssembler, MessageDelta, Start, ThinkingDelta
from bartack.nouns.parts import Continuation, Thinking
from bartack.views import feed
from bartack.views.feed import FEED, FeedMessage, ProgressMessage

MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "0198c0de-0000-7000-8000-000000000002",
    "role": "assistant",
    "content": [{"kind": "text", "payload": {"text": "It rains."}}],
    "timestamp": "2026-01-02T03:04:05Z",
    "cost_usd": 0.25,
    "duration_ms": 1500,
    "response_id": "msg_1",
}
KODING: dict[str, Any] = {
    "type": "message",
    "id": "0198c0de-0000-7000-8000-000000000003",
    "role": "user",
    "content": [{"kind": "text", "payload": {"text": "Fix it."}}],
    "timestamp": "2026-01-02T03:04:05Z",
    "options": {"is_koding_request": True, "koding_context": "src/a.py"},
}
API_ERROR: dict[str, Any] = {
    "type": "message",
    "id": "0198c0de-0000-7000-8000-000000000004",
    "role": "assistant",
    "content": [{"kind": "text", "payload": {"text": "busy"}}],
    "timestamp": "2026-01-02T03:04:05Z",
    "is_api_error_message": True,
    "error_code": "overloaded",
}
PROGRESS: dict[str, Any] = {
    "type": "progress",
    "id": "0198c0de-0000-7000-8000-000000000005",
    "content": "halfway",
    "tool_use_id": "c1",
    "sibling_tool_use_ids": ["c2"],
    "tools": ["weather"],
    "normalized_messages": [],
    "timestamp": "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize("shape", [MESSAGE, KODING, API_ERROR], ids=["message", "koding", "api error"])
def test_a_message_loads_and_dumps_unchanged(shape: dict[str, Any]) -> None:
    """002-structure.1, 002-structure.2, 002-options.1, 002-options.2, 002-options.3, 002-errors.1"""
    message = FEED.load(FeedMessage, shape)
    assert message.extra is None  # every key is a field
    assert FEED.dump(message) == shape
    view = {"view": "feed", "session_id": "s", "omitted": {}, "messages": [shape]}
    assert feed.dump(feed.load(view))["messages"] == [shape]


def test_a_progress_message_loads_and_dumps_unchanged() -> None:
    """002-progress.2, 002-progress.3, 002-progress.4"""
    message = FEED.load(ProgressMessage, PROGRESS)
    assert message.extra is None
    assert FEED.dump(message) == PROGRESS


def test_thinking_and_redacted_thinking_are_kept_in_deltas_and_parts() -> None:
    """002-non-goals.6, D-3.9"""
    assembler = MessageAssembler()
    timestamp = FEED.load(FeedMessage, MESSAGE).timestamp
    assert timestamp is not None
    deltas: list[Delta] = [
        Start("claude", "msg_1", provider="anthropic"),
        ThinkingDelta("Look."),
        ThinkingDelta("", new_part=True, continuation={"redacted": "b3BhcXVl"}),
    ]
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("r", seq, delta, timestamp))
    visible, hidden = assembler.snapshot().parts
    assert isinstance(visible, Thinking)
    assert isinstance(hidden, Thinking)
    assert (visible.text, hidden.text) == ("Look.", "")
    assert hidden.continuation == Continuation("anthropic", "claude", {"redacted": "b3BhcXVl"})
