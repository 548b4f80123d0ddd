"""Short runs of `lab/race_runs.py`: two processes start or resume a run at the same moment (D-5.11)."""

from pathlib import Path

import pytest

from tests.agent.run_script import run_script


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres"])
def test_of_two_processes_one_gets_the_session_and_the_other_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    done = run_script("race_runs.py", kind, tmp_path, "--pairs", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout


def test_processes_that_take_the_session_from_each_other_are_noticed(tmp_path: Path) -> None:
    """The negative control."""
    done = run_script("race_runs.py", "sqlite", tmp_path, "--pairs", "30", "--takeover")
    assert done.returncode == 1, done.stdout + done.stderr
