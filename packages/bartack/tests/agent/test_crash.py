"""A short run of `lab/crash_agent.py`: kill -9 after every entry, and a few times at random (D-5.8, D-5.9)."""

import subprocess
import sys

import pytest

from lab.repository import ROOT


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_run_killed_anywhere_resumes_in_another_process() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "lab" / "crash_agent.py"), "--random", "4"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "moments: 0 failed" in done.stdout
