"""Entries and facts: their fields, branches, and the session they form."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from bartack.nouns.entries import (
    Custom,
    Entry,
    Fact,
    RunEnded,
    RunStarted,
    Session,
    SessionHeader,
    branch,
    heads,
)
from bartack.nouns.errors import NotFound, PartValidationError
from bartack.nouns.messages import stamped, user
from bartack.nouns.wire import dump, load

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def entry(id: str, parent_id: str | None = None, fact: Fact | None = None, run_id: str | None = None) -> Entry:
    return Entry(
        id=id,
        session_id="s1",
        seq=int(id),
        timestamp=NOON,
        fact=fact or Custom(name="note", data={}),
        parent_id=parent_id,
        run_id=run_id,
    )


def test_there_are_exactly_these_kinds_of_facts() -> None:
    """D-5.1"""
    assert {fact.kind for fact in get_args(Fact)} == {
        "session_header",
        "run_started",
        "message",
        "tool_started",
        "tool_progress",
        "approval_required",
        "approval_decided",
        "stream_failed",
        "model_change",
        "thinking_level_change",
        "runtime_init",
        "system_prompt_override",
        "compaction_summary",
        "branch_summary",
        "redaction",
        "message_delta_batch",
        "message_queued",
        "result_posted",
        "abort_requested",
        "run_ended",
        "custom",
    }


def test_an_entry_stamps_its_fact() -> None:
    """D-1.2"""
    data = {
        "id": "2",
        "sessionId": "s1",
        "seq": 2,
        "timestamp": "2026-01-01T12:00:00Z",
        "kind": "custom",
        "payload": {"name": "note", "data": {}},
        "parentId": "1",
        "runId": "r1",
    }
    stamped = entry("2", "1", run_id="r1")
    assert dump(stamped) == data
    assert load(Entry, data) == stamped


@pytest.mark.parametrize("seq", [0, -1])
def test_the_first_entry_has_the_number_one(seq: int) -> None:
    with pytest.raises(PartValidationError) as caught:
        Entry(id="a", session_id="s1", seq=seq, timestamp=NOON, fact=Custom(name="note", data={}))
    assert (caught.value.path, caught.value.rule) == ("$.seq", "D-1.2")


@pytest.mark.parametrize("stamps", [{}, {"id": "m1"}, {"timestamp": "2026-01-01T12:00:00Z"}])
def test_a_stored_message_needs_an_id_and_a_time(stamps: dict[str, Any]) -> None:
    data = {"role": "user", "parts": [], **stamps}
    with pytest.raises(PartValidationError) as caught:
        load(
            Entry,
            {"id": "1", "sessionId": "s", "seq": 1, "timestamp": "2026-01-01T12:00:00Z"}
            | {"kind": "message", "payload": data},
        )
    assert (caught.value.path, caught.value.rule) == ("$.payload", "002-metadata.1")


def test_the_version_of_the_ledger_is_always_written() -> None:
    assert dump(SessionHeader()) == {"version": 1}


def test_a_session_is_the_sum_of_its_entries() -> None:
    """004-session.1, 004-session.2"""
    message = stamped(user("hi"), id="m1", timestamp=NOON)
    running = [
        entry("1", fact=SessionHeader(metadata={"a": 1})),
        entry("2", "1", RunStarted(), run_id="r1"),
        entry("3", "2", message, run_id="r1"),
        entry("4", "3"),
    ]
    assert Session.of(running) == Session(
        session_id="s1", run_id="r1", messages=(message,), entries=tuple(running), metadata={"a": 1}
    )
    ended = [*running, entry("5", "4", RunEnded(status="completed"), run_id="r1")]
    assert Session.of(ended).run_id is None
    assert Session.of(running[3:]).messages == ()


def test_a_branch_is_a_head_and_its_parents() -> None:
    tree = [entry("1"), entry("2", "1"), entry("3", "2"), entry("4", "1"), entry("5", "4")]
    assert heads(tree) == ("3", "5")
    assert [member.id for member in branch(tree, "3")] == ["1", "2", "3"]
    assert [member.id for member in branch(tree, "5")] == ["1", "4", "5"]
    assert [member.id for member in branch(tree, "1")] == ["1"]
    assert heads([]) == ()


@pytest.mark.parametrize(
    ("entries", "head"),
    [
        ([entry("1")], "9"),
        ([entry("2", "1")], "2"),
        ([entry("1", "2"), entry("2", "1")], "1"),
    ],
    ids=["no such head", "no such parent", "a circle"],
)
def test_a_branch_with_a_missing_entry_raises_not_found(entries: list[Entry], head: str) -> None:
    with pytest.raises(NotFound):
        branch(entries, head)
