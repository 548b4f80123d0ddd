"""`Accounts`: what each key has spent, and what it may still spend.

A request reserves its estimated cost before it is sent, and settles the real one afterwards. So simultaneous requests
cannot spend a budget twice. Both are facts in a session of the key, one per month, and an append is made on the
condition that nothing was appended meanwhile: gateways in several processes on one store share the budget. Keys without
a budget have no account.

A reservation whose gateway died counts for `_STALE_S`, and then no longer.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

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
_OUTPUT_TOKENS = 4096  # reserved for an answer, unless it is limited to less: limits are far above what is used


class _Amount(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: "_Amount") -> "_Amount":
        return _Amount(self.usd + other.usd, self.tokens + other.tokens)


class _Account:
    """The spending of one key in one month."""

    def __init__(self) -> None:
        self._amounts: dict[str, tuple[datetime, _Amount, bool]] = {}  # request -> when, how much, whether settled
        self._last_seq = 0
        self.tail_id: str | None = None

    async def update(self, store: SessionStore, session_id: str) -> None:
        """Add what was appended meanwhile."""
        for entry in await store.entries(session_id, self._last_seq):
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self._last_seq, self.tail_id = entry.seq, entry.id
        fact = entry.fact
        if isinstance(fact, Custom):
            amount = _Amount(fact.data["usd"], fact.data["tokens"])
            began = self._amounts.get(fact.data["request"], (entry.timestamp,))[0]
            self._amounts[fact.data["request"]] = (began, amount, fact.name == _SETTLED)

    def spent(self, since: datetime, now: datetime) -> _Amount:
        """What was spent or is reserved since then."""
        total = _Amount()
        for began, amount, is_settled in self._amounts.values():
            if began >= since and (is_settled or now - began < timedelta(seconds=_STALE_S)):
                total += amount
        return total


class Reservation(Struct, frozen=True, kw_only=True):
    """What a request may spend."""

    session_id: str
    request_id: str


class Accounts:
    """The accounts of all keys with a budget."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._accounts: dict[str, _Account] = {}

    async def reserve(
        self, key: GatewayKey, upstream: Upstream, input_tokens: int, max_tokens: int | None
    ) -> Reservation | None:
        """Reserve the estimated cost of a request. Raises `ModelError` if a budget does not allow it."""
        if not key.has_budget:
            return None
        output_tokens = min(max_tokens or _OUTPUT_TOKENS, _OUTPUT_TOKENS)
        usage = Usage(input_tokens, output_tokens)
        usd = await _cost(usage, upstream)
        if usd is None and (key.day.usd is not None or key.month.usd is not None):
            text = f"The price of {upstream.name} is not known, and the gateway key {key.name!r} has a budget in USD."
            raise ModelError(text, code=ErrorCode.PERMISSION_DENIED)
        amount = _Amount(usd or 0.0, usage.total_tokens)
        now = self._store.environment.now()
        reservation = Reservation(
            session_id=f"{RESERVED}gateway:spend:{key.id}:{now:%Y-%m}", request_id=self._store.environment.new_id()
        )

        def check(account: _Account) -> None:
            day = now.replace(hour=0, minute=0, second=0, microsecond=0)
            for period, budget, since in (("day", key.day, day), ("month", key.month, day.replace(day=1))):
                _check(key, period, budget, account.spent(since, now), amount)

        await self._append(reservation, _RESERVED, amount, check)
        return reservation

    async def settle(self, reservation: Reservation, upstream: Upstream, usage: Usage | None) -> None:
        """Replace a reservation by what the request has cost; nothing, if the upstream reported no usage."""
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
                if conflict.tail is None:
                    raise


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
