"""Real workers that are killed, stopped and woken: the short version of `lab/chaos.py`."""

from pathlib import Path

import pytest

from lab.chaos import Settings, chaos
from lab.chaos_report import write_column
from tests.store import postgres_server

SHORT = Settings(
    runs=16, workers=3, slots=4, viewers=6, every_s=1.5, stop_s=7.0, step_s=0.25, restarts=False, limit_s=240, seed=3
)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_runs_end_once_whatever_happens_to_their_workers(kind: str, tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store'}"
    if kind == "postgres":
        address = postgres_server.address(str(tmp_path))
    report = await chaos(SHORT._replace(kind=kind), address, None, tmp_path)
    assert report.is_good, "\n".join(report.lines())
    assert report.tools <= 2 * report.runs
    assert report.events >= 6 * 8  # each viewer saw at least the entries of its run


def test_a_report_becomes_a_column_of_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- chaos -->\n<!-- end -->\n\nAfter.\n", encoding="utf-8")
    write_column(page, "SQLite", {"runs": "1", "faults": "2"})
    write_column(page, "PostgreSQL", {"runs": "3", "faults": "4"})
    write_column(page, "SQLite", {"runs": "5", "faults": "6"})
    table = "| | SQLite | PostgreSQL |\n| --- | --- | --- |\n| runs | 5 | 3 |\n| faults | 6 | 4 |\n"
    assert page.read_text(encoding="utf-8") == f"Before.\n\n<!-- chaos -->\n{table}<!-- end -->\n\nAfter.\n"
