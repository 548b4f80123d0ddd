"""The events of a `StoreQueue`, as they are stored: one fact each, in the log of the queue."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.queues.job import Job, Outcome, RunningJob, WorkerInfo

__all__ = [
    "Cancelled",
    "Claimed",
    "Completed",
    "Enqueued",
    "Event",
    "Joined",
    "Left",
    "Moved",
    "Snapshot",
    "Start",
    "dump_event",
    "load_event",
]


class Start(NamedTuple):
    """When a job was claimed, for limits."""

    at: datetime
    user: str | None
    provider: str | None
    model: str | None


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="event"):
    pass


class Enqueued(_Event, frozen=True, tag="enqueued"):
    job: Job


class Claimed(_Event, frozen=True, tag="claimed"):
    job_id: str
    worker: str
    at: datetime
    rated_s: float | None = None  # the longest interval over which a limit of the worker counts starts


class Completed(_Event, frozen=True, tag="completed"):
    job_id: str
    worker: str
    attempt: int
    at: datetime
    outcome: Outcome
    not_before: datetime | None = None
    code: str | None = None  # of the error, if it failed


class Cancelled(_Event, frozen=True, tag="cancelled"):
    job_ids: tuple[str, ...]
    at: datetime


class Joined(_Event, frozen=True, tag="joined"):
    worker: WorkerInfo


class Left(_Event, frozen=True, tag="left"):
    worker: str
    at: datetime
    is_lost: bool = False  # it died


class Moved(_Event, frozen=True, tag="moved"):
    """The last event of a log: it continues in another session."""

    to: str


class Snapshot(_Event, frozen=True, tag="snapshot"):
    """The first events of a log that continues another one."""

    waiting: tuple[Job, ...] = ()
    running: tuple[RunningJob, ...] = ()
    stuck: tuple[Job, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()
    recent: tuple[str, ...] = ()
    outcomes: dict[str, int] = {}
    ended: dict[str, int] = {}
    starts: tuple[Start, ...] = ()


Event = Enqueued | Claimed | Completed | Cancelled | Joined | Left | Moved | Snapshot


def dump_event(event: Event) -> dict[str, Any]:
    """The event as JSON."""
    value: dict[str, Any] = msgspec.to_builtins(event)
    return value


def load_event(data: Any) -> Event:
    """The event; `StoreError` if it is damaged or from a newer version, whose meaning is unknown."""
    try:
        return msgspec.convert(data, Event)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        text = f"The queue contains an event that this version cannot read ({error}). Upgrade Bartack."
        raise StoreError(text, code=ErrorCode.STORAGE_UNSUPPORTED) from None
