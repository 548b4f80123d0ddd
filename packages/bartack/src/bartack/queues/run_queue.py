"""`RunQueue`: the interface of queues, which decide which worker executes which run, and when; and the `Job` in them.

The session store remains the source of truth about what has been done in a session. A queue holds only scheduling
state, and errors in it do no harm: a job that is executed twice finds nothing left to do, and the session's lease keeps
two workers from running it at once.
"""

from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from bartack.nouns.errors import ErrorCode, PartValidationError, QueueFull

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
    "RunQueue",
    "RunningJob",
    "WorkerInfo",
    "job_of",
    "queue_full_error",
]

# -- jobs, and what a queue reports about them and about workers
#
# A job identifies a session and contains none of its content: prompts, answers and results are in the session. All of
# these values are JSON.

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
