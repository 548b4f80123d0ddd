"""What all sessions used, by day, project, agent or model.

A store has the sums of each session. The entries of a session are read only if its sum does not answer the question:
because it lasted several days, or reaches beyond the time that was asked about.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Literal, NamedTuple

from bartack.app.sessions import OWN_AGENT, directory_in, header_of
from bartack.models.prices import ModelInfo, model_info
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import ModelRef
from bartack.nouns.noun import Noun
from bartack.store import ModelSpend, SessionInfo, SessionStore, Spend
from bartack.store.index import spend_of
from bartack.store.session_store import all_sessions

__all__ = ["GROUPINGS", "Grouping", "UsageRow", "UsageSums", "usage_report"]

Grouping = Literal["day", "project", "agent", "model"]
GROUPINGS: tuple[Grouping, ...] = ("day", "project", "agent", "model")
_PER_PRICE = 1_000_000  # tokens


class UsageRow(Noun, frozen=True, kw_only=True):
    """What a group used. `spend.cost_usd` is the stored cost, as the agents recorded it; `priced_usd` what all of it
    costs at today's list prices, without the `unpriced` calls, whose models have none."""

    always_written = ("sessions", "priced_usd", "unpriced")
    name: str
    sessions: int
    spend: Spend = Spend()
    priced_usd: float = 0.0
    unpriced: int = 0


class UsageSums(NamedTuple):
    """The groups, days in order and others by their tokens, and the sum of all."""

    rows: tuple[UsageRow, ...]
    total: UsageRow


class _Use(NamedTuple):
    time: datetime
    model: ModelRef | None
    spend: Spend


async def usage_report(
    store: SessionStore,
    by: Grouping,
    *,
    accepts: Callable[[str], Awaitable[bool]] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> UsageSums:
    """The usage from `since` until before `until`, of the sessions that are accepted. Days are local ones."""
    groups: dict[str, _Group] = {}
    total = _Group()
    prices = _PriceList()
    async for info in all_sessions(store):
        is_outside = (since is not None and info.updated < since) or (until is not None and info.created >= until)
        if is_outside or not info.spend.calls or (accepts is not None and not await accepts(info.id)):
            continue
        names = await _name_of(store, info, by)
        async for use in _uses(store, info, by, since, until):
            total.add(info.id, use, prices)
            groups.setdefault(names(use), _Group()).add(info.id, use, prices)
    rows = [group.row(name) for name, group in groups.items()]
    if by == "day":
        rows.sort(key=lambda row: row.name)
    else:
        rows.sort(key=lambda row: (-row.spend.input_tokens - row.spend.output_tokens, row.name))
    return UsageSums(tuple(rows), total.row("total"))


async def _name_of(store: SessionStore, info: SessionInfo, by: Grouping) -> Callable[[_Use], str]:
    """The function that names the group of each use of a session."""
    if by == "day":
        return lambda use: f"{use.time.astimezone():%Y-%m-%d}"
    if by == "model":
        return lambda use: "" if use.model is None else f"{use.model.provider}/{use.model.model}"
    header = await header_of(store, info.id)
    origin, directory = (None, None) if header is None else (header.origin, directory_in(header))
    name = (origin or OWN_AGENT) if by == "agent" else directory or ""
    return lambda use: name


async def _uses(
    store: SessionStore, info: SessionInfo, by: Grouping, since: datetime | None, until: datetime | None
) -> AsyncIterator[_Use]:
    is_inside = (since is None or info.created >= since) and (until is None or info.updated < until)
    is_one_day = info.created.astimezone().date() == info.updated.astimezone().date()
    try:
        if is_inside and (by != "day" or is_one_day):
            for model, spend in _pairs((await store.totals(info.id)).models):
                yield _Use(info.updated, model, spend)
            return
        for entry in await store.entries(info.id):
            used = spend_of(entry.fact)
            time = entry.timestamp
            if used is not None and (since is None or time >= since) and (until is None or time < until):
                yield _Use(time, used.model, used.spend)
    except NotFound:  # purged in the meantime
        return


def _pairs(models: tuple[ModelSpend, ...]) -> list[tuple[ModelRef | None, Spend]]:
    return [(item.model, item.spend) for item in models]


class _Group:
    def __init__(self) -> None:
        self._sessions: set[str] = set()
        self._spend = Spend()
        self._priced_usd = 0.0
        self._unpriced = 0

    def add(self, session_id: str, use: _Use, prices: "_PriceList") -> None:
        self._sessions.add(session_id)
        self._spend += use.spend
        price = prices.price(use)
        if price is None:
            self._unpriced += use.spend.calls
        else:
            self._priced_usd += price

    def row(self, name: str) -> UsageRow:
        return UsageRow(
            name=name,
            sessions=len(self._sessions),
            spend=self._spend,
            priced_usd=self._priced_usd,
            unpriced=self._unpriced,
        )


class _PriceList:
    """Today's list prices, at the lowest tier. Looking one up takes longer than adding up a session."""

    def __init__(self) -> None:
        self._infos: dict[ModelRef, ModelInfo] = {}

    def price(self, use: _Use) -> float | None:
        """What a use costs; None if the price of its model is unknown."""
        if use.model is None:
            return None
        if use.model not in self._infos:
            vendor = VENDORS.get(use.model.provider)
            name = use.model.provider if vendor is None else vendor.prices
            self._infos[use.model] = model_info(use.model.provider, use.model.model, prices=name)
        prices, spend = self._infos[use.model].prices, use.spend
        if prices is None or prices.input is None or prices.output is None:
            return None
        cached = spend.cache_read_tokens + spend.cache_write_tokens
        dollars = (
            max(spend.input_tokens - cached, 0) * prices.input
            + spend.cache_read_tokens * (prices.input if prices.cache_read is None else prices.cache_read)
            + spend.cache_write_tokens * (prices.input if prices.cache_write is None else prices.cache_write)
            + spend.output_tokens * prices.output
        )
        return dollars / _PER_PRICE
