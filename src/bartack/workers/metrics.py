"""`WorkerMetrics`: what a worker reports about its jobs and its queue, which `bartack.telemetry` turns into metrics."""

from typing import Protocol

from bartack.nouns.errors import ErrorCode
from bartack.queues.job import Job, Outcome, QueueStatus

__all__ = ["WorkerMetrics"]


class WorkerMetrics(Protocol):
    """Implemented by `bartack.telemetry.Telemetry`."""

    def job_claimed(self, job: Job, waited_s: float) -> None:
        """A worker begins with a job, so long after it was enqueued or due."""
        ...

    def job_ended(self, job: Job, outcome: Outcome, seconds: float, code: ErrorCode | None) -> None:
        """The worker has completed the job, so long after it began."""
        ...

    def queue_observed(self, status: QueueStatus, engine: str) -> None:
        """What the queue is doing at the moment."""
        ...
