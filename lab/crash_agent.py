"""Kill an agent's process after every entry of a run and at random moments, and resume in a new process.

    python -m lab.crash_agent [--random N] [--folder DIR]

The run has model calls, parallel tools and an approval, on a SQLite store. It is killed (kill -9) after each entry in
turn, and after random delays; then another process resumes the session. Afterwards

- no acknowledged entry is lost,
- no tool ran twice unless it is idempotent, and no call with a stored result ran again,
- every call has one result, each format's rules accept the history, and every encoder can encode it.

Every process is forked from this one, which takes only milliseconds.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from bartack import ApprovalRequired, Entry, Message, ModelConfig, ToolCall, assistant
from bartack.agent import Agent
from bartack.formats import FORMATS, ModelRequest, encode, format_named
from bartack.formats.repair import repair
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.store import Lease, open_store
from bartack.store.append import Batch, Permit
from bartack.store.sqlite import SqliteStore
from bartack.tools import Decision, ToolContext, ToolDefinition, tool
from tests.formats.history_check import check_history

SESSION = "crash"
ENTRIES = 17  # an uninterrupted run: header, start, prompt, 3 answers, 4 starts, 4 results, 2 of approval, end


class Journal:
    """A log of what the processes did, one line each, which survives their death."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, *words: object) -> None:
        """Append a line."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, " ".join(map(str, (*words, os.getpid()))).encode() + b"\n")
        os.close(file)

    def lines(self, word: str) -> list[list[str]]:
        """The lines that begin with this word, split, without it."""
        if not self._path.exists():
            return []
        split = (line.split() for line in self._path.read_text().splitlines())
        return [words for first, *words in split if first == word]


class Model(ScriptedModel):
    """Answers according to the history, so that a new process continues where the old one was."""

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        match sum(message.role == "assistant" for message in messages):
            case 0:
                return assistant(
                    "Paying.",
                    ToolCall("c1", "pay", {"amount": 1}),
                    ToolCall("c2", "pay", {"amount": 2}),
                    ToolCall("c3", "look", {"city": "Rome"}),
                )
            case 1:
                return assistant(ToolCall("c4", "pay_much", {"amount": 1000}))
            case _:
                return "Done."


class Approver:
    """Approves after a short delay."""

    async def decide(self, request: ApprovalRequired) -> Decision:
        """Approve."""
        await asyncio.sleep(0.002)
        return Decision("approve", decided_by="ann")


def tools(journal: Journal) -> list[ToolDefinition]:
    """Two tools that must not run twice, and one that may."""

    async def logged(context: ToolContext, answer: str) -> str:
        journal.write("run", context.tool_call_id)
        await asyncio.sleep(0.002)
        return answer

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Transfer money."""
        return await logged(context, f"paid {amount}")

    @tool(requires_approval=True)
    async def pay_much(amount: int, context: ToolContext) -> str:
        """Transfer a large sum."""
        return await logged(context, f"paid {amount}")

    @tool(idempotent=True)
    async def look(city: str, context: ToolContext) -> str:
        """Look at a city."""
        return await logged(context, f"seen {city}")

    return [pay, pay_much, look]


class FatalStore(SqliteStore):
    """Logs what it has acknowledged, and kills its process after this many entries."""

    journal: Journal
    left: int | None = None

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        lease = await super()._append(batch, expected_tail, permit)
        for entry_id in batch.ids:
            self.journal.write("ack", entry_id)
        if self.left is not None:
            self.left -= len(batch.ids)
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return lease


async def work(folder: Path, entries: int | None) -> None:
    """The run that will be killed."""
    journal = Journal(folder / "journal")
    store = await FatalStore.open(folder / "sessions.db")
    assert isinstance(store, FatalStore)
    store.journal, store.left = journal, entries
    journal.write("open")
    agent = Agent(Model([]), tools=tools(journal), store=store, approver=Approver())
    assert (await agent.run("Pay", session=SESSION)).output == "Done."
    await store.close()


async def resume_and_check(folder: Path) -> None:
    """In another process: resume, and check the session."""
    journal = Journal(folder / "journal")
    store = await open_store(folder / "sessions.db")
    agent = Agent(Model([]), tools=tools(journal), store=store, approver=Approver())
    is_there = bool((await store.sessions()).items)
    before = results_in(await store.load(SESSION)) if is_there else set()
    done = await agent.resume(SESSION) if is_there else None  # the session of a dead process is free at once
    if done is None or done.status == "idle":  # killed before the run had started
        done = await agent.run("Pay", session=SESSION)
    assert done.output == "Done.", done
    check(list(await store.load(SESSION)), journal, before)
    assert (await agent.run("And now?", session=SESSION)).output == "Done."
    await store.close()


def results_in(entries: Sequence[Entry]) -> set[str]:
    """The calls that have a result."""
    messages = [entry.fact for entry in entries if isinstance(entry.fact, Message)]
    return {result.tool_call_id for message in messages for result in message.tool_results}


def check(entries: Sequence[Entry], journal: Journal, stored_before: set[str]) -> None:
    """Raise `AssertionError` for any violation."""
    acknowledged = {entry_id for entry_id, _ in journal.lines("ack")}
    lost = acknowledged - {entry.id for entry in entries}
    assert not lost, f"acknowledged but lost: {lost}"
    runs = journal.lines("run")
    count = Counter(call_id for call_id, _ in runs)
    assert all(count[call_id] <= 1 for call_id in ("c1", "c2", "c4")), f"run twice: {count}"
    again = {call_id for call_id, pid in runs if pid == str(os.getpid())} & stored_before
    assert not again, f"executed again despite a result: {again}"
    messages = [entry.fact for entry in entries if isinstance(entry.fact, Message)]
    calls = Counter(call.tool_call_id for message in messages for call in message.tool_calls)
    results = Counter(result.tool_call_id for message in messages for result in message.tool_results)
    assert calls == results, f"calls {calls}, results {results}"
    for name in FORMATS:
        rules = format_named(name).rules
        assert check_history(repair(messages, rules).messages, rules) == []
        encode(name, ModelRequest(tuple(messages), config=ModelConfig("anthropic.claude-sonnet-4-5")))


# -- processes


def forked(program: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """The id of a new process that runs the program and exits with 0 on success."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        asyncio.run(program())
        status = 0
    except BaseException:  # noqa: BLE001 - a process ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(pid: int) -> int:
    """The exit code of a process, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def crash(folder: Path, name: str, entries: int | None, delay_s: float | None) -> bool:
    """Kill one run and resume it in another process; whether all checks passed."""
    place = folder / name
    place.mkdir(parents=True)
    pid = forked(lambda: work(place, entries))
    if delay_s is not None:
        wait_for_store(place)
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
    exit_code = ended(pid)
    if exit_code != -signal.SIGKILL and (exit_code, delay_s is None) != (0, False):
        print(f"{name}: the first process failed on its own ({exit_code})")
        return False
    if ended(forked(lambda: resume_and_check(place))) != 0:
        print(f"{name}: failed, see above; files in {place}")
        return False
    return True


def uninterrupted_s(folder: Path) -> float:
    """The duration of a run that is not killed."""
    place = folder / "uninterrupted"
    place.mkdir(parents=True)
    pid = forked(lambda: work(place, None))
    wait_for_store(place)
    began = time.monotonic()
    assert ended(pid) == 0
    return time.monotonic() - began


def wait_for_store(place: Path) -> None:
    """Wait until the first process has opened its store, so that a run is killed and not its start-up."""
    journal = Journal(place / "journal")
    for _ in range(20_000):
        if journal.lines("open"):
            return
        time.sleep(0.0005)
    raise TimeoutError(f"No store was opened in {place}")


def main() -> int:
    """The number of failed checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=50, help="number of kills at random moments")
    parser.add_argument("--folder", type=Path, help="folder for the sessions (default: temporary)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        wrong = sum(not crash(folder, f"after-{count}", count, None) for count in range(1, ENTRIES + 1))
        longest_s = uninterrupted_s(folder) * 1.1
        wrong += sum(
            not crash(folder, f"random-{count}", None, chance.uniform(0.0, longest_s))
            for count in range(options.random)
        )
        print(f"{ENTRIES} kills after an entry, {options.random} at random moments: {wrong} failed")
    return wrong


if __name__ == "__main__":
    sys.exit(main() > 0)
