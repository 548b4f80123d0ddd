"""The official SDKs, in their strict modes, against a gateway whose model speaks no format at all."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bartack import ScriptedModel, Text, Thinking, ToolCall, assistant
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode
from tests.gateway.bodies import SCHEMA
from tests.gateway.serving import Gateway, serving

ANSWER = assistant(Thinking("Hm."), Text("I look."), ToolCall("call_1", "look", {"city": "Paris"}))
TOOL = {"name": "look", "description": "Look."}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serving(
        {"m": [ScriptedModel([ANSWER, ANSWER, Failed(ErrorCode.OVERLOADED, "busy", retryable=True)])]}
    ) as own:
        yield own


async def test_anthropic_streams_and_does_not(gateway: Gateway) -> None:
    anthropic = pytest.importorskip("anthropic")
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=gateway.key, max_retries=0) as client:
        options: Any = {
            "model": "m",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "Look!"}],
            "tools": [{**TOOL, "input_schema": SCHEMA}],
        }
        async with client.messages.stream(**options) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**options)
        for message in (streamed, whole):
            assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
            assert (message.content[2].input, message.stop_reason) == ({"city": "Paris"}, "tool_use")
            assert message.model == "m"
        with pytest.raises(anthropic.APIStatusError) as raised:
            await client.messages.create(**options)
        assert raised.value.status_code == 529
        assert (await client.messages.count_tokens(model="m", messages=options["messages"])).input_tokens > 0
        assert [model.id async for model in client.models.list()] == ["m"]


async def test_openai_chat_streams_and_does_not(gateway: Gateway) -> None:
    openai = pytest.importorskip("openai")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0) as client:
        tools = [{"type": "function", "function": {**TOOL, "parameters": SCHEMA}}]
        options: Any = {"model": "m", "messages": [{"role": "user", "content": "Look!"}], "tools": tools}
        async with client.chat.completions.stream(**options) as stream:
            streamed = await stream.get_final_completion()
        whole = await client.chat.completions.create(**options)
        for completion in (streamed, whole):
            [choice] = completion.choices
            assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
            assert choice.message.tool_calls[0].function.arguments.replace(" ", "") == '{"city":"Paris"}'
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**options)
        assert [model.id async for model in client.models.list()] == ["m"]
        assert (await client.models.retrieve("m")).id == "m"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")


async def test_openai_responses_stream_and_do_not(gateway: Gateway) -> None:
    openai = pytest.importorskip("openai")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0) as client:
        options: Any = {"model": "m", "input": "Look!", "tools": [{"type": "function", **TOOL, "parameters": SCHEMA}]}
        async with client.responses.stream(**options) as stream:
            streamed = await stream.get_final_response()
        whole = await client.responses.create(**options)
        for response in (streamed, whole):
            assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
            assert (response.output_text, response.status) == ("I look.", "completed")
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(**options)


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # of the SDK
async def test_google_streams_and_does_not(gateway: Gateway) -> None:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=gateway.url)
    async with genai.Client(api_key=gateway.key, http_options=options).aio as client:
        chunks = [chunk async for chunk in await client.models.generate_content_stream(model="m", contents="Look!")]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        assert "".join(part.text or "" for part in parts if not part.thought) == "I look."
        assert [part.function_call.args for part in parts if part.function_call] == [{"city": "Paris"}]
        whole = await client.models.generate_content(model="m", contents="Look!")
        assert [call.name for call in whole.function_calls] == ["look"]
        with pytest.raises(genai.errors.ServerError):
            await client.models.generate_content(model="m", contents="Look!")
        assert (await client.models.count_tokens(model="m", contents="Look!")).total_tokens > 0
