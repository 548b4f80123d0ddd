"""Start two runs on one session, or resume it twice, at the same moment in two processes, again and again.

    python -m lab.race_runs [--store sqlite|jsonl|postgres] [--pairs 200] [--takeover]

Each run calls a model and a tool that must not run twice. Afterwards, for every pair,

- a process whose session was in use has left no trace: no prompt, no model call, no tool run,
- the tool ran once for each run that completed, and every call has the real result,
- a session that was resumed twice was continued by one process.

With --takeover, the negative control, each process takes the session from the other, and this must be noticed.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from bartack import Message, ToolCall, assistant, user
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import RunEnded, RunStarted
from bartack.nouns.errors import BartackError, SessionInUse
from bartack.store import SessionStore, next_entries, open_store
from bartack.tools import ToolContext, tool
from lab.postgres_cluster import temporary_address

_SKEW_S = 0.004  # the largest difference between the starts of two runs


# -- a process of a pair


class Model(ScriptedModel):
    """Pays once per prompt, then answers."""

    def __init__(self, name: str) -> None:
        super().__init__([])
        self.name = name
        self.asked = 0

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        self.asked += 1
        if messages[-1].role == "tool":
            return "Done."
        return assistant(ToolCall(f"{self.name}-{self.asked}", "pay", {"amount": self.asked}))


async def work(address: str, name: str, takeover: bool) -> None:
    """Run or resume the sessions named on stdin, one per line, and print what happened."""
    store, model, ran = await open_store(address), Model(name), list[str]()

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Must not run twice."""
        ran.append(context.tool_call_id)
        await asyncio.sleep(0)
        return f"paid {amount}"

    agent = Agent(model, tools=[pay], store=store, name=name)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        kind, session = line.split()
        ran.clear()
        before = model.asked
        await asyncio.sleep(random.uniform(0, _SKEW_S))
        try:
            if kind == "run":
                result = await agent.run(f"by {name}", session=session, takeover=takeover)
            else:
                result = await agent.resume(session, takeover=takeover)
            outcome = str(result.status)
        except SessionInUse:
            outcome = "in use"
        except BartackError as error:
            outcome = f"{type(error).__name__}: {error}"
        print(json.dumps({"outcome": outcome, "asked": model.asked - before, "ran": ran}), flush=True)
    await store.close()


class Worker:
    """A process that runs or resumes the sessions sent to it."""

    def __init__(self, address: str, name: str, takeover: bool) -> None:
        options = ["--worker", name, "--address", address, *(["--takeover"] if takeover else [])]
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.race_runs", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, kind: str, session: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind} {session}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


# -- the pairs


async def interrupted(store: SessionStore, session: str) -> None:
    """A session whose process died before it ran the tool of its answer."""
    header = await store.create_session(session)
    answer = assistant(ToolCall("c1", "pay", {"amount": 7}))
    entries = next_entries(
        session, await store.tail_of(session), [RunStarted(), user("by nobody"), answer], store.environment, run_id="r"
    )
    await store.append(session, entries, header.id)


async def faults_of(kind: str, store: SessionStore, session: str, replies: dict[str, dict[str, Any]]) -> list[str]:
    """What went wrong in one pair."""
    facts = [entry.fact for entry in await store.load(session)]
    messages = [fact for fact in facts if isinstance(fact, Message)]
    prompts = [message.text for message in messages if message.role == "user"]
    results = {result.tool_call_id: result.content for message in messages for result in message.tool_results}
    faults: list[str] = []
    for name, reply in replies.items():
        outcome, traces = reply["outcome"], prompts.count(f"by {name}")
        if outcome == "in use" and (traces or reply["asked"] or reply["ran"]):
            faults.append(f"{name} found the session in use, but left traces: {traces} prompts, {reply}")
        elif outcome not in ("in use", "completed"):
            faults.append(f"{name}: {outcome}")
        elif outcome == "completed" and kind == "run" and (traces, len(reply["ran"])) != (1, 1):
            faults.append(f"{name} completed with {traces} prompts: {reply}")
    ran = [call_id for reply in replies.values() for call_id in reply["ran"]]
    if kind == "resume" and ran != ["c1"]:
        faults.append(f"the tool of the interrupted run ran {len(ran)} times")
    if len(set(ran)) != len(ran) or set(ran) != set(results):
        faults.append(f"calls that ran {ran}, results {list(results)}")
    faults += [f"{call_id}: {content}" for call_id, content in results.items() if not str(content).startswith("paid")]
    if sum(isinstance(fact, RunEnded) for fact in facts) != (1 if kind == "resume" else len(prompts)):
        faults.append("a run has no end, or two")
    return faults


async def race(address: str, pairs: int, takeover: bool) -> list[str]:
    """The faults of this many pairs of runs, and of resumes."""
    store = await open_store(address)
    workers = [Worker(address, name, takeover) for name in ("ann", "bob")]
    faults: list[str] = []
    in_use = 0
    for number in range(pairs):
        for kind in ("run", "resume"):
            session = f"{kind}-{number}"
            if kind == "resume":
                await interrupted(store, session)
            for worker in workers:
                worker.send(kind, session)
            replies = {worker.name: json.loads(await asyncio.to_thread(worker.line)) for worker in workers}
            in_use += sum(reply["outcome"] == "in use" for reply in replies.values())
            faults += [f"{session}: {fault}" for fault in await faults_of(kind, store, session, replies)]
    for worker in workers:
        worker.close()
    await store.close()
    print(f"{pairs} pairs of runs and of resumes: {in_use} found the session in use, {len(faults)} faults")
    return faults


def main() -> int:
    """Whether there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "jsonl", "postgres"], default="sqlite")
    parser.add_argument("--address", help="address of an empty store (default: a temporary one)")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--takeover", action="store_true", help="the negative control")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(work(options.address, options.worker, options.takeover))
        return 0
    with nullcontext(options.address) if options.address else temporary_address(options.store) as address:
        faults = asyncio.run(race(address, options.pairs, options.takeover))
    for fault in faults[:20]:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
