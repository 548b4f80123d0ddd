"""Model (001 §1-5, 004): the rules of any model, checked on one that uses Anthropic's format."""

import asyncio
import inspect
import json
from typing import Any, get_type_hints

import pytest

from bartack import (
    CacheConfig,
    Continuation,
    ErrorCode,
    Failed,
    MessageAssembler,
    MessageDelta,
    ModelConfig,
    ObservabilityConfig,
    PartValidationError,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    assistant,
    connect,
    formats,
    tool_message,
    user,
)
from bartack.formats import ModelRequest, encode
from bartack.formats.repair import repair
from bartack.models import VENDORS, Model, ModelInfo, ProviderModel, RequestMetadata, Vendor, vendor_named
from bartack.models.guard import GuardedStream
from bartack.models.model import StreamingModel
from bartack.nouns import wire
from bartack.nouns.config import SpecificTool, ToolSpec
from bartack.nouns.wire import dump, load
from bartack.testing.faults import EVENT_WRITERS
from tests.counting import counting_environment
from tests.formats.every_rule import RULES
from tests.formats.history_check import check_history
from tests.models.doubles import KEY, BytesClient, read

SAY = EVENT_WRITERS["anthropic-messages"]
THOUGHT = b"""event: content_block_delta
data: {"type": "content_block_delta", "index": 9, "delta": {"type": "thinking_delta", "thinking": "Hm"}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 9, "delta": {"type": "thinking_delta", "thinking": ", a greeting."}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 9}

"""
WHOLE = (SAY.start(), THOUGHT, SAY.text("Hi"), SAY.finish("stop"))
LOOK = ToolSpec("look", {"type": "object", "properties": {}}, description="Look.", strict=True)


def make(client: BytesClient, **options: Any) -> ProviderModel:
    return connect(
        "anthropic:claude-sonnet-4-5", api_key=KEY, client=client, environment=counting_environment(), **options
    )


def sent(client: BytesClient) -> dict[str, Any]:
    body = json.loads(client.requests[0].body)
    assert isinstance(body, dict)
    return body


async def test_one_uniform_input_becomes_the_providers_request_and_its_stream_becomes_deltas() -> None:
    """000-2.1, 001-1.1, 001-1.2, 001-1.3, 001-4.1.3, 001-4.1.5, 001-4.1.14, 001-6.1, 002-non-goals.3"""
    client = BytesClient(WHOLE)
    metadata = RequestMetadata(session_id="session-42", run_id="r1", trace_id="trace-43")
    model = make(client)
    stream = model.stream(
        [user("Hello")],
        [LOOK],
        "Be brief.",
        tool_choice="required",
        system_prompt_content=None,
        invocation_state={"own": "state-44"},
        request_metadata=metadata,
        temperature=0.5,
    )
    deltas = await read(stream)
    body = sent(client)
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert (body["temperature"], [tool["name"] for tool in body["tools"]]) == (0.5, ["look"])
    assert body["tool_choice"] == {"type": "any"}
    assert "Be brief." in json.dumps(body["system"])
    headers = json.dumps(dict(client.requests[0].headers))
    assert "trace-43" in headers
    assert "session-42" not in headers + json.dumps(body)
    assert "state-44" not in headers + json.dumps(body)
    assert model.request([user("Hello")], invocation_state={"own": 1}).invocation_state == {"own": 1}
    assert all(type(delta) is MessageDelta and delta.run_id == "r1" for delta in deltas)
    assert deltas[0].delta.kind == "start"
    assert deltas[-1].delta.kind == "done"
    assembler = MessageAssembler()
    for delta in deltas:
        assembler.consume(delta)
    message = assembler.build_final_message()
    assert (message.thinking, message.text) == ("Hm, a greeting.", "Hi")


async def test_the_model_may_be_part_of_the_address() -> None:
    """001-1.2"""
    client = BytesClient()
    await read(connect("google:gemini-x", api_key=KEY, client=client).stream([user("Hello")]))
    assert "/models/gemini-x:streamGenerateContent" in client.requests[0].url


async def test_an_error_of_the_provider_becomes_one_of_ours_and_is_never_raised() -> None:
    """001-1.4, D-3.7.1"""
    named = b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'
    for body, status in ((named, 529), (named, 400), (b"", 529)):
        *_, last = await read(make(BytesClient((body,), status=status)).stream([user("Hello")]))
        assert isinstance(last.delta, Failed)
        assert (last.delta.error_code, last.delta.retryable) == (ErrorCode.OVERLOADED, True)


async def test_thinking_is_not_hidden() -> None:
    """001-8.5"""
    deltas = [delta.delta for delta in await read(make(BytesClient(WHOLE)).stream([user("Hello")]))]
    assert [delta.text_delta for delta in deltas if isinstance(delta, ThinkingDelta)] == ["Hm", ", a greeting."]


def test_a_model_is_made_from_client_config_cache_config_and_error_mapper_without_a_network() -> None:
    """001-2.1.1, 001-2.1.3, 001-2.1.4, 001-3.1.1"""
    client, config, cache = BytesClient(WHOLE), ModelConfig("claude"), CacheConfig()

    def mapper(failed: Failed) -> Failed:
        return failed

    model = ProviderModel(client, config, cache, mapper, vendor=vendor_named("anthropic"))
    assert model.client is client
    assert model.config == ModelConfig("claude", cache_config=cache)  # completed with defaults
    assert (model.cache_config, model.error_mapper) == (cache, mapper)
    assert client.requests == []
    plain = ProviderModel(client, config, vendor=vendor_named("anthropic"))
    assert plain.get_config() == config  # everything else is left to the provider
    required = [
        name
        for name, parameter in inspect.signature(ProviderModel).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    assert required == ["client", "config", "vendor"]


async def test_update_config_changes_the_cache_config_of_the_model_and_of_its_requests() -> None:
    """001-3.1.1, 001-4.1.1"""
    client = BytesClient(WHOLE)
    model = make(client)
    for cache in (CacheConfig(), None, CacheConfig()):
        model.update_config(cache_config=cache)
        assert model.cache_config == model.get_config().cache_config == cache
        await read(model.stream([user("Hello")], system_prompt="Be brief."))
        assert (b"cache_control" in client.requests[-1].body) == (cache is not None)


def test_an_invalid_config_is_rejected_at_once() -> None:
    """001-2.1.2"""
    values = {"max_tokens": 0}, {"temperature": "warm"}, {"top_p": 3}
    types = {"max_tokens": 1.5}, {"stop_sequences": "x"}, {"thinking": "yes"}, {"output_schema": 5}
    for bad in (*values, *types):
        with pytest.raises(PartValidationError) as caught:
            make(BytesClient(WHOLE), **bad)
        assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_the_config_is_read_and_written() -> None:
    """001-1.5, 001-4.1.1, 001-4.1.2, 001-4.1.7"""
    model = make(BytesClient(WHOLE))
    assert model.update_config(temperature=0.5, top_k=3) is None  # type: ignore[func-returns-value]
    config = model.get_config()
    assert (config.temperature, config.extra) == (0.5, {"top_k": 3})
    with pytest.raises(PartValidationError):
        model.update_config(max_tokens=-1)
    assert model.get_config() is config
    model.update_config(top_p=0.9)
    changed = model.get_config()
    assert (changed.top_p, changed.temperature, changed.extra) == (0.9, 0.5, {"top_k": 3})


def test_a_model_has_five_methods_and_stream_is_the_only_way_to_call_it() -> None:
    """000-7.1, 001-4.1.4, 001-7.1, 004-model.1"""
    model: Model = make(BytesClient(WHOLE))
    methods = {name for name, value in vars(Model).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert methods == {"stream", "update_config", "get_config", "model_info", "supports"}
    own = {name for name, value in vars(StreamingModel).items() if inspect.isfunction(value) and name[0] != "_"}
    assert own - methods == {"request", "respond", "aclose"}  # the halves of `stream`, and its end
    for call in (StreamingModel.stream, StreamingModel.respond):
        assert get_type_hints(call)["return"] is GuardedStream
    info = model.model_info()
    assert (info.provider, info.model_id) == ("anthropic", "claude-sonnet-4-5")
    model.update_config(model_id="not-known")
    assert model.model_info() == ModelInfo("anthropic", "not-known")
    model.update_config(model_id="claude-sonnet-4-5")
    assert model.supports("tools")
    assert not model.supports("time travel")


async def test_a_model_only_sends_requests() -> None:
    """001-1.6, 001-4.1.10: it sends all messages, in order, and exactly the given tools."""
    client = BytesClient(WHOLE)
    history = [message for n in range(50) for message in (user(f"question {n}"), assistant(f"answer {n}"))]
    await read(make(client).stream([*history, user("last")]))
    texts = [block["text"] for message in sent(client)["messages"] for block in message["content"]]
    assert texts == [*(message.text for message in history), "last"]
    assert not {"tools", "system"} & sent(client).keys()
    assert len(client.requests) == 1


async def test_a_model_handles_concurrent_requests_and_keeps_no_state() -> None:
    """001-5.1.1, 001-5.1.2"""
    model = make(BytesClient(WHOLE))
    before = model.get_config()
    answers = await asyncio.gather(*(read(model.stream([user(f"{n}")])) for n in range(20)))
    for deltas in answers:
        assembler = MessageAssembler()
        for delta in deltas:
            assembler.consume(delta)
        assert assembler.build_final_message().text == "Hi"
    assert len({deltas[0].run_id for deltas in answers}) == 20
    assert model.get_config() is before


async def test_provider_specific_data_does_not_leave_the_model() -> None:
    """001-7.5, D-3.9.3"""
    direct = ProviderModel(BytesClient(WHOLE), ModelConfig("claude"), vendor=vendor_named("anthropic"))
    assert all(delta.provider_raw is None for delta in await read(direct.stream([user("Hello")])))
    assert not ObservabilityConfig().provider_raw
    quiet = await read(make(BytesClient(WHOLE)).stream([user("Hello")]))
    assert all(delta.provider_raw is None for delta in quiet)
    asked_for = await read(make(BytesClient(WHOLE), provider_raw=True).stream([user("Hello")]))
    raw = [delta.provider_raw for delta in asked_for if delta.provider_raw is not None]
    assert raw
    assert all(isinstance(data["text"], str) for data in raw)  # 000-4.1: an object
    assert [load(MessageDelta, dump(delta)) for delta in asked_for] == asked_for
    assert [delta.delta for delta in asked_for] == [delta.delta for delta in quiet]


CONFIG: dict[str, Any] = {
    "modelId": "claude",
    "temperature": 0.5,
    "maxTokens": 100,
    "topP": 0.9,
    "stopSequences": ["END"],
    "toolChoice": "auto",
    "cacheConfig": {"strategy": "auto"},
    "top_k": 3,
}


def test_the_config_of_001_loads_and_dumps_unchanged() -> None:
    """001-4.1.6, 001-4.1.7, 001-4.1.8"""
    config = wire.load(ModelConfig, CONFIG)
    assert (config.model_id, config.max_tokens, config.extra) == ("claude", 100, {"top_k": 3})
    assert wire.dump(config) == CONFIG
    unset = set(ModelConfig.__struct_fields__) - {"model_id"}
    assert {getattr(ModelConfig("claude"), name) for name in unset} == {None}
    with pytest.raises(PartValidationError):
        wire.load(CacheConfig, {"strategy": "never"})


def test_a_tool_spec_has_only_what_the_model_sees() -> None:
    """001-4.1.9, 004-tool-spec.1, 004-tool-spec.3"""
    shape = {
        "name": "look",
        "parameterSchema": {"type": "object", "properties": {}},
        "description": "Look.",
        "strict": True,
    }
    assert wire.dump(LOOK) == shape
    assert wire.load(ToolSpec, shape) == LOOK
    assert not {"agent", "runtime", "execute", "timeout_ms"} & set(ToolSpec.__struct_fields__)


@pytest.mark.parametrize("choice", ["auto", "required", "none", SpecificTool("look")], ids=str)
def test_a_tool_choice_is_one_of_four(choice: Any) -> None:
    """001-4.1.11"""
    config = ModelConfig("claude", tool_choice=choice)
    assert wire.load(ModelConfig, wire.dump(config)) == config
    with pytest.raises(PartValidationError):
        wire.load(ModelConfig, {"modelId": "claude", "toolChoice": "perhaps"})


def test_a_vendor_is_a_row_and_a_decoder_belongs_to_a_format() -> None:
    """D-1.3, D-2.5, D-2.6"""
    assert all(type(row) is Vendor and row.format in formats.FORMATS for row in VENDORS.values())
    assert len({row.format for row in VENDORS.values()}) < len(VENDORS)
    reader = formats.decoder("anthropic-messages")
    deltas = [delta for piece in WHOLE if isinstance(piece, bytes) for delta in reader.receive_data(piece)]
    assert not any(hasattr(delta, stamp) for delta in deltas for stamp in ("run_id", "seq", "timestamp"))


def test_repair_makes_a_valid_request_of_any_history() -> None:
    """D-5.10, D-5.10.1, 002-non-goals.4"""
    foreign = Thinking("Hm", continuation=Continuation("openai", "gpt", {"encrypted_content": "b3BhcXVl"}))
    history = [
        assistant(foreign, "I go first.", ToolCall("not allowed: ü", "look", {})),
        assistant("And I again."),
        tool_message(ToolResult("nobody asked", "orphan")),
        user("one"),
        user("two"),
    ]
    for format, rules in RULES.items():
        assert check_history(history, rules) or not rules.starts_with_user, format
        assert check_history(repair(history, rules).messages, rules) == []
    body = encode("anthropic-messages", ModelRequest(tuple(history), config=ModelConfig("claude-sonnet-4-5"))).body
    text = json.dumps(body)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert "orphan" not in text
    assert "b3BhcXVl" not in text
    assert "ü" not in text
