"""Short runs of `lab/follow_answer.py`: an answer is followed while the processes that produce it are killed."""

import os
from pathlib import Path

import pytest

from tests.agent.run_script import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres"])
def test_a_reader_has_the_text_that_is_stored_whichever_process_dies(kind: str, fast_path: Path) -> None:
    done = run_script("follow_answer.py", kind, fast_path, "--sessions", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 answers followed through 3 kills, 0 faults" in done.stdout


def test_a_reader_that_keeps_the_text_of_a_failed_attempt_is_noticed(fast_path: Path) -> None:
    """The negative control."""
    done = run_script("follow_answer.py", "sqlite", fast_path, "--sessions", "1", "--forgetful")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 faults" in done.stdout
