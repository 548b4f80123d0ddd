"""Transcripts of pi, versions 1 to 3 of its files.

The first line is the header. Every other line is an entry with an id and the id of the entry that it follows, so a file
is a tree; the last line is the end of the current branch. Version 1 has no ids: each entry follows the one before it.

Messages of all providers have one shape. A signature of thinking is what the API of the message needs: a signature of
Anthropic, or a whole item of the Responses API as JSON text.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.media import exact_data
from bartack.formats.usage import amount, token_count
from bartack.interop.transcript import START, Files, Record, Report, Step, Transcript
from bartack.interop.values import (
    Json,
    ToolCallIds,
    parse_lines,
    parse_object,
    read_messages,
    short_line,
    text_in,
    thinking_level,
    time_from_ms,
    time_from_text,
    usage_of,
)
from bartack.nouns.deltas import Failed, FinishReason
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Fact,
    ModelChange,
    RunEnded,
    SessionHeader,
    StreamFailed,
    ThinkingLevelChange,
)
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ContentPart, Continuation, Image, Text, Thinking, ToolCall, ToolContent, ToolResult

__all__ = ["looks_like_pi", "read_pi"]

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
    report = Report()
    lines = parse_lines(name, files[name], report)
    reader = _Reader(report)
    for record, json in lines:
        reader.add(record, json)
    return [Transcript("pi", _session_id(name), reader.header(), reader.steps, report)]


def _session_id(name: str) -> str:
    """The id in the name of the file, after its time."""
    return PurePosixPath(name).stem.rpartition("_")[2]


class _Reader:
    """Makes one step of each line."""

    def __init__(self, report: Report) -> None:
        self.steps: list[Step] = []
        self._report = report
        self._calls = ToolCallIds()
        self._step_of: dict[str, int] = {}
        self._entries: list[int] = []  # the step of each entry
        self._lines: list[int] = []  # and with the header before them; version 1 refers to entries by their line
        self._model: ModelRef | None = None
        self._meta: Json = {}
        self._name: str | None = None
        self._prompt: str | None = None

    def header(self) -> SessionHeader:
        metadata: Json = {"program": "pi"}
        if directory := text_in(self._meta, "cwd"):
            metadata["directory"] = directory
        if parent := text_in(self._meta, "parentSession"):
            metadata["forkedFrom"] = f"pi:{_session_id(parent)}"
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
        self.steps.append(Step(tuple(facts), (record,), time, parent, refers_to))
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
                return (ThinkingLevelChange(level),)
            case "compaction" if summary := text_in(json, "summary"):
                return (CompactionSummary(summary, "", tokens_before=token_count(json.get("tokensBefore"))),)
            case "branch_summary" if summary := text_in(json, "summary"):
                return (BranchSummary(summary, ""),)
            case "custom_message":  # part of the context, also if pi does not display it
                return self._user(json, json.get("content"), synthetic=True)
            case "session_info":
                self._name = text_in(json, "name") or self._name
        return ()

    def _model_change(self, provider: str | None, name: str | None) -> Sequence[Fact]:
        model = None if provider is None or name is None else ModelRef(provider, name)
        if model is None or model == self._model:
            return ()
        change = ModelChange(model, self._model)
        self._model = model
        return (change,)

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
            read=counts.get("cacheRead"),
            written=counts.get("cacheWrite"),
            reasoning=counts.get("reasoning"),
        )
        reason, changes = text_in(message, "stopReason") or "", self._model_change(provider, name)
        if reason == "error":
            text = text_in(message, "errorMessage") or ""
            status = re.match(r"(\d{3})\b", text)
            code = classify(int(status[1]) if status else None, None, text)
            failed = Failed(code, text, status=int(status[1]) if status else None)
            used = used if used is not None and used.total_tokens else None
            return (*changes, StreamFailed(failed, parts=parts, usage=used, model=model))
        meta = Meta(
            model=model,
            response_id=text_in(message, "responseId"),
            usage=used,
            cost_usd=cost,
            finish_reason=_FINISH.get(reason),
            raw_finish_reason=text_in(message, "rawStopReason") or reason or None,
            aborted=reason == "aborted",
        )
        aborted = (RunEnded("aborted", reason="user"),) if reason == "aborted" else ()
        if not parts:
            return (*changes, *aborted)
        made = self._calls.calls(Message("assistant", parts, meta=meta))
        return (*changes, self._stamped(json, made), *aborted)

    def _answer_parts(self, message: Json, model: ModelRef | None, record: Record) -> tuple[_ANSWER_PARTS, ...]:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts: list[_ANSWER_PARTS] = []
        api = text_in(message, "api") or ""
        seen: set[str] = set()
        for block in content if isinstance(content, list) else []:
            match block:
                case {"type": "text", "text": str(text)}:
                    signature = block.get("textSignature") if api.startswith(_GOOGLE) else None
                    parts.append(Text(text, continuation=_signed(signature, model)))
                case {"type": "thinking"}:
                    parts += self._thinking(block, api, model, record)
                case {"type": "toolCall", "id": str(id), "name": str(name)} if id and id not in seen:
                    given = block.get("arguments")
                    seen.add(id)
                    kept = _signed(block.get("thoughtSignature"), model)
                    parts.append(ToolCall(id, name, given if isinstance(given, dict) else {}, continuation=kept))
        return tuple(parts)

    def _thinking(self, block: Json, api: str, model: ModelRef | None, record: Record) -> Sequence[Thinking]:
        """The thinking, with what its API needs to accept it again."""
        text, signature = text_in(block, "thinking") or "", text_in(block, "thinkingSignature")
        if signature is None or model is None:
            return (Thinking(text),)
        if api.endswith("-responses"):  # of OpenAI, Azure and Codex
            item = parse_object(signature.encode())
            if isinstance(item, dict):
                body: Json = {"model": model.model, "input": [item]}
                made = read_messages("openai-responses", body, model.provider, record, self._report)
                found = [part for one in made for part in one.parts if isinstance(part, Thinking)]
                return found or (Thinking(text),)
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
        made = self._calls.results(Message("tool", (result,)))
        return () if made is None else (self._stamped(json, made),)

    def _stamped(self, json: Json, message: Message) -> Message:
        inner = json.get("message")
        own = inner.get("timestamp") if isinstance(inner, dict) else None
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
                found = exact_data(f"data:{kind};base64,{data}")
                parts.append(Text("[image]") if found is None else Image(kind, data=found[1]))
    return parts
