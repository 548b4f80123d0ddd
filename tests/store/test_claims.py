"""Claims, and what others may append while a session is claimed, in every store."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Custom,
    Entry,
    Fact,
    MessageQueued,
    ModelChange,
    Redaction,
    RunStarted,
    SessionHeader,
)
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, NotFound, SessionInUse, StoreError
from bartack.nouns.messages import Message, ModelRef, user
from bartack.store import MemoryStore, SessionStore, next_entries
from bartack.store.append import take_lease
from bartack.store.holder import Holder, is_dead, this_process
from bartack.store.session_store import Claim


async def start(store: SessionStore, session_id: str = "s") -> tuple[Entry, ...]:
    """The first entries of a run on a new session."""
    return next_entries(session_id, None, [SessionHeader(), RunStarted(), user("hi")], store.environment)


async def test_a_claim_stores_its_entries_and_takes_the_lease_at_once(store: SessionStore) -> None:
    entries = await start(store)
    lease = await store.claim("s", entries, None, "run 1")
    assert (lease.owner, lease.epoch, lease.holder) == ("run 1", 1, this_process())
    assert await store.load("s") == list(entries)
    more = next_entries("s", await store.tail_of("s"), [user("more")], store.environment)
    await store.append("s", more, entries[-1].id, lease=lease)


async def test_a_refused_claim_leaves_no_trace(store: SessionStore) -> None:
    entries = await start(store)
    await store.claim("s", entries, None, "run 1")
    others = next_entries("s", await store.tail_of("s"), [RunStarted(), user("me too")], store.environment)
    with pytest.raises(SessionInUse):
        await store.claim("s", others, entries[-1].id, "run 2")
    assert await store.load("s") == list(entries)
    with pytest.raises(SessionInUse):  # the lease is still that of the first
        await store.acquire_lease("s", "run 3")


async def test_a_claim_with_the_wrong_tail_takes_no_lease(store: SessionStore) -> None:
    header = await store.create_session("s")
    late = next_entries("s", await store.tail_of("s"), [user("late")], store.environment)
    first = next_entries("s", await store.tail_of("s"), [user("first")], store.environment)
    await store.append("s", first, header.id)
    with pytest.raises(Conflict) as conflict:
        await store.claim("s", late, header.id, "run 1")
    assert conflict.value.tail == first[-1].id
    assert (await store.acquire_lease("s", "run 2")).owner == "run 2"
    with pytest.raises(NotFound):
        await store.claim("t", late[:0] or await start(store, "t"), "missing", "run 1")


async def test_a_claim_repeated_after_an_unknown_outcome_gets_its_lease(store: SessionStore) -> None:
    entries = await start(store)
    first = await store.claim("s", entries, None, "run 1")
    again = await store.claim("s", entries, None, "run 1")
    assert (again.epoch, again.owner) == (first.epoch, "run 1")
    assert await store.load("s") == list(entries)
    with pytest.raises(SessionInUse):
        await store.claim("s", entries, None, "run 2")


async def test_a_takeover_fences_out_the_owner(store: SessionStore) -> None:
    entries = await start(store)
    old = await store.claim("s", entries, None, "run 1")
    more = next_entries("s", await store.tail_of("s"), [RunStarted()], store.environment)
    new = await store.claim("s", more, entries[-1].id, "run 2", takeover=True)
    assert new.epoch == old.epoch + 1
    late = next_entries("s", await store.tail_of("s"), [user("late")], store.environment)
    with pytest.raises(LeaseLost, match="run 2 has it now"):
        await store.append("s", late, more[-1].id, lease=old)


REQUESTS: list[Fact] = [
    MessageQueued(user("one more thing"), steer=True),
    ApprovalDecided("c1", "approve"),
    AbortRequested(reason="enough"),
    ModelChange(ModelRef("p", "m")),
    Custom("note", {"text": "seen"}),
]


@pytest.mark.parametrize("fact", REQUESTS, ids=lambda fact: fact.kind)
async def test_anyone_may_append_a_request_to_a_live_run(store: SessionStore, fact: Fact) -> None:
    entries = await start(store)
    lease = await store.claim("s", entries, None, "run 1")
    (request,) = next_entries("s", await store.tail_of("s"), [fact], store.environment)
    await store.append("s", [request], entries[-1].id)
    (hidden,) = next_entries("s", await store.tail_of("s"), [Redaction(request.id)], store.environment)
    await store.append("s", [hidden], request.id)
    more = next_entries("s", await store.tail_of("s"), [user("more")], store.environment)
    await store.append("s", more, hidden.id, lease=lease)


async def test_nobody_else_may_append_anything_but_requests_to_a_live_run(store: SessionStore) -> None:
    entries = await start(store)
    lease = await store.claim("s", entries, None, "run 1")
    tail = await store.tail_of("s")
    message = user("hello")
    refusals: list[list[Fact]] = [[message], [Custom("note", {}), message]]
    for facts in refusals:
        refused = next_entries("s", tail, facts, store.environment)
        with pytest.raises(SessionInUse, match="run 1"):
            await store.append("s", refused, tail.entry_id)
    elsewhere = next_entries("s", tail, [Custom("note", {})], store.environment, parent_id=entries[0].id)
    with pytest.raises(SessionInUse):  # a request on another branch would not reach the run
        await store.append("s", elsewhere, tail.entry_id)
    assert await store.tail_of("s") == tail
    await store.release_lease(lease)
    await store.append("s", next_entries("s", tail, [message], store.environment), tail.entry_id)


async def test_what_no_session_may_contain_is_refused(store: SessionStore) -> None:
    header = await store.create_session("s")
    empty = next_entries("s", await store.tail_of("s"), [Message("tool", ())], store.environment)
    with pytest.raises(StoreError, match="tool message without a result"):
        await store.append("s", empty, header.id)
    with pytest.raises(StoreError, match="format version 2") as newer:
        await store.create_session("t", SessionHeader(version=2))
    assert newer.value.code is ErrorCode.STORAGE_UNSUPPORTED


# -- holders


def test_a_process_that_has_ended_is_dead_even_if_it_was_not_reaped() -> None:
    assert not is_dead(this_process())
    code = "import sys; from bartack.store.holder import this_process as p; from bartack.nouns import wire; "
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
    here = this_process()
    assert is_dead(Holder(here.host, here.pid, here.boot, "1"))


def test_processes_of_other_machines_and_containers_count_as_alive() -> None:
    here = this_process()
    assert not is_dead(Holder("elsewhere", 1, here.boot, "1"))
    assert not is_dead(Holder(here.host, here.pid, "another boot", here.started))


def test_a_system_without_proc_asks_for_the_pid_only(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    monkeypatch.setattr("bartack.store.holder.this_process", lambda: Holder(here.host, here.pid))
    assert not is_dead(Holder(here.host, here.pid))
    assert not is_dead(Holder(here.host, 1))  # exists, and may belong to another user
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert is_dead(Holder(here.host, process.pid))


async def test_the_lease_of_a_dead_process_is_not_held() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    here = this_process()
    dead = Holder(here.host, here.pid, here.boot, "1")
    held = take_lease("s", Claim("run 1", 30, dead), now, None)
    assert take_lease("s", Claim("run 2", 30, here), now, held).epoch == 2


async def test_a_lease_expires_although_the_clock_was_set_back() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    elsewhere = Holder("elsewhere", 1)
    held = take_lease("s", Claim("run 1", 30, elsewhere), now, None)
    with pytest.raises(SessionInUse):
        take_lease("s", Claim("run 2", 30, elsewhere), now + timedelta(seconds=29), held)
    assert take_lease("s", Claim("run 2", 30, elsewhere), now - timedelta(hours=1), held).owner == "run 2"


async def test_a_lease_of_a_store_counts_by_its_clock() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = MemoryStore(environment=Environment(now=lambda: times[0]))
    await store.create_session("s")
    await store.acquire_lease("s", "one", ttl=30)
    with pytest.raises(SessionInUse):
        await store.acquire_lease("s", "two")
    times[0] += timedelta(seconds=31)
    assert (await store.acquire_lease("s", "two")).owner == "two"
