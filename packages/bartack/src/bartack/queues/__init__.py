"""Queues of runs: `Job`, the interface `RunQueue`, and `StoreQueue`, which needs only the session store."""

from bartack.queues.run_queue import Job, Limit, QueueStatus, RunningJob, RunQueue, WorkerInfo
from bartack.queues.store_queue import StoreQueue
from bartack.queues.submit import cancel_run, continue_run, submit

__all__ = [
    "Job",
    "Limit",
    "QueueStatus",
    "RunQueue",
    "RunningJob",
    "StoreQueue",
    "WorkerInfo",
    "cancel_run",
    "continue_run",
    "submit",
]
