"""Messages of LangChain, as `messages_to_dict` and `dumps` write them.

A message is ``{"type", "data"}``, or ``{"lc": 1, "type": "constructor", "id": [...], "kwargs"}``. Content is text, or
blocks of the provider's API. Calls whose arguments are not JSON are in ``invalid_tool_calls``. The ``artifact`` of a
result is not for the model.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.media import data_url, split_data_url
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ContentPart, Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.message_list import (
    list_joined,
    media_of,
    no_folder,
    one_or_parts,
    outgoing_messages,
    read_list,
    write_list,
)
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import Json, object_in, read_messages, text_in, usage_of, value_in
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript

__all__ = ["LANGCHAIN_WRITER", "looks_like_langchain", "read_langchain"]

_AGENT = "langchain"
_RECOGNISED = re.compile(rb'"lc"\s*:\s*1|"type"\s*:\s*"(?:human|ai|system|tool|function)"\s*,\s*"data"\s*:')
_TYPES = {"HumanMessage": "human", "AIMessage": "ai", "SystemMessage": "system", "ToolMessage": "tool"}
_CHUNK = "Chunk"  # the end of the type of an answer that was streamed
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


def looks_like_langchain(name: str, head: bytes) -> bool:
    """Whether a file is a list of messages."""
    return name.endswith(".json") and head.lstrip().startswith(b"[") and _RECOGNISED.search(head) is not None


def read_langchain(files: Files) -> list[Transcript]:
    """The session in a file."""
    return read_list(_AGENT, files, lambda item: _opened(item)[0] or "no type", _messages_of)


def _opened(item: Json) -> tuple[str, Json]:
    """The type of a message, and its fields."""
    data = object_in(item, "kwargs" if "lc" in item else "data")
    ids = item.get("id")
    name = ids[-1] if "lc" in item and isinstance(ids, list) and ids and isinstance(ids[-1], str) else ""
    kind = text_in(data, "type") or (text_in(item, "type") if "lc" not in item else None) or name
    kind = kind.removesuffix(_CHUNK)
    return _TYPES.get(kind, kind), data


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    kind, data = _opened(item)
    if kind == "chat":
        kind = {"user": "human", "assistant": "ai"}.get(text_in(data, "role") or "", text_in(data, "role") or "")
    id = text_in(data, "id")
    match kind:
        case "system" | "developer":
            texts = [part for part in _content(data) if isinstance(part, Text)]
            return [Message("system", tuple(texts), id=id)] if texts else []
        case "human":
            parts = tuple(_content(data))
            return [Message("user", parts, id=id)] if parts else []
        case "ai":
            return _answer(data, id, partial(read_messages, "openai-responses", record=record, report=report))
        case "tool" if call := text_in(data, "tool_call_id"):
            artifact = data.get("artifact")
            result = ToolResult(
                call,
                one_or_parts(_content(data)),
                is_error=data.get("status") == "error",
                metadata=None if artifact is None else {"artifact": artifact},
            )
            return [Message("tool", (result,), id=id)]
    return []


def _content(data: Json) -> list[ContentPart]:
    content: Any = data.get("content")
    blocks: list[Any] = content if isinstance(content, list) else [content]
    parts: list[ContentPart] = []
    for block in blocks:
        match block:
            case str():
                parts += [Text(block)] if block else []
            case {"type": "text", "text": str(text)}:
                parts.append(Text(text))
            case {"type": "image_url", "image_url": given}:
                parts += _url_media(given if isinstance(given, str) else text_in(given, "url") or "", None)
            case {"type": "image" | "file" | "audio" | "video"}:
                parts += _media(block)
    return parts


def _media(block: Json) -> list[ContentPart]:
    """An image or file in the notation of LangChain 1, or of Anthropic."""
    source = block.get("source")
    fields: Json = source if isinstance(source, dict) else block
    kind = text_in(fields, "mime_type") or text_in(fields, "media_type")
    data = text_in(fields, "base64") or text_in(fields, "data")
    if data is not None:
        media = media_of(kind or ("image/png" if block["type"] == "image" else None), base64=data)
        return [Text(f"[{block['type']}]") if media is None else media]
    return _url_media(text_in(fields, "url") or "", kind)


def _url_media(url: str, kind: str | None) -> list[ContentPart]:
    if not url:
        return []
    inline = split_data_url(url)
    media = media_of(kind, url=url) if inline is None else media_of(inline[0], base64=b64encode(inline[1]).decode())
    return [Text("[image]") if media is None else media]


def _answer(data: Json, id: str | None, read_items: Callable[..., list[Message]]) -> list[Message]:
    info = object_in(data, "response_metadata")
    name = text_in(info, "model_name") or text_in(info, "model")
    provider = text_in(info, "model_provider") or ("anthropic" if (name or "").startswith("claude") else "unknown")
    model = None if name is None else ModelRef(provider, name)
    parts: list[Part] = []
    extra = data.get("additional_kwargs")
    if text := text_in(extra, "reasoning_content"):
        parts.append(Thinking(text))
    content = data.get("content")
    for block in content if isinstance(content, list) else [content]:
        parts += _answer_block(block, model, read_items)
    bad: dict[str, str] = {}
    calls = [*_calls(data.get("tool_calls"), bad), *_calls(data.get("invalid_tool_calls"), bad)]
    unique = {call.tool_call_id: call for call in reversed(calls)}
    parts += reversed(unique.values())
    if not parts:
        return []
    reason = text_in(info, "finish_reason") or text_in(info, "stop_reason")
    meta = Meta(
        model=model,
        response_id=text_in(info, "id"),
        usage=_usage(data.get("usage_metadata")),
        finish_reason=_FINISH.get(reason or ""),
        raw_finish_reason=reason,
        bad_args=bad or None,
    )
    return [Message("assistant", tuple(parts), id=id, meta=meta)]


def _answer_block(block: Any, model: ModelRef | None, read_items: Callable[..., list[Message]]) -> list[Part]:
    match block:
        case str() if block:
            return [Text(block)]
        case {"type": "text", "text": str(text)}:
            return [Text(text)]
        case {"type": "thinking"}:
            signature = text_in(block, "signature")
            return [_thinking(text_in(block, "thinking") or "", {"signature": signature} if signature else {}, model)]
        case {"type": "redacted_thinking", "data": str(data)}:
            return [_thinking("", {"type": "redacted_thinking", "data": data}, model)]
        case {"type": "reasoning", "reasoning": str(text)}:
            return [Thinking(text)]
        case {"type": "reasoning", "id": str()} if model is not None:  # an item of OpenAI's Responses API
            messages = read_items({"model": model.model, "input": [block]}, "openai")
            return [part for message in messages for part in message.parts]
    return []


def _thinking(text: str, data: Json, model: ModelRef | None) -> Thinking:
    """Thinking in a block of Anthropic's API, which signs it."""
    if not data:
        return Thinking(text)
    return Thinking(text, continuation=Continuation("anthropic", model.model if model else "unknown", data))


def _calls(raw_calls: Any, bad: dict[str, str]) -> list[ToolCall]:
    """The calls; those that are invalid have their arguments as text, and the reason is added to `bad`."""
    calls: list[ToolCall] = []
    for call in raw_calls if isinstance(raw_calls, list) else []:
        id, name = text_in(call, "id"), text_in(call, "name")
        if id is None or name is None:
            continue
        args = call.get("args")
        if isinstance(args, dict):
            calls.append(ToolCall(id, name, args))
        else:
            bad[id] = text_in(call, "error") or "not a JSON object"
            calls.append(ToolCall(id, name, {}, raw_args_text=args if isinstance(args, str) else json_text(args)))
    return calls


def _usage(raw_usage: Any) -> Usage | None:
    counts = object_in(raw_usage)
    return usage_of(
        counts.get("input_tokens"),
        counts.get("output_tokens"),
        cache_read=value_in(counts, "input_token_details", "cache_read"),
        cache_write=value_in(counts, "input_token_details", "cache_creation"),
        reasoning=value_in(counts, "output_token_details", "reasoning"),
        includes_cache=True,
    )


# -- writing


def write(outgoing: Outgoing) -> WrittenTranscript:
    """A list of messages, as `messages_to_dict` writes it."""
    losses = Losses("anthropic")
    items: list[Json] = []
    for entry, message in outgoing_messages(outgoing, losses):
        items += _written(message, f"entry {entry.seq}", losses)
    return write_list(outgoing, items, losses)


def _written(message: Message, where: str, losses: Losses) -> list[Json]:
    match message.role:
        case "system":
            return [_item("system", message.text, message.id)]
        case "user":
            blocks = [block for part in message.parts for block in _block(part, where, losses)]
            is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
            content: Any = blocks[0]["text"] if is_text else blocks
            return [_item("human", content, message.id)] if blocks else []
        case "tool":
            return [_result(result, where, losses) for result in message.tool_results]
        case "assistant":
            return [_answer_item(message, where, losses)]


def _item(kind: str, content: Any, id: str | None, **fields: Any) -> Json:
    data = {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None, "id": id}
    return {"type": kind, "data": data | fields}


def _result(result: ToolResult, where: str, losses: Losses) -> Json:
    content: Any = result.content
    if isinstance(content, tuple):
        content = [block for part in content for block in _block(part, where, losses)]
    elif isinstance(content, dict):
        content = json_text(content)
    fields = {
        "tool_call_id": result.tool_call_id,
        "artifact": (result.metadata or {}).get("artifact"),
        "status": "error" if result.is_error else "success",
    }
    return _item("tool", content, None, **fields)


def _answer_item(message: Message, where: str, losses: Losses) -> Json:
    blocks: list[Json] = []
    calls: list[Json] = []
    invalid: list[Json] = []
    meta = message.meta or Meta()
    for part in message.parts:
        match part:
            case Text() if not part.ignored:
                blocks.append({"type": "text", "text": part.text})
            case Thinking():
                data = losses.thinking(where, part)
                if data is not None:
                    redacted = data.get("type") == "redacted_thinking"
                    block = {"type": "thinking", "thinking": part.text, "signature": data.get("signature", "")}
                    blocks.append(data if redacted else block)
            case ToolCall(executed_by="client") as call:
                fields = {"name": call.tool_name, "args": call.arguments, "id": call.tool_call_id}
                if call.raw_args_text is None:
                    calls.append({**fields, "type": "tool_call"})
                else:
                    why = (meta.bad_args or {}).get(call.tool_call_id, "not a JSON object")
                    raw = {"args": call.raw_args_text, "error": why, "type": "invalid_tool_call"}
                    invalid.append({**fields, **raw})
            case ToolCall() as call:
                losses.add(where, f"call of {call.tool_name}", "only its provider can read it")
    is_text = all(block["type"] == "text" for block in blocks) and len(blocks) <= 1
    content: Any = (blocks[0]["text"] if blocks else "") if is_text else blocks
    metadata = {} if meta.model is None else {"model_name": meta.model.model, "model_provider": meta.model.provider}
    if meta.finish_reason is not None:
        metadata["finish_reason"] = meta.raw_finish_reason or meta.finish_reason
    return _item(
        "ai",
        content,
        message.id,
        response_metadata=metadata,
        tool_calls=calls,
        invalid_tool_calls=invalid,
        usage_metadata=_counts(meta.usage),
    )


def _counts(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_token_details": {
            "cache_read": usage.cache_read_tokens or 0,
            "cache_creation": usage.cache_write_tokens or 0,
        },
        "output_token_details": {"reasoning": usage.reasoning_tokens or 0},
    }


def _block(part: Part, where: str, losses: Losses) -> list[Json]:
    match part:
        case Text():
            return [] if part.ignored else [{"type": "text", "text": part.text}]
        case Image() as image:
            url = data_url(image.mime_type, image.data) if image.data is not None else image.url
            return [{"type": "image_url", "image_url": {"url": url}}]
        case FileRef(data=bytes(data)):
            kind = part.mime_type or "application/octet-stream"
            return [{"type": "file", "base64": b64encode(data).decode(), "mime_type": kind}]
        case FileRef(url=str(url)):
            return [{"type": "file", "url": url, "mime_type": part.mime_type}]
        case FileRef():
            losses.add(where, "file", "its content is not part of the session")
            return [{"type": "text", "text": f"[file: {part.path}]"}]
    return []


LANGCHAIN_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=list_joined)
