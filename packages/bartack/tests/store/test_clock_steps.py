"""A wall clock that is set while a session is in use: nobody loses its lease, and nothing takes negative time."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bartack import user
from bartack.agent import Agent
from bartack.environment import Environment
from bartack.models import ScriptedModel
from bartack.nouns.errors import SessionInUse
from bartack.queues import StoreQueue, submit
from bartack.store import MemoryStore, SessionStore
from bartack.store.jsonl import JsonlStore
from bartack.store.sqlite import SqliteStore

STEPS_S = (-3600.0, -10.0, -1.0, 40.0, 3600.0)


class Machine:
    """Its wall clock can be set; the time since its boot cannot."""

    def __init__(self) -> None:
        self.offset_s = self.passed_s = 0.0
        self.environment = Environment(self.now, boot_s=lambda: 1000.0 + self.passed_s)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.offset_s + self.passed_s)


async def opened(kind: str, folder: Path, machine: Machine) -> SessionStore:
    if kind == "sqlite":
        return await SqliteStore.open(folder / "s.db", environment=machine.environment)
    return await JsonlStore.open(folder / "s", environment=machine.environment)


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_a_lease_is_kept_when_the_clock_is_set_and_expires_in_time(
    kind: str, step_s: float, tmp_path: Path
) -> None:
    machine = Machine()
    store = await opened(kind, tmp_path, machine)
    await store.create_session("s")
    lease = await store.acquire_lease("s", "one", ttl=30)
    machine.offset_s = step_s
    for _ in range(2):
        with pytest.raises(SessionInUse) as in_use:
            await store.acquire_lease("s", "two")
        assert 0 < in_use.value.expires_in_s <= 30
        assert await store.lease_of("s") == lease
        lease = await store.renew_lease(lease, 30)
    machine.passed_s = 29
    with pytest.raises(SessionInUse):
        await store.acquire_lease("s", "two")
    machine.passed_s = 31
    assert (await store.acquire_lease("s", "two")).owner == "two"
    await store.close()


async def test_without_a_clock_since_the_boot_the_wall_clock_counts() -> None:
    machine = Machine()
    machine.environment.boot_s = lambda: None
    store = MemoryStore(environment=machine.environment)
    await store.create_session("s")
    assert (await store.acquire_lease("s", "one", ttl=30)).boot_expires_s is None
    machine.passed_s = 31
    assert (await store.acquire_lease("s", "two")).owner == "two"


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_durations_do_not_depend_on_the_wall_clock(step_s: float) -> None:
    environment, started_at = Environment(), datetime.now(UTC) - timedelta(seconds=step_s)
    took = environment.later(started_at, time.monotonic()) - started_at
    assert timedelta(0) <= took < timedelta(seconds=1)
    machine = Machine()

    def answer(_: object) -> str:
        machine.offset_s -= abs(step_s)
        return "Hello."

    model = ScriptedModel([answer], environment=machine.environment)
    result = await Agent(model, environment=machine.environment).run("Hi")
    assert result.message is not None
    assert result.message.meta is not None
    assert result.message.meta.duration_ms is not None
    assert result.message.meta.duration_ms >= 0


@pytest.fixture
def berlin() -> Iterator[None]:
    if not Path("/usr/share/zoneinfo/Europe/Berlin").exists():
        pytest.skip("no time zones")
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("local_time", "fold", "due"),
    [
        ("2026-03-29T02:30", 1, "2026-03-29T01:30Z"),
        ("2026-03-29T01:59", 0, "2026-03-29T00:59Z"),
        ("2026-03-29T02:00", 0, "2026-03-29T01:00Z"),
        ("2026-03-29T02:30", 0, "2026-03-29T01:30Z"),  # 03:30 in summer time
        ("2026-03-29T03:00", 0, "2026-03-29T01:00Z"),
        ("2026-10-25T02:30", 0, "2026-10-25T00:30Z"),  # the first of the two
        ("2026-10-25T02:30", 1, "2026-10-25T01:30Z"),
    ],
)
async def test_a_local_time_that_the_clocks_skip_means_the_moment_after(local_time: str, fold: int, due: str) -> None:
    store, at = MemoryStore(), datetime.fromisoformat(local_time).replace(fold=fold)
    job = await submit(store, StoreQueue(store), user("Hi"), session_id="s", agent="a", at=at)
    assert job.not_before == datetime.fromisoformat(due)
