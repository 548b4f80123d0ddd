"""The live journal of a run: followed from elsewhere, kept after a crash, and never in the way of the run."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bartack import Message, MessageDelta, TextDelta
from bartack.agent import Agent, RunResult
from bartack.events import DeltaReceived, LiveDeltas, LiveEntry, LiveReset
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.nouns.config import AgentConfig, LoopConfig
from bartack.nouns.entries import MessageDeltaBatch, StreamFailed
from bartack.nouns.errors import SessionInUse, StoreError
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.store import Lease, MemoryStore, SessionStore
from bartack.store import open_store as open_at
from bartack.store.sqlite import SqliteStore
from tests.agent.kit import SESSION
from tests.store import postgres_server
from tests.store.stores import HANG_S, PERSISTENT

JOURNALLED = AgentConfig(loop=LoopConfig(journal_ms=1))
ANSWER = "one two three four five six"


class GatedModel(ScriptedModel):
    """Waits after every delta until it may proceed."""

    def __init__(self, *answers: str) -> None:
        super().__init__(answers, chunk_chars=4)
        self.steps = asyncio.Semaphore(0)

    def respond(self, request: ModelRequest) -> GuardedStream:
        stream = super().respond(request)
        return GuardedStream(self._gated(stream), stream.run_id)

    async def _gated(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        async with aclosing(stream):
            async for delta in stream:
                yield delta
                await self.steps.acquire()


async def follow(store: SessionStore, model: GatedModel) -> tuple[list[str], Message]:
    """Read the session to the answer's entry, letting the model proceed; the texts on the way, and the answer."""
    texts, text = list[str](), ""
    async with asyncio.timeout(HANG_S), aclosing(store.follow_live(SESSION)) as events:  # type: ignore[type-var]
        async for event in events:
            match event:
                case LiveReset():
                    text = event.snapshot.text
                case LiveDeltas():
                    text += "".join(
                        delta.delta.text_delta for delta in event.deltas if isinstance(delta.delta, TextDelta)
                    )
                case LiveEntry():
                    fact = event.entry.fact
                    if isinstance(fact, Message) and fact.role == "assistant":
                        return texts, fact
            texts.append(text)
            model.steps.release()
    raise AssertionError("the session has no answer")


@pytest.mark.parametrize("kind", ["memory:", "jsonl:", "sqlite:"])
async def test_an_answer_can_be_followed_while_it_arrives(kind: str, tmp_path: Path) -> None:
    address = kind if kind == "memory:" else f"{kind}{tmp_path / 'sessions'}"
    store = await open_at(address)
    reader = store if kind == "memory:" else await open_at(address)
    await store.create_session(SESSION)
    model = GatedModel(ANSWER)
    running = asyncio.create_task(Agent(model, store=store, config=JOURNALLED).run("hi", session=SESSION))
    texts, answer = await follow(reader, model)
    result = await running
    assert answer == result.message
    assert all(answer.text.startswith(text) for text in texts)
    assert texts == sorted(texts, key=len)
    assert any(0 < len(text) < len(answer.text) for text in texts)
    assert await reader.read_journal(SESSION) == ()
    await store.close()
    if reader is not store:
        await reader.close()


async def test_the_journal_does_not_contain_debugging_data() -> None:
    """000-6.4: nothing checks what a model attaches, so it must not stop the journal."""

    class RawModel(GatedModel):
        async def _gated(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
            async for delta in super()._gated(stream):
                yield replace(delta, provider_raw={"not": float("nan")})

    store = MemoryStore()
    await store.create_session(SESSION)
    model = RawModel(ANSWER)
    running = asyncio.create_task(Agent(model, store=store, config=JOURNALLED).run("hi", session=SESSION))
    texts, answer = await follow(store, model)
    await running
    assert any(0 < len(text) < len(answer.text) for text in texts)


async def test_the_journal_is_off_by_default() -> None:
    """D-5.1.1"""
    assert LoopConfig().journal_ms is None
    store = MemoryStore()
    model = GatedModel(ANSWER)
    received = 0
    async with Agent(model, store=store).stream("hi", session=SESSION) as run:
        async for event in run:
            received += isinstance(event, DeltaReceived)
            if received == 3:
                await asyncio.sleep(0.5)  # one that is on would be written by then
            assert await store.read_journal(SESSION) == ()
            model.steps.release()
    assert received > 3


class NoJournal(MemoryStore):
    """Fails to write the journal."""

    writes = 0

    async def write_journal(self, lease: Lease, batch: MessageDeltaBatch) -> None:
        self.writes += 1
        raise StoreError("the disk is full")

    async def clear_journal(self, lease: Lease) -> None:
        raise StoreError("the disk is full")


async def test_a_journal_that_cannot_be_written_does_not_hurt_the_run() -> None:
    store, model = NoJournal(), GatedModel(ANSWER)
    async with Agent(model, store=store, config=JOURNALLED).stream("hi", session=SESSION) as run:
        while not store.writes:
            model.steps.release()
            await asyncio.sleep(0.001)
        for _ in range(100):
            model.steps.release()
        async for _ in run:
            pass
    assert run.result.output == ANSWER


class LosesAReply(SqliteStore):
    """Stores the first batch of the journal but reports a failure, after more deltas have arrived."""

    has_failed = False
    model: GatedModel

    async def write_journal(self, lease: Lease, batch: MessageDeltaBatch) -> None:
        await super().write_journal(lease, batch)
        if not self.has_failed:
            self.has_failed = True
            self.model.steps.release()
            await asyncio.sleep(0.05)
            raise StoreError("the connection broke", retryable=True)


async def test_a_batch_with_an_unknown_outcome_leaves_no_gap_in_the_journal(tmp_path: Path) -> None:
    store, model = await LosesAReply.open(tmp_path / "sessions.db"), GatedModel(ANSWER)
    LosesAReply.model = model
    async with Agent(model, store=store, config=JOURNALLED).stream("hi", session=SESSION) as run:
        seqs = list[int]()
        for _ in range(5):  # not to the end: that would clear the journal
            model.steps.release()
        async with asyncio.timeout(HANG_S):
            while not seqs or seqs[-1] < 5:
                await asyncio.sleep(0.01)
                batches = await store.read_journal(SESSION)
                seqs = sorted({delta.seq for batch in batches for delta in batch.deltas})
        assert seqs == list(range(len(seqs)))
        run.abort()
    await store.close()


async def test_an_aborted_answer_leaves_no_journal() -> None:
    store, model = MemoryStore(), GatedModel(ANSWER)
    async with Agent(model, store=store, config=JOURNALLED).stream("hi", session=SESSION) as run:
        model.steps.release()
        async with aclosing(store.follow_live(SESSION)) as events:  # type: ignore[type-var]
            while not isinstance(await anext(events), LiveReset):
                pass
        run.abort()
        await run.wait()
    assert await store.read_journal(SESSION) == ()


# -- crashes


async def answer_and_hang(address: str) -> None:
    """In another process: begin an answer in each session, report what has been journalled, and wait to be killed."""
    store = await open_at(address)
    await asyncio.gather(*(answer_in(store, session) for session in ("live", *ACTS)))


async def answer_in(store: SessionStore, session: str) -> None:
    model = GatedModel(ANSWER)
    for _ in range(4):
        model.steps.release()
    async with Agent(model, store=store, config=JOURNALLED).stream("hi", session=session) as run:
        text = ""
        while len(text) < 16:  # all of the four steps
            await asyncio.sleep(0.001)
            batches = await store.read_journal(session)
            deltas = [delta.delta for batch in batches for delta in batch.deltas]
            text = "".join(delta.text_delta for delta in deltas if isinstance(delta, TextDelta))
        print(session, text, sep="\t", flush=True)
        async for _ in run:
            pass


ACTS: dict[str, Callable[[Agent], Awaitable[RunResult]]] = {
    "run": lambda agent: agent.run("again", session="run"),
    "resume": lambda agent: agent.resume("resume"),
    "abort": lambda agent: agent.abort("abort"),
}


@pytest.mark.parametrize("kind", PERSISTENT)
async def test_right_after_a_kill_others_have_the_session_with_the_partial_answer(kind: str, fast_path: Path) -> None:
    address = postgres_server.address(str(fast_path)) if kind == "postgres" else f"{kind}:{fast_path / 'sessions'}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.test_journal", address), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    lines = [await asyncio.wait_for(process.stdout.readline(), HANG_S) for _ in range(len(ACTS) + 1)]
    journalled = dict(line.decode().removesuffix("\n").split("\t") for line in lines)

    store = await open_at(address)
    agent = Agent(ScriptedModel([ANSWER, ANSWER]), store=store, config=JOURNALLED)
    for how in ("run", "resume"):
        with pytest.raises(SessionInUse):  # the other process is alive
            await ACTS[how](agent)
    assert (await asyncio.wait_for(agent.abort("live"), HANG_S)).status is AgentStatus.ABORTED
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()

    for how, act in ACTS.items():
        result = await act(agent)
        assert result.status is (AgentStatus.ABORTED if how == "abort" else AgentStatus.COMPLETED)
        facts = [entry.fact for entry in await store.load(how)]
        (failed,) = [fact for fact in facts if isinstance(fact, StreamFailed)]
        assert Message("assistant", failed.parts).text == journalled[how]
        assert ANSWER.startswith(journalled[how])
        assert await store.read_journal(how) == ()
    await store.close()


if __name__ == "__main__":
    asyncio.run(answer_and_hang(sys.argv[1]))
