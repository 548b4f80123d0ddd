"""Our stores pass the checks that `bartack.testing` has for every store."""

from pathlib import Path

import pytest

from bartack.testing import StoreCheck, store_checks
from tests.store.stores import PERSISTENT, opener

# The rules of docs/spec.md that a check proves, by its name.
RULES = {
    "000-2.3": "entries load byte for byte",
    "000-6.2": "a tool call gets one result",
    "001-6.4": "entries load byte for byte",
    "004-session.1": "a session is rebuilt from its entries",
    "004-session.2": "a session is rebuilt from its entries",
    "004-relations.1": "a session is rebuilt from its entries",
    "002-non-goals.5": "a session is rebuilt from its entries",
    "004-invariants.2": "a tool call gets one result",
    "004-invariants.3": "appending does not change earlier entries",
    "D-5.2": "entries survive reopening",
    "D-5.2.1": "an append with a wrong tail is refused",
    "D-5.2.2": "repeating an append has no effect",
    "D-5.4": "a tool call gets one result",
    "D-5.5": "a session is a tree",
    "D-5.12": "nobody else may append anything but requests",
}


@pytest.mark.parametrize("check", store_checks(persistent=False), ids=str)
async def test_the_memory_store_passes(check: StoreCheck, tmp_path: Path) -> None:
    await check(opener("memory", tmp_path))


@pytest.mark.parametrize("check", store_checks(), ids=str)
@pytest.mark.parametrize("kind", PERSISTENT)
async def test_a_persistent_store_passes(kind: str, check: StoreCheck, fast_path: Path) -> None:
    await check(opener(kind, fast_path))


def test_every_rule_has_its_check() -> None:
    names = [check.name for check in store_checks()]
    assert len(set(names)) == len(names)
    assert set(RULES.values()) <= set(names)
