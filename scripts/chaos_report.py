"""What scripts/chaos.py finds in the sessions afterwards, and its report: as lines, and as a column of a table."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bartack import Message, RunEnded, RunStarted, ToolResult, ToolStarted
from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import Entry
from bartack.queues.job import WORKER_KEY

__all__ = ["Report", "Takeover", "interrupted_in", "live_in", "pid_of", "problems_of", "write_column"]

_AUTHOR = re.compile(r"\[(\d+)\] ")
_BEGIN, _END = "<!-- chaos -->", "<!-- end -->"


class Takeover(NamedTuple):
    """A run that was live in a worker when that was killed or stopped."""

    fault: str
    session: str
    at: float  # of the fault, on the clock of the experiment
    noticed_s: float | None = None  # until others had noticed; None if they did not before the next lease
    lease_s: float = 0.0  # until another worker held the lease
    entry_s: float | None = None  # until that worker had stored the next entry; None if a person was to decide first


def pid_of(entry: Entry) -> int | None:
    """The process that made this entry, if it says so."""
    fact = entry.fact
    if isinstance(fact, RunStarted):
        worker = (fact.metadata or {}).get(WORKER_KEY)
        return worker["pid"] if isinstance(worker, dict) else None
    if isinstance(fact, Message) and fact.role != "user":
        texts = [str(part.content) for part in fact.parts if isinstance(part, ToolResult)] or [fact.text]
        found = _AUTHOR.match(texts[0])
        return None if found is None else int(found[1])
    return None


def live_in(entries: Sequence[Entry]) -> int | None:
    """The process that has the lease of the session, since it has begun or continued a run that has not ended."""
    live: int | None = None
    for entry in entries:
        if isinstance(entry.fact, RunStarted):
            live = pid_of(entry)
        elif isinstance(entry.fact, RunEnded):
            live = None
    return live


def problems_of(session: str, entries: Sequence[Entry]) -> Iterator[str]:
    """What must not be in the session of one prompt.

    A run begins or continues with `run_started`, in the transaction that takes the lease. Whatever follows, until the
    next one, must be by the same process: otherwise two were live at once.
    """
    live: int | None = None
    runs = {entry.run_id for entry in entries if isinstance(entry.fact, RunStarted)}
    for entry in entries:
        pid = pid_of(entry)
        if isinstance(entry.fact, RunStarted):
            live = pid
        elif pid is not None and pid != live:
            yield f"{session}: process {pid} wrote entry {entry.seq} while the run of process {live} was live"
    ends = [entry.fact for entry in entries if isinstance(entry.fact, RunEnded)]
    if len(runs) != 1 or len(ends) != 1:
        yield f"{session}: {len(runs)} runs and {len(ends)} ends for one prompt"
    started = {entry.fact.tool_call_id for entry in entries if isinstance(entry.fact, ToolStarted)}
    if started != {"c1", "c2"}:
        yield f"{session}: the calls that started are {sorted(started)}"


def interrupted_in(entries: Sequence[Entry]) -> int:
    """How many calls have an unknown outcome."""
    return sum(INTERRUPTED in str(entry.fact) for entry in entries)


class Report(NamedTuple):
    """What happened."""

    seconds: float
    faults: Mapping[str, int]
    runs: int
    ended: int
    viewers: int
    events: int  # that viewers received
    tools: int  # calls that were executed
    repeated: list[str]  # calls that were executed twice
    unknown: int  # calls whose outcome was unknown to the run that was taken over
    problems: list[str]
    takeovers: list[Takeover]
    timeline: list[tuple[float, str]]  # the faults

    def lines(self) -> Iterator[str]:
        """The report for people."""
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        yield f"{self.ended} of {self.runs} runs ended in {self.seconds:.0f} s, with {faults or 'no faults'}"
        yield f"{self.tools} tool calls executed, {len(self.repeated)} of them twice; {self.unknown} were interrupted"
        yield f"{self.viewers} viewers received {self.events:,} events"
        for name, found in self._by_fault():
            yield (
                f"{len(found)} runs of workers that were {name} were taken over: the lease after "
                f"{_percentiles([one.lease_s for one in found])}, "
                f"the next entry after {_percentiles([one.entry_s for one in found])} (p50, p99, longest)"
            )
        for one in sorted(self.takeovers, key=lambda one: -one.lease_s)[:8]:
            during = [f"{at - one.at:+.1f} {name}" for at, name in self.timeline if -5 < at - one.at < one.lease_s]
            noticed = "–" if one.noticed_s is None else f"{one.noticed_s:.1f}"
            yield (
                f"  slow: {one.session}, {one.fault}, noticed after {noticed}, the lease after {one.lease_s:.1f} s; "
                f"meanwhile {', '.join(during)}"
            )
        yield from (f"PROBLEM: {problem}" for problem in self.problems[:50])

    def _by_fault(self) -> Iterator[tuple[str, list[Takeover]]]:
        for name in ("killed", "stopped"):
            if found := [one for one in self.takeovers if one.fault == name]:
                yield name, found

    @property
    def is_good(self) -> bool:
        """Whether everything held that must hold."""
        return not self.problems and not self.repeated and self.ended == self.runs

    def column(self) -> dict[str, str]:
        """The report as a column of the table in the guide."""
        count = Counter(self.faults)
        measured = dict(self._by_fault())
        rows = {
            "runs that ended": f"{self.ended:,} of {self.runs:,}",
            "duration": f"{self.seconds / 60:.0f} min",
            "workers killed / stopped and woken": f"{count['workers killed']} / {count['workers stopped']}",
            "web servers killed / database restarts": (f"{count['web servers killed']} / {count['database restarts']}"),
            "tool calls executed twice": f"{len(self.repeated)} of {self.tools:,}",
            "tool calls with an unknown outcome": f"{self.unknown}",
            "sessions with two live runs, lost entries, other problems": f"{len(self.problems)}",
            "live events that viewers received without a gap": f"{self.events:,}",
        }
        for name in ("killed", "stopped"):
            found = measured.get(name, [])
            rows[f"runs of {name} workers taken over"] = f"{len(found)}"
            rows[f"{name}: next lease after (p50, p99, longest)"] = _percentiles([one.lease_s for one in found])
            rows[f"{name}: next entry after (p50, p99, longest)"] = _percentiles([one.entry_s for one in found])
        return rows


def _percentiles(seconds: Sequence[float | None]) -> str:
    ordered = sorted(one for one in seconds if one is not None)
    if not ordered:
        return "–"
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{statistics.median(ordered):.1f}, {p99:.1f}, {ordered[-1]:.1f} s"


def write_column(page: Path, name: str, column: Mapping[str, str]) -> None:
    """Replace the column with this name in the table of the page, or add it."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    table, _, after = rest.partition(_END)
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    columns: dict[str, dict[str, str]] = {}
    for at, title in enumerate(lines[0] if lines else []):
        if at:
            columns[title] = {line[0]: line[at] for line in lines[2:]}
    columns[name] = dict(column)
    made = [["", *columns], ["---"] * (len(columns) + 1)]
    made += [[row, *(values.get(row, "–") for values in columns.values())] for row in column]
    new = "\n".join("| " + " | ".join(cells) + " |" for cells in made).replace("|  |", "| |")
    page.write_text(f"{before}{_BEGIN}\n{new}\n{_END}{after}", encoding="utf-8")
