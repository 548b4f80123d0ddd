"""Input tokens are those that the upstream counts, where it has an endpoint for it, and an estimate elsewhere."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.bodies import request
from tests.gateway.serving import serving, upstream

CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "gemini-generate"
PATHS = {
    MESSAGES: "/v1/messages/count_tokens",
    RESPONSES: "/responses/input_tokens",
    GEMINI: "/v1beta/models/m:countTokens",
}
COUNT_PATHS = {MESSAGES: "/v1/messages/count_tokens", GEMINI: "/v1beta/models/alias:countTokens"}
Call = tuple[str, dict[str, str], dict[str, Any]]


@asynccontextmanager
async def counting_upstream(status: int, answer: Any) -> AsyncIterator[tuple[str, list[Call]]]:
    """The URL of a provider that answers every request like this, and what it was sent."""
    calls: list[Call] = []

    async def handle(request: web.Request) -> web.Response:
        calls.append((request.path, dict(request.headers), await request.json()))
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", calls
    finally:
        await runner.cleanup()


def counted(format: str) -> tuple[str, dict[str, Any]]:
    """A request to count, as the official SDK makes it."""
    _, body = request(format, model="alias")
    names = ("model", "messages", "tools", "contents")
    return COUNT_PATHS[format], {name: body[name] for name in names if name in body}


@pytest.mark.parametrize("client", COUNT_PATHS)
@pytest.mark.parametrize("provider", PATHS)
async def test_the_upstream_counts_what_it_would_be_sent(client: str, provider: str) -> None:
    field = "totalTokens" if provider == GEMINI else "input_tokens"
    async with (
        counting_upstream(200, {field: 4711}) as (url, calls),
        serving({"alias": [upstream(provider, url)]}) as gateway,
    ):
        path, body = counted(client)
        status, data, headers = await gateway.post(path, body, headers={"anthropic-beta": "x-1"})
    own_field = "totalTokens" if client == GEMINI else "input_tokens"
    assert (status, json.loads(data), headers["x-bartack-count"]) == (200, {own_field: 4711}, "exact")
    [(sent_path, sent_headers, sent)] = calls
    assert sent_path == PATHS[provider]
    assert "upstream-secret-key" in str(sent_headers)
    assert gateway.key not in str(sent_headers)
    sent = sent.get("generateContentRequest", sent)
    assert sent["model"].removeprefix("models/") == "m"
    assert "Look!" in json.dumps(sent)
    assert "look" in json.dumps(sent["tools"])
    assert not sent.keys() & {"stream", "max_tokens", "store", "metadata"}
    if client == provider == MESSAGES:
        assert sent == {**body, "model": "m"}
        assert sent_headers["anthropic-beta"] == "x-1"


async def test_what_is_new_to_the_gateway_is_counted_by_an_upstream_that_knows_it() -> None:
    path, body = counted(MESSAGES)
    body["messages"] = [{"role": "user", "content": 7}]
    async with counting_upstream(200, {"input_tokens": 3}) as (url, calls):
        async with serving({"alias": [upstream(MESSAGES, url)]}) as gateway:
            assert json.loads((await gateway.post(path, body))[1]) == {"input_tokens": 3}
        assert calls[0][2]["messages"] == body["messages"]
        async with serving({"alias": [upstream(GEMINI, url)]}) as gateway:
            assert (await gateway.post(path, body))[0] == 400


@pytest.mark.parametrize(("status", "answer"), [(404, {}), (200, {}), (200, []), (200, {"input_tokens": "x"})])
async def test_without_a_count_of_the_upstream_it_is_an_estimate(status: int, answer: Any) -> None:
    async with (
        counting_upstream(status, answer) as (url, _),
        serving({"alias": [upstream(MESSAGES, url)], "other": [upstream(CHAT, url)]}) as gateway,
    ):
        path, body = counted(MESSAGES)
        for model in ("alias", "other"):
            status, data, headers = await gateway.post(path, {**body, "model": model})
            assert (status, headers["x-bartack-count"]) == (200, "estimate")
            assert json.loads(data)["input_tokens"] > 10


async def test_a_count_of_gemini_may_contain_the_whole_request() -> None:
    path, body = counted(GEMINI)
    async with serving({"alias": [upstream(CHAT, "http://127.0.0.1:9")]}) as gateway:
        counts = [
            json.loads((await gateway.post(path, each))[1])["totalTokens"]
            for each in (body, {"generateContentRequest": {"model": "models/alias", **body}})
        ]
    assert counts[0] == counts[1] > 10
