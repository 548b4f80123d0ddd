"""Transcripts of Qwen Code, 0.5 to 0.24.

A line has an id and the id of the line that it follows; the last line is the end of the conversation. A line with a
``message`` is part of it, whatever its type. The content is that of Gemini's API, also for models of other providers.

Lines of type ``system`` are about the conversation. Of these, titles, compressions, failed and cancelled calls are
read. A compression has the messages that replace everything before it.

A sub-agent has a file of its own, whose name is made of its type and of the call that began it. One that continues the
conversation begins with a copy of it. Its answers can be several lines, the first with the usage.

A file that is written is a chain of such lines.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.usage import token_count
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import CompactionSummary, Entry, Fact, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.ids import as_uuid
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Text
from bartack_transcripts.gemini_parts import ContentWriter, part_list, read_contents, text_of_parts
from bartack_transcripts.transcript import (
    START,
    Files,
    ReadReport,
    Record,
    Transcript,
    TranscriptStep,
    digest_id,
    first_record_id,
)
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    objects_in,
    parse_lines,
    parse_object,
    short_line,
    text_in,
    time_from_text,
    usage_of,
    value_in,
)
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, json_line, time_text

__all__ = ["QWEN_WRITER", "looks_like_qwen", "read_qwen"]

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
    for companion in files:
        if companion != name and files[companion]:
            reader.add_companion(Record(companion, 0, files[companion]))
    id = reader.id
    own_id = id or first_record_id(files[name])
    return [Transcript("qwen", own_id, reader.header(), reader.steps, reader.report, has_own_id=id is not None)]


class _Reader:
    """Makes one step of each line."""

    def __init__(self) -> None:
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self._messages = MessageFacts()
        self._step_of: dict[str, int] = {}  # line id -> step
        self._follows: dict[int, int | None] = {}  # the step before each step of the conversation
        self._content: dict[int, Any] = {}  # the parts of each message
        self._last: int | None = None
        self._provider = PROVIDER
        self._usage: Usage | None = None  # the usage of an answer that has not begun
        self._first: Json = {}
        self._title: str | None = None
        self._prompt: str | None = None
        self._outer: str | None = None  # the session that began this one
        self._about: Json = {}  # a sub-agent

    @property
    def id(self) -> str | None:
        """The session that the lines name; for a sub-agent, that session and the name of its file."""
        session, agent = text_in(self._first, "sessionId"), self._agent
        return session if session is None or agent is None else f"{session}/{_file_of(agent)}"

    @property
    def _agent(self) -> str | None:
        """The id of the sub-agent whose session this is; None if it is the user's."""
        call, kind = self._about.get("toolCallId"), self._about.get("agent")
        agent = text_in(self._first, "agentId") or (f"{kind}-{call}" if call and kind else None)
        is_agent = bool(self._about) or self._first.get("isSidechain") is True
        return digest_id(json_text(self._first).encode()) if agent is None and is_agent else agent

    def header(self) -> SessionHeader:
        metadata: Json = {"program": "qwen"}
        for key, source in (("directory", "cwd"), ("gitBranch", "gitBranch"), ("version", "version")):
            if text := text_in(self._first, source):
                metadata[key] = text
        if origin := text_in(self._first, "forkedFrom", "sessionId"):
            metadata["forkedFrom"] = f"qwen:{origin}"
        outer = self._outer if self._agent is None else text_in(self._first, "sessionId")
        if outer:
            metadata["parentSession"] = f"qwen:{outer}"
        metadata |= self._about  # it may name another sub-agent
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
        self.steps.append(
            TranscriptStep(tuple(facts), (record,), time_from_text(json.get("timestamp")), parent, refers_to)
        )
        if id := text_in(json, "uuid"):
            self._step_of.setdefault(id, number)
            self._follows[number] = before
            self._last = number

    def add_companion(self, record: Record) -> None:
        """Read a file about a sub-agent."""
        agent_info = parse_object(record.data)
        fields = (("toolCallId", "toolUseId"), ("agent", "agentType"), ("task", "description"))
        self._about = {key: text for key, field in fields if (text := text_in(agent_info, field))}
        if agent := text_in(agent_info, "parentAgentId"):
            self._about["parentSession"] = self._session_of(agent)
        self.report.add("metadata", "read" if self._about else "opaque")
        self.steps.append(TranscriptStep((), (record,)))

    def _session_of(self, agent: str) -> str:
        """The session of a sub-agent that was called in this one."""
        return f"qwen:{text_in(self._first, 'sessionId') or 'unknown'}/{_file_of(agent)}"

    def _with_details(self, message: Message, details: Any) -> Message:
        """The results, with whether they are errors, and the session of a sub-agent."""
        is_error = text_in(details, "status") in ("error", "cancelled")
        agent = text_in(details, "resultDisplay", "subagentName")
        results = message.tool_results
        if is_error:
            results = tuple(replace(result, is_error=True) for result in results)
        if agent is not None:
            ids = [self._session_of(f"{agent}-{result.tool_call_id}") for result in results]
            results = tuple(
                replace(result, metadata={"sessionId": id}) for result, id in zip(results, ids, strict=True)
            )
        return replace(message, parts=results)

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
                contents = objects_in(payload, "history")
                return [fact for content in contents for fact in self._message({}, content, record)], None
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
        for number, message_read in enumerate(read_contents([content], self._provider, record, self.report)):
            fact = message_read
            if fact.role == "assistant":
                reason: Any = "tool_calls" if fact.tool_calls else "stop"
                fact = replace(fact, meta=Meta(model=self._messages.model, usage=usage, finish_reason=reason))
            elif fact.role == "tool":
                fact = self._with_details(fact, json.get("toolCallResult"))
            else:
                is_notice = text_in(json, "externalInputKind") == "notification"
                fact = self._prompted(fact, is_synthetic=is_notice or text_in(json, "subtype") in _SYNTHETIC)
            id = None if number else text_in(json, "uuid")
            facts += self._messages.of(replace(fact, id=id, timestamp=time_from_text(json.get("timestamp"))))
        return facts

    def _model_change(self, name: str) -> list[Fact]:
        return self._messages.switch_to(ModelRef(self._provider, name))

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
                return (StreamFailed(error=Failed(code, text, status=status), model=model),)
            case "api_cancel":
                return (RunEnded(status="aborted", reason="user"),)
        return ()

    def _compaction(self, payload: Any, before: int | None) -> tuple[Sequence[Fact], int | None]:
        contents = objects_in(payload, "compressedHistory")
        if not contents:
            return (), None
        end, first = len(contents), None
        while end > 1 and before is not None:
            while before is not None and before not in self._content:
                before = self._follows.get(before)
            if before is None or self._content[before] != contents[end - 1].get("parts"):
                break
            end, first = end - 1, before
            before = self._follows.get(before)
        summaries = [content for content in contents[:end] if content.get("role") != "model"]
        text = "\n\n".join(filter(None, (text_of_parts(part_list(content.get("parts"))) for content in summaries)))
        tokens = token_count(value_in(payload, "info", "originalTokenCount"))
        return (
            ((CompactionSummary(summary=text, first_kept_entry_id="", tokens_before=tokens),), first)
            if text
            else ((), None)
        )


def _file_of(agent: str) -> str:
    """The name of the file of a sub-agent, without its ending."""
    return _AGENT + re.sub(r"[^a-zA-Z0-9_-]", "_", agent)


def _usage(raw_usage: Any) -> Usage | None:
    """The usage; Gemini counts thoughts beside the answer, other providers in it."""
    if not isinstance(raw_usage, dict):
        return None
    keys = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
    prompt, answer, thoughts, total = (token_count(raw_usage.get(key)) for key in keys)
    output = answer
    if answer is not None and thoughts and (total or 0) >= (prompt or 0) + answer + thoughts:
        output = answer + thoughts
    return usage_of(
        prompt, output, cache_read=raw_usage.get("cachedContentTokenCount"), reasoning=thoughts, includes_cache=True
    )


# -- writing

_VERSION = "0.15.10"  # the version whose lines these are
_ANSWER = "Got it. Thanks for the additional context!"  # the model's answer that the program adds after a summary


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The lines of a conversation."""
    writer = _Writer(outgoing)
    for entry in outgoing.entries:
        writer.add(entry)
    if outgoing.title:
        title = {"customTitle": outgoing.title, "titleSource": "manual"}
        fields = {"type": "system", "subtype": "custom_title", "systemPayload": title}
        writer.line(outgoing.entries[-1], fields, suffix="title")
    data = b"".join(map(json_line, writer.lines))
    return WrittenTranscript(f"{outgoing.id}.jsonl", data, tuple(writer.contents.losses.found))


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self.lines: list[Json] = []
        self.contents = ContentWriter(PROVIDER)
        self._outgoing = outgoing
        self._parent = text_in(outgoing.last_record, "uuid")
        self._common: Json = {"cwd": outgoing.directory, "version": _VERSION}
        if outgoing.git_branch is not None:
            self._common["gitBranch"] = outgoing.git_branch
        self._id = outgoing.id
        self._written: dict[str, list[Json]] = {}  # the contents of each entry

    def line(self, entry: Entry, fields: Json, *, suffix: str = "") -> None:
        """Add a line after the one before it."""
        uuid = as_uuid(entry.id + suffix if suffix else entry.id)
        links = {"uuid": uuid, "parentUuid": self._parent, "sessionId": self._id}
        self.lines.append({**links, "timestamp": time_text(entry.timestamp), **self._common, **fields})
        self._parent = uuid

    def add(self, entry: Entry) -> None:
        """Add what an entry becomes."""
        match entry.fact:
            case Message(role="system"):
                why = "the program has its own instructions"
                self.contents.losses.add(f"entry {entry.seq}", "system message", why)
            case Message() as message:
                self._message(entry, message)
            case CompactionSummary() as compaction:
                self._compaction(entry, compaction)
            case _:
                pass

    def _message(self, entry: Entry, message: Message) -> None:
        contents = self.contents.write(message, f"entry {entry.seq}")
        if message.role == "tool":
            contents = [{**content, "parts": [part]} for content in contents for part in content["parts"]]
        self._written[entry.id] = contents
        failed = {result.tool_call_id for result in message.tool_results if result.is_error}
        for number, content in enumerate(contents):
            fields: Json = {"type": "assistant" if message.role == "assistant" else "user", "message": content}
            if message.role == "assistant":
                fields |= _about(message)
            elif id := text_in(content["parts"][0], "functionResponse", "id"):
                status = "error" if id in failed else "success"
                fields |= {"type": "tool_result", "toolCallResult": {"callId": id, "status": status}}
            self.line(entry, fields, suffix=str(number or ""))

    def _compaction(self, entry: Entry, compaction: CompactionSummary) -> None:
        kept_contents = [content for id in self._outgoing.kept_by(entry) for content in self._written.get(id, ())]
        history: list[Any] = [
            {"role": "user", "parts": [{"text": compaction.summary}]},
            {"role": "model", "parts": [{"text": _ANSWER}]},
            *kept_contents,
        ]
        before = compaction.tokens_before or 0
        info = {"originalTokenCount": before, "newTokenCount": 0, "compressionStatus": 1}
        payload = {"info": info, "compressedHistory": history}
        self.line(entry, {"type": "system", "subtype": "chat_compression", "systemPayload": payload})


def _about(message: Message) -> Json:
    meta = message.meta
    fields: Json = {}
    if meta is not None and meta.model is not None:
        fields["model"] = meta.model.model
    if meta is not None and meta.usage is not None:
        fields["usageMetadata"] = _usage_metadata(meta.usage)
    return fields


def _usage_metadata(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens or 0,
        "totalTokenCount": usage.total_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens or 0,
    }


def _folder(outgoing: Outgoing) -> str:
    return f"projects/{re.sub('[^a-zA-Z0-9]', '-', outgoing.directory)}/chats"


QWEN_WRITER = TranscriptWriter(write, _folder, "qwen --resume {id}", is_tree=True, agents="subagents")
