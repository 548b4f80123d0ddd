"""Prices: unknown is None, never 0."""

import subprocess
import sys

import pytest

from bartack.models import cost_of
from bartack.models.prices import PRICED, Prices, _library, cost_in_thread, model_info
from bartack.nouns.deltas import TOKEN_COUNTS, Usage


def test_a_known_model_has_a_context_window_and_prices() -> None:
    """001-4.1.4"""
    info = model_info("anthropic", "claude-sonnet-4-5", prices="anthropic")
    assert info.context_window == 200_000
    assert info.prices == Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
    assert model_info("openai", "gpt-4o", prices="openai").prices is not None


def test_cache_reads_and_writes_have_their_own_prices() -> None:
    usage = Usage(1000, 100, cache_read_tokens=500, cache_write_tokens=100, reasoning_tokens=50)
    dollars = (400 * 3 + 500 * 0.3 + 100 * 3.75 + 100 * 15) / 1e6
    assert cost_of(usage, "claude-sonnet-4-5", prices="anthropic") == pytest.approx(dollars)


def test_prices_without_tiers_are_read() -> None:
    assert cost_of(Usage(1_000_000, 0), "gpt-4o", prices="openai") == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("model_id", "prices"), [("nobody-knows-it", "openai"), ("gpt-4o", "nobody"), ("gpt-4o", None)]
)
def test_unknown_values_are_none(model_id: str, prices: str | None) -> None:
    assert cost_of(Usage(1, 1), model_id, prices=prices) is None
    info = model_info("x", model_id, prices=prices)
    assert (info.context_window, info.prices) == (None, None)


def test_contradictory_counts_have_no_cost() -> None:
    assert cost_of(Usage(10, 1, cache_read_tokens=2000), "gpt-4o", prices="openai") is None


async def test_the_package_is_loaded_once_in_a_thread() -> None:
    _library.cache_clear()
    assert await cost_in_thread(Usage(1_000_000, 0), "gpt-4o", prices="openai") == pytest.approx(2.5)
    assert await cost_in_thread(Usage(1_000_000, 0), "gpt-4o", prices="openai") == pytest.approx(2.5)


FIRST_CALL = """
import asyncio, sys
from contextlib import asynccontextmanager
from bartack.models import connect
from bartack.nouns.deltas import Done
from bartack.nouns.messages import user
from bartack.testing.faults import EVENT_WRITERS
from tests.models.doubles import BytesClient

say = EVENT_WRITERS["anthropic-messages"]

class WaitingClient(BytesClient):
    @asynccontextmanager
    async def send(self, request):
        async with asyncio.timeout(300), super().send(request) as response:
            while "genai_prices.data" not in sys.modules:
                await asyncio.sleep(0.01)
            yield response

async def main():
    client = WaitingClient([say.start(), say.text("Hi"), say.finish("stop")])
    assert "genai_prices" not in sys.modules
    model = connect("anthropic:claude-sonnet-4-5", api_key="k", client=client)
    assert isinstance([delta.delta async for delta in model.stream([user("Hello")])][-1], Done)

asyncio.run(main())
"""


def test_prices_and_their_data_are_loaded_while_the_first_request_waits() -> None:
    # The response does not arrive before both are loaded. In another process, because this one has loaded them.
    subprocess.run([sys.executable, "-c", FIRST_CALL], check=True, timeout=120)


def test_a_provider_without_prices_does_not_load_the_package() -> None:
    code = "import sys; from bartack.models import connect\nconnect('openai-compatible:m', base_url='http://x').model_info()"
    subprocess.run([sys.executable, "-c", f"{code}\nassert 'genai_prices' not in sys.modules"], check=True)


def test_without_the_package_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    _library.cache_clear()
    try:
        assert cost_of(Usage(1, 1), "gpt-4o", prices="openai") is None
        assert model_info("openai", "gpt-4o", prices="openai").prices is None
    finally:
        _library.cache_clear()


def test_every_token_count_has_a_price() -> None:
    assert set(PRICED) == set(TOKEN_COUNTS) - {"total_tokens"}
