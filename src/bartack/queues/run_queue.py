"""`RunQueue`: the interface between runs and whatever decides who works on which when.

The session store remains the source of truth about what is done in a session. A queue holds scheduling state only, and
may be wrong about it without harm: a job that is worked on twice finds nothing left to do, and the lease of the session
keeps two workers from working on it at once.
"""

from typing import Protocol

from bartack.nouns.errors import ErrorCode
from bartack.queues.job import Job, Outcome, QueueStatus, WorkerInfo

__all__ = ["RunQueue"]


class RunQueue(Protocol):
    """A queue of jobs. Of the jobs of one session, one is worked on at a time."""

    name: str
    engine: str
    records_steps: bool  # whether `step` is to be called

    async def check_room(self, user: str | None = None) -> None:
        """Raise `QueueFull` if another job of this user would exceed a limit."""
        ...

    async def enqueue(self, job: Job) -> None:
        """Add a job. One with an id that was enqueued before has no effect."""
        ...

    async def claim(self, worker: WorkerInfo, wait_s: float) -> Job | None:
        """The next job for this worker, waiting for one so long. Do not cancel this: a job could be lost with it."""
        ...

    async def heartbeat(self, worker: WorkerInfo) -> None:
        """Show that the worker is alive, and return the jobs of dead ones to the queue. Call it every `beat_s` seconds.

        Raises `LeaseLost` if the worker was taken for dead: its jobs belong to others now, and it needs a new id.
        """
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
        """End the claim of a job; one that ends as ``again`` is returned to the queue, due after `delay_s`."""
        ...

    def step(self, job: Job, number: int) -> None:
        """Note that the run of a job has completed a model call, or a round of tool calls; the first has number 1."""
        ...

    async def cancel(self, session_id: str) -> tuple[Job, ...]:
        """Remove the jobs of a session, and return those that no worker had claimed. A claimed one is not repeated."""
        ...

    async def leave(self, worker: WorkerInfo) -> None:
        """End the worker: its claims, if it has any left, are returned to the queue."""
        ...

    async def status(self) -> QueueStatus:
        """What the queue is doing."""
        ...

    @property
    def beat_s(self) -> float:
        """How often a worker must call `heartbeat`."""
        ...

    async def close(self) -> None:
        """Release what the queue uses. The store stays open."""
        ...
