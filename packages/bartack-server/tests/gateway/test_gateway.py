"""Access, models by name, fail-over, pass-through and disconnected clients."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import MemoryStore, Message, ScriptedModel, Text, Thinking, ToolCall, assistant
from bartack.formats import writer
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Meta
from bartack.testing import fault_server
from bartack.testing.faults import EVENT_WRITERS
from bartack_server.gateway.client_requests import error_in
from bartack_server.gateway.keys import revoke_key
from bartack_server.gateway.pass_through import with_model
from tests.gateway.bodies import request
from tests.gateway.serving import LIMIT_S, WaitingModel, answering, serving, stored_key, upstream, whole_answer

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"x-api-key": "KEY"}, ""),
        ({"authorization": "Bearer KEY"}, ""),
        ({"x-goog-api-key": "KEY"}, ""),
        ({}, "?key=KEY"),
    ],
)
async def test_a_key_is_accepted_wherever_clients_send_it(headers: dict[str, str], query: str) -> None:
    async with serving({"m": [ScriptedModel([])]}) as gateway:
        with_key = {name: value.replace("KEY", gateway.key) for name, value in headers.items()}
        url = f"{gateway.url}/v1/models{query.replace('KEY', gateway.key)}"
        async with gateway.http.get(url, headers=with_key) as response:
            assert response.status == 200
        async with gateway.http.get(url.replace(gateway.key, "wrong"), headers={"x-api-key": "wrong"}) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"


async def test_a_revoked_key_stops_working_and_an_expired_one_does_not_work() -> None:
    store = MemoryStore()
    async with serving({"m": [ScriptedModel([])]}, store=store) as gateway:
        secret = await stored_key(store, name="robot")
        expired = await stored_key(store, name="old", expires=datetime.now(UTC) - timedelta(days=1))
        await gateway.until(200, secret)
        status, body = await gateway.get("/v1/models", headers={"x-api-key": expired})
        assert (status, "expired" in body["error"]["message"]) == (401, True)
        await revoke_key(store, "robot")
        await gateway.until(401, secret)


async def test_a_key_is_limited_to_its_models_and_rate() -> None:
    store = MemoryStore()
    secret = await stored_key(store, name="small", models=("cheap-*",), per_minute=1)
    models = {"cheap-1": [ScriptedModel(["Hi.", "Hi."])], "dear": [ScriptedModel([])]}
    async with serving(models, store=store) as gateway:
        headers = {"x-api-key": secret}
        _, listed = await gateway.get("/v1/models", headers=headers)
        assert [model["id"] for model in listed["data"]] == ["cheap-1"]
        path, body = request(MESSAGES, model="dear")
        status, data, _ = await gateway.post(path, body, headers=headers)
        assert (status, json.loads(data)["error"]["type"]) == (403, "permission_error")
        path, body = request(MESSAGES, model="cheap-1")
        assert (await gateway.post(path, body, headers=headers))[0] == 200
        status, data, answer = await gateway.post(path, body, headers=headers)
        assert (status, json.loads(data)["error"]["type"]) == (429, "rate_limit_error")
        assert int(answer["retry-after"]) == 60


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_pages_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    async with serving({"m": [ScriptedModel([])]}) as gateway:
        status, _ = await gateway.get("/v1/models", headers=headers)
        assert status in (403, 421)


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_sequences_are_enforced_for_models_that_do_not_take_them(stream: bool) -> None:
    async with serving({"m": [ScriptedModel(["<b>no</b> and the reasons"])]}) as gateway:
        path, body = request(MESSAGES, stream=stream)
        status, data, _ = await gateway.post(path, {**body, "stop_sequences": ["</b>"]})
        assert status == 200
        assert (b"reasons" in data, b"no" in data, b'"stop_sequence":"</b>"' in data) == (False, True, True)


async def test_stop_sequences_that_the_gateway_enforces_are_no_loss() -> None:
    answer = answering(RESPONSES, whole_answer(RESPONSES))
    async with fault_server(answer) as server, serving({"m": [upstream(RESPONSES, server.base_url)]}) as gateway:
        path, body = request(CHAT)
        _, data, headers = await gateway.post(path, {**body, "stop": ["lo"], "seed": 1})
        assert headers["x-bartack-changes"] == "1"  # the seed
        assert (b"Hel" in data, b"Hello" in data) == (True, False)


@pytest.mark.parametrize("format", [CHAT, MESSAGES])
async def test_what_claude_code_adds_for_anthropic_reaches_no_other_provider(format: str) -> None:
    answer = answering(format, whole_answer(format))
    async with fault_server(answer) as server, serving({"m": [upstream(format, server.base_url)]}) as gateway:
        path, body = request(MESSAGES)
        system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be kind."}]
        hidden = {"name": "hidden", "input_schema": {"type": "object"}, "defer_loading": True}
        _, _, headers = await gateway.post(path, {**body, "system": system, "tools": [*body["tools"], hidden]})
        is_own = format == MESSAGES
        [received] = server.requests
        assert (b"billing" in received.body, b"hidden" in received.body) == (is_own, is_own)
        assert (int(headers["x-bartack-changes"]) >= 2) is not is_own


def missing(path: str) -> Failed:
    return Failed(ErrorCode.MODEL_NOT_FOUND, f"The gateway does not have POST {path}.")


async def test_a_model_is_shown_in_the_shape_of_each_client() -> None:
    async with serving({"m": [ScriptedModel([])]}) as gateway:
        status, body = await gateway.get("/v1beta/models/m")
        assert (status, body["name"], "countTokens" in body["supportedGenerationMethods"]) == (200, "models/m", True)
        status, body = await gateway.get("/v1beta/models/other")
        assert (status, body["error"]["status"]) == (404, "NOT_FOUND")
        assert (await gateway.get("/v1/models/m"))[1]["id"] == "m"
        assert [model["name"] for model in (await gateway.get("/api/tags"))[1]["models"]] == ["m"]


async def test_requests_that_are_not_valid_are_refused_in_the_form_of_the_client() -> None:
    async with serving({"m": [ScriptedModel([])]}) as gateway:
        headers = {"x-api-key": gateway.key}
        async with gateway.http.post(f"{gateway.url}/v1/messages", data=b"{", headers=headers) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
        status, data, _ = await gateway.post("/v1/chat/completions", {"model": "nothing", "messages": []})
        assert (status, json.loads(data)["error"]["code"]) == (404, "model_not_found")
        status, data, _ = await gateway.post("/v1beta/models/m:embedContent", {})
        assert (status, json.loads(data)["error"]["status"]) == (404, "NOT_FOUND")
        for path, form in (
            ("/v1/embeddings", CHAT),
            ("/v1beta/files", "gemini-generate"),
            ("/api/embed", "ollama-chat"),
        ):
            status, data, _ = await gateway.post(path, {})
            assert (status, json.loads(data)) == (404, error_in(form, missing(path)).body)
        async with gateway.http.get(f"{gateway.url}/v1/messages", headers=headers) as response:
            assert (response.status, (await response.json())["type"]) == (405, "error")
        body = {"model": "m", "input": "Look!", "previous_response_id": "resp_unknown"}
        status, data, _ = await gateway.post("/v1/responses", body)
        error = json.loads(data)["error"]
        assert (status, error["code"], error["param"]) == (400, "previous_response_not_found", "previous_response_id")
        upgrade = {"x-api-key": gateway.key, "connection": "Upgrade", "upgrade": "websocket"}
        status, _ = await gateway.get("/v1/responses", headers=upgrade)
        assert status == 404


async def test_another_upstream_takes_over_before_the_first_content() -> None:
    first = ScriptedModel([Failed(ErrorCode.OVERLOADED, "busy", retryable=True)])
    async with serving({"m": [first, ScriptedModel(["Hello."])]}) as gateway:
        status, data, _ = await gateway.post(*request(CHAT, stream=False))
        assert (status, json.loads(data)["choices"][0]["message"]["content"]) == (200, "Hello.")


async def test_an_invalid_request_is_not_sent_to_another_upstream() -> None:
    second = ScriptedModel(["Hello."])
    async with serving({"m": [ScriptedModel([Failed(ErrorCode.INVALID_REQUEST, "no")]), second]}) as gateway:
        status, _, _ = await gateway.post(*request(CHAT))
    assert (status, len(second.calls)) == (400, 0)


async def test_an_upstream_that_asked_for_a_pause_is_not_asked_again() -> None:
    busy = answering(CHAT, EVENT_WRITERS[CHAT].error_body(429), status=429, **{"Retry-After": "7"})
    async with fault_server(busy) as server, serving({"m": [upstream(CHAT, server.base_url)]}) as gateway:
        for _ in range(2):
            status, _, headers = await gateway.post(*request(MESSAGES))
            assert status == 429
            assert 5 <= int(headers["retry-after"]) <= 7
        assert len(server.requests) == 1


async def test_refused_credentials_of_an_upstream_are_not_the_clients() -> None:
    body = json.dumps({"error": {"message": "bad key upstream-secret-key", "code": "invalid_api_key"}}).encode()
    async with (
        fault_server(answering(CHAT, body, status=401, **{"Content-Type": "application/json"})) as server,
        serving({"m": [upstream(CHAT, server.base_url)]}) as gateway,
    ):
        status, data, _ = await gateway.post(*request(CHAT))
        assert status == 403
        assert b"upstream-secret-key" not in data
        assert gateway.key not in str(server.requests[0].headers)


@pytest.mark.parametrize("format", [CHAT, MESSAGES, RESPONSES])
async def test_bytes_pass_through_between_equal_formats(format: str) -> None:
    answer = whole_answer(format)
    pieces = tuple(answer[start : start + 37] for start in range(0, len(answer), 37))
    async with (
        fault_server(answering(format, *pieces)) as server,
        serving({"m": [upstream(format, server.base_url)]}) as gateway,
    ):
        path, body = request(format)
        data = json.dumps({**body, "unknown_field": {"kept": [1.50, "é"]}}, indent=1).encode()
        headers = {"x-api-key": gateway.key, "anthropic-beta": "new-2026", "user-agent": "claude-cli/9"}
        async with gateway.http.post(f"{gateway.url}{path}?beta=true", data=data, headers=headers) as response:
            assert await response.read() == answer
        [received] = server.requests
        assert received.body == data
        assert received.headers["anthropic-beta"] == "new-2026"
        assert "claude-cli" not in received.headers.get("user-agent", "")
        assert gateway.key not in str(received.headers)


ANSWER = replace(
    assistant(Thinking("Hm."), Text("I look."), ToolCall("call_1", "look", {"city": "Paris"})),
    meta=Meta(usage=Usage(10, 20), finish_reason="tool_calls"),
)


@pytest.mark.parametrize("format", [CHAT, MESSAGES, RESPONSES, "gemini-generate", "ollama-chat"])
async def test_the_bytes_of_a_response_that_is_not_streamed_pass_through(format: str) -> None:
    body = writer(format, response_id="r1", model_id="m").whole_response(ANSWER)
    answer = json.dumps({**body, "unknown_field": [1.50, "é"]}, indent=1).encode() + b"\n"
    headers: Any = {"Content-Type": "application/json"}
    pieces = tuple(answer[start : start + 37] for start in range(0, len(answer), 37))
    async with (
        fault_server(answering(format, *pieces, **headers)) as server,
        serving({"m": [upstream(format, server.base_url)]}) as gateway,
    ):
        path, sent = request(format, stream=False)
        status, data, _ = await gateway.post(path, sent)
        assert (status, data) == (200, answer)
        [received] = server.requests
        assert json.loads(received.body) == sent
        assert received.target.endswith(path.removeprefix("/v1"))
        for cut in (len(answer) // 3, len(answer) - 3):
            server.scenario = answering(format, answer[:cut], **headers)
            status, data, _ = await gateway.post(path, sent)
            assert (status >= 500, b"I look." in data) == (True, False)
        server.scenario = answering(format, b'{"error": {"message": "It is too busy."}}', **headers)
        status, data, _ = await gateway.post(path, sent)
        assert (status >= 500, b"too busy" in data) == (True, True)
    [info] = (await gateway.store.sessions()).items
    facts = [entry.fact for entry in await gateway.store.entries(info.id)]
    [answered] = [fact for fact in facts if isinstance(fact, Message) and fact.role == "assistant"]
    assert (answered.text, answered.tool_calls[0].arguments) == ("I look.", {"city": "Paris"})


async def test_an_alias_is_replaced_and_all_other_bytes_are_kept() -> None:
    data = b'{ "a": {"model": "m"},\n "mo\\u0064el" : "alias" , "b":1e3}'
    assert with_model(data, "real") == b'{ "a": {"model": "m"},\n "mo\\u0064el" : "real" , "b":1e3}'


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_disconnects_stops_the_upstream(stream: bool) -> None:
    model = WaitingModel()
    async with serving({"m": [model]}) as gateway:
        path, body = request(MESSAGES, stream=stream)
        sending = asyncio.ensure_future(gateway.post(path, body))
        async with asyncio.timeout(LIMIT_S):
            await model.asked.wait()
            sending.cancel()
            await model.closed.wait()


async def test_a_gateway_that_stops_ends_its_streams_with_an_error() -> None:
    async with serving({"m": [WaitingModel()]}) as gateway:
        path, body = request(MESSAGES)
        async with gateway.http.post(gateway.url + path, json=body, headers={"x-api-key": gateway.key}) as response:
            assert b"Hello." in await response.content.readuntil(b"Hello.")
            await gateway.app.drain()
            assert b"event: error" in await response.read()


async def test_custom_tools_and_namespaces_of_codex_work_on_any_model() -> None:
    patch = ToolCall("c1", "apply_patch", {"input": "*** Begin Patch"})
    model = ScriptedModel([assistant(patch, ToolCall("c2", "files__read", {"path": "a"}))])
    tools = [
        {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": {"type": "text"}},
        {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
    ]
    async with serving({"m": [model]}) as gateway:
        path, body = request(RESPONSES, stream=False)
        status, data, _ = await gateway.post(path, {**body, "tools": tools})
    assert [spec.name for spec in model.calls[0].tools] == ["apply_patch", "files__read"]
    custom, function = json.loads(data)["output"]
    assert (status, custom["type"], custom["input"]) == (200, "custom_tool_call", "*** Begin Patch")
    assert (function["type"], function["namespace"], function["name"]) == ("function_call", "files", "read")
