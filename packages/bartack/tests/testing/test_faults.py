"""The fault scenarios over real HTTP: what was cut off is never taken for an answer (D-3.5, D-3.6, D-3.7)."""

import pytest

from bartack.models import ProviderModel, Timeouts, connect
from bartack.testing import Scenario, check_fault, scenarios

VENDORS = {"anthropic-messages": "anthropic", "openai-chat": "openai-chat", "openai-responses": "openai"}


def make(scenario: Scenario, base_url: str) -> ProviderModel:
    timeouts = Timeouts(silence=0.3) if scenario.name == "silence" else None
    return connect(f"{VENDORS[scenario.format]}:m", api_key="sk-test-0123456789", base_url=base_url, timeouts=timeouts)


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
async def test_faults_are_reported_correctly(scenario: Scenario) -> None:
    await check_fault(scenario, lambda base_url: make(scenario, base_url))
