"""A conversation with a local model that calls tools, streams its answers and stores the session.

It needs no API key, and no network once the model is downloaded. `make run` runs it if there is no terminal.
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

from bartack import BartackError
from bartack.agent import Agent, DeltaReceived, Event, Retrying, ToolChanged
from bartack.models.weights import LocalWeights, weights_named
from bartack.nouns.tool_states import Completed, Errored, Running
from bartack.store import default_path
from bartack.tools import tool

ORDERS = {4711: "left Rotterdam by ship, arrives on Friday", 4712: "is being packed"}
TURNS = (  # a prompt, and the fact from a tool that the answer must contain
    ("Where is order 4711?", "Rotterdam"),
    ("How many days are there from 2026-03-01 to 2026-12-24?", "298"),
    ("Thank you!", ""),
)


@tool
def order_status(number: int) -> str:
    """Look up the status of an order."""
    return f"Order {number} {ORDERS.get(number, 'was not found')}."


@tool
def days_between(first: date, last: date) -> str:
    """Count the days from one date to another date."""
    return f"{(last - first).days} days"


def show(event: Event) -> None:
    """Print text as it arrives, and each tool call with its arguments, state and duration."""
    match event:
        case DeltaReceived(text=text):
            print(text, end="", flush=True)
        case Retrying(error=error):
            print(f"\n{dim(f'{error.error_code}; the answer begins again')}", flush=True)
        case ToolChanged(tool_name=name, state=Running(input=arguments)):
            print(f"{dim('tool')} {name}({json.dumps(arguments)}) ", end="", flush=True)
        case ToolChanged(state=Completed(output=output, time=span) | Errored(error=output, time=span) as state):
            took = (span.end - span.start).total_seconds() if span.end is not None else 0
            print(f"{state.status} in {took * 1000:.0f} ms: {output}", flush=True)
        case _:
            pass


def dim(text: str) -> str:
    """Dim the text on a terminal."""
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


async def converse(agent: Agent, session: str) -> str | None:
    """Run all turns. Returns None, or a description of what went wrong."""
    async with agent:
        for prompt, fact in TURNS:
            print(f"\n{dim('you ')} {prompt}", flush=True)
            async with agent.stream(prompt, session=session) as run:
                async for event in run:
                    show(event)
            print(flush=True)
            answer = run.result.output  # raises if the run failed
            results = [result.content for message in run.result.messages for result in message.tool_results]
            if fact not in "".join(map(str, results)):
                return f"No tool returned {fact!r} for {prompt!r}."
            if fact not in answer:
                return f"The answer to {prompt!r} does not contain {fact!r}, which the tool returned."
    return None


def ensure_weights(weights: LocalWeights) -> bool:
    """Download the model unless it is present. Returns whether it is available."""
    if weights.known is None or weights.path.is_file():
        return True
    return subprocess.call([sys.executable, "-m", "bartack.cli", "models", "pull", weights.model_id]) == 0


def main() -> int:
    """Returns the exit status."""
    began = time.monotonic()
    store = os.environ.get("BARTACK_STORE") or str(default_path())
    agent = Agent(
        "local",
        tools=[order_status, days_between],
        instructions="You help the customers of a shop. Answer in one short sentence.",
        store=store,
    )
    print(f"{agent.model.model_info().name} runs in this process; no API key needed.", flush=True)
    if not ensure_weights(weights_named()):
        return 1  # the command has printed the reason
    session = f"tour-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    problem = asyncio.run(converse(agent, session))
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"\n{time.monotonic() - began:.0f} s. The session is stored in {store}.")
    bartack = "bartack" if shutil.which("bartack") else os.path.relpath(Path(sys.executable).with_name("bartack"))
    print(f"Show it:      {bartack} show {session}\nContinue it:  {bartack} chat --session {session}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BartackError, ModuleNotFoundError) as error:
        sys.exit(f"error: {error}")
