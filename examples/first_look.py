"""The whole pipeline without an API key: from the bytes of one provider's answer to the next provider's request.

The bytes below are in the format of Anthropic's API and arrive in small pieces, as from a network.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

import bartack
from bartack import Entry, MessageAssembler, MessageDelta, ModelConfig, PartialJson, ToolResult, tool_message, user
from bartack.environment import Environment
from bartack.formats import ModelRequest

QUESTION = "Will it rain in Paris tomorrow?"
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 42}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Need a forecast."},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me look at "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "the forecast."}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    },
    *(
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in ('{"city": "Pa', 'ris", "da', 'ys": 1', "}")
    ),
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 37}},
    {"type": "message_stop"},
]
BODY = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS).encode()


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def assemble(body: bytes, environment: Environment, *, show: bool = False) -> MessageAssembler:
    """Decode the stream, 64 bytes at a time."""
    decoder = bartack.formats.decoder("anthropic-messages", provider="anthropic")
    assembler, arguments, seq = MessageAssembler(message_id=environment.new_id()), PartialJson(), 0
    pieces = [body[start : start + 64] for start in range(0, len(body), 64)]
    for piece in [*pieces, None]:
        for delta in decoder.receive_eof() if piece is None else decoder.receive_data(piece):
            assembler.consume(MessageDelta("run-1", seq, delta, environment.now()))
            seq += 1
            if show:
                print(f"  {delta.kind:16}", end="")
                if isinstance(delta, bartack.ToolCallArgs):
                    arguments.feed(delta.args_text_delta)
                    print(f" arguments so far: {arguments.value}")
                else:
                    print(f" {getattr(delta, 'text_delta', '') or getattr(delta, 'finish_reason', '')}")
    return assembler


def main() -> None:
    environment = Environment(now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), random=iter(range(1000)).__next__)

    title("1. Bytes become deltas. Partial arguments are for display; they are parsed once, when complete")
    answer = assemble(BODY, environment, show=True).build_final_message()

    title("2. Deltas become a message")
    for part in answer.parts:
        what = part.arguments if isinstance(part, bartack.ToolCall) else getattr(part, "text", "")
        kept = (
            "" if part.continuation is None else f"   kept for {part.continuation.provider}: {part.continuation.data}"
        )
        print(f"  {part.kind:10} {what}{kept}")

    title("3. The same stream, cut after two thirds, is an error and not half an answer")
    error = assemble(BODY[: len(BODY) * 2 // 3], environment).get_error()
    print(f"  {error}")

    title("4. Messages are facts, and every view is computed from them")
    history = [user(QUESTION), answer, tool_message(ToolResult("toolu_1", "Rain from noon on."))]
    facts = [bartack.stamped(message, id=environment.new_id(), timestamp=environment.now()) for message in history]
    entries = [
        Entry(id=environment.new_id(), session_id="trip", seq=place, timestamp=environment.now(), fact=fact)
        for place, fact in enumerate(facts, start=1)
    ]
    print(f"  ledger:   {bartack.nouns.wire.encode(entries[0]).decode()}")
    tool_part = bartack.views.document.dump(entries)["messages"][1]["parts"][3]
    print(f"  document: {json.dumps(tool_part['state'])}")

    title("5. Continue with another provider. The report lists what was left out")
    request = ModelRequest(tuple(history), config=ModelConfig("gpt-5"), provider="openai")
    encoded = bartack.formats.encode("openai-chat", request)
    for message in encoded.body["messages"]:
        print(f"  {json.dumps(message)}")
    for loss in encoded.report.losses:
        print(f"  left out: {loss.what} at {loss.where}: {loss.why}")


if __name__ == "__main__":
    main()
