"""Negative controls: a store that breaks a rule fails the check that names it, and passes the others."""

import subprocess
import sys

import pytest

from bartack.store import MemoryStore
from bartack.testing import store_checks
from tests.testing import broken_stores as broken

# The check that names the rule, and then those that cannot be passed without it.
RULES: dict[type[MemoryStore], tuple[str, ...]] = {
    broken.LosesTheFence: (
        "an owner that lost its lease cannot append",
        "a new lease of the same owner replaces the old one",
        "a takeover ends the lease of the owner",
    ),
    broken.AcceptsAWrongTail: (
        "an append with a wrong tail is refused",
        "a late request finds another tail",
        "a store is a list after any steps",
        "concurrent writers of one session lose nothing",
    ),
    broken.DropsTheLastEntry: (
        "a batch is stored completely",
        "entries load byte for byte",
        "entries can be read from any seq",
        "appending does not change earlier entries",
        "a dropped session is deleted",
    ),
    broken.LetsOthersAppend: ("nobody else may append anything but requests",),
    broken.RefusesRequests: (
        "anyone may append requests to a live run",
        "a late request finds another tail",
        "requests follow the last entry",
        "requests of many are stored once each",
        "requests of others do not disturb an answer",
        "the journal of a stored answer is ignored",
    ),
    broken.RequestsEndTheLease: (
        "requests of many are stored once each",
        "anyone may append requests to a live run",
        "requests follow the last entry",
    ),
    broken.ReturnsStaleTails: (
        "the tail is the last entry",
        "a follower gets every entry once",
        "anyone may append requests to a live run",
        "redacted content is never returned",
        "the journal of a stored answer is ignored",
        "a session can be renamed",
    ),
    broken.IgnoresIdempotence: (
        "repeating an append has no effect",
        "a store is a list after any steps",
        "an append may start with stored entries",
        "large and tricky content is kept",
    ),
    broken.ClaimsInTwoSteps: ("a claim with a wrong tail takes no lease",),
    broken.StoresHalfOfARefusedAppend: ("a refused append stores nothing", "a store is a list after any steps"),
    broken.AlwaysTakesOver: ("a lease has one owner at a time", "a refused claim leaves no trace"),
    broken.ForgetsExpiry: ("an expired lease is not held", "a lease is known while it is held"),
    broken.RepeatsAnEntry: ("a follower gets every entry once", "redacted content is never returned"),
    broken.FindsRedactedContent: ("redacted content is never returned", "a session can be renamed"),
    broken.WritesAnyJournal: ("only the owner writes the journal",),
    broken.KeepsTheJournal: ("a dropped session leaves no journal",),
}


async def failures(store: type[MemoryStore]) -> set[str]:
    """The checks that the store fails."""

    async def open_store() -> MemoryStore:
        return store()

    failed: set[str] = set()
    for check in store_checks(persistent=False):
        try:
            await check(open_store)
        except AssertionError:
            failed.add(check.name)
    return failed


@pytest.mark.parametrize("store", RULES, ids=lambda store: store.__name__)
async def test_a_broken_store_fails_the_check_that_names_the_rule(store: type[MemoryStore]) -> None:
    assert await failures(store) == set(RULES[store])


def test_the_kit_needs_neither_pytest_nor_any_extra() -> None:
    extras = ["pytest", "hypothesis", "apsw", "asyncpg", "aiohttp", "platformdirs", "typer", "rich"]
    code = f"import sys; sys.modules.update(dict.fromkeys({extras})); from bartack.testing import store_checks"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
