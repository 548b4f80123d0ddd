"""Which leases are held: those of dead processes are not, and a clock that is set back does not extend one."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.errors import SessionInUse
from bartack.store import MemoryStore
from bartack.store.leases import Holder, Moment, is_dead, take_lease, this_process
from bartack.store.session_store import Claim


def test_a_process_that_has_ended_is_dead_even_if_it_was_not_reaped() -> None:
    assert not is_dead(this_process())
    code = "import sys; from bartack.store.leases import this_process as p; from bartack.nouns import wire; "
    code += "print(wire.encode(p()).decode(), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        holder = wire.decode(Holder, process.stdout.readline())
        assert holder.pid == process.pid
        assert not is_dead(holder)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie until the block ends
        assert is_dead(holder)
    assert is_dead(holder)


def test_a_reused_pid_is_another_process() -> None:
    own = this_process()
    assert is_dead(Holder(own.host, own.pid, own.boot, "1"))


def test_processes_of_other_machines_and_containers_count_as_alive() -> None:
    own = this_process()
    assert not is_dead(Holder("elsewhere", 1, own.boot, "1"))
    assert not is_dead(Holder(own.host, own.pid, "another boot", own.started))


def test_a_system_without_proc_asks_for_the_pid_only(monkeypatch: pytest.MonkeyPatch) -> None:
    own = this_process()
    monkeypatch.setattr("bartack.store.leases.this_process", lambda: Holder(own.host, own.pid))
    assert not is_dead(Holder(own.host, own.pid))
    assert not is_dead(Holder(own.host, 1))  # exists, and may belong to another user
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert is_dead(Holder(own.host, process.pid))


async def test_the_lease_of_a_dead_process_is_not_held() -> None:
    noon = datetime(2026, 1, 1, tzinfo=UTC)
    own = this_process()
    dead = Holder(own.host, own.pid, own.boot, "1")
    lease = take_lease("s", Claim("run 1", 30, dead), Moment(noon), None)
    assert take_lease("s", Claim("run 2", 30, own), Moment(noon), lease).epoch == 2


async def test_a_lease_expires_although_the_clock_was_set_back() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    elsewhere = Holder("elsewhere", 1)
    lease = take_lease("s", Claim("run 1", 30, elsewhere), Moment(noon), None)
    with pytest.raises(SessionInUse):
        take_lease("s", Claim("run 2", 30, elsewhere), Moment(noon + timedelta(seconds=29)), lease)
    assert take_lease("s", Claim("run 2", 30, elsewhere), Moment(noon - timedelta(hours=1)), lease).owner == "run 2"


async def test_a_lease_of_a_store_without_a_clock_since_the_boot_counts_by_its_wall_clock() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = MemoryStore(environment=Environment(now=lambda: times[0], boot_s=lambda: None))
    await store.create_session("s")
    await store.acquire_lease("s", "one", ttl=30)
    with pytest.raises(SessionInUse):
        await store.acquire_lease("s", "two")
    times[0] += timedelta(seconds=31)
    assert (await store.acquire_lease("s", "two")).owner == "two"
