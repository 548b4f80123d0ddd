"""The feed view: how facts are represented, and how it is read back."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from bartack import (
    ErrorCode,
    Failed,
    Message,
    Meta,
    PartValidationError,
    Redaction,
    ToolCall,
    ToolResult,
    assistant,
    tool_message,
    user,
)
from bartack.environment import Environment
from bartack.nouns.entries import Fact, RunStarted, SessionHeader, StreamFailed, ToolProgress
from bartack.nouns.messages import Koding, stamped
from bartack.nouns.wire import dump
from bartack.store.session_store import next_entries
from bartack.views import feed
from tests.counting import counting_environment
from tests.sample_session import SESSION, chain


def messages(view: dict[str, Any]) -> list[dict[str, Any]]:
    feed_messages: list[dict[str, Any]] = view["messages"]
    return feed_messages


SHOWN = messages(feed.dump(SESSION))


def test_a_message_has_id_role_and_content() -> None:
    """002-structure.1, D-1.6"""
    assert {key: SHOWN[0][key] for key in ("id", "role", "content")} == {
        "id": "m2",
        "role": "system",
        "content": [{"kind": "text", "payload": {"text": "Be brief."}}],
    }
    (message,) = messages(feed.dump(chain(assistant("One.", ToolCall("c1", "a", {}), "Two."))))
    assert [part["kind"] for part in message["content"]] == ["text", "tool_call", "text"]


def test_an_answer_has_its_time_cost_duration_and_response_id() -> None:
    """002-structure.2, 002-metadata.2, 002-metadata.3, 002-metadata.4, 002-metadata.5, D-1.6"""
    answer = SHOWN[2]
    keys = ("timestamp", "cost_usd", "duration_ms", "response_id")
    assert {key: answer[key] for key in keys} == {
        "timestamp": "2026-01-02T03:04:09Z",
        "cost_usd": 0.25,
        "duration_ms": 1500,
        "response_id": "msg_1",
    }


def test_every_stamped_message_has_a_unique_uuid() -> None:
    """002-metadata.1"""
    facts: list[Fact] = [SessionHeader(), *(user("hi") for _ in range(100))]
    entries = next_entries("s", None, facts, Environment(), run_id="run")
    ids = {message["id"] for message in messages(feed.dump(entries))}
    assert len(ids) == 100
    assert {UUID(str(id)).version for id in ids} == {7}


def test_a_message_has_the_time_at_which_it_was_created() -> None:
    """002-metadata.2"""
    earlier = datetime(2026, 1, 1, tzinfo=UTC)
    imported_message = stamped(user("then"), id="m1", timestamp=earlier)
    header, created, imported = next_entries(
        "s", None, (SessionHeader(), user("now"), imported_message), counting_environment()
    )
    assert header.timestamp < created.timestamp < imported.timestamp
    times = [message["timestamp"] for message in messages(feed.dump([header, created, imported]))]
    assert times == [dump(created)["timestamp"], "2026-01-01T00:00:00Z"]


def test_a_koding_request_is_marked_and_keeps_its_context() -> None:
    """002-options.1, 002-options.2, 002-options.3, D-1.6"""
    assert SHOWN[1]["options"] == {"is_koding_request": True, "koding_context": "src/a.py"}
    assert "options" not in SHOWN[0]
    (without_context,) = messages(feed.dump(chain(user("Fix it.", meta=Meta(koding=Koding())))))
    assert without_context["options"] == {"is_koding_request": True}


def test_progress_appears_between_messages() -> None:
    """002-progress.1, 002-progress.2, 002-progress.3, 002-progress.4, D-1.6"""
    progress = SHOWN[3]
    assert progress["type"] == "progress"
    assert progress["content"] == "halfway"
    assert (progress["tool_use_id"], progress["sibling_tool_use_ids"]) == ("c1", ["c2"])
    assert progress["tools"] == ["weather", "clock"]
    assert progress["normalized_messages"] == [SHOWN[2]]


def test_progress_includes_the_results_of_its_siblings() -> None:
    """002-progress.4"""
    calls = assistant(ToolCall("c1", "a", {}), ToolCall("c2", "b", {}))
    entries = chain(calls, tool_message(ToolResult("c2", "two")), ToolProgress(tool_call_id="c1", content="half"))
    *results, progress = messages(feed.dump(entries))
    assert progress["normalized_messages"] == results


def test_two_results_in_one_message_are_shown_once() -> None:
    calls = assistant(ToolCall("c1", "a", {}), ToolCall("c2", "b", {}), ToolCall("c3", "c", {}))
    results = tool_message(ToolResult("c1", "one"), ToolResult("c2", "two"))
    *shown_messages, progress = messages(
        feed.dump(chain(calls, results, ToolProgress(tool_call_id="c3", content="half")))
    )
    assert progress["normalized_messages"] == shown_messages


def test_progress_of_an_unknown_call_has_no_siblings() -> None:
    (progress,) = messages(feed.dump(chain(ToolProgress(tool_call_id="c9", content="half"))))
    assert (progress["sibling_tool_use_ids"], progress["normalized_messages"], progress["tools"]) == ([], [], [])


def test_a_failed_model_call_is_a_message_marked_as_an_api_error() -> None:
    """002-errors.1, 002-metadata.4, 002-metadata.5, D-7.2"""
    failure = SHOWN[6]
    assert (failure["duration_ms"], failure["response_id"]) == (10, "msg_2")
    assert failure["is_api_error_message"] is True
    assert failure["role"] == "assistant"
    assert failure["content"] == [{"kind": "text", "payload": {"text": "busy"}}]
    assert failure["error_code"] == "overloaded"
    (silent,) = messages(feed.dump(chain(StreamFailed(error=Failed(ErrorCode.TIMEOUT)))))
    assert silent["content"] == [{"kind": "text", "payload": {"text": "timeout"}}]


def test_what_the_feed_cannot_represent_is_counted() -> None:
    view = feed.dump(SESSION)
    assert list(view)[:3] == ["view", "session_id", "omitted"]
    assert view["omitted"] == {
        "compaction_summary": 1,
        "meta.finish_reason": 2,
        "meta.model": 1,
        "meta.usage": 1,
        "run_ended": 1,
        "run_started": 1,
        "session_header": 1,
        "tool_started": 1,
    }


def test_the_feed_reads_back() -> None:
    """D-1.6.1"""
    entries = feed.load(feed.dump(SESSION))
    assert messages(feed.dump(entries)) == SHOWN
    facts = [entry.fact for entry in entries]
    assert next(fact for fact in facts if isinstance(fact, Message)).text == "Be brief."
    assert (
        StreamFailed(error=Failed(ErrorCode.OVERLOADED, "busy", retryable=True), response_id="msg_2", duration_ms=10)
        in facts
    )
    assert RunStarted(tools=("weather", "clock")) in facts
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.parent_id for entry in entries][1:] == [entry.id for entry in entries][:-1]


def test_a_message_marked_as_an_error_without_a_code_stays_a_message() -> None:
    marked = assistant("no", meta=Meta(is_api_error_message=True))
    (entry,) = feed.load(feed.dump(chain(marked)))[1:]
    assert isinstance(entry.fact, Message)
    assert entry.fact.meta == Meta(is_api_error_message=True)


def test_unchanged_tools_are_counted_once() -> None:
    entries = feed.load(
        feed.dump(
            chain(
                RunStarted(tools=("a",)),
                ToolProgress(tool_call_id="c1", content="1"),
                ToolProgress(tool_call_id="c1", content="2"),
            )
        )
    )
    assert [entry.fact.kind for entry in entries] == ["session_header", "run_started", "tool_progress", "tool_progress"]


def test_redacted_content_is_not_shown() -> None:
    """D-5.6"""
    (message,) = messages(feed.dump(chain(user("secret"), Redaction(entry_id="e0"))))
    assert message["content"] == [{"kind": "text", "payload": {"text": "[redacted]"}}]


def test_another_view_is_not_a_feed() -> None:
    with pytest.raises(PartValidationError) as caught:
        feed.load({"view": "ledger", "session_id": "s", "messages": []})
    assert caught.value.path == "$.view"


def test_no_entries_give_an_empty_feed() -> None:
    assert feed.load(feed.dump([])) == ()


def test_the_time_of_a_message_is_optional() -> None:
    """002-structure.2"""
    feed_messages = [{"type": "message", "id": f"m{n}", "role": "user", "content": []} for n in range(3)]
    view: dict[str, Any] = {"view": "feed", "session_id": "s", "messages": feed_messages}
    assert {entry.timestamp for entry in feed.load(view)} == {datetime(1970, 1, 1, tzinfo=UTC)}
    feed_messages[1]["timestamp"] = "2026-01-02T00:00:00Z"
    assert {entry.timestamp for entry in feed.load(view)} == {datetime(2026, 1, 2, tzinfo=UTC)}
    feed_messages[0]["timestamp"] = "2026-01-01T00:00:00Z"
    assert [entry.timestamp.day for entry in feed.load(view)] == [1, 1, 2, 2]
    messages = [entry.fact for entry in feed.load(view) if isinstance(entry.fact, Message)]
    assert [message.timestamp.day for message in messages if message.timestamp] == [1, 2, 2]


def test_an_incomplete_feed_is_logged_and_gives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.3, D-7.5"""
    assert feed.try_load({"view": "feed", "messages": []}) is None
    assert "$.session_id" in caplog.text
    assert feed.try_load(feed.dump(SESSION)) == feed.load(feed.dump(SESSION))
