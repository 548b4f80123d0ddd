"""Others act at every await of a live run: each request takes effect once, the run survives, nothing known is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bartack import Conflict, Entry
from bartack.agent.run_log import RunLog
from bartack.nouns.entries import Fact
from tests.agent.hands import ACTIONS, acted_at
from tests.agent.kit import SlowStore
from tests.store.stores import PERSISTENT, opener


async def act_at_every_place(action: str) -> int:
    """The number of places."""
    place, is_reached = 0, True
    while is_reached:
        place += 1
        store = SlowStore()
        is_reached = await acted_at(place, action, store, store)
    return place


@pytest.mark.parametrize("action", ACTIONS)
async def test_others_may_act_at_every_await_of_a_run(action: str) -> None:
    """D-5.12.1, D-5.12.2, D-5.12.4"""
    assert await act_at_every_place(action) > (3 if action in ("approve", "deny") else 60)


class Deaf(RunLog):
    """Does not read what others add, as before they could."""

    async def _catch_up(self) -> None:
        raise Conflict("The tail is another.")

    async def _follow(self) -> None:
        pass


class Eager(RunLog):
    """Reads what others add, but appends regardless of it."""

    async def append(
        self, *facts: Fact, still: Callable[[], bool] | None = None, may_share: bool = False
    ) -> tuple[Entry, ...]:
        return await super().append(*facts, may_share=may_share)


@pytest.mark.parametrize(("log", "action"), [(Deaf, "note"), (Deaf, "abort"), (Eager, "queue"), (Eager, "abort")])
async def test_the_checks_notice_a_run_that_ignores_others(
    log: type[RunLog], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr("bartack.agent.open_run.RunLog", log)
    with pytest.raises((AssertionError, Conflict)):
        await act_at_every_place(action)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", PERSISTENT)
async def test_others_may_act_through_another_handle_on_the_store(kind: str, action: str, fast_path: Path) -> None:
    for number, place in enumerate((1, 2, 4) if action in ("approve", "deny") else (3, 17, 40, 75)):
        folder = fast_path / str(number)
        folder.mkdir()
        store, second_store = [await opener(kind, folder)() for _ in range(2)]
        await acted_at(place, action, store, second_store)
        await store.close()
        await second_store.close()
