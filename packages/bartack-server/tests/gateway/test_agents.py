"""Agents as models: their tools run here, and a named conversation is one session of the agent."""

import json

from bartack import Agent, MemoryStore, ScriptedModel, ToolCall, assistant, tool
from tests.gateway.bodies import request
from tests.gateway.serving import serving


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


async def test_an_agent_answers_with_its_tools_and_continues_a_named_conversation() -> None:
    model = ScriptedModel([assistant("Let me see.", ToolCall("c1", "weather", {"city": "Rome"})), "Sunny.", "Bye."])
    store = MemoryStore()
    async with serving(store=store, agents={"guide": Agent(model, tools=[weather])}) as gateway:
        _, listed = await gateway.get("/v1/models")
        assert [row["id"] for row in listed["data"]] == ["agent:guide"]
        named = {"x-bartack-session": "trip"}
        path, body = request("openai-chat", model="agent:guide", stream=False, prompt="Weather?")
        status, data, _ = await gateway.post(path, body, headers=named)
        message = json.loads(data)["choices"][0]["message"]
        assert (status, message["content"]) == (200, "Let me see.Sunny.")
        assert "weather" in message["reasoning_content"]
        assert "tool_calls" not in message
        path, body = request("anthropic-messages", model="agent:guide", prompt="Thanks")
        status, data, _ = await gateway.post(path, body, headers=named)
        assert (status, b"Bye." in data) == (200, True)
        assert [item.role for item in model.calls[2].messages if item.role != "system"] == [
            "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip
        assert len((await store.sessions()).items) == 1


async def test_an_agent_without_a_named_conversation_gets_the_history_of_the_request() -> None:
    model = ScriptedModel(["Hi."])
    async with serving(agents={"guide": Agent(model)}) as gateway:
        path, body = request("openai-chat", model="agent:guide")
        turns = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        status, data, _ = await gateway.post(path, {**body, "messages": turns})
        assert (status, b"[DONE]" in data) == (200, True)
    assert [item.text for item in model.calls[0].messages if item.role != "system"] == ["a", "b", "c"]
