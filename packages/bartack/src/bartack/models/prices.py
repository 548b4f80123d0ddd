"""Context windows and prices of models, from genai-prices (extra ``http``). What is unknown is None, never 0.

The package contains its data; the network is not used. Loading both takes longer than a whole model call, so it happens
in a thread, and a model starts it together with its first request (`start_loading`).
"""

import asyncio
from contextlib import suppress
from functools import cache
from typing import Any

from bartack.nouns.deltas import Usage
from bartack.nouns.noun import Noun

__all__ = ["ModelInfo", "Prices", "cost_in_thread", "cost_of", "model_info", "start_loading"]


PRICED = {  # the counts of `Usage`, and their names in genai-prices
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
}


class Prices(Noun, frozen=True, kw_only=True):
    """US dollars per million tokens, at the lowest tier."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


class _Known(Noun, frozen=True, kw_only=True):
    name: str | None = None
    context_window: int | None = None
    prices: Prices | None = None


class ModelInfo(_Known, frozen=True):
    """What is known about a model."""

    provider: str
    model_id: str


def model_info(provider: str, model_id: str, *, prices: str | None = None) -> ModelInfo:
    """What is known about a model; `prices` is the provider's name in genai-prices, if it has one."""
    calculation = _calculate(prices, model_id, {"input_tokens": 0})
    if calculation is None:
        return ModelInfo(provider, model_id)
    row = calculation.model_price
    return ModelInfo(
        provider,
        model_id,
        name=calculation.model.name,
        context_window=calculation.model.context_window,
        prices=Prices(
            input=_dollars(row, "input_mtok"),
            output=_dollars(row, "output_mtok"),
            cache_read=_dollars(row, "cache_read_mtok"),
            cache_write=_dollars(row, "cache_write_mtok"),
        ),
    )


def cost_of(usage: Usage, model_id: str, *, prices: str | None) -> float | None:
    """The cost in US dollars, or None if the package is not installed or the model unknown.

    Cache reads and writes have their own prices. Reasoning is priced as output, unless the model has a price for it.
    """
    counts = {theirs: getattr(usage, ours) for ours, theirs in PRICED.items()}
    calculation = _calculate(prices, model_id, {name: count for name, count in counts.items() if count is not None})
    return None if calculation is None else float(calculation.total_price)


def start_loading() -> None:
    """Load the package in a thread, unless it is loaded, while the caller waits for something else."""
    if not _library.cache_info().currsize:
        asyncio.get_running_loop().run_in_executor(None, _library)


async def cost_in_thread(usage: Usage, model_id: str, *, prices: str | None) -> float | None:
    """`cost_of`, with the package loaded in a thread on first use, which takes 200 to 600 ms."""
    if not _library.cache_info().currsize:
        await asyncio.to_thread(_library)
    return cost_of(usage, model_id, prices=prices)


@cache
def _library() -> Any:
    try:
        import genai_prices  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    # The first lookup loads the data, which takes a third of the time.
    with suppress(LookupError):
        genai_prices.calc_price(genai_prices.Usage(), "-", provider_id="-")
    return genai_prices


def _calculate(provider: str | None, model_id: str, counts: dict[str, int]) -> Any:
    if provider is None or (library := _library()) is None:
        return None
    try:
        return library.calc_price(library.Usage(**counts), model_id, provider_id=provider)
    except (LookupError, ValueError):  # unknown model, or contradictory counts
        return None


def _dollars(row: Any, name: str) -> float | None:
    price = getattr(row, name, None)
    price = getattr(price, "base", price)  # the lowest tier
    return None if price is None else float(price)
