"""pydantic-ai: a model's stream through the direct API, and the first model request of an agent, event by event."""

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent  # type: ignore[import-not-found]
from pydantic_ai.direct import model_request_stream  # type: ignore[import-not-found]
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart  # type: ignore[import-not-found]
from pydantic_ai.models.anthropic import AnthropicModel  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # type: ignore[import-not-found]
from pydantic_ai.providers.anthropic import AnthropicProvider  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]

from bench.peers.runners.measuring import PROMPT, Case, Stream, measure

MODELS: dict[str, Callable[[str], Any]] = {
    "chat": lambda server: OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=server)),
    "messages": lambda server: AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(base_url=server)),
    "responses": lambda server: OpenAIResponsesModel("gpt-4o", provider=OpenAIProvider(base_url=server)),
}


def characters_of(response: ModelResponse) -> int:
    (part,) = response.parts
    return len(part.args if isinstance(part, ToolCallPart) else part.content)


def model_stream(name: str) -> Case:
    def case(server: str) -> Stream:
        model = MODELS[name](server)

        async def stream() -> int:
            async with model_request_stream(model, [ModelRequest.user_text_prompt(PROMPT)]) as events:
                async for _ in events:
                    pass
                return characters_of(events.get())

        return stream

    return case


def agent_stream(name: str) -> Case:
    def case(server: str) -> Stream:
        agent = Agent(MODELS[name](server))

        @agent.tool_plain  # type: ignore[untyped-decorator]
        def f(list: list[str]) -> str:
            raise AssertionError("the run stops before tools run")

        async def stream() -> int:
            async with agent.iter(PROMPT) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as events:
                            async for _ in events:
                                pass
                            return characters_of(events.response)
            raise AssertionError("the agent made no model request")

        return stream

    return case


if __name__ == "__main__":
    measure(
        {("model", name): model_stream(name) for name in MODELS}
        | {("agent", name): agent_stream(name) for name in MODELS}
    )
