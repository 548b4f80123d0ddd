"""Search over all sessions: order, groups, filters."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bartack.environment import Environment
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import Fact, SessionHeader, StreamFailed
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Text, Thinking, ToolCall, ToolResult
from bartack.store import MemoryStore, Tail, next_entries, ranking
from bartack.store.ranking import SearchFilter, parse_search_time, search_sessions
from bartack.store.session_store import RESERVED

NOW = datetime(2030, 1, 31, tzinfo=UTC)


async def stored(**sessions: tuple[float, Sequence[Fact]]) -> MemoryStore:
    """A store with these sessions: for each, its age in days and its facts."""
    time = NOW
    store = MemoryStore(environment=Environment(lambda: time))
    for id, (age, facts) in sessions.items():
        time = NOW - timedelta(days=age)
        header = await store.create_session(id, SessionHeader(title=f"About {id}"))
        tail = Tail(header.id, 1)
        for fact in facts:
            tail = await store.append(id, next_entries(id, tail, [fact], store.environment), tail.entry_id)
    time = NOW
    return store


def ids(store: MemoryStore, text: str, limit: int = 20, **filters: Any) -> list[str]:
    async def search() -> list[str]:
        sessions = await search_sessions(store, text, limit, chosen=SearchFilter(**filters))
        return [session.session_id for session in sessions]

    return asyncio.run(search())


def test_recent_sessions_come_first_unless_others_match_much_better() -> None:
    words = "the settings of the server"
    store = asyncio.run(
        stored(old=(300, [user(words)]), new=(0, [user(words)]), best=(300, [user("server, server, server")]))
    )
    assert ids(store, "server") == ["new", "best", "old"]
    assert ids(store, "settings") == ["new", "old"]
    assert ids(store, "settings", limit=1) == ["new"]


def test_the_matches_of_a_session_are_together_with_the_best_of_them() -> None:
    facts: list[Fact] = [user(f"needle in haystack {number} " + "straw " * number) for number in range(5)]
    store = asyncio.run(stored(a=(0, facts), b=(0, [user("a needle")])))
    (first, second) = asyncio.run(search_sessions(store, "needle"))
    assert (first.session_id, first.title, first.matches) == ("a", "About a", 5)
    assert [hit.seq for hit in first.hits] == [2, 3, 4]
    assert (second.session_id, second.matches, second.hits[0].snippet) == ("b", 1, "a needle")
    assert first.score > second.score


def test_records_of_bartack_itself_are_not_found() -> None:
    store = asyncio.run(stored(**{f"{RESERVED}x": (0, [user("needle")])}))
    assert ids(store, "needle") == []


CALL = [
    assistant(ToolCall("c1", "bash", {"command": "ls"}), Text("Let me look for the needle.")),
    tool_message(ToolResult("c1", "needle.txt")),
    assistant(ToolCall("c2", "read_file", {"path": "needle.txt"})),
    tool_message(ToolResult("c2", "no needle there", is_error=True)),
    assistant(Thinking("The needle is lost."), Text("It is lost.")),
]


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        ({}, [3, 4, 5]),  # the best three
        ({"tool": "bash"}, [2, 3]),
        ({"tool": "read_file"}, [4, 5]),
        ({"where": "text"}, [2]),
        ({"where": "calls"}, [4]),
        ({"where": "results"}, [3, 5]),
        ({"where": "thinking"}, [6]),
        ({"where": "calls", "tool": "bash"}, []),
        ({"tool": "sed"}, []),
        ({"errors_only": True}, [5]),
        ({"errors_only": True, "tool": "bash"}, []),
    ],
)
def test_entries_are_filtered_by_tool_failure_and_place(filters: dict[str, Any], seqs: list[int]) -> None:
    store = asyncio.run(stored(a=(0, [*CALL])))
    sessions = asyncio.run(search_sessions(store, "needle", chosen=SearchFilter(**filters)))
    assert sorted(hit.seq for session in sessions for hit in session.hits) == seqs


def test_a_failed_answer_is_a_failure() -> None:
    failed = StreamFailed(error=Failed(ErrorCode.OVERLOADED), parts=(Text("half a needle"),))
    store = asyncio.run(stored(a=(0, [failed]), b=(0, [user("needle")])))
    assert ids(store, "needle", errors_only=True) == ["a"]


def test_sessions_are_filtered_by_model_time_and_id() -> None:
    used = Meta(model=ModelRef("anthropic", "claude"), usage=Usage(1, 1))
    facts = [assistant("needle", meta=used)]
    store = asyncio.run(stored(new=(1, [user("needle")]), old=(9, [*facts])))
    assert ids(store, "needle", model="claude") == ids(store, "needle", model="anthropic/claude") == ["old"]
    assert ids(store, "needle", model="gpt") == []
    assert ids(store, "needle", since=NOW - timedelta(days=2)) == ["new"]
    assert ids(store, "needle", until=NOW - timedelta(days=9)) == []
    assert ids(store, "needle", until=NOW - timedelta(days=8)) == ["old"]

    async def is_new(session_id: str) -> bool:
        return session_id == "new"

    assert ids(store, "needle", accepts=is_new) == ["new"]


def test_times_of_other_programs_are_read_with_and_without_a_zone() -> None:
    assert parse_search_time(None) is None
    assert parse_search_time("2030-01-31") == parse_search_time("2030-01-31T02:00:00+02:00") == NOW
    with pytest.raises(PartValidationError, match="'last week' is not an ISO 8601 time"):
        parse_search_time("last week")


def test_more_matches_are_considered_if_the_filters_leave_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MATCH_LIMITS", (2, 100))
    many = {f"s{number}": (0, [user("needle")]) for number in range(5)}
    store = asyncio.run(stored(**many, last=(50, [user("needle" + " straw" * 50)])))

    async def is_last(session_id: str) -> bool:
        return session_id == "last"

    assert ids(store, "needle", limit=1, accepts=is_last) == ["last"]


def test_a_session_that_is_purged_meanwhile_is_left_out() -> None:
    store = asyncio.run(stored(a=(0, [user("needle")])))

    async def purge(session_id: str) -> bool:
        await store.drop_session(session_id)
        return True

    assert ids(store, "needle", accepts=purge, tool="bash") == []
    store = asyncio.run(stored(a=(0, [user("needle")])))
    assert ids(store, "needle", accepts=purge, model="claude") == []


def test_no_more_than_the_best_matches_are_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MATCH_LIMITS", (1, 2))
    store = asyncio.run(stored(a=(0, [user("needle")]), b=(0, [user("needle")]), c=(0, [user("a needle")])))
    assert ids(store, "needle", limit=5) == ["b", "a"]
