"""Transcripts of pi, versions 1 to 3 of its files.

The first line is the header. Every other line is an entry with an id and the id of the entry that it follows, so a file
is a tree; the last line is the end of the current branch. Version 1 has no ids: each entry follows the one before it.

Messages of all providers have one shape. A signature of thinking is what the API of the message needs: a signature of
Anthropic, or a whole item of the Responses API as JSON text.

When pi continues a file, it turns what another provider cannot read into text or drops it. So every message that is
written keeps its provider and model, and thinking its signature.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.losses import Losses
from bartack.formats.media import exact_data
from bartack.formats.openai_responses.input_items import InputItems
from bartack.formats.openai_responses.items import ResponsesContinuation
from bartack.formats.usage import amount, token_count
from bartack.nouns.deltas import Failed, FinishReason, Usage
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    RunEnded,
    SessionHeader,
    StreamFailed,
    ThinkingLevelChange,
)
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import as_uuid
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import (
    ContentPart,
    Continuation,
    FileRef,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.session.tool_state import output_text
from bartack_transcripts.transcript import START, Files, ReadReport, Record, Transcript, TranscriptStep, first_record_id
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    parse_lines,
    parse_object,
    read_messages,
    short_line,
    text_in,
    thinking_level,
    time_from_ms,
    time_from_text,
    usage_of,
    value_in,
)
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, json_line, time_text

__all__ = ["PI_WRITER", "looks_like_pi", "read_pi"]

_RECOGNISED = re.compile(rb'"type"\s*:\s*"session"')
_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "toolUse": "tool_calls"}
_ANSWER_PARTS = Text | Thinking | ToolCall
_GOOGLE = "google-"  # the beginning of the names of its APIs


def looks_like_pi(name: str, head: bytes) -> bool:
    """Whether a file begins with the header of a session."""
    return name.endswith(".jsonl") and _RECOGNISED.search(head.partition(b"\n")[0]) is not None


def read_pi(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next(iter(files), None)
    if name is None:
        return []
    report = ReadReport()
    lines = parse_lines(name, files[name], report)
    reader = _Reader(report)
    for record, json in lines:
        reader.add(record, json)
    id = reader.id
    own_id = id or first_record_id(files[name])
    return [Transcript("pi", own_id, reader.header(), reader.steps, report, has_own_id=id is not None)]


def _id_in_path(path: str) -> str:
    """The session of a file, as its program names it: the id follows the time."""
    return PurePosixPath(path).stem.rpartition("_")[2]


class _Reader:
    """Makes one step of each line."""

    def __init__(self, report: ReadReport) -> None:
        self.steps: list[TranscriptStep] = []
        self._report = report
        self._messages = MessageFacts()
        self._step_of: dict[str, int] = {}
        self._entries: list[int] = []  # the step of each entry
        self._lines: list[int] = []  # line numbers, the header being line 0; version 1 refers to entries by them
        self._meta: Json = {}
        self._name: str | None = None
        self._prompt: str | None = None

    @property
    def id(self) -> str | None:
        return text_in(self._meta, "id")

    def header(self) -> SessionHeader:
        metadata: Json = {"program": "pi"}
        if directory := text_in(self._meta, "cwd"):
            metadata["directory"] = directory
        if parent := text_in(self._meta, "parentSession"):
            metadata["forkedFrom"] = f"pi:{_id_in_path(parent)}"
        return SessionHeader(title=short_line(self._name or self._prompt), origin="pi", metadata=metadata)

    def add(self, record: Record, json: Json) -> None:
        """Add the next line."""
        kind = text_in(json, "type") or "no type"
        message = json.get("message")
        role = text_in(message, "role")
        facts: Sequence[Fact] = ()
        if json:
            try:
                facts = self._facts_of(kind, json, record)
                is_read = bool(facts) or kind in ("session", "session_info", "label")
                self._report.add(f"{kind}/{role}" if role else kind, "read" if is_read else "opaque")
            except PartValidationError as error:  # such as a call without an id
                self._report.damaged(record, str(error))
        number, parent = len(self.steps), self._parent_of(json)
        refers = text_in(json, "firstKeptEntryId") or text_in(json, "fromId")
        refers_to = None if refers is None else self._step_of.get(refers)
        index = token_count(json.get("firstKeptEntryIndex"))
        if index is not None and 0 < index < len(self._lines):
            refers_to = self._lines[index]
        time = time_from_text(json.get("timestamp"))
        self.steps.append(TranscriptStep(tuple(facts), (record,), time, parent, refers_to))
        self._lines += [number] if json else []
        if kind != "session" and json:
            self._entries.append(number)
            if id := text_in(json, "id"):
                self._step_of[id] = number

    def _parent_of(self, json: Json) -> int | None:
        """The step that a line follows, unless it is the last one."""
        if not self._entries or "parentId" not in json:
            return None
        parent = text_in(json, "parentId")
        if parent is None:
            return START
        step = self._step_of.get(parent)
        return None if step is None or step == self._entries[-1] else step

    def _facts_of(self, kind: str, json: Json, record: Record) -> Sequence[Fact]:
        match kind:
            case "session":
                self._meta = self._meta or json
                provider, name = text_in(json, "provider"), text_in(json, "modelId")  # version 1
                return self._model_change(provider, name)
            case "message":
                message = json.get("message")
                return self._message(message, json, record) if isinstance(message, dict) else ()
            case "model_change":
                return self._model_change(text_in(json, "provider"), text_in(json, "modelId"))
            case "thinking_level_change" if level := thinking_level(json.get("thinkingLevel")):
                return (ThinkingLevelChange(level=level),)
            case "compaction" if summary := text_in(json, "summary"):
                return (
                    CompactionSummary(
                        summary=summary, first_kept_entry_id="", tokens_before=token_count(json.get("tokensBefore"))
                    ),
                )
            case "branch_summary" if summary := text_in(json, "summary"):
                return (BranchSummary(summary=summary, from_entry_id=""),)
            case "custom_message":  # part of the context, also if pi does not display it
                return self._user(json, json.get("content"), synthetic=True)
            case "session_info":
                self._name = text_in(json, "name") or self._name
        return ()

    def _model_change(self, provider: str | None, name: str | None) -> Sequence[Fact]:
        model = None if provider is None or name is None else ModelRef(provider, name)
        return self._messages.switch_to(model)

    # -- messages

    def _message(self, message: Json, json: Json, record: Record) -> Sequence[Fact]:
        match text_in(message, "role"):
            case "user":
                facts = self._user(json, message.get("content"))
                for fact in facts:
                    self._prompt = self._prompt or (_typed(fact.text) if isinstance(fact, Message) else None)
                return facts
            case "assistant":
                return self._answer(message, json, record)
            case "toolResult":
                return self._result(message, json)
            case "bashExecution":
                text = f"Ran `{text_in(message, 'command') or ''}`\n{text_in(message, 'output') or ''}"
                is_hidden = message.get("excludeFromContext") is True
                return self._user(json, text, synthetic=True, ignored=is_hidden)
            case "custom" | "hookMessage":
                return self._user(json, message.get("content"), synthetic=True)
            case "compactionSummary" | "branchSummary" if summary := text_in(message, "summary"):
                return self._user(json, summary, synthetic=True)
        return ()

    def _user(self, json: Json, content: Any, *, synthetic: bool = False, ignored: bool = False) -> Sequence[Fact]:
        parts = tuple(
            replace(part, synthetic=synthetic, ignored=ignored) if isinstance(part, Text) else part
            for part in _content(content)
        )
        return (self._stamped(json, Message("user", parts)),) if parts else ()

    def _answer(self, message: Json, json: Json, record: Record) -> Sequence[Fact]:
        provider, name = text_in(message, "provider"), text_in(message, "model")
        model = None if provider is None or name is None else ModelRef(provider, name)
        parts = self._answer_parts(message, model, record)
        usage, cost = message.get("usage"), None
        counts = usage if isinstance(usage, dict) else {}
        if isinstance(counts.get("cost"), dict):
            cost = amount(counts["cost"].get("total"))
        used = usage_of(
            counts.get("input"),
            counts.get("output"),
            cache_read=counts.get("cacheRead"),
            cache_write=counts.get("cacheWrite"),
            reasoning=counts.get("reasoning"),
        )
        reason, changes = text_in(message, "stopReason") or "", self._model_change(provider, name)
        if reason == "error":
            text = text_in(message, "errorMessage") or ""
            status = re.match(r"(\d{3})\b", text)
            code = classify(int(status[1]) if status else None, None, text)
            failed = Failed(code, text, status=int(status[1]) if status else None)
            used = replace(used, cost=cost) if used is not None and used.total_tokens else None
            return (*changes, StreamFailed(error=failed, parts=parts, usage=used, model=model))
        meta = Meta(
            model=model,
            response_id=text_in(message, "responseId"),
            usage=used,
            cost_usd=cost,
            finish_reason=_FINISH.get(reason),
            raw_finish_reason=text_in(message, "rawStopReason") or reason or None,
            aborted=reason == "aborted",
        )
        aborted = (RunEnded(status="aborted", reason="user"),) if reason == "aborted" else ()
        if not parts:
            return (*changes, *aborted)
        answer = self._messages.of(self._stamped(json, Message("assistant", parts, meta=meta)))
        return (*changes, *answer, *aborted)

    def _answer_parts(self, message: Json, model: ModelRef | None, record: Record) -> tuple[_ANSWER_PARTS, ...]:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts: list[_ANSWER_PARTS] = []
        api = text_in(message, "api") or ""
        call_ids: set[str] = set()
        for block in content if isinstance(content, list) else []:
            match block:
                case {"type": "text", "text": str(text)}:
                    signature = block.get("textSignature") if api.startswith(_GOOGLE) else None
                    parts.append(Text(text, continuation=_signed(signature, model)))
                case {"type": "thinking"}:
                    parts += self._thinking(block, api, model, record)
                case {"type": "toolCall", "id": str(id), "name": str(name)} if id and id not in call_ids:
                    arguments = block.get("arguments")
                    call_ids.add(id)
                    continuation = _signed(block.get("thoughtSignature"), model)
                    parts.append(
                        ToolCall(id, name, arguments if isinstance(arguments, dict) else {}, continuation=continuation)
                    )
        return tuple(parts)

    def _thinking(self, block: Json, api: str, model: ModelRef | None, record: Record) -> Sequence[Thinking]:
        """The thinking, with what its API needs to accept it again."""
        text, signature = text_in(block, "thinking") or "", text_in(block, "thinkingSignature")
        if signature is None or model is None:
            return (Thinking(text),)
        if api.endswith("-responses"):  # the Responses API of OpenAI, Azure or Codex
            item = parse_object(signature.encode())
            if isinstance(item, dict):
                body: Json = {"model": model.model, "input": [item]}
                messages = read_messages("openai-responses", body, model.provider, record, self._report)
                thinking = [part for message in messages for part in message.parts if isinstance(part, Thinking)]
                return thinking or (Thinking(text),)
        is_redacted = block.get("redacted") is True
        data: Json = {"type": "redacted_thinking", "data": signature} if is_redacted else {"signature": signature}
        if api.startswith(_GOOGLE):
            data = {"thought": True, "thoughtSignature": signature}
        elif api != "anthropic-messages":
            data = {"thinkingSignature": signature}
        return (Thinking("" if is_redacted else text, continuation=Continuation(model.provider, model.model, data)),)

    def _result(self, message: Json, json: Json) -> Sequence[Fact]:
        call = text_in(message, "toolCallId")
        if call is None:
            return ()
        parts = _content(message.get("content"))
        content: ToolContent = tuple(parts)
        if all(isinstance(part, Text) for part in parts) and len(parts) <= 1:
            content = parts[0].text if parts and isinstance(parts[0], Text) else ""
        result = ToolResult(call, content, is_error=message.get("isError") is True)
        return self._messages.of(self._stamped(json, Message("tool", (result,))))

    def _stamped(self, json: Json, message: Message) -> Message:
        own = value_in(json, "message", "timestamp")
        time = time_from_text(json.get("timestamp")) or time_from_ms(own)
        return replace(message, id=text_in(json, "id"), timestamp=time)


def _signed(signature: Any, model: ModelRef | None) -> Continuation | None:
    """What Google needs to accept a text or call again."""
    if model is None or not isinstance(signature, str) or not signature:
        return None
    return Continuation(model.provider, model.model, {"thoughtSignature": signature})


def _typed(text: str) -> str:
    """A prompt without the files that it begins with."""
    return text.rpartition("</file>")[2].strip() or text if text.startswith("<file ") else text


def _content(content: Any) -> list[ContentPart]:
    """Text and images; text is short for a list with one."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[ContentPart] = []
    for block in content if isinstance(content, list) else []:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(Text(text))
            case {"type": "image", "data": str(data), "mimeType": str(kind)}:
                decoded = exact_data(f"data:{kind};base64,{data}")
                parts.append(Text("[image]") if decoded is None else Image(kind, data=decoded[1]))
    return parts


# -- writing

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


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The lines of a conversation."""
    writer = _Writer(outgoing)
    time = time_text(outgoing.started)
    if outgoing.last_record is None:
        header = {"type": "session", "version": 3, "id": outgoing.id, "timestamp": time, "cwd": outgoing.directory}
        writer.lines.append(header)
    for entry in outgoing.entries:
        writer.add(entry)
    if outgoing.title:
        writer.line(outgoing.entries[-1], {"type": "session_info", "name": outgoing.title}, suffix="title")
    name = f"{time.replace(':', '-').replace('.', '-')}_{outgoing.id}.jsonl"
    return WrittenTranscript(name, b"".join(map(json_line, writer.lines)), tuple(writer.losses.found))


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self.lines: list[Json] = []
        self.losses = Losses("")
        self._outgoing = outgoing
        self._parent = (
            text_in(outgoing.last_record, "id") if text_in(outgoing.last_record, "type") != "session" else None
        )
        self._ids: dict[str, str] = {}  # entry id -> id in the file
        self._used: set[str] = set()
        self._model = ModelRef("unknown", "unknown")
        self._calls: dict[str, str] = {}  # the tool of each call

    def line(self, entry: Entry, fields: Json, *, suffix: str = "") -> None:
        """Add an entry after the one before it."""
        digits = as_uuid(entry.id + suffix if suffix else entry.id).replace("-", "")
        id = next(digits[start : start + 8] for start in range(25) if digits[start : start + 8] not in self._used)
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
                first_kept_id = next((self._ids[id] for id in self._outgoing.kept_by(entry) if id in self._ids), None)
                fields: Json = {"type": "compaction", "summary": compaction.summary}
                fields |= {"tokensBefore": compaction.tokens_before or 0}
                # Nothing is kept if the first kept entry is the compaction itself, which has no id yet.
                self.line(entry, fields)
                self.lines[-1]["firstKeptEntryId"] = first_kept_id or self._ids[entry.id]
            case BranchSummary() as other:
                branch_end_id = self._ids.get(other.from_entry_id) or self._parent or "root"
                self.line(entry, {"type": "branch_summary", "fromId": branch_end_id, "summary": other.summary})
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
    continuations = [
        part.continuation for part in message.parts if isinstance(part, Thinking) and part.continuation is not None
    ]
    keys = [
        key for continuation in continuations if continuation.provider == model.provider for key in continuation.data
    ]
    return next((api for key, api in _APIS_BY_THINKING.items() if key in keys), _OTHER_API)


def _signature(part: Text | ToolCall, field: str, model: ModelRef) -> Json:
    """The signature with which Google accepts a text or call again."""
    continuation = part.continuation
    signature = (
        text_in(continuation.data, "thoughtSignature")
        if continuation is not None and continuation.provider == model.provider
        else None
    )
    return {} if signature is None else {field: signature}


def _thinking(part: Thinking, model: ModelRef) -> list[Json]:
    """The thinking, with the signature that its API expects."""
    continuation = part.continuation
    block: Json = {"type": "thinking", "thinking": part.text}
    if continuation is None or continuation.provider != model.provider:
        return [block] if part.text else []
    for key in ("signature", "thinkingSignature", "thoughtSignature"):
        if text := text_in(continuation.data, key):
            return [block | {"thinkingSignature": text}]
    if text := text_in(continuation.data, "data"):
        return [block | {"thinkingSignature": text, "redacted": True}]
    losses = Losses(continuation.provider)
    losses.expect(ResponsesContinuation)
    items = InputItems(losses, stored=False)
    items.add(Message("assistant", (part, Text("x"))), 0)
    reasoning = next((item for item in items.items() if item.get("type") == "reasoning"), None)
    return [block] if reasoning is None else [block | {"thinkingSignature": msgspec.json.encode(reasoning).decode()}]


def _usage(usage: Usage | None, cost: float | None) -> Json:
    cache_read = (usage.cache_read_tokens if usage else None) or 0
    cache_write = (usage.cache_write_tokens if usage else None) or 0
    total = usage.total_tokens if usage else 0
    return {
        "input": max(0, (usage.input_tokens if usage else 0) - cache_read - cache_write),
        "output": usage.output_tokens if usage else 0,
        "cacheRead": cache_read,
        "cacheWrite": cache_write,
        "totalTokens": total,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost or 0},
    }


def _folder(outgoing: Outgoing) -> str:
    path = outgoing.directory.lstrip("/").replace("/", "-").replace("\\", "-").replace(":", "-")
    return f"sessions/--{path}--"


PI_WRITER = TranscriptWriter(write, _folder, "pi --session {id}", is_tree=True, has_branch_summaries=True)
