"""`store_checks`: the contract of `bartack.store.session_store`, as checks for any store."""

from collections.abc import Awaitable, Callable
from functools import wraps

from msgspec import Struct

from bartack.nouns.errors import StoreError
from bartack.store.session_store import SessionStore
from bartack.testing import (
    store_checks_append,
    store_checks_journal,
    store_checks_lease,
    store_checks_list,
    store_checks_read,
    store_checks_reopen,
)
from bartack.testing.store_steps import OpenStore, opened

__all__ = ["StoreCheck", "store_checks"]

CheckStore = Callable[[SessionStore], Awaitable[None]]
CheckOpen = Callable[[OpenStore], Awaitable[None]]

_ONE_STORE: tuple[CheckStore, ...] = (
    *store_checks_append.CHECKS,
    *store_checks_lease.CHECKS,
    *store_checks_read.CHECKS,
    *store_checks_journal.CHECKS,
    *store_checks_list.CHECKS,
)
_PERSISTENT: tuple[CheckOpen, ...] = (
    *store_checks_reopen.CHECKS,
    *store_checks_journal.PERSISTENT,
    *store_checks_list.PERSISTENT,
)
_PROCESSES: tuple[CheckOpen, ...] = store_checks_reopen.PROCESSES


class StoreCheck(Struct, frozen=True):
    """One rule of the contract: ``await check(open_store)`` raises `AssertionError` if the store violates it.

    The name is the rule. The store that `open_store` opens must be empty at first.
    """

    name: str
    run: CheckOpen

    async def __call__(self, open_store: OpenStore) -> None:
        try:
            await self.run(open_store)
        except StoreError as error:
            raise AssertionError(f"{self.name}: unexpected {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        return self.name


def store_checks(*, persistent: bool = True, processes: bool = True) -> tuple[StoreCheck, ...]:
    """The checks for a store.

    `persistent=False` leaves out checks that open the store more than once, for a store whose sessions do not outlive
    the object. `processes=False` leaves out checks that start other processes, to which `open_store` is sent with
    pickle.
    """
    chosen: list[CheckOpen] = [_on_one_store(check) for check in _ONE_STORE]
    chosen += _PERSISTENT if persistent else ()
    chosen += _PROCESSES if persistent and processes else ()
    return tuple(StoreCheck(check.__name__.replace("_", " "), check) for check in chosen)


def _on_one_store(check: CheckStore) -> CheckOpen:
    @wraps(check)
    async def run(open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await check(store)

    return run
