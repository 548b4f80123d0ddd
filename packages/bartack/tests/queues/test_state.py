"""The fold of a queue: which job is next, and what each event changes."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from bartack.nouns.errors import ErrorCode, PartValidationError, StoreError
from bartack.queues import Job, Limit
from bartack.queues.run_queue import MAX_DEATHS, Outcome
from bartack.queues.state import (
    JobClaimed,
    JobCompleted,
    JobEnqueued,
    JobsCancelled,
    JobsRetried,
    JobStarted,
    QueueEvent,
    QueueState,
    WorkerJoined,
    WorkerLeft,
    dump_event,
    load_event,
)
from tests.queues.kit import START, job, worker

W = worker("w")


def state_of(*jobs: Job, workers: Sequence[str] = ("w", "v")) -> QueueState:
    state = QueueState()
    for id in workers:
        state.push(WorkerJoined(worker=worker(id)))
    for queued in jobs:
        state.push(JobEnqueued(job=queued))
    return state


def take(state: QueueState, *limits: Limit, after_s: float = 0, by: str = "w") -> str | None:
    """Claim the next job, and return its id."""
    current_time = START + timedelta(seconds=after_s)
    next_job = state.next_job(current_time, worker(by), limits)
    if next_job is None:
        return None
    state.push(JobClaimed(job_id=next_job.id, worker=by, at=current_time))
    assert state.has_claim(next_job, by)
    return next_job.id


def done(
    job_id: str, outcome: Outcome = "completed", *, by: str = "w", attempt: int = 1, after_s: float = 0
) -> QueueEvent:
    later = START + timedelta(seconds=after_s) if after_s else None
    return JobCompleted(job_id=job_id, worker=by, attempt=attempt, at=START, outcome=outcome, not_before=later)


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
    state.push(JobEnqueued(job=job("1")))
    assert (list(state.waiting), list(state.running)) == ([], ["1"])
    state.push(done("1"))
    state.push(JobEnqueued(job=job("1")))
    assert state.size == 0


def test_a_claim_that_comes_too_late_changes_nothing() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(JobClaimed(job_id="1", worker="v", at=START))
    assert state.running["1"].worker == "w"
    state.push(JobClaimed(job_id="unknown", worker="v", at=START))
    assert list(state.running) == ["1"]


def test_only_the_worker_that_has_the_claim_can_complete_it() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(done("1", by="v"))
    state.push(done("1", attempt=2))
    assert list(state.running) == ["1"]
    state.push(WorkerLeft(worker="w", at=START, is_lost=True))
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


def test_a_job_with_which_too_many_workers_died_is_set_aside_until_it_is_retried_or_cancelled() -> None:
    state, after_s = state_of(job("1")), 0.0
    for pause_s in (0, 0, 2, 4, 8):
        state.push(WorkerJoined(worker=W))
        after_s += pause_s
        assert pause_s == 0 or take(state, after_s=after_s - 1) is None
        assert take(state, after_s=after_s) == "1"
        left = START + timedelta(seconds=after_s)
        state.push(WorkerLeft(worker="w", at=left, is_lost=True))
    state.push(WorkerJoined(worker=W))
    (stuck,) = state.status("q", START).stuck
    assert (take(state, after_s=1000), stuck.id) == (None, "1")
    assert stuck.problem == "5 workers died while running it, the last one was process 1 on h"
    state.push(state.snapshot()[0])
    state.push(JobsRetried(job_ids=("1", "2")))
    assert state.status("q", START).stuck == ()
    assert take(state, after_s=1000) == "1"
    assert state.running["1"].job.problem is None
    state.push(WorkerLeft(worker="w", at=START, is_lost=True, max_deaths=1))
    assert [stuck.problem for stuck in state.stuck.values()] == [
        "1 worker died while running it, the last one was process 1 on h"
    ]
    state.push(JobsCancelled(job_ids=("1",), at=START))
    assert state.size == 0


def test_a_worker_has_one_suspect_at_a_time_and_no_neighbour_is_set_aside() -> None:
    state = state_of(*(job(str(number)) for number in range(8)))
    ended: set[str] = set()
    deaths = 0
    for second in range(0, 1000, 20):
        state.push(WorkerJoined(worker=W))
        claimed = [job_id for _ in range(4) if (job_id := take(state, after_s=second)) is not None]
        assert sum(claim.job.attempt > 2 for claim in state.running.values()) <= 1
        if "0" in claimed:  # it kills every worker
            deaths += 1
            state.push(WorkerLeft(worker="w", at=START + timedelta(seconds=second), is_lost=True))
            continue
        for job_id in claimed:
            attempt = state.running[job_id].job.attempt
            state.push(JobCompleted(job_id=job_id, worker="w", attempt=attempt, outcome="completed", at=START))
            ended.add(job_id)
    assert (deaths, ended, list(state.stuck)) == (MAX_DEATHS, {str(number) for number in range(1, 8)}, ["0"])


def test_what_has_begun_goes_first_and_does_not_wait_for_a_slot() -> None:
    state = state_of(job("1", after_s=5), job("urgent", priority=9))
    assert take(state, by="v") == "urgent"
    assert state.next_job(START, W, begun_only=True) is None
    state.push(done("urgent", "again", by="v"))
    assert take(state, by="v") == "urgent"
    state.push(JobEnqueued(job=job("more urgent", priority=10)))
    state.push(WorkerLeft(worker="v", at=START, is_lost=True))
    next_job = state.next_job(START, W, begun_only=True)
    assert next_job is not None
    assert (next_job.id, next_job.has_begun, next_job.attempt) == ("urgent", True, 2)
    assert [take(state) for _ in range(3)] == ["urgent", "more urgent", "1"]


def lines_of_a_look(users: int, *limits: Limit) -> int:
    """The lines of code that a look executes if a limit holds back all of these users, with a start and a run each."""
    state = state_of(*(job(f"{user}-{number}", user=f"u{user}") for user in range(users) for number in range(2)))
    for _ in range(users):
        assert take(state) is not None
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    previous = sys.gettrace()
    sys.settrace(count)
    try:
        assert state.next_job(START, W, limits) is None
    finally:
        sys.settrace(previous)
    return lines


@pytest.mark.parametrize("limit", [Limit(by="user", starts=1, per_s=60), Limit(by="user", running=1)])
def test_a_look_takes_time_in_proportion_to_the_users_that_a_limit_holds_back(limit: Limit) -> None:
    assert lines_of_a_look(800, limit) < 2.2 * lines_of_a_look(400, limit)


def test_users_take_turns() -> None:
    state = state_of(*(job(f"a{number}", user="a", after_s=number) for number in range(40)))
    assert [take(state), take(state)] == ["a0", "a1"]
    for late, user in enumerate("bc"):
        for number in range(2):
            state.push(JobEnqueued(job=job(f"{user}{number}", user=user, after_s=100 + 10 * late + number)))
    assert [take(state) for _ in range(7)] == ["a2", "b0", "c0", "a3", "b1", "c1", "a4"]


def test_a_user_who_waits_is_not_overtaken_by_every_user_who_arrives() -> None:
    state = state_of(*(job(f"a{number}", user="a") for number in range(2)))
    claimed = []
    for number in range(4):  # as many arrive as are claimed
        state.push(JobEnqueued(job=job(f"new{number}", user=f"u{number}")))
        claimed.append(take(state))
    assert claimed == ["a0", "new0", "a1", "new1"]


def test_a_higher_priority_goes_before_the_turns_of_users() -> None:
    state = state_of(job("a0", user="a"), job("b0", user="b"), job("a1", user="a", priority=5))
    assert [take(state) for _ in range(3)] == ["a1", "b0", "a0"]


def test_a_user_whose_job_is_cancelled_keeps_the_turn() -> None:
    state = state_of(job("a0", user="a"), job("a1", user="a"), job("b0", user="b"))
    state.push(JobsCancelled(job_ids=("a0",), at=START))
    assert [take(state), take(state)] == ["a1", "b0"]


def test_the_order_of_users_survives_a_snapshot() -> None:
    state = state_of(*(job(f"{user}{number}", user=user) for user in "abc" for number in range(3)))
    assert [take(state), take(state)] == ["a0", "b0"]
    copy = QueueState()
    for event in state.snapshot():
        copy.push(load_event(dump_event(event)))
    assert [take(copy) for _ in range(4)] == ["c0", "a1", "b1", "c1"]


def test_a_user_without_jobs_takes_no_room() -> None:
    state = state_of(job("1", user="a", provider="p", model="m"))
    take(state)
    state.push(done("1"))
    later = START + timedelta(days=1)
    state.push(JobEnqueued(job=job("2")))
    assert state.next_job(later, W) is not None
    state.push(JobClaimed(job_id="2", worker="w", at=later))
    assert state.next_job(later, W) is None
    sizes = (state._of_user, state._turns, state._lanes_of, state._running_in, state._starting_in, state._started_in)
    assert [len(counts) for counts in sizes] == [0] * 6


def test_a_worker_that_leaves_in_order_does_not_count_as_an_attempt() -> None:
    state = state_of(job("1"))
    take(state)
    state.push(WorkerLeft(worker="w", at=START))
    assert state.waiting["1"].attempt == 1


def test_a_cancelled_job_is_not_claimed_and_not_repeated() -> None:
    state = state_of(job("1", "s", user="u"), job("2", "s", user="u"), job("3"))
    assert take(state) == "1"
    state.push(JobsCancelled(job_ids=tuple(queued.id for queued in state.of_session("s")), at=START))
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
    limit = Limit(by="user", running=1)
    assert [take(state, limit) for _ in range(4)] == ["1", "3", "4", None]
    state.push(done("1"))
    assert take(state, limit) == "2"
    state = state_of(job("1", provider="p"), job("2", provider="q"))
    assert [take(state, Limit(by="provider", name="p", running=0)) for _ in range(2)] == ["2", None]


def test_limits_count_starts_in_an_interval() -> None:
    state = state_of(*(job(str(number), model="m") for number in range(3)))
    limit = Limit(by="model", starts=2, per_s=10)
    assert [take(state, limit), take(state, limit, after_s=1), take(state, limit, after_s=9)] == ["0", "1", None]
    assert take(state, limit, after_s=10) == "2"
    assert take(state, limit, after_s=4000) is None


def rated(state: QueueState, limit: Limit, after_s: float) -> str | None:
    """Claim the next job for a worker that has this limit, and so reports starts."""
    current_time = START + timedelta(seconds=after_s)
    next_job = state.next_job(current_time, W, [limit])
    if next_job is None:
        return None
    state.push(JobClaimed(job_id=next_job.id, worker="w", at=current_time, rated_s=limit.per_s))
    return next_job.id


def started(job_id: str, after_s: float) -> QueueEvent:
    return JobStarted(job_id=job_id, worker="w", attempt=1, at=START + timedelta(seconds=after_s))


def test_an_interval_begins_when_a_run_starts_however_long_that_takes_after_its_claim() -> None:
    state = state_of(*(job(str(number), model="m") for number in range(5)))
    limit = Limit(by="model", starts=2, per_s=10)
    assert [rated(state, limit, after_s=0), rated(state, limit, after_s=0)] == ["0", "1"]
    state.push(started("0", after_s=1))
    state.push(started("0", after_s=9))  # reported a second time
    assert rated(state, limit, after_s=10.5) is None  # the other one may start at any moment
    state.push(started("1", after_s=11))
    assert rated(state, limit, after_s=11) == "2"
    assert rated(state, limit, after_s=20) is None
    state.push(started("2", after_s=20))
    assert rated(state, limit, after_s=21) == "3"


@pytest.mark.parametrize("end", ["completed", "lost", "left"])
def test_a_start_that_was_not_reported_counts_from_the_end_of_the_claim(end: str) -> None:
    state = state_of(job("0", user="u"), job("1", user="u", after_s=1))
    limit = Limit(by="user", starts=1, per_s=10)
    assert rated(state, limit, after_s=0) == "0"
    ended_at = START + timedelta(seconds=30)
    if end == "completed":
        state.push(JobCompleted(job_id="0", worker="w", attempt=1, outcome="completed", at=ended_at))
    else:
        state.push(WorkerLeft(worker="w", at=ended_at, is_lost=end == "lost"))
        state.push(WorkerJoined(worker=W))
    copy = QueueState()
    for event in state.snapshot():
        copy.push(load_event(dump_event(event)))
    for begun in (state, copy):
        assert rated(begun, limit, after_s=39) is None
        assert rated(begun, limit, after_s=40) is not None


def test_a_snapshot_keeps_claims_whose_run_has_not_started() -> None:
    state = state_of(job("0", user="u"), job("1", user="u"))
    limit = Limit(by="user", starts=1, per_s=10)
    assert rated(state, limit, after_s=0) == "0"
    copy = QueueState()
    for event in state.snapshot():
        copy.push(load_event(dump_event(event)))
    assert rated(copy, limit, after_s=60) is None
    copy.push(started("0", after_s=60))
    assert rated(copy, limit, after_s=70) == "1"


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
