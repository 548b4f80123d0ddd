"""Short runs of `scripts/race_runs.py`: two processes start or resume a run at the same moment (D-5.11)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.store import postgres_server

ROOT = Path(__file__).parents[2]


def race(kind: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    address = postgres_server.address(str(folder)) if kind == "postgres" else f"{kind}:{folder / 'store'}"
    words = [str(ROOT / "scripts" / "race_runs.py"), "--store", kind, "--address", address, *options]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres"])
def test_of_two_processes_one_gets_the_session_and_the_other_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    done = race(kind, tmp_path, "--pairs", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout


def test_processes_that_take_the_session_from_each_other_are_noticed(tmp_path: Path) -> None:
    """The negative control."""
    done = race("sqlite", tmp_path, "--pairs", "30", "--takeover")
    assert done.returncode == 1, done.stdout + done.stderr
