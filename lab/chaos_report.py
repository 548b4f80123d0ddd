"""What lab/chaos.py finds in the sessions afterwards, and its report: as lines, and as a column of a table."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bartack import Message, ToolResult
from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import Entry, RunEnded, RunStarted, ToolStarted
from bartack.queues.run_queue import WORKER_KEY
from lab.repository import fill_section, section

__all__ = ["Report", "Takeover", "interrupted_in", "live_in", "pid_of", "problems_of", "write_column"]

_AUTHOR = re.compile(r"\[(\d+)\] ")


class Takeover(NamedTuple):
    """A run that was live in a worker when that was killed or stopped."""

    fault: str
    session: str
    hit_at: float  # on the clock of the experiment
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
        author = _AUTHOR.match(texts[0])
        return None if author is None else int(author[1])
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
    events: int  # received by viewers
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
        for name, takeovers in self._by_fault():
            yield (
                f"{len(takeovers)} runs of workers that were {name} were taken over: the lease after "
                f"{_percentiles([takeover.lease_s for takeover in takeovers])}, "
                f"the next entry after {_percentiles([takeover.entry_s for takeover in takeovers])} (p50, p99, longest)"
            )
        for takeover in sorted(self.takeovers, key=lambda takeover: -takeover.lease_s)[:8]:
            during = [
                f"{moment - takeover.hit_at:+.1f} {name}"
                for moment, name in self.timeline
                if -5 < moment - takeover.hit_at < takeover.lease_s
            ]
            noticed = "–" if takeover.noticed_s is None else f"{takeover.noticed_s:.1f}"
            yield (
                f"  slow: {takeover.session}, {takeover.fault}, noticed after {noticed}, "
                f"the lease after {takeover.lease_s:.1f} s; meanwhile {', '.join(during)}"
            )
        yield from (f"PROBLEM: {problem}" for problem in self.problems[:50])

    def _by_fault(self) -> Iterator[tuple[str, list[Takeover]]]:
        for name in ("killed", "stopped"):
            if takeovers := [takeover for takeover in self.takeovers if takeover.fault == name]:
                yield name, takeovers

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
            "workers blocked / ended by their watchdog": " / ".join(
                str(count[name]) for name in ("workers blocked", "workers ended by their watchdog")
            ),
            "web servers killed / database restarts": (f"{count['web servers killed']} / {count['database restarts']}"),
            "tool calls executed twice": f"{len(self.repeated)} of {self.tools:,}",
            "tool calls with an unknown outcome": f"{self.unknown}",
            "sessions with two live runs, lost entries, other problems": f"{len(self.problems)}",
            "live events that viewers received without a gap": f"{self.events:,}",
        }
        for name in ("killed", "stopped"):
            takeovers = measured.get(name, [])
            rows[f"runs of {name} workers taken over"] = f"{len(takeovers)}"
            rows[f"{name}: next lease after (p50, p99, longest)"] = _percentiles(
                [takeover.lease_s for takeover in takeovers]
            )
            rows[f"{name}: next entry after (p50, p99, longest)"] = _percentiles(
                [takeover.entry_s for takeover in takeovers]
            )
        return rows


def _percentiles(seconds: Sequence[float | None]) -> str:
    ordered = sorted(duration for duration in seconds if duration is not None)
    if not ordered:
        return "–"
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{statistics.median(ordered):.1f}, {p99:.1f}, {ordered[-1]:.1f} s"


def write_column(page: Path, name: str, column: Mapping[str, str]) -> None:
    """Replace the column with this name in the table of the page, or add it."""
    text = page.read_text(encoding="utf-8")
    table = section(text, "chaos").strip()
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
    columns: dict[str, dict[str, str]] = {}
    for number, title in enumerate(lines[0] if lines else []):
        if number:
            columns[title] = {line[0]: line[number] for line in lines[2:]}
    columns[name] = dict(column)
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    rows += [[row, *(values.get(row, "–") for values in columns.values())] for row in column]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in rows).replace("|  |", "| |")
    page.write_text(fill_section(text, "chaos", table), encoding="utf-8")
