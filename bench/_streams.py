"""Synthetic provider streams for benchmarks: text, tool arguments or thinking in many small events, in three formats.

Events have the fields that the real providers send and therefore realistic sizes: about 250 bytes for chat, 120 for
messages, 230 for responses.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

FORMATS = {"messages": "anthropic-messages", "chat": "openai-chat", "responses": "openai-responses"}
CONTENTS = ("text", "arguments", "thinking")
PIECE = "word "  # a piece of text or of thinking
ARGS = ('{"list": [', '"word", ', '"end"]}')  # first, middle and last piece of the argument text


def stream(name: str, content: str, events: int) -> bytes:
    """A whole body in which `events` events carry `content`."""
    return b"".join(_MAKERS[name](content, events))


def _pieces(content: str, events: int) -> list[str]:
    if content != "arguments":
        return [PIECE] * events
    first, middle, last = ARGS
    return [first, *[middle] * (events - 2), last]


def _named(event: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), _json(event))


def _json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _messages(content: str, events: int) -> Iterator[bytes]:
    usage = {"input_tokens": 12, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    yield _named({"type": "message_start", "message": message})
    block, key, kind = {
        "text": ({"type": "text", "text": ""}, "text", "text_delta"),
        "thinking": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", "thinking_delta"),
        "arguments": (
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
            "partial_json",
            "input_json_delta",
        ),
    }[content]
    yield _named({"type": "content_block_start", "index": 0, "content_block": block})
    for piece in _pieces(content, events):
        yield _named({"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: piece}})
    yield _named({"type": "content_block_stop", "index": 0})
    reason = "tool_use" if content == "arguments" else "end_turn"
    yield _named({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": events}})
    yield _named({"type": "message_stop"})


def _chat(content: str, events: int) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
        return b"data: %s\n\n" % _json(
            {
                "id": "chatcmpl-Cabcdefghijklmnopqrstuvwxyz012",
                "object": "chat.completion.chunk",
                "created": 1760000000,
                "model": "gpt-model-2026-01-01",
                "service_tier": "default",
                "system_fingerprint": "fp_0123456789",
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
                **fields,
            }
        )

    yield chunk({"role": "assistant", "content": ""})
    if content == "arguments":
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
        yield chunk({"tool_calls": [call]})
    for piece in _pieces(content, events):
        if content == "arguments":
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        else:
            yield chunk({"content" if content == "text" else "reasoning_content": piece})
    yield chunk({}, "tool_calls" if content == "arguments" else "stop")
    usage = {"prompt_tokens": 12, "completion_tokens": events, "total_tokens": events + 12}
    yield b"data: %s\n\n" % _json({"id": "chatcmpl-C", "model": "gpt-model", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _responses(content: str, events: int) -> Iterator[bytes]:
    place = {"output_index": 0, "item_id": "item_0123456789abcdef0123456789abcdef0123456789abcdef"}
    number = iter(range(10 * events + 100))

    def event(type: str, **fields: Any) -> bytes:
        return _named({"type": f"response.{type}", "sequence_number": next(number), **fields})

    body: dict[str, Any] = {"id": "resp_1", "object": "response", "model": "gpt-model", "output": []}
    yield event("created", response={**body, "status": "in_progress"})
    text = "".join(_pieces(content, events))
    item: dict[str, Any] = {"id": place["item_id"], "status": "completed"}
    if content == "text":
        part = {"type": "output_text", "text": text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [part]}
        more, kind = {"content_index": 0}, "output_text"
    elif content == "arguments":
        item |= {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": text}
        more, kind = {}, "function_call_arguments"
    else:
        item |= {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
        more, kind = {"summary_index": 0}, "reasoning_summary_text"
    empty = {**item, "status": "in_progress"} | {key: [] for key in ("content", "summary") if key in item}
    if content == "arguments":
        empty["arguments"] = ""
    yield event("output_item.added", output_index=0, item=empty)
    if content == "text":
        blank = {"type": "output_text", "text": "", "annotations": []}
        yield event("content_part.added", **place, **more, part=blank)
    elif content == "thinking":
        yield event("reasoning_summary_part.added", **place, **more, part={"type": "summary_text", "text": ""})
    for piece in _pieces(content, events):
        yield event(f"{kind}.delta", **place, **more, delta=piece)
    yield event("output_item.done", output_index=0, item=item)
    usage = {"input_tokens": 12, "output_tokens": events, "total_tokens": events + 12}
    yield event("completed", response={**body, "status": "completed", "output": [item], "usage": usage})


_MAKERS: dict[str, Callable[[str, int], Iterator[bytes]]] = {
    "messages": _messages,
    "chat": _chat,
    "responses": _responses,
}
