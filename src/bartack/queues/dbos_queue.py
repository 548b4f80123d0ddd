"""`DbosQueue`: a queue on the DBOS engine, in the PostgreSQL database of the store. Needs the extra ``distributed``.

Each job is a DBOS workflow whose input is the job, on a queue that is partitioned by session: DBOS starts one workflow
of a session at a time, on one of the workers. The workflow hands the job to the `Worker` of its process, waits until
that completes it, and ends with the outcome. Each model call and each round of tool calls is a step of the workflow, of
which the engine records the number. A job that is to be done again is enqueued as another workflow before its
own ends. So the tables of DBOS contain scheduling state, as JSON, and no content.

DBOS does not adopt the workflows of a process that died. Workers therefore show signs of life through the store, as
those of a `StoreQueue` do, which also covers machines that are only stopped or cut off; whoever finds workflows of a
process that is not among the living resumes them. If the process lives after all, the lease of the session decides.

DBOS starts sessions in random order and honours priorities within a session only. Jobs of a priority above 0 therefore
have a queue of their own with as many slots again, so that they do not wait for others. So have those that a dead
process has begun.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions, WorkflowStatus
from dbos import error as dbos_error
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from bartack.nouns.errors import ErrorCode, QueueFull, StoreError
from bartack.queues.job import PROTOCOL, Job, Limit, Outcome, QueueStatus, RunningJob, WorkerInfo
from bartack.queues.state import MAX_ATTEMPTS
from bartack.queues.store_queue import MAX_WAITING, StoreQueue
from bartack.store.address import WEAK_SETTINGS, PostgresAddress
from bartack.store.session_store import SessionStore

__all__ = ["DbosQueue"]

_WORKFLOW = "bartack.job"
_VERSION = f"bartack-{PROTOCOL}"  # of the step protocol, not of the code
_APPLICATION = "bartack"
_POLL_S = 0.25
_WAITING = ["ENQUEUED", "DELAYED"]
_KEPT = timedelta(days=1)  # how long ended workflows are kept, and with them the ids of jobs
_CLEAN_EVERY = 100  # signs of life
_CLEANED = 1000  # workflows at a time
_LISTED = 1000
_HELD_BACK_S = 1.0  # before a job that a limit holds back is tried again
_MINUTES = 5
_NORMAL = 1_000_000_000  # DBOS starts the lowest number first, and has no negative ones

T = TypeVar("T")


class _Seat(msgspec.Struct):
    """A workflow of this process that waits for its job to be completed. It belongs to the loop of DBOS."""

    job: Job
    workflow_id: str
    loop: asyncio.AbstractEventLoop
    news: "asyncio.Queue[int | str]"  # the numbers of its steps, and at last its outcome

    def put(self, news: int | str) -> None:
        """Called from the loop of the worker."""
        self.loop.call_soon_threadsafe(self.news.put_nowait, news)


class DbosQueue:
    """A `RunQueue` on DBOS. In a process that claims jobs there can be one, because DBOS is global."""

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
    ) -> None:
        """`address` is that of the store, a PostgreSQL server. The other options are those of `StoreQueue`."""
        self.name = name
        self._store = store
        self._members = StoreQueue(store, f"{name}.workers", ttl_s=ttl_s)
        self._limits = limits
        self._max_waiting = max_waiting
        self._max_waiting_per_user = max_waiting_per_user
        self._url, schema = _engine_address(address)
        self._schema = f"{schema}_dbos"
        self._urgent = f"bartack-{name}-urgent"
        self._queues = (f"bartack-{name}", self._urgent)
        self._client_: DBOSClient | None = None
        self._opening = asyncio.Lock()
        self._executor: str | None = None  # once this process claims jobs
        self._offered: deque[_Seat] = deque()
        self._has_offer = asyncio.Event()
        self._seats: dict[str, _Seat] = {}  # claimed ones, by job
        self._beats = 0

    @property
    def beat_s(self) -> float:
        """How often a worker must call `heartbeat`."""
        return self._members.beat_s

    # -- the engine

    async def _client(self) -> DBOSClient:
        async with self._opening:
            if self._client_ is None:
                self._client_ = await _guarded(asyncio.to_thread(self._connect))
            return self._client_

    def _connect(self) -> DBOSClient:
        DBOS.migrate(self._url, schema=self._schema)
        return DBOSClient(
            system_database_url=self._url,
            dbos_system_schema=self._schema,
            serializer=DBOSPortableJSONSerializer(),
            application_name=_APPLICATION,
            retry_connection_errors=False,
        )

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client in a thread; `StoreError` if the server fails."""
        return await _guarded(asyncio.to_thread(partial(getattr(await self._client(), method), *args, **options)))

    async def _list(self, **options: Any) -> list[WorkflowStatus]:
        options = {"queue_name": list(self._queues), "load_input": False, "load_output": False, **options}
        found: list[WorkflowStatus] = await self._call("list_workflows", **options)
        return found

    # -- for everyone

    async def check_room(self, user: str | None = None) -> None:
        """Raise `QueueFull` if another job of this user would exceed a limit."""
        limit = self._max_waiting_per_user
        if user is not None and limit is not None:
            found = await self._list(status=_WAITING, attributes={"user": user}, limit=limit + 1)
            if len(found) >= limit:
                text = f"The queue is full for user {user!r}: {len(found):,} runs are waiting, the limit is {limit:,}."
                raise QueueFull(text, queued=len(found), limit=limit, user=user)
        if await self._list(status=_WAITING, offset=self._max_waiting - 1, limit=1):
            text = f"The queue is full: at least {self._max_waiting:,} runs are waiting, which is the limit."
            raise QueueFull(text, queued=self._max_waiting, limit=self._max_waiting)

    async def enqueue(self, job: Job) -> None:
        """Add a job. One with an id that was enqueued before has no effect."""
        await self._enqueue(job, job.id)

    async def _enqueue(self, job: Job, workflow_id: str) -> None:
        names = {"session": job.session_id, "user": job.user, "provider": job.provider, "model": job.model}
        options: EnqueueOptions = {
            "workflow_name": _WORKFLOW,
            "queue_name": self._queues[job.priority > 0],
            "workflow_id": workflow_id,
            "app_version": f"bartack-{job.protocol}",
            "queue_partition_key": job.session_id,
            "priority": min(max(_NORMAL - job.priority, 1), 2 * _NORMAL),
            "attributes": {key: value for key, value in names.items() if value is not None},
        }
        delay_s = 0.0 if job.not_before is None else (job.not_before - self._now()).total_seconds()
        if delay_s > 0:
            options["delay_seconds"] = delay_s
        await self._call("enqueue", options, msgspec.to_builtins(job))

    async def cancel(self, session_id: str) -> tuple[Job, ...]:
        """Remove the jobs of a session, and return those that no worker had claimed."""
        found = await self._list(status=[*_WAITING, "PENDING"], attributes={"session": session_id}, load_input=True)
        if found:
            await self._call("cancel_workflows", [one.workflow_id for one in found])
        return tuple(_job_of(one) for one in found if one.status in _WAITING)

    async def status(self) -> QueueStatus:
        """What the queue is doing. Outcomes are those of the last minutes."""
        now = self._now()
        since = (now - timedelta(minutes=_MINUTES)).isoformat()
        members = await self._members.status()
        workers = {one.executor: one.id for one in members.workers}
        pending = await self._list(status="PENDING", load_input=True, limit=_LISTED)
        ended = await self._list(status="SUCCESS", completed_after=since, load_output=True, limit=10 * _LISTED)
        outcomes = Counter(str(one.output) for one in ended if one.output != "again")
        first = await self._list(status="ENQUEUED", limit=1)
        return QueueStatus(
            queue=self.name,
            at=now,
            waiting=await self._count(status=_WAITING),
            scheduled=await self._count(status="DELAYED"),
            oldest=_time(first[0].created_at) if first else None,
            running=tuple(
                RunningJob(
                    job=_job_of(one), worker=workers.get(one.executor_id, ""), since=_time(one.dequeued_at) or now
                )
                for one in pending
            ),
            stuck=tuple(
                _job_of(one)
                for one in await self._list(
                    status="CANCELLED", attributes={"stuck": True}, load_input=True, limit=_LISTED
                )
            ),
            workers=members.workers,
            outcomes=dict(outcomes),
            per_minute=round(outcomes.total() / _MINUTES, 1),
        )

    async def _count(self, **options: Any) -> int:
        """How many workflows there are, found by halving: DBOS lists them, but does not count."""
        low, high = 0, 1
        while await self._list(offset=high - 1, limit=1, **options):
            low, high = high, 4 * high
        while high - low > 1:
            middle = (low + high) // 2
            if await self._list(offset=middle - 1, limit=1, **options):
                low = middle
            else:
                high = middle
        return low

    async def close(self) -> None:
        """Stop the engine in this process, and return what it has started and no worker has claimed."""
        if self._executor is not None:
            self._executor = None
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
            for seat in self._offered:
                await self._call("resume_workflows", [seat.workflow_id], queue_name=self._urgent)
            self._offered.clear()
        if self._client_ is not None:
            await asyncio.to_thread(self._client_.destroy)
            self._client_ = None

    # -- for workers

    async def heartbeat(self, worker: WorkerInfo) -> None:
        """Show that the worker is alive, and resume the workflows of dead ones."""
        if self._executor is None:
            await self._client()  # creates the tables
        executor = self._executor or worker.id
        await self._members.heartbeat(replace(worker, executor=executor))
        if self._executor is None:
            self._executor = executor
            await _guarded(asyncio.to_thread(self._launch, executor, worker.slots, asyncio.get_running_loop()))
        await self._resume_workflows_of_the_dead()
        self._beats += 1
        if self._beats % _CLEAN_EVERY == 0:
            await self._clean()

    def _launch(self, executor: str, slots: int, loop: asyncio.AbstractEventLoop) -> None:
        """Start the engine, in a thread: workflows run in a loop of DBOS, and jobs are offered to the worker's."""
        config: DBOSConfig = {
            "name": _APPLICATION,
            "system_database_url": self._url,
            "dbos_system_schema": self._schema,
            "application_version": _VERSION,
            "executor_id": executor,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": False,
            "use_listen_notify": False,
            "log_level": "CRITICAL",  # a workflow that was cancelled is not an error
            "enable_otlp": False,
        }
        DBOS(config=config)

        async def work(data: dict[str, Any]) -> str:
            workflow_id = DBOS.workflow_id
            assert workflow_id is not None
            seat = _Seat(msgspec.convert(data, Job), workflow_id, asyncio.get_running_loop(), asyncio.Queue())
            loop.call_soon_threadsafe(self._offer, seat)
            while isinstance(news := await seat.news.get(), int):
                await DBOS.run_step_async({"name": "step"}, _recorded, news)
            return news

        DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)(work)
        DBOS.listen_queues(self._queues)
        DBOS.launch()
        for name in self._queues:
            DBOS.register_queue(
                name,
                partition_concurrency=1,
                worker_concurrency=slots,
                polling_interval_sec=_POLL_S,
                on_conflict="always_update",
            )

    def _offer(self, seat: _Seat) -> None:
        self._offered.append(seat)
        self._has_offer.set()

    async def claim(self, worker: WorkerInfo, wait_s: float) -> Job | None:
        """The next job that the engine has started here, waiting for one so long."""
        if not self._offered:
            self._has_offer.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_offer.wait()
            except TimeoutError:
                return None
        seat = self._offered.popleft()
        if seat.job.agent not in worker.agents or not await self._is_within_limits(seat):
            await self._end(seat, "again", _HELD_BACK_S)
            return None
        self._seats[seat.job.id] = seat
        return seat.job

    async def _is_within_limits(self, seat: _Seat) -> bool:
        """Whether the job may run now. Among those that started at once, the first ones may."""
        for limit in self._limits:
            value = getattr(seat.job, limit.by)
            if value is None or limit.name not in (None, value):
                continue
            if limit.running is not None:
                same = await self._list(status="PENDING", attributes={limit.by: value})
                if seat.workflow_id not in _earliest(same, limit.running):
                    return False
            if limit.starts is not None:
                since = (self._now() - timedelta(seconds=limit.per_s)).isoformat()
                started = await self._list(attributes={limit.by: value, "started": True}, dequeued_after=since)
                if len(started) >= limit.starts:
                    return False
        if any(limit.starts is not None for limit in self._limits):
            await self._call("update_workflow_attributes", seat.workflow_id, {"started": True}, merge=True)
        return True

    async def complete(
        self,
        worker: WorkerInfo,
        job: Job,
        outcome: Outcome,
        *,
        delay_s: float = 0.0,
        code: ErrorCode | None = None,
    ) -> None:
        """End the workflow of a job; one that ends as ``again`` continues as another workflow, due after `delay_s`."""
        del worker, code  # the workflow has one owner, and its outcome says enough
        seat = self._seats.get(job.id)
        if seat is not None:
            await self._end(seat, outcome, delay_s)
            del self._seats[job.id]

    async def _end(self, seat: _Seat, outcome: Outcome, delay_s: float) -> None:
        if outcome == "again":
            found = await self._list(workflow_ids=[seat.workflow_id])
            if found and found[0].status != "CANCELLED":
                first, _, number = seat.workflow_id.partition("+")
                due = self._now() + timedelta(seconds=delay_s) if delay_s > 0 else None
                await self._enqueue(replace(seat.job, not_before=due), f"{first}+{int(number or 0) + 1}")
        seat.put(outcome)

    def step(self, job: Job, number: int) -> None:
        """Record the step in the workflow of the job, without waiting for it."""
        seat = self._seats.get(job.id)
        if seat is not None:
            seat.put(number)

    async def leave(self, worker: WorkerInfo) -> None:
        """End the worker."""
        await self._members.leave(worker)

    # -- the workflows of others

    async def _resume_workflows_of_the_dead(self) -> None:
        """Resume what belongs to processes that are not alive. Those that are joined before their first workflow."""
        alive = {one.executor for one in (await self._members.status()).workers}
        for one in await self._list(status="PENDING", limit=_LISTED):
            if one.executor_id not in alive:
                await self._resume(one)

    async def _resume(self, one: WorkflowStatus) -> None:
        """Have another worker continue a workflow, unless too many died with it."""
        resumed = int((one.attributes or {}).get("resumed", 0)) + 1
        is_stuck = resumed >= MAX_ATTEMPTS
        attributes = {"resumed": resumed, **({"stuck": True} if is_stuck else {})}
        await self._call("update_workflow_attributes", one.workflow_id, attributes, merge=True)
        if is_stuck:
            await self._call("cancel_workflows", [one.workflow_id])
        else:
            await self._call("resume_workflows", [one.workflow_id], queue_name=self._urgent)

    async def _clean(self) -> None:
        """Delete workflows that ended long ago."""
        before = (self._now() - _KEPT).isoformat()
        old = await self._list(status=["SUCCESS", "CANCELLED", "ERROR"], completed_before=before, limit=_CLEANED)
        if old:
            await self._call("delete_workflows", [one.workflow_id for one in old])

    def _now(self) -> datetime:
        return self._store.environment.now()


async def _guarded(work: Awaitable[T]) -> T:
    """The result; `StoreError` if the engine or its server fails, which may pass."""
    try:
        return await work
    except (dbos_error.DBOSException, SQLAlchemyError, OSError) as error:
        text = " ".join(str(error).split("\n")[0].split())
        raise StoreError(f"The queue engine failed: {text}", retryable=True, cause=error) from error


async def _recorded(number: int) -> int:
    """All that the engine knows about a step: its number."""
    return number


def _engine_address(address: str) -> tuple[str, str]:
    """The URL without what only the store reads, and the schema of the store."""
    url, schema, _ = PostgresAddress.parse(address)
    parts = urlsplit(url)
    kept = [(key, value) for key, value in parse_qsl(parts.query) if key not in WEAK_SETTINGS]
    return urlunsplit(parts._replace(scheme="postgresql", query=urlencode(kept))), schema


def _job_of(status: WorkflowStatus) -> Job:
    assert status.input is not None
    return msgspec.convert(status.input["args"][0], Job)


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _earliest(found: Iterable[WorkflowStatus], count: int) -> list[str]:
    ordered: Callable[[WorkflowStatus], Any] = lambda one: (one.dequeued_at or 0, one.workflow_id)  # noqa: E731
    return [one.workflow_id for one in sorted(found, key=ordered)[:count]]
