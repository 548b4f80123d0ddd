"""An independent reading of Bedrock's two streams: AWS frames around Converse events or a model's own events.

In: the bytes of one body, or the event objects of a recording that kept no frames. Out: a `PlainReading`.

Decisions:
- `messageStop` is the terminal signal of Converse; the usage follows it in `metadata`.
- Cache reads and writes are not part of `inputTokens`: in recorded replies the three and `outputTokens` add up to
  `totalTokens`.
- InvokeModel sends the model's own events: Anthropic's (Claude), Converse's (Nova), `outputText` pieces (Titan).
  The model's own usage holds; `amazon-bedrock-invocationMetrics` omits some of Claude's tool tokens.
- A model's own stop reason wins over `amazon-bedrock-guardrailAction`, which only means that text was masked. If the
  guardrail blocked the request there is no stop reason, and the guardrail's action is the terminal signal.
"""

import base64
import json
import struct
import zlib
from typing import Any

from tests.recordings import oracle_anthropic
from tests.recordings.plain import PlainCall, PlainReading, PlainUsage, parsed_arguments

Json = dict[str, Any]
Event = tuple[str, Json]

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
TITAN_FINISH = {
    "FINISH": "stop",  # recorded; documented as FINISHED
    "FINISHED": "stop",
    "STOP_CRITERIA_MET": "stop",
    "LENGTH": "length",
    "CONTENT_FILTERED": "content_filter",
    "INTERVENED": "content_filter",
}
HEADER_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # keys: the value type; 6 and 7 have their own length


def frames(body: bytes) -> list[Event]:
    """Every whole frame as (event type, payload). An exception frame is ("exception", {"type": its name, ...}).

    A frame: total length, header length, checksum of these eight bytes, headers, payload, checksum of all before it.
    Raises ValueError on a wrong checksum; a truncated last frame is omitted.
    """
    events: list[Event] = []
    offset = 0
    while offset + 12 <= len(body):
        total, header_length, prelude_crc = struct.unpack_from(">III", body, offset)
        frame = body[offset : offset + total]
        if len(frame) < total:
            break
        if zlib.crc32(frame[:8]) != prelude_crc or zlib.crc32(frame[:-4]) != struct.unpack(">I", frame[-4:])[0]:
            raise ValueError(f"wrong checksum in the frame at byte {offset}")
        headers = _headers(frame[12 : 12 + header_length])
        payload = json.loads(frame[12 + header_length : -4] or b"{}")
        if headers[":message-type"] == "event":
            events.append((headers[":event-type"], payload))
        else:
            name = headers.get(":exception-type") or headers.get(":error-code")
            events.append(("exception", {**payload, "type": name}))
        offset += total
    return events


def _headers(data: bytes) -> dict[str, str]:
    headers = {}
    offset = 0
    while offset < len(data):
        name_end = offset + 1 + data[offset]
        name, kind = data[offset + 1 : name_end].decode(), data[name_end]
        offset = name_end + 1
        if kind in {6, 7}:
            size = struct.unpack_from(">H", data, offset)[0]
            offset += 2
        else:
            size = HEADER_SIZES[kind]
        if kind == 7:
            headers[name] = data[offset : offset + size].decode()
        offset += size
    return headers


def named_events(objects: list[Json]) -> list[Event]:
    """`{"messageStart": {...}}` as ("messageStart", {...}): how Nova and unframed recordings write Converse events."""
    events: list[Event] = []
    for event in objects:
        [(name, payload)] = [(key, value) for key, value in event.items() if not key.startswith("amazon-bedrock-")]
        if name.endswith("Exception"):
            events.append(("exception", {**payload, "type": name}))
        else:
            events.append((name, payload))
    return events


def read_converse(events: list[Event]) -> PlainReading:
    reading = PlainReading()
    blocks: dict[int, Json] = {}
    for name, payload in events:
        if name in {"contentBlockStart", "contentBlockDelta"}:
            block = blocks.setdefault(payload["contentBlockIndex"], {"deltas": []})
            if name == "contentBlockStart":
                block["start"] = payload["start"]
            else:
                block["deltas"].append(payload["delta"])
        elif name == "messageStop":
            reading.raw_finish = payload["stopReason"]
            reading.finish = FINISH.get(payload["stopReason"], "other")
        elif name == "metadata":
            reading.usage = _usage(payload.get("usage")) or reading.usage
        elif name == "exception":
            reading.finish, reading.raw_finish = "error", None
            break
        elif name not in {"messageStart", "contentBlockStop"}:
            raise ValueError(f"unknown event {name!r}")
    for block in blocks.values():
        _read_block(block, reading)
    if reading.finish == "stop" and any(not call.server_side for call in reading.calls):
        reading.finish = "tool_calls"
    return reading


def _read_block(block: Json, reading: PlainReading) -> None:
    start = block.get("start", {})
    if "toolUse" in start:
        raw = "".join(delta["toolUse"]["input"] for delta in block["deltas"])
        tool = start["toolUse"]
        server_side = tool.get("type") == "server_tool_use"
        reading.calls.append(PlainCall(tool["name"], parsed_arguments(raw), raw, tool["toolUseId"], server_side))
        reading.saw("tool_call")
        return
    if "toolResult" in start:
        return
    for delta in block["deltas"]:
        if "text" in delta:
            reading.text += delta["text"]
            if delta["text"]:
                reading.saw("text")
        elif "reasoningContent" in delta:
            _read_reasoning(delta["reasoningContent"], reading)
        elif "citation" not in delta:
            raise ValueError(f"unknown delta {sorted(delta)}")
    signature = "".join(delta.get("reasoningContent", {}).get("signature", "") for delta in block["deltas"])
    if signature:
        reading.continuation.append(signature)


def _read_reasoning(piece: Json, reading: PlainReading) -> None:
    reading.thinking += piece.get("text", "")
    if piece.get("text"):
        reading.saw("thinking")
    if piece.get("redactedContent"):
        reading.continuation.append(piece["redactedContent"])


def _usage(counts: Json | None) -> PlainUsage | None:
    """Converse has `cacheReadInputTokens`, Nova behind InvokeModel `cacheReadInputTokenCount`; some have both."""
    if not counts:
        return None
    read = counts.get("cacheReadInputTokens", counts.get("cacheReadInputTokenCount"))
    cache_write = counts.get("cacheWriteInputTokens", counts.get("cacheWriteInputTokenCount"))
    return PlainUsage(
        counts["inputTokens"] + (read or 0) + (cache_write or 0), counts["outputTokens"], read, cache_write
    )


def read_invoke(events: list[Event]) -> PlainReading:
    chunks = [json.loads(base64.b64decode(payload["bytes"])) for name, payload in events if name == "chunk"]
    first = chunks[0] if chunks else {}
    if "outputText" in first:
        reading = _read_titan(chunks)
    elif "type" in first:
        reading = oracle_anthropic.read_events(chunks)
    else:
        reading = read_converse(named_events(chunks))
    if any(name == "exception" for name, _ in events):
        reading.finish, reading.raw_finish = "error", None
    return reading


def _read_titan(chunks: list[Json]) -> PlainReading:
    reading = PlainReading()
    fields: Json = {}
    for chunk in chunks:
        reading.text += chunk["outputText"]
        fields.update({key: value for key, value in chunk.items() if value is not None})
    if reading.text:
        reading.saw("text")
    if "inputTextTokenCount" in fields:
        reading.usage = PlainUsage(int(fields["inputTextTokenCount"]), int(fields.get("totalOutputTextTokenCount", 0)))
    blocked = fields.get("amazon-bedrock-guardrailAction") if "totalOutputTextTokenCount" in fields else None
    reading.raw_finish = fields.get("completionReason", blocked)
    if reading.raw_finish:
        reading.finish = TITAN_FINISH.get(reading.raw_finish, "other")
    return reading
