"""Real workers that are killed, stopped and woken: the short version of `make chaos`."""

from pathlib import Path

import pytest

from scripts.chaos import Settings, chaos
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
    assert report.faults["workers killed"] or report.faults["workers stopped and woken"]
