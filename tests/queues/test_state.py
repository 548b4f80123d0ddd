"""The fold of a queue: which job is next, and what each event changes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from bartack.nouns.errors import ErrorCode, PartValidationError, StoreError
from bartack.queues import Job, Limit
from bartack.queues.events import (
    Cancelled,
    Claimed,
    Completed,
    Enqueued,
    Event,
    Joined,
    Left,
    dump_event,
    load_event,
)
from bartack.queues.job import Outcome
from bartack.queues.state import MAX_ATTEMPTS, QueueState
from tests.queues.kit import START, job, worker

W = worker("w")


def state_of(*jobs: Job, workers: Sequence[str] = ("w", "v")) -> QueueState:
    state = QueueState()
    for id in workers:
        state.push(Joined(worker=worker(id)))
    for one in jobs:
        state.push(Enqueued(job=one))
    return state


def take(state: QueueState, *limits: Limit, after_s: float = 0, by: str = "w") -> str | None:
    """Claim the next job, and return its id."""
    now = START + timedelta(seconds=after_s)
    found = state.next_job(now, worker(by), limits)
    if found is None:
        return None
    state.push(Claimed(job_id=found.id, worker=by, at=now))
    assert state.has_claim(found, by)
    return found.id


def done(job_id: str, outcome: Outcome = "completed", *, by: str = "w", attempt: int = 1, after_s: float = 0) -> Event:
    later = START + timedelta(seconds=after_s) if after_s else None
    return Completed(job_id=job_id, worker=by, attempt=attempt, at=START, outcome=outcome, not_before=later)


def test_the_highest_priority_is_first_and_then_the_oldest_job() -> None:
    state = state_of(job("new", after_s=2), job("old", after_s=1), job("urgent", after_s=3, priority=5))
    assert [take(state) for _ in range(4)] == ["urgent", "old", "new", None]


def test_of_one_session_one_job_runs_at_a_time() -> None:
    state = state_of(job("1", "s"), job("2", "s"), job("3", "t"))
    assert [take(state), take(state), take(state)] == ["1", "3", None]
    state.push(done("1"))
    assert [take(state), take(state)] == ["2", None]


def test_a_job_that_is_enqueued_again_has_no_effect_whatever_became_of_it() -> None:
    state = state_of(job("1"), job("1"))
    assert state.size == 1
    take(state)
    state.push(Enqueued(job=job("1")))
    assert (list(state.waiting), list(state.running)) == ([], ["1"])
    state.push(done("1"))
    state.push(Enqueued(job=job("1")))
    assert state.size == 0


def test_a_claim_that_comes_too_late_changes_nothing() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(Claimed(job_id="1", worker="v", at=START))
    assert state.running["1"].worker == "w"
    state.push(Claimed(job_id="unknown", worker="v", at=START))
    assert list(state.running) == ["1"]


def test_only_the_worker_that_has_the_claim_can_complete_it() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(done("1", by="v"))
    state.push(done("1", attempt=2))
    assert list(state.running) == ["1"]
    state.push(Left(worker="w", at=START, is_lost=True))
    assert take(state, by="v") == "1"
    state.push(done("1"))  # the first worker wakes up
    assert state.running["1"].job.attempt == 2


def test_a_job_that_is_to_be_done_again_waits_until_it_is_due() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(done("1", "again", after_s=5))
    assert (take(state, after_s=4), state.next_due) == (None, START + timedelta(seconds=5))
    assert take(state, after_s=5) == "1"


def test_a_scheduled_job_waits_until_it_is_due() -> None:
    state = state_of(job("1", not_before=START + timedelta(seconds=9)))
    assert (take(state, after_s=8), state.status("q", START).scheduled) == (None, 1)
    assert take(state, after_s=9) == "1"


def test_a_job_with_which_too_many_workers_died_is_set_aside() -> None:
    state = state_of(job("1"))
    for _ in range(MAX_ATTEMPTS):
        state.push(Joined(worker=W))
        assert take(state) == "1"
        state.push(Left(worker="w", at=START, is_lost=True))
    state.push(Joined(worker=W))
    assert (take(state), [one.id for one in state.status("q", START).stuck]) == (None, ["1"])
    state.push(Cancelled(job_ids=("1",), at=START))
    assert state.size == 0


def test_what_has_begun_goes_first_and_does_not_wait_for_a_slot() -> None:
    state = state_of(job("1", after_s=5), job("urgent", priority=9))
    assert take(state, by="v") == "urgent"
    assert state.next_job(START, W, begun_only=True) is None
    state.push(done("urgent", "again", by="v"))
    assert take(state, by="v") == "urgent"
    state.push(Enqueued(job=job("more urgent", priority=10)))
    state.push(Left(worker="v", at=START, is_lost=True))
    found = state.next_job(START, W, begun_only=True)
    assert found is not None
    assert (found.id, found.has_begun, found.attempt) == ("urgent", True, 2)
    assert [take(state) for _ in range(3)] == ["urgent", "more urgent", "1"]


def test_a_limit_that_holds_back_many_users_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(*(job(str(number), user=f"u{number}", provider="p") for number in range(50)))
    counted: list[Limit] = []
    count = QueueState._is_within

    def counting(*args: Any) -> bool:
        counted.append(args[1])
        return count(*args)

    monkeypatch.setattr(QueueState, "_is_within", counting)
    assert take(state, Limit(by="provider", running=0)) is None
    assert len(counted) == 1


def test_a_worker_that_leaves_in_order_does_not_count_as_an_attempt() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(Left(worker="w", at=START))
    assert state.waiting["1"].attempt == 1


def test_a_cancelled_job_is_not_claimed_and_not_repeated() -> None:
    state = state_of(job("1", "s", user="u"), job("2", "s", user="u"), job("3"))
    assert take(state) == "1"
    state.push(Cancelled(job_ids=tuple(one.id for one in state.of_session("s")), at=START))
    assert (state.waiting_of("u"), [take(state), take(state)]) == (0, ["3", None])
    state.push(done("1", "again"))
    assert (take(state), state.knows("1")) == (None, True)


def test_agents_and_protocol_versions_that_a_worker_lacks_are_left_to_others() -> None:
    state = state_of(job("1", protocol=99), job("2"))
    assert state.next_job(START, worker("w", "b")) is None
    assert [take(state), take(state)] == ["2", None]
    assert state.next_job(START, worker("w", protocol=99)) is not None


def test_limits_count_what_runs_for_each_user_or_for_the_named_one() -> None:
    state = state_of(job("1", user="u"), job("2", user="u"), job("3", user="v"), job("4"))
    each = Limit(by="user", running=1)
    assert [take(state, each) for _ in range(4)] == ["1", "3", "4", None]
    state.push(done("1"))
    assert take(state, each) == "2"
    state = state_of(job("1", provider="p"), job("2", provider="q"))
    assert [take(state, Limit(by="provider", name="p", running=0)) for _ in range(2)] == ["2", None]


def test_limits_count_starts_in_an_interval() -> None:
    state = state_of(*(job(str(number), model="m") for number in range(3)))
    limit = Limit(by="model", starts=2, per_s=10)
    assert [take(state, limit), take(state, limit, after_s=1), take(state, limit, after_s=9)] == ["0", "1", None]
    assert take(state, limit, after_s=10) == "2"
    assert take(state, limit, after_s=4000) is None


def test_a_snapshot_begins_the_same_state() -> None:
    state = state_of(*(job(str(number), user="u", after_s=number) for number in range(1200)))
    for _ in range(3):
        take(state)
    state.push(done("0", "failed"))
    state.push(done("1", "again", after_s=60))
    copy = QueueState()
    for event in state.snapshot():
        copy.push(load_event(dump_event(event)))
    assert copy.status("q", START) == state.status("q", START)
    assert (copy.waiting_of("u"), copy.knows("0")) == (1198, True)
    limit = Limit(by="user", starts=3)
    assert take(copy, limit) is None
    assert [take(copy), take(copy)] == [take(state), take(state)] == ["3", "4"]


def test_the_status_counts_outcomes_and_throughput() -> None:
    state = state_of(job("1"), job("2"), job("3"))
    take(state), take(state)
    state.push(done("1"))
    state.push(done("2", "failed"))
    status = state.status("q", START + timedelta(minutes=1))
    assert (status.outcomes, status.per_minute, status.waiting) == ({"completed": 1, "failed": 1}, 0.4, 1)
    assert status.oldest == START
    assert status.as_json()["running"] == []


def test_an_event_of_a_newer_version_is_refused() -> None:
    with pytest.raises(StoreError) as caught:
        load_event({"event": "teleported"})
    assert caught.value.code is ErrorCode.STORAGE_UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("user=2", Limit(by="user", running=2)),
        ("provider:openai=20", Limit(by="provider", name="openai", running=20)),
        ("model:a=b=100/60", Limit(by="model", name="a=b", starts=100, per_s=60)),
    ],
)
def test_a_limit_is_read_from_text(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user",
        "user=",
        "user=-1",
        "team=3",
        "user=1/0",
        "user=1/x",
        "user=1/nan",
        "user=1/inf",
        "user=1/86401",
        "user=100001/60",
    ],
)
def test_an_invalid_limit_is_refused(text: str) -> None:
    with pytest.raises(PartValidationError, match="Invalid limit"):
        Limit.parse(text)
