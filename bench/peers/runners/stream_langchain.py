"""langchain: a chat model's `astream`, its chunks added up at the end or, as in its documentation, one by one."""

from collections.abc import Callable
from typing import Any

from langchain_anthropic import ChatAnthropic  # type: ignore[import-not-found]
from langchain_core.messages import AIMessageChunk  # type: ignore[import-not-found]
from langchain_core.messages.ai import add_ai_message_chunks  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

from bench.peers.runners.measuring import PROMPT, Case, Stream, measure

WORDS = {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string"}}}}
MODELS: dict[str, Callable[[str], Any]] = {
    "chat": lambda server: ChatOpenAI(model="gpt-4o", base_url=server),
    "messages": lambda server: ChatAnthropic(model="claude-sonnet-4-5", base_url=server),
    "responses": lambda server: ChatOpenAI(model="gpt-4o", base_url=server, use_responses_api=True),
}

TOOL = {"name": "f", "description": "Takes words.", "parameters": WORDS}


def characters_of(message: AIMessageChunk) -> int:
    if message.tool_call_chunks:
        return len(message.tool_call_chunks[0]["args"])
    return len(message.text)


def summed_once(name: str) -> Case:
    def case(server: str) -> Stream:
        model = MODELS[name](server).bind_tools([TOOL])

        async def stream() -> int:
            first, *remaining = [chunk async for chunk in model.astream(PROMPT)]
            return characters_of(add_ai_message_chunks(first, *remaining))

        return stream

    return case


def added_one_by_one(name: str) -> Case:
    def case(server: str) -> Stream:
        model = MODELS[name](server).bind_tools([TOOL])

        async def stream() -> int:
            full = None
            async for chunk in model.astream(PROMPT):
                full = chunk if full is None else full + chunk
            return characters_of(full)

        return stream

    return case


if __name__ == "__main__":
    measure(
        {("chunks summed once", name): summed_once(name) for name in MODELS}
        | {("full += chunk", name): added_one_by_one(name) for name in MODELS}
    )
