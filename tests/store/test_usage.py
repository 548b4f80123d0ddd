"""Every store counts every field of `Usage`."""

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import TOKEN_COUNTS, Usage
from bartack.nouns.messages import Meta, ModelRef, assistant
from bartack.store import SessionStore
from tests.store.stores import add

SPENT = [name for name in TOKEN_COUNTS if name != "total_tokens"]  # a total is the sum of two others


@pytest.mark.parametrize("field", SPENT)
async def test_totals_include_every_token_count(store: SessionStore, field: str) -> None:
    await store.create_session("s")
    meta = Meta(model=ModelRef("p", "m"), usage=replace(Usage(0, 0), **{field: 7}))
    await add(store, "s", assistant("one", meta=meta), assistant("two", meta=meta))
    totals = await store.totals("s")
    assert getattr(totals.spend, field) == 14
    assert [getattr(model.spend, field) for model in totals.models] == [14]
    assert (totals.spend.calls, totals.spend.unpriced) == (2, 2)


async def test_totals_include_the_cost(store: SessionStore) -> None:
    await store.create_session("s")
    meta = Meta(model=ModelRef("p", "m"), usage=Usage(1, 1, cost=0.25))
    await add(store, "s", assistant("one", meta=meta), assistant("two", meta=meta))
    spend = (await store.totals("s")).spend
    assert (spend.cost_usd, spend.unpriced) == (0.5, 0)
