"""Small repositories with failing tests, and an agent that has to make them pass with the real tools.

A task is a file in `bench/tasks`: the prompt, the files, and the calls of an expert. Without arguments, a scripted
model makes the expert's calls, which proves that the tools suffice; with `--model`, any real model solves the tasks:

    python -m bench.coding_tasks --model anthropic:claude-sonnet-4-6 --json results.json

Each task is tried in a fresh folder, in a sandbox if there is one. Its tests must fail before, and pass after the run
as they were before it, whatever the model has done to them. The table shows calls of the model, tokens, the share of
the input that came from the provider's cache, cost and time. The exit status is 1 if a task is not solved.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from bartack import Agent, AgentConfig, Message, ToolCall, assistant
from bartack.app.agent_setup import connect_model
from bartack.app.coding_prompt import coding_prompt
from bartack.models import ScriptedModel
from bartack.models.model import Model
from bartack.nouns.config import LoopConfig
from bartack.store import open_store
from bartack.tools import LocalRuntime, file_tools, never

__all__ = ["Outcome", "Task", "load_tasks", "solve"]

FOLDER = Path(__file__).with_name("tasks")
TEST = "python3 -m unittest -q"
_MAX_TURNS = 40
_TEST_S = 120


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One call of the expert."""

    tool: str
    arguments: dict[str, Any]


class Task(Struct, frozen=True, forbid_unknown_fields=True):
    """A repository with failing tests, and how an expert would solve it."""

    prompt: str
    files: dict[str, str]
    expert: tuple[Step, ...]


class Outcome(Struct, frozen=True):
    """What came of one task."""

    task: str
    solved: bool
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float
    seconds: float
    problem: str = ""


def load_tasks(names: Iterable[str] = ()) -> dict[str, Task]:
    """The tasks with these names, or all of them."""
    paths = [FOLDER / f"{name}.toml" for name in names] or sorted(FOLDER.glob("*.toml"))
    return {path.stem: convert(tomllib.loads(path.read_text(encoding="utf-8")), Task) for path in paths}


def expert_model(task: Task) -> ScriptedModel:
    """A model that runs the tests, makes the expert's calls, and runs the tests again."""
    test = Step("run_command", {"command": TEST})
    calls = [
        assistant(ToolCall(f"call-{number}", step.tool, step.arguments))
        for number, step in enumerate((test, *task.expert, test))
    ]
    return ScriptedModel([*calls, "The tests pass."])


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a task."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def tests_pass(folder: Path) -> bool:
    """Whether the tests pass now. Models write code too, so it runs no longer than it must."""
    words = [sys.executable, "-m", "unittest", "-q"]
    try:
        ended = subprocess.run(words, cwd=folder, capture_output=True, timeout=_TEST_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


async def solve(name: str, task: Task, model: Model) -> Outcome:
    """Have the model solve a task in a fresh folder."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bartack-task-") as temporary:
        folder = Path(temporary)
        write_files(folder, task.files)
        if tests_pass(folder):
            return Outcome(name, False, 0, 0, 0, 0, 0.0, 0.0, "its tests pass already")
        info = model.model_info()
        store = await open_store("memory:")
        agent = Agent(
            model,
            tools=file_tools(),
            runtime=LocalRuntime(folder, sandbox="auto"),
            approval=never,
            instructions=coding_prompt(info.provider, info.context_window),
            config=AgentConfig(loop=LoopConfig(max_iterations=_MAX_TURNS)),
            store=store,
        )
        async with agent:
            result = await agent.run(f"{task.prompt}\n\nRun the tests with: {TEST}", session="task")
        write_files(folder, {path: text for path, text in task.files.items() if Path(path).name.startswith("test_")})
        is_solved = tests_pass(folder)
        spend = (await store.totals("task")).spend
        messages = [entry.fact for entry in await store.load("task") if isinstance(entry.fact, Message)]
        problem = "" if result.error is None else result.error.message or str(result.error.error_code)
    return Outcome(
        name,
        is_solved,
        sum(message.role == "assistant" for message in messages),
        spend.input_tokens,
        spend.cache_read_tokens,
        spend.output_tokens,
        spend.cost_usd,
        time.monotonic() - began,
        problem,
    )


HEADING = f"{'task':18} {'solved':>6} {'calls':>5} {'input':>8} {'cached':>6} {'output':>7} {'cost':>8} {'time':>7}"


def row(outcome: Outcome) -> str:
    """The line of the table for one task."""
    share = f"{outcome.cached_tokens * 100 // outcome.input_tokens} %" if outcome.input_tokens else "-"
    return (
        f"{outcome.task:18} {'yes' if outcome.solved else 'no':>6} {outcome.calls:5} {outcome.input_tokens:8}"
        f" {share:>6} {outcome.output_tokens:7} {outcome.cost_usd:8.4f} {outcome.seconds:5.1f} s {outcome.problem}"
    ).rstrip()


async def main(arguments: argparse.Namespace) -> int:
    """Solve the tasks one after the other; 1 if one is not solved."""
    outcomes: list[Outcome] = []
    print(HEADING)
    for name, task in load_tasks(arguments.tasks).items():
        model = expert_model(task) if arguments.model is None else connect_model(arguments.model)
        outcomes.append(await solve(name, task, model))
        print(row(outcomes[-1]), flush=True)
    solved, cost = sum(outcome.solved for outcome in outcomes), sum(outcome.cost_usd for outcome in outcomes)
    print(f"{solved} of {len(outcomes)} solved, ${cost:.4f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(to_builtins(outcomes), indent=2) + "\n", encoding="utf-8")
    return 0 if all(outcome.solved for outcome in outcomes) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Solve the tasks in bench/tasks.")
    parser.add_argument("tasks", nargs="*", help="names of tasks; all of them without one")
    parser.add_argument("--model", help="vendor:model; the scripted expert without it")
    parser.add_argument("--json", type=Path, help="also write the outcomes to this file")
    sys.exit(asyncio.run(main(parser.parse_args())))
