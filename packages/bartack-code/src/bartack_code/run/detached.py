"""`bartack run --detach`: queue a prompt for a worker."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from bartack.agent.run import as_message
from bartack.app.errors import with_hint
from bartack.app.queues import opened_queue
from bartack.app.sessions import configured_store, ensure_session, latest_session_here
from bartack.cli.output import note, print_json
from bartack.cli.store_access import store_flag, with_store
from bartack.nouns.errors import QueueFull
from bartack.nouns.parts import FileRef, Image
from bartack.queues import Job, submit
from bartack.store import SessionStore
from bartack.store.foreign import adopt

__all__ = ["DetachedPrompt", "next_at", "submit_detached"]


class DetachedPrompt(NamedTuple):
    """A prompt for a worker."""

    text: str
    attachments: tuple[Image | FileRef, ...]
    session: str | None
    continue_latest: bool
    adopt: bool
    agent: str
    queue: str
    engine: str
    priority: int
    start: datetime | None


def submit_detached(prompt: DetachedPrompt, store: str | None, *, as_json: bool, quiet: bool) -> None:
    """Queue the prompt, and print the session, or the job as JSON."""
    address = configured_store(store)

    async def work(opened: SessionStore) -> Job:
        async with opened_queue(address, opened, prompt.queue, engine=prompt.engine) as queue:
            try:
                await queue.check_room()  # checked before a session is created
                return await submit(
                    opened,
                    queue,
                    as_message(*prompt.attachments, prompt.text),
                    session_id=await _session_for(opened, prompt),
                    agent=prompt.agent,
                    priority=prompt.priority,
                    at=next_at(prompt.start, opened.environment.now()),
                )
            except QueueFull as error:
                raise with_hint(error, "Try again later, or start more workers with 'bartack worker'.") from None

    job = with_store(store, work, may_be_new=True)
    if as_json:
        value: dict[str, Any] = msgspec.to_builtins(job)
        print_json(value)
        return
    print(job.session_id)
    if not quiet:
        note(f"queued; follow it with: bartack show{store_flag(address)} {job.session_id}", is_dim=True)


async def _session_for(opened: SessionStore, prompt: DetachedPrompt) -> str:
    if prompt.continue_latest:
        session_id = await latest_session_here(opened)
    else:
        session_id = await ensure_session(opened, prompt.session, prompt=prompt.text, program="bartack run")
    if prompt.adopt:
        await adopt(opened, session_id)
    return session_id


def next_at(start: datetime | None, now: datetime) -> datetime | None:
    """The local time; if only hours and minutes were given, the next such time."""
    if start is None or start.year != 1900:
        return start
    # Without a time zone: the clock may change before then.
    local_time = now.astimezone().replace(tzinfo=None)
    start = datetime.combine(local_time, start.time())
    return start if start > local_time else start + timedelta(days=1)
