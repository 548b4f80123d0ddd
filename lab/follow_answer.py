"""Follow an answer from one process while the processes that produce it are killed and the run is resumed by others.

    python -m lab.follow_answer [--store sqlite|jsonl|postgres] [--sessions 100] [--forgetful]

A process runs an agent and is killed (kill -9) in the middle of its answer, the next one resumes the run and is killed
too, and the last one completes the answer. Another process follows the session all the while, and is itself killed now
and then and replaced by one that continues at its position. Whenever an answer, or the part of it that a dead process
left, is stored,

- the text that the reader has for it is the beginning of what is stored,
- and if it is complete, it is exactly the stored text.

With --forgetful, the negative control, the reader adds every text to those before it, and this must be noticed.
"""

import argparse
import asyncio
import json
import os
import random
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, closing, nullcontext
from functools import partial
from typing import NamedTuple

from bartack import Message, MessageDelta, TextDelta
from bartack.agent import Agent
from bartack.events import LiveDeltas, LiveEntry, LiveReset
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.nouns.config import AgentConfig, LoopConfig
from bartack.nouns.entries import StreamFailed
from bartack.nouns.requests import ModelRequest
from bartack.store import open_store
from lab.crash_agent import ended, forked
from lab.postgres_cluster import temporary_address

_JOURNALLED = AgentConfig(loop=LoopConfig(journal_ms=1))
_CHUNK = 4  # characters
_CHUNKS = 12  # per answer
_HANG_S = 120


def answer_of(attempt: int) -> str:
    """A text that differs from that of every other attempt in each chunk."""
    return "".join(f"{attempt}{chunk:02} " for chunk in range(_CHUNKS))


# -- a process that answers


class Speaker(ScriptedModel):
    """Stops after this many chunks of its answer until it may proceed."""

    def __init__(self, answer: str, chunks: int, gate: int) -> None:
        super().__init__([answer], chunk_chars=_CHUNK)
        self._stop_after, self._gate = chunks, gate

    def respond(self, request: ModelRequest) -> GuardedStream:
        stream = super().respond(request)
        return GuardedStream(self._stopping(stream), stream.run_id)

    async def _stopping(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        chunks_left = self._stop_after
        async with aclosing(stream):
            async for delta in stream:
                yield delta
                chunks_left -= isinstance(delta.delta, TextDelta)
                if chunks_left == 0:
                    await asyncio.to_thread(os.read, self._gate, 1)
                    chunks_left = -1


async def answer(address: str, session: str, attempt: int, chunks: int, gate: int) -> None:
    """Start the run, or resume it."""
    store = await open_store(address)
    agent = Agent(Speaker(answer_of(attempt), chunks, gate), store=store, config=_JOURNALLED)
    await (agent.resume(session) if attempt else agent.run("Tell me.", session=session))
    await store.close()


class Runner:
    """A process with the run."""

    def __init__(self, address: str, session: str, attempt: int, chunks: int) -> None:
        gate, self._gate = os.pipe()
        self._pid = forked(lambda: answer(address, session, attempt, chunks, gate))
        os.close(gate)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        self._end(-signal.SIGKILL)

    def complete(self) -> None:
        os.write(self._gate, b"\n")
        self._end(0)

    def _end(self, status: int) -> None:
        actual = ended(self._pid)
        assert actual == status, f"the process of the run ended with {actual}"
        os.close(self._gate)


# -- a process that reads


class Seen(NamedTuple):
    """What a reader has after an event."""

    position: str = ""
    text: str = ""  # the answer in progress
    answers: int = 0  # how many are stored, complete or not
    stored: str | None = None  # the text of the answer that was stored with this event
    before: str = ""  # what the reader had of that answer
    is_complete: bool = False  # whether that answer is complete


async def read(address: str, session: str, forgetful: bool, view: Seen, output: int) -> None:
    """Follow the session, and write what is seen."""
    store = await open_store(address)
    async for event in store.follow_live(session, view.position):
        text = view.text
        view = Seen(event.position, text, view.answers)
        match event:
            case LiveReset():
                view = view._replace(text=text * forgetful + event.snapshot.text)
            case LiveDeltas():
                texts = [stamped.delta.text_delta for stamped in event.deltas if isinstance(stamped.delta, TextDelta)]
                view = view._replace(text=text + "".join(texts))
            case LiveEntry():
                fact = event.entry.fact
                if isinstance(fact, StreamFailed) or (isinstance(fact, Message) and fact.role == "assistant"):
                    stored, is_complete = Message("assistant", fact.parts).text, isinstance(fact, Message)
                    view = Seen(event.position, text * forgetful, view.answers + 1, stored, text, is_complete)
        os.write(output, json.dumps(view).encode() + b"\n")


class Reader:
    """The process that reads, and then those that take its place."""

    def __init__(self, address: str, session: str, forgetful: bool) -> None:
        self._read = partial(read, address, session, forgetful)
        self.seen = [Seen()]
        self._start()

    def _start(self) -> None:
        source, output = os.pipe()
        last = self.seen[-1]
        self._pid = forked(lambda: self._read(last, output))
        os.close(output)
        self._lines = os.fdopen(source, "rb", buffering=0)  # `select` knows nothing of lines in a buffer

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        ended(self._pid)
        self._lines.close()

    def replace(self) -> None:
        """Continue in another process, from the last event that is known here."""
        self.close()
        self._start()

    def wait_for(self, stored: int, size: int) -> None:
        """Read until this many answers are stored, and there is a text of this size of the next one."""
        while self.seen[-1].answers < stored or len(self.seen[-1].text) < size:
            ready, _, _ = select.select([self._lines], [], [], _HANG_S)
            line = self._lines.readline() if ready else b""
            assert line, f"the reader hangs or has failed after {self.seen[-1]}"
            self.seen.append(Seen(*json.loads(line)))
            assert self.seen[-1].answers <= stored, f"more is stored than expected: {self.seen[-1]}"


# -- the sessions


def faults_of(views: list[Seen], kills: int) -> list[str]:
    """What is wrong with what a reader saw of a session."""
    ends = [view for view in views if view.stored is not None]
    faults = [] if [view.is_complete for view in ends] == [False] * kills + [True] else [f"unexpected answers: {ends}"]
    for _, _, _, stored, before, is_complete in ends:
        if before != stored if is_complete else not str(stored).startswith(before):
            faults.append(f"the reader has {before!r}, stored is {stored!r}")
    return faults


def follow(address: str, session: str, chance: random.Random, forgetful: bool) -> tuple[int, list[str]]:
    """How many processes of one session were killed, and what was wrong."""
    assert ended(forked(lambda: create(address, session))) == 0
    kills = chance.randint(1, 3)
    with closing(Reader(address, session, forgetful)) as reader:
        for attempt in range(kills):
            chunks = chance.randint(1, _CHUNKS)
            runner = Runner(address, session, attempt, chunks)
            reader.wait_for(attempt, chance.randint(1, chunks) * _CHUNK)
            runner.kill()
            if chance.random() < 0.5:
                reader.replace()
        runner = Runner(address, session, kills, _CHUNKS)
        reader.wait_for(kills, _CHUNKS * _CHUNK)
        runner.complete()
        reader.wait_for(kills + 1, 0)
        return kills, faults_of(reader.seen, kills)


async def create(address: str, session: str) -> None:
    """A session to follow before anything happens in it."""
    store = await open_store(address)
    await store.create_session(session)
    await store.close()


def main() -> int:
    """Whether there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "jsonl", "postgres"], default="sqlite")
    parser.add_argument("--address", help="address of an empty store (default: a temporary one)")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forgetful", action="store_true", help="the negative control")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    kills, faults = 0, list[str]()
    with nullcontext(options.address) if options.address else temporary_address(options.store) as address:
        for number in range(options.sessions):
            killed, wrong = follow(address, f"s{number}", chance, options.forgetful)
            kills += killed
            faults += [f"session {number}: {fault}" for fault in wrong]
    print(f"{options.store}: {options.sessions} answers followed through {kills} kills, {len(faults)} faults")
    for fault in faults[:20]:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
