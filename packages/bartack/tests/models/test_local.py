"""`LocalModel` obeys the streaming contract, whatever its engine does."""

import asyncio
import gc
import threading
import weakref
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bartack.models import LocalModel, Model, RequestMetadata, connect
from bartack.nouns.config import SpecificTool, ToolSpec
from bartack.nouns.deltas import Done, Start, TextDelta, ToolCallArgs, Usage
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import assistant, system, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.testing import check_stream
from bartack.tools import file_tools
from bartack_code.workspace.plan import update_plan
from tests.models.scripted_engine import ScriptedEngine

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (
    ToolSpec("look", CITY, description="Look at a city."),
    ToolSpec("tick", {"type": "object", "properties": {}}, description="Tell the time."),
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path))
    monkeypatch.delenv("BARTACK_LOCAL_MODEL", raising=False)


def local(engine: ScriptedEngine, **options: Any) -> LocalModel:
    return LocalModel(engine=engine, **options)


# -- plain answers


async def test_an_answer_is_streamed_with_its_usage() -> None:
    answer = await check_stream(local(ScriptedEngine(["Hel", "lo"])), [user("Hi")])
    kinds = [type(delta.delta) for delta in answer.deltas]
    assert kinds == [Start, TextDelta, TextDelta, Usage, Done]
    assert answer.message is not None
    assert answer.message.text == "Hello"
    assert answer.message.meta is not None
    assert answer.message.meta.usage == Usage(10, 2, cache_read_tokens=4, cost=0.0)
    assert answer.message.meta.finish_reason == "stop"


async def test_an_answer_that_repeats_itself_is_ended() -> None:
    engine = ScriptedEngine(["The rain falls on and on.\n"] * 20)
    answer = await check_stream(local(engine), [user("Write a poem")])
    assert answer.message is not None
    poem, _, note = answer.message.text.partition("\n\n")
    assert poem.count("falls") == 3
    assert note == "(I stopped here because I was repeating myself.)"


async def test_settings_are_passed_to_the_engine() -> None:
    engine = ScriptedEngine(["x"])
    model = local(engine, temperature=0.1, top_k=5)
    await check_stream(model, [user("Hi")], max_tokens=7, seed=3, stop_sequences=["END"], system_prompt="Be brief.")
    body = engine.bodies[0]
    assert {name: body[name] for name in ("temperature", "top_k", "max_tokens", "seed", "stop")} == {
        "temperature": 0.1,
        "top_k": 5,
        "max_tokens": 7,
        "seed": 3,
        "stop": ["END"],
    }
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


async def test_an_output_schema_is_enforced_by_the_engine() -> None:
    engine = ScriptedEngine(['{"city": "Rome"}'])
    answer = await check_stream(local(engine), [user("Where?")], output_schema=CITY)
    assert answer.message is not None
    assert answer.message.text == '{"city": "Rome"}'
    schema = engine.bodies[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["city"]
    assert schema["properties"]["city"]["maxLength"] > 0


async def test_an_answer_cut_at_its_limit_has_the_finish_reason_length() -> None:
    answer = await check_stream(local(ScriptedEngine(["and", " so on"], finish="length")), [user("Hi")])
    assert answer.message is not None
    assert answer.message.meta is not None
    assert answer.message.meta.finish_reason == "length"


async def test_deltas_are_stamped_with_run_and_attempt() -> None:
    metadata = RequestMetadata(run_id="run-1", model_call_index=2, attempt=1)
    answer = await check_stream(local(ScriptedEngine(["x"])), [user("Hi")], request_metadata=metadata)
    assert {(delta.run_id, delta.model_call_index, delta.attempt) for delta in answer.deltas} == {("run-1", 2, 1)}


# -- errors


async def test_a_prompt_that_is_too_long_is_reported_as_context_overflow() -> None:
    error = {"code": 400, "message": "request (9 tokens) exceeds the available context size (4 tokens)", "type": "x"}
    answer = await check_stream(local(ScriptedEngine({"error": error})), [user("Hi")])
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ModelError("a bad schema", code=ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST),
        (OSError("the disk is gone"), ErrorCode.PROVIDER_ERROR),
    ],
)
async def test_an_exception_of_the_engine_becomes_an_error_delta(raised: Exception, code: ErrorCode) -> None:
    answer = await check_stream(local(ScriptedEngine(raised)), [user("Hi")])
    assert answer.error is not None
    assert answer.error.error_code is code


async def test_an_engine_that_stops_early_is_reported_as_truncated() -> None:
    answer = await check_stream(local(ScriptedEngine(["half"], finish="")), [user("Hi")])
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.STREAM_TRUNCATED


async def test_an_error_of_the_router_ends_the_stream() -> None:
    engine = ScriptedEngine({"error": {"message": "no", "code": 500, "type": "server_error"}})
    answer = await check_stream(local(engine), [user("Hi")], tool_specs=TOOLS)
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.SERVER_ERROR


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed (bartack[local])")
async def test_missing_weights_are_reported_with_the_command_to_pull_them() -> None:
    answer = await check_stream(LocalModel("smollm2-135m"), [user("Hi")])
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.MODEL_NOT_FOUND
    assert "bartack models pull smollm2-135m" in answer.error.message


def test_a_missing_runtime_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.models.local.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"bartack\[local\]") as caught:
        LocalModel()
    assert caught.value.name == "xllamacpp"


# -- tools


async def test_auto_runs_the_router_and_then_generates_arguments() -> None:
    engine = ScriptedEngine(["lo", "ok("], ['{"city":', ' "Rome"}'])
    answer = await check_stream(local(engine), [user("How is Rome?")], tool_specs=TOOLS)
    assert answer.message is not None
    (call,) = answer.message.tool_calls
    assert (call.tool_name, call.arguments) == ("look", {"city": "Rome"})
    assert answer.message.meta is not None
    assert answer.message.meta.finish_reason == "tool_calls"
    assert answer.message.meta.usage == Usage(20, 4, cache_read_tokens=8, cost=0.0)
    assert sum(isinstance(delta.delta, ToolCallArgs) for delta in answer.deltas) == 2


async def test_talk_from_the_router_leads_to_an_answer() -> None:
    engine = ScriptedEngine(["talk("], ["Hello"])
    answer = await check_stream(local(engine), [user("Hi")], tool_specs=TOOLS)
    assert answer.message is not None
    assert (answer.message.text, answer.message.tool_calls) == ("Hello", ())
    assert "tools" not in engine.bodies[1]


async def test_a_specific_tool_skips_the_router() -> None:
    engine = ScriptedEngine(['{"city": "Oslo"}'])
    answer = await check_stream(local(engine), [user("Go")], tool_specs=TOOLS, tool_choice=SpecificTool("look"))
    assert answer.message is not None
    assert [call.arguments for call in answer.message.tool_calls] == [{"city": "Oslo"}]
    assert len(engine.bodies) == 1


async def test_a_tool_without_arguments_needs_no_generation() -> None:
    engine = ScriptedEngine()
    answer = await check_stream(local(engine), [user("Go")], tool_specs=TOOLS, tool_choice=SpecificTool("tick"))
    assert answer.message is not None
    assert [(call.tool_name, call.arguments) for call in answer.message.tool_calls] == [("tick", {})]
    assert engine.bodies == []


async def test_required_removes_talk_from_the_router() -> None:
    engine = ScriptedEngine(["tick("])
    answer = await check_stream(local(engine), [user("Go")], tool_specs=TOOLS, tool_choice="required")
    assert answer.message is not None
    assert [call.tool_name for call in answer.message.tool_calls] == ["tick"]
    assert "talk" not in engine.bodies[0]["grammar"]


async def test_none_forbids_tools() -> None:
    engine = ScriptedEngine(["No tools."])
    answer = await check_stream(local(engine), [user("Go")], tool_specs=TOOLS, tool_choice="none")
    assert answer.message is not None
    assert answer.message.text == "No tools."


async def test_choosing_an_unknown_tool_is_an_invalid_request() -> None:
    answer = await check_stream(
        local(ScriptedEngine()), [user("Go")], tool_specs=TOOLS, tool_choice=SpecificTool("fly")
    )
    assert answer.error is not None
    assert answer.error.error_code is ErrorCode.INVALID_REQUEST


async def test_arguments_cut_at_the_limit_have_the_finish_reason_length() -> None:
    engine = ScriptedEngine(['{"city": "Ro'], finish="length")
    answer = await check_stream(local(engine), [user("Go")], tool_specs=TOOLS, tool_choice=SpecificTool("look"))
    assert answer.message is not None
    assert answer.message.meta is not None
    assert answer.message.meta.finish_reason == "length"
    assert answer.message.meta.bad_args is not None


async def test_after_a_tool_result_the_model_answers() -> None:
    engine = ScriptedEngine(["It rains."])
    history = [
        user("How is Rome?"),
        assistant(ToolCall("c1", "look", {"city": "Rome"})),
        tool_message(ToolResult("c1", "rain")),
    ]
    answer = await check_stream(local(engine), history, tool_specs=TOOLS)
    assert answer.message is not None
    assert answer.message.text == "It rains."
    (prompt,) = engine.bodies[0]["messages"]
    assert "How is Rome?" in prompt["content"]
    assert "rain" in prompt["content"]


@pytest.mark.parametrize(("rounds", "is_shown"), [(1, False), (2, True)])
async def test_a_small_model_answers_from_the_result_alone(rounds: int, is_shown: bool) -> None:
    engine = ScriptedEngine(*[["talk("]] * (rounds - 1), ["It rains."])
    history = [
        user("My name is Ann."),
        assistant("Hello Ann."),
        user("How is Rome?"),
        assistant(ToolCall("c1", "look", {"city": "Rome"})),
        tool_message(ToolResult("c1", "rain")),
    ]
    await check_stream(local(engine, tool_rounds=rounds), history, tool_specs=TOOLS)
    prompt = str(engine.bodies[-1]["messages"])
    assert "How is Rome?" in prompt
    assert ("My name is Ann." in prompt) == is_shown


async def test_a_tool_result_is_limited_to_part_of_the_context() -> None:
    engine = ScriptedEngine(["Long."])
    history = [
        user("How is Rome?"),
        assistant(ToolCall("c1", "look", {"city": "Rome"})),
        tool_message(ToolResult("c1", "1" * 5000)),
    ]
    await check_stream(local(engine, context_window=2048), history, tool_specs=TOOLS)
    (prompt,) = engine.bodies[0]["messages"]
    assert "1" * 700 + " [cut here: 4300 characters more]" in prompt["content"]
    await check_stream(local(engine, context_window=800), history, tool_specs=TOOLS)
    assert "1" * 300 + " [cut here: 4700 characters more]" in engine.bodies[1]["messages"][0]["content"]


async def test_a_demo_model_gets_short_instructions_and_gives_short_answers() -> None:
    engine = ScriptedEngine(["Hello"])
    await check_stream(local(engine), [system("be brief " * 1000), user("Hi")])
    assert len(engine.bodies[0]["messages"][0]["content"]) < 2000
    assert engine.bodies[0]["max_tokens"] == 400


async def test_what_is_too_hard_for_a_demo_model_is_refused_at_once() -> None:
    engine = ScriptedEngine()
    tools = tuple(tool.spec for tool in (*file_tools(), update_plan))  # the tools of the chat
    answer = await check_stream(local(engine), [user("Rewrite everything")], tool_specs=tools)
    assert answer.message is not None
    assert "too hard for me" in answer.message.text
    assert "ANTHROPIC_API_KEY" in answer.message.text
    assert engine.bodies == []


async def test_a_demo_model_is_asked_how_and_answers_without_choosing_a_tool() -> None:
    engine = ScriptedEngine(["make test"])
    tools = tuple(tool.spec for tool in file_tools())
    await check_stream(local(engine), [system("About us."), user("How do I run the tests?")], tool_specs=tools)
    assert [turn["content"] for turn in engine.bodies[0]["messages"]] == ["About us.", "How do I run the tests?"]


async def test_a_model_without_tool_support_answers_directly() -> None:
    model = local(ScriptedEngine(["Hello"]), name="smollm2-135m")
    answer = await check_stream(model, [user("Hi")], tool_specs=TOOLS)
    assert answer.message is not None
    assert answer.message.text == "Hello"
    assert not model.supports("tools")
    assert model.supports("output_schema")


# -- cancellation and concurrency


async def test_closing_the_stream_stops_the_generation() -> None:
    gate = threading.Event()
    engine = ScriptedEngine(["x"] * 1000, gate=gate, free_chunks=5)
    async with aclosing(local(engine).stream([user("Go")])) as stream:
        async for delta in stream:
            if isinstance(delta.delta, TextDelta):
                break
    gate.set()
    assert await asyncio.to_thread(engine.stopped.wait, 300)
    assert engine.sent < 1000


async def test_cancelling_the_task_stops_the_generation() -> None:
    gate = threading.Event()
    engine = ScriptedEngine(["x"] * 1000, gate=gate)
    task = asyncio.create_task(check_stream(local(engine), [user("Go")]))
    assert await asyncio.to_thread(engine.begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await asyncio.to_thread(engine.stopped.wait, 300)
    assert engine.sent == 1


async def test_concurrent_calls_run_in_order() -> None:
    engine = ScriptedEngine(["one"], ["two"], ["three"])
    model = local(engine)
    answers = await asyncio.gather(*(check_stream(model, [user(name)]) for name in "abc"))
    assert [answer.message.text for answer in answers if answer.message is not None] == ["one", "two", "three"]
    assert [body["messages"][0]["content"] for body in engine.bodies] == ["a", "b", "c"]
    assert len(engine.threads) == 1


async def test_a_call_closed_while_waiting_is_never_generated() -> None:
    gate = threading.Event()
    engine = ScriptedEngine(["one"], ["three"], gate=gate)
    model = local(engine)
    first = asyncio.create_task(check_stream(model, [user("a")]))
    assert await asyncio.to_thread(engine.begun.wait, 10)
    second = asyncio.create_task(check_stream(model, [user("b")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    third = await check_stream(model, [user("c")])
    assert third.message is not None
    assert [body["messages"][0]["content"] for body in engine.bodies] == ["a", "c"]


async def test_the_engine_does_not_block_the_event_loop() -> None:
    gate = threading.Event()
    engine = ScriptedEngine(["slow"], gate=gate)
    task = asyncio.create_task(check_stream(local(engine), [user("Go")]))
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert not task.done()
    gate.set()
    assert (await task).message is not None


def test_one_model_serves_several_event_loops() -> None:
    model = local(ScriptedEngine(["a"], ["b"]))
    texts = []
    for _ in range(2):
        answer = asyncio.run(check_stream(model, [user("Hi")]))
        assert answer.message is not None
        texts.append(answer.message.text)
    assert texts == ["a", "b"]


# -- names and configuration


def test_model_info_has_a_name_and_zero_prices() -> None:
    model: Model = local(ScriptedEngine(), context_window=2048)
    info = model.model_info()
    assert (info.provider, info.model_id, info.context_window) == ("local", "qwen2.5-coder-0.5b", 2048)
    assert info.prices is not None
    assert info.prices.output == 0.0
    assert model.supports("tools")
    assert not model.supports("images")


def test_update_config_cannot_change_the_model() -> None:
    model = local(ScriptedEngine())
    model.update_config(temperature=0.9)
    with pytest.raises(PartValidationError, match="Cannot change the model"):
        model.update_config(model_id="other")
    assert (model.get_config().temperature, model.get_config().model_id) == (0.9, "qwen2.5-coder-0.5b")


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("local", "qwen2.5-coder-0.5b"),
        ("local:smollm2-135m", "smollm2-135m"),
        ("local/smollm2-135m", "smollm2-135m"),
        ("local:/models/mine.gguf", "mine"),
    ],
)
def test_connect_accepts_a_name_or_a_path(name: str, model_id: str) -> None:
    model = connect(name, engine=ScriptedEngine(), temperature=0.5)
    assert isinstance(model, LocalModel)
    assert (model.get_config().model_id, model.get_config().temperature) == (model_id, 0.5)


def test_the_default_name_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_LOCAL_MODEL", "/models/own.gguf")
    default, named_model = (
        connect("local", engine=ScriptedEngine()),
        connect("local:smollm2-135m", engine=ScriptedEngine()),
    )
    assert isinstance(default, LocalModel)
    assert default.weights.path == Path("/models/own.gguf")
    assert named_model.get_config().model_id == "smollm2-135m"


async def test_a_closed_model_with_an_engine_of_the_caller_rejects_calls() -> None:
    async with local(ScriptedEngine()) as model:
        pass
    answer = await check_stream(model, [user("Hi")])
    assert answer.error is not None
    assert answer.error.message == "The model is closed."


async def test_a_closed_model_releases_its_engine() -> None:
    engine = ScriptedEngine(["x"])
    released = weakref.ref(engine)
    model = local(engine)
    await check_stream(model, [user("Hi")])
    await model.aclose()
    del engine
    gc.collect()
    assert released() is None
