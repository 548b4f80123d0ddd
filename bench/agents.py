"""Bartack, Codex and opencode on the same task of 20 steps with the same scripted model: what each one sends and uses.

    python -m bench.agents [--install] [--programs FOLDER] [--rounds 3] [--json results.json]

The model has each program run the same 20 commands with its own tool, and then answers. The table shows the requests,
the bytes that were sent, the share of them that a provider's cache would have, and CPU time and memory of the program.
`--install` installs the locked versions of the others from npm first, which needs Node 20 or newer. Programs that are
not installed are left out.

The share is that of the tools, instructions and messages that begin a request exactly as an earlier one. For the API of
Anthropic it is 0 unless the request marks what to cache; that of OpenAI needs no marks. CPU time is that of all
processes, and includes the commands, which are the same and run without a sandbox in each; memory is that of the
largest process. The median of the rounds is shown.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from msgspec import Struct, to_builtins

from lab.interop import INSTALLED, PROGRAMS, Lab, install_programs, lab
from lab.scripted_model import script

STEPS = 20
_TIMEOUT_S = 600
_BARTACK = (sys.executable, "-m", "bartack.cli", "run", "--tools", "files", "--mode", "yes")

Json = dict[str, Any]


class Outcome(Struct, frozen=True):
    """What one program did in one round, or the medians of several rounds."""

    program: str
    requests: float
    sent_bytes: float
    cached_share: float
    cpu_s: float
    memory_mb: float


def prefix(body: Json) -> list[str]:
    """What a provider's cache compares, in its order: tools, instructions, messages. Marks are not a part of it."""
    instructions = body.get("system") or body.get("instructions") or []
    items = [*(body.get("tools") or []), instructions, *(body.get("messages") or body.get("input") or [])]
    return [json.dumps(_unmarked(item), sort_keys=True) for item in items]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(item) for name, item in value.items() if name != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def cached_share(bodies: Sequence[Json]) -> float:
    """The share of all requests that a cache would have from those before."""
    total = cached = 0
    before: list[list[str]] = []
    for body in bodies:
        items = prefix(body)
        total += sum(map(len, items))
        if "messages" not in body or "cache_control" in json.dumps(body):
            cached += max((_common(items, earlier) for earlier in before), default=0)
        before.append(items)
    return cached / total


def _common(items: Sequence[str], earlier: Sequence[str]) -> int:
    length = 0
    for item, other in zip(items, earlier, strict=False):
        if item != other:
            break
        length += len(item)
    return length


def measure(program: str, workshop: Lab, url: str, round_number: int) -> Outcome:
    """One round of one program."""
    home = workshop.home(program, f"round-{round_number}")
    tool, argument = ("run_command", "command") if program == "bartack" else PROGRAMS[program].tools
    steps = [{"tools": [[tool, _arguments(program, argument, number)]]} for number in range(1, STEPS + 1)]
    prompt = f"Read the files one after the other. {script(*steps, {'text': 'All files are read.'})}"
    words, environment = _command(program, workshop, home, url, prompt)
    before = len(workshop.model.exchanges)
    with tempfile.TemporaryFile() as stdin:
        if not any(prompt in word for word in words):
            stdin.write(prompt.encode())
            stdin.seek(0)
        process = subprocess.Popen(
            words,
            cwd=workshop.project,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where the steps are shown
            text=True,
        )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    sent = workshop.model.exchanges[before:]
    bodies = [json.loads(data) for _, data, _ in sent]
    if process.returncode or "All files are read." not in output or len(bodies) <= STEPS:
        raise SystemExit(f"{program} failed after {len(bodies)} requests: {process.returncode}\n{output[-2000:]}")
    last = json.dumps(bodies[-1])
    if missing := [number for number in range(1, STEPS + 1) if f"line 7 of {number}" not in last]:
        raise SystemExit(f"{program} did not send the output of steps {missing}")
    return Outcome(
        program,
        requests=len(bodies),
        sent_bytes=sum(len(data) for _, data, _ in sent),
        cached_share=cached_share(bodies),
        cpu_s=usage.ru_utime + usage.ru_stime,
        memory_mb=usage.ru_maxrss / (1_000_000 if sys.platform == "darwin" else 1_000),
    )


def _arguments(program: str, argument: str, number: int) -> Json:
    command = {argument: f"cat {number}.txt"}
    return {**command, "description": "Read a file"} if program == "opencode" else command


def _command(program: str, workshop: Lab, home: Path, url: str, prompt: str) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of a program."""
    if program != "bartack":
        values = {"prompt": prompt, "id": str(uuid4())}
        words = [re.sub(r"\{(prompt|id)\}", lambda name: values[name[1]], word) for word in PROGRAMS[program].start]
        return [str(workshop.programs / PROGRAMS[program].binary), *words], workshop.environment(program, home)
    settings = home / "config.toml"
    settings.write_text('[commands]\nsandbox = "off"\n', encoding="utf-8")  # as the others are run
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "CACHE", "STATE", "DATA")}
    model = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "x", "BARTACK_MODEL": "anthropic:claude-sonnet-4-6"}
    return [*_BARTACK, prompt], {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "BARTACK_CONFIG": str(settings),
        **folders,
        **model,
    }


def rounds(programs: Sequence[str], count: int, folder: Path) -> Iterator[Outcome]:
    """The medians of each program."""
    with lab(folder) as workshop:
        for number in range(1, STEPS + 1):
            text = "".join(f"line {line} of {number}: {'words ' * 10}\n" for line in range(40))
            (workshop.project / f"{number}.txt").write_text(text, encoding="utf-8")
        for program in programs:
            outcomes = [measure(program, workshop, workshop.model.url, number) for number in range(count)]
            names = Outcome.__struct_fields__[1:]
            yield Outcome(program, *(median(getattr(outcome, name) for outcome in outcomes) for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Bartack with Codex and opencode on a scripted task.")
    parser.add_argument("--install", action="store_true", help="install codex and opencode in .interop")
    parser.add_argument(
        "--programs", type=Path, default=INSTALLED, help="a folder with node_modules that has codex and opencode"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("bartack", "codex", "opencode"), action="append")
    parser.add_argument("--json", type=Path, help="a file for the results")
    arguments = parser.parse_args()
    if arguments.install:
        install_programs()
    others = [name for name in ("codex", "opencode") if (arguments.programs / PROGRAMS[name].binary).exists()]
    programs = arguments.only or ["bartack", *others]
    print(f"{'program':<10} requests  kB sent  cached   CPU s  memory MB")
    outcomes = []
    for outcome in rounds(programs, arguments.rounds, arguments.programs):
        outcomes.append(outcome)
        sent, share = outcome.sent_bytes / 1000, f"{outcome.cached_share:.0%}"
        cost = f"{outcome.cpu_s:>6.2f} {outcome.memory_mb:>10.0f}"
        print(f"{outcome.program:<10} {outcome.requests:>8.0f} {sent:>8.0f} {share:>7}  {cost}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(to_builtins(outcomes), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
