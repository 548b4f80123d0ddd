"""The events of a `StoreQueue`, and `QueueState`: the fold over them that gives every process the same state.

An event is one fact in the log of the queue. It says what was decided, not what to do: whoever appended it had folded
all events before it, since the append names the tail. An event that no longer applies therefore changes nothing, and
pushing one never fails.

Waiting jobs are kept in *lanes*: jobs with the same agent, user, model and protocol version, which limits treat alike.
The next job is thus found without looking at all those that a limit holds back. Jobs that have begun have separate
lanes, which go first. A job whose session is busy waits outside the lanes until the session is free. Each lane is a
heap, and so is the list of their first jobs; a job that moves or ends leaves its old keys in the heaps, where they are
dropped when they come to the top.

Users take turns. A user whose first job arrives joins the end of the line, and so does one whose job was claimed while
others of theirs are waiting. Among jobs of the same priority, the one of the user closest to the front is next. A user
who waits is thus overtaken by each other user once, no matter how many jobs these have queued or how many users arrive.

What limits count is counted when an event is pushed, for each user, model and provider. A look compares two numbers for
each lane, so it takes time in proportion to the lanes, however many jobs are live or have started.

A limit on starts counts a job from its claim until the interval has passed *since its run started*, which the worker
reports. Whatever delays a run between the claim and its start, no interval can therefore contain too many starts: when
the last of them was claimed, all others were counted.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.queues.run_queue import MAX_DEATHS, MAX_STARTS, Job, Limit, Outcome, QueueStatus, RunningJob, WorkerInfo

__all__ = [
    "JobClaimed",
    "JobCompleted",
    "JobEnqueued",
    "JobStart",
    "JobStarted",
    "JobsCancelled",
    "JobsRetried",
    "LogMoved",
    "QueueEvent",
    "QueueSnapshot",
    "QueueState",
    "WorkerJoined",
    "WorkerLeft",
    "death_notice",
    "dump_event",
    "load_event",
]


class JobStart(NamedTuple):
    """When the run of a job started, for limits."""

    started_at: datetime
    user: str | None
    provider: str | None
    model: str | None


class _QueueEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="event"):
    pass


class _TimedEvent(_QueueEvent, frozen=True):
    at: datetime


class JobEnqueued(_QueueEvent, frozen=True, tag="enqueued"):
    job: Job


class JobClaimed(_TimedEvent, frozen=True, tag="claimed"):
    job_id: str
    worker: str
    # The longest interval over which a limit of the worker counts starts. The worker then reports when the run starts.
    rated_s: float | None = None


class JobStarted(_TimedEvent, frozen=True, tag="started"):
    """The run of a claimed job has started."""

    job_id: str
    worker: str
    attempt: int


class JobCompleted(_TimedEvent, frozen=True, tag="completed"):
    job_id: str
    worker: str
    attempt: int
    outcome: Outcome
    not_before: datetime | None = None
    code: str | None = None  # the code of the error that it failed with


class JobsCancelled(_TimedEvent, frozen=True, tag="cancelled"):
    job_ids: tuple[str, ...]


class WorkerJoined(_QueueEvent, frozen=True, tag="joined"):
    worker: WorkerInfo


class WorkerLeft(_TimedEvent, frozen=True, tag="left"):
    worker: str
    is_lost: bool = False  # it died
    max_deaths: int = MAX_DEATHS  # after which the jobs that it had are set aside


class JobsRetried(_QueueEvent, frozen=True, tag="retried"):
    """Jobs that were set aside return to the queue."""

    job_ids: tuple[str, ...]


class LogMoved(_QueueEvent, frozen=True, tag="moved"):
    """The last event of a log: it continues in another session."""

    to: str


class QueueSnapshot(_QueueEvent, frozen=True, tag="snapshot"):
    """The first events of a log that continues another one."""

    waiting: tuple[Job, ...] = ()
    running: tuple[RunningJob, ...] = ()
    stuck: tuple[Job, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()
    recent: tuple[str, ...] = ()
    outcomes: dict[str, int] = {}
    ended: dict[str, int] = {}
    starts: tuple[JobStart, ...] = ()


QueueEvent = (
    JobEnqueued
    | JobClaimed
    | JobStarted
    | JobCompleted
    | JobsCancelled
    | JobsRetried
    | WorkerJoined
    | WorkerLeft
    | LogMoved
    | QueueSnapshot
)


def dump_event(event: QueueEvent) -> dict[str, Any]:
    """The event as JSON."""
    value: dict[str, Any] = msgspec.to_builtins(event)
    return value


def load_event(data: Any) -> QueueEvent:
    """The event; `StoreError` if it is damaged or from a newer version, whose meaning is unknown."""
    try:
        return msgspec.convert(data, QueueEvent)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        text = f"The queue contains an event that this version cannot read ({error}). Upgrade Bartack."
        raise StoreError(text, code=ErrorCode.STORAGE_UNSUPPORTED) from None


# A job in its third attempt is a suspect: two workers died with it. Whatever else these did died with them, so most
# suspects are innocent. A worker has one suspect at a time, so that only the one that kills workers is set aside, and
# before each further attempt there is a pause, which doubles. The first takeover is never delayed.
_SUSPECT = 3
_BACK_OFF_S = 2.0
_RECENT = 1000  # ids of ended jobs, which are not enqueued again
# A worker without limits remembers this many starts of the last hour, because other workers may have limits.
_STARTS = 10_000
_WINDOW = timedelta(hours=1)
_MINUTES = 5  # The throughput is an average over this time.
_CHUNK = 500  # jobs in one event of a snapshot

# The keys of a lane sort in the order in which its jobs are claimed. The last item is the number of the placement.
_Key = tuple[int, datetime, str, int]
# What a limit counts: the dimension, and the user, model or provider.
_Scope = tuple[str, str]


class _Head(NamedTuple):
    """The first job of a lane, and its place among those of all lanes."""

    is_new: bool
    rank: int  # the priority, the highest first
    turn: int
    key: _Key
    lane: "_Lane"


class _Lane(NamedTuple):
    agent: str
    user: str | None
    provider: str | None
    model: str | None
    protocol: int
    has_begun: bool
    is_suspect: bool


def death_notice(deaths: int, last: str) -> str:
    """Why a job was set aside."""
    workers = "worker" if deaths == 1 else "workers"
    return f"{deaths} {workers} died while running it, the last one was {last}"


class QueueState:
    """Pushing an event never fails: an event that no longer applies changes nothing."""

    def __init__(self) -> None:
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, RunningJob] = {}
        self.stuck: dict[str, Job] = {}
        self.workers: dict[str, WorkerInfo] = {}
        self.moved_to: str | None = None
        self.newest_protocol: int = 0  # the highest version of any job that has waited
        self._recent: dict[str, None] = {}
        self._outcomes: Counter[str] = Counter()
        self._ended: Counter[int] = Counter()  # minute -> jobs that ended in it
        self._starts: deque[JobStart] = deque()
        self._started_in: defaultdict[_Scope, list[datetime]] = defaultdict(list)  # the same starts, sorted
        self._running_in: Counter[_Scope] = Counter()
        self._starting_in: Counter[_Scope] = Counter()  # claimed, and their start was not reported yet
        self._busy: dict[str, str] = {}  # session -> the job that is worked on
        self._of_user: Counter[str | None] = Counter()  # user -> waiting jobs
        self._turns: dict[str | None, int] = {}  # the place in line of each user with waiting jobs
        self._last_turn = 0
        self._lanes: dict[_Lane, list[_Key]] = {}
        self._lanes_of: defaultdict[str | None, set[_Lane]] = defaultdict(set)  # user -> their lanes
        self._heads: list[_Head] = []  # the first job of each lane, and some that are no longer
        self._placed: dict[str, int] = {}  # job -> its placement in a lane; keys with another one are outdated
        self._blocked: dict[str, list[str]] = {}  # session -> jobs that wait until it is free
        self._due: list[tuple[datetime, str]] = []
        self._placements = 0

    # -- events

    def push(self, event: QueueEvent) -> None:
        """Add the next event."""
        match event:
            case JobEnqueued(job=job):
                if not self.knows(job.id):
                    self._wait(job)
            case JobClaimed():
                self._claim(event)
            case JobStarted():
                claim = self.running.get(event.job_id)
                if claim is not None and (claim.worker, claim.job.attempt) == (event.worker, event.attempt):
                    self._start(claim, event.at)
            case JobCompleted():
                self._complete(event)
            case JobsCancelled():
                self._cancel(event)
            case WorkerJoined(worker=worker):
                self.workers[worker.id] = worker
            case JobsRetried(job_ids=job_ids):
                for stuck in [self.stuck.pop(job_id) for job_id in job_ids if job_id in self.stuck]:
                    self._wait(replace(stuck, attempt=1, problem=None, not_before=None))
            case WorkerLeft(worker=worker_id):
                lost_worker = self.workers.pop(worker_id, None)
                for claim in [claim for claim in self.running.values() if claim.worker == worker_id]:
                    self._free(claim, event.at)
                    if event.is_lost:
                        self._take_back(claim, event, lost_worker)
                    else:
                        self._return(claim, claim.job)
            case LogMoved(to=to):
                self.moved_to = to
            case QueueSnapshot():
                self._restore(event)

    def knows(self, job_id: str) -> bool:
        """Whether the job is here, or has ended a short while ago."""
        return any(job_id in jobs for jobs in (self.waiting, self.running, self.stuck, self._recent))

    def has_claim(self, job: Job, worker_id: str) -> bool:
        """Whether the worker has claimed the job, in this attempt."""
        claim = self.running.get(job.id)
        return claim is not None and (claim.worker, claim.job.attempt) == (worker_id, job.attempt)

    def _claim(self, event: JobClaimed) -> None:
        job = self.waiting.get(event.job_id)
        if job is None or job.session_id in self._busy or event.worker not in self.workers:
            return
        self._leave_line(job)
        if job.user in self._turns:
            self._go_to_the_end(job.user)
        claim = RunningJob(job=job, worker=event.worker, since=event.at, is_starting=True)
        self._run(claim)
        maximum, window = MAX_STARTS, timedelta(seconds=event.rated_s or 0.0)
        if event.rated_s is None:
            self._start(claim, event.at)
            maximum, window = _STARTS, _WINDOW
        while len(self._starts) > maximum or (self._starts and self._starts[0].started_at < event.at - window):
            self._forget(self._starts.popleft())

    def _run(self, claim: RunningJob) -> None:
        self.running[claim.job.id] = claim
        self._busy[claim.job.session_id] = claim.job.id
        for scope in _scopes(claim.job):
            _add(self._running_in, scope, 1)
            _add(self._starting_in, scope, int(claim.is_starting))

    def _start(self, claim: RunningJob, started_at: datetime) -> None:
        """Count the start of a run from now on by its time."""
        if claim.is_starting:
            self.running[claim.job.id] = replace(claim, is_starting=False)
            for scope in _scopes(claim.job):
                _add(self._starting_in, scope, -1)
            self._remember(JobStart(started_at, claim.job.user, claim.job.provider, claim.job.model))

    def _remember(self, start: JobStart) -> None:
        self._starts.append(start)
        for scope in _scopes(start):
            insort(self._started_in[scope], start.started_at)

    def _forget(self, start: JobStart) -> None:
        for scope in _scopes(start):
            times = self._started_in[scope]
            del times[bisect_left(times, start.started_at)]
            if not times:
                del self._started_in[scope]

    def _complete(self, event: JobCompleted) -> None:
        claim = self.running.get(event.job_id)
        if claim is None or (claim.worker, claim.job.attempt) != (event.worker, event.attempt):
            return
        self._free(claim, event.at)
        if event.outcome == "again":
            self._return(claim, replace(claim.job, not_before=event.not_before))
        else:
            self._end(claim.job.id, event.outcome, event.at)

    def _cancel(self, event: JobsCancelled) -> None:
        for job_id in event.job_ids:
            waiting = self.waiting.get(job_id)
            if waiting is not None:
                self._leave_line(waiting)
            if waiting is not None or self.stuck.pop(job_id, None) is not None:
                self._end(job_id, "aborted", event.at)
            elif job_id in self.running:
                self.running[job_id] = replace(self.running[job_id], is_cancelled=True)

    def _free(self, claim: RunningJob, ended_at: datetime) -> None:
        """The session of a job is free: what waited for it may be claimed."""
        self._start(claim, ended_at)  # if no start was reported, it may have been at any time until now
        del self.running[claim.job.id]
        del self._busy[claim.job.session_id]
        for scope in _scopes(claim.job):
            _add(self._running_in, scope, -1)
        for job_id in self._blocked.pop(claim.job.session_id, ()):
            if job_id in self.waiting:
                self._place(self.waiting[job_id])

    def _take_back(self, claim: RunningJob, event: WorkerLeft, worker: WorkerInfo | None) -> None:
        """Return the job of a worker that died, or set it aside."""
        deaths = claim.job.attempt
        job = replace(claim.job, attempt=deaths + 1, has_begun=True)
        if job.attempt >= _SUSPECT:
            pause = timedelta(seconds=_BACK_OFF_S * 2 ** (job.attempt - _SUSPECT))
            job = replace(job, not_before=event.at + pause)
        if deaths >= event.max_deaths and not claim.is_cancelled:
            last = event.worker if worker is None else f"process {worker.pid} on {worker.host}"
            self.stuck[job.id] = replace(job, problem=death_notice(deaths, last))
        else:
            self._return(claim, job)

    def _return(self, claim: RunningJob, job: Job) -> None:
        job = replace(job, has_begun=True)
        if claim.is_cancelled:
            self._recent[job.id] = None
        else:
            self._wait(job)

    def _end(self, job_id: str, outcome: str, ended_at: datetime) -> None:
        self._recent[job_id] = None
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        self._outcomes[outcome] += 1
        minute = int(ended_at.timestamp() // 60)
        self._ended[minute] += 1
        for outdated in [past for past in self._ended if past < minute - _MINUTES]:
            del self._ended[outdated]

    def _wait(self, job: Job) -> None:
        self.waiting[job.id] = job
        self.newest_protocol = max(self.newest_protocol, job.protocol)
        self._placed.pop(job.id, None)
        self._of_user[job.user] += 1
        if job.user not in self._turns:
            self._go_to_the_end(job.user)
        if job.not_before is None:
            self._place(job)
        else:
            heappush(self._due, (job.not_before, job.id))

    def _leave_line(self, job: Job) -> None:
        del self.waiting[job.id]
        self._placed.pop(job.id, None)
        _add(self._of_user, job.user, -1)
        if not self._of_user[job.user]:
            del self._turns[job.user]

    def _go_to_the_end(self, user: str | None) -> None:
        """Give all other users in line a turn before this one."""
        self._last_turn += 1
        self._turns[user] = self._last_turn
        for lane in list(self._lanes_of.get(user, ())):
            self._show_head(lane)

    # -- the next job

    def _place(self, job: Job) -> None:
        is_suspect = job.attempt >= _SUSPECT
        lane = _Lane(job.agent, job.user, job.provider, job.model, job.protocol, job.has_begun, is_suspect)
        self._placements += 1
        self._placed[job.id] = self._placements
        keys = self._lanes.setdefault(lane, [])
        self._lanes_of[job.user].add(lane)
        heappush(keys, (-job.priority, job.queued_at, job.id, self._placements))
        if keys[0][2] == job.id:
            self._show_head(lane)

    def _is_placed(self, key: _Key) -> bool:
        return key[2] in self.waiting and self._placed.get(key[2]) == key[3]

    def _show_head(self, lane: _Lane) -> None:
        """Add the first job of a lane to the heads."""
        keys = self._lanes[lane]
        while keys and not self._is_placed(keys[0]):
            heappop(keys)
        if keys:
            heappush(self._heads, self._head(lane))
            return
        del self._lanes[lane]
        self._lanes_of[lane.user].discard(lane)
        if not self._lanes_of[lane.user]:
            del self._lanes_of[lane.user]

    def _head(self, lane: _Lane) -> _Head:
        key = self._lanes[lane][0]
        return _Head(not lane.has_begun, key[0], self._turns[lane.user], key, lane)

    def next_job(
        self, current_time: datetime, worker: WorkerInfo, limits: Sequence[Limit] = (), *, begun_only: bool = False
    ) -> Job | None:
        """The job that this worker should claim."""
        while self._due and self._due[0][0] <= current_time:
            _, job_id = heappop(self._due)
            if job_id in self.waiting:
                self._place(self.waiting[job_id])
        has_suspect = any(job.attempt >= _SUSPECT for job in self.claims_of(worker.id))
        held_back: list[_Head] = []
        next_job: Job | None = None
        while self._heads and next_job is None:
            head = self._heads[0]
            if begun_only and head.is_new:
                break  # all heads behind it are new, too
            lane = head.lane
            if lane not in self._lanes or self._lanes[lane][0] != head.key:
                heappop(self._heads)
            elif not self._is_placed(head.key):
                heappop(self._heads)
                self._show_head(lane)
            elif head.turn != self._turns[lane.user]:  # it is among the heads a second time
                heappop(self._heads)
            elif (lane.is_suspect and has_suspect) or not self._may_run(lane, current_time, worker, limits):
                held_back.append(heappop(self._heads))
            elif (job := self.waiting[head.key[2]]).session_id in self._busy:
                self._blocked.setdefault(job.session_id, []).append(job.id)
                del self._placed[job.id]
                heappop(self._heads)
                self._show_head(lane)
            else:
                next_job = job
        for head in held_back:
            heappush(self._heads, head)
        return next_job

    def _may_run(self, lane: _Lane, current_time: datetime, worker: WorkerInfo, limits: Sequence[Limit]) -> bool:
        if lane.agent not in worker.agents or lane.protocol > worker.protocol:
            return False
        scopes = dict(_scopes(lane))
        return all(
            self._is_within(limit, (limit.by, scopes[limit.by]), current_time)
            for limit in limits
            if limit.by in scopes and limit.name in (None, scopes[limit.by])
        )

    def _is_within(self, limit: Limit, scope: _Scope, current_time: datetime) -> bool:
        if limit.running is not None and self._running_in[scope] >= limit.running:
            return False
        if limit.starts is None:
            return True
        allowed = limit.starts - self._starting_in[scope]
        times = self._started_in.get(scope, ())
        if allowed <= 0 or len(times) < allowed:
            return allowed > 0
        return times[-allowed] <= current_time - timedelta(seconds=limit.per_s)

    @property
    def next_due(self) -> datetime | None:
        """When the next scheduled job is due."""
        return self._due[0][0] if self._due else None

    def claims_of(self, worker_id: str) -> Iterator[Job]:
        """The jobs that the worker has claimed."""
        return (claim.job for claim in self.running.values() if claim.worker == worker_id)

    def of_session(self, session_id: str) -> list[Job]:
        """The jobs of a session that have not ended."""
        jobs = [*self.waiting.values(), *(claim.job for claim in self.running.values()), *self.stuck.values()]
        return [job for job in jobs if job.session_id == session_id]

    def waiting_of(self, user: str | None) -> int:
        """How many jobs of a user wait."""
        return self._of_user[user]

    # -- as a whole

    @property
    def size(self) -> int:
        """How many jobs a snapshot contains."""
        return len(self.waiting) + len(self.running) + len(self.stuck)

    def snapshot(self) -> list[QueueSnapshot]:
        """The state as events, from which a new state can begin."""
        # Users join the line of the new state in the order in which their jobs are here.
        waiting = sorted(self.waiting.values(), key=lambda job: self._turns[job.user])
        chunks = [waiting[start : start + _CHUNK] for start in range(0, len(waiting), _CHUNK)] or [[]]
        first = QueueSnapshot(
            waiting=tuple(chunks[0]),
            running=tuple(self.running.values()),
            stuck=tuple(self.stuck.values()),
            workers=tuple(self.workers.values()),
            recent=tuple(self._recent),
            outcomes=dict(self._outcomes),
            ended={str(minute): count for minute, count in self._ended.items()},
            starts=tuple(self._starts),
        )
        return [first, *(QueueSnapshot(waiting=tuple(chunk)) for chunk in chunks[1:])]

    def _restore(self, event: QueueSnapshot) -> None:
        for claim in event.running:
            self._run(claim)
        for job in event.waiting:
            self._wait(job)
        self.stuck |= {job.id: job for job in event.stuck}
        self.workers |= {worker.id: worker for worker in event.workers}
        self._recent |= dict.fromkeys(event.recent)
        self._outcomes.update(event.outcomes)
        self._ended.update({int(minute): count for minute, count in event.ended.items()})
        for start in event.starts:
            self._remember(start)

    def status(self, queue: str, current_time: datetime) -> QueueStatus:
        """What `bartack workers` shows."""
        due = [job for job in self.waiting.values() if job.not_before is None or job.not_before <= current_time]
        minute = int(current_time.timestamp() // 60)
        ended = sum(count for ended_minute, count in self._ended.items() if minute - _MINUTES <= ended_minute < minute)
        return QueueStatus(
            queue=queue,
            at=current_time,
            waiting=len(self.waiting),
            scheduled=len(self.waiting) - len(due),
            oldest=min((job.queued_at for job in due), default=None),
            running=tuple(sorted(self.running.values(), key=lambda claim: claim.since)),
            stuck=tuple(self.stuck.values()),
            workers=tuple(self.workers.values()),
            outcomes=dict(self._outcomes),
            per_minute=round(ended / _MINUTES, 1),
        )


def _add(counts: Counter[Any], key: Any, number: int) -> None:
    """Add to a count. A count of zero takes no room."""
    counts[key] += number
    if not counts[key]:
        del counts[key]


def _scopes(counted: Job | JobStart | _Lane) -> Iterator[_Scope]:
    """What limits count this for."""
    for dimension, name in (("user", counted.user), ("provider", counted.provider), ("model", counted.model)):
        if name is not None:
            yield dimension, name
