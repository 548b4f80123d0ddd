"""Handing runs to workers: `submit` a prompt, `continue_run` after a decision, and `cancel_run`.

The prompt is a fact of the session, as if any other process had queued it, and the job is named after its entry. So
each step can be repeated after a failure, and has an effect once.
"""

from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    Custom,
    Entry,
    Fact,
    MessageQueued,
    ResultPosted,
    SessionHeader,
)
from bartack.nouns.errors import Conflict, NotFound, PartValidationError
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.wire import dump, load
from bartack.queues.job import Job, job_of
from bartack.queues.run_queue import RunQueue
from bartack.store.requests import load_state, post, redact, request_abort
from bartack.store.session_store import SessionStore

__all__ = ["cancel_run", "continue_run", "deliver_scheduled", "submit"]

SCHEDULED = "bartack.scheduled"  # a fact with a message that is delivered later
_TITLE = 60  # characters of the first prompt


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
    """Queue a message for a session, which is created if needed, and enqueue a job for it; both once for each `key`.

    With `at`, the message is delivered then; with `head`, it begins a branch there. `model` is the one that limits
    count the run for.

    Raises `QueueFull`, and then nothing is stored.
    """
    await queue.check_room(user)
    title = " ".join(message.text.split())[:_TITLE]
    with suppress(Conflict):  # it exists
        await store.create_session(session_id, SessionHeader(title=title or None) if header is None else header)
    entry_id = store.environment.new_id() if key is None else derived_id(session_id, f"submitted {key}")
    fact: Fact = MessageQueued(message, requested_by=user)
    if at is not None:
        fact = Custom(SCHEDULED, {"message": dump(message)})
    entry = await post(store, session_id, fact, head=head, entry_id=entry_id)
    job = Job(
        id=entry.id,
        session_id=session_id,
        agent=agent,
        queued_at=entry.timestamp,
        priority=priority,
        not_before=at,
        scheduled=None if at is None else entry.id,
        user=user,
        provider=None if model is None else model.provider,
        model=None if model is None else model.model,
        queue=queue.name,
        engine=queue.engine,
    )
    await queue.enqueue(job)
    return job


async def deliver_scheduled(store: SessionStore, job: Job) -> None:
    """Queue the message of a job that was scheduled, unless it was redacted in the meantime."""
    if job.scheduled is None:
        return
    for entry in await store.load(job.session_id):
        if entry.id == job.scheduled and isinstance(entry.fact, Custom) and entry.fact.name == SCHEDULED:
            with suppress(PartValidationError):  # redacted
                message = load(Message, entry.fact.data.get("message"))
                fact = MessageQueued(message, requested_by=job.user)
                await post(store, job.session_id, fact, entry_id=derived_id(job.id, "delivered"))


async def continue_run(store: SessionStore, queue: RunQueue, request: Entry) -> Job | None:
    """Enqueue a job for the open run of a session after a decision, a result or an abort was posted there.

    None if the run is not one of a worker, or the request does not continue it. Nothing happens twice if the run is
    live all the same.
    """
    if not isinstance(request.fact, ApprovalDecided | ResultPosted | AbortRequested):
        return None
    _, state = await load_state(store, request.session_id)
    last = job_of(state.metadata)
    if state.run_id is None or last is None or (last.queue, last.engine) != (queue.name, queue.engine):
        return None
    job = replace(last, id=request.id, queued_at=request.timestamp, not_before=None, scheduled=None, attempt=1)
    await queue.enqueue(job)
    return job


async def cancel_run(
    store: SessionStore,
    queue: RunQueue,
    session_id: str,
    *,
    reason: str | None = None,
    requested_by: str | None = None,
) -> bool:
    """Withdraw the messages of jobs that no worker has begun, and end the open run; False if there was neither."""
    jobs = await queue.cancel(session_id)
    for job in jobs:
        with suppress(NotFound):  # not every job has a message of its own
            await redact(store, session_id, job.scheduled or job.id, reason=reason or "cancelled")
    try:
        request = await request_abort(store, session_id, reason=reason, requested_by=requested_by)
    except NotFound:
        return bool(jobs)
    await continue_run(store, queue, request)
    return True
