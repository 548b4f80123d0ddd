"""Workers: processes that execute queued runs. See `bartack.queues` for the queues."""

from bartack.workers.worker import Worker

__all__ = ["Worker"]
