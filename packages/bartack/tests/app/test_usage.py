"""Tokens and cost as text, and the usage of a session."""

from hypothesis import given
from hypothesis import strategies as st

from bartack import Meta, assistant, user
from bartack.app.usage import format_cost, format_count, session_usage
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import SessionHeader
from bartack.nouns.messages import Message
from bartack.store import MemoryStore, Spend
from tests.sample_session import chain


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_counts_are_short_and_never_rounded_up(smaller: int, larger: int) -> None:
    assert (
        value(format_count(min(smaller, larger))) <= value(format_count(max(smaller, larger))) <= max(smaller, larger)
    )
    assert len(format_count(smaller)) <= 5 or smaller >= 10**9


def value(text: str) -> float:
    size = {"k": 1_000, "M": 1_000_000}.get(text[-1])
    return float(text) if size is None else round(float(text[:-1]) * size, 3)


def test_an_unknown_cost_is_marked() -> None:
    assert format_cost(Spend()) == ""
    assert format_cost(Spend(calls=1)) == "$0"
    assert format_cost(Spend(calls=1, unpriced=1)) == "cost unknown"
    assert format_cost(Spend(calls=2, unpriced=1, cost_usd=0.5)) == "$0.5000+"


async def test_the_context_is_that_of_the_last_answer_on_the_branch() -> None:
    store = MemoryStore()
    await store.create_session("s", SessionHeader())
    answers: list[Message] = [
        assistant("Yes.", meta=Meta(usage=Usage(input_tokens=count, output_tokens=1, total_tokens=count + 1)))
        for count in (10, 20)
    ]
    entries = chain(SessionHeader(), user("one"), answers[0], user("two"), answers[1])
    assert (await session_usage(store, "s", entries)).context_tokens == 21
    assert (await session_usage(store, "s", entries[:3])).context_tokens == 11
    assert (await session_usage(store, "s", entries[:2])).context_tokens is None
