"""Messages of pydantic-ai, as its `ModelMessagesTypeAdapter` writes them.

A list of requests and responses, each a list of parts. A request has what the user wrote, and the results of calls;
``retry-prompt`` is a result that failed, or a question about the answer. Arguments are JSON text or an object.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.usage import amount
from bartack.nouns.deltas import FinishReason
from bartack.nouns.entries import Entry
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import (
    STRUCTURED,
    ContentPart,
    Continuation,
    FileRef,
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from bartack_transcripts.message_list import (
    list_joined,
    media_of,
    no_folder,
    outgoing_messages,
    read_list,
    result_of,
    write_list,
)
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import (
    Json,
    object_in,
    objects_in,
    parse_object,
    text_in,
    time_from_text,
    usage_of,
    value_in,
)
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, time_text

__all__ = ["PYDANTIC_WRITER", "looks_like_pydantic_ai", "read_pydantic_ai"]

_AGENT = "pydantic-ai"
_RECOGNISED = re.compile(rb'"part_kind"\s*:')
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "tool_calls",
    "content_filter": "content_filter",
}
_REASONS = {reason: name for name, reason in _FINISH.items()}
_FAILED = ("failed", "denied", "retried")
_URLS = {"image-url": "image/*", "video-url": "video/*", "audio-url": "audio/*", "document-url": None}
_REDACTED = "redacted_thinking"  # the id of thinking that Anthropic encrypts


def looks_like_pydantic_ai(name: str, head: bytes) -> bool:
    """Whether a file is a list with parts of pydantic-ai."""
    return name.endswith(".json") and head.lstrip().startswith(b"[") and _RECOGNISED.search(head) is not None


def read_pydantic_ai(files: Files) -> list[Transcript]:
    """The session in a file."""
    return read_list(_AGENT, files, lambda item: text_in(item, "kind") or "no kind", _messages_of)


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    parts = objects_in(item, "parts")
    match text_in(item, "kind"):
        case "request":
            return _request(parts, item)
        case "response":
            return _response(parts, item)
    return ()


# -- requests


def _request(parts: list[Json], item: Json) -> list[Message]:
    """One message for each run of parts with the same role."""
    messages: list[tuple[str, list[Part], Any]] = []
    for part in parts:
        role, content = _request_part(part)
        if not content:
            continue
        result_ids = (
            {earlier.tool_call_id for earlier in messages[-1][1] if isinstance(earlier, ToolResult)}
            if messages
            else set()
        )
        repeats = any(isinstance(piece, ToolResult) and piece.tool_call_id in result_ids for piece in content)
        if not messages or messages[-1][0] != role or repeats:
            messages.append((role, [], part.get("timestamp", item.get("timestamp"))))
        messages[-1][1].extend(content)
    return [Message(role, tuple(content), timestamp=time_from_text(time)) for role, content, time in messages]  # type: ignore[arg-type]


def _request_part(part: Json) -> tuple[str, list[Part]]:
    call, content = text_in(part, "tool_call_id"), part.get("content")
    match text_in(part, "part_kind"):
        case "system-prompt" if isinstance(content, str):
            return "system", [Text(content)]
        case "user-prompt":
            return "user", _content(content)
        case "tool-return" if call is not None:
            return "tool", [_returned(call, content, is_error=part.get("outcome") in _FAILED)]
        case "retry-prompt" if call is not None and text_in(part, "tool_name"):
            return "tool", [ToolResult(call, _retry(content), is_error=True)]
        case "retry-prompt" | "retry-feedback":
            return "user", [Text(_retry(content), synthetic=True)]
    return "", []


def _returned(call: str, content: Any, *, is_error: bool) -> ToolResult:
    """A result, which may have files in it."""
    pieces = content if isinstance(content, list) else [content]
    if any(isinstance(piece, dict) and piece.get("kind") in (*_URLS, "binary") for piece in pieces):
        parts = tuple(part for part in _content(content) if isinstance(part, ContentPart))
        return ToolResult(call, parts, is_error=is_error)
    return result_of(call, content, is_error=is_error)


def _retry(content: Any) -> str:
    return content if isinstance(content, str) else json_text(content)


def _content(content: Any) -> list[Part]:
    """Text, images and files; text is short for a list with one."""
    parts: list[Part] = []
    for piece in content if isinstance(content, list) else [content]:
        match piece:
            case str():
                parts.append(Text(piece))
            case {"kind": "text-content" | "structured-content", "content": str(text)}:
                parts.append(Text(text))
            case {"kind": "binary", "data": str(data)}:
                # Written in the alphabet of URLs, without padding or with it.
                plain = data.translate(str.maketrans("-_", "+/")).rstrip("=")
                padded = plain + "=" * (-len(plain) % 4)
                parts.append(media_of(text_in(piece, "media_type"), base64=padded) or Text("[file]"))
            case {"kind": str(kind), "url": str(url)} if kind in _URLS and url:
                media_type = text_in(piece, "media_type") or _URLS[kind]
                media = media_of(media_type, url=url) if media_type else FileRef.from_url(url)
                parts += [media] if media is not None else []
    return parts


# -- responses


def _response(parts: list[Json], item: Json) -> list[Message]:
    name = text_in(item, "model_name")
    provider = text_in(item, "provider_name") or (text_in(item, "model_id") or "").partition(":")[0] or "unknown"
    model = None if name is None else ModelRef(provider, name)
    calls: dict[str, ToolCall] = {}  # call id -> call; a result of the provider replaces its call
    answer: list[Part | str] = []  # the id of a call stands for it
    for part in parts:
        part_items = _response_part(part, model, calls)
        answer += part_items
    answer_parts = tuple(calls[answer_item] if isinstance(answer_item, str) else answer_item for answer_item in answer)
    if not answer_parts:
        return []
    meta = _meta(item, model, {id: "not a JSON object" for id, call in calls.items() if call.raw_args_text is not None})
    return [Message("assistant", answer_parts, meta=meta, timestamp=time_from_text(item.get("timestamp")))]


def _response_part(part: Json, model: ModelRef | None, calls: dict[str, ToolCall]) -> list[Part | str]:
    content, call, tool = part.get("content"), text_in(part, "tool_call_id"), text_in(part, "tool_name")
    match text_in(part, "part_kind"):
        case "text" if isinstance(content, str):
            return [Text(content)]
        case "thinking":
            return [_thinking(part, content if isinstance(content, str) else "", model)]
        case "tool-call" | "builtin-tool-call" as kind if call and tool and call not in calls:
            calls[call] = _call(part, call, tool, is_client=kind == "tool-call")
            return [call]
        case "builtin-tool-return" if call in calls and calls[call].executed_by == "provider":
            result = result_of(call, content, is_error=part.get("outcome") in _FAILED)
            pending = calls[call]
            calls[call] = ToolCall(call, pending.tool_name, pending.arguments, executed_by="provider", result=result)
    return []


def _call(part: Json, call: str, tool: str, *, is_client: bool) -> ToolCall:
    args, raw = part.get("args"), None
    if isinstance(args, str):
        parsed = parse_object(args.encode("utf-8", "replace")) if args else {}
        args, raw = (parsed, None) if isinstance(parsed, dict) else ({}, args)
    arguments = args if isinstance(args, dict) else {}
    return ToolCall(call, tool, arguments, raw_args_text=raw, executed_by="client" if is_client else "provider")


def _thinking(part: Json, text: str, model: ModelRef | None) -> Thinking:
    """The thinking, with the signature that its provider expects back."""
    provider = text_in(part, "provider_name") or (model.provider if model else None)
    signature, id = text_in(part, "signature"), text_in(part, "id")
    if provider is None or signature is None:
        return Thinking(text)
    data: Json = {"signature": signature}
    if id == _REDACTED:
        data = {"type": _REDACTED, "data": signature}
    elif provider.startswith("google"):
        data = {"thought": True, "thoughtSignature": signature}
    return Thinking(text, continuation=Continuation(provider, model.model if model else "unknown", data))


def _meta(item: Json, model: ModelRef | None, bad: dict[str, str]) -> Meta:
    counts = object_in(item, "usage")
    detail = value_in(counts, "details", "reasoning_tokens")
    used = usage_of(
        counts.get("input_tokens"),
        counts.get("output_tokens"),
        cache_read=counts.get("cache_read_tokens"),
        cache_write=counts.get("cache_write_tokens"),
        reasoning=counts.get("output_reasoning_tokens", detail),
        includes_cache=True,
    )
    reason = text_in(item, "finish_reason")
    return Meta(
        model=model,
        response_id=text_in(item, "provider_response_id"),
        usage=used,
        cost_usd=amount(counts.get("cost")),
        finish_reason=_FINISH.get(reason or ""),
        raw_finish_reason=reason,
        bad_args=bad or None,
        aborted=item.get("state") in ("interrupted", "incomplete"),
    )


# -- writing


def write(outgoing: Outgoing) -> WrittenTranscript:
    """A list of requests and responses."""
    losses = Losses("")
    writer = _Writer(losses)
    for entry, message in outgoing_messages(outgoing, losses):
        writer.add(entry, message)
    return write_list(outgoing, writer.items, losses)


class _Writer:
    def __init__(self, losses: Losses) -> None:
        self.items: list[Json] = []
        self._losses = losses
        self._tools: dict[str, str] = {}  # call id -> tool name

    def add(self, entry: Entry, message: Message) -> None:
        """Add a message. Everything between two answers is one request."""
        time = time_text(entry.timestamp)
        if message.role == "assistant":
            parts = [piece for part in message.parts for piece in self._answer_part(part, entry)]
            self.items.append({"kind": "response", "parts": parts, "timestamp": time, **_about(message.meta or Meta())})
            return
        parts = [piece for part in message.parts for piece in self._result(part, time)]
        if message.role == "system":
            parts = [{"part_kind": "system-prompt", "content": message.text, "timestamp": time}]
        elif message.role == "user":
            content = [piece for part in message.parts if (piece := self._piece(part, entry)) is not None]
            prompt = content[0] if len(content) == 1 and isinstance(content[0], str) else content
            parts = [{"part_kind": "user-prompt", "content": prompt, "timestamp": time}] if content else []
        if parts and self.items and self.items[-1]["kind"] == "request":
            self.items[-1]["parts"] += parts
        elif parts:
            self.items.append({"kind": "request", "parts": parts, "timestamp": time})

    def _piece(self, part: Part, entry: Entry) -> Any:
        match part:
            case Text():
                return None if part.ignored else part.text
            case Image() | FileRef() if part.data is not None:
                kind = part.mime_type or "application/octet-stream"
                return {"kind": "binary", "data": urlsafe_b64encode(part.data).decode(), "media_type": kind}
            case Image(url=str(url)):
                return {"kind": "image-url", "url": url}
            case FileRef(url=str(url)):
                return {"kind": "document-url", "url": url, "media_type": part.mime_type or "application/octet-stream"}
        name = part.path if isinstance(part, FileRef) else part.kind
        self._losses.add(f"entry {entry.seq}", "file", "its content is not part of the session")
        return f"[file: {name}]"

    def _answer_part(self, part: Part, entry: Entry) -> list[Json]:
        match part:
            case Text() if not part.ignored:
                return [{"part_kind": "text", "content": part.text}]
            case Thinking():
                return [{"part_kind": "thinking", "content": part.text, **self._signature(part, entry)}]
            case ToolCall(executed_by="client"):
                self._tools[part.tool_call_id] = part.tool_name
                args: Any = part.arguments if part.raw_args_text is None else part.raw_args_text
                call = {"tool_name": part.tool_name, "args": args, "tool_call_id": part.tool_call_id}
                return [{"part_kind": "tool-call", **call}]
            case ToolCall():
                self._losses.add(part.tool_call_id, f"call of {part.tool_name}", "only its provider can read it")
        return []

    def _signature(self, part: Thinking, entry: Entry) -> Json:
        continuation = part.continuation
        if continuation is None:
            return {}
        if text := text_in(continuation.data, "signature") or text_in(continuation.data, "thoughtSignature"):
            return {"signature": text, "provider_name": continuation.provider}
        if text := text_in(continuation.data, "data"):
            return {"signature": text, "provider_name": continuation.provider, "id": _REDACTED}
        self._losses.add(f"entry {entry.seq}", "continuation data", f"only {continuation.provider} can read it")
        return {}

    def _result(self, part: Part, time: str) -> list[Json]:
        if not isinstance(part, ToolResult):
            return []
        content: Any = (part.metadata or {}).get(STRUCTURED, part.content)
        if isinstance(part.content, tuple):
            content = [self._media(item) for item in part.content]
            content = "\n".join(content) if all(isinstance(piece, str) for piece in content) else content
        return [
            {
                "part_kind": "tool-return",
                "tool_name": self._tools.get(part.tool_call_id, "unknown"),
                "content": content,
                "tool_call_id": part.tool_call_id,
                "outcome": "failed" if part.is_error else "success",
                "timestamp": time,
            }
        ]

    def _media(self, part: Text | Image | FileRef) -> Any:
        if isinstance(part, Text):
            return part.text
        if part.data is None:
            return f"[file: {part.url or part.kind}]"
        kind = part.mime_type or "application/octet-stream"
        return {"kind": "binary", "data": urlsafe_b64encode(part.data).decode(), "media_type": kind}


def _about(meta: Meta) -> Json:
    fields: Json = {"usage": {}}
    if meta.usage is not None:
        used = meta.usage
        fields["usage"] = {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cache_read_tokens": used.cache_read_tokens or 0,
            "cache_write_tokens": used.cache_write_tokens or 0,
            "details": {"reasoning_tokens": used.reasoning_tokens or 0},
        }
    if meta.model is not None:
        fields |= {"model_name": meta.model.model, "provider_name": meta.model.provider}
    if meta.response_id is not None:
        fields["provider_response_id"] = meta.response_id
    if meta.finish_reason in _REASONS:
        fields["finish_reason"] = _REASONS[meta.finish_reason]
    return fields


PYDANTIC_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=list_joined)
