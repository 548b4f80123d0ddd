"""`Job`: a run that is waiting for a worker or claimed by one; and what a queue reports about jobs and workers.

A job identifies a session and contains none of its content: prompts, answers and results are in the session. All of
these values are JSON.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from bartack.nouns.errors import ErrorCode, PartValidationError

__all__ = [
    "JOB_KEY",
    "MAX_DEATHS",
    "MAX_STARTS",
    "PROTOCOL",
    "WORKER_KEY",
    "Job",
    "Limit",
    "Outcome",
    "QueueStatus",
    "RunningJob",
    "WorkerInfo",
    "job_of",
]

PROTOCOL = 1  # how a job is worked on; a worker takes jobs of this version and of older ones
# Keys in the metadata of a run: the job that it was started for, and the process that works on it.
JOB_KEY = "bartack.job"
WORKER_KEY = "bartack.worker"
MAX_DEATHS = 5
"""Workers that may die with a job before it is set aside, unless a queue is configured otherwise."""
# A limit counts at most this many starts over at most this many seconds. Queues forget the others.
MAX_STARTS = 100_000
_MAX_PER_S = 86_400.0

Outcome = Literal[
    "completed",
    "failed",
    "aborted",
    "paused",  # the run waits for a decision or a result, which enqueues another job when it is posted
    "again",  # there is more to do: the worker stops, or the session is in use
]


class _Value(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A value of a queue, as JSON. Unknown keys are ignored."""


class Job(_Value, frozen=True):
    """A request to work on a session until there is nothing left to do."""

    id: str  # the id of the entry it was created for, so that enqueueing it again has no effect
    session_id: str
    agent: str
    queued_at: datetime
    priority: int = 0  # the highest first; then the oldest
    not_before: datetime | None = None
    scheduled: str | None = None  # the entry with the message that is delivered when the job is due
    user: str | None = None
    provider: str | None = None
    model: str | None = None
    has_begun: bool = False  # a worker had it before; such jobs go first, and do not wait for a slot
    attempt: int = 1  # counts the workers that died with it
    queue: str = "default"
    engine: str = "store"
    protocol: int = PROTOCOL
    problem: str | None = None  # why it was set aside

    def __post_init__(self) -> None:
        # Times with and without a zone cannot be compared: a single job without one would stop every worker.
        if any(moment is not None and moment.tzinfo is None for moment in (self.queued_at, self.not_before)):
            raise ValueError("the times of a job need a time zone")


class Limit(_Value, frozen=True):
    """How many runs may be live at once, or how many may start in an interval: for each user, model or provider, or
    only for the one with this name. All workers share the counts.
    """

    by: Literal["user", "model", "provider"]
    name: str | None = None
    running: int | None = None
    starts: int | None = None
    per_s: float = 60.0

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Read ``provider:openai=20`` (at once), ``user=2`` (each at once) or ``model:gpt-5=100/60`` (per seconds).

        Raises `PartValidationError`.
        """
        scope, _, number = text.rpartition("=")
        by, _, name = scope.partition(":")
        count, slash, seconds = number.partition("/")
        try:
            is_counted = not slash or (int(count) <= MAX_STARTS and 0 < float(seconds) <= _MAX_PER_S)
            if by not in ("user", "model", "provider") or int(count) < 0 or not is_counted:
                raise ValueError
            if slash:
                return cls(by=by, name=name or None, starts=int(count), per_s=float(seconds))  # type: ignore[arg-type]
            return cls(by=by, name=name or None, running=int(count))  # type: ignore[arg-type]
        except ValueError:
            problem = (
                f"Invalid limit {text!r}; expected BY[:NAME]=COUNT[/SECONDS], BY being user, model or provider, "
                f"and at most {MAX_STARTS:,} starts in {_MAX_PER_S:,.0f} seconds."
            )
            raise PartValidationError(problem, path="--limit", code=ErrorCode.INVALID_CONFIG) from None


class WorkerInfo(_Value, frozen=True):
    """A process that executes jobs. Ids are unique and never reused."""

    id: str
    host: str
    pid: int
    started_at: datetime
    agents: tuple[str, ...]
    slots: int
    executor: str | None = None  # the name of the process in an engine
    protocol: int = PROTOCOL


class RunningJob(_Value, frozen=True):
    """A job that a worker has claimed."""

    job: Job
    worker: str
    since: datetime
    is_cancelled: bool = False
    is_starting: bool = False  # its worker has not reported the start of the run, and will


class QueueStatus(_Value, frozen=True):
    """What a queue is doing. `waiting` counts all waiting jobs, `scheduled` those of them that are not due yet."""

    queue: str
    at: datetime
    waiting: int = 0
    scheduled: int = 0
    oldest: datetime | None = None  # when the oldest job that is due was enqueued
    running: tuple[RunningJob, ...] = ()
    stuck: tuple[Job, ...] = ()  # set aside because too many workers died with them; `problem` says so
    workers: tuple[WorkerInfo, ...] = ()
    outcomes: dict[str, int] = {}  # how many jobs ended in which way; an engine counts only the last minutes
    per_minute: float = 0.0  # jobs that ended, over the last minutes

    def as_json(self) -> dict[str, Any]:
        """The status as JSON, with every key."""
        return {**dict.fromkeys(("waiting", "scheduled"), 0), "oldest": None, **_LISTS, **msgspec.to_builtins(self)}


_LISTS: dict[str, Any] = {"running": [], "stuck": [], "workers": [], "outcomes": {}, "perMinute": 0.0}


def job_of(metadata: dict[str, Any] | None) -> Job | None:
    """The job in the metadata of a run; None if there is none."""
    try:
        return None if metadata is None else msgspec.convert(metadata.get(JOB_KEY), Job)
    except msgspec.ValidationError:
        return None
