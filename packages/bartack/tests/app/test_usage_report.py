"""Usage of all sessions, in groups."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from bartack.app.usage_report import Grouping, UsageSums, usage_report
from bartack.environment import Environment
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import Fact, SessionHeader
from bartack.nouns.messages import Meta, ModelRef, assistant, user
from bartack.store import MemoryStore, Tail, next_entries

NOON = datetime(2030, 1, 10, 12, tzinfo=UTC)
GPT, CLAUDE = ModelRef("openai", "gpt-5"), ModelRef("nowhere", "claude")


def answer(model: ModelRef | None, count: int, cost: float | None = None) -> Fact:
    return assistant("x", meta=Meta(model=model, usage=Usage(count, 1, cache_read_tokens=count // 2), cost_usd=cost))


class Store(MemoryStore):
    """Sessions whose entries were added days before noon."""

    def __init__(self) -> None:
        self.time = NOON
        super().__init__(environment=Environment(lambda: self.time))

    async def fill(self, id: str, header: SessionHeader, *days: tuple[float, Sequence[Fact]]) -> None:
        self.time = NOON - timedelta(days=days[0][0])
        tail = Tail((await self.create_session(id, header)).id, 1)
        for age, facts in days:
            self.time = NOON - timedelta(days=age)
            tail = await self.append(id, next_entries(id, tail, facts, self.environment), tail.entry_id)


@pytest.fixture
async def store() -> Store:
    store = Store()
    own = SessionHeader(metadata={"directory": "/srv/a"})
    await store.fill("own", own, (3, [user("x"), answer(GPT, 10)]), (1, [answer(CLAUDE, 20, 0.5)]))
    await store.fill("pi:x", SessionHeader(origin="pi"), (1, [answer(GPT, 1_000_000), answer(None, 40)]))
    await store.fill("empty", own, (1, [user("x")]))
    return store


def numbers(report: UsageSums) -> list[tuple[str, int, int, int]]:
    return [(row.name, row.sessions, row.spend.calls, row.spend.input_tokens) for row in report.rows]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("day", [("2030-01-07", 1, 1, 10), ("2030-01-09", 2, 3, 1_000_060)]),
        ("agent", [("pi", 1, 2, 1_000_040), ("bartack", 1, 2, 30)]),
        ("project", [("", 1, 2, 1_000_040), ("/srv/a", 1, 2, 30)]),
        ("model", [("openai/gpt-5", 2, 2, 1_000_010), ("", 1, 1, 40), ("nowhere/claude", 1, 1, 20)]),
    ],
)
async def test_usage_is_added_up(store: Store, by: Grouping, expected: list[tuple[str, int, int, int]]) -> None:
    report = await usage_report(store, by)
    assert numbers(report) == expected
    assert (report.total.sessions, report.total.spend.calls, report.total.spend.input_tokens) == (2, 4, 1_000_070)


async def test_costs_are_as_stored_and_as_priced(store: Store) -> None:
    rows = {row.name: row for row in (await usage_report(store, "model")).rows}
    claude, gpt = rows["nowhere/claude"], rows["openai/gpt-5"]
    assert (claude.spend.cost_usd, claude.spend.unpriced, claude.priced_usd, claude.unpriced) == (0.5, 0, 0.0, 1)
    assert (gpt.spend.cost_usd, gpt.spend.unpriced, gpt.unpriced) == (0.0, 2, 0)
    # Half of the input was cached, and costs a tenth: $1.25 and $0.125 per million tokens, $10 for output.
    assert gpt.priced_usd == pytest.approx((500_005 * 1.25 + 500_005 * 0.125 + 2 * 10) / 1e6)


async def test_usage_can_be_that_of_some_days_and_sessions(store: Store) -> None:
    day = timedelta(days=1)
    report = await usage_report(store, "agent", since=NOON - 2 * day)
    assert numbers(report) == [("pi", 1, 2, 1_000_040), ("bartack", 1, 1, 20)]
    assert numbers(await usage_report(store, "day", until=NOON - 2 * day)) == [("2030-01-07", 1, 1, 10)]
    assert (await usage_report(store, "model", since=NOON)).total.spend.calls == 0

    async def is_own(session_id: str) -> bool:
        return session_id == "own"

    assert numbers(await usage_report(store, "agent", accepts=is_own)) == [("bartack", 1, 2, 30)]


async def test_a_session_that_is_purged_meanwhile_does_not_count(store: Store) -> None:
    async def purge(session_id: str) -> bool:
        await store.drop_session(session_id)
        return True

    assert (await usage_report(store, "agent", accepts=purge)).rows == ()
