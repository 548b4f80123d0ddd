"""The line below the prompt."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from bartack import Meta, SessionHeader, assistant, user
from bartack.cli.chat.status import Usage, count_text, status_line, usage_of
from bartack.cli.sessions_print import cost_text
from bartack.cli.terminal.safe_text import safe_text
from bartack.nouns.deltas import Usage as Tokens
from bartack.nouns.messages import Message
from bartack.store import MemoryStore, Spend
from tests.sample_session import chain


@given(
    model=st.text(max_size=80),
    tokens=st.none() | st.integers(0, 10**9),
    window=st.none() | st.integers(0, 10**7),
    session=st.none() | st.text(max_size=60),
    width=st.integers(1, 200),
)
@example(model="模型模型", tokens=1, window=2, session=None, width=4)
def test_it_fits_and_is_one_harmless_line(
    model: str, tokens: int | None, window: int | None, session: str | None, width: int
) -> None:
    line = status_line(model, Usage(Spend(calls=1), tokens), window=window, session=session, width=width)
    assert cell_len(line) <= width
    assert line == safe_text(line)
    assert "\n" not in line


def test_wide_windows_say_more() -> None:
    usage = Usage(Spend(calls=2, input_tokens=1_200, output_tokens=300, cost_usd=0.25, unpriced=0), 1_000)
    lines = [status_line("a:b", usage, window=4_000, session="s", width=width) for width in (20, 40, 60, 100)]
    assert lines == sorted(lines, key=len)
    assert lines[0].strip().startswith("a:b")
    assert lines[-1] == " a:b · context 1.0k of 4.0k (25 %) · 1.5k tokens · $0.2500 · session s · /help"


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_counts_are_short_and_never_more_than_there_are(one: int, other: int) -> None:
    assert value(count_text(min(one, other))) <= value(count_text(max(one, other))) <= max(one, other)
    assert len(count_text(one)) <= 5 or one >= 10**9


def value(text: str) -> float:
    size = {"k": 1_000, "M": 1_000_000}.get(text[-1])
    return float(text) if size is None else round(float(text[:-1]) * size, 3)


def test_a_cost_says_what_is_not_known() -> None:
    assert cost_text(Spend()) == ""
    assert cost_text(Spend(calls=1)) == "$0"
    assert cost_text(Spend(calls=1, unpriced=1)) == "cost unknown"
    assert cost_text(Spend(calls=2, unpriced=1, cost_usd=0.5)) == "$0.5000+"


async def test_the_context_is_that_of_the_last_answer_on_the_branch() -> None:
    store = MemoryStore()
    await store.create_session("s", SessionHeader())
    answers: list[Message] = [
        assistant("Yes.", meta=Meta(usage=Tokens(input_tokens=count, output_tokens=1, total_tokens=count + 1)))
        for count in (10, 20)
    ]
    entries = chain(SessionHeader(), user("one"), answers[0], user("two"), answers[1])
    assert (await usage_of(store, "s", entries)).context_tokens == 21
    assert (await usage_of(store, "s", entries[:3])).context_tokens == 11
    assert (await usage_of(store, "s", entries[:2])).context_tokens is None
