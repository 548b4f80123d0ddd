"""`ProviderModel`: one prepared call, sent, decoded, stamped and guarded (001 §4.1, D-3.7)."""

import asyncio
import json
import time
from typing import Any

import pytest

from bartack.agent import Agent, RetryPolicy
from bartack.environment import Environment
from bartack.models import HttpRequest, Model, ProviderModel, RequestMetadata, connect, guarded, vendor_named
from bartack.models.auth import HeaderKey
from bartack.nouns.config import CacheConfig, ModelConfig, ToolSpec
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, TextDelta, ToolCallStart, Usage
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store import MemoryStore
from bartack.stream.assembler import MessageAssembler
from bartack.testing import ExpectedOutcome, Scenario, Stall, check_stream, fault_server
from bartack.testing.faults import EVENT_WRITERS
from tests.counting import counting_environment
from tests.models.doubles import KEY, BytesClient, read

SAY = EVENT_WRITERS["anthropic-messages"]
WHOLE = (SAY.start(), SAY.text("Hi"), SAY.finish("stop"))


def make(client: BytesClient, environment: Environment | None = None, **options: Any) -> ProviderModel:
    return connect("anthropic:claude-sonnet-4-5", api_key=KEY, client=client, environment=environment, **options)


def kinds(deltas: list[MessageDelta]) -> list[type[Delta]]:
    return [type(delta.delta) for delta in deltas]


def sent(client: BytesClient, index: int = 0) -> dict[str, Any]:
    body = json.loads(client.requests[index].body)
    assert isinstance(body, dict)
    return body


async def failure(client: BytesClient, **options: Any) -> tuple[list[MessageDelta], Failed]:
    deltas = await read(make(client, **options).stream([user("Hello")]))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    return deltas, last


# -- requests


async def test_a_call_becomes_a_request() -> None:
    client = BytesClient(WHOLE)
    spec = ToolSpec("look", {"type": "object", "properties": {}})
    stream = make(client).stream([user("Hello")], [spec], "Be brief.", tool_choice="required", max_tokens=9, top_k=3)
    await read(stream)
    request = client.requests[0]
    assert request.url == "https://api.anthropic.com/v1/messages"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["x-api-key"] == KEY
    body = sent(client)
    assert body["model"] == "claude-sonnet-4-5"
    assert body["stream"] is True
    assert body["max_tokens"] == 9
    assert body["top_k"] == 3
    assert "Be brief." in json.dumps(body["system"])
    assert body["tools"][0]["name"] == "look"
    assert body["tool_choice"]["type"] == "any"


async def test_system_prompt_content_follows_the_system_prompt() -> None:
    """001-4.1.3"""
    client = BytesClient(WHOLE)
    await read(make(client).stream([user("Hello")], None, "text", system_prompt_content=["one", Text("two")]))
    assert [block["text"] for block in sent(client)["system"]] == ["text", "one", "two"]


async def test_params_apply_to_one_call_and_config_to_all() -> None:
    client = BytesClient(WHOLE)
    model = make(client, temperature=0.1)
    await read(model.stream([user("Hello")], temperature=0.9))
    model.update_config(temperature=0.4)
    await read(model.stream([user("Hello")]))
    assert [sent(client, index)["temperature"] for index in (0, 1)] == [0.9, 0.4]
    assert model.get_config().temperature == 0.4


async def test_a_call_in_progress_keeps_its_configuration() -> None:
    client = BytesClient(WHOLE)
    model = make(client, temperature=0.1)
    stream = model.stream([user("Hello")])
    model.update_config(temperature=0.9)
    await read(stream)
    assert sent(client)["temperature"] == 0.1


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"temperature": "hot"}, "$.temperature"),
        ({"temperature": -1}, "$.temperature"),
        ({"max_tokens": 0}, "$.maxTokens"),
        ({"tool_choice": "sometimes"}, "$.tool_choice"),
        ({"thinking": {"effort": "huge"}}, "$.thinking.effort"),
    ],
)
def test_an_invalid_configuration_is_rejected_at_once(config: dict[str, Any], path: str) -> None:
    with pytest.raises(PartValidationError) as refused:
        make(BytesClient(), **config)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.path == path
    model = make(BytesClient())
    with pytest.raises(PartValidationError):
        model.update_config(**config)
    assert model.get_config() == ModelConfig("claude-sonnet-4-5")
    with pytest.raises(PartValidationError):
        model.stream([user("Hello")], **config)


def test_creating_a_model_uses_no_network_and_merges_the_cache_config() -> None:
    client = BytesClient()
    model = ProviderModel(
        client, ModelConfig("m"), CacheConfig(), vendor=vendor_named("anthropic"), credentials=HeaderKey("bearer", KEY)
    )
    assert model.cache_config == CacheConfig() == model.get_config().cache_config
    assert client.requests == []
    with pytest.raises(PartValidationError, match="base_url"):
        ProviderModel(client, ModelConfig("m"), vendor=vendor_named("openai-compatible"))
    with pytest.raises(PartValidationError, match="project"):
        ProviderModel(client, ModelConfig("m"), vendor=vendor_named("vertex"), base_url="https://host.example")


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"X-Trace": "hunter2\r\nX-Admin: true"}, "The value of the header X-Trace contains a line break"),
        ({"X-Trace": "hunter2\nx"}, "The value of the header X-Trace contains a line break"),
        ({"X-Trace": "hunter2\0"}, "The value of the header X-Trace contains a line break or a control character"),
        ({"X-Trace": b"hunter2"}, "The value of the header X-Trace is not text"),
        ({"X-Trace\r\nhunter2": "x"}, "The name of a header is not valid"),
        ({"hunter2 x": "x"}, "The name of a header is not valid"),
        ({"": "hunter2"}, "The name of a header is not valid"),
    ],
)
def test_headers_with_line_breaks_are_refused_without_showing_them(headers: dict[str, str], message: str) -> None:
    with pytest.raises(PartValidationError, match=message) as refused:
        make(BytesClient(), headers=headers)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "hunter2" not in str(refused.value)
    with pytest.raises(PartValidationError, match=message):
        HttpRequest(url="https://host.example/", headers=headers)


async def test_credentials_with_line_breaks_are_refused_before_anything_is_sent() -> None:
    client = BytesClient(WHOLE)
    key = HeaderKey("bearer", "hunter2\r\nX-Admin: true")
    model = ProviderModel(client, ModelConfig("m"), vendor=vendor_named("anthropic"), credentials=key)
    last = (await read(model.stream([user("Hello")])))[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.INVALID_CONFIG
    assert "Authorization" in last.message
    assert "hunter2" not in last.message
    assert client.requests == []


@pytest.mark.parametrize("end", ["/\r\nX-Admin: true", "/\n", "/a b", "/\0"])
def test_a_base_url_with_line_breaks_is_refused(end: str) -> None:
    with pytest.raises(PartValidationError, match="URL contains a space or a control character") as refused:
        make(BytesClient(), base_url=f"https://host.example{end}x")
    assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_header_values_that_a_provider_repeats_are_masked() -> None:
    headers = {"X-Corp-Token": "hunter2!", "X-Title": "My title"}
    body = b'{"error":{"message":"bad token hunter2! from My title"}}'
    _, error = await failure(BytesClient([body], 400), headers=headers)
    assert error.message == "bad token [hidden] from My title"
    echo = b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"hunter2!"}}\n\n'
    _, error = await failure(BytesClient([SAY.start(), echo]), headers=headers)
    assert error.message == "[hidden]"


async def test_losses_can_be_inspected_before_a_call_is_sent() -> None:
    client = BytesClient(WHOLE)
    model = make(client)
    history = [user("Hello"), tool_message(ToolResult("nobody-asked", "an orphan")), user("Well?")]
    call = model.prepare(history)
    assert any("history[1]" in loss.where for loss in call.report.losses)
    assert client.requests == []
    assert kinds(await read(model.send(call)))[-1] is Done


# -- responses


async def test_deltas_are_stamped_with_run_seq_and_the_time_of_the_request_or_their_chunk() -> None:
    """D-1.3"""
    client = BytesClient([SAY.start() + SAY.text("a"), SAY.text("b"), SAY.finish("stop")])
    metadata = RequestMetadata(run_id="run-1", model_call_index=3, attempt=2)
    deltas = await read(make(client, counting_environment()).stream([user("Hello")], request_metadata=metadata))
    assert [delta.seq for delta in deltas] == list(range(len(deltas)))
    assert {(d.run_id, d.model_call_index, d.attempt) for d in deltas} == {("run-1", 3, 2)}
    assert len({delta.timestamp for delta in deltas}) == 4
    assert deltas[0].timestamp < deltas[1].timestamp, "start has the time of the request"


@pytest.mark.parametrize(
    ("steps", "status", "end"),
    [
        (WHOLE, 200, Done),
        ((SAY.start(), SAY.text("half")), 200, Failed),
        ((b"{}",), 400, Failed),
    ],
    ids=["answer", "cut", "error-response"],
)
async def test_the_duration_counts_from_the_request_to_the_end(
    steps: tuple[bytes, ...], status: int, end: type[Delta]
) -> None:
    stalled: tuple[bytes | Stall, ...] = (Stall(0.2), *steps[:1], Stall(0.1), *steps[1:])
    scenario = Scenario(
        name="slow", format=SAY.format, steps=stalled, status=status, outcome=ExpectedOutcome(end="error")
    )
    async with fault_server(scenario) as server, connect("anthropic:m", api_key=KEY, base_url=server.base_url) as model:
        stream = model.stream([user("Hello")])
        await asyncio.sleep(0.2)  # not part of the duration: nothing is sent before the stream is read
        started_at = time.monotonic()
        assembler = MessageAssembler()
        async for delta in stream:
            assembler.consume(delta)
        took_ms = (time.monotonic() - started_at) * 1000
        store = MemoryStore()
        await Agent(model, store=store, retry=RetryPolicy(max_retries=0)).run("Hello", session="s")
    assert type(delta.delta) is end
    meta = assembler.snapshot().meta
    assert meta is not None
    assert meta.duration_ms is not None
    assert 295 <= meta.duration_ms <= took_ms + 5
    facts = [entry.fact for entry in await store.load("s")]
    stored = [fact.meta.duration_ms for fact in facts if isinstance(fact, Message) and fact.meta]
    stored += [fact.duration_ms for fact in facts if isinstance(fact, StreamFailed)]
    assert len(stored) == 1
    assert stored[0] is not None
    assert stored[0] >= 295


async def test_without_metadata_each_call_gets_a_new_run_id() -> None:
    model = make(BytesClient(WHOLE))
    first, second = await read(model.stream([user("a")])), await read(model.stream([user("b")]))
    assert len({d.run_id for d in first}) == 1
    assert first[0].run_id != second[0].run_id


async def test_a_model_handles_concurrent_calls() -> None:
    model = make(BytesClient(WHOLE))
    answers = await asyncio.gather(*(check_stream(model) for _ in range(20)))
    assert {answer.message.text for answer in answers if answer.message} == {"Hi"}


async def test_call_ids_from_the_history_are_not_reused() -> None:
    client = BytesClient([SAY.start(), SAY.call(0, "call_1", "look", "{}"), SAY.finish("tool_calls")])
    history = [user("Hi"), assistant(ToolCall("call_1", "look", {})), tool_message(ToolResult("call_1", "x"))]
    deltas = await read(make(client).stream(history))
    (start,) = [delta.delta for delta in deltas if isinstance(delta.delta, ToolCallStart)]
    assert start.tool_call_id != "call_1"


async def test_the_stream_is_already_guarded() -> None:
    metadata = RequestMetadata(run_id="run-1")
    stream = make(BytesClient(WHOLE)).stream([user("Hello")], request_metadata=metadata)
    assert guarded(stream, "run-1") is stream
    assert kinds(await read(stream))[-1] is Done


def raw_text(deltas: list[MessageDelta]) -> str:
    return "".join(delta.provider_raw["text"] for delta in deltas if delta.provider_raw is not None)


async def test_provider_raw_is_off_by_default_and_contains_no_key() -> None:
    chunks = [SAY.start() + b": your key is " + KEY.encode() + b"\n\n", SAY.text("Hi"), SAY.finish("stop")]
    plain = await read(make(BytesClient(chunks)).stream([user("Hello")]))
    assert all(delta.provider_raw is None for delta in plain)
    raw = await read(make(BytesClient(chunks), provider_raw=True).stream([user("Hello")]))
    received = raw_text(raw)
    assert "message_start" in received
    assert "message_stop" in received
    assert KEY not in received


async def test_provider_raw_contains_no_key_that_is_split_between_chunks() -> None:
    body = SAY.start() + b": your key is " + KEY.encode() + b"\n\n" + SAY.text("Hi") + SAY.finish("stop")
    key_start = body.index(KEY.encode())
    for cut in range(key_start, key_start + len(KEY)):
        client = BytesClient([body[:cut], body[cut:]])
        raw = await read(make(client, provider_raw=True).stream([user("Hello")]))
        assert raw_text(raw) == body.decode().replace(KEY, "[hidden]")


@pytest.mark.parametrize("status", [200, 400])
async def test_an_error_that_is_cut_inside_a_secret_does_not_show_its_beginning(status: int) -> None:
    secret = "tenant7" * 20
    for filler in (100, 190, 1900, 1990):
        client = BytesClient([b"x" * filler + secret.encode() + b"y" * 3000], status=status)
        client.headers = {"content-type": "text/plain"}
        model = make(client, headers={"X-Tenant-Key": secret})
        failed = (await read(model.stream([user("Hello")])))[-1].delta
        assert isinstance(failed, Failed)
        assert "xxx" in failed.message
        assert "tenant7" not in failed.message


async def test_the_cost_is_added_to_the_last_usage() -> None:
    deltas = await read(make(BytesClient(WHOLE)).stream([user("Hello")]))
    usages = [delta.delta for delta in deltas if isinstance(delta.delta, Usage)]
    assert usages[0].cost is None
    assert usages[-1].cost == pytest.approx((3 * 3 + 5 * 15) / 1e6)
    assert kinds(deltas)[-2:] == [Usage, Done]


async def test_an_unknown_cost_is_none() -> None:
    client = BytesClient(WHOLE)
    deltas = await read(connect("anthropic:nobody-knows-it", api_key=KEY, client=client).stream([user("Hello")]))
    assert {delta.delta.cost for delta in deltas if isinstance(delta.delta, Usage)} == {None}


# -- errors


async def test_a_failure_before_the_first_byte_gives_start_then_error() -> None:
    lost = ModelError("api.anthropic.com: no route", code=ErrorCode.CONNECTION_FAILED)
    deltas, error = await failure(BytesClient([lost]))
    assert kinds(deltas) == [Start, Failed]
    start = deltas[0].delta
    assert isinstance(start, Start)
    assert start.model_id == "claude-sonnet-4-5"
    assert start.request_id
    assert error.error_code is ErrorCode.CONNECTION_FAILED
    assert error.retryable


async def test_a_connection_lost_during_the_answer_is_truncation() -> None:
    lost = ModelError("api.anthropic.com: connection reset", code=ErrorCode.CONNECTION_FAILED)
    deltas, error = await failure(BytesClient([SAY.start(), SAY.text("half"), lost]))
    assert TextDelta in kinds(deltas)
    assert error.error_code is ErrorCode.STREAM_TRUNCATED
    assert "connection reset" in error.message


async def test_a_connection_lost_after_the_last_event_loses_nothing() -> None:
    say = EVENT_WRITERS["openai-chat"]
    finish = say.finish("stop").removesuffix(b"data: [DONE]\n\n")
    lost = ModelError("reset", code=ErrorCode.CONNECTION_FAILED)
    client = BytesClient([say.start(), say.text("Hi"), finish, lost])
    deltas = await read(connect("openai-chat:m", api_key=KEY, client=client).stream([user("Hello")]))
    assert kinds(deltas)[-1] is Done


async def test_os_errors_of_a_client_are_translated() -> None:
    _, error = await failure(BytesClient([ConnectionResetError("reset by peer")]))
    assert error.error_code is ErrorCode.CONNECTION_FAILED
    _, error = await failure(BytesClient([TimeoutError()]))
    assert error.error_code is ErrorCode.TIMEOUT


async def test_error_responses_are_classified_and_contain_no_key() -> None:
    body = json.dumps({"error": {"type": "authentication_error", "message": f"bad key {KEY}"}}).encode()
    deltas, error = await failure(BytesClient([body], 401))
    assert kinds(deltas) == [Start, Failed]
    assert error.error_code is ErrorCode.AUTHENTICATION
    assert error.status == 401
    assert error.message == "bad key [hidden]"


async def test_a_truncated_error_response_keeps_its_status() -> None:
    _, error = await failure(BytesClient([b"<html>", ModelError("reset", code=ErrorCode.CONNECTION_FAILED)], 503))
    assert error.error_code is ErrorCode.OVERLOADED


async def test_an_endless_error_response_is_not_read_to_its_end() -> None:
    chunk = b"x" * 300_000
    _, error = await failure(BytesClient([chunk, chunk, chunk, chunk, RuntimeError("never read")], 500))
    assert error.error_code is ErrorCode.SERVER_ERROR
    assert len(error.message) <= 2000


@pytest.mark.parametrize("vendor", ["anthropic", "openai", "openai-chat", "google", "cohere", "ollama", "bedrock"])
@pytest.mark.parametrize(
    ("content_type", "body", "reported"),
    [
        ("text/html; charset=utf-8", b"\n<!DOCTYPE html>\n<html><title>Sign\n in</title></html>", "HTML * Sign in"),
        ("text/event-stream", b"<html><body>portal</body></html>", "HTML * <html><body>portal</body></html>"),
        ("application/xml", b"<?xml version='1.0'?><Error/>", "XML * <?xml version='1.0'?><Error/>"),
        ("application/json", b'{"status":"ok"}', 'JSON * {"status":"ok"}'),
        ("application/json", b'\xef\xbb\xbf{\n  "object": "list"\n}\n', 'JSON * { "object": "list" }'),
        ("text/plain", b"Ollama is running", "text * Ollama is running"),
        ("text/plain", b"x" * 300, f"text * {'x' * 200}..."),
    ],
)
async def test_a_body_that_is_not_a_stream_is_described_and_not_retried(
    vendor: str, content_type: str, body: bytes, reported: str
) -> None:
    pieces = [body[:1], body[1:5], body[5:]]
    client = BytesClient(pieces, headers={"content-type": content_type})
    model = connect(f"{vendor}:some-model", api_key=KEY, client=client, base_url="https://api.example/v9")
    deltas = await read(model.stream([user("Hello")]))
    last = deltas[-1].delta
    assert kinds(deltas) == [Start, Failed]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_MALFORMED
    assert not last.retryable
    assert last.message == "api.example responded with " + reported.replace("*", "instead of a stream:")


async def test_an_agent_calls_a_model_once_that_responds_with_a_web_page() -> None:
    client = BytesClient([b"<html><title>Sign in</title></html>"], headers={"content-type": "text/html"})
    result = await Agent(make(client), retry=RetryPolicy(base_ms=1)).run("Hello")
    assert result.error is not None
    assert "HTML" in result.error.message
    assert len(client.requests) == 1


@pytest.mark.parametrize("content_type", ["text/plain", "text/html", "application/json", ""])
async def test_a_stream_with_an_unusual_content_type_is_read(content_type: str) -> None:
    headers = {"content-type": content_type}
    deltas = await read(make(BytesClient(WHOLE, headers=headers)).stream([user("Hello")]))
    assert kinds(deltas)[-1] is Done
    for cut in ([b": ping\n\n"], [SAY.start()], [SAY.start(), SAY.text("half")], [b"dat"], []):
        _, error = await failure(BytesClient(cut, headers=headers))
        expected = ErrorCode.STREAM_MALFORMED if cut == [b"dat"] and content_type else ErrorCode.STREAM_TRUNCATED
        assert error.error_code is expected


async def test_a_cut_stream_of_json_lines_is_truncated_whatever_its_content_type() -> None:
    line = b'{"model":"m","message":{"role":"assistant","content":"half"},"done":false}\n'
    client = BytesClient([line], headers={"content-type": "application/json"})
    deltas = await read(connect("ollama:m", client=client).stream([user("Hello")]))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_TRUNCATED


async def test_json_that_reports_an_error_keeps_its_code() -> None:
    body = b'{"error":{"code":"rate_limit_exceeded","message":"slow down"}}'
    client = BytesClient([body], headers={"content-type": "application/json"})
    deltas = await read(connect("cohere:m", api_key=KEY, client=client).stream([user("Hello")]))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.RATE_LIMITED
    assert last.retryable


@pytest.mark.parametrize(
    ("name", "base_url", "suggested"),
    [
        ("openai-compatible:llama-3", "http://gpu.example:8000", "http://gpu.example:8000/v1"),
        ("openai-compatible:llama-3", "http://gpu.example:8000/", "http://gpu.example:8000/v1"),
        ("vllm:llama-3", "https://host.example/proxy", "https://host.example/proxy/v1"),
        ("openai:gpt-5", "https://host.example", "https://host.example/v1"),
        ("anthropic:claude-sonnet-4-5", "https://host.example/v1", "https://host.example"),
        ("azure:gpt-5", "https://x.openai.azure.com/openai/v1", "https://x.openai.azure.com"),
    ],
)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"detail":"Not Found"}'),  # vLLM: FastAPI's answer for an unknown path
        (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),  # llama.cpp
        (404, b"404 page not found"),  # Go's answer, as in Ollama
        (404, b"<html><title>404 Not Found</title></html>"),
        (200, b"<!doctype html><html><title>Open WebUI</title></html>"),  # a web interface answers every path
    ],
)
async def test_a_base_url_with_the_wrong_version_is_named_instead_of_the_model(
    name: str, base_url: str, suggested: str, status: int, body: bytes
) -> None:
    model = connect(name, api_key=KEY, base_url=base_url, client=BytesClient([body], status))
    last = (await read(model.stream([user("Hello")])))[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.INVALID_CONFIG
    assert not last.retryable
    assert last.message.endswith(f"Check the base URL {base_url.rstrip('/')}: did you mean {suggested}?")


@pytest.mark.parametrize(
    ("name", "base_url", "message"),
    [
        ("openai-compatible:llama-3", "http://gpu.example:8000", "The model `llama-3` does not exist."),  # vLLM
        ("openai-compatible:llama-3", "http://gpu.example:8000", "No endpoints found for llama-3."),  # OpenRouter
        ("openai-compatible:llama-3", "http://gpu.example:8000/v1", "Not Found"),
        ("openai-compatible:llama-3", "http://gpu.example/api/paas/v4", "Not Found"),
        ("deepseek:deepseek-chat", None, "Not Found"),
        ("ollama:llama-3", "http://gpu.example:11434", "Not Found"),
        ("bedrock:llama-3", None, "Not Found"),
    ],
)
async def test_other_404_responses_are_about_the_model(name: str, base_url: str | None, message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    model = connect(name, api_key=KEY, base_url=base_url, client=BytesClient([body], 404))
    last = (await read(model.stream([user("Hello")])))[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.MODEL_NOT_FOUND
    assert last.message == message


async def test_a_retry_delay_in_a_stream_error_is_reported() -> None:
    say = EVENT_WRITERS["openai-chat"]
    error = {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}}
    client = BytesClient([say.start(), b"data: " + json.dumps(error).encode() + b"\n\n"])
    deltas = await read(connect("openai-chat:m", api_key=KEY, client=client).stream([user("Hello")]))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    assert last.retry_after_ms == 1500


async def test_an_endless_answer_is_stopped_by_the_guard() -> None:
    piece = SAY.text("x" * 1_000_000)
    client = BytesClient([SAY.start(), *[piece] * 9, RuntimeError("never read")])
    deltas, error = await failure(client)
    assert error.error_code is ErrorCode.STREAM_TOO_LARGE
    assert [delta.seq for delta in deltas] == list(range(len(deltas)))
    assert client.released == 1


async def test_the_error_mapper_decides_the_reported_error() -> None:
    def mapped(failed: Failed) -> Failed:
        return Failed(ErrorCode.OVERLOADED, f"mapped {failed.error_code}", retryable=True)

    _, error = await failure(BytesClient([b"{}"], 418), error_mapper=mapped)
    assert error == Failed(ErrorCode.OVERLOADED, "mapped provider_error", retryable=True)


async def test_cancellation_propagates_and_releases_the_connection() -> None:
    steps = (SAY.start() + SAY.text("Hi"), Stall(10))
    scenario = Scenario(name="slow", format=SAY.format, steps=steps, outcome=ExpectedOutcome(end="error"))
    async with fault_server(scenario) as server, connect("anthropic:m", api_key=KEY, base_url=server.base_url) as model:
        heard: list[MessageDelta] = []
        has_text = asyncio.Event()

        async def listen() -> None:
            async for delta in model.stream([user("Hello")]):
                heard.append(delta)
                if isinstance(delta.delta, TextDelta):
                    has_text.set()

        task = asyncio.create_task(listen())
        await has_text.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert Failed not in kinds(heard)


async def test_closing_the_stream_releases_the_connection() -> None:
    client = BytesClient(WHOLE)
    stream = make(client).stream([user("Hello")])
    await anext(stream)
    assert client.released == 0
    await stream.aclose()
    assert client.released == 1


# -- model info


async def test_a_model_describes_itself() -> None:
    client = BytesClient()
    model: Model = make(client)
    assert model.supports("tools")
    assert not model.supports("telepathy")
    info = model.model_info()
    assert (info.provider, info.model_id, info.context_window) == ("anthropic", "claude-sonnet-4-5", 200_000)
    async with make(client):
        pass
    assert client.is_closed


def test_the_repr_of_a_model_contains_no_key() -> None:
    model = make(BytesClient())
    call = model.prepare([user("Hello")])
    text = repr([model, vars(model), call, HeaderKey("bearer", KEY)])
    assert KEY not in text
