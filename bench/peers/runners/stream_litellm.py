"""litellm: `acompletion` for the chat and messages formats, and `aresponses`; chunks are counted and discarded."""

import sys

import litellm  # type: ignore[import-not-found]

from bench.peers.runners.measuring import PROMPT, Case, Stream, measure

# These streams repeat one word. By default, litellm treats that as a malfunctioning model and raises.
litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize

MESSAGES = [{"role": "user", "content": PROMPT}]


def completion(model: str) -> Case:
    def case(server: str) -> Stream:
        async def stream() -> int:
            characters = 0
            async for chunk in await litellm.acompletion(model=model, messages=MESSAGES, stream=True, api_base=server):
                delta = chunk.choices[0].delta
                for call in delta.tool_calls or ():
                    characters += len(call.function.arguments or "")
                characters += len(delta.content or "")
            return characters

        return stream

    return case


def responses(server: str) -> Stream:
    async def stream() -> int:
        characters = 0
        async for event in await litellm.aresponses(model="openai/gpt-4o", input=PROMPT, stream=True, api_base=server):
            if event.type in {"response.output_text.delta", "response.function_call_arguments.delta"}:
                characters += len(event.delta)
        return characters

    return stream


if __name__ == "__main__":
    measure(
        {
            ("stream", "chat"): completion("openai/gpt-4o"),
            ("stream", "messages"): completion("anthropic/claude-sonnet-4-5"),
            ("stream", "responses"): responses,
        }
    )
