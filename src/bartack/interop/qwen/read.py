"""Transcripts of Qwen Code, 0.5 to 0.24.

A line has an id and the id of the line that it follows; the last line is the end of the conversation. A line with a
``message`` is part of it, whatever its type. The content is that of Gemini's API, also for models of other providers.

Lines of type ``system`` are about the conversation. Of these, titles, compressions, failed and cancelled calls are
read. A compression has the messages that replace everything before it.

A sub-agent has a file of its own, whose name is made of its type and of the call that began it. One that continues the
conversation begins with a copy of it. Its answers can be several lines, the first with the usage.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.usage import token_count
from bartack.interop.gemini_parts import part_list, read_contents, text_of_parts
from bartack.interop.transcript import START, Files, Record, Report, Step, Transcript
from bartack.interop.values import (
    Json,
    ToolCallIds,
    parse_lines,
    parse_object,
    short_line,
    text_in,
    time_from_text,
    usage_of,
)
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import CompactionSummary, Fact, ModelChange, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Text

__all__ = ["PROVIDER", "looks_like_qwen", "read_qwen"]

PROVIDER = "qwen"  # unless the session used Gemini
_PROVIDERS = {"gemini": "google", "vertex-ai": "google"}
_RECOGNISED = re.compile(rb'"message"\s*:\s*\{\s*"role"\s*:\s*"(?:user|model)"\s*,\s*"parts"|"systemPayload"\s*:')
_SYNTHETIC = ("cron", "notification", "goal_runtime")  # prompts that the program wrote
_READ = ("custom_title", "rewind", "parent_session", "session_model")  # without facts
_AGENT = "agent-"  # the beginning of the names of their files
_INJECTED = "<system-reminder>"


def looks_like_qwen(name: str, head: bytes) -> bool:
    """Whether a file is a transcript, by its first line."""
    first = head.partition(b"\n")[0]
    return name.endswith(".jsonl") and b'"parentUuid"' in first and _RECOGNISED.search(first) is not None


def read_qwen(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next((name for name in files if name.endswith(".jsonl")), None)
    if name is None:
        return []
    reader = _Reader()
    for record, json in parse_lines(name, files[name], reader.report):
        reader.add(record, json)
    for other in files:
        if other != name and files[other]:
            reader.add_companion(Record(other, 0, files[other]))
    return [Transcript("qwen", _session_id(name), reader.header(name), reader.steps, reader.report)]


def _session_id(name: str) -> str:
    return PurePosixPath(name).stem


class _Reader:
    """Makes one step of each line."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.report = Report()
        self._calls = ToolCallIds()
        self._step_of: dict[str, int] = {}  # by the id of the line
        self._follows: dict[int, int | None] = {}  # the step before each step of the conversation
        self._content: dict[int, Any] = {}  # the parts of each message
        self._last: int | None = None
        self._provider = PROVIDER
        self._model: ModelRef | None = None
        self._usage: Usage | None = None  # of an answer that has not begun
        self._first: Json = {}
        self._title: str | None = None
        self._prompt: str | None = None
        self._outer: str | None = None  # the session that began this one
        self._about: Json = {}  # a sub-agent

    def header(self, name: str) -> SessionHeader:
        metadata: Json = {"program": "qwen"}
        for key, source in (("directory", "cwd"), ("gitBranch", "gitBranch"), ("version", "version")):
            if text := text_in(self._first, source):
                metadata[key] = text
        if origin := text_in(self._first, "forkedFrom", "sessionId"):
            metadata["forkedFrom"] = f"qwen:{origin}"
        outer = PurePosixPath(name).parent.name if "/" in name else self._outer
        if outer:
            metadata["parentSession"] = f"qwen:{outer}"
        metadata |= self._about  # which may name another sub-agent
        return SessionHeader(title=short_line(self._title or self._prompt), origin="qwen", metadata=metadata)

    def add(self, record: Record, json: Json) -> None:
        """Add the next line."""
        self._first = self._first or json
        subtype = text_in(json, "subtype")
        kind = text_in(json, "type") or "no type"
        number, parent = len(self.steps), self._parent_of(json)
        before = self._last if parent is None else None if parent == START else parent
        facts, refers_to = self._facts_of(json, before, record) if json else ((), None)
        if json:
            has_usage = self._usage is not None and "usageMetadata" in json
            is_read = bool(facts) or has_usage or subtype in _READ
            self.report.add(f"{kind}/{subtype}" if subtype else kind, "read" if is_read else "opaque")
        self.steps.append(Step(tuple(facts), (record,), time_from_text(json.get("timestamp")), parent, refers_to))
        if id := text_in(json, "uuid"):
            self._step_of.setdefault(id, number)
            self._follows[number] = before
            self._last = number

    def add_companion(self, record: Record) -> None:
        """Read a file about a sub-agent."""
        about = parse_object(record.data)
        fields = (("toolCallId", "toolUseId"), ("agent", "agentType"), ("task", "description"))
        self._about = {key: text for key, field in fields if (text := text_in(about, field))}
        if agent := text_in(about, "parentAgentId"):
            self._about["parentSession"] = f"qwen:{_file_of(agent)}"
        self.report.add("metadata", "read" if self._about else "opaque")
        self.steps.append(Step((), (record,)))

    def _parent_of(self, json: Json) -> int | None:
        """The step that a line follows, unless it is the last one."""
        if self._last is None or "parentUuid" not in json or text_in(json, "uuid") in self._step_of:
            return None  # a line with a known id continues that line
        parent = text_in(json, "parentUuid")
        if parent is None:
            return START
        step = self._step_of.get(parent)
        return None if step is None or step == self._last else step

    def _facts_of(self, json: Json, before: int | None, record: Record) -> tuple[Sequence[Fact], int | None]:
        """The facts of a line, and for a compression the first step that it keeps."""
        payload = json.get("systemPayload")
        message = json.get("message")
        if isinstance(message, dict):
            self._content[len(self.steps)] = message.get("parts")
            return self._message(json, message, record), None
        match text_in(json, "subtype"):
            case "chat_compression":
                return self._compaction(payload, before)
            case "custom_title":
                self._title = text_in(payload, "customTitle") or self._title
            case "parent_session":
                self._outer = text_in(payload, "parentSessionId") or self._outer
            case "session_model" if name := text_in(payload, "modelId"):
                self._provider = _PROVIDERS.get(text_in(payload, "authType") or "", PROVIDER)
                return self._model_change(name), None
            case "agent_bootstrap":
                history = payload.get("history") if isinstance(payload, dict) else None
                contents = [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []
                return [fact for one in contents for fact in self._message({}, one, record)], None
            case "ui_telemetry":
                return self._event(payload), None
        return (), None

    # -- messages

    def _message(self, json: Json, message: Json, record: Record) -> Sequence[Fact]:
        role = "model" if message.get("role") == "model" else "user"
        content = {"role": role, "parts": part_list(message.get("parts"))}
        facts: list[Fact] = []
        if role == "model" and (name := text_in(json, "model")):
            facts += self._model_change(name)
        usage = _usage(json.get("usageMetadata")) or (self._usage if role == "model" else None)
        self._usage = usage if role == "model" and not content["parts"] else None
        for number, made in enumerate(read_contents([content], self._provider, record, self.report)):
            fact: Message | None = made
            if made.role == "assistant":
                reason: Any = "tool_calls" if made.tool_calls else "stop"
                meta = Meta(model=self._model, usage=usage, finish_reason=reason)
                fact = replace(self._calls.calls(made), meta=meta)
            elif made.role == "tool":
                fact = self._calls.results(_with_details(made, json.get("toolCallResult")))
            else:
                is_notice = text_in(json, "externalInputKind") == "notification"
                fact = self._prompted(made, is_synthetic=is_notice or text_in(json, "subtype") in _SYNTHETIC)
            if fact is not None:
                id = None if number else text_in(json, "uuid")
                facts.append(replace(fact, id=id, timestamp=time_from_text(json.get("timestamp"))))
        return facts

    def _model_change(self, name: str) -> list[Fact]:
        model, before = ModelRef(self._provider, name), self._model
        self._model = model
        return [] if model == before else [ModelChange(model, before)]

    def _prompted(self, message: Message, *, is_synthetic: bool) -> Message:
        parts = tuple(
            replace(part, synthetic=is_synthetic or is_injected, ignored=is_injected)
            if isinstance(part, Text) and ((is_injected := part.text.lstrip().startswith(_INJECTED)) or is_synthetic)
            else part
            for part in message.parts
        )
        typed = "".join(part.text for part in parts if isinstance(part, Text) and not part.synthetic)
        self._prompt = self._prompt or typed or None
        return replace(message, parts=parts)

    # -- what happened

    def _event(self, payload: Any) -> Sequence[Fact]:
        """A failed or cancelled call of the conversation itself, and not of an agent beside it."""
        event = payload.get("uiEvent") if isinstance(payload, dict) else None
        if not isinstance(event, dict) or text_in(event, "subagent_name"):
            return ()
        self._provider = _PROVIDERS.get(text_in(event, "auth_type") or "", PROVIDER)
        match (text_in(event, "event.name") or "").removeprefix("qwen-code."):
            case "api_error":
                text = text_in(event, "error_message") or text_in(event, "error") or ""
                status = token_count(event.get("status_code"))
                status = status if status is not None and 100 <= status < 600 else None
                name = text_in(event, "model")
                model = None if name is None else ModelRef(self._provider, name)
                code = classify(status, text_in(event, "error_type"), text)
                return (StreamFailed(Failed(code, text, status=status), model=model),)
            case "api_cancel":
                return (RunEnded("aborted", reason="user"),)
        return ()

    def _compaction(self, payload: Any, before: int | None) -> tuple[Sequence[Fact], int | None]:
        history = payload.get("compressedHistory") if isinstance(payload, dict) else None
        contents = [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []
        if not contents:
            return (), None
        kept, first = len(contents), None
        while kept > 1 and before is not None:
            while before is not None and before not in self._content:
                before = self._follows.get(before)
            if before is None or self._content[before] != contents[kept - 1].get("parts"):
                break
            kept, first = kept - 1, before
            before = self._follows.get(before)
        new = [one for one in contents[:kept] if one.get("role") != "model"]
        text = "\n\n".join(filter(None, (text_of_parts(part_list(one.get("parts"))) for one in new)))
        info = payload.get("info")
        tokens = token_count(info.get("originalTokenCount")) if isinstance(info, dict) else None
        return ((CompactionSummary(text, "", tokens_before=tokens),), first) if text else ((), None)


def _with_details(message: Message, details: Any) -> Message:
    """The results, with whether they are errors, and the session of a sub-agent."""
    is_error = text_in(details, "status") in ("error", "cancelled")
    agent = text_in(details, "resultDisplay", "subagentName")
    results = message.tool_results
    if is_error:
        results = tuple(replace(result, is_error=True) for result in results)
    if agent is not None:
        ids = (f"qwen:{_file_of(f'{agent}-{result.tool_call_id}')}" for result in results)
        results = tuple(replace(result, metadata={"sessionId": id}) for result, id in zip(results, ids, strict=True))
    return replace(message, parts=results)


def _file_of(agent: str) -> str:
    """The name of the file of a sub-agent, which is the id of its session."""
    return _AGENT + re.sub(r"[^a-zA-Z0-9_-]", "_", agent)


def _usage(given: Any) -> Usage | None:
    """The usage; Gemini counts thoughts beside the answer, other providers in it."""
    if not isinstance(given, dict):
        return None
    keys = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
    sent, answer, thoughts, total = (token_count(given.get(key)) for key in keys)
    output = answer
    if answer is not None and thoughts and (total or 0) >= (sent or 0) + answer + thoughts:
        output = answer + thoughts
    return usage_of(sent, output, read=given.get("cachedContentTokenCount"), reasoning=thoughts, includes_cache=True)
