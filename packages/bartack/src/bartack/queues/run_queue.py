"""`RunQueue`: the interface of queues, which decide which worker executes which run, and when.

The session store remains the source of truth about what has been done in a session. A queue holds only scheduling
state, and errors in it do no harm: a job that is executed twice finds nothing left to do, and the session's lease keeps
two workers from running it at once.
"""

from typing import Protocol

from bartack.nouns.errors import ErrorCode, QueueFull
from bartack.queues.job import Job, Outcome, QueueStatus, WorkerInfo

__all__ = ["RunQueue", "queue_full_error"]


def queue_full_error(waiting: int, limit: int, user: str | None = None) -> QueueFull:
    """The error for a job over the limit: that of a user, or of the whole queue."""
    of_user = "" if user is None else f" for user {user!r}"
    text = f"The queue is full{of_user}: {waiting:,} runs are waiting, and the limit is {limit:,}."
    return QueueFull(text, queued=waiting, limit=limit, user=user)


class RunQueue(Protocol):
    """A queue of jobs. At most one job per session is active at a time."""

    name: str
    engine: str
    records_steps: bool  # whether workers must call `step`

    async def check_room(self, user: str | None = None) -> None:
        """Raise `QueueFull` if another job of this user would exceed a limit."""
        ...

    async def enqueue(self, job: Job) -> None:
        """Add a job. Enqueueing a job id again has no effect."""
        ...

    async def claim(self, worker: WorkerInfo, wait_s: float, *, begun_only: bool = False) -> Job | None:
        """The next job for this worker; None if there is none within `wait_s`. With `begun_only`, a job that has begun.

        Do not cancel this call, or a job may be lost.
        """
        ...

    async def heartbeat(self, worker: WorkerInfo) -> None:
        """Record that the worker is alive. Call this every `beat_s` seconds.

        Raises `LeaseLost` if the worker was considered dead: its jobs now belong to others, and it needs a new id.
        """
        ...

    async def reap(self, worker: WorkerInfo) -> None:
        """Return the jobs of dead workers to the queue. Call this as often as `heartbeat`, but not before it, because
        this may take longer than a heartbeat is valid.
        """
        ...

    async def start(self, worker: WorkerInfo, job: Job) -> None:
        """Record that the run of a claimed job has started. A limit on starts counts from here."""
        ...

    async def complete(
        self,
        worker: WorkerInfo,
        job: Job,
        outcome: Outcome,
        *,
        delay_s: float = 0.0,
        code: ErrorCode | None = None,
    ) -> None:
        """End the claim of a job. If the outcome is ``again``, the job returns to the queue, due after `delay_s`."""
        ...

    def step(self, job: Job, number: int) -> None:
        """Record that the run of a job has completed a model call or a round of tool calls. Steps count from 1."""
        ...

    async def cancel(self, session_id: str) -> tuple[Job, ...]:
        """Remove the jobs of a session, and return them. One that a worker has claimed is not repeated."""
        ...

    async def retry(self, session_id: str) -> tuple[Job, ...]:
        """Return the jobs of a session that were set aside to the queue, as if no worker had died with them."""
        ...

    async def leave(self, worker: WorkerInfo) -> None:
        """Remove the worker. Any claims it still has return to the queue."""
        ...

    async def status(self) -> QueueStatus:
        """What the queue is doing."""
        ...

    def live_limit(self, slots: int) -> int:
        """How many jobs a worker with this many slots may have claimed before it is full."""
        ...

    @property
    def beat_s(self) -> float:
        """How often a worker must call `heartbeat`."""
        ...

    async def close(self) -> None:
        """Release what the queue uses. The store stays open."""
        ...
