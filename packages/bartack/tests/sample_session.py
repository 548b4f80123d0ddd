"""A small session with one of everything that views show, shared by several tests."""

from datetime import UTC, datetime, timedelta

from bartack import (
    CompactionSummary,
    Continuation,
    Entry,
    ErrorCode,
    Failed,
    FileRef,
    Image,
    Message,
    Meta,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    stamped,
    system,
    tool_message,
    user,
)
from bartack.nouns.entries import Fact, RunEnded, RunStarted, SessionHeader, StreamFailed, ToolProgress, ToolStarted
from bartack.nouns.messages import Koding, ModelRef, Workspace

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def chain(*facts: Fact) -> list[Entry]:
    """The facts as entries e0, e1, ... of session "s", one second apart; messages get ids m0, m1, ... by place."""
    return [
        Entry(
            id=f"e{place}",
            session_id="s",
            seq=place + 1,
            parent_id=f"e{place - 1}" if place else None,
            run_id="r",
            timestamp=at(place),
            fact=stamped(fact, id=f"m{place}", timestamp=at(place)) if isinstance(fact, Message) else fact,
        )
        for place, fact in enumerate(facts)
    ]


SIGNED = Continuation("anthropic", "claude", {"signature": "c2lnbmVk=="})
ANSWER = Meta(
    model=ModelRef("anthropic", "claude"),
    response_id="msg_1",
    usage=Usage(20, 7, cache_read_tokens=5, reasoning_tokens=3),
    cost_usd=0.25,
    duration_ms=1500,
    completed_at=at(4.5),
    finish_reason="tool_calls",
    agent="main",
    path=Workspace("src", "."),
)

SESSION = chain(
    SessionHeader(title="Weather"),
    RunStarted(tools=("weather", "clock")),
    system("Be brief."),
    user("Rain?", Image("image/png", data=b"\x89"), FileRef("notes.txt"), meta=Meta(koding=Koding("src/a.py"))),
    assistant(
        Thinking("Look.", continuation=SIGNED),
        "Looking.",
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolCall("c2", "clock", {}),
        meta=ANSWER,
    ),
    ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}, title="Weather in Paris"),
    ToolProgress(tool_call_id="c1", content="halfway", metadata={"percent": 50}),
    tool_message(ToolResult("c2", "denied", is_error=True, error_code=ErrorCode.TOOL_DENIED)),
    tool_message(ToolResult("c1", (Text("rain"), Image("image/png", data=b"map")))),
    StreamFailed(error=Failed(ErrorCode.OVERLOADED, "busy", retryable=True), response_id="msg_2", duration_ms=10),
    assistant("It rains.", meta=Meta(finish_reason="stop")),
    RunEnded(status="completed"),
    CompactionSummary(summary="They talked about rain.", first_kept_entry_id="e10"),
)
