"""The openai SDK: its raw event stream, and its helper that accumulates the events."""

from openai import AsyncOpenAI

from bench.peers.runners.measuring import PROMPT, Stream, measure

MODEL = "gpt-4o"
MESSAGES = [{"role": "user", "content": PROMPT}]


def raw_chat(server: str) -> Stream:
    client = AsyncOpenAI(base_url=server)

    async def stream() -> int:
        characters = 0
        async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or ():
                    characters += len(call.function.arguments)
                characters += len(choice.delta.content or "")
        return characters

    return stream


def raw_responses(server: str) -> Stream:
    client = AsyncOpenAI(base_url=server)

    async def stream() -> int:
        characters = 0
        async for event in await client.responses.create(model=MODEL, input=PROMPT, stream=True):
            if event.type in {"response.output_text.delta", "response.function_call_arguments.delta"}:
                characters += len(event.delta)
        return characters

    return stream


def helper_chat(server: str) -> Stream:
    client = AsyncOpenAI(base_url=server)

    async def stream() -> int:
        async with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as events:
            async for _ in events:
                pass
            message = (await events.get_final_completion()).choices[0].message
        return len(message.tool_calls[0].function.arguments if message.tool_calls else message.content)

    return stream


def helper_responses(server: str) -> Stream:
    client = AsyncOpenAI(base_url=server)

    async def stream() -> int:
        async with client.responses.stream(model=MODEL, input=PROMPT) as events:
            async for _ in events:
                pass
            item = (await events.get_final_response()).output[0]
        return len(item.arguments if item.type == "function_call" else item.content[0].text)

    return stream


if __name__ == "__main__":
    measure(
        {
            ("raw", "chat"): raw_chat,
            ("raw", "responses"): raw_responses,
            ("helper", "chat"): helper_chat,
            ("helper", "responses"): helper_responses,
        }
    )
