"""Handing runs to workers: `submit` a prompt, `continue_run` after a decision, and `cancel_run`.

The prompt is a fact of the session, as if any other process had queued it, and the job is named after its entry. Each
step can therefore be repeated after a failure and takes effect once. The entry also contains the job. If the process
dies between storing one and enqueueing the other, workers find out (`requested_jobs`) and enqueue it.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import to_builtins
from msgspec.structs import replace

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Custom,
    Entry,
    Fact,
    MessageQueued,
    Redaction,
    ResultPosted,
    RunEnded,
    SessionHeader,
)
from bartack.nouns.errors import Conflict, KeyReused, NotFound
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Part
from bartack.nouns.wire import dump, load
from bartack.queues.run_queue import JOB_KEY, Job, RunQueue, job_of
from bartack.session.title import title_from
from bartack.store.foreign import check_adopted
from bartack.store.open_work import SCHEDULED, delivery_id
from bartack.store.requests import load_state, post, post_from, redact, request_abort
from bartack.store.session_store import SessionStore

__all__ = [
    "OLDEST_REQUEST",
    "cancel_run",
    "continuation_of",
    "continue_run",
    "deliver_scheduled",
    "enqueue_requested",
    "requested_jobs",
    "submit",
    "submitted_job",
]

OLDEST_REQUEST = timedelta(days=1)
"""Older requests, as in a restored backup, do not start anything."""
_CONTINUING = (ApprovalDecided, ResultPosted, AbortRequested)


async def submit(
    store: SessionStore,
    queue: RunQueue,
    message: Message,
    *,
    session_id: str,
    agent: str,
    model: ModelRef | None = None,
    user: str | None = None,
    priority: int = 0,
    at: datetime | None = None,
    key: str | None = None,
    head: str | None = None,
    header: SessionHeader | None = None,
) -> Job:
    """Queue a message for a session, creating it if needed, and enqueue a job for it. Both happen once per `key`.

    With `at`, the message is delivered at that time, which is local unless it has a time zone; with `head`, it starts a
    branch there. `model` is the model whose limits apply to the run.

    Raises `QueueFull`, `KeyReused` if another message was submitted with the `key`, or `NotAdopted` for a foreign
    session, without storing anything.
    """
    await check_adopted(store, session_id)
    due = None if at is None else _moment(at)
    await queue.check_room(user)
    with suppress(Conflict):  # it exists
        await store.create_session(session_id, header or SessionHeader(title=title_from(message.text)))
    entry_id = store.environment.new_id() if key is None else derived_id(session_id, f"submitted {key}")
    job = Job(
        id=entry_id,
        session_id=session_id,
        agent=agent,
        queued_at=store.environment.now(),
        priority=priority,
        not_before=due,
        scheduled=None if due is None else entry_id,
        user=user,
        provider=None if model is None else model.provider,
        model=None if model is None else model.model,
        queue=queue.name,
        engine=queue.engine,
    )
    # The entry names the job: should this process die now, a worker enqueues it.
    metadata = {JOB_KEY: to_builtins(job)}
    fact: Fact = MessageQueued(message=message, requested_by=user, metadata=metadata)
    if due is not None:
        fact = Custom(name=SCHEDULED, data={"message": dump(message), **metadata})
    entry = await post(store, session_id, fact, head=head, entry_id=entry_id)
    if key is not None and _submitted_parts(entry) != message.parts and not await _is_redacted(store, entry):
        raise KeyReused(f"The key {key!r} was used in session {session_id!r} for another prompt.", key=key)
    job = submitted_job(entry) or job  # another one, if it was submitted before
    await queue.enqueue(job)
    return job


def _moment(local: datetime) -> datetime:
    """The moment of a time, which is local unless it has a time zone. One that a clock change skips is after it."""
    moment = datetime.fromtimestamp(local.timestamp(), UTC)
    wall = moment.astimezone(local.tzinfo).replace(tzinfo=None)
    if wall != local.replace(tzinfo=None):  # no clock shows this time; with fold=1 it would be before the change
        moment = datetime.fromtimestamp(local.replace(fold=0).timestamp(), UTC)
    return moment


def _submitted_parts(entry: Entry) -> tuple[Part, ...]:
    """The content that the entry was submitted with."""
    match entry.fact:
        case MessageQueued(message=message):
            return message.parts
        case Custom(data=data):
            return load(Message, data.get("message")).parts
        case _:
            return ()


async def _is_redacted(store: SessionStore, entry: Entry) -> bool:
    """Whether the content of the entry may have been erased."""
    facts = [other.fact for other in await store.entries(entry.session_id, after_seq=entry.seq)]
    return any(isinstance(fact, Redaction) and fact.entry_id == entry.id for fact in facts)


def submitted_job(entry: Entry) -> Job | None:
    """The job that a message was submitted with. A copy of the entry in another session has none."""
    match entry.fact:
        case MessageQueued(metadata=metadata):
            job = job_of(metadata)
        case Custom(name=name, data=data) if name == SCHEDULED:
            job = job_of(data)
        case _:
            return None
    is_own = job is not None and (job.id, job.session_id) == (entry.id, entry.session_id)
    return job if is_own else None


async def requested_jobs(store: SessionStore, session_id: str, since: datetime) -> list[Job]:
    """The jobs for what was requested in a session since then and is still to be done. They have been enqueued, unless
    the process that stored the request died before it could do that.

    The job of a prompt may have ended without it: it found a run that waits, and left the prompt to that run. If the
    run then ends without delivering it, the prompt gets another job, which is named after the end of the run.
    """
    _, state = await load_state(store, session_id)
    entries = await store.entries(session_id)
    stored = {entry.id for entry in entries}
    withdrawn = {entry.fact.entry_id for entry in entries if isinstance(entry.fact, Redaction)}
    open_run = job_of(state.metadata) if state.run_id is not None and (state.abort or state.answers) else None
    last_end = next((entry for entry in reversed(entries) if isinstance(entry.fact, RunEnded)), None)
    continuing: list[Job] = []
    waiting: dict[str, Job] = {}
    for entry in entries:
        job = submitted_job(entry)
        is_passed = last_end is not None and entry.seq < last_end.seq
        moment = last_end.timestamp if last_end is not None and is_passed else entry.timestamp
        if job is not None and (entry.id if job.scheduled is None else delivery_id(job.id)) in state.inbox:
            if last_end is not None and is_passed and state.run_id is None:
                job = replace(job, id=derived_id(last_end.id, "requests"), not_before=None, scheduled=None)
            waiting |= {job.id: job} if moment >= since else {}
        elif entry.timestamp < since:
            continue
        elif job is not None and job.scheduled is not None:
            waiting |= {job.id: job} if entry.id not in withdrawn and delivery_id(job.id) not in stored else {}
        elif open_run is not None and open_run.session_id == session_id and isinstance(entry.fact, _CONTINUING):
            continuing = [continuation_of(open_run, entry.id, entry.timestamp)]  # the last is enough for all
    return [*continuing, *waiting.values()]


async def enqueue_requested(store: SessionStore, queue: RunQueue, session_id: str) -> None:
    """Enqueue a job for every open request of a session. Jobs that the queue knows are not added again.

    This is the liveness rule: every open request of a session that nobody holds has a job. It is applied where a run
    ends, and by the supervisor of the workers to every session that has changed.
    """
    for job in await requested_jobs(store, session_id, store.environment.now() - OLDEST_REQUEST):
        if (job.queue, job.engine) == (queue.name, queue.engine):
            await queue.enqueue(job)


async def deliver_scheduled(store: SessionStore, job: Job) -> None:
    """Queue the message of a job that was scheduled, unless it was withdrawn in the meantime.

    Raises `NotAdopted` for a foreign session.
    """
    await check_adopted(store, job.session_id)
    if job.scheduled is not None:
        with suppress(_Withdrawn):
            await post_from(store, job.session_id, partial(_delivery, job), entry_id=delivery_id(job.id))


class _Withdrawn(Exception):
    """The message is not to be delivered."""


def _delivery(job: Job, entries: Iterable[Entry]) -> MessageQueued:
    facts = {entry.id: entry.fact for entry in entries}
    scheduled = facts.get(job.scheduled or "")
    if not isinstance(scheduled, Custom) or any(
        isinstance(fact, Redaction) and fact.entry_id == job.scheduled for fact in facts.values()
    ):
        raise _Withdrawn
    return MessageQueued(message=load(Message, scheduled.data.get("message")), requested_by=job.user)


async def continue_run(store: SessionStore, queue: RunQueue, request: Entry) -> Job | None:
    """Enqueue a job for the open run of a session after a decision, a result or an abort was posted there.

    None if the run does not belong to a worker, or the request does not continue it. If the run is live after all,
    nothing happens twice.
    """
    if not isinstance(request.fact, _CONTINUING):
        return None
    _, state = await load_state(store, request.session_id)
    last = job_of(state.metadata)
    if state.run_id is None or last is None or (last.queue, last.engine) != (queue.name, queue.engine):
        return None
    job = continuation_of(last, request.id, request.timestamp)
    await queue.enqueue(job)
    return job


def continuation_of(last: Job, job_id: str, queued_at: datetime) -> Job:
    """The job that continues the run of another one."""
    return replace(last, id=job_id, queued_at=queued_at, has_begun=True, not_before=None, scheduled=None, attempt=1)


async def cancel_run(
    store: SessionStore,
    queue: RunQueue,
    session_id: str,
    *,
    reason: str | None = None,
    requested_by: str | None = None,
) -> bool:
    """Withdraw the messages that no run has begun with, and end the open run; False if there was nothing to cancel."""
    jobs = await queue.cancel(session_id)
    has_cancelled = bool(jobs)
    try:
        requested = await requested_jobs(store, session_id, datetime.min.replace(tzinfo=UTC))
        own = [job for job in (*jobs, *requested) if (job.queue, job.engine) == (queue.name, queue.engine)]
        stored = {entry.id for entry in await store.entries(session_id)}
        for scheduled in {job.scheduled for job in own if delivery_id(job.id) not in stored}:
            if scheduled is not None:
                await redact(store, session_id, scheduled, reason=reason or "cancelled")
                has_cancelled = True
        # After that, because a worker may have delivered a scheduled message just before.
        _, state = await load_state(store, session_id)
        for message in state.inbox:
            await redact(store, session_id, message, reason=reason or "cancelled")
            has_cancelled = True
        request = await request_abort(store, session_id, reason=reason, requested_by=requested_by)
    except NotFound:  # no run is open, or the session was purged
        return has_cancelled
    await continue_run(store, queue, request)
    return True
