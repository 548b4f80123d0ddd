"""`store_checks`: the contract of `bartack.store.session_store`, as checks for any store.

The checks are the public coroutine functions of the modules below, so that none can be forgotten in a list. The name of
a check is the rule. Its parameter is an open and empty store, or else `open_store`, for rules about opening one again.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any

from msgspec import Struct

from bartack.nouns.errors import StoreError
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

_MODULES = (
    store_checks_append,
    store_checks_lease,
    store_checks_read,
    store_checks_journal,
    store_checks_list,
    store_checks_reopen,
)


class StoreCheck(Struct, frozen=True):
    """One rule of the contract: ``await check(open_store)`` raises `AssertionError` if the store violates it.

    The name is the rule. The store that `open_store` opens must be empty at first.
    """

    name: str
    run: Callable[[OpenStore], Awaitable[None]]

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
    return tuple(
        StoreCheck(check.__name__.replace("_", " "), check if opens_stores else _on_one_store(check))
        for check, opens_stores in _all_checks()
        if (persistent or not opens_stores) and (processes or check not in store_checks_reopen.PROCESSES)
    )


def _all_checks() -> Iterator[tuple[Callable[..., Awaitable[None]], bool]]:
    """Each check, and whether it opens the store by itself."""
    for module in _MODULES:
        for name, value in vars(module).items():
            if iscoroutinefunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                yield value, "open_store" in signature(value).parameters


def _on_one_store(check: Callable[[Any], Awaitable[None]]) -> Callable[[OpenStore], Awaitable[None]]:
    @wraps(check)
    async def run(open_store: OpenStore) -> None:
        async with opened(open_store) as store:
            await check(store)

    return run
