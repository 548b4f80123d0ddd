"""Fill the table of ratios in docs/performance.md: the median of five runs of each benchmark, and their spread.

    python -m lab.performance [BENCHMARK ...]

`make bench` ends with it. With names, such as ``codec``, only their rows are measured, and the others stay. A
benchmark prints its ratios; a figure that it does not print is an error, so that the page cannot keep an old one.
"""

import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.repository import ROOT, fill_section

ROUNDS = 5
PAGE = ROOT / "docs" / "performance.md"


class Ratio(NamedTuple):
    """One ratio that a benchmark prints."""

    name: str
    pattern: str  # its first group is the number
    aim: str


RATIOS: Mapping[str, Sequence[Ratio]] = {
    "codec": (
        Ratio("reading the entries of a session / msgspec on plain structs", r"^all\s+\d+\s+\S+\s+\S+\s+(\S+)", "≤ 3"),
        Ratio(
            "writing them / msgspec on plain structs",
            r"^all\s+\d+\s+\S+\s+\S+\s+\S+ \(\S+\)\s+\S+\s+\S+\s+(\S+)",
            "≤ 3",
        ),
    ),
    "open_session": (
        Ratio("opening a session of 500 turns / decoding its entries", r"^growing .* (\S+)\s+\S+$", "≤ 3"),
        Ratio("… if it was compacted", r"^compacted .* (\S+)\s+\S+$", "≤ 3"),
        Ratio("the messages of its first request / decoding its entries", r"^growing .* (\S+)$", "≤ 6"),
        Ratio("… if it was compacted", r"^compacted .* (\S+)$", "≤ 6"),
    ),
    "store": (
        Ratio("SQLite, 64 writers: a commit per entry / group commit", r"ratio (\S+) \(target: 10 or more", "≥ 10"),
        Ratio("SQLite, 64 writers / apsw storing the same rows, in CPU", r"2\.0 or less\), (\S+) in CPU", "≤ 2"),
        Ratio("SQLite: opening 100,000 entries / decoding them", r"SqliteStore[^;]*; ratio (\S+)", "≤ 2"),
        Ratio("JSONL: opening 100,000 entries / decoding them", r"JsonlStore[^;]*; ratio (\S+)", "≤ 2"),
        Ratio("PostgreSQL: an append / a plain INSERT", r"per plain INSERT,\s+ratio (\S+)", "≤ 2"),
    ),
    "page": (
        Ratio(
            "an answer on the page in a session of 2,000 messages / in an empty one: browser",
            r"^browser .* (\S+)$",
            "≤ 1.5",
        ),
        Ratio("… server", r"^server .* (\S+)$", "≤ 1.5"),
        Ratio("… opening the session", r"^opening .* (\S+)$", "≤ 1.5"),
        Ratio("bytes that the page gets of an answer / its text and markup", r"text and markup +(\S+)", "≤ 1.5"),
    ),
    "start_up": (
        Ratio("`import bartack` / `import msgspec`", r"bartack / msgspec\s+(\S+)", "≤ 3"),
        Ratio("`bartack --help` / `import rich`", r"--help / rich\s+(\S+)", "≤ 3"),
        Ratio("`bartack sessions list` / `import asyncio, aiohttp`", r"sessions list / aiohttp\s+(\S+)", "≤ 1"),
        Ratio("`bartack run`, one word / `import asyncio, aiohttp`", r"^run / aiohttp\s+(\S+)", "≤ 1.8"),
    ),
}


def figures_in(output: str, ratios: Sequence[Ratio]) -> list[float]:
    """The number of each ratio in what a benchmark has printed. Raises `ValueError` if one is missing."""
    values = []
    for ratio in ratios:
        match = re.search(ratio.pattern, output, re.MULTILINE)
        if match is None:
            raise ValueError(f"{ratio.name}: nothing that was printed matches {ratio.pattern!r}")
        values.append(float(match[1]))
    return values


def rows(bench: str, runs: Sequence[Sequence[float]]) -> list[str]:
    """The rows of one benchmark, from the figures of each run."""
    return [
        f"| {ratio.name} | {statistics.median(values):.1f} | {min(values):.1f}-{max(values):.1f} | {len(values)} "
        f"| {ratio.aim} | `bench/{bench}.py` |"
        for ratio, values in zip(RATIOS[bench], zip(*runs, strict=True), strict=True)
    ]


def run(bench: str) -> str:
    """What the benchmark prints."""
    command = [sys.executable, "-m", f"bench.{bench}"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(names: Sequence[str]) -> None:
    before = PAGE.read_text().splitlines()
    lines = ["| | median | spread | runs | aim | |", "|---|---|---|---|---|---|"]
    for bench, ratios in RATIOS.items():
        if names and bench not in names:
            lines += [line for line in before if line.startswith("| ") and line.endswith(f"| `bench/{bench}.py` |")]
            continue
        runs = [figures_in(run(bench), ratios) for _ in range(ROUNDS)]
        lines += rows(bench, runs)
        print(*lines[-len(ratios) :], sep="\n", flush=True)
    PAGE.write_text(fill_section(PAGE.read_text(), "ratios", "\n".join(["", *lines, ""])))


if __name__ == "__main__":
    main(sys.argv[1:])
