"""`DbosQueue`: a queue on the DBOS engine, in the PostgreSQL database of the store. Needs the extra ``distributed``.

Each job is a DBOS workflow whose input is the job. The workflow hands the job to the `Worker` of its process, waits
until the worker completes it, and ends with the outcome. Each model call and each round of tool calls is a step of the
workflow; the engine records only the step's number. A job that must be repeated is enqueued as another workflow before
its own workflow ends. The tables of DBOS therefore contain only scheduling state, as JSON, and no content.

The session's lease ensures that only one worker at a time runs a session: a job whose session is in use ends with the
outcome "again" and is retried a little later. DBOS's own queue partitions would do the same, but whenever a worker
looks for work, DBOS visits every partition with waiting jobs, so a backlog of 100,000 sessions costs a second each
time.

DBOS does not take over the workflows of a dead process. Workers therefore send heartbeats through the store, like those
of a `StoreQueue`; this also covers machines that are suspended or disconnected. A worker that finds workflows of a
process without a valid heartbeat resumes them. If that process is alive after all, the session's lease decides which of
the two may write.

If the database fails at the wrong moment, DBOS may assign a workflow to a process without starting it there. The
process is alive but does not know about the workflow, so each process also resumes its own workflows that have not
started.

Jobs that have begun use a separate queue with separate slots, so the runs of a dead worker, and runs that were waiting
for a person, do not wait for others to end.

Users take turns, although DBOS knows only priorities and the order of arrival. A job gets a *turn* when it is enqueued:
one more than the last waiting job of its user, but at least one more than the smallest turn of all that wait. Turns are
the lower digits of the priority in DBOS. A user with many jobs thus has one in each turn, and a job is overtaken only
by jobs of smaller turns, of which there are no new ones once the front has reached its own. Jobs without a user get
the second of the two numbers, which is the order of arrival.

Each version of the step protocol has its own queues, and a worker takes jobs from the queues of its own version and
older ones. The DBOS application version, which would restrict a process to workflows of one version, is always the
same.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions, WorkflowStatus
from dbos import error as dbos_error
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from bartack.nouns.errors import Conflict, ErrorCode, NotFound, SessionInUse, StoreError
from bartack.queues.run_queue import (
    MAX_DEATHS,
    PROTOCOL,
    Job,
    Limit,
    Outcome,
    QueueStatus,
    RunningJob,
    WorkerInfo,
    queue_full_error,
)
from bartack.queues.state import death_notice
from bartack.queues.store_queue import MAX_WAITING, StoreQueue
from bartack.store.address import WEAK_SETTINGS, PostgresAddress
from bartack.store.postgres.connection import KEEPALIVES, SERVER_KEEPALIVES, SILENT_S, Database, Record, quoted
from bartack.store.session_store import RESERVED, SessionStore

__all__ = ["DbosQueue"]

_WORKFLOW = "bartack.job"
# The name of the application and its version in DBOS. The version of the step protocol is part of the queue names.
_APPLICATION = "bartack"
_POLL_S = 0.5  # how often each worker looks for work, in each queue
# Jobs that have begun are in a queue with this suffix, which has this many times the slots of the other queue.
_BEGUN = "-begun"
_BEGUN_SLOTS = 2
_POOL = 8  # connections of the engine, whose own default is 20; waiting for one takes milliseconds
_IDLE_S = 4.0  # how long a process stopped in a transaction keeps its rows locked; the engine's default is 60
_WAITING = ["ENQUEUED", "DELAYED"]
_KEPT = timedelta(days=1)  # how long ended workflows are kept, and with them the ids of jobs
# Every so many heartbeats, ended workflows are deleted: at most ten batches of a thousand, which is more than a worker
# can complete in the meantime, and does not delay its other duties.
_CLEAN_EVERY = 20
_CLEANED = 1000
_CLEANINGS = 10
_LISTED = 1000
_COUNTED_S = 1.0  # how long a count of waiting jobs is valid
_SHARE = 100  # one in this many free places may be taken without counting again
_ADMISSION_S = 5.0  # how long a worker that dies while it checks limits keeps others from checking
_HELD_BACK_S = 1.0  # delay before a job held back by a limit is tried again
_STARTING = 0  # instead of the time of its start: the run was admitted, and its start has not been reported
# How many runs within a limit are live, and how many have started since then or may yet start. The run of a workflow
# that ended without a reported start may have started at any time until then. Ended workflows are found by the time of
# their end, which is after their start, and others by their status: there are indexes for both.
_COUNT = """
    SELECT count(*) FILTER (WHERE status = 'PENDING'),
           count(*) FILTER (WHERE started_ms > $3 OR started_ms = $4 AND coalesce(completed_at > $3, TRUE))
    FROM (
        SELECT status, completed_at, (attributes ->> 'startedMs')::bigint AS started_ms
        FROM {schema}.workflow_status
        WHERE attributes @> $1::jsonb AND workflow_uuid <> $2
        AND (status IN ('ENQUEUED', 'PENDING') OR completed_at > $3)
    ) AS admitted
"""
_MINUTES = 5
# DBOS starts the lowest number from 1 to 2,147,483,647 first. It is made of the priority of a job and its turn.
_PRIORITIES = 1000  # the highest priority, and with a minus sign the lowest; higher ones count as this one
_TURNS = 1_000_000

T = TypeVar("T")

_log = logging.getLogger("bartack.queues")


class _Seat(msgspec.Struct):
    """A workflow of this process that waits for its job to be completed. It belongs to DBOS's event loop."""

    job: Job
    workflow_id: str
    loop: asyncio.AbstractEventLoop
    news: "asyncio.Queue[int | str]"  # the numbers of its steps, and at last its outcome

    def put(self, news: int | str) -> None:
        """Called from the worker's event loop."""
        self.loop.call_soon_threadsafe(self.news.put_nowait, news)


class _WaitingCount(NamedTuple):
    """The waiting workflows of one status."""

    status: str
    jobs: int
    oldest_ms: int


class DbosQueue:
    """A `RunQueue` on DBOS. A process that claims jobs can have only one, because DBOS is global."""

    engine = "dbos"
    records_steps = True

    def __init__(
        self,
        store: SessionStore,
        address: str,
        name: str = "default",
        *,
        limits: Sequence[Limit] = (),
        max_waiting: int = MAX_WAITING,
        max_waiting_per_user: int | None = None,
        ttl_s: float = 6.0,
        max_deaths: int = MAX_DEATHS,
    ) -> None:
        """`address` is the PostgreSQL address of the store. The other options are those of `StoreQueue`."""
        self.name = name
        self._store = store
        self._members = StoreQueue(store, f"{name}.workers", ttl_s=ttl_s)
        self._limits = limits
        self._max_waiting = max_waiting
        self._max_deaths = max_deaths
        self._max_waiting_per_user = max_waiting_per_user
        self._url, schema = _engine_address(address)
        self._database = Database(address)
        self._schema = f"{schema}_dbos"
        self._queues = [
            queue_name for protocol in range(1, PROTOCOL + 1) for queue_name in _queue_names(name, protocol)
        ]
        self._client_: DBOSClient | None = None
        self._opening = asyncio.Lock()
        self._launching = asyncio.Lock()
        self._claiming = asyncio.Lock()
        self._counting = asyncio.Lock()
        self._executor: str | None = None  # once this process claims jobs
        self._offered: deque[_Seat] = deque()
        self._has_offer = asyncio.Event()
        self._seats: dict[str, _Seat] = {}  # claimed ones, by job
        self._begun: set[str] = set()  # workflows of this process
        self._suspects: set[str] = set()  # workflows assigned to this process that it has not begun
        self._beats = 0
        self._room, self._room_until = 0, 0.0  # how many jobs may be added without counting, and until when

    @property
    def beat_s(self) -> float:
        """How often a worker must call `heartbeat`."""
        return self._members.beat_s

    # -- the engine

    async def _client(self) -> DBOSClient:
        async with self._opening:
            if self._client_ is None:
                self._client_ = await _translate_errors(asyncio.to_thread(self._connect))
                await self._database.open_pool()
            return self._client_

    def _connect(self) -> DBOSClient:
        DBOS.migrate(self._url, schema=self._schema)
        return DBOSClient(
            system_database_url=self._url,
            dbos_system_schema=self._schema,
            serializer=DBOSPortableJSONSerializer(),
            application_name=_APPLICATION,
            retry_connection_errors=False,
            sys_db_idle_transaction_timeout_sec=_IDLE_S,
        )

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client in a thread; `StoreError` if the server fails."""
        return await _translate_errors(
            asyncio.to_thread(partial(getattr(await self._client(), method), *args, **options))
        )

    async def _list(self, **options: Any) -> list[WorkflowStatus]:
        options = {"queue_name": self._queues, "load_input": False, "load_output": False, **options}
        workflows: list[WorkflowStatus] = await self._call("list_workflows", **options)
        return workflows

    # -- for everyone

    async def check_room(self, user: str | None = None) -> None:
        """Raise `QueueFull` if another job of this user would exceed a limit."""
        limit = self._max_waiting_per_user
        if user is not None and limit is not None:
            queued = await self._list(status=_WAITING, attributes={"user": user}, limit=limit + 1)
            if len(queued) >= limit:
                raise queue_full_error(len(queued), limit, user)
        async with self._counting:  # one task counts for those that come while it does
            loop_time = asyncio.get_running_loop().time()
            if self._room > 0 and loop_time < self._room_until:
                self._room -= 1
                return
            waiting = sum(group.jobs for group in await self._waiting())
            # Counting takes longer the more are waiting. Far from the limit, a process may submit some without it. Each
            # of several processes has such a share, so it is small, and none is left close to the limit.
            self._room, self._room_until = (self._max_waiting - waiting) // _SHARE, loop_time + _COUNTED_S
            if waiting >= self._max_waiting:
                raise queue_full_error(waiting, self._max_waiting)

    async def enqueue(self, job: Job) -> None:
        """Add a job. One with an id that was enqueued before has no effect."""
        await self._enqueue(job, job.id)

    async def _enqueue(self, job: Job, workflow_id: str, *, place: int | None = None) -> None:
        """`place` is the number that DBOS sorts by, if the job had one before."""
        queue_name = _queue_names(self.name, job.protocol)[job.has_begun]
        names = {"session": job.session_id, "user": job.user, "provider": job.provider, "model": job.model}
        options: EnqueueOptions = {
            "workflow_name": _WORKFLOW,
            "queue_name": queue_name,
            "workflow_id": workflow_id,
            "app_version": _APPLICATION,
            "priority": await self._place_in(queue_name, job) if place is None else place,
            "attributes": {
                "protocol": job.protocol,
                **{key: value for key, value in names.items() if value is not None},
            },
        }
        delay_s = 0.0 if job.not_before is None else (job.not_before - self._now()).total_seconds()
        if delay_s > 0:
            options["delay_seconds"] = delay_s
        await self._call("enqueue", options, msgspec.to_builtins(job))

    async def _place_in(self, queue_name: str, job: Job) -> int:
        """The number that DBOS sorts the job by: its priority, and within that the turn of its user."""
        rank = _PRIORITIES - min(max(job.priority, -_PRIORITIES), _PRIORITIES)
        first, last = rank * _TURNS + 1, (rank + 1) * _TURNS
        waiting = "FROM {schema}.workflow_status WHERE queue_name = $1 AND status = $2 AND priority BETWEEN $3 AND $4"
        query = f"SELECT (SELECT min(priority) {waiting})"
        values: list[object] = [queue_name, "ENQUEUED", first, last]
        if job.user is not None:
            query += f", (SELECT max(priority) {waiting} AND attributes @> $5::jsonb)"
            values.append(_json({"user": job.user}))
        (places,) = await self._fetch(query, *values)
        return min(max((place + 1 for place in places if place is not None), default=first), last)

    async def cancel(self, session_id: str) -> tuple[Job, ...]:
        """Remove the jobs of a session, and return them."""
        open_workflows = await self._list(
            status=[*_WAITING, "PENDING"], attributes={"session": session_id}, load_input=True
        )
        if open_workflows:
            await self._call("cancel_workflows", [workflow.workflow_id for workflow in open_workflows])
        stuck = await self._stuck(session=session_id)
        if stuck:
            await self._call("delete_workflows", [workflow.workflow_id for workflow in stuck])
        return tuple(map(_job_of, [*open_workflows, *stuck]))

    async def retry(self, session_id: str) -> tuple[Job, ...]:
        """Return the jobs of a session that were set aside to the queue."""
        stuck = await self._stuck(session=session_id)
        for workflow in stuck:
            attributes = {"resumed": 0, "stuck": ""}
            await self._call("update_workflow_attributes", workflow.workflow_id, attributes, merge=True)
            await self._resume([workflow.workflow_id], _protocol_of(workflow))
        return tuple(map(_job_of, stuck))

    async def status(self) -> QueueStatus:
        """What the queue is doing. Outcomes are those of the last minutes."""
        current_time = self._now()
        members = await self._members.status()
        workers = {worker.executor: worker.id for worker in members.workers}
        pending = await self._list(status="PENDING", load_input=True, limit=_LISTED)
        outcomes = await self._outcomes(current_time - timedelta(minutes=_MINUTES))
        waiting = {group.status: group for group in await self._waiting()}
        return QueueStatus(
            queue=self.name,
            at=current_time,
            waiting=sum(group.jobs for group in waiting.values()),
            scheduled=waiting["DELAYED"].jobs if "DELAYED" in waiting else 0,
            oldest=_time(waiting["ENQUEUED"].oldest_ms) if "ENQUEUED" in waiting else None,
            running=tuple(
                RunningJob(
                    job=_job_of(workflow),
                    worker=workers.get(workflow.executor_id, ""),
                    since=_time(workflow.dequeued_at) or current_time,
                )
                for workflow in pending
            ),
            stuck=tuple(map(_stuck_job, await self._stuck())),
            workers=members.workers,
            outcomes=outcomes,
            per_minute=round(sum(outcomes.values()) / _MINUTES, 1),
        )

    async def _stuck(self, **attributes: str) -> list[WorkflowStatus]:
        """Workflows that were set aside. They are cancelled, and DBOS clears the queue name of a cancelled workflow."""
        attributes["stuck"] = self.name
        return await self._list(
            status="CANCELLED", queue_name=None, attributes=attributes, load_input=True, limit=_LISTED
        )

    async def _waiting(self) -> "list[_WaitingCount]":
        """The number of waiting workflows by status."""
        query = "SELECT status, count(*), min(created_at) FROM {} GROUP BY status"
        return [_WaitingCount(*row) for row in await self._select(query, _WAITING)]

    async def _outcomes(self, since: datetime) -> dict[str, int]:
        """How many jobs have ended since then, by their outcome."""
        query = (
            "SELECT ended.output, count(*) FROM {} JOIN {schema}.workflow_output AS ended USING (workflow_uuid) "
            "WHERE completed_at >= $3 GROUP BY ended.output"
        )
        rows = await self._select(query, ["SUCCESS"], int(since.timestamp() * 1000))
        counts: dict[str, int] = {msgspec.json.decode(output): count for output, count in rows}
        return {outcome: count for outcome, count in counts.items() if outcome != "again"}

    async def _executors(self) -> set[str]:
        """The processes that workflows are assigned to."""
        return {str(row[0]) for row in await self._select("SELECT DISTINCT executor_id FROM {}", ["PENDING"])}

    async def _select(self, query: str, statuses: Sequence[str], *values: object) -> Sequence[Record]:
        """Read the tables that DBOS documents, because its API can neither count nor summarise. ``{}`` in the query
        stands for the workflows of the queue with one of these statuses."""
        workflows = "SELECT * FROM {schema}.workflow_status WHERE queue_name = ANY ($1) AND status = ANY ($2)"
        query = query.replace("{}", f"({workflows}) AS workflows")
        return await self._fetch(query, self._queues, statuses, *values)

    async def _fetch(self, query: str, *values: object) -> Sequence[Record]:
        await self._client()  # creates the tables
        statement = query.replace("{schema}", quoted(self._schema))
        return await self._database.read(lambda connection: connection.fetch(statement, *values), "reading the queue")

    async def close(self) -> None:
        """Stop the engine in this process. Jobs that it has started but no worker has claimed return to the queue."""
        if self._executor is not None:
            self._executor = None
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
            for seat in self._offered:
                with suppress(StoreError):  # others find that this process is gone
                    await self._resume([seat.workflow_id], seat.job.protocol)
            self._offered.clear()
        if self._client_ is not None:
            client, self._client_ = self._client_, None
            await asyncio.to_thread(client.destroy)
            await self._database.close()

    # -- for workers

    async def heartbeat(self, worker: WorkerInfo) -> None:
        """Record that the worker is alive. The first heartbeat launches the engine."""
        async with self._launching:
            if self._executor is None:
                await self._client()  # creates the tables
            executor = self._executor or worker.id
            await self._members.heartbeat(replace(worker, executor=executor))
            if self._executor is None:
                self._offered.clear()  # a launch that failed halfway has offered them, and its loop is closed
                self._begun.clear()
                await _translate_errors(
                    asyncio.to_thread(self._launch, executor, worker.slots, asyncio.get_running_loop())
                )
                self._executor = executor

    async def reap(self, worker: WorkerInfo) -> None:
        """Resume the workflows of dead workers."""
        await self._members.reap(worker)
        if self._executor is not None:
            await self._resume_abandoned(self._executor)
        self._beats += 1
        if self._beats % _CLEAN_EVERY == 0:
            await self._clean()

    def _launch(self, executor: str, slots: int, loop: asyncio.AbstractEventLoop) -> None:
        """Start the engine in a thread. Workflows run in DBOS's event loop; jobs are offered to the worker's."""
        config: DBOSConfig = {
            "name": _APPLICATION,
            "system_database_url": self._url,
            "dbos_system_schema": self._schema,
            "application_version": _APPLICATION,
            "executor_id": executor,
            "sys_db_pool_size": _POOL,
            "sys_db_idle_transaction_timeout_sec": _IDLE_S,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": False,
            "use_listen_notify": False,
            "log_level": "CRITICAL",  # a workflow that was cancelled is not an error
            "enable_otlp": False,
        }
        DBOS.destroy(destroy_registry=True)  # what is left of a launch that failed
        DBOS(config=config)

        async def work(data: dict[str, Any]) -> str:
            workflow_id = DBOS.workflow_id
            assert workflow_id is not None
            seat = _Seat(msgspec.convert(data, Job), workflow_id, asyncio.get_running_loop(), asyncio.Queue())
            loop.call_soon_threadsafe(self._offer, seat)
            while isinstance(news := await seat.news.get(), int):
                await DBOS.run_step_async({"name": "step"}, _record_number, news)
            return news

        DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)(work)
        DBOS.listen_queues(self._queues)
        DBOS.launch()
        for name in self._queues:
            DBOS.register_queue(
                name,
                worker_concurrency=_BEGUN_SLOTS * slots if name.endswith(_BEGUN) else slots,
                polling_interval_sec=_POLL_S,
                on_conflict="always_update",
            )

    def _offer(self, seat: _Seat) -> None:
        self._begun.add(seat.workflow_id)
        self._offered.append(seat)
        self._has_offer.set()

    async def claim(self, worker: WorkerInfo, wait_s: float, *, begun_only: bool = False) -> Job | None:
        """The next job that the engine has started here; None if there is none within `wait_s`. DBOS counts the
        slots.
        """
        del begun_only
        async with self._claiming:  # the first offer stays first until it is claimed or returned
            if not self._offered:
                self._has_offer.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._has_offer.wait()
                except TimeoutError:
                    return None
            return await self._claim_first(worker)

    async def _claim_first(self, worker: WorkerInfo) -> Job | None:
        seat = self._offered[0]  # it stays there if the store fails
        job = seat.job
        former = self._seats.get(job.id)
        if former is not None and former.workflow_id == seat.workflow_id:
            # This process was taken for dead, and its workflow was resumed here: it works on the job already.
            former.put("again")
        elif former is not None or job.agent not in worker.agents or not await self._is_admitted(seat):
            # With `former`, the workflow continues one that this process is about to end.
            await self._end(seat, "again", _HELD_BACK_S, has_begun=False)
            self._offered.popleft()
            return None
        self._seats[job.id] = seat
        self._offered.popleft()
        return job if former is None else None

    async def _is_admitted(self, seat: _Seat) -> bool:
        """Whether the limits allow the job to run now. Workers check one at a time, so no limit is exceeded."""
        names = {limit: getattr(seat.job, limit.by) for limit in self._limits}
        limits = [limit for limit, value in names.items() if value is not None and limit.name in (None, value)]
        if not limits:
            return True
        async with self._admission():
            for limit in limits:
                if not await self._has_room(limit, names[limit], seat.workflow_id):
                    return False
            # If no limit counts starts, no start is reported, and the run counts as started.
            started_ms = _STARTING if self._counts_starts else self._now_ms()
            attributes = {"admitted": self.name, "startedMs": started_ms}
            await self._call("update_workflow_attributes", seat.workflow_id, attributes, merge=True)
        return True

    async def _has_room(self, limit: Limit, value: str, workflow_id: str) -> bool:
        """Whether a limit allows one more. What it counts, it counts in the database, and reads no workflows."""
        since_ms = self._now_ms() - int(limit.per_s * 1000)
        admitted = _json({"admitted": self.name, limit.by: value})
        ((running, started),) = await self._fetch(_COUNT, admitted, workflow_id, since_ms, _STARTING)
        is_free = limit.running is None or running < limit.running
        return is_free and (limit.starts is None or started < limit.starts)

    @property
    def _counts_starts(self) -> bool:
        return any(limit.starts is not None for limit in self._limits)

    async def start(self, worker: WorkerInfo, job: Job) -> None:
        """Record that the run of a claimed job has started, if a limit counts starts."""
        del worker  # the workflow has one owner
        seat = self._seats.get(job.id)
        if seat is not None and self._counts_starts:
            await self._call("update_workflow_attributes", seat.workflow_id, {"startedMs": self._now_ms()}, merge=True)

    @asynccontextmanager
    async def _admission(self) -> AsyncIterator[None]:
        """A lock held by one worker at a time: the lease on a session without content. Raises `LeaseLost` at the end if
        this process was stopped for so long that it lost the lease: others may have counted in the meantime."""
        session_id = f"{RESERVED}limits:{self.name}"
        owner = f"{self._executor} {self._store.environment.new_id()}"
        while True:
            try:
                lease = await self._store.acquire_lease(session_id, owner, _ADMISSION_S)
                break
            except NotFound:
                with suppress(Conflict):  # another worker was first
                    await self._store.create_session(session_id)
            except SessionInUse:
                await asyncio.sleep(_POLL_S / 10)
        try:
            yield
            await self._store.renew_lease(lease, _ADMISSION_S)
        finally:
            await self._store.release_lease(lease)

    async def complete(
        self,
        worker: WorkerInfo,
        job: Job,
        outcome: Outcome,
        *,
        delay_s: float = 0.0,
        code: ErrorCode | None = None,
    ) -> None:
        """End the workflow of a job. If the outcome is ``again``, another workflow due after `delay_s` continues it."""
        del worker, code  # the workflow has one owner, and its outcome is all that is recorded
        seat = self._seats.get(job.id)
        if seat is not None:
            await self._end(seat, outcome, delay_s)
            latest = self._seats.pop(job.id)
            if latest is not seat:  # the workflow was resumed here in the meantime
                latest.put(outcome)

    async def _end(self, seat: _Seat, outcome: Outcome, delay_s: float, *, has_begun: bool = True) -> None:
        if outcome == "again":
            workflows = await self._list(workflow_ids=[seat.workflow_id])
            if workflows and workflows[0].status != "CANCELLED":
                first, _, number = seat.workflow_id.partition("+")
                due = self._now() + timedelta(seconds=delay_s) if delay_s > 0 else None
                next_id = f"{first}+{int(number or 0) + 1}"
                has_begun = has_begun or seat.job.has_begun
                place = None if has_begun else workflows[0].priority
                job = replace(seat.job, not_before=due, has_begun=has_begun)
                await self._enqueue(job, next_id, place=place)
        seat.put(outcome)

    def step(self, job: Job, number: int) -> None:
        """Record the step in the workflow of the job, without waiting for it."""
        seat = self._seats.get(job.id)
        if seat is not None:
            seat.put(number)

    async def leave(self, worker: WorkerInfo) -> None:
        """End the worker."""
        await self._members.leave(worker)

    def live_limit(self, slots: int) -> int:
        """Jobs that have begun have separate slots."""
        return (1 + _BEGUN_SLOTS) * slots

    # -- abandoned workflows

    async def _resume_abandoned(self, executor: str) -> None:
        """Resume the workflows of dead processes, and those of this process that have not started."""
        executors = await self._executors()
        # Read after the workflows: a process joins before it is assigned its first one.
        dead = executors - {workflow.executor for workflow in (await self._members.status()).workers}
        # Other processes do the same: a workflow that they have already resumed is no longer assigned to a dead one.
        abandoned = await self._list(status="PENDING", executor_id=sorted(dead)) if dead else []
        abandoned += await self._not_begun(executor)
        for protocol in {_protocol_of(workflow) for workflow in abandoned}:
            await self._resume_or_set_aside(
                [workflow for workflow in abandoned if _protocol_of(workflow) == protocol], protocol
            )

    async def _not_begun(self, executor: str) -> list[WorkflowStatus]:
        """Workflows that have belonged to this process for at least one beat without being started."""
        begun_ids = set(self._begun)
        own = await self._list(status="PENDING", executor_id=executor)
        ids = {workflow.workflow_id for workflow in own}
        self._begun -= begun_ids - ids  # they have ended
        waiting = ids - self._begun
        abandoned = [workflow for workflow in own if workflow.workflow_id in waiting & self._suspects]
        self._suspects = waiting - self._suspects
        return abandoned

    async def _resume_or_set_aside(self, abandoned: Sequence[WorkflowStatus], protocol: int) -> None:
        """Have other workers continue these workflows, except those that too many workers died with."""
        attempts = {
            workflow.workflow_id: int((workflow.attributes or {}).get("resumed", 0)) + 1 for workflow in abandoned
        }
        stuck = [workflow_id for workflow_id, count in attempts.items() if count >= self._max_deaths]
        resumed = [workflow_id for workflow_id in attempts if workflow_id not in stuck]
        if resumed:
            _log.info("Resuming %d abandoned jobs.", len(resumed))
            await self._resume(resumed, protocol)
        attributes_by_id = {
            workflow_id: {"resumed": count} | ({"stuck": self.name} if workflow_id in stuck else {})
            for workflow_id, count in attempts.items()
        }
        await asyncio.gather(
            *(
                self._call("update_workflow_attributes", workflow_id, attributes, merge=True)
                for workflow_id, attributes in attributes_by_id.items()
            )
        )
        if stuck:
            await self._call("cancel_workflows", stuck)

    async def _resume(self, workflow_ids: Sequence[str], protocol: int) -> None:
        _, begun_queue = _queue_names(self.name, protocol)
        await self._call("resume_workflows", list(workflow_ids), queue_name=begun_queue)

    async def _clean(self) -> None:
        """Delete workflows that ended long ago, except those that were set aside as stuck."""
        before = (self._now() - _KEPT).isoformat()
        ended = ["SUCCESS", "CANCELLED", "ERROR"]
        conditions = {"status": ended, "queue_name": None, "name": _WORKFLOW, "completed_before": before}
        for _ in range(_CLEANINGS):
            ended_workflows = await self._list(**conditions, limit=_CLEANED)
            unused = [
                workflow.workflow_id for workflow in ended_workflows if not (workflow.attributes or {}).get("stuck")
            ]
            if unused:
                await self._call("delete_workflows", unused)
            if not unused or len(ended_workflows) < _CLEANED:
                break

    def _now(self) -> datetime:
        return self._store.environment.now()

    def _now_ms(self) -> int:
        return int(self._now().timestamp() * 1000)


async def _translate_errors(work: Awaitable[T]) -> T:
    """The result. Raises a retryable `StoreError` if the engine or its server fails."""
    try:
        return await work
    except (dbos_error.DBOSException, SQLAlchemyError, OSError) as error:
        text = " ".join(str(error).split("\n")[0].split())
        raise StoreError(f"The queue engine failed: {text}", retryable=True, cause=error) from error


async def _record_number(number: int) -> int:
    """All that the engine records about a step: its number."""
    return number


def _engine_address(address: str) -> tuple[str, str]:
    """The URL without what only the store reads, and the schema of the store. As the store does, the engine gives up a
    server that falls silent, and has the server do the same."""
    url, schema, _ = PostgresAddress.parse(address)
    parts = urlsplit(url)
    parameters = {key: value for key, value in parse_qsl(parts.query) if key not in WEAK_SETTINGS}
    idle, interval, count = KEEPALIVES.values()
    silence: dict[str, object] = {
        "connect_timeout": SILENT_S,
        "tcp_user_timeout": SILENT_S * 1000,
        "keepalives_idle": idle,
        "keepalives_interval": interval,
        "keepalives_count": count,
        "options": " ".join(f"-c {name}={value}" for name, value in SERVER_KEEPALIVES.items()),
    }
    return urlunsplit(
        parts._replace(scheme="postgresql", query=urlencode({**silence, **parameters}, quote_via=quote))
    ), schema


def _queue_names(name: str, protocol: int) -> tuple[str, str]:
    """The queues for jobs of this version of the step protocol: for new ones, and for those that have begun."""
    base = f"bartack-{name}-v{protocol}"
    return base, base + _BEGUN


def _protocol_of(status: WorkflowStatus) -> int:
    return int((status.attributes or {}).get("protocol", 1))


def _stuck_job(workflow: WorkflowStatus) -> Job:
    """The job of a workflow that was set aside."""
    deaths = int((workflow.attributes or {}).get("resumed", 0))
    problem = death_notice(deaths, f"executor {workflow.executor_id}")
    return replace(_job_of(workflow), problem=problem, attempt=deaths + 1)


def _job_of(status: WorkflowStatus) -> Job:
    assert status.input is not None
    return msgspec.convert(status.input["args"][0], Job)


def _json(attributes: dict[str, str]) -> str:
    return msgspec.json.encode(attributes).decode()


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
