"""The anthropic SDK: its raw event stream, and its helper that accumulates the events."""

import json

from anthropic import AsyncAnthropic

from bench.peers.runners.measuring import PROMPT, Stream, measure

REQUEST = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": [{"role": "user", "content": PROMPT}]}


def raw(server: str) -> Stream:
    client = AsyncAnthropic(base_url=server)

    async def stream() -> int:
        characters = 0
        async for event in await client.messages.create(**REQUEST, stream=True):
            if event.type == "content_block_delta":
                delta = event.delta
                characters += len(delta.text if delta.type == "text_delta" else delta.partial_json)
        return characters

    return stream


def helper(server: str) -> Stream:
    client = AsyncAnthropic(base_url=server)

    async def stream() -> int:
        async with client.messages.stream(**REQUEST) as events:
            async for _ in events:
                pass
            block = (await events.get_final_message()).content[0]
        return len(block.text if block.type == "text" else json.dumps(block.input))

    return stream


if __name__ == "__main__":
    measure({("raw", "messages"): raw, ("helper", "messages"): helper})
