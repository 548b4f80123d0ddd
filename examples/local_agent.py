"""A conversation with a real model on this machine: it calls tools, its answers come as they are written, and the whole
session is stored. No API key, and no network once the model is here. `make run` runs this where there is no terminal.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

from bartack import TextDelta
from bartack.agent import Agent, DeltaReceived, Event, ToolChanged
from bartack.models.weights import LocalWeights, weights_named
from bartack.nouns.errors import BartackError
from bartack.nouns.tool_states import Completed, Errored, Running
from bartack.store import default_path
from bartack.tools import tool

ORDERS = {4711: "left Rotterdam by ship, arrives on Friday", 4712: "is being packed"}
TURNS = (  # what is said, and what the answer must have from a tool
    ("Where is order 4711?", "Rotterdam"),
    ("How many days are there from 2026-03-01 to 2026-12-24?", "298"),
    ("Thank you!", ""),
)


@tool
def order_status(number: int) -> str:
    """Where an order is."""
    return f"Order {number} {ORDERS.get(number, 'is not known')}."


@tool
def days_between(first: date, last: date) -> str:
    """Count the days from one date to another date."""
    return f"{(last - first).days} days"


def show(event: Event) -> None:
    """Words as they come, and every tool call with its arguments, its state and its time."""
    match event:
        case DeltaReceived(delta=stamped) if isinstance(stamped.delta, TextDelta):
            print(stamped.delta.text_delta, end="", flush=True)
        case ToolChanged(tool_name=name, state=Running(input=arguments)):
            print(f"{dim('tool')} {name}({json.dumps(arguments)}) ", end="", flush=True)
        case ToolChanged(state=Completed(output=told, time=span) | Errored(error=told, time=span) as state):
            took = (span.end - span.start).total_seconds() if span.end is not None else 0
            print(f"{state.status} in {took * 1000:.0f} ms: {told}", flush=True)
        case _:
            pass


def dim(text: str) -> str:
    """Grey on a terminal."""
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


async def talk(agent: Agent, session: str) -> str | None:
    """Every turn; None if all went well, else what did not."""
    async with agent:
        for said, fact in TURNS:
            print(f"\n{dim('you ')} {said}", flush=True)
            async with agent.stream(said, session=session) as run:
                async for event in run:
                    show(event)
            print(flush=True)
            answer = run.result.output  # raises if the run did not end well, and says why
            results = [result.content for message in run.result.messages for result in message.tool_results]
            if fact not in "".join(map(str, results)):
                return f"no tool told {fact!r} for {said!r}."
            if fact not in answer:
                return f"the answer to {said!r} does not have {fact!r}, which the tool told."
    return None


def is_here(weights: LocalWeights) -> bool:
    """Whether the model's file is here, fetched if it was not."""
    if weights.known is None or weights.path.is_file():
        return True
    return subprocess.call([sys.executable, "-m", "bartack.cli", "models", "pull", weights.model_id]) == 0


def main() -> int:
    """The exit status: 0, or 1 after one sentence that says what went wrong."""
    began = time.monotonic()
    store = os.environ.get("BARTACK_STORE") or str(default_path())
    agent = Agent(
        "local",
        tools=[order_status, days_between],
        instructions="You help the customers of a shop. Answer in one short sentence.",
        store=store,
    )
    print(f"{agent.model.model_info().name} runs in this process; no API key is needed.", flush=True)
    if not is_here(weights_named()):
        return 1  # it said why
    session = f"tour-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    wrong = asyncio.run(talk(agent, session))
    if wrong is not None:
        print(f"error: {wrong}", file=sys.stderr)
        return 1
    print(f"\n{time.monotonic() - began:.0f} s; the session is stored in {store}.")
    bartack = "bartack" if shutil.which("bartack") else os.path.relpath(Path(sys.executable).with_name("bartack"))
    print(f"Look at it with: {bartack} show {session}\nGo on with it:    {bartack} chat --session {session}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BartackError, ModuleNotFoundError) as error:
        sys.exit(f"error: {error}")
