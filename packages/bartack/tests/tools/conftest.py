"""Shorter delays than users have, so that tests of tools that do not stop are quick."""

import pytest


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tools.tool_round.GRACE_MS", 50)
    monkeypatch.setattr("bartack.tools.tool_round.RETRY_DELAY_MS", 1)
