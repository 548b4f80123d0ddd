"""Sessions of GitHub Copilot CLI: `events.jsonl` in the folder of a session, or a file of its own in earlier versions.

A line is an event with an id, the id of the event before it, and its data. What a sub-agent did names the call that
began it, and is kept, but not part of the conversation. Of tokens, only those of the output are stored.
"""

from collections.abc import Sequence

from bartack.formats.error_codes import classify
from bartack.formats.usage import token_count
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import CompactionSummary, Fact, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep, first_record_id
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    first_objects,
    object_in,
    objects_in,
    parse_lines,
    short_line,
    text_in,
    time_from_text,
    usage_of,
)

__all__ = ["looks_like_copilot", "read_copilot"]

_AGENT = "copilot"
_PROVIDER = "github-copilot"


def looks_like_copilot(name: str, head: bytes) -> bool:
    """Whether a file begins with the event that starts a session."""
    first = next(iter(first_objects(head)), {}) if name.endswith(".jsonl") else {}
    return first.get("type") == "session.start" and text_in(first, "data", "sessionId") is not None


def read_copilot(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next(iter(files), None)
    if name is None:
        return []
    reader = _Reader()
    for record, json in parse_lines(name, files[name], reader.report):
        reader.add(record, json)
    own_id = reader.id or first_record_id(files[name])
    return [Transcript(_AGENT, own_id, reader.header(), reader.steps, reader.report, has_own_id=reader.id is not None)]


class _Reader:
    """Makes one step of each event."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self._messages = MessageFacts()
        self._step_of: dict[str, int] = {}
        self._last: int | None = None
        self._start: Json = {}
        self._title: str | None = None
        self._prompt: str | None = None

    def header(self) -> SessionHeader:
        metadata: Json = {"program": _AGENT}
        fields = (
            ("directory", ("context", "cwd")),
            ("gitBranch", ("context", "branch")),
            ("version", ("copilotVersion",)),
        )
        for key, path in fields:
            if text := text_in(self._start, *path):
                metadata[key] = text
        return SessionHeader(title=short_line(self._title or self._prompt), origin=_AGENT, metadata=metadata)

    def add(self, record: Record, json: Json) -> None:
        """Add the next event."""
        kind = text_in(json, "type") or "no type"
        data = object_in(json, "data")
        is_of_agent = text_in(data, "parentToolCallId") is not None or text_in(json, "agentId") is not None
        number, parent = len(self.steps), self._step_of.get(text_in(json, "parentId") or "")
        time = time_from_text(json.get("timestamp"))
        facts = () if is_of_agent else self._facts_of(kind, data)
        if json:
            is_read = bool(facts) or kind in ("session.start", "session.title_changed", "session.model_change")
            self.report.add(f"{kind} of a sub-agent" if is_of_agent else kind, "read" if is_read else "opaque")
        self.steps.append(TranscriptStep(tuple(facts), (record,), time, None if parent == self._last else parent))
        id = text_in(json, "id")
        if id is not None and id not in self._step_of:
            self._step_of[id] = self._last = number

    def _facts_of(self, kind: str, data: Json) -> Sequence[Fact]:
        match kind:
            case "session.start":
                self._start = self._start or data
                self.id = self.id or text_in(data, "sessionId")
                return self._model_change(text_in(data, "selectedModel"))
            case "session.title_changed":
                self._title = text_in(data, "title") or self._title
            case "session.model_change":
                return self._model_change(text_in(data, "newModel"))
            case "user.message":
                return self._prompted(data)
            case "assistant.message":
                return self._answer(data)
            case "tool.execution_complete":
                return self._result(data)
            case "session.compaction_complete" if (summary := text_in(data, "summaryContent")) is not None:
                before = token_count(data.get("preCompactionTokens"))
                return [CompactionSummary(summary=summary, first_kept_entry_id="", tokens_before=before)]
            case "session.error":
                return [_failure(data, self._messages.model)]
            case "abort":
                return [RunEnded(status="aborted", reason="user")]
        return []

    def _model_change(self, name: str | None) -> Sequence[Fact]:
        return self._messages.switch_to(None if name is None else ModelRef(_PROVIDER, name))

    def _prompted(self, data: Json) -> Sequence[Fact]:
        text = text_in(data, "content")
        is_typed = text_in(data, "source") in (None, "user")
        parts: list[Part] = [] if text is None else [Text(text, synthetic=not is_typed)]
        paths = [text_in(attachment, "path") for attachment in objects_in(data, "attachments")]
        parts += [FileRef(path) for path in paths if path is not None]
        self._prompt = self._prompt or (text if is_typed else None)
        return self._messages.of(Message("user", tuple(parts))) if parts else []

    def _answer(self, data: Json) -> Sequence[Fact]:
        thinking, text = text_in(data, "reasoningText"), text_in(data, "content")
        parts: list[Part] = [] if thinking is None else [Thinking(thinking)]
        parts += [] if text is None else [Text(text)]
        ids: set[str] = set()
        for request in objects_in(data, "toolRequests"):
            id, name, arguments = text_in(request, "toolCallId"), text_in(request, "name"), request.get("arguments")
            if id is not None and name is not None and id not in ids:
                ids.add(id)
                parts.append(ToolCall(id, name, arguments if isinstance(arguments, dict) else {"input": arguments}))
        model = text_in(data, "model")
        used = self._messages.model if model is None else ModelRef(_PROVIDER, model)
        meta = Meta(model=used, usage=usage_of(None, data.get("outputTokens")))
        return self._messages.of(Message("assistant", tuple(parts), meta=meta)) if parts else []

    def _result(self, data: Json) -> Sequence[Fact]:
        call = text_in(data, "toolCallId")
        if call is None:
            return []
        output = text_in(data, "result", "content") or text_in(data, "error", "message") or ""
        result = ToolResult(call, output, is_error=data.get("success") is False)
        return self._messages.of(Message("tool", (result,)))


def _failure(data: Json, model: ModelRef | None) -> StreamFailed:
    status = token_count(data.get("statusCode"))
    status = status if status is not None and 100 <= status < 600 else None
    text = text_in(data, "message") or ""
    return StreamFailed(
        error=Failed(classify(status, text_in(data, "errorType"), text), text, status=status), model=model
    )
