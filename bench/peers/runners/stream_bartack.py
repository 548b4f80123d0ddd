"""Bartack: `model.stream` with every delta stamped and guarded, and the final message assembled."""

import json

from bartack import MessageAssembler, Text, ToolCall, user
from bartack.models import connect
from bench.peers.runners.measuring import PROMPT, Case, Stream, measure


def stream_of(vendor: str) -> Case:
    def case(server: str) -> Stream:
        bartack_model = connect(vendor, base_url=server, api_key="none")

        async def stream() -> int:
            assembler = MessageAssembler()
            async for delta in bartack_model.stream([user(PROMPT)]):
                assembler.consume(delta)
            (part,) = assembler.build_final_message().parts
            match part:
                case Text():
                    return len(part.text)
                case ToolCall():
                    return len(json.dumps(part.arguments))
                case _:
                    raise AssertionError(part)

        return stream

    return case


if __name__ == "__main__":
    measure(
        {
            ("model", "chat"): stream_of("openai-chat:gpt-4o"),
            ("model", "messages"): stream_of("anthropic:claude-sonnet-4-5"),
            ("model", "responses"): stream_of("openai:gpt-4o"),
        }
    )
