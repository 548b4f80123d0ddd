"""Local models with real weights.

They run if the weights are in the cache. BARTACK_TEST_LOCAL=1 downloads them, or skips the tests if there is no
network; BARTACK_TEST_LOCAL=0 always skips them. The tiny model is used to test the contract, in this process and over
HTTP; the default model to test tools. Their answers are random within what is enforced, so the tests check only what is
enforced, and what the default model did in each of many runs.
"""

import asyncio
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import bartack
from bartack.models.local import LlamaEngine, LocalModel
from bartack.models.weights import known_model, pull
from bartack.nouns.config import SpecificTool, ToolSpec
from bartack.nouns.deltas import TextDelta
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import open_store
from bartack.testing import StreamResult, check_stream
from lab.record_local import served
from lab.repository import ROOT

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (bartack[local])")

pytestmark = pytest.mark.xdist_group("local-model")  # one worker holds the weights, so memory stays bounded

# The schema has bounds: answers are random, and one without an end is cut at the limit.
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = ToolSpec(
    "get_weather",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    description="Current weather of a city.",
)
ADD = ToolSpec(
    "add",
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]},
    description="Add two numbers.",
)


def weights(name: str) -> Path:
    row, wish = known_model(name), os.environ.get("BARTACK_TEST_LOCAL")
    if wish == "0":
        pytest.skip("BARTACK_TEST_LOCAL is 0")
    if row.is_downloaded:
        return row.path
    if wish == "1":
        try:
            return pull(row).path
        except ModelError as error:
            if error.code is not ErrorCode.CONNECTION_FAILED:
                raise
            pytest.skip(f"{name} is not in the cache and cannot be fetched: {error}")
    pytest.skip(f"{name} is not in the cache; 'bartack models pull {name}' or BARTACK_TEST_LOCAL=1 downloads it")


@pytest.fixture(scope="module")
def tiny_engine() -> LlamaEngine:
    return LlamaEngine(weights("smollm2-135m"), context_window=2048, threads=1)


class Counted:
    """Counts the chunks of each generation of an engine."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self.counts: list[int] = []
        self.started = threading.Event()

    def generate(self, body: dict[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        self.counts.append(0)

        def count(chunk: dict[str, Any]) -> bool:
            self.counts[-1] += 1
            self.started.set()
            return on_chunk(chunk)

        self._engine.generate(body, count)


@pytest.fixture(scope="module")
def counted(tiny_engine: LlamaEngine) -> Counted:
    return Counted(tiny_engine)


@pytest.fixture(scope="module")
def tiny(counted: Counted) -> Iterator[LocalModel]:
    model = LocalModel("smollm2-135m", engine=counted)
    yield model
    asyncio.run(model.aclose())


@pytest.fixture(scope="module")
def default() -> Iterator[LocalModel]:
    weights("qwen2.5-coder-0.5b")
    model = LocalModel("qwen2.5-coder-0.5b", threads=1)
    yield model
    asyncio.run(model.aclose())


def message_of(answer: StreamResult) -> Message:
    assert answer.message is not None, answer.error
    assert answer.message.meta is not None
    return answer.message


async def ask(model: LocalModel, text: str, **options: Any) -> Message:
    return message_of(await check_stream(model, [user(text)], **options))


# -- the contract, on the tiny model


def test_an_agent_answers_again_after_its_model_was_closed() -> None:
    """`run_sync` closes what the agent has opened; the next call loads the model again."""
    agent = bartack.Agent(f"local:{weights('smollm2-135m')}")
    for prompt in ("Hi", "Hi again"):
        assert agent.run_sync(prompt, model_settings={"max_tokens": 4}).message is not None


async def test_the_answer_is_streamed_and_tokens_are_counted(tiny: LocalModel) -> None:
    answer = await check_stream(tiny, [user("Say hello.")], max_tokens=12)
    message = message_of(answer)
    assert message.text.strip()
    assert sum(isinstance(delta.delta, TextDelta) for delta in answer.deltas) > 1
    assert message.meta is not None
    assert message.meta.usage is not None
    assert message.meta.usage.input_tokens > 5
    assert 1 < message.meta.usage.output_tokens <= 12


async def test_an_answer_ends_at_its_limit(tiny: LocalModel) -> None:
    message = await ask(tiny, "Tell me a long story.", max_tokens=5)
    assert message.meta is not None
    assert message.meta.finish_reason == "length"


async def test_a_stop_sequence_ends_the_answer(tiny: LocalModel) -> None:
    message = await ask(tiny, "Tell me about the sea.", max_tokens=60, stop_sequences=["e"])
    assert "e" not in message.text
    assert message.meta is not None
    assert message.meta.finish_reason == "stop"


async def test_the_same_seed_gives_the_same_answer(tiny: LocalModel) -> None:
    options = {"max_tokens": 8, "temperature": 1.5}
    first, again, *answers = [(await ask(tiny, "A word?", seed=seed, **options)).text for seed in (7, 7, 8, 9, 10)]
    assert first == again
    assert {first, *answers} != {first}


async def test_structured_output_keeps_its_schema(tiny: LocalModel) -> None:
    message = await ask(tiny, "Ann is 33 years old.", max_tokens=100, output_schema=PERSON)
    jsonschema.validate(json.loads(message.text), PERSON)


async def test_an_invalid_schema_is_an_invalid_request(tiny: LocalModel) -> None:
    answer = await check_stream(tiny, [user("Hi")], output_schema={"type": "nonsense"})
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.INVALID_REQUEST


async def test_a_prompt_that_does_not_fit_is_reported_as_context_overflow(tiny: LocalModel) -> None:
    answer = await check_stream(tiny, [user("word " * 3000)])
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.CONTEXT_OVERFLOW


async def test_closing_the_stream_frees_the_model_for_the_next_call(tiny: LocalModel, counted: Counted) -> None:
    async with aclosing(tiny.stream([user("Count from 1 to 1000.")], max_tokens=1500)) as stream:
        async for delta in stream:
            if isinstance(delta.delta, TextDelta):
                break
    await ask(tiny, "Hi", max_tokens=1)
    assert counted.counts[-2] < 500


async def test_a_long_prompt_can_be_stopped_while_it_is_read(tiny: LocalModel, counted: Counted) -> None:
    before = len(counted.counts)
    counted.started.clear()
    task = asyncio.create_task(check_stream(tiny, [user("word " * 1900)], max_tokens=1))
    assert await asyncio.to_thread(counted.started.wait, 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ask(tiny, "Hi", max_tokens=1)
    assert counted.counts[before] < 1900 / 64  # the number of batches


async def test_generation_does_not_block_the_event_loop(tiny: LocalModel) -> None:
    answer = asyncio.create_task(ask(tiny, "Tell me about the sun.", max_tokens=30))
    ticks = 0
    while not answer.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert (await answer).text
    assert ticks > 10


def test_the_port_opened_by_the_runtime_requires_the_key(tiny_engine: LlamaEngine) -> None:
    tiny_engine.generate({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}, lambda _: True)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{tiny_engine._server.listening_address}/v1/models", timeout=300)
    caught.value.close()
    assert caught.value.code == 401


@pytest.mark.parametrize(("name", "code"), [("no.gguf", "model_not_found"), ("bad.gguf", "invalid_config")])
def test_a_file_that_is_not_a_model_is_rejected(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(ModelError) as caught:
        LlamaEngine(tmp_path / name, context_window=512).generate({"messages": []}, lambda _: False)
    assert caught.value.code == code


# -- tools, on the default model


async def test_a_tool_is_called_and_its_result_is_in_the_answer(default: LocalModel) -> None:
    request = user("What is the weather in Paris?")
    called = message_of(await check_stream(default, [request], tool_specs=(WEATHER, ADD)))
    (call,) = called.tool_calls
    assert (call.tool_name, call.arguments) == ("get_weather", {"city": "Paris"})
    result = tool_message(ToolResult(call.tool_call_id, "18 C, light rain"))
    answer = message_of(
        await check_stream(default, [request, called, result], tool_specs=(WEATHER, ADD), max_tokens=60)
    )
    assert "rain" in answer.text
    assert answer.tool_calls == ()


async def test_small_talk_calls_no_tool(default: LocalModel) -> None:
    message = await ask(default, "Hi, how are you?", tool_specs=(WEATHER, ADD), max_tokens=5)
    assert message.tool_calls == ()
    assert message.text


@pytest.mark.parametrize("choice", ["required", SpecificTool("add")], ids=["required", "named"])
async def test_a_required_call_has_complete_arguments(default: LocalModel, choice: Any) -> None:
    message = await ask(default, "What is 17 plus 25?", tool_specs=(WEATHER, ADD), tool_choice=choice)
    (call,) = message.tool_calls
    jsonschema.validate(call.arguments, {"get_weather": WEATHER, "add": ADD}[call.tool_name].parameter_schema)
    assert message.meta is not None
    assert message.meta.finish_reason == "tool_calls"


async def test_tool_choice_none_gives_a_text_answer(default: LocalModel) -> None:
    options = {"tool_specs": (WEATHER, ADD), "tool_choice": "none", "max_tokens": 5}
    message = await ask(default, "What is the weather in Paris?", **options)
    assert message.tool_calls == ()


async def test_a_denied_call_is_reported_as_not_done(default: LocalModel) -> None:
    request = user("delete the folder build with rm -rf build")
    call = assistant(ToolCall("c1", "run_command", {"command": "rm -rf build"}))
    denied = tool_message(ToolResult("c1", "the call was denied: keep it", is_error=True))
    answer = message_of(await check_stream(default, [request, call, denied], max_tokens=60, temperature=0))
    assert any(word in answer.text.lower() for word in ("not", "n't", "denied"))


async def test_the_local_agent_example_calls_its_tools_and_stores_everything(tmp_path: Path) -> None:
    cache = weights("qwen2.5-coder-0.5b").parents[1]
    folders = {name: str(tmp_path / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BARTACK_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples" / "local_agent.py")),
        env={**variables, **folders, "BARTACK_CACHE": str(cache)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = (piece.decode() for piece in await process.communicate())
    assert process.returncode == 0, err
    assert "no API key" in out.splitlines()[0]
    assert 'order_status({"number": 4711}) completed' in out
    (database,) = (tmp_path / "XDG_DATA_HOME").rglob("sessions.db")
    store = await open_store(database)
    (session,) = (await store.sessions()).items
    messages = [entry.fact for entry in await store.load(session.id) if isinstance(entry.fact, Message)]
    await store.close()
    assert f"bartack show {session.id}" in out
    assert [message.role for message in messages[:4]] == ["user", "assistant", "tool", "assistant"]
    (call,) = messages[1].tool_calls
    (result,) = messages[2].tool_results
    assert (call.tool_name, call.arguments, result.tool_call_id) == (
        "order_status",
        {"number": 4711},
        call.tool_call_id,
    )
    assert "Rotterdam" in messages[3].text


# -- over HTTP, from the server that comes with the runtime


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    weights("smollm2-135m")
    with served("smollm2-135m") as server:
        yield server


@pytest.mark.parametrize(
    ("name", "path", "finish"),
    [
        ("openai-compatible:smollm2-135m", "/v1", "length"),
        ("anthropic:smollm2-135m", "", "length"),
        ("openai:smollm2-135m", "/v1", "stop"),  # the server does not report the limit in this format
    ],
    ids=["chat", "messages", "responses"],
)
async def test_a_real_server_is_decoded_in_each_format(address: str, name: str, path: str, finish: str) -> None:
    close = {"Connection": "close"}  # it silently drops keep-alive connections
    async with bartack.connect(name, api_key="none", base_url=f"{address}{path}", headers=close) as model:
        answer = await check_stream(model, [user("Tell me a story.")], max_tokens=8)
        message = message_of(answer)
        assert message.text.strip()
        assert sum(isinstance(delta.delta, TextDelta) for delta in answer.deltas) > 1
        assert message.meta is not None
        assert message.meta.finish_reason == finish
        assert message.meta.usage is not None
        assert message.meta.usage.output_tokens == 8
        refused = await check_stream(model, [user("word " * 3000)], max_tokens=8)
        assert refused.error is not None
        assert refused.error.error_code is ErrorCode.CONTEXT_OVERFLOW
