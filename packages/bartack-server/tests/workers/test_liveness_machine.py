"""The liveness rule, whatever the order: every open request of a session that nobody holds has a job, and every prompt
that was accepted is executed or reported.

People submit, decide and abort, and their processes may die before they have enqueued a job. Two workers claim jobs and
execute them, or die before, in or after a run. After each look of a supervisor the rule must hold; in the end, when
every question is withdrawn and the workers have no more to do, so must the promise about prompts.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec import to_builtins

from bartack import Message, ScriptedModel, ToolCall, assistant
from bartack.agent import Agent
from bartack.nouns.entries import RunEnded
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, NotFound, StoreError
from bartack.queues import Job, StoreQueue, WorkerInfo, continue_run, state
from bartack.queues.run_queue import JOB_KEY
from bartack.queues.state import WorkerLeft
from bartack.session.decisions import Decision
from bartack.store.requests import decide, load_state, request_abort
from bartack_server.supervisor import has_work
from bartack_server.workers import Worker, missing_jobs
from tests.agent.kit import messages, transfer, within
from tests.store.stores import opener

SESSIONS = st.sampled_from(["s", "t"])
WORKERS = st.integers(0, 1)
PROMPTS = st.sampled_from(["Ask", "Pay", "Break"])
KINDS = {"memory": 200, "sqlite": 20, "postgres": 10}  # store -> examples


def respond(history: Sequence[Message]) -> Any:
    last = history[-1]
    if last.role == "user" and last.text.startswith("Pay"):
        return assistant(ToolCall("c1", "transfer", {"amount": 5}))
    if last.role == "user" and last.text.startswith("Break"):
        raise ModelError("The account is closed.", code=ErrorCode.PERMISSION_DENIED)
    return "Done."


class DyingQueue(StoreQueue):
    """The queue of a process that dies instead of enqueueing a job."""

    async def enqueue(self, job: Job) -> None:
        raise StoreError(f"The process died before it had enqueued job {job.id}.")


class Liveness(RuleBasedStateMachine):
    """A store, its queue, and two workers."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.store = self.do(opener(self.kind, Path(self.folder.name))())
        self.queue = StoreQueue(self.store)
        self.accepted: dict[str, str] = {}  # prompt -> session
        self.workers = [self.new_worker(), self.new_worker()]
        self.claims: list[list[Job]] = [[], []]

    def do(self, work: Awaitable[Any]) -> Any:
        return self.runner.run(within(work))

    def new_agent(self) -> Agent[Any, Any]:
        return Agent(ScriptedModel([respond] * 100), tools=[transfer], store=self.store, name="a")

    def new_worker(self) -> Worker:
        worker = Worker(StoreQueue(self.store, max_deaths=3), {"a": self.new_agent()}, self.store)
        self.do(worker._queue.heartbeat(worker.info))
        return worker

    # -- people

    @rule(session=SESSIONS, prompt=PROMPTS, survives=st.booleans())
    def submit(self, session: str, prompt: str, survives: bool) -> None:
        text = f"{prompt} {len(self.accepted)}"
        queue = self.queue if survives else DyingQueue(self.store)
        with suppress(StoreError):
            self.do(self.new_agent().submit(text, session=session, queue=queue))
        self.accepted[text] = session

    @rule(session=SESSIONS, verdict=st.sampled_from(["approve", "deny"]), survives=st.booleans())
    def decide(self, session: str, verdict: Any, survives: bool) -> None:
        async def answer() -> None:
            with suppress(BartackError):  # there is no question
                _, run_state = await load_state(self.store, session)
                (question,) = run_state.questions
                request = await decide(self.store, session, question.tool_call_id, Decision(verdict))
                await continue_run(self.store, self.queue if survives else DyingQueue(self.store), request)

        with suppress(ValueError):
            self.do(answer())

    @rule(session=SESSIONS, how=st.sampled_from(["here", "by a worker", "by a process that dies"]))
    def abort(self, session: str, how: str) -> None:
        async def end() -> None:
            with suppress(BartackError):  # there is no run
                if how == "here":
                    await self.new_agent().abort(session)
                else:
                    request = await request_abort(self.store, session)
                    queue = self.queue if how == "by a worker" else DyingQueue(self.store)
                    await continue_run(self.store, queue, request)

        self.do(end())

    # -- workers

    @rule(number=WORKERS)
    def claim(self, number: int) -> None:
        worker = self.workers[number]
        job = self.do(worker._queue.claim(worker.info, 0))
        if job is not None:
            held = [claim.session_id for claims in self.claims for claim in claims]
            assert job.session_id not in held
            self.claims[number].append(job)

    @precondition(lambda self: any(self.claims))
    @rule(number=WORKERS)
    def work(self, number: int) -> None:
        for job in self.claims[number][:1]:
            self.do(self.workers[number]._work_on(job, self.workers[number].info))
            self.claims[number].remove(job)

    @precondition(lambda self: any(self.claims))
    @rule(number=WORKERS)
    def die_in_a_run(self, number: int) -> None:
        """The worker dies after a step of its run."""
        for job in self.claims[number][:1]:
            self.do(self._begin(job))
        self.die(number)

    async def _begin(self, job: Job) -> None:
        with suppress(BartackError):  # there is nothing to do
            run = self.new_agent().resume_stream(job.session_id, metadata={JOB_KEY: to_builtins(job)})
            async with run:
                run.suspend(after_step=True)
                await run.wait()

    @rule(number=WORKERS)
    def die(self, number: int) -> None:
        self.lose(self.workers[number].info)
        self.workers[number], self.claims[number] = self.new_worker(), []

    def lose(self, worker: WorkerInfo) -> None:
        """Another worker finds out that this one is dead."""
        self.do(self.queue.status())  # reads that it has joined
        self.do(
            self.queue._append(
                lambda state: (
                    WorkerLeft(worker=worker.id, at=self.queue._now(), is_lost=True, max_deaths=3)
                    if worker.id in state.workers
                    else None
                )
            )
        )

    @rule(session=SESSIONS)
    def retry(self, session: str) -> None:
        self.do(self.queue.retry(session))

    # -- what must hold

    @rule()
    def look(self) -> None:
        """A supervisor looks. Afterwards, every open request has a job."""
        self.do(self._look())

    async def _look(self) -> None:
        looking = missing_jobs(self.store, self.queue)
        await looking.look()
        await looking.leave()
        await self.queue.status()  # reads what others have added
        for session in set(self.accepted.values()):
            _, run_state = await load_state(self.store, session)
            if has_work(run_state, self.store.environment.now()):
                assert self.queue._state.of_session(session), (session, run_state.inbox, run_state.run_id)

    async def _drain(self) -> None:
        """Work until there is no job left."""
        await self._look()
        worker = self.workers[0]
        while (job := await worker._queue.claim(worker.info, 0)) is not None:
            await worker._work_on(job, worker.info)
            await self._look()

    async def _withdraw_questions(self) -> None:
        for session in set(self.accepted.values()):
            with suppress(NotFound):  # it has no open run
                await continue_run(self.store, self.queue, await request_abort(self.store, session))

    async def _finish(self) -> None:
        for session in set(self.accepted.values()):
            await self.queue.retry(session)
        await self._drain()
        for _ in self.accepted:  # each open run may have one more behind it
            await self._withdraw_questions()
            await self._drain()
        status = await self.queue.status()
        assert (status.waiting, status.running, status.stuck) == (0, (), ())
        for text, session in self.accepted.items():
            facts = [entry.fact for entry in await self.store.entries(session)]
            prompts = [
                number
                for number, fact in enumerate(facts)
                if isinstance(fact, Message) and fact.role == "user" and fact.text == text
            ]
            assert len(prompts) == 1, (text, [message.text for message in await messages(self.store, session)])
            assert any(isinstance(fact, RunEnded) for fact in facts[prompts[0] :]), text

    def teardown(self) -> None:
        try:
            for number in range(2):
                self.die(number)
            self.do(self._finish())
        finally:
            self.do(self.store.close())
            self.runner.close()
            self.folder.cleanup()


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_order_every_open_request_has_a_job_and_every_prompt_is_executed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_BACK_OFF_S", 0.0)  # the pause before a suspect is tried again
    machine = type(f"Liveness{kind}", (Liveness,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=KINDS[kind],
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
