"""What the checks of stores have in common: opening, appending, and stating what must be refused."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bartack.environment import Environment
from bartack.nouns.entries import Custom, Entry, Fact, RunEnded, RunStarted, SessionHeader, ToolStarted
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Image, Thinking, ToolCall, ToolResult
from bartack.store.session_store import Lease, SessionStore, Tail, next_entries

__all__ = ["HANG_S", "OpenStore", "add", "following", "opened", "refusal", "run_start", "sample_session", "texts_of"]

OpenStore = Callable[[], Awaitable[SessionStore]]
E = TypeVar("E", bound=Exception)

HANG_S = 300.0  # only ends a check that hangs: no check depends on how fast the machine is


@asynccontextmanager
async def opened(open_store: OpenStore) -> AsyncIterator[SessionStore]:
    """The store, which is closed at the end of the block."""
    store = await open_store()
    try:
        yield store
    finally:
        await store.close()


async def refusal(kind: type[E], work: Awaitable[object], attempt: str) -> E:
    """The error that `work` raises; `AssertionError` if it raises none, or one of another kind."""
    try:
        result = await work
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{attempt} must raise {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{attempt} must raise {kind.__name__}, but it returned {result!r}")


def following(entry: Entry, *facts: Fact, run_id: str | None = None) -> tuple[Entry, ...]:
    """Entries after this one, which is the last of its session; by default one message."""
    tail = Tail(entry.id, entry.seq)
    return next_entries(entry.session_id, tail, facts or (user("hi"),), Environment(), run_id=run_id)


async def add(store: SessionStore, session_id: str, *facts: Fact, lease: Lease | None = None) -> tuple[Entry, ...]:
    """Append these facts to the session."""
    tail = await store.tail_of(session_id)
    entries = next_entries(session_id, tail, facts, store.environment)
    await store.append(session_id, entries, tail.entry_id, lease=lease)
    return entries


def run_start(store: SessionStore, session_id: str = "s") -> tuple[Entry, ...]:
    """The first entries of a run on a new session: its header, the start of the run and a message."""
    facts: list[Fact] = [SessionHeader(), RunStarted(), user("hi")]
    return next_entries(session_id, None, facts, store.environment, run_id="run")


def sample_session(session_id: str = "s") -> list[Entry]:
    """A session with messages of every role, tool calls and their results, an image, and facts about a run."""
    call = ToolCall("c1", "weather", {"city": "Paris"})
    facts: list[Fact] = [
        SessionHeader(title="Weather", metadata={"from": "a check"}),
        RunStarted(tools=("weather",)),
        user("Rain?", Image("image/png", data=b"\x89")),
        assistant(Thinking("Look."), "Looking.", call, meta=Meta(model=ModelRef("provider", "model"))),
        ToolStarted(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"}),
        tool_message(ToolResult("c1", "rain")),
        assistant("It rains: \u2028 \U0001f327", meta=Meta(finish_reason="stop")),
        Custom(name="note", data={"nested": [1, 2.5, None, {"$blob": "no blob"}]}),
        RunEnded(status="completed"),
    ]
    return list(next_entries(session_id, None, facts, Environment(), run_id="run"))


async def texts_of(store: SessionStore, session_id: str) -> list[str]:
    """The texts of the session's messages, in order."""
    return [entry.fact.text for entry in await store.load(session_id) if isinstance(entry.fact, Message)]
