"""Others act at every await of a live run: each request takes effect once, the run survives, nothing known is lost."""

from pathlib import Path

import pytest

from tests.agent.hands import ACTIONS, acted_at
from tests.agent.kit import SlowStore
from tests.store.stores import PERSISTENT, opener


@pytest.mark.parametrize("action", ACTIONS)
async def test_others_may_act_at_every_await_of_a_run(action: str) -> None:
    """D-5.12.1, D-5.12.2, D-5.12.4"""
    place, is_reached = 0, True
    while is_reached:
        place += 1
        store = SlowStore()
        is_reached = await acted_at(place, action, store, store)
    assert place > (3 if action in ("approve", "deny") else 60)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", PERSISTENT)
async def test_others_may_act_through_another_handle_on_the_store(kind: str, action: str, fast_path: Path) -> None:
    for number, place in enumerate((1, 2, 4) if action in ("approve", "deny") else (3, 17, 40, 75)):
        folder = fast_path / str(number)
        folder.mkdir()
        store, other = [await opener(kind, folder)() for _ in range(2)]
        await acted_at(place, action, store, other)
        await store.close()
        await other.close()
