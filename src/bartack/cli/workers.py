"""`bartack workers`: what the workers of a store are doing, and what waits for them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from bartack.app.notices import plural
from bartack.app.queues import QUEUE, opened_queue
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store
from bartack.cli.options import EngineOption, JsonOption, QueueOption, StoreOption, complete_sessions, new_app
from bartack.cli.output import Row, columns, note, print_json, print_table
from bartack.cli.store_access import with_store
from bartack.queues import QueueStatus, cancel_run
from bartack.store import SessionStore

app = new_app("Show workers and queued runs.")

_WORKERS = columns("worker host? pid#? agents runs# slots# age#")
_RUNS = columns("session agent user? worker? attempt# age# state")


@app.command(no_args_is_help=False)
def workers(
    *,
    cancel: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            autocompletion=complete_sessions,
            help="Withdraw the queued runs of this session, and end the live one.",
        ),
    ] = None,
    queue: QueueOption = QUEUE,
    engine: EngineOption = "store",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the workers of a store, its live, waiting and stuck runs and their ages, and the throughput."""
    address = configured_store(store)

    async def load(opened: SessionStore) -> tuple[QueueStatus, bool]:
        async with opened_queue(address, opened, queue, engine=engine) as jobs:
            cancelled = cancel is not None and await cancel_run(opened, jobs, cancel)
            return await jobs.status(), cancelled

    status, is_cancelled = with_store(store, load, for_reading=cancel is None)
    if as_json:
        print_json(status.as_json())
        return
    if cancel is not None:
        note("cancelled" if is_cancelled else f"session {safe_line(cancel)} has no queued or live run")
    print_table(_WORKERS, _worker_rows(status))
    if status.running or status.stuck:
        print()
        print_table(_RUNS, _run_rows(status))
    waits = f", the oldest for {_age(status.oldest, status.at)}" if status.oldest is not None else ""
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(status.outcomes.items()))
    due = status.waiting - status.scheduled
    note(
        f"{plural(len(status.workers), 'worker')}, {len(status.running)} live, {due} waiting{waits}, "
        f"{status.scheduled} scheduled, {len(status.stuck)} stuck; {status.per_minute:g} per minute"
        + (f"; ended: {ended}" if ended else "")
    )


def _worker_rows(status: QueueStatus) -> Iterator[Row]:
    for one in status.workers:
        runs = sum(running.worker == one.id for running in status.running)
        agents = safe_line(" ".join(one.agents))
        age = _age(one.started_at, status.at)
        yield one.id, safe_line(one.host), str(one.pid), agents, str(runs), str(one.slots), age


def _run_rows(status: QueueStatus) -> Iterator[Row]:
    live = [(one.job, one.worker, one.since, "cancelled" if one.is_cancelled else "live") for one in status.running]
    stuck = [(job, "", job.queued_at, "stuck") for job in status.stuck]
    for job, worker, since, state in (*live, *stuck):
        session, agent, user = map(safe_line, (job.session_id, job.agent, job.user or ""))
        yield session, agent, user, worker, str(job.attempt), _age(since, status.at), state


def _age(since: datetime, now: datetime) -> str:
    seconds = max(0, int((now - since).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
