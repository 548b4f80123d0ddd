"""Kill an agent's process at every point of a run and at random moments, and let a new process go on.

    python scripts/crash_agent.py [--random N] [--folder DIR]

The run has model calls, parallel tools and an approval, on a SQLite store. It is killed (kill -9) after each entry in
turn, and after random pauses; then another process resumes the session. Afterwards it must be true that

- no entry that was acknowledged is lost,
- no tool that is not idempotent ran twice, and no call with a stored result ran again,
- every call has one result, and each provider's rules accept the history, which every encoder can put into words.

Every process is forked from this one, which does nothing else: so a new process costs milliseconds.
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
from bartack.formats.history_rules import check_history
from bartack.formats.repair import repair
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.store import Lease, SessionStore, Tail, open_store
from bartack.tools import Decision, ToolContext, ToolDefinition, tool

SESSION = "crash"
ENTRIES = 17  # of an undisturbed run: header, start, prompt, 3 answers, 4 starts, 4 results, 2 of approval, end


class Journal:
    """What processes did, one line each, kept by the system even if they are killed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, *words: object) -> None:
        """Add a line."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, " ".join(map(str, (*words, os.getpid()))).encode() + b"\n")
        os.close(file)

    def lines(self, word: str) -> list[list[str]]:
        """The lines that begin with this word, without it."""
        if not self._path.exists():
            return []
        split = (line.split() for line in self._path.read_text().splitlines())
        return [rest for first, *rest in split if first == word]


class Model(ScriptedModel):
    """Answers by what has been said, so that a new process goes on where the old one was."""

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
    """A human who takes a moment."""

    async def decide(self, request: ApprovalRequired) -> Decision:
        """Yes."""
        await asyncio.sleep(0.002)
        return Decision("approve", decided_by="ann")


def tools(journal: Journal) -> list[ToolDefinition]:
    """Two that must not run twice, and one that may."""

    async def noted(context: ToolContext, said: str) -> str:
        journal.write("run", context.tool_call_id)
        await asyncio.sleep(0.002)
        return said

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Moves money."""
        return await noted(context, f"paid {amount}")

    @tool(requires_approval=True)
    async def pay_much(amount: int, context: ToolContext) -> str:
        """Moves much money."""
        return await noted(context, f"paid {amount}")

    @tool(idempotent=True)
    async def look(city: str, context: ToolContext) -> str:
        """Looks."""
        return await noted(context, f"seen {city}")

    return [pay, pay_much, look]


def fatal(store: SessionStore, journal: Journal, entries: int | None) -> SessionStore:
    """The store, noting what it has acknowledged; after so many entries it kills its process."""
    append = store.append
    count = 0

    async def noted(
        session_id: str, given: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        nonlocal count
        tail = await append(session_id, given, expected_tail, lease=lease)
        for entry in given:
            journal.write("ack", entry.id)
        count += len(given)
        if entries is not None and count >= entries:
            os.kill(os.getpid(), signal.SIGKILL)
        return tail

    store.append = noted  # type: ignore[method-assign, assignment]
    return store


async def work(folder: Path, entries: int | None) -> None:
    """The run that is going to be killed."""
    journal = Journal(folder / "journal")
    store = fatal(await open_store(folder / "sessions.db"), journal, entries)
    journal.write("open")
    agent = Agent(Model([]), tools=tools(journal), store=store, approver=Approver())
    assert (await agent.run("Pay", session=SESSION)).output == "Done."
    await store.close()


async def go_on(folder: Path) -> None:
    """Another process: resume, and judge what the session came to."""
    journal = Journal(folder / "journal")
    store = await open_store(folder / "sessions.db")
    agent = Agent(Model([]), tools=tools(journal), store=store, approver=Approver())
    is_there = bool((await store.sessions()).items)
    before = results_in(await store.load(SESSION)) if is_there else set()
    done = await agent.resume(SESSION, takeover=True) if is_there else None
    if done is None or done.status == "idle":  # killed before the run had begun
        done = await agent.run("Pay", session=SESSION)
    assert done.output == "Done.", done
    judge(list(await store.load(SESSION)), journal, before)
    assert (await agent.run("And now?", session=SESSION)).output == "Done."
    await store.close()


def results_in(entries: Sequence[Entry]) -> set[str]:
    """The calls that have a result."""
    said = [entry.fact for entry in entries if isinstance(entry.fact, Message)]
    return {result.tool_call_id for message in said for result in message.tool_results}


def judge(entries: Sequence[Entry], journal: Journal, stored_before: set[str]) -> None:
    """Raise `AssertionError` for anything that must not be."""
    acknowledged = {entry_id for entry_id, _ in journal.lines("ack")}
    lost = acknowledged - {entry.id for entry in entries}
    assert not lost, f"acknowledged and lost: {lost}"
    runs = journal.lines("run")
    count = Counter(call_id for call_id, _ in runs)
    assert all(count[call_id] <= 1 for call_id in ("c1", "c2", "c4")), f"run twice: {count}"
    again = {call_id for call_id, pid in runs if pid == str(os.getpid())} & stored_before
    assert not again, f"had a result and ran again: {again}"
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
    """The id of a new process that runs the program and exits with 0 if it went well."""
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
    """How a process ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def crash(folder: Path, name: str, entries: int | None, delay_s: float | None) -> bool:
    """Kill one run and let another process go on; whether all was well."""
    place = folder / name
    place.mkdir(parents=True)
    pid = forked(lambda: work(place, entries))
    if delay_s is not None:
        wait_for_store(place)
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
    how = ended(pid)
    if how != -signal.SIGKILL and (how, delay_s is None) != (0, False):
        print(f"{name}: the first process failed by itself ({how})")
        return False
    if ended(forked(lambda: go_on(place))) != 0:
        print(f"{name}: see above; files in {place}")
        return False
    return True


def undisturbed_s(folder: Path) -> float:
    """How long a run takes that nobody kills."""
    place = folder / "undisturbed"
    place.mkdir(parents=True)
    pid = forked(lambda: work(place, None))
    wait_for_store(place)
    began = time.monotonic()
    assert ended(pid) == 0
    return time.monotonic() - began


def wait_for_store(place: Path) -> None:
    """Until the first process has its store open: what is killed here are runs."""
    journal = Journal(place / "journal")
    for _ in range(20_000):
        if journal.lines("open"):
            return
        time.sleep(0.0005)
    raise TimeoutError(f"no store was opened in {place}")


def main() -> int:
    """The number of crashes after which something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=50, help="how many kills at random moments")
    parser.add_argument("--folder", type=Path, help="where to keep the sessions")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        wrong = sum(not crash(folder, f"after-{count}", count, None) for count in range(1, ENTRIES + 1))
        longest_s = undisturbed_s(folder) * 1.1
        wrong += sum(
            not crash(folder, f"random-{count}", None, chance.uniform(0.0, longest_s))
            for count in range(options.random)
        )
        print(f"{ENTRIES} kills after an entry, {options.random} at random moments: {wrong} went wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main() > 0)
