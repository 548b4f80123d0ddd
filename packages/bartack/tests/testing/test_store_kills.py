"""Negative controls: what killed processes lose, or hold up, is found."""

from functools import partial
from pathlib import Path

from bartack.testing import kill_writers
from tests.testing.broken_stores import AcknowledgesTooEarly, HangsAfterAKill


def test_entries_that_were_acknowledged_too_early_are_missed(tmp_path: Path) -> None:
    report = kill_writers(partial(AcknowledgesTooEarly.open, tmp_path / "sessions.db"), kills=1)
    assert any("acknowledged but lost" in fault for fault in report.faults), report


def test_survivors_that_wait_for_a_killed_process_are_noticed(tmp_path: Path) -> None:
    """One of three writers has the turn at any time, so one of three kills leaves it behind."""
    report = kill_writers(partial(HangsAfterAKill.open, tmp_path / "sessions.db"), kills=60, patience_s=5)
    assert any("got nothing acknowledged within 5 s" in fault for fault in report.faults), report
