"""An answer through a gateway is on the page of a server on the same store while it arrives."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, ScriptedModel
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.model import StreamingModel
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Start, TextDelta
from bartack.nouns.requests import ModelRequest
from bartack.store import open_store
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.gateway.bodies import request
from tests.gateway.serving import LIMIT_S, serving
from tests.store import postgres_server
from tests.web.browser import in_browser, windows
from tests.web.serving import Client, Event, is_entry, served

FORMATS = ("openai-chat", "anthropic-messages")


class GatedModel(StreamingModel):
    """A model that begins each answer, and ends it when the gate is open."""

    def __init__(self) -> None:
        super().__init__(ModelConfig("m-large"))
        self.gate = asyncio.Event()

    def model_info(self) -> ModelInfo:
        return ModelInfo("test", "m-large")

    def supports(self, feature: str) -> bool:
        return True

    def respond(self, request: ModelRequest) -> GuardedStream:
        return guarded_batches(self._batches(), request.metadata, self._environment)

    async def _batches(self) -> AsyncIterator[list[Delta]]:
        yield [Start("m-large", "r1"), TextDelta("The first ")]
        yield [TextDelta("half, ")]
        await self.gate.wait()
        self.gate.clear()
        yield [TextDelta("and the rest."), Done("stop")]


async def listed(client: Client, state: str, after: int = 0) -> Any:
    """The session, once it is listed with this state."""
    while True:
        for item in (await client.get("/sessions"))["items"]:
            if item["state"] == state and item["tail"]["seq"] > after:
                return item
        await asyncio.sleep(0.01)


async def shown_answer(client: Client, session_id: str, model: GatedModel, position: str) -> str:
    """What a viewer gets of an answer before it ends. Checks that it then gets the rest, and the answer once."""
    async with client.events(session_id, position=position) as stream:
        early = await stream.until(lambda event: event.event in ("reset", "deltas"))
        while "half" not in text_of(early):
            early += await stream.until(lambda event: event.event == "deltas")
        text = text_of(early)
        model.gate.set()
        late = await stream.until(lambda event: is_entry("message")(event) and event.data["payload"]["role"] != "user")
    assert late[-1].data["payload"]["parts"][0]["payload"]["text"] == "The first half, and the rest."
    assert [event.event for event in late if event.event == "reset"] == []
    return text


def text_of(events: Sequence[Event]) -> str:
    """The text of an answer in progress."""
    text = ""
    for event in events:
        if event.event == "reset":
            text = "".join(part["payload"]["text"] for part in event.data["parts"])
        elif event.event == "deltas":
            text += "".join(delta["delta"].get("text", "") for delta in event.data)
    return text


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("format", FORMATS)
async def test_viewers_get_an_answer_while_it_arrives_and_the_list_has_key_and_model(
    format: str, kind: str, tmp_path: Path
) -> None:
    path = postgres_server.address(str(tmp_path)) if kind == "postgres" else str(tmp_path / "sessions.db")
    store, model = await open_store(path), GatedModel()
    url_path, body = request(format)
    agent = Agent(ScriptedModel(["-"]))
    async with (
        asyncio.timeout(LIMIT_S),
        serving({"m": [model]}, store=store) as gateway,
        served(app(agent, store=path)) as client,
    ):
        for _ in range(2):  # the answer to the same request, again: it is another branch
            asked = asyncio.ensure_future(gateway.post(url_path, {**body, "stream": True}))
            item = await listed(client, "running")
            position = str(item["tail"]["seq"])
            assert await shown_answer(client, item["id"], model, position) == "The first half, "
            assert (await asked)[0] == 200
            item = await listed(client, "idle", after=item["tail"]["seq"])
        assert item["model"] == "m-large"
        assert item["gatewayKey"]
        async with gateway.http.post(
            gateway.url + url_path, json={**body, "stream": True}, headers={"x-api-key": gateway.key}
        ) as response:
            await response.content.readany()  # and the client is gone
        item = await listed(client, "idle", after=item["tail"]["seq"])
        assert item["model"] == "m-large"
    await store.close()


@in_browser
async def test_the_page_shows_an_answer_while_it_arrives(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store, model = await open_store(path), GatedModel()
    url_path, body = request(FORMATS[1])
    application = app(Agent(ScriptedModel(["-"])), store=path)
    assert isinstance(application.access, TokenAccess)
    async with (
        asyncio.timeout(LIMIT_S),
        serving({"m": [model]}, store=store) as gateway,
        served(application) as client,
        windows() as (window,),
    ):
        asked = asyncio.ensure_future(gateway.post(url_path, {**body, "stream": True}))
        await window.sign_in(client.url, application.access.code)
        await window.page.locator("session-list a.row .tile.live").click()
        await window.sees("The first half,")
        await window.sees("m-large", "session-list")
        await window.sees("m-large", "header.top")
        assert await window.page.get_by_text("and the rest.").count() == 0
        model.gate.set()
        await window.sees("The first half, and the rest.")
        assert (await asked)[0] == 200
        assert await window.page.get_by_text("The first half,").count() == 1
        assert window.problems == []
    await store.close()
