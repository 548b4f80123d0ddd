"""`QueueState`: the fold over the events of a queue, from which every process reads the same state.

Waiting jobs are kept in *lanes*: jobs with the same agent, user, model and protocol version, which limits treat alike.
The next job is thus found without looking at all those that a limit holds back. Jobs that have begun have separate
lanes, which go first. A job whose session is busy waits outside the lanes until the session is free.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import NamedTuple

from msgspec.structs import replace

from bartack.queues.events import (
    Cancelled,
    Claimed,
    Completed,
    Enqueued,
    Event,
    Joined,
    Left,
    Moved,
    Snapshot,
    Start,
)
from bartack.queues.job import MAX_STARTS, Job, Limit, QueueStatus, RunningJob, WorkerInfo

__all__ = ["MAX_ATTEMPTS", "QueueState"]

# Workers that may die with a job before it is set aside. Not few: all that a worker does dies with it, and a long run
# may outlive many machines.
MAX_ATTEMPTS = 20
_RECENT = 1000  # ids of ended jobs, which are not enqueued again
_STARTS = 10_000  # starts that are remembered by workers without limits,
_WINDOW = timedelta(hours=1)  # for so long; others may have limits
_MINUTES = 5  # over which the throughput is averaged
_CHUNK = 500  # jobs in one event of a snapshot

_Key = tuple[bool, int, datetime, str, int]  # in the order of claims; the last is the number of the placement


class _Lane(NamedTuple):
    agent: str
    user: str | None
    provider: str | None
    model: str | None
    protocol: int
    has_begun: bool


class QueueState:
    """Pushing an event never fails: an event that no longer applies changes nothing."""

    def __init__(self) -> None:
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, RunningJob] = {}
        self.stuck: dict[str, Job] = {}
        self.workers: dict[str, WorkerInfo] = {}
        self.moved_to: str | None = None
        self.newest_protocol: int = 0  # of the jobs that have waited
        self._recent: dict[str, None] = {}
        self._outcomes: Counter[str] = Counter()
        self._ended: Counter[int] = Counter()  # by minute
        self._starts: deque[Start] = deque()
        self._busy: dict[str, str] = {}  # session -> the job that is worked on
        self._of_user: Counter[str | None] = Counter()  # waiting jobs
        self._lanes: dict[_Lane, list[_Key]] = {}
        self._heads: list[tuple[_Key, _Lane]] = []  # the first job of each lane, and some that are no longer
        self._placed: dict[str, int] = {}  # job -> its placement in a lane; keys with another one are outdated
        self._blocked: dict[str, list[str]] = {}  # session -> jobs that wait until it is free
        self._due: list[tuple[datetime, str]] = []
        self._placements = 0

    # -- events

    def push(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case Enqueued(job=job):
                if not self.knows(job.id):
                    self._wait(job)
            case Claimed():
                self._claim(event)
            case Completed():
                self._complete(event)
            case Cancelled():
                self._cancel(event)
            case Joined(worker=worker):
                self.workers[worker.id] = worker
            case Left(worker=worker_id, is_lost=is_lost):
                self.workers.pop(worker_id, None)
                for one in [one for one in self.running.values() if one.worker == worker_id]:
                    self._free(one)
                    self._return(one, replace(one.job, attempt=one.job.attempt + is_lost))
            case Moved(to=to):
                self.moved_to = to
            case Snapshot():
                self._restore(event)

    def knows(self, job_id: str) -> bool:
        """Whether the job is here, or has ended a short while ago."""
        return any(job_id in jobs for jobs in (self.waiting, self.running, self.stuck, self._recent))

    def has_claim(self, job: Job, worker_id: str) -> bool:
        """Whether the worker has claimed the job, in this attempt."""
        one = self.running.get(job.id)
        return one is not None and (one.worker, one.job.attempt) == (worker_id, job.attempt)

    def _claim(self, event: Claimed) -> None:
        job = self.waiting.get(event.job_id)
        if job is None or job.session_id in self._busy or event.worker not in self.workers:
            return
        del self.waiting[job.id]
        self._placed.pop(job.id, None)
        self._of_user[job.user] -= 1
        self.running[job.id] = RunningJob(job=job, worker=event.worker, since=event.at)
        self._busy[job.session_id] = job.id
        self._starts.append(Start(event.at, job.user, job.provider, job.model))
        most, window = _STARTS, _WINDOW
        if event.rated_s is not None:
            most, window = MAX_STARTS, timedelta(seconds=event.rated_s)
        while len(self._starts) > most or self._starts[0].at < event.at - window:
            self._starts.popleft()

    def _complete(self, event: Completed) -> None:
        one = self.running.get(event.job_id)
        if one is None or (one.worker, one.job.attempt) != (event.worker, event.attempt):
            return
        self._free(one)
        if event.outcome == "again":
            self._return(one, replace(one.job, not_before=event.not_before))
        else:
            self._end(one.job.id, event.outcome, event.at)

    def _cancel(self, event: Cancelled) -> None:
        for job_id in event.job_ids:
            waiting = self.waiting.pop(job_id, None)
            if waiting is not None:
                self._placed.pop(job_id, None)
                self._of_user[waiting.user] -= 1
            if waiting is not None or self.stuck.pop(job_id, None) is not None:
                self._end(job_id, "aborted", event.at)
            elif job_id in self.running:
                self.running[job_id] = replace(self.running[job_id], is_cancelled=True)

    def _free(self, one: RunningJob) -> None:
        """The session of a job is free: what waited for it may be claimed."""
        del self.running[one.job.id]
        del self._busy[one.job.session_id]
        for job_id in self._blocked.pop(one.job.session_id, ()):
            if job_id in self.waiting:
                self._place(self.waiting[job_id])

    def _return(self, one: RunningJob, job: Job) -> None:
        job = replace(job, has_begun=True)
        if one.is_cancelled:
            self._recent[job.id] = None
        elif job.attempt > MAX_ATTEMPTS:
            self.stuck[job.id] = job
        else:
            self._wait(job)

    def _end(self, job_id: str, outcome: str, at: datetime) -> None:
        self._recent[job_id] = None
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        self._outcomes[outcome] += 1
        minute = int(at.timestamp() // 60)
        self._ended[minute] += 1
        for old in [one for one in self._ended if one < minute - _MINUTES]:
            del self._ended[old]

    def _wait(self, job: Job) -> None:
        self.waiting[job.id] = job
        self.newest_protocol = max(self.newest_protocol, job.protocol)
        self._placed.pop(job.id, None)
        self._of_user[job.user] += 1
        if job.not_before is None:
            self._place(job)
        else:
            heappush(self._due, (job.not_before, job.id))

    # -- the next job

    def _place(self, job: Job) -> None:
        lane = _Lane(job.agent, job.user, job.provider, job.model, job.protocol, job.has_begun)
        self._placements += 1
        self._placed[job.id] = self._placements
        keys = self._lanes.setdefault(lane, [])
        heappush(keys, (not job.has_begun, -job.priority, job.queued_at, job.id, self._placements))
        if keys[0][3] == job.id:
            self._show_head(lane)

    def _is_placed(self, key: _Key) -> bool:
        return key[3] in self.waiting and self._placed.get(key[3]) == key[4]

    def _show_head(self, lane: _Lane) -> None:
        keys = self._lanes[lane]
        while keys and not self._is_placed(keys[0]):
            heappop(keys)
        if keys:
            heappush(self._heads, (keys[0], lane))
        else:
            del self._lanes[lane]

    def next_job(
        self, now: datetime, worker: WorkerInfo, limits: Sequence[Limit] = (), *, begun_only: bool = False
    ) -> Job | None:
        """The job that this worker should claim."""
        while self._due and self._due[0][0] <= now:
            _, job_id = heappop(self._due)
            if job_id in self.waiting:
                self._place(self.waiting[job_id])
        held_back: list[tuple[_Key, _Lane]] = []
        within: dict[tuple[Limit, str], bool] = {}  # what was counted already
        found: Job | None = None
        while self._heads and found is None:
            key, lane = self._heads[0]
            if begun_only and not lane.has_begun:
                break  # nor have those behind it
            keys = self._lanes.get(lane)
            if not keys or keys[0] != key:
                heappop(self._heads)
            elif not self._is_placed(key):
                heappop(self._heads)
                self._show_head(lane)
            elif not self._may_run(lane, now, worker, limits, within):
                held_back.append(heappop(self._heads))
            elif (job := self.waiting[key[3]]).session_id in self._busy:
                self._blocked.setdefault(job.session_id, []).append(job.id)
                del self._placed[job.id]
                heappop(self._heads)
                self._show_head(lane)
            else:
                found = job
        for head in held_back:
            heappush(self._heads, head)
        return found

    def _may_run(
        self,
        lane: _Lane,
        now: datetime,
        worker: WorkerInfo,
        limits: Sequence[Limit],
        within: dict[tuple[Limit, str], bool],
    ) -> bool:
        if lane.agent not in worker.agents or lane.protocol > worker.protocol:
            return False
        for limit in limits:
            value = getattr(lane, limit.by)
            if value is not None and limit.name in (None, value):
                if (limit, value) not in within:
                    within[limit, value] = self._is_within(limit, value, now)
                if not within[limit, value]:
                    return False
        return True

    def _is_within(self, limit: Limit, value: str, now: datetime) -> bool:
        if limit.running is not None:
            count = sum(getattr(one.job, limit.by) == value for one in self.running.values())
            if count >= limit.running:
                return False
        if limit.starts is not None:
            since = now - timedelta(seconds=limit.per_s)
            count = sum(getattr(start, limit.by) == value for start in self._starts if start.at > since)
            if count >= limit.starts:
                return False
        return True

    @property
    def next_due(self) -> datetime | None:
        """When the next scheduled job is due."""
        return self._due[0][0] if self._due else None

    def claims_of(self, worker_id: str) -> Iterator[Job]:
        """The jobs that the worker has claimed."""
        return (one.job for one in self.running.values() if one.worker == worker_id)

    def of_session(self, session_id: str) -> list[Job]:
        """The jobs of a session that have not ended."""
        jobs = [*self.waiting.values(), *(one.job for one in self.running.values()), *self.stuck.values()]
        return [job for job in jobs if job.session_id == session_id]

    def waiting_of(self, user: str | None) -> int:
        """How many jobs of a user wait."""
        return self._of_user[user]

    # -- as a whole

    @property
    def size(self) -> int:
        """How many jobs a snapshot contains."""
        return len(self.waiting) + len(self.running) + len(self.stuck)

    def snapshot(self) -> list[Snapshot]:
        """The state as events, from which a new state can begin."""
        waiting = list(self.waiting.values())
        chunks = [waiting[at : at + _CHUNK] for at in range(0, len(waiting), _CHUNK)] or [[]]
        first = Snapshot(
            waiting=tuple(chunks[0]),
            running=tuple(self.running.values()),
            stuck=tuple(self.stuck.values()),
            workers=tuple(self.workers.values()),
            recent=tuple(self._recent),
            outcomes=dict(self._outcomes),
            ended={str(minute): count for minute, count in self._ended.items()},
            starts=tuple(self._starts),
        )
        return [first, *(Snapshot(waiting=tuple(chunk)) for chunk in chunks[1:])]

    def _restore(self, event: Snapshot) -> None:
        for one in event.running:
            self.running[one.job.id] = one
            self._busy[one.job.session_id] = one.job.id
        for job in event.waiting:
            self._wait(job)
        self.stuck |= {job.id: job for job in event.stuck}
        self.workers |= {worker.id: worker for worker in event.workers}
        self._recent |= dict.fromkeys(event.recent)
        self._outcomes.update(event.outcomes)
        self._ended.update({int(minute): count for minute, count in event.ended.items()})
        self._starts.extend(event.starts)

    def status(self, queue: str, now: datetime) -> QueueStatus:
        """What `bartack workers` shows."""
        due = [job for job in self.waiting.values() if job.not_before is None or job.not_before <= now]
        minute = int(now.timestamp() // 60)
        ended = sum(count for at, count in self._ended.items() if minute - _MINUTES <= at < minute)
        return QueueStatus(
            queue=queue,
            at=now,
            waiting=len(self.waiting),
            scheduled=len(self.waiting) - len(due),
            oldest=min((job.queued_at for job in due), default=None),
            running=_oldest_first(self.running.values()),
            stuck=tuple(self.stuck.values()),
            workers=tuple(self.workers.values()),
            outcomes=dict(self._outcomes),
            per_minute=round(ended / _MINUTES, 1),
        )


def _oldest_first(running: Iterable[RunningJob]) -> tuple[RunningJob, ...]:
    return tuple(sorted(running, key=lambda one: one.since))
