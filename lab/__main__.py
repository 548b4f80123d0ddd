"""Run one of the long experiments, which are too slow, or need too much, for `make test`.

    python -m lab                       list the experiments
    python -m lab NAME [ARGUMENTS ...]  run one

An experiment is one or more commands, which run in order, each with the arguments added at its end. All of them run,
even if one fails; then the status is 1. Every module can also be run alone: `python -m lab.chaos --help`.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.repository import ROOT


class Experiment(NamedTuple):
    """What an experiment shows, and the modules that it runs, with their arguments."""

    summary: str
    commands: Sequence[str]


STORES = ("sqlite", "jsonl", "postgres")
REPORT = "--write docs/guides/workers.md"

EXPERIMENTS: Mapping[str, Experiment] = {
    "mutants": Experiment("break rules on purpose; the tests that cite them must fail", ["lab.mutants"]),
    "wheel": Experiment("build the wheels, and check each alone in clean environments", ["lab.check_wheel"]),
    "pythons": Experiment("run the pure tests under every other Python on this machine", ["lab.other_pythons"]),
    "interop": Experiment("have real agents, installed from npm and PyPI, continue our exports", ["lab.interop"]),
    "gateway": Experiment(
        "have real programs, installed from npm and PyPI, use a gateway",
        ["lab.gateway_programs", "lab.gateway_guide", "lab.gateway_chat_page"],
    ),
    "fuzz": Experiment("fuzz the wire formats for a minute of CPU time, or as many seconds", ["lab.fuzz --save fuzz"]),
    "crash": Experiment(
        "kill writers, agents and readers at random moments; nothing acknowledged may be lost",
        [
            "lab.crash",
            "lab.bit_flips",
            "lab.crash_agent",
            *(f"lab.race_runs --store {store}" for store in STORES),
            *(f"lab.outside_hands --store {store}" for store in STORES),
            *(f"lab.follow_answer --store {store}" for store in STORES),
        ],
    ),
    "maintenance": Experiment(
        "back up, check, restore, import and purge under live writers, and kill the latter two at every system call",
        [
            "lab.maintenance live",
            "lab.maintenance live --control --store sqlite --store jsonl",
            "lab.maintenance kills",
            "lab.maintenance kills --control --store jsonl",
        ],
    ),
    "approvals": Experiment(
        "approve edits of a file that another process rewrites; none of its writes may be lost", ["lab.bound_writes"]
    ),
    "soak": Experiment(
        "10,000 runs and 1,000 opened sessions in one process; memory, threads and open files must not grow",
        [f"lab.soak --store {store}" for store in ("sqlite", "jsonl")],
    ),
    "chaos": Experiment(
        "kill, stop and wake workers, and restart their database, for half an hour",
        [
            f"lab.chaos --store sqlite {REPORT}",
            f"lab.chaos --store postgres {REPORT}",
            f"lab.chaos --store postgres --engine dbos {REPORT}",
            "lab.chaos --control repeat",
            "lab.chaos --control fence",
        ],
    ),
    "capacity": Experiment(
        "measure workers and their queues, and fill in the tables of docs/guides/capacity.md",
        ["bench.workers --million --save", "lab.capacity"],
    ),
    "peers": Experiment("compare with other libraries, each with an environment in .venv-peers", ["bench.peers"]),
    "chat-pictures": Experiment(
        "record `bartack chat` in a terminal, with a scripted model (needs tmux)", ["lab.draw_chat"]
    ),
    "web-pictures": Experiment("take the screenshots of the web page (needs chromium)", ["lab.draw_web"]),
    "trace": Experiment("draw the spans of a run that is killed and resumed", ["lab.draw_charts trace"]),
    "viewers": Experiment("have Phoenix, Logfire and Langfuse read the spans of a run", ["lab.check_viewers"]),
}


def main(words: Sequence[str]) -> int:
    if not words:
        width = max(map(len, EXPERIMENTS))
        print(*(f"{name:{width}}  {experiment.summary}" for name, experiment in EXPERIMENTS.items()), sep="\n")
        return 0
    name, *arguments = words
    if name not in EXPERIMENTS:
        print(f"Unknown experiment {name!r}. `make lab` lists them.", file=sys.stderr)
        return 2
    failed = [command for command in EXPERIMENTS[name].commands if not _passes(command, arguments)]
    for command in failed:
        print(f"Failed: python -m {command}", file=sys.stderr)
    return 1 if failed else 0


def _passes(command: str, arguments: Sequence[str]) -> bool:
    print(f"== {' '.join((command, *arguments))}", flush=True)
    return subprocess.run([sys.executable, "-m", *command.split(), *arguments], cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
