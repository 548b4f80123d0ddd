"""`bartack workers`: what the workers of a store are doing, and what waits for them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

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
_FAILED = columns("session agent user? age# reason")
_RUNS = columns("session agent user? worker? attempt# age# state")


@app.command(no_args_is_help=False)
def workers(
    view: Annotated[
        Literal["failed"] | None,
        typer.Argument(metavar="[failed]", help="With 'failed', list the runs that were set aside, and why."),
    ] = None,
    *,
    retry: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            autocompletion=complete_sessions,
            help="Run what was set aside in this session again.",
        ),
    ] = None,
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
            changed = cancel is not None and await cancel_run(opened, jobs, cancel)
            if retry is not None:
                changed = bool(await jobs.retry(retry))
            return await jobs.status(), changed

    status, is_changed = with_store(store, load, for_reading=cancel is None and retry is None)
    if as_json:
        print_json(status.as_json())
        return
    if retry is not None:
        note("queued again" if is_changed else f"no run of session {safe_line(retry)} was set aside")
    if view == "failed":
        print_table(_FAILED, _failed_rows(status))
        note(f"{plural(len(status.stuck), 'run')} set aside; --retry SESSION runs one again, --cancel SESSION drops it")
        return
    if cancel is not None:
        note("cancelled" if is_changed else f"session {safe_line(cancel)} has no queued or live run")
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
    for worker in status.workers:
        runs = sum(running.worker == worker.id for running in status.running)
        agents = safe_line(" ".join(worker.agents))
        age = _age(worker.started_at, status.at)
        yield worker.id, safe_line(worker.host), str(worker.pid), agents, str(runs), str(worker.slots), age


def _run_rows(status: QueueStatus) -> Iterator[Row]:
    live = [(run.job, run.worker, run.since, "cancelled" if run.is_cancelled else "live") for run in status.running]
    stuck = [(job, "", job.queued_at, "stuck") for job in status.stuck]
    for job, worker, since, state in (*live, *stuck):
        session, agent, user = map(safe_line, (job.session_id, job.agent, job.user or ""))
        yield session, agent, user, worker, str(job.attempt), _age(since, status.at), state


def _failed_rows(status: QueueStatus) -> Iterator[Row]:
    for job in status.stuck:
        session, agent, user, reason = map(safe_line, (job.session_id, job.agent, job.user or "", job.problem or ""))
        yield session, agent, user, _age(job.queued_at, status.at), reason


def _age(since: datetime, current: datetime) -> str:
    seconds = max(0, int((current - since).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
