"""The keys of the gateway: who may use which models, how often, and for how much.

A key is shown once, when it is created. The store has its SHA-256 digest, which is enough because a key has 256 random
bits. Keys are facts in a session of their own (`KEYS`), which every gateway on the same store follows: a new key works
at once, and a revoked one stops working, in all processes.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from bartack.environment import Environment
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import Conflict, ErrorCode, ModelError, NotFound
from bartack.store.session_store import RESERVED, SessionStore, next_entries

__all__ = ["Budget", "GatewayKey", "KeyRing", "add_key", "all_keys", "digest_of", "new_secret", "revoke_key"]

KEYS = f"{RESERVED}gateway:keys"
_ADDED, _REVOKED = "gateway_key_added", "gateway_key_revoked"
_PREFIX = "bt-"  # tells people and secret scanners what it is


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be spent in a day or a month (UTC). None: any amount."""

    usd: float | None = None
    tokens: int | None = None


class GatewayKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key without its secret."""

    id: str
    name: str
    digest: str
    created: datetime
    models: tuple[str, ...] = ()  # patterns such as claude-*; empty: all
    day: Budget = Budget()
    month: Budget = Budget()
    per_minute: int | None = None  # requests
    expires: datetime | None = None
    records: bool = True  # conversations become sessions

    @property
    def has_budget(self) -> bool:
        """Whether spending is limited."""
        return self.day != Budget() or self.month != Budget()

    @property
    def is_limited(self) -> bool:
        """Whether requests are counted."""
        return self.has_budget or self.per_minute is not None

    def check(self, now: datetime) -> None:
        """Raises `ModelError` if the key has expired."""
        if self.expires is not None and now >= self.expires:
            text = f"The gateway key {self.name!r} expired on {self.expires:%Y-%m-%d}."
            raise ModelError(text, code=ErrorCode.AUTHENTICATION)

    def may_use(self, model: str) -> bool:
        """Whether the key is for this model, among others."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


def new_secret() -> str:
    """A new key, to be shown once."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """What the store has of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


async def add_key(store: SessionStore, key: GatewayKey) -> None:
    """Store a key. Raises `Conflict` if there is one with its name."""

    def fact(keys: Iterable[GatewayKey]) -> Custom:
        if any(other.name == key.name for other in keys):
            raise Conflict(f"There is a gateway key named {key.name!r}.")
        return Custom(name=_ADDED, data=msgspec.to_builtins(key))

    await _append(store, fact)


async def revoke_key(store: SessionStore, name: str) -> None:
    """Revoke a key by its name or id. Raises `NotFound`."""

    def fact(keys: Iterable[GatewayKey]) -> Custom:
        key_ids = [key.id for key in keys if name in (key.name, key.id)]
        if not key_ids:
            raise NotFound(f"There is no gateway key named {name!r}.")
        return Custom(name=_REVOKED, data={"id": key_ids[0]})

    await _append(store, fact)


async def _append(store: SessionStore, fact: Callable[[Iterable[GatewayKey]], Custom]) -> None:
    """Append the fact that these keys lead to; of simultaneous changes, each sees those before it."""
    await _ensure_session(store)
    while True:
        tail = await store.tail_of(KEYS)
        keys = await all_keys(store)
        entries = next_entries(KEYS, tail, [fact(keys)], store.environment)
        try:
            await store.append(KEYS, entries, tail.entry_id)
            return
        except Conflict as conflict:
            if conflict.tail in (None, tail.entry_id):  # not because of others
                raise


async def all_keys(store: SessionStore) -> list[GatewayKey]:
    """The keys that are not revoked, oldest first."""
    keys: dict[str, GatewayKey] = {}
    with suppress(NotFound):
        for entry in await store.entries(KEYS):
            _fold(keys, entry)
    return list(keys.values())


async def _ensure_session(store: SessionStore) -> None:
    with suppress(Conflict):
        await store.create_session(KEYS)


def _fold(keys: dict[str, GatewayKey], entry: Entry) -> None:
    fact = entry.fact
    if isinstance(fact, Custom) and fact.name == _ADDED:
        key = msgspec.convert(fact.data, GatewayKey)
        keys[key.id] = key
    elif isinstance(fact, Custom) and fact.name == _REVOKED:
        keys.pop(fact.data["id"], None)


class KeyRing:
    """Recognises keys. `following` keeps it up to date."""

    def __init__(self, keys: Iterable[GatewayKey] = (), environment: Environment | None = None) -> None:
        self._keys = {key.id: key for key in keys}
        self._environment = environment or Environment()

    @asynccontextmanager
    async def following(self, store: SessionStore) -> AsyncIterator[None]:
        """Follow the keys of a store inside the context."""
        await _ensure_session(store)
        for key in await all_keys(store):
            self._keys[key.id] = key
        task = asyncio.ensure_future(self._follow(store))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, store: SessionStore) -> None:
        async for entry in store.follow(KEYS):
            _fold(self._keys, entry)

    def find(self, presented: Iterable[str]) -> GatewayKey:
        """The first of these keys that is one of the gateway's. Raises `ModelError`."""
        for secret in presented:
            digest = digest_of(secret)
            for key in self._keys.values():
                if hmac.compare_digest(key.digest, digest):
                    key.check(self._environment.now())
                    return key
        raise ModelError("The API key is not a key of this gateway.", code=ErrorCode.AUTHENTICATION)
