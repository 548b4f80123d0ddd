"""A limit of calls that are in progress at once, for one model or for several."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bartack import connect, user
from bartack.models import CallLimit
from bartack.nouns.errors import ConfigError
from tests.models.doubles import BytesClient, read


class SlowClient(BytesClient):
    """Counts the calls that are in progress, and ends each when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.most = 0
        self.started, self.may_end = asyncio.Event(), asyncio.Event()

    async def _replayed(self) -> AsyncIterator[bytes]:
        self.running += 1
        self.started.set()
        self.most = max(self.most, self.running)
        try:
            await self.may_end.wait()
            yield b""
        finally:
            self.running -= 1


async def call_all(client: SlowClient, *models: Any) -> None:
    calls = [asyncio.create_task(read(model.stream([user("Hi")]))) for model in models]
    await client.started.wait()
    for _ in range(50):  # all the others have reached the limit
        await asyncio.sleep(0)
    client.may_end.set()
    await asyncio.gather(*calls)


async def test_a_model_makes_no_more_calls_at_once_than_its_limit() -> None:
    client = SlowClient()
    model = connect("anthropic:m", client=client, api_key="k", limit=2)
    await call_all(client, *[model] * 6)
    assert (len(client.requests), client.most) == (6, 2)


async def test_models_share_a_limit() -> None:
    client, limit = SlowClient(), CallLimit(3)
    models = [connect(f"anthropic:{name}", client=client, api_key="k", limit=limit) for name in "abcdef"]
    await call_all(client, *models)
    assert (len(client.requests), client.most) == (6, 3)


async def test_a_stream_that_is_closed_makes_room() -> None:
    client = SlowClient()
    model = connect("anthropic:m", client=client, api_key="k", limit=1)
    first = model.stream([user("Hi")])
    reading = asyncio.create_task(anext(first))
    await client.started.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await first.aclose()
    client.may_end.set()
    assert await read(model.stream([user("Hi")]))
    assert len(client.requests) == 2


def test_a_limit_holds_in_every_event_loop() -> None:
    for _ in range(2):
        client = SlowClient()
        limit = CallLimit(1)
        asyncio.run(call_all(client, *[connect("anthropic:m", client=client, api_key="k", limit=limit)] * 3))
        assert client.most == 1


@pytest.mark.parametrize("calls", [0, -1, 1.5, True])
def test_a_limit_is_a_positive_number(calls: Any) -> None:
    with pytest.raises(ConfigError, match="must be a positive number"):
        CallLimit(calls)
