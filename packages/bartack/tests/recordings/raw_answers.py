"""The blocks of a recorded answer in the form in which a request has them, joined without the decoders.

In: a case folder. Out: the content blocks, items, parts or steps of the answer, as plain JSON. Nothing of Bartack is
imported, so that a field that the decoders do not know cannot disappear here.
"""

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

from tests.recordings.plain import Case, json_lines, sse_events

Json = dict[str, Any]


def raw_blocks(format: str, case: Case) -> list[Json]:
    """The blocks of the answer in one case of this format."""
    return BLOCKS[format](case)


def events_of(case: Case) -> list[Json]:
    if case.file == "response.json":
        body = json.loads(case.body)
        return body if isinstance(body, list) else [body]
    if case.file == "response.bin":
        return list(_aws_events(case.body))
    texts = [data for _, data in sse_events(case.body)] if case.file == "response.sse" else json_lines(case.body)
    return [json.loads(text) for text in texts if text.startswith("{")]


def _aws_events(body: bytes) -> Iterator[Json]:
    while body:
        size, head = struct.unpack(">II", body[:8])
        headers, fields = body[12 : 12 + head], {}
        while headers:
            name = headers[1 : 1 + headers[0]].decode()
            start = 4 + headers[0]
            length = struct.unpack(">H", headers[start - 2 : start])[0]
            fields[name] = headers[start : start + length].decode()
            headers = headers[start + length :]
        payload = json.loads(body[12 + head : size - 4] or b"{}")
        yield {fields.get(":event-type", ":exception"): payload}
        body = body[size:]


def _claude(case: Case) -> list[Json]:
    blocks: dict[int, Json] = {}
    for event in events_of(case):
        if event["type"] == "message_start":
            blocks.update(enumerate(event["message"]["content"]))
        elif event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            block = blocks[event["index"]]
            for name, value in event["delta"].items():
                if name == "citation":
                    block["citations"] = [*(block.get("citations") or []), value]
                elif name != "type" and value is not None:
                    block[name] = (block.get(name) or "") + value
    for block in blocks.values():
        if text := block.pop("partial_json", ""):
            block["input"] = _object_or(text, {"INVALID_JSON": text})
    return list(blocks.values())


def _object_or(text: str, default: Json) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return default


def _openai_items(case: Case) -> list[Json]:
    events = events_of(case)
    finished = {
        event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"
    }
    return [finished[index] for index in sorted(finished)]


def _gemini_parts(case: Case) -> list[Json]:
    """The parts; text that continues the text before it, without a field of its own, is joined with it."""
    parts: list[Json] = []
    for event in events_of(case):
        for candidate in event.get("candidates") or []:
            for part in (candidate.get("content") or {}).get("parts") or []:
                is_plain = parts and {*part, *parts[-1]} <= {"text", "thought"}
                if is_plain and part.get("thought") == parts[-1].get("thought"):
                    parts[-1]["text"] += part["text"]
                elif part != {"text": ""}:
                    parts.append(part)
    # Arguments that arrive in pieces, and end with an empty piece, are compared by the tests of the decoder.
    streamed = {"partialArgs", "willContinue"}
    return [
        part for part in parts if not streamed & part.get("functionCall", {}).keys() and part != {"functionCall": {}}
    ]


def _converse(case: Case) -> list[Json]:
    blocks: dict[int, tuple[Json, list[Json]]] = {}
    for event in events_of(case):
        for name, value in event.items():
            if name == "contentBlockStart":
                blocks[value["contentBlockIndex"]] = (value["start"], [])
            elif name == "contentBlockDelta":
                blocks.setdefault(value["contentBlockIndex"], ({}, []))[1].append(value["delta"])
    return [block for index in sorted(blocks) for block in _converse_block(*blocks[index])]


def _converse_block(start: Json, deltas: list[Json]) -> list[Json]:
    if "toolUse" in start:
        text = "".join(delta["toolUse"].get("input", "") for delta in deltas)
        fields = {name: value for name, value in start["toolUse"].items() if (name, value) != ("type", "tool_use")}
        return [{"toolUse": {**fields, "input": _object_or(text or "{}", {})}}]
    if "toolResult" in start:
        content = [piece for delta in deltas for piece in delta["toolResult"]]
        return [{"toolResult": {**start["toolResult"], "content": content}}]
    text = "".join(delta.get("text", "") for delta in deltas)
    thoughts = [delta["reasoningContent"] for delta in deltas if "reasoningContent" in delta]
    redacted = [base64.b64decode(thought["redactedContent"]) for thought in thoughts if "redactedContent" in thought]
    if redacted:
        return [{"reasoningContent": {"redactedContent": base64.b64encode(b"".join(redacted)).decode()}}]
    if thoughts:
        texts = {
            name: "".join(thought.get(name, "") for thought in thoughts)
            for name in ("text", "signature")
            if any(name in thought for thought in thoughts)
        }
        return [{"reasoningContent": {"reasoningText": texts}}]
    citations = [delta["citation"] for delta in deltas if "citation" in delta]
    if citations:
        return [{"citationsContent": {"content": [{"text": text}], "citations": citations}}]
    return [{"text": text}] if text else []


BLOCKS = {
    "anthropic-messages": _claude,
    "openai-responses": _openai_items,
    "gemini-generate": _gemini_parts,
    "bedrock-converse": _converse,
}
