"""An independent reading of Anthropic's message events: first the message is assembled, then it is read.

In: the event objects of one stream, in order, without their framing. Out: a `PlainReading`.
Bedrock's InvokeModel carries the same events and is read here, too.

Decisions:
- `message_stop` is the terminal signal. A `stop_reason` without it is a truncated stream.
- Usage is merged key by key, `message_start` first, then every `message_delta`: old streams send only `output_tokens`
  at the end, new ones repeat every count. `iterations` only breaks the same call down and is not added.
- A `compaction` block is neither text nor thinking nor a call. Its content has to be sent back: continuation.
- Redacted thinking, and thinking with only a signature, is continuation and not content.
"""

from typing import Any

from tests.recordings.plain import PlainCall, PlainReading, PlainUsage, parsed_arguments

Json = dict[str, Any]

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",  # only with pause_after_compaction: the turn continues once the block is sent back
}
SERVER_CALLS = {"server_tool_use", "mcp_tool_use"}


def read_events(events: list[Json]) -> PlainReading:
    reading = PlainReading()
    message: Json = {}
    usage: Json = {}
    blocks: dict[int, Json] = {}
    stopped = False
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            message = dict(event["message"])
            usage.update(_given(message.get("usage")))
            blocks.update(enumerate(dict(block) for block in message["content"]))
        elif kind == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif kind == "content_block_delta":
            _apply(blocks[event["index"]], event["delta"])
        elif kind == "message_delta":
            message.update(_given(event["delta"]))
            usage.update(_given(event.get("usage")))
        elif kind == "message_stop":
            stopped = True
        elif kind == "error":
            reading.finish = "error"
        elif kind not in {"content_block_stop", "ping"}:
            raise ValueError(f"unknown event {kind!r}")
    for block in blocks.values():
        _read_block(block, reading)
    if message.get("container"):
        reading.continuation.append(message["container"]["id"])
    reading.model, reading.response_id = message.get("model"), message.get("id")
    reading.usage = _usage(usage)
    if reading.finish != "error":
        reading.raw_finish = message.get("stop_reason")
        reading.finish = _finish(reading) if stopped else "truncated"
    return reading


def _given(counts: Json | None) -> Json:
    """The keys with a value: a null in a later event does not reset an earlier value."""
    return {key: value for key, value in (counts or {}).items() if value is not None}


def _apply(block: Json, delta: Json) -> None:
    kind = delta["type"]
    if kind == "text_delta":
        block["text"] += delta["text"]
    elif kind == "thinking_delta":
        block["thinking"] += delta["thinking"]
    elif kind == "signature_delta":
        block["signature"] = block.get("signature", "") + delta["signature"]
    elif kind == "input_json_delta":
        block["input_text"] = block.get("input_text", "") + delta["partial_json"]
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]
    elif kind == "compaction_delta":
        block["content"] = (block["content"] or "") + delta["content"]
    else:
        raise ValueError(f"unknown delta {kind!r}")


def _read_block(block: Json, reading: PlainReading) -> None:
    kind = block["type"]
    if kind == "text":
        reading.text += block["text"]
        if block["text"]:
            reading.saw("text")
        reading.continuation += _encrypted(block.get("citations"))
    elif kind in {"thinking", "redacted_thinking"}:
        reading.thinking += block.get("thinking", "")
        if block.get("thinking"):
            reading.saw("thinking")
        reading.continuation += [block[key] for key in ("signature", "data") if block.get(key)]
    elif kind == "tool_use" or kind in SERVER_CALLS:
        raw = block.get("input_text", "")
        arguments = parsed_arguments(raw) if raw else block["input"]
        reading.calls.append(PlainCall(block["name"], arguments, raw, block["id"], kind in SERVER_CALLS))
        reading.saw("tool_call")
    elif kind == "compaction":
        reading.continuation += [block["content"], *_encrypted(block)]
    elif kind.endswith("_tool_result"):
        reading.continuation += _encrypted(block["content"])
    else:
        raise ValueError(f"unknown block {kind!r}")


def _encrypted(value: object) -> list[str]:
    """Every string at any depth under a key such as `encrypted_content`, `encrypted_index`, `encrypted_stdout`."""
    texts: list[str] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.startswith("encrypted_") and isinstance(inner, str):
                texts.append(inner)
            else:
                texts += _encrypted(inner)
    elif isinstance(value, list):
        for inner in value:
            texts += _encrypted(inner)
    return texts


def _usage(counts: Json) -> PlainUsage | None:
    """Anthropic counts cache reads and writes apart from `input_tokens`; `output_tokens` include thinking."""
    if not counts:
        return None
    cache_read, cache_write = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
    thinking = counts.get("output_tokens_details", {}).get("thinking_tokens")
    total = counts["input_tokens"] + (cache_read or 0) + (cache_write or 0)
    return PlainUsage(total, counts["output_tokens"], cache_read, cache_write, thinking)


def _finish(reading: PlainReading) -> str:
    finish = FINISH.get(reading.raw_finish or "", "other")
    client_calls = any(not call.server_side for call in reading.calls)
    return "tool_calls" if finish == "stop" and client_calls else finish
