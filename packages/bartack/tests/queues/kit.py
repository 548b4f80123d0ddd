"""Shared by the tests of queues: jobs, workers, and a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from bartack.environment import Environment
from bartack.queues import Job, WorkerInfo

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that only the test moves, and ids from a counter."""

    def __init__(self) -> None:
        self.now = START
        bits = count(1)
        self.environment = Environment(lambda: self.now, lambda: next(bits), boot_s=self.boot_s)

    def boot_s(self) -> float:
        return self.now.timestamp()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def job(id: str, session: str = "", *, after_s: float = 0, **fields: Any) -> Job:
    return Job(
        id=id, session_id=session or f"s-{id}", agent="a", queued_at=START + timedelta(seconds=after_s), **fields
    )


def worker(id: str, *agents: str, **fields: Any) -> WorkerInfo:
    return WorkerInfo(id=id, host="h", pid=1, started_at=START, agents=agents or ("a",), slots=4, **fields)
