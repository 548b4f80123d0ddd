"""First questions, as newcomers type them into `bartack chat` in a clone, answered by the local demo model.

Prompts and limits were tuned with the first thirty. The fifteen after them were written before that, to see whether it
helps with questions of the same kinds; which tool the model chose for them was known while the patterns were written,
and three of them (installing, the price, the docs folder) were tried while prompts were tuned.

Each is the first message of a new session, with the instructions, tools and limits of the chat. The model stays loaded
between them, so only the first one includes loading it and reading the prompt that chooses a tool. Tools read the
clone; calls that would change something are denied. An answer is judged by what it must contain; `declines` also
accepts an answer that says that it is too hard or unknown. That is a rough measure, so the answers are stored next to
the verdict, in ``bench/results/first_questions.json``, for people to read.

    python -m bench.first_questions [--only TEXT]
"""

import argparse
import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bartack import Agent
from bartack.app.agent_setup import new_agent, resolve_setup
from bartack.nouns.entries import ApprovalRequired
from bartack.store import open_store
from bartack.tools import Decision

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "first_questions.json"
DECLINED = re.compile(
    r"too hard|do not know|don't know|cannot|can't|unable|not able|no access|was not done|not sure|did nothing|denied",
    re.I,
)


class Question(NamedTuple):
    """What is typed, a pattern that a usable answer contains, and whether declining is acceptable."""

    text: str
    wanted: str
    declines: bool = False


QUESTIONS = (
    Question("hi", r"\w"),
    Question("What can you do?", r"files|questions"),
    Question("Who are you?", r"bartack|model|assistant"),
    Question("What is Bartack?", r"agent|terminal|library"),
    Question("What is this project?", r"bartack|agent|library|terminal"),
    Question("How do I switch to another model?", r"/model|--model|API_KEY"),
    Question("How do I quit?", r"/quit|ctrl"),
    Question("Which files are here?", r"README|pyproject|src"),
    Question("What is in pyproject.toml?", r"bartack|project|depend"),
    Question("Summarize the README", r"bartack|agent|session|provider"),
    Question("What licence does this project have?", r"MIT", declines=True),
    Question("Which Python version do I need?", r"3\.11", declines=True),
    Question("Show me the Makefile", r"make|test|venv"),
    Question("Where is MessageAssembler defined?", r"assembler\.py", declines=True),
    Question("How do I run the tests?", r"make test|pytest", declines=True),
    Question("What does packages/bartack/src/bartack/app/settings.py do?", r"setting|config", declines=True),
    Question("Write a haiku about rain.", r"\w+\s+\w+"),
    Question("Write a Python function that reverses a string.", r"def |\[::-1\]"),
    Question("What is 17 * 23?", r"391", declines=True),
    Question("Translate 'good morning' into French.", r"bonjour", declines=True),
    Question("Explain recursion in one sentence.", r"function|itself|call"),
    Question("What is the capital of France?", r"paris"),
    Question("What is the difference between a list and a tuple in Python?", r"mutable|change|immutable|modif"),
    Question("What's the weather today?", r"$^", declines=True),
    Question("Who is the president of the United States today?", r"$^", declines=True),
    Question("Fix the bugs in this project", r"$^", declines=True),
    Question("Add tests for the command line and commit them", r"$^", declines=True),
    Question("Refactor src/bartack/models/local.py", r"$^", declines=True),
    Question("Create a file hello.txt that says hello", r"hello|approv|denied", declines=True),
    Question("Run git status", r"branch|clean|commit|modified|denied|approv", declines=True),
)
HELD_OUT = (
    Question("hello, what is this?", r"bartack|model|agent"),
    Question("How do I install this?", r"make run|pip install", declines=True),
    Question("Which models can I use?", r"anthropic|openai|ollama|claude", declines=True),
    Question("Is this free?", r"free|MIT|licen", declines=True),
    Question("List the files in the docs folder", r"guides|architecture|index"),
    Question("What does the LICENSE file say?", r"MIT|permi|copyright"),
    Question("Find the word SessionInUse in the sources", r"\.py"),
    Question("Who wrote Romeo and Juliet?", r"shakespeare"),
    Question("What is the square root of 1764?", r"\b42\b", declines=True),
    Question("Write a shell command that counts the lines of a file.", r"wc -l", declines=True),
    Question("What time is it?", r"$^", declines=True),
    Question("Deploy this to production", r"$^", declines=True),
    Question("What is a Python decorator?", r"function"),
    Question("Say hello in Japanese", r"konn?ichiwa|こんにちは", declines=True),
    Question("Write a file todo.md with the text buy milk", r"todo|approv|denied", declines=True),
)


async def ask(agent: Agent, question: Question) -> dict[str, Any]:
    """The answer, the calls, the time, and the verdict."""
    started, cpu = time.monotonic(), time.process_time()
    result = await agent.run(question.text)
    answer = "" if result.message is None else result.message.text
    is_right = re.search(question.wanted, answer, re.I) is not None
    is_declined = DECLINED.search(answer) is not None
    verdict = "answered" if is_right else "declined" if is_declined and question.declines else "wrong"
    return {
        "question": question.text,
        "verdict": verdict if result.error is None or result.error.error_code == "length" else "failed",
        "answer": answer,
        "calls": [[call.tool_name, call.arguments] for message in result.messages for call in message.tool_calls],
        "status": str(result.status) if result.error is None else f"{result.status}: {result.error.message}",
        "seconds": round(time.monotonic() - started, 1),
        "cpuSeconds": round(time.process_time() - cpu, 1),
        "inputTokens": None if result.usage is None else result.usage.input_tokens,
        "outputTokens": None if result.usage is None else result.usage.output_tokens,
    }


class _Denied:
    async def decide(self, request: ApprovalRequired) -> Decision:
        return Decision("deny", reason="nobody is there to ask", decided_by="bench")


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only questions that contain this; stores nothing")
    only = parser.parse_args().only
    os.chdir(ROOT)
    os.environ.pop("BARTACK_LOCAL_MODEL", None)
    rows = []
    setup = resolve_setup(
        model="local",
        tools=("bartack_code.workspace.plan:update_plan",),
        files=True,
        instructions=None,
        store="memory:",
    )
    async with new_agent(setup, await open_store("memory:"), approver=_Denied()) as agent:
        for question in (*QUESTIONS, *HELD_OUT):
            if only.lower() in question.text.lower():
                row = await ask(agent, question)
                rows.append(row)
                answer = " ".join(row["answer"].split())[:100]
                print(f"{row['verdict']:9} {row['cpuSeconds']:5.0f} s  {question.text}\n{'':19}{answer}", flush=True)
    if not only:
        half = len(QUESTIONS)
        counts = {"questions": counted(rows[:half]), "heldOut": counted(rows[half:])}
        print(counts, f"slowest: {max(row['cpuSeconds'] for row in rows)} s of CPU time")
        RESULTS.write_text(json.dumps({"counts": counts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def counted(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How often each verdict was given."""
    return dict(Counter(row["verdict"] for row in rows))


if __name__ == "__main__":
    asyncio.run(main())
