"""Conversations of llm, from its `logs.db`. They are only read; llm migrates its database itself.

Since 0.3x a thread is a tree of messages, each with parts, and a turn is one call of a model, which ends with the
message that is its answer. Before, a conversation was a list of responses, each with its prompt; the results of calls
belong to the response after them. A database can have both.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bartack.formats.usage import token_count
from bartack.nouns.entries import Fact, SessionHeader
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ContentPart, FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.message_list import media_of
from bartack_transcripts.transcript import START, Files, ReadReport, Record, Rows, Transcript, TranscriptStep
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    object_in,
    parse_object,
    short_line,
    text_in,
    time_from_text,
    usage_of,
    value_in,
)

__all__ = ["LLM_TABLES", "looks_like_llm", "read_llm"]

_FRAGMENTS = 'response_id || \'/\' || t."order" AS id, response_id, t."order", content'
_JOIN = "JOIN fragments f ON f.id = t.fragment_id"
LLM_TABLES = {
    "thread": Rows("threads"),
    "turn": Rows("turns"),
    "message": Rows("messages", "t.rowid", "hash AS id, t.*"),
    "part": Rows("parts", "message_hash, position"),
    "part_fragment": Rows("part_fragments", 'part_id, t."order"', _FRAGMENTS.replace("response_id", "part_id"), _JOIN),
    "attachment": Rows("attachments"),
    "conversation": Rows("conversations"),
    "response": Rows("responses"),
    "tool_call": Rows("tool_calls"),
    "tool_result": Rows("tool_results"),
    "prompt_fragment": Rows("prompt_fragments", 'response_id, t."order"', _FRAGMENTS, _JOIN),
    "system_fragment": Rows("system_fragments", 'response_id, t."order"', _FRAGMENTS, _JOIN),
    "prompt_attachment": Rows(
        "prompt_attachments", 'response_id, "order"', "response_id || '/' || attachment_id AS id, t.*"
    ),
}
_PROVIDER = "llm"  # llm names models, and not who runs them
_AGENT = "llm"


def looks_like_llm(name: str, head: bytes) -> bool:
    """Whether a file is a database of llm, by its name or the tables on its first pages."""
    return head.startswith(b"SQLite format 3\0") and (name == "logs.db" or b"_llm_migrations" in head)


class _Row:
    """A row of a table, and the record that keeps it."""

    def __init__(self, record: Record, json: Json) -> None:
        self.record = record
        self.json = json

    def text(self, *keys: str) -> str | None:
        return text_in(self.json, *keys)

    @property
    def id(self) -> str:
        return self.record.file.partition("/")[2]


def read_llm(files: Files) -> list[Transcript]:
    """The sessions in a database: threads, and conversations of earlier versions."""
    damaged: list[tuple[Record, str]] = []
    tables: dict[str, list[_Row]] = defaultdict(list)
    for name, data in files.items():
        record = Record(name, 0, data)
        parsed = parse_object(data)
        if isinstance(parsed, str):
            damaged.append((record, parsed))
        else:
            tables[name.partition("/")[0]].append(_Row(record, parsed))
    database = _Database(tables)
    transcripts = [_ThreadReader(database, row).transcript() for row in tables["thread"]]
    ids = {transcript.id for transcript in transcripts}  # a conversation that became a thread is read as that
    transcripts += [_Conversation(database, row).transcript() for row in tables["conversation"] if row.id not in ids]
    if files and not transcripts:  # the rows of sessions are missing
        transcripts.append(
            Transcript(_AGENT, "unknown", SessionHeader(origin=_AGENT, metadata={"program": _AGENT}), [], ReadReport())
        )
    for transcript in transcripts[:1]:
        _add_rest(transcript, transcripts, [row.record for rows in tables.values() for row in rows], damaged)
    return transcripts


def _add_rest(
    first: Transcript,
    transcripts: Sequence[Transcript],
    records: Sequence[Record],
    damaged: Sequence[tuple[Record, str]],
) -> None:
    """Keep what belongs to no session with the first one."""
    used = {record for transcript in transcripts for step in transcript.steps for record in step.records}
    unused = [record for record in records if record not in used]
    for record in unused:
        first.report.add(record.file.partition("/")[0], "opaque")
    for record, problem in damaged:
        first.report.damaged(record, problem)
    leftover_records = (*unused, *(record for record, _ in damaged))
    if leftover_records:
        first.steps.append(TranscriptStep((), leftover_records))


class _Database:
    """The rows, and by what other rows name them."""

    def __init__(self, tables: dict[str, list[_Row]]) -> None:
        self.tables = tables
        self.messages = {row.id: row for row in tables["message"]}
        self.attachments = {row.id: row for row in tables["attachment"]}
        self.parts = _grouped(tables["part"], "message_hash")
        self.fragments = _grouped(tables["part_fragment"], "part_id")
        self.turns = _grouped(tables["turn"], "thread_id")
        self.responses = _grouped(tables["response"], "conversation_id")
        self.calls = _grouped(tables["tool_call"], "response_id")
        self.results = _grouped(tables["tool_result"], "response_id")
        self.prompts = _grouped(tables["prompt_fragment"], "response_id")
        self.systems = _grouped(tables["system_fragment"], "response_id")
        self.attached = _grouped(tables["prompt_attachment"], "response_id")

    def attachment(self, id: str | None) -> tuple[list[ContentPart], list[Record]]:
        row = self.attachments.get(id or "")
        if row is None:
            return [], []
        kind, data = row.text("type"), row.text("content")
        media = media_of(kind, base64=data) if data else media_of(kind, url=row.text("url"))
        if media is None and (path := row.text("path")):
            media = FileRef(path, mime_type=kind)
        return [] if media is None else [media], [row.record]


def _grouped(rows: Sequence[_Row], key: str) -> dict[str, list[_Row]]:
    groups: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        groups[str(row.json.get(key))].append(row)
    return groups


class _SessionReader:
    """Makes the steps of a session."""

    def __init__(self, database: _Database, row: _Row) -> None:
        self._db = database
        self._row = row
        self._report = ReadReport()
        self._messages = MessageFacts()
        self._prompt: str | None = None
        self.steps: list[TranscriptStep] = [
            TranscriptStep((), (row.record,), time_from_text(row.json.get("datetime_utc")))
        ]
        self._report.add(row.record.file.partition("/")[0], "read")

    def transcript(self) -> Transcript:
        metadata: Json = {"program": _AGENT}
        if origin := self._row.text("forked_from"):
            metadata["forkedFrom"] = f"{_AGENT}:{origin}"
        title = short_line(self._row.text("name") or self._prompt)
        header = SessionHeader(title=title, origin=_AGENT, metadata=metadata)
        return Transcript(_AGENT, self._row.id, header, self.steps, self._report)

    def _add(
        self, messages: Sequence[Message], records: Sequence[Record], response: _Row | None, parent: int | None
    ) -> int:
        """Add a step with these messages; `response` is the row with the model and usage of the answer."""
        facts: list[Fact] = []
        time = time_from_text(response.json.get("datetime_utc")) if response is not None else None
        for message in messages:
            if message.role == "user":
                self._prompt = self._prompt or message.text or None
            facts += self._messages.of(
                replace(message, meta=_meta(response)) if message.role == "assistant" else message
            )
        for record in records:
            self._report.add(record.file.partition("/")[0], "read")
        self.steps.append(TranscriptStep(tuple(facts), tuple(records), time, parent))
        return len(self.steps) - 1


def _meta(row: _Row | None) -> Meta:
    if row is None:
        return Meta()
    name = row.text("resolved_model") or row.text("model")
    details = parse_object((row.text("token_details") or "{}").encode())
    usage = usage_of(
        row.json.get("input_tokens"),
        row.json.get("output_tokens"),
        cache_read=value_in(details, "prompt_tokens_details", "cached_tokens"),
        reasoning=value_in(details, "completion_tokens_details", "reasoning_tokens"),
        includes_cache=True,
    )
    model = None if name is None else ModelRef(_PROVIDER, name)
    return Meta(model=model, response_id=row.id, usage=usage, duration_ms=token_count(row.json.get("duration_ms")))


class _ThreadReader(_SessionReader):
    """A thread: the messages on the way to the end of each turn, in the order of the turns."""

    def __init__(self, database: _Database, row: _Row) -> None:
        super().__init__(database, row)
        self._step_of: dict[str, int] = {}
        turns = database.turns[row.id]
        ends = [(turn.text("tip_message_hash"), turn) for turn in turns]
        for end, turn in [*ends, (row.text("tip_message_hash"), None)]:
            for message in self._new_messages(end):
                is_end = turn is not None and message.id == end
                self._message(message, turn if is_end else None)

    def _new_messages(self, end: str | None) -> list[_Row]:
        """The messages that lead to this one and have no step yet."""
        rows: list[_Row] = []
        visited: set[str] = set()
        while end is not None and end not in self._step_of and end not in visited and end in self._db.messages:
            visited.add(end)
            rows.append(self._db.messages[end])
            end = rows[-1].text("parent_hash")
        return rows[::-1]

    def _message(self, row: _Row, turn: _Row | None) -> None:
        records = [row.record]
        parts: list[Part] = []
        for part in self._db.parts[row.id]:
            row_parts, used = self._part(part)
            records += [part.record, *used]
            parts += row_parts
        records += [turn.record] if turn is not None else []
        before = self._step_of.get(row.text("parent_hash") or "", START)
        parent = None if before == len(self.steps) - 1 or (before == START and len(self.steps) == 1) else before
        messages = _messages(row.text("role") or "", parts)
        self._step_of[row.id] = self._add(messages, list(dict.fromkeys(records)), turn, parent)

    def _part(self, row: _Row) -> tuple[list[Part], list[Record]]:
        data = object_in(parse_object((row.text("payload") or "{}").encode()))
        fragments = self._db.fragments[str(row.json.get("id"))]
        used = [fragment.record for fragment in fragments]
        text = _joined(fragments, row.text("text")) or ""
        match row.text("type"):
            case "text":
                return [Text(text)] if text else [], used
            case "reasoning" | "thinking":
                return [Thinking(text or text_in(data, "text") or "")], used
            case "tool_call" if (id := text_in(data, "tool_call_id")) and (name := text_in(data, "name")):
                return [_call(id, name, data.get("arguments"))], used
            case "tool_result" if id := text_in(data, "tool_call_id"):
                failed = text_in(data, "exception")
                return [ToolResult(id, _output(data, failed), is_error=failed is not None)], used
            case "attachment":
                media, records = self._db.attachment(text_in(data, "attachment", "id"))
                return list(media), records
        return [], used


def _joined(fragments: Sequence[_Row], text: str | None) -> str | None:
    """The text that the model received: fragments, and then what was written."""
    return "\n".join(filter(None, [*(fragment.text("content") for fragment in fragments), text])) or None


def _call(id: str, name: str, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        parsed = parse_object(arguments.encode("utf-8", "replace"))
        if isinstance(parsed, str):
            return ToolCall(id, name, {}, raw_args_text=arguments)
        arguments = parsed
    return ToolCall(id, name, arguments if isinstance(arguments, dict) else {})


def _output(data: Json, failed: str | None) -> str:
    return text_in(data, "output") or failed or ""


_ROLES: dict[str, tuple[type, ...]] = {
    "system": (Text,),
    "user": (Text, *ContentPart.__args__),
    "assistant": (Text, Thinking, ToolCall),
    "tool": (ToolResult,),
}


def _messages(role: str, parts: Sequence[Part]) -> list[Message]:
    """A message with the parts that its role can have; results are always a message of their own."""
    if role not in _ROLES:
        return []
    results = _unique([part for part in parts if isinstance(part, ToolResult)])
    own_parts = _unique([part for part in parts if isinstance(part, _ROLES[role]) and not isinstance(part, ToolResult)])
    messages = [Message("tool", results)] if results else []
    return [*messages, Message(role, own_parts)] if own_parts else messages  # type: ignore[arg-type]


def _unique(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts without further ones for the same call."""
    call_ids: set[str] = set()
    unique_parts: list[Part] = []
    for part in parts:
        id = part.tool_call_id if isinstance(part, ToolCall | ToolResult) else None
        if id is None or id not in call_ids:
            unique_parts.append(part)
        if id is not None:
            call_ids.add(id)
    return tuple(unique_parts)


class _Conversation(_SessionReader):
    """A conversation of an earlier version: one step for each response."""

    def __init__(self, database: _Database, row: _Row) -> None:
        super().__init__(database, row)
        self._system: str | None = None
        for response in database.responses[row.id]:
            self._response(response)

    def _response(self, row: _Row) -> None:
        records = [row.record]
        messages: list[Message] = []
        system = _joined(self._db.systems[row.id], row.text("system"))
        if system is not None and system != self._system:
            messages.append(Message("system", (Text(system),)))
            self._system = system
        results = self._db.results[row.id]
        messages += _messages("tool", [part for result in results for part in _old_result(result)])
        fragments = self._db.prompts[row.id]
        records += [fragment.record for fragment in (*self._db.systems[row.id], *fragments)]
        prompt: list[Part] = [Text(text)] if (text := _joined(fragments, row.text("prompt"))) else []
        for link in self._db.attached[row.id]:
            media, used = self._db.attachment(link.text("attachment_id"))
            prompt += media
            records += [link.record, *used]
        messages += _messages("user", prompt)
        answer: list[Part] = [Thinking(text)] if (text := row.text("reasoning")) else []
        answer += [Text(text)] if (text := row.text("response")) else []
        calls = self._db.calls[row.id]
        answer += [part for call in calls for part in _old_call(call)]
        messages += _messages("assistant", answer)
        records += [call_row.record for call_row in (*results, *calls)]
        self._add(messages, list(dict.fromkeys(records)), row, None)


def _old_call(row: _Row) -> list[Part]:
    id, name = row.text("tool_call_id") or f"call-{row.id}", row.text("name")
    return [] if name is None else [_call(id, name, row.json.get("arguments"))]


def _old_result(row: _Row) -> list[Part]:
    id, failed = row.text("tool_call_id"), row.text("exception")
    return [] if id is None else [ToolResult(id, _output(row.json, failed), is_error=failed is not None)]
