"""Reads sessions of opencode: its database, the JSON files of earlier versions, and the files of `opencode export`.

A session has messages, and a message has parts; each is a row or a file of its own, and all of them are in one document
in an export. Ids do not sort, because the time in them wraps around: messages are ordered by when they were created.

- A tool part is a call and its result.
- A compaction is a user message with a `compaction` part, followed by an answer marked `summary`. A failed one has an
  error as well, and compacts nothing.
- A sub-agent is a session with a parent; the part of the call names it.
- `revert` hides the messages from one on, which still exist.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.media import exact_data
from bartack.formats.usage import amount, token_count
from bartack.nouns.deltas import Failed, FinishReason, Usage
from bartack.nouns.entries import CompactionSummary, Fact, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import (
    ContentPart,
    Continuation,
    FileRef,
    Image,
    Part,
    Span,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from bartack_transcripts.transcript import Files, ReadReport, Record, Rows, Transcript, TranscriptStep, digest_id
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    object_in,
    objects_in,
    parse_object,
    short_line,
    text_in,
    time_from_ms,
    usage_of,
    value_in,
)

__all__ = ["TABLES", "looks_like_opencode", "objects_of", "read_opencode"]

TABLES = {
    "session": Rows("session", "time_created, id"),
    "message": Rows("message", "time_created, id"),
    "part": Rows("part", "message_id, id"),
    "todo": Rows("todo", "session_id, position", "session_id || '/' || position AS id, t.*"),
    "session_message": Rows("session_message", "session_id, seq"),
    "session_input": Rows("session_input", "session_id, admitted_seq"),
}
_COLUMNS = (
    "id",
    "slug",
    "directory",
    "path",
    "title",
    "version",
    "agent",
    "cost",
)  # the fields of a session in an export
_JSON_COLUMNS = ("revert", "permission", "model", "metadata")
_COUNTS = ("additions", "deletions", "files")
_NO_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT")
_EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{[^{}]*"id"\s*:\s*"ses')
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "end-turn": "stop",
    "tool-calls": "tool_calls",
    "length": "length",
    "content-filter": "content_filter",
}
_CLOSED = ("completed", "error")
_SESSIONS = ("session", "info")  # the folder of sessions, and its name until the middle of 2025


class _Object(NamedTuple):
    """A session, message or part, and the record that it is from; None if that is a whole export."""

    json: Json
    record: Record | None


def looks_like_opencode(name: str, head: bytes) -> bool:
    """Whether a file is an export of opencode, or its database."""
    is_database = PurePosixPath(name).name == "opencode.db" and head.startswith(b"SQLite format 3\0")
    return is_database or (name.endswith(".json") and _EXPORT.match(head) is not None)


def read_opencode(files: Files) -> list[Transcript]:
    """The sessions in these files: one for an export, and all for a database or a folder."""
    if len(files) == 1:
        name, data = next(iter(files.items()))
        if not name.startswith(("session/", "info/", "message/", "part/")):
            return _read_export(Record(name, 0, data))
    return _read_records([Record(name, 0, data) for name, data in files.items()])


def _read_export(record: Record) -> list[Transcript]:
    report = ReadReport()
    document = parse_object(record.data)
    if isinstance(document, str):
        report.damaged(record, document)
        document = {}
    else:
        report.add("export", "read")
    reader = _Reader(report)
    for message in document.get("messages", ()) if isinstance(document.get("messages"), list) else ():
        info, parts = (message.get("info"), message.get("parts")) if isinstance(message, dict) else (None, None)
        if isinstance(info, dict):
            reader.add(_Object(info, None), [_Object(part, None) for part in objects_in(parts)])
    session = object_in(document, "info")
    source_id = text_in(session, "id")
    id = source_id or digest_id(record.data)
    reader.finish(session, [record])
    header, has_own_id = _header(session, reader.title), source_id is not None
    return [Transcript("opencode", id, header, reader.steps, report, has_own_id=has_own_id)]


def _read_records(records: Iterable[Record]) -> list[Transcript]:
    sessions: dict[str, _Object] = {}
    messages: dict[str, list[_Object]] = defaultdict(list)
    parts: dict[str, list[_Object]] = defaultdict(list)
    unread: dict[str, list[Record]] = defaultdict(list)  # possible session id -> records
    damaged: list[tuple[Record, str]] = []
    for record in records:
        kind, _, path = record.file.partition("/")
        parsed = parse_object(record.data) if kind in (*_SESSIONS, "message", "part") else {}
        if isinstance(parsed, str):
            damaged.append((record, parsed))
            continue
        item = _Object(_whole(kind, path, parsed), record)
        match kind:
            case "session" | "info" if (id := item.json["id"]) not in sessions:
                sessions[id] = item
            case "session" | "info":  # another file about it
                unread[id].append(record)
            case "message":
                messages[item.json["sessionID"]].append(item)
            case "part":
                parts[item.json["messageID"]].append(item)
            case _:
                unread[_owner(kind, path, record)].append(record)
    message_ids = {message.json["id"] for several in messages.values() for message in several}
    orphans = [part for id, several in parts.items() if id not in message_ids for part in several]
    ids = list(dict.fromkeys((*sessions, *messages))) or ["unknown"]
    origins = _origins(sessions, messages)
    transcripts: list[Transcript] = []
    for id in ids:
        report = ReadReport()
        reader = _Reader(report)
        session = sessions.get(id, _Object({}, None))
        for message in sorted(messages.get(id, ()), key=_order):
            reader.add(message, sorted(parts.get(message.json["id"], ()), key=lambda part: str(part.json["id"])))
        session_records = [] if session.record is None else [session.record]
        for part in orphans:  # their message is gone; without a known session, they are kept with the first one
            owner = part.json["sessionID"]
            if part.record is not None and (owner if owner in ids else ids[0]) == id:
                report.add("part without a message", "opaque")
                session_records.append(part.record)
        own = unread.pop(id, [])
        if not transcripts:
            own += [record for owner in [*unread] if owner not in ids for record in unread.pop(owner)]
        for record in own:
            report.add(record.file.partition("/")[0], "opaque")
            session_records.append(record)
        if not transcripts:
            for record, problem in damaged:
                report.damaged(record, problem)
                session_records.append(record)
        if session.record is not None:
            report.add("session", "read")
        reader.finish(session.json, session_records)
        header = _header(session.json, reader.title, origins.get(id))
        transcripts.append(Transcript("opencode", id, header, reader.steps, report))
    _name_calls(transcripts)
    return transcripts


def _name_calls(transcripts: Sequence[Transcript]) -> None:
    """Name the call that began a sub-agent; the result of the call names the session."""
    facts = (fact for transcript in transcripts for step in transcript.steps for fact in step.facts)
    results = [result for fact in facts if isinstance(fact, Message) for result in fact.tool_results]
    calls = {session: result.tool_call_id for result in results if (session := text_in(result.metadata, "sessionId"))}
    for transcript in transcripts:
        metadata, call = transcript.header.metadata or {}, calls.get(transcript.session_id)
        if "parentSession" in metadata and call is not None:
            transcript.header = replace(transcript.header, metadata={**metadata, "toolCallId": call})


def _origins(sessions: Mapping[str, _Object], messages: Mapping[str, list[_Object]]) -> dict[str, str]:
    """The sessions that others were copied from. A fork has copies of messages under new ids, with their times."""
    owners: dict[float, set[str]] = defaultdict(set)
    for id in sessions:
        for message in messages.get(id, ()):
            owners[_order(message)[0]].add(id)
    origins: dict[str, str] = {}
    for id, session in sessions.items():
        started_at = _order(session)[0]
        times = {_order(message)[0] for message in messages.get(id, ())}
        copied = Counter(owner for time in times if time < started_at for owner in owners[time])
        earlier = [session_id for session_id in copied if _order(sessions[session_id])[0] < started_at]
        if earlier:  # a fork of a fork shares more with the one that it is from
            origins[id] = max(earlier, key=lambda session_id: (copied[session_id], -_order(sessions[session_id])[0]))
    return origins


def _owner(kind: str, path: str, record: Record) -> str:
    """The session that a record of another kind belongs to: a row names it, or it is the first part of the path."""
    row = parse_object(record.data) if kind.startswith("session_") else ""
    return text_in(row, "session_id") or path.partition("/")[0].removesuffix(".json")


def _whole(kind: str, path: str, json: Json) -> Json:
    """The object of a row or a file. Its ids are those of the columns or the path: those inside may be stale."""
    names = PurePosixPath(path)
    fields, ids = json, {"id": names.stem, "sessionID": names.parent.name, "messageID": names.parent.name}
    if kind in _SESSIONS:
        ids = {"id": names.stem}
        if "time_created" in json:  # a row
            ids = {"id": text_in(json, "id") or names.stem}
            times = {key: json.get(f"time_{key}") for key in ("created", "updated", "compacting", "archived")}
            times = {key: time for key, time in times.items() if time is not None}
            values = {key: _value(json.get(key)) for key in _JSON_COLUMNS}
            fields = {**json, **values, "parentID": json.get("parent_id"), "time": times}
    elif isinstance(json.get("data"), str):  # a row
        fields = object_in(parse_object(json["data"].encode()))
        columns = (("id", "id"), ("sessionID", "session_id"), ("messageID", "message_id"))
        ids |= {key: text for key, column in columns if (text := text_in(json, column))}
    return {**fields, **{key: text or text_in(fields, key) or "unknown" for key, text in ids.items()}}


def objects_of(files: Files) -> tuple[Json, list[Json]]:
    """The session and its messages with their parts, as in an export, from the rows or files of one session."""
    session: Json = {}
    messages: list[_Object] = []
    parts: dict[str, list[Json]] = defaultdict(list)
    for name, data in files.items():
        kind, _, path = name.partition("/")
        json = _whole(kind, path, object_in(parse_object(data)))
        if kind in _SESSIONS:
            session = session or _exported_session(json)
        elif kind == "message":
            messages.append(_Object({key: value for key, value in json.items() if key != "messageID"}, None))
        elif kind == "part":
            parts[json["messageID"]].append(json)
    message_objects = []
    for message in sorted(messages, key=_order):
        own = sorted(parts.get(message.json["id"], ()), key=lambda part: str(part["id"]))
        message_objects.append({"info": message.json, "parts": own})
    return session, message_objects


def _exported_session(json: Json) -> Json:
    """A session as in an export: rows have other names for its fields, and columns for what is counted."""
    if "time_created" not in json:
        return json
    fields = {key: json[key] for key in (*_COLUMNS, *_JSON_COLUMNS) if json.get(key) is not None}
    if json.get("parentID"):
        fields["parentID"] = json["parentID"]
    if json.get("summary_additions") is not None:
        fields["summary"] = {key: json.get(f"summary_{key}") for key in _COUNTS}
    if json.get("tokens_input") is not None:
        cache = {key: json.get(f"tokens_cache_{key}") for key in ("read", "write")}
        counts = {key: json.get(f"tokens_{key}") for key in ("input", "output", "reasoning")}
        fields["tokens"] = {**counts, "cache": cache}
    if json.get("share_url"):
        fields["share"] = {"url": json["share_url"]}
    return {**fields, "projectID": json.get("project_id") or "global", "time": json["time"]}


def _value(text: Any) -> Any:
    """The JSON value in a column; None if it has none."""
    parsed = parse_object(b'{"value":' + text.encode("utf-8", "replace") + b"}") if isinstance(text, str) else ""
    return value_in(parsed, "value")


def _order(message: _Object) -> tuple[float, str]:
    created = amount(value_in(message.json, "time", "created"))
    return created or 0.0, str(message.json["id"])


def _header(session: Json, prompt: str | None, origin: str | None = None) -> SessionHeader:
    metadata: Json = {"program": "opencode"} | ({} if origin is None else {"forkedFrom": f"opencode:{origin}"})
    for key, field in (("directory", "directory"), ("version", "version"), ("agent", "agent")):
        if text := text_in(session, field):
            metadata[key] = text
    if outer := text_in(session, "parentID"):
        metadata["parentSession"] = f"opencode:{outer}"
    title = text_in(session, "title")
    if title is None or _NO_TITLE.match(title):
        title = prompt or title
    return SessionHeader(title=short_line(title), origin="opencode", metadata=metadata)


class _Reader:
    """Makes one step of each message with its parts."""

    def __init__(self, report: ReadReport) -> None:
        self.steps: list[TranscriptStep] = []
        self.title: str | None = None
        self._report = report
        self._messages = MessageFacts()
        self._step_of: dict[str, int] = {}
        self._tail: str | None = None  # the first message that the next compaction keeps

    def add(self, message: _Object, parts: Sequence[_Object]) -> None:
        """Add a message."""
        json, role = message.json, text_in(message.json, "role") or ""
        facts: Sequence[Fact] = ()
        refers_to = None
        if role == "user":
            facts = self._user(json, [part.json for part in parts])
        elif role == "assistant":
            facts = self._answer(json, [part.json for part in parts])
        if any(isinstance(fact, CompactionSummary) for fact in facts):
            refers_to = None if self._tail is None else self._step_of.get(self._tail)
            self._tail = None
        self._report.add(f"message/{role}", "read" if facts or role == "user" else "opaque")
        for part in parts:
            kind = text_in(part.json, "type") or "no type"
            self._report.add(f"part/{kind}", "read" if kind in _READ else "opaque")
        if id := text_in(json, "id"):
            self._step_of[id] = len(self.steps)
        records = tuple(item.record for item in (message, *parts) if item.record is not None)
        content = () if records else (repr((json, [part.json for part in parts])).encode(),)
        self.steps.append(TranscriptStep(tuple(facts), records, _time(json), None, refers_to, b"".join(content)))

    def finish(self, session: Json, records: Sequence[Record]) -> None:
        """Add the records of the session itself, which change whenever it does, after everything else."""
        revert = session.get("revert")
        hidden = text_in(revert, "messageID")
        step = None if hidden is None else self._step_of.get(hidden)
        parent = None if step is None else step - 1  # START is the step before the first
        self.steps.append(TranscriptStep((), tuple(records), None, parent))

    # -- users

    def _user(self, json: Json, parts: Sequence[Json]) -> Sequence[Fact]:
        content: list[Part] = []
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    is_synthetic, is_hidden = part.get("synthetic") is True, part.get("ignored") is True
                    content.append(Text(text, synthetic=is_synthetic, ignored=is_hidden))
                    self.title = self.title or (None if is_synthetic else text)
                case {"type": "file"}:
                    content += _file(part)
                case {"type": "compaction"}:
                    self._tail = text_in(part, "tail_start_id")
        return (self._stamped(json, Message("user", tuple(content))),) if content else ()

    # -- answers

    def _answer(self, json: Json, parts: Sequence[Json]) -> Sequence[Fact]:
        provider, name = text_in(json, "providerID"), text_in(json, "modelID")
        model = None if provider is None or name is None else ModelRef(provider, name)
        error = json.get("error")
        usage, cost = _usage(json.get("tokens")), amount(json.get("cost"))
        is_complete = bool(text_in(json, "finish")) or value_in(json, "time", "completed") is not None
        if json.get("summary") is True and is_complete and not error:
            text = "".join(text for part in parts if (text := _text(part)))
            return (CompactionSummary(summary=text, first_kept_entry_id="", model=model, usage=usage),) if text else ()
        changes = self._messages.switch_to(model)
        answer_parts = _without_repeated_calls([piece for part in parts for piece in self._answer_parts(part, model)])
        aborted = text_in(error, "name") == "MessageAbortedError"
        if error and not aborted:
            return (*changes, _failure(error, tuple(answer_parts), model, usage))
        ended = (RunEnded(status="aborted", reason="user"),) if aborted else ()
        if not answer_parts:
            return (*changes, *ended)
        finish = text_in(json, "finish")
        meta = Meta(
            model=model,
            usage=usage,
            cost_usd=cost,
            finish_reason=None if finish is None else _FINISH.get(finish, "other"),
            raw_finish_reason=finish,
            aborted=aborted,
            completed_at=time_from_ms(value_in(json, "time", "completed")),
        )
        answer = self._messages.of(self._stamped(json, Message("assistant", tuple(answer_parts), meta=meta)))
        return (*changes, *answer, *self._results(json, parts), *ended)

    def _answer_parts(self, part: Json, model: ModelRef | None) -> list[Text | Thinking | ToolCall]:
        match part:
            case {"type": "text", "text": str(text)} if text:
                return [Text(text, synthetic=part.get("synthetic") is True, ignored=part.get("ignored") is True)]
            case {"type": "reasoning", "text": str(text)}:
                return [Thinking(text, continuation=_continuation(part, model))]
            case {"type": "tool", "callID": str(id), "tool": str(name)} if id:
                return [_call(id, name, part, model)]
        return []

    def _results(self, json: Json, parts: Sequence[Json]) -> list[Fact]:
        facts: list[Fact] = []
        for part in parts:
            state = part.get("state")
            id, status = text_in(part, "callID"), text_in(state, "status")
            if part.get("type") != "tool" or id is None or status not in _CLOSED or not isinstance(state, dict):
                continue
            message = Message("tool", (_result(id, state, status),))
            facts += self._messages.of(self._stamped(json, message, suffix=f"/{text_in(part, 'id') or id}"))
        return facts

    def _stamped(self, json: Json, message: Message, suffix: str = "") -> Message:
        id = text_in(json, "id")
        return replace(message, id=None if id is None else id + suffix, timestamp=_time(json))


def _call(id: str, name: str, part: Json, model: ModelRef | None) -> ToolCall:
    """A call; one that was not complete has its arguments as text."""
    state = part.get("state")
    raw_input = value_in(state, "input")
    raw = None if raw_input else text_in(state, "raw")
    if raw is not None:
        parsed = parse_object(raw.encode("utf-8", "replace"))
        raw_input, raw = (parsed, None) if isinstance(parsed, dict) else (None, raw)
    arguments = raw_input if isinstance(raw_input, dict) else {}
    return ToolCall(id, name, arguments, raw_args_text=raw, continuation=_continuation(part, model))


def _continuation(part: Json, model: ModelRef | None) -> Continuation | None:
    """What the provider of a part needs to accept it again, as its API has it. Other data is kept as it is."""
    metadata = part.get("metadata")
    if model is None or not isinstance(metadata, dict):
        return None
    data: Json = metadata if part.get("type") == "reasoning" else {}
    if signature := text_in(metadata, "anthropic", "signature"):
        data = {"signature": signature}
    elif redacted := text_in(metadata, "anthropic", "redactedData"):
        data = {"type": "redacted_thinking", "data": redacted}
    elif signature := text_in(metadata, "google", "thoughtSignature"):
        data = {"thoughtSignature": signature} | ({"thought": True} if part.get("type") == "reasoning" else {})
    elif (id := text_in(metadata, "openai", "itemId")) and part.get("type") == "reasoning":
        blob = text_in(metadata, "openai", "reasoningEncryptedContent")
        item = {"type": "reasoning", "id": id, **({} if blob is None else {"encrypted_content": blob})}
        summary = {"field": "summary", "nth": 0, "part": {"type": "summary_text"}} if text_in(part, "text") else {}
        data = {"item": item, **summary}
    return Continuation(model.provider, model.model, data) if data else None


_READ = ("text", "reasoning", "tool", "file", "compaction")


def _without_repeated_calls(parts: Sequence[Text | Thinking | ToolCall]) -> list[Text | Thinking | ToolCall]:
    """The parts without further calls of the same id, which a message may have only once."""
    call_ids: set[str] = set()
    unique_parts: list[Text | Thinking | ToolCall] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if part.tool_call_id in call_ids:
                continue
            call_ids.add(part.tool_call_id)
        unique_parts.append(part)
    return unique_parts


def _time(json: Json) -> Any:
    return time_from_ms(value_in(json, "time", "created"))


def _text(part: Json) -> str:
    return (text_in(part, "text") or "") if part.get("type") == "text" else ""


def _file(part: Json) -> list[ContentPart]:
    """A file of the prompt, inline or by its address."""
    url, kind = text_in(part, "url") or "", text_in(part, "mime") or ""
    name = text_in(part, "filename") or url.rpartition("/")[2] or "file"
    data = exact_data(url)
    if kind.startswith("image/") and data is not None:
        own_name = text_in(part, "filename")
        return [Image(data[0], data=data[1], metadata={"name": own_name} if own_name else None)]
    if data is not None:
        return [FileRef(name, data=data[1], mime_type=data[0])]
    return [FileRef(name, mime_type=kind or None)] if url else []


def _result(id: str, state: Json, status: str) -> ToolResult:
    times = object_in(state, "time")
    metadata = state.get("metadata")
    session = text_in(metadata, "sessionId") or text_in(metadata, "sessionID")
    text = text_in(state, "error" if status == "error" else "output") or ""
    files = [file for part in objects_in(state, "attachments") for file in _file(part) if isinstance(part, dict)]
    return ToolResult(
        id,
        (*((Text(text),) if text else ()), *files) if files else text,
        is_error=status == "error",
        title=text_in(state, "title"),
        time=Span(time_from_ms(times.get("start")), time_from_ms(times.get("end"))),
        compacted_at=time_from_ms(times.get("compacted")),
        metadata=None if session is None else {"sessionId": f"opencode:{session}"},
    )


def _usage(tokens: Any) -> Usage | None:
    if not isinstance(tokens, dict):
        return None
    cached = object_in(tokens, "cache")
    reasoning = token_count(tokens.get("reasoning")) or 0
    output = token_count(tokens.get("output"))
    return usage_of(
        tokens.get("input"),
        None if output is None else output + reasoning,  # opencode counts reasoning apart
        cache_read=cached.get("read"),
        cache_write=cached.get("write"),
        reasoning=reasoning,
    )


def _failure(error: Any, parts: tuple[Any, ...], model: ModelRef | None, usage: Usage | None) -> StreamFailed:
    name = text_in(error, "name") or ""
    text = text_in(error, "data", "message") or name
    details = object_in(error, "data")
    status = token_count(details.get("statusCode"))
    code = classify(status, None, text)
    failed = Failed(code, text, status=status, raw_code=name or None, retryable=details.get("isRetryable") is True)
    used = usage if usage is not None and usage.total_tokens else None
    return StreamFailed(error=failed, parts=parts, usage=used, model=model)
