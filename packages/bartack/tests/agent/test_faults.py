"""The fault matrix of the models, end to end: incomplete calls are never executed (D-3.3.3, D-3.5, D-3.5.3, D-3.6)."""

from typing import Any

import pytest

from bartack import AgentConfig, LoopConfig, TextDelta
from bartack.agent import Agent, DeltaReceived
from bartack.models import Timeouts, connect
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.testing import Scenario, fault_server, scenarios
from bartack.tools import tool
from tests.agent.kit import FAST, SESSION, check_session, starts

VENDORS = {"anthropic-messages": "anthropic", "openai-chat": "openai-chat", "openai-responses": "openai"}
NO_RETRY = FAST.__class__(max_retries=0)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
async def test_only_complete_calls_are_executed(scenario: Scenario) -> None:
    ran: list[dict[str, Any]] = []

    @tool
    async def look(city: str) -> str:
        """Looks at a city."""
        ran.append({"city": city})
        return "seen"

    @tool
    async def see(city: str) -> str:
        """Sees a city."""
        ran.append({"city": city})
        return "seen"

    store = MemoryStore()
    async with fault_server(scenario) as server:
        model = connect(
            f"{VENDORS[scenario.format]}:m",
            api_key="sk-test-0123456789",
            base_url=server.base_url,
            timeouts=Timeouts(silence=0.3) if scenario.name == "silence" else None,
        )
        config = AgentConfig(loop=LoopConfig(max_iterations=1))  # the server gives the same answer each time
        agent = Agent(model, tools=[look, see], store=store, retry=NO_RETRY, config=config)
        result = await agent.run("Look", session=SESSION)
        await model.aclose()
    expected = scenario.outcome
    assert sorted(map(str, ran)) == sorted(map(str, expected.runnable))
    entries = await check_session(store)
    assert sum(starts(entries).values()) == len(expected.runnable)
    if expected.end == "error":
        assert result.error is not None
        assert result.error.error_code in expected.codes
        assert "stream_failed" in [entry.fact.kind for entry in entries]
    elif expected.text is not None:
        assert (result.status, result.output) == (AgentStatus.COMPLETED, expected.text)


@pytest.mark.parametrize("scenario", [scenario for scenario in scenarios() if scenario.name == "silence"], ids=str)
async def test_an_abort_closes_the_connection_to_a_silent_provider(scenario: Scenario) -> None:
    store = MemoryStore()
    async with fault_server(scenario) as server:
        model = connect(f"{VENDORS[scenario.format]}:m", api_key="sk-test-0123456789", base_url=server.base_url)
        agent = Agent(model, store=store)
        async with agent.stream("Look", session=SESSION) as run:
            async for event in run:
                if isinstance(event, DeltaReceived) and isinstance(event.delta.delta, TextDelta):
                    run.abort()
        await model.aclose()
    assert run.result.status is AgentStatus.ABORTED
    assert run.result.message is not None
    assert run.result.message.text == "The transfer is "
    await check_session(store)
