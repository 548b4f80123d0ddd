"""Fill the tables of docs/guides/capacity.md from bench/results/workers.json.

    python -m bench.workers --million --save && python -m lab.capacity

The last table extrapolates to 100 machines on DBOS. What is multiplied is explained on the page.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lab.repository import ROOT, fill_section

RESULT = ROOT / "bench" / "results" / "workers.json"
PAGE = ROOT / "docs" / "guides" / "capacity.md"
ENGINE = "PostgreSQL, DBOS"
MACHINES, SLOTS = 100, 20
COSTS = ("server_cpu_ms", "commits", "wal_bytes")
_DAY_S = 24 * 60 * 60

Row = Mapping[str, Any]


class Workload(NamedTuple):
    """What a run does. Its tools take as long as its answers."""

    name: str
    steps: int
    answer_s: float


WORKLOADS = (Workload("chats", 2, 20.0), Workload("tasks", 20, 120.0))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("|  |", "| |")


def _of(rows: Sequence[Row], **values: object) -> Row:
    return next(row for row in rows if all(row[name] == value for name, value in values.items()))


def _kib(size: float) -> str:
    return f"{size / 1024:.1f} KiB"


def measured(result: Mapping[str, Sequence[Row]]) -> str:
    """What a run, a step, a second of an answer and an idle worker cost, by store and engine."""
    kinds = [row["kind"] for row in result["streaming"]]
    most_workers = max(row["workers"] for row in result["throughput"])
    runs = [_of(result["throughput"], kind=kind, workers=most_workers) for kind in kinds]
    steps = [next(row for row in result["steps"] if row["kind"] == kind and row["queue"] is not None) for kind in kinds]
    counts = sorted({row["workers"] for row in result["throughput"]} - {0})

    def rates(kind: str) -> str:
        speeds = [_of(result["throughput"], kind=kind, workers=count)["runs_per_s"] for count in counts]
        return ", ".join(f"{rate:.0f}" for rate in speeds)

    rows = [
        [f"runs per second, with {', '.join(map(str, counts))} workers", *map(rates, kinds)],
        ["a run with one tool call: CPU (server)", *(_cpu(row) for row in runs)],
        ["a run: commits, write-ahead log", *(_writes(row) for row in runs)],
        ["a run: stays in tables (of the engine)", *(_stays(row) for row in runs)],
        ["one more step: CPU (server)", *(_cpu(row) for row in steps)],
        ["one more step: commits, write-ahead log", *(_writes(row) for row in steps)],
        ["one more second of an answer: CPU (server)", *(_cpu(row) for row in result["streaming"])],
        ["one more second of an answer: commits, write-ahead log", *(_writes(row) for row in result["streaming"])],
        ["an idle worker, per second: CPU (server)", *(_idle(row) for row in result["idle"])],
        ["an idle worker, per second: commits, write-ahead log", *(_writes(row) for row in result["idle"])],
        ["connections of a worker", *(_connections(row) for row in runs)],
    ]
    return _table(["", *kinds], rows)


def _cpu(row: Row) -> str:
    return f"{row['cpu_ms']:.1f} ms ({max(0.0, row['server_cpu_ms']):.1f} ms)"


def _idle(row: Row) -> str:
    return f"{row['cpu_ms']:.1f} ms ({row['server_cpu_ms']:.1f} ms)"


def _writes(row: Row) -> str:
    return f"{row['commits']:.1f}, {_kib(row['wal_bytes'])}" if row["commits"] else "–"


def _stays(row: Row) -> str:
    return f"{_kib(row['table_bytes'])} ({_kib(row['engine_table_bytes'])})" if row["commits"] else "–"


def _connections(row: Row) -> str:
    return f"{row['connections']:.0f}" if row.get("connections") else "–"


def growth(result: Mapping[str, Sequence[Row]]) -> str:
    """How the cost depends on what waits and on what is stored."""
    rows = [
        [
            f"{row['kind']}: {row['depth']:,} jobs wait",
            f"{row['job_cpu_ms']:.1f} ms ({row['ratio']:.1f} x)",
            f"enqueue {row['enqueue_ms']:.1f} ms, first job of a new process after {row['start_s']:.1f} s",
        ]
        for row in result["depth"]
    ]
    rows += [
        [
            f"PostgreSQL: {row['sessions']:,} stored sessions",
            f"{row['cpu_ms']:.1f} ms ({row['ratio']:.2f} x)",
            f"list {row['list_ms']:.0f} ms, search {row['search_ms']:.0f} ms, {_kib(row['bytes_per_session'])} each",
        ]
        for row in result["stored"]
    ]
    return _table(["", "CPU of a job, or of a run", "also"], rows)


def extrapolated(result: Mapping[str, Sequence[Row]]) -> str:
    """100 machines, all of whose slots are taken."""
    most_workers = max(row["workers"] for row in result["throughput"])
    run = _of(result["throughput"], kind=ENGINE, workers=most_workers)
    step = next(row for row in result["steps"] if row["kind"] == ENGINE and row["queue"] is not None)
    second = _of(result["streaming"], kind=ENGINE)
    idle = _of(result["idle"], kind=ENGINE)

    def column(load: Workload) -> Iterator[str]:
        rate = MACHINES * SLOTS / (2 * load.answer_s)
        cost = {
            name: rate * max(0.0, run[name] + (load.steps - 1) * step[name] + load.answer_s * second[name])
            + MACHINES * idle[name]
            for name in COSTS
        }
        session_bytes = run["table_bytes"] + (load.steps - 1) * step["table_bytes"]
        engine = run["engine_table_bytes"] + (load.steps - 1) * step["engine_table_bytes"]
        yield f"{rate:.0f} ({rate * _DAY_S / 1e6:.1f} million per day)"
        yield f"{MACHINES * run['connections']:,.0f}"
        yield f"{cost['commits']:,.0f}"
        yield f"{cost['wal_bytes'] / 1e6:.1f} MB"
        yield f"{cost['server_cpu_ms'] / 1000:.1f}"
        yield f"{rate * _DAY_S * session_bytes / 1e9:.0f} GB"
        yield f"{rate * _DAY_S * engine / 1e9:.0f} GB"

    names = (
        *("runs per second", "connections", "commits per second", "write-ahead log per second"),
        *("server CPU: cores", "growth of the sessions per day", "tables of DBOS, after a day"),
    )
    columns = [list(column(load)) for load in WORKLOADS]
    rows = [[name, *(column[number] for column in columns)] for number, name in enumerate(names)]
    return _table(["100 machines, DBOS", *(load.name for load in WORKLOADS)], rows)


def main() -> int:
    """Fill the tables."""
    if not RESULT.exists():
        print(f"{RESULT} not found: run python -m bench.workers --million --save first.", file=sys.stderr)
        return 1
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for make in (measured, growth, extrapolated):
        text = fill_section(text, make.__name__, make(result))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
