"""How the cost of looking for the next job grows with the users that a limit holds back; it should be in proportion.

Every user has one run that started and one that waits, under a limit on starts for each user. A worker that such a
limit holds back looks twice a second. Prints milliseconds per look, and the ratio to the look with half as many users.
This only measures; it never fails.
"""

import time
from datetime import UTC, datetime, timedelta

from bartack.queues import Job, Limit, WorkerInfo
from bartack.queues.state import JobClaimed, JobEnqueued, QueueState, WorkerJoined

USERS = (400, 800, 1_600, 3_200, 6_400)
ROUNDS = 5  # the best counts; slower rounds were disturbed by other load
LIMIT = Limit(by="user", starts=1, per_s=60)
START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = WorkerInfo(id="w", host="h", pid=1, started_at=START, agents=("a",), slots=10)


def held_back(users: int) -> QueueState:
    """A queue in which all users wait for the limit."""
    state = QueueState()
    state.push(WorkerJoined(worker=WORKER))
    for number in range(2 * users):
        user = f"u{number % users}"
        state.push(
            JobEnqueued(job=Job(id=f"j{number}", session_id=f"s{number}", agent="a", queued_at=START, user=user))
        )
    for _ in range(users):
        job = state.next_job(START, WORKER)
        assert job is not None
        state.push(JobClaimed(job_id=job.id, worker=WORKER.id, at=START))
    return state


def look_ms(users: int) -> float:
    state, best = held_back(users), float("inf")
    for second in range(ROUNDS):
        begin = time.perf_counter()
        assert state.next_job(START + timedelta(seconds=second), WORKER, [LIMIT]) is None
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def main() -> None:
    print(f"{'users':>6} {'ms per look':>12} {'ratio':>6}")
    previous: float | None = None
    for users in USERS:
        cost = look_ms(users)
        print(f"{users:>6} {cost:>12.2f} {'' if previous is None else f'{cost / previous:.1f}':>6}")
        previous = cost


if __name__ == "__main__":
    main()
