"""`attempted`: a model call with retries.

A failed call is retried immediately if the caller has removed the cause, after a delay if the retry policy allows it,
and with the next fallback model if this model has failed permanently. Answers and summaries are both obtained in this
way.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from bartack.agent.events import Retrying
from bartack.agent.run_context import RunContext
from bartack.nouns.deltas import Failed

__all__ = ["attempted"]


async def _never(_: Failed) -> bool:
    return False


async def attempted(
    context: RunContext,
    attempt: Callable[[int], Awaitable[Failed | None]],
    *,
    index: int | None = None,
    recovers: Callable[[Failed], Awaitable[bool]] = _never,
) -> Failed | None:
    """Make attempts until one succeeds; the last failure if none does.

    `attempt` receives its number and returns how it failed. `index` is that of a call that answers, and `recovers`
    returns whether the cause of a failure has been removed.
    """
    number = 1 if index is None else context.state.failed_attempts + 1
    with_model = 0  # attempts with the current model
    while (failed := await attempt(number)) is not None:
        number, with_model = number + 1, with_model + 1
        is_recovered = await recovers(failed)
        delay_ms = 0 if is_recovered else context.settings.retry.delay_ms(failed, with_model, random.random)
        if delay_ms is None and not context.fallbacks:
            return failed
        context.move("prepare")
        context.tracer.retrying_call(failed, number, delay_ms or 0)
        context.channel.put(
            Retrying(error=failed, model_call_index=index, attempt=number, delay_ms=delay_ms or 0),
        )
        if delay_ms is not None:
            await asyncio.sleep(delay_ms / 1000)
        else:
            await context.switch_model(context.fallbacks.pop(0), "fallback")
            with_model = 0
    return None
