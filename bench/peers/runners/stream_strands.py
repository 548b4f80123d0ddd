"""strands: a model's `stream` of events, and an agent's `stream_async` up to the end of its first model call."""

import json
from collections.abc import Callable
from typing import Any

from strands import Agent, tool  # type: ignore[import-not-found]
from strands.models.anthropic import AnthropicModel  # type: ignore[import-not-found]
from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]
from strands.models.openai_responses import OpenAIResponsesModel  # type: ignore[import-not-found]

from bench.peers.runners.measuring import PROMPT, Case, Stream, measure

MODELS: dict[str, Callable[[str], Any]] = {
    "chat": lambda server: OpenAIModel(client_args={"base_url": server}, model_id="gpt-4o"),
    "messages": lambda server: AnthropicModel(
        client_args={"base_url": server}, model_id="claude-sonnet-4-5", max_tokens=1024
    ),
    "responses": lambda server: OpenAIResponsesModel(client_args={"base_url": server}, model_id="gpt-4o"),
}


def model_stream(name: str) -> Case:
    def case(server: str) -> Stream:
        model = MODELS[name](server)

        async def stream() -> int:
            characters = 0
            async for event in model.stream([{"role": "user", "content": [{"text": PROMPT}]}]):
                if "contentBlockDelta" in event:
                    delta = event["contentBlockDelta"]["delta"]
                    characters += len(delta["text"] if "text" in delta else delta["toolUse"]["input"])
            return characters

        return stream

    return case


@tool(context=True)  # type: ignore[untyped-decorator]
def f(list: list[str], tool_context: Any) -> str:
    """End the run after the first answer."""
    tool_context.invocation_state["request_state"]["stop_event_loop"] = True
    return "done"


def agent_stream(name: str) -> Case:
    def case(server: str) -> Stream:
        model = MODELS[name](server)

        async def stream() -> int:
            agent = Agent(model, tools=[f], callback_handler=None)
            async for _ in agent.stream_async(PROMPT):
                pass
            (block,) = agent.messages[1]["content"]
            return len(block["text"] if "text" in block else json.dumps(block["toolUse"]["input"]))

        return stream

    return case


if __name__ == "__main__":
    measure(
        {("model", name): model_stream(name) for name in MODELS}
        | {("agent", name): agent_stream(name) for name in MODELS}
    )
