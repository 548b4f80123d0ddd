"""`Accounts`: what each key has spent, how often it was used, and what it may still do.

A request reserves its estimated cost before it is sent, and settles the real one afterwards. So simultaneous requests
cannot spend a budget twice. Both are facts in a session of the key, one per month, and an append is made on the
condition that nothing was appended meanwhile: gateways in several processes on one store share budgets and rates. Keys
without limits have no account.

A reservation whose gateway died counts for `_STALE_S`, and then no longer.
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta

from msgspec import Struct

from bartack.models.prices import cost_in_thread
from bartack.models.provider import ProviderModel
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import Conflict, ErrorCode, ModelError
from bartack.store.session_store import RESERVED, SessionStore, next_entries
from bartack_server.gateway.keys import Budget, GatewayKey
from bartack_server.gateway.upstreams import Upstream

__all__ = ["Accounts", "Reservation"]

_RESERVED, _SETTLED = "gateway_reserved", "gateway_settled"
_STALE_S = 3600.0
_MINUTE = timedelta(minutes=1)
_OUTPUT_TOKENS = 4096  # reserved for an answer, unless it is limited to less: limits are far above what is used


class _Amount(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: "_Amount") -> "_Amount":
        return _Amount(self.usd + other.usd, self.tokens + other.tokens)


class _Account:
    """The spending of one key in one month. What is settled is added up by day, so a request costs the same whether it
    is the first of the month or the last."""

    def __init__(self) -> None:
        self._settled: dict[date, _Amount] = {}  # day on which the request began -> amount
        self._reserved: dict[str, tuple[datetime, _Amount]] = {}  # request -> when it began, and how much
        self._recent: deque[datetime] = deque()  # when the requests of the last minute began
        self._last_seq = 0
        self.tail_id: str | None = None

    async def update(self, store: SessionStore, session_id: str) -> None:
        """Add what was appended meanwhile."""
        for entry in await store.entries(session_id, self._last_seq):
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        if entry.seq <= self._last_seq:
            return  # another request of this process has added it
        self._last_seq, self.tail_id = entry.seq, entry.id
        fact = entry.fact
        if not isinstance(fact, Custom):
            return  # the header
        request_id, amount = fact.data["request"], _Amount(fact.data["usd"], fact.data["tokens"])
        reserved = self._reserved.pop(request_id, None)
        began = entry.timestamp if reserved is None else reserved[0]
        if fact.name == _RESERVED or reserved is None:
            self._recent.append(began)
        if fact.name == _RESERVED:
            self._reserved[request_id] = (began, amount)
        else:
            self._settled[began.date()] = self._settled.get(began.date(), _Amount()) + amount

    def spent(self, since: date, now: datetime) -> _Amount:
        """What was spent or is reserved since then."""
        self._reserved = {
            request_id: row for request_id, row in self._reserved.items() if now - row[0] < timedelta(seconds=_STALE_S)
        }
        amounts = [amount for day, amount in self._settled.items() if day >= since]
        return sum([*amounts, *(row[1] for row in self._reserved.values() if row[0].date() >= since)], _Amount())

    def wait_s(self, per_minute: int, now: datetime) -> float:
        """How long to wait for the next request, if so many are allowed per minute."""
        while self._recent and now - self._recent[0] >= _MINUTE:
            self._recent.popleft()
        if len(self._recent) < per_minute:
            return 0.0
        return (self._recent[-per_minute] + _MINUTE - now).total_seconds()


class Reservation(Struct, frozen=True, kw_only=True):
    """What a request may spend."""

    session_id: str
    request_id: str


class Accounts:
    """The accounts of all keys with limits."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._accounts: dict[str, _Account] = {}

    async def reserve(
        self, key: GatewayKey, upstream: Upstream, input_tokens: int, max_tokens: int | None
    ) -> Reservation | None:
        """Count a request, and reserve its estimated cost; None if there is nothing to settle later.

        Raises `ModelError` if a limit of the key does not allow the request.
        """
        if not key.is_limited:
            return None
        output_tokens = min(max_tokens or _OUTPUT_TOKENS, _OUTPUT_TOKENS)
        usage = Usage(input_tokens, output_tokens)
        amount = _Amount(await self.price(key, upstream, usage), usage.total_tokens) if key.has_budget else _Amount()
        now = self._store.environment.now()
        reservation = Reservation(
            session_id=f"{RESERVED}gateway:spend:{key.id}:{now:%Y-%m}", request_id=self._store.environment.new_id()
        )

        def check(account: _Account) -> None:
            _check_rate(key, account, now)
            for period, budget, since in (
                ("day", key.day, now.date()),
                ("month", key.month, now.date().replace(day=1)),
            ):
                _check(key, period, budget, account.spent(since, now), amount)

        await self._append(reservation, _RESERVED if key.has_budget else _SETTLED, amount, check)
        return reservation if key.has_budget else None

    async def price(self, key: GatewayKey, upstream: Upstream, usage: Usage) -> float:
        """What this usage costs. Raises `ModelError` if that is not known, and the key has a budget in USD."""
        usd = await _cost(usage, upstream)
        if usd is None and (key.day.usd is not None or key.month.usd is not None):
            text = f"The price of {upstream.name} is not known, and the gateway key {key.name!r} has a budget in USD."
            raise ModelError(text, code=ErrorCode.PERMISSION_DENIED)
        return usd or 0.0

    async def settle(self, reservation: Reservation, upstream: Upstream, usage: Usage | None) -> None:
        """Replace a reservation by what the request has cost; nothing, if it has used nothing."""
        usd = 0.0 if usage is None else await _cost(usage, upstream) or 0.0
        amount = _Amount(usd, 0 if usage is None else usage.total_tokens)
        await self._append(reservation, _SETTLED, amount, lambda _: None)

    async def _append(
        self, reservation: Reservation, name: str, amount: _Amount, check: Callable[[_Account], None]
    ) -> None:
        session_id = reservation.session_id
        if session_id not in self._accounts:
            with suppress(Conflict):
                await self._store.create_session(session_id)
        account = self._accounts.setdefault(session_id, _Account())
        fact = Custom(name=name, data={"request": reservation.request_id, "usd": amount.usd, "tokens": amount.tokens})
        while True:
            await account.update(self._store, session_id)
            check(account)
            checked_tail = account.tail_id  # other requests of this process update the account while this one waits
            tail = await self._store.tail_of(session_id)
            if tail.entry_id != checked_tail:
                continue
            entries = next_entries(session_id, tail, [fact], self._store.environment)
            try:
                await self._store.append(session_id, entries, tail.entry_id)
                return
            except Conflict as conflict:
                if conflict.tail in (None, tail.entry_id):  # not because of others
                    raise


def _check_rate(key: GatewayKey, account: _Account, now: datetime) -> None:
    if key.per_minute is not None and (wait_s := account.wait_s(key.per_minute, now)) > 0:
        text = f"The gateway key {key.name!r} allows {key.per_minute} requests per minute."
        raise ModelError(text, code=ErrorCode.RATE_LIMITED, retry_after_ms=math.ceil(wait_s * 1000))


def _check(key: GatewayKey, period: str, budget: Budget, spent: _Amount, amount: _Amount) -> None:
    total = spent + amount
    if budget.usd is not None and total.usd > budget.usd:
        text = f"The gateway key {key.name!r} has spent ${spent.usd:.2f} of ${budget.usd:g} this {period}."
        raise ModelError(text, code=ErrorCode.QUOTA_EXCEEDED)
    if budget.tokens is not None and total.tokens > budget.tokens:
        text = f"The gateway key {key.name!r} has used {spent.tokens:,} of {budget.tokens:,} tokens this {period}."
        raise ModelError(text, code=ErrorCode.QUOTA_EXCEEDED)


async def _cost(usage: Usage, upstream: Upstream) -> float | None:
    """The cost in US dollars; 0 for a model that nobody is paid for, None if the price is not known."""
    if usage.cost is not None:
        return float(usage.cost)
    model = upstream.model
    if not isinstance(model, ProviderModel) or not model.vendor.needs_key:
        return 0.0
    return await cost_in_thread(usage, model.config.model_id, prices=model.vendor.prices)
