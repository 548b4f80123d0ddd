"""`ScriptedModel`."""

import gc
import tracemalloc
from collections.abc import Sequence

import pytest

from bartack.models import Model, RequestMetadata, ScriptedModel
from bartack.models.scripted import Calls
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.deltas import Done, Failed, Start, TextDelta, Usage
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, Meta, assistant, user
from bartack.nouns.parts import Continuation, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.stream.assembler import MessageAssembler
from bartack.testing import check_stream
from tests.models.doubles import read


async def answer_of(model: Model, *messages: Message) -> Message:
    answer = await check_stream(model, messages or (user("Hello"),))
    assert answer.message is not None
    return answer.message


async def test_text_is_streamed_in_chunks() -> None:
    model = ScriptedModel(["Hello, world"], chunk_chars=5)
    answer = await check_stream(model)
    assert [d.delta.text_delta for d in answer.deltas if isinstance(d.delta, TextDelta)] == ["Hello", ", wor", "ld"]
    assert answer.message is not None
    assert answer.message.text == "Hello, world"


async def test_a_message_survives_a_round_trip() -> None:
    parts = (
        Thinking("hm", continuation=Continuation("scripted", "scripted", {"signature": "s"})),
        Text("one"),
        Text("two"),
        ToolCall("c1", "look", {"city": "Paris"}),
        ToolCall("c2", "see", {}, raw_args_text="{not json"),
        ToolCall("c3", "search", {}, executed_by="provider", result=ToolResult("c3", "found", is_error=True)),
    )
    message = await answer_of(ScriptedModel([Message("assistant", parts, meta=Meta(usage=Usage(3, 4)))]))
    bare = [(type(part), getattr(part, "text", None) or getattr(part, "tool_name", None)) for part in message.parts]
    assert bare == [
        (Thinking, "hm"),
        (Text, "one"),
        (Text, "two"),
        (ToolCall, "look"),
        (ToolCall, "see"),
        (ToolCall, "search"),
    ]
    assert message.parts[0].continuation == parts[0].continuation
    assert message.tool_calls[0].arguments == {"city": "Paris"}
    assert message.tool_calls[2].result == parts[5].result
    assert message.meta is not None
    assert message.meta.bad_args is not None
    assert list(message.meta.bad_args) == ["c2"]
    assert message.meta.finish_reason == "tool_calls"
    assert message.meta.usage == Usage(3, 4)


async def test_deltas_errors_and_functions_are_responses() -> None:
    def echo(messages: Sequence[Message]) -> str:
        return f"you said {messages[-1].text}"

    model = ScriptedModel(
        [[Start("m", "r"), Done("length")], Failed(ErrorCode.OVERLOADED, "busy", retryable=True), echo]
    )
    assert (await check_stream(model)).deltas[-1].delta == Done("length")
    assert (await check_stream(model)).error == Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
    assert (await answer_of(model, user("hi"))).text == "you said hi"


async def test_an_exhausted_script_fails() -> None:
    answer = await check_stream(ScriptedModel([]))
    assert answer.error is not None
    assert "0 responses" in answer.error.message


async def test_a_script_that_violates_the_contract_fails() -> None:
    deltas = await read(ScriptedModel([[TextDelta("no start")]]).stream([user("hi")]))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.CONTRACT_VIOLATION


async def test_calls_are_recorded() -> None:
    model = ScriptedModel(["a", "b"])
    spec = ToolSpec("look", {"type": "object"})
    await read(model.stream([user("hi")], [spec], "Be brief.", tool_choice="required", temperature=0.5, top_k=4))
    call = model.calls[0]
    assert [message.role for message in call.messages] == ["system", "user"]
    assert call.tools == (spec,)
    assert call.config.tool_choice == "required"
    assert call.config.temperature == 0.5
    assert call.config.extra == {"top_k": 4}
    assert model.get_config().temperature is None


async def test_deltas_have_run_and_attempt() -> None:
    metadata = RequestMetadata(run_id="run-7", model_call_index=2, attempt=1)
    deltas = await read(ScriptedModel(["hi"]).stream([user("hi")], request_metadata=metadata))
    assert {(d.run_id, d.model_call_index, d.attempt) for d in deltas} == {("run-7", 2, 1)}
    assembler = MessageAssembler("run-7")
    for delta in deltas:
        assembler.consume(delta)
    assert assembler.build_final_message().text == "hi"


async def test_a_scripted_model_supports_everything_and_can_be_configured() -> None:
    model = ScriptedModel([assistant("x")])
    model.update_config(max_tokens=9)
    assert model.get_config().max_tokens == 9
    with pytest.raises(PartValidationError):
        model.update_config(max_tokens=-1)
    assert model.get_config().max_tokens == 9
    assert model.supports("tools")
    assert model.model_info().model_id == "scripted"


def test_a_single_text_is_not_a_script() -> None:
    with pytest.raises(PartValidationError, match="a list of responses"):
        ScriptedModel("Hello")


async def test_requests_that_continue_each_other_share_their_messages() -> None:
    model = ScriptedModel(["a", "b", "c", "d"])
    history = [user("1")]
    for number in range(2, 4):
        await read(model.stream(history))
        history += [assistant("x" * number), user(str(number))]
    await read(model.stream([user("other")]))
    await read(model.stream(history[:1]))
    sent = [request.messages for request in model.calls]
    assert sent == [tuple(history[:1]), tuple(history[:3]), (user("other"),), tuple(history[:1])]
    assert model.calls[1:2] == [model.calls[1]]
    assert model.calls == list(model.calls)
    assert model.calls != [model.calls[0]]
    assert repr(model.calls) == repr(list(model.calls))
    model.calls.clear()
    assert model.calls == []


async def test_memory_of_the_calls_grows_with_the_last_history_only() -> None:
    def memory(turns: int) -> int:
        calls, history = Calls(), tuple(user(str(number)) for number in range(turns))
        gc.collect()
        tracemalloc.start()
        for number in range(turns):
            calls.append(ModelRequest(history[: number + 1], config=ModelConfig("m")))
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(calls) == turns
        return size

    assert memory(800) < 6 * memory(200)  # 16 times with a copy of each history
