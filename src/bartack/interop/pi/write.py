"""Writes files of pi.

Messages of all providers have one shape there, and pi itself turns what another provider cannot read into text or drops
it. So every message keeps its provider and model, and thinking its signature.
"""

from base64 import b64encode
from typing import Any

import msgspec

from bartack.formats.losses import Losses
from bartack.formats.openai_responses.input_items import InputItems
from bartack.formats.openai_responses.items import Kept
from bartack.interop.values import Json, text_in
from bartack.interop.writing import Outgoing, TranscriptWriter, Written, json_line, time_text
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    ModelChange,
    StreamFailed,
    ThinkingLevelChange,
)
from bartack.nouns.ids import as_uuid
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text

__all__ = ["PI_WRITER"]

_APIS = {"anthropic": "anthropic-messages", "openai": "openai-responses", "google": "google-generative-ai"}
_OTHER_API = "openai-completions"
# What signed thinking has, if the provider is not known by its name. The program sends it back to the same API only.
_APIS_BY_THINKING = {
    "signature": "anthropic-messages",
    "data": "anthropic-messages",
    "thoughtSignature": "google-generative-ai",
    "item": "openai-responses",
}
_STOP_REASONS = {"stop": "stop", "tool_calls": "toolUse", "length": "length"}
_LEVELS = {"none": "off", "max": "xhigh"}


def write(outgoing: Outgoing) -> Written:
    """The lines of a conversation."""
    writer = _Writer(outgoing)
    time = time_text(outgoing.started)
    if outgoing.after is None:
        header = {"type": "session", "version": 3, "id": outgoing.id, "timestamp": time, "cwd": outgoing.directory}
        writer.lines.append(header)
    for entry in outgoing.entries:
        writer.add(entry)
    if outgoing.title:
        writer.line(outgoing.entries[-1], {"type": "session_info", "name": outgoing.title}, suffix="title")
    name = f"{time.replace(':', '-').replace('.', '-')}_{outgoing.id}.jsonl"
    return Written(name, b"".join(map(json_line, writer.lines)), tuple(writer.losses.found))


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self.lines: list[Json] = []
        self.losses = Losses("")
        self._outgoing = outgoing
        self._parent = text_in(outgoing.after, "id") if text_in(outgoing.after, "type") != "session" else None
        self._ids: dict[str, str] = {}  # by entry
        self._used: set[str] = set()
        self._model = ModelRef("unknown", "unknown")
        self._calls: dict[str, str] = {}  # the tool of each call

    def line(self, entry: Entry, fields: Json, *, suffix: str = "") -> None:
        """Add an entry after the one before it."""
        whole = as_uuid(entry.id + suffix if suffix else entry.id).replace("-", "")
        id = next(whole[at : at + 8] for at in range(25) if whole[at : at + 8] not in self._used)
        self._used.add(id)
        self.lines.append({**fields, "id": id, "parentId": self._parent, "timestamp": time_text(entry.timestamp)})
        self._parent = self._ids[entry.id] = id

    def add(self, entry: Entry) -> None:
        """Add what an entry becomes."""
        match entry.fact:
            case Message() as message:
                self._message(entry, message)
            case ModelChange(model=model):
                self.line(entry, {"type": "model_change", "provider": model.provider, "modelId": model.model})
                self._model = model
            case ThinkingLevelChange(level=level):
                self.line(entry, {"type": "thinking_level_change", "thinkingLevel": _LEVELS.get(level, level)})
            case CompactionSummary() as compaction:
                kept = next((self._ids[id] for id in self._outgoing.kept_by(entry) if id in self._ids), None)
                fields: Json = {"type": "compaction", "summary": compaction.summary}
                fields |= {"tokensBefore": compaction.tokens_before or 0}
                # Nothing is kept if the first kept entry is the compaction itself, which has no id yet.
                self.line(entry, fields)
                self.lines[-1]["firstKeptEntryId"] = kept or self._ids[entry.id]
            case BranchSummary() as other:
                left = self._ids.get(other.from_entry_id) or self._parent or "root"
                self.line(entry, {"type": "branch_summary", "fromId": left, "summary": other.summary})
            case StreamFailed() as failed:
                answer = self._answer(entry, [], Meta(model=failed.model, usage=failed.usage), "error")
                answer["errorMessage"] = failed.error.message
                self.line(entry, {"type": "message", "message": answer})
            case _:
                pass

    def _message(self, entry: Entry, message: Message) -> None:
        ms = int(entry.timestamp.timestamp() * 1000)
        match message.role:
            case "user":
                content = [block for part in message.parts for block in self._content(part)]
                if content:
                    body: Json = {"role": "user", "content": content, "timestamp": ms}
                    self.line(entry, {"type": "message", "message": body})
            case "assistant":
                meta = message.meta or Meta()
                reason = "aborted" if meta.aborted else _STOP_REASONS.get(meta.finish_reason or "stop", "stop")
                model = meta.model or self._model
                blocks = [block for part in message.parts for block in self._answer_block(part, model)]
                answer = self._answer(entry, blocks, meta, reason, _api_of(message, model))
                self.line(entry, {"type": "message", "message": answer})
            case "tool":
                for number, result in enumerate(message.tool_results):
                    body = self._result(result) | {"timestamp": ms}
                    self.line(entry, {"type": "message", "message": body}, suffix=str(number or ""))
            case _:
                self.losses.add(f"entry {entry.seq}", "system message", "the program has its own instructions")

    def _answer(self, entry: Entry, blocks: list[Json], meta: Meta, reason: str, api: str = _OTHER_API) -> Json:
        model = meta.model or self._model
        return {
            "role": "assistant",
            "content": blocks,
            "api": _APIS.get(model.provider) or api,
            "provider": model.provider,
            "model": model.model,
            **({} if meta.response_id is None else {"responseId": meta.response_id}),
            "usage": _usage(meta.usage, meta.cost_usd),
            "stopReason": reason,
            "timestamp": int(entry.timestamp.timestamp() * 1000),
        }

    def _answer_block(self, part: Any, model: ModelRef) -> list[Json]:
        match part:
            case Text():
                signed = _signature(part, "textSignature", model)
                return [] if part.ignored else [{"type": "text", "text": part.text, **signed}]
            case Thinking():
                return _thinking(part, model)
            case ToolCall():
                self._calls[part.tool_call_id] = part.tool_name
                if part.executed_by == "provider":
                    why = "only its provider can read it"
                    self.losses.add(part.tool_call_id, f"call of {part.tool_name}", why)
                    return []
                if part.raw_args_text is not None:
                    why = "arguments must be a JSON object; an empty one is written"
                    self.losses.add(part.tool_call_id, "invalid arguments", why)
                call = {"id": part.tool_call_id, "name": part.tool_name, "arguments": part.arguments}
                return [{"type": "toolCall", **call, **_signature(part, "thoughtSignature", model)}]
        return []

    def _result(self, result: ToolResult) -> Json:
        content = [{"type": "text", "text": output_text(result)}]
        if isinstance(result.content, tuple):
            content = [block for part in result.content for block in self._content(part)]
        elif result.content == "":
            content = []
        return {
            "role": "toolResult",
            "toolCallId": result.tool_call_id,
            "toolName": self._calls.get(result.tool_call_id, ""),
            "content": content,
            "isError": result.is_error,
        }

    def _content(self, part: Any) -> list[Json]:
        assert isinstance(part, ContentPart)
        match part:
            case Text():
                return [] if part.ignored else [{"type": "text", "text": part.text}]
            case Image(data=bytes(data)):
                return [{"type": "image", "data": b64encode(data).decode(), "mimeType": part.mime_type}]
            case Image() | FileRef():
                name = part.path if isinstance(part, FileRef) else part.url or part.mime_type
                self.losses.add(name, "file", "pi stores text and inline images only")
                return [{"type": "text", "text": f"[file: {name}]"}]


def _api_of(message: Message, model: ModelRef) -> str:
    """The API of an answer, by its thinking."""
    kept = [part.continuation for part in message.parts if isinstance(part, Thinking) and part.continuation is not None]
    keys = [key for each in kept if each.provider == model.provider for key in each.data]
    return next((api for key, api in _APIS_BY_THINKING.items() if key in keys), _OTHER_API)


def _signature(part: Text | ToolCall, field: str, model: ModelRef) -> Json:
    """The signature with which Google accepts a text or call again."""
    kept = part.continuation
    signature = text_in(kept.data, "thoughtSignature") if kept is not None and kept.provider == model.provider else None
    return {} if signature is None else {field: signature}


def _thinking(part: Thinking, model: ModelRef) -> list[Json]:
    """The thinking, with the signature that its API expects."""
    kept = part.continuation
    block: Json = {"type": "thinking", "thinking": part.text}
    if kept is None or kept.provider != model.provider:
        return [block] if part.text else []
    for key in ("signature", "thinkingSignature", "thoughtSignature"):
        if text := text_in(kept.data, key):
            return [block | {"thinkingSignature": text}]
    if text := text_in(kept.data, "data"):
        return [block | {"thinkingSignature": text, "redacted": True}]
    losses = Losses(kept.provider)
    losses.expect(Kept)
    items = InputItems(losses, stored=False)
    items.add(Message("assistant", (part, Text("x"))), 0)
    reasoning = next((item for item in items.items() if item.get("type") == "reasoning"), None)
    return [block] if reasoning is None else [block | {"thinkingSignature": msgspec.json.encode(reasoning).decode()}]


def _usage(usage: Usage | None, cost: float | None) -> Json:
    read = (usage.cache_read_tokens if usage else None) or 0
    written = (usage.cache_write_tokens if usage else None) or 0
    total = usage.total_tokens if usage else 0
    return {
        "input": max(0, (usage.input_tokens if usage else 0) - read - written),
        "output": usage.output_tokens if usage else 0,
        "cacheRead": read,
        "cacheWrite": written,
        "totalTokens": total,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost or 0},
    }


def _folder(outgoing: Outgoing) -> str:
    path = outgoing.directory.lstrip("/").replace("/", "-").replace("\\", "-").replace(":", "-")
    return f"sessions/--{path}--"


PI_WRITER = TranscriptWriter(write, _folder, "pi --session {id}", is_tree=True, has_branch_summaries=True)
