"""Transcripts of Codex: the rollout files of its command line, 0.40 to 0.166.

A line is ``{"timestamp", "type", "payload"}``. Lines of type ``response_item`` are the items of the Responses API that
the model received or sent, and so the conversation. Everything visible is in the file twice: the other lines are events
for the screen, of which only usage, errors, interruptions and the status of commands are read.

- An answer is several items: reasoning, text and calls. It ends with the usage of its response, or with anything that
  is not from the model.
- A compaction has the list of messages that replaces the context.
- ``thread_rolled_back`` removes the last turns: what follows is a branch.
- A fork has only its own lines, and names the file and the line where it begins (`base_of`).
- A sub-agent has a file of its own, which names the session that called it.
- A file that has no items at all, such as that of a review, is read from its events (`bartack.interop.codex.events`).
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.usage import token_count
from bartack.interop.codex.events import items_of
from bartack.interop.transcript import START, Files, Problem, Record, Report, Step, Transcript
from bartack.interop.values import (
    Json,
    ToolCallIds,
    parse_lines,
    parse_object,
    read_messages,
    short_line,
    text_in,
    thinking_level,
    time_from_text,
    usage_of,
)
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import (
    CompactionSummary,
    Fact,
    ModelChange,
    RunEnded,
    SessionHeader,
    StreamFailed,
    ThinkingLevelChange,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, ToolResult

__all__ = ["base_of", "looks_like_codex", "read_codex"]

_RECOGNISED = re.compile(rb'"type"\s*:\s*"(?:session_meta|response_item|turn_context|event_msg)"')
_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INJECTED = re.compile(
    r"\s*<(environment_context|user_instructions|permissions|skills_instructions|INSTRUCTIONS)|# AGENTS.md"
)
_NOTICES = ("<turn_aborted>", "<subagent_notification>")  # text in the role of the user that the model needs
_REQUEST = "## My request for Codex:\n"  # after what older versions add about the editor
# Results have no flag for errors; these are the texts of Codex itself.
_FAILED = re.compile(
    r"(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?Process exited with code (?!0\b)-?\d|Exit code: (?!0\b)-?\d|"
    r"unsupported (?:custom tool )?call: |failed to parse function arguments|"
    r"(?:Wall time: .*\n)?aborted by user|aborted$"
)
# The fields of an item that its API accepts; Codex adds others for itself.
_FIELDS = {
    "message": ("id", "role", "content", "status", "phase"),
    "reasoning": ("id", "summary", "content", "encrypted_content"),
    "function_call": ("id", "name", "namespace", "arguments", "call_id"),
    "custom_tool_call": ("id", "name", "namespace", "input", "call_id", "status"),
    "local_shell_call": ("id", "call_id", "status", "action"),
    "tool_search_call": ("id", "call_id", "status", "execution", "arguments"),
    "web_search_call": ("id", "status", "action"),
    "image_generation_call": ("id", "status", "revised_prompt", "result"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
    "tool_search_output": ("call_id", "status", "execution", "tools"),
}
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")


def looks_like_codex(name: str, head: bytes) -> bool:
    """Whether a file is a rollout, by its first lines."""
    return name.endswith(".jsonl") and _RECOGNISED.search(head) is not None


def base_of(data: bytes) -> str | None:
    """The pattern of the file that a fork continues; None if the file is complete."""
    first = parse_object(data.partition(b"\n")[0]) if b'"history_base"' in data else ""
    base = text_in(first, "payload", "history_base", "thread_id")
    return f"rollout-*{base}*.jsonl*" if base is not None and _THREAD.fullmatch(base) else None


def read_codex(files: Files) -> list[Transcript]:
    """The session in the first file. Another file is the one that it continues."""
    if not files:
        return []
    name, *others = files
    report = Report()
    lines = [_Line(*parsed) for parsed in parse_lines(name, files[name], report)]
    meta = next((line.payload for line in lines if line.type == "session_meta"), {})
    base = meta.get("history_base")
    before: list[_Line] = []
    if isinstance(base, dict):
        end = token_count(base.get("end_ordinal_exclusive")) or 0
        found = [_Line(None, json) for other in others[:1] for _, json in parse_lines(other, files[other], Report())]
        before = found[:end]
        if len(found) < end:
            report.problems.append(Problem(name, 0, "the session that this one continues is missing or incomplete"))
    has_items = any(line.type == "response_item" for line in (*before, *lines))
    conversation = _Conversation(report, b"" if has_items else b"events")
    conversation.add(before)
    conversation.add(lines if has_items else _from_events(lines))
    title = conversation.title or short_line(text_in(meta, "title"))
    return [Transcript("codex", _session_id(name), _header(meta, title), conversation.steps, report)]


def _session_id(name: str) -> str:
    """The id of the thread, which is part of the name of the file."""
    stem = PurePosixPath(name).stem
    found = _THREAD.search(stem)
    return stem if found is None else found[0]


def _header(meta: Json, title: str | None) -> SessionHeader:
    metadata: Json = {"program": "codex"}
    for key, path in (
        ("directory", ("cwd",)),
        ("gitBranch", ("git", "branch")),
        ("version", ("cli_version",)),
        ("agent", ("agent_nickname",)),
    ):
        if text := text_in(meta, *path):
            metadata[key] = text
    spawn = ("source", "subagent", "thread_spawn", "parent_thread_id")
    if outer := text_in(meta, "parent_thread_id") or text_in(meta, *spawn):
        metadata["parentSession"] = f"codex:{outer}"
    if origin := text_in(meta, "forked_from_id"):
        metadata["forkedFrom"] = f"codex:{origin}"
    return SessionHeader(title=title, origin="codex", metadata=metadata)


class _Line:
    """One line. Those of a session that this one continues have no record here."""

    def __init__(self, record: Record | None, json: Json, event: "_Line | None" = None) -> None:
        self.record = record
        self.json = json
        self.event = event  # that it is made of
        payload = json.get("payload")
        # Before 0.32, items were not wrapped, and the first line was the metadata itself.
        self.payload: Json = payload if isinstance(payload, dict) else {} if "payload" in json else json
        self.type = text_in(json, "type") or ""
        if "payload" not in json:
            is_item = self.type in _FIELDS
            self.type = "response_item" if is_item else self.type or ("session_meta" if "id" in json else "")
        self.item = text_in(self.payload, "type") or ""

    @property
    def kind(self) -> str:
        """The type, with that of the item or event."""
        has_items = self.type in ("response_item", "event_msg") and self.item
        return f"{self.type}/{self.item}" if has_items else self.type or "no type"

    @property
    def is_from_model(self) -> bool:
        if self.type != "response_item" or self.item in _OUTPUTS or self.item not in _FIELDS:
            return False
        return self.item != "message" or self.payload.get("role") == "assistant"


def _from_events(lines: Sequence[_Line]) -> list[_Line]:
    """The lines, with the items that their events are about in place of these."""
    has_items = any(line.kind == "event_msg/item_completed" for line in lines)
    made: list[_Line] = []
    for line in lines:
        is_event = line.type == "event_msg"
        items = items_of(line.payload, has_items=has_items) if is_event else []
        time = line.json.get("timestamp")
        for number, item in enumerate(items):
            json = {"timestamp": time, "type": "response_item", "payload": item}
            made.append(_Line(None if number else line.record, json, line))
        made += [] if items else [line]
    return made


class _Answer:
    """The items of one response, and the line with its usage."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.usage_line: _Line | None = None
        self.usage: Any = None
        self.response_id: str | None = None


def _answers_of(lines: Sequence[_Line]) -> tuple[dict[int, _Answer], set[int]]:
    """The answer of each line of the model, by index, and the indexes of the lines with the usage of one."""
    answers: dict[int, _Answer] = {}
    usages: set[int] = set()
    answer: _Answer | None = None
    is_open = False
    for index, line in enumerate(lines):
        usage, response_id = _usage_in(line)
        if line.is_from_model:
            if answer is None or not is_open:
                answer, is_open = _Answer(), True
            answer.lines.append(line)
            answers[index] = answer
        elif usage is not None:
            if answer is not None and answer.usage is None:
                answer.usage, answer.usage_line, answer.response_id = usage, line, response_id
                usages.add(index)
            is_open = False
        elif line.type in ("response_item", "turn_context", "compacted") or line.item in _TURN_EVENTS:
            is_open = False
    return answers, usages


_TURN_EVENTS = ("task_started", "task_complete", "turn_aborted", "thread_rolled_back")


def _usage_in(line: _Line) -> tuple[Json | None, str | None]:
    if line.type == "token_usage_record":
        usage = line.payload.get("usage")
    elif line.kind == "event_msg/token_count":
        info = line.payload.get("info")
        usage = info.get("last_token_usage") if isinstance(info, dict) else None
    else:
        usage = None
    return usage if isinstance(usage, dict) else None, text_in(line.payload, "response_id")


class _Conversation:
    """Makes the steps of a session, in the order of its lines."""

    def __init__(self, report: Report, mode: bytes) -> None:
        self.steps: list[Step] = []
        self._mode = mode  # part of what steps are from: the same records can be read in two ways
        self.title: str | None = None
        self._report = report
        self._provider = "openai"
        self._model: ModelRef | None = None
        self._effort: str | None = None
        self._calls = ToolCallIds()
        self._failed: set[str] = set()  # calls that ended in an error, by the events about them
        self._turns: list[int] = []  # the step before each prompt
        self._next_parent: int | None = None  # of the next step, after a rollback

    def add(self, lines: Sequence[_Line]) -> None:
        """Add the lines of a file."""
        answers, usages = _answers_of(lines)
        for index, line in enumerate(lines):
            if index in usages:
                continue  # in the step of its answer
            if index in answers:
                if answers[index].lines[0] is line:
                    self._add_answer(answers[index])
                continue
            facts = self._facts_of(line)
            is_read = bool(facts) or line.kind in _READ
            self._count(line, is_read=is_read)
            self._add([line], facts)

    def _count(self, line: _Line, *, is_read: bool) -> None:
        if line.record is not None and line.json:
            self._report.add((line.event or line).kind, "read" if is_read else "opaque")

    def _add(self, lines: Sequence[_Line], facts: Sequence[Fact]) -> None:
        records = tuple(line.record for line in lines if line.record is not None)
        if not records and not facts:
            return  # a line of the session that this one continues
        time = next((time for line in lines if (time := time_from_text(line.json.get("timestamp")))), None)
        self.steps.append(Step(tuple(facts), records, time, self._next_parent, content=self._mode))
        self._next_parent = None

    def _facts_of(self, line: _Line) -> list[Fact]:
        payload = line.payload
        if line.event is not None:
            self._note_status(line.event.payload.get("item"))
        match line.kind:
            case "session_meta":
                self._provider = text_in(payload, "model_provider") or self._provider
            case "turn_context":
                return self._settings(payload)
            case "response_item/message":
                return self._prompt(line)
            case "response_item/function_call_output" | "response_item/custom_tool_call_output":
                return self._result(line)
            case "event_msg/item_completed":
                self._note_status(payload.get("item"))
            case "event_msg/task_complete" if text := text_in(payload, "error", "message"):
                return [StreamFailed(Failed(classify(None, None, text), text))]
            case "event_msg/turn_aborted":
                return [RunEnded("aborted", reason=text_in(payload, "reason") or "user")]
            case "event_msg/thread_rolled_back":
                self._roll_back(token_count(payload.get("num_turns")) or 0)
            case "compacted":
                return self._compaction(line)
        return []

    # -- the model and its answers

    def _settings(self, payload: Json) -> list[Fact]:
        facts: list[Fact] = []
        name, effort = text_in(payload, "model"), thinking_level(payload.get("effort"))
        if name is not None and (model := ModelRef(self._provider, name)) != self._model:
            facts.append(ModelChange(model, self._model))
            self._model = model
        if effort is not None and effort != self._effort:
            facts.append(ThinkingLevelChange(effort))
            self._effort = effort
        return facts

    def _add_answer(self, answer: _Answer) -> None:
        lines = answer.lines if answer.usage_line is None else [*answer.lines, answer.usage_line]
        for line in lines:
            self._count(line, is_read=True)
        made = [message for message in self._read(answer.lines) if message.role == "assistant"]
        if not made:
            self._add(lines, [])
            return
        message = self._calls.calls(Message("assistant", tuple(part for one in made for part in one.parts)))
        bad = {
            call.tool_call_id: "not a JSON object"
            for call in message.tool_calls
            if call.raw_args_text is not None and call.executed_by == "client"
        }
        usage = answer.usage or {}
        meta = Meta(
            model=self._model,
            response_id=answer.response_id,
            usage=usage_of(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                read=usage.get("cached_input_tokens"),
                written=usage.get("cache_write_input_tokens"),
                reasoning=usage.get("reasoning_output_tokens"),
                includes_cache=True,
            ),
            finish_reason="tool_calls" if message.tool_calls else "stop",
            bad_args=bad or None,
            completed_at=time_from_text(lines[-1].json.get("timestamp")),
        )
        self._add(lines, [self._stamped(answer.lines[0], replace(message, meta=meta))])

    def _read(self, lines: Sequence[_Line]) -> list[Message]:
        """The messages that the items of these lines make."""
        if not lines:
            return []
        items = [
            {"type": line.item, **{key: line.payload[key] for key in _FIELDS[line.item] if _has(line.payload, key)}}
            for line in lines
        ]
        model = "unknown" if self._model is None else self._model.model
        record = lines[0].record or Record("", 0, b"")
        body = {"model": model, "input": items}
        return read_messages("openai-responses", body, self._provider, record, self._report)

    # -- prompts and results

    def _prompt(self, line: _Line) -> list[Fact]:
        """A message that is not from the model. What Codex adds itself is for people to see, and not sent again."""
        facts: list[Fact] = []
        for message in self._read([line]):
            is_injected = message.role != "user" or _INJECTED.match(message.text) is not None
            is_notice = message.text.startswith(_NOTICES)
            parts: list[Part] = []
            for part in message.parts:
                is_text = isinstance(part, Text)
                parts.append(
                    replace(part, synthetic=is_injected or is_notice, ignored=is_injected) if is_text else part
                )
            if not is_injected and not is_notice:
                self._turns.append(len(self.steps) - 1)
                text = next((part.text for part in reversed(parts) if isinstance(part, Text)), "")  # images come first
                self.title = self.title or short_line(text.partition(_REQUEST)[2] or text)
            facts.append(self._stamped(line, replace(message, parts=tuple(parts))))
        return facts

    def _result(self, line: _Line) -> list[Fact]:
        facts: list[Fact] = []
        for message in self._read([line]):
            if message.role == "tool":
                results = tuple(map(self._with_status, message.tool_results))
                kept = self._calls.results(replace(message, parts=results))
                facts += [] if kept is None else [self._stamped(line, kept)]
        return facts

    def _with_status(self, result: ToolResult) -> ToolResult:
        """The result, with whether it is an error, and the session of a sub-agent."""
        text = result.content if isinstance(result.content, str) else ""
        details = parse_object(text.encode()) if text.startswith("{") else ""
        agent = text_in(details, "agent_id") if isinstance(details, dict) else None
        metadata = {"sessionId": f"codex:{agent}"} if agent is not None and _THREAD.fullmatch(agent) else None
        exit_code = details.get("metadata") if isinstance(details, dict) else None
        is_bad_exit = isinstance(exit_code, dict) and exit_code.get("exit_code") not in (None, 0)
        is_error = is_bad_exit or result.tool_call_id in self._failed or _FAILED.match(text) is not None
        code = ErrorCode.TOOL_ABORTED if is_error and "aborted" in text[-20:] else None
        return replace(result, is_error=is_error, error_code=code, metadata=metadata)

    def _note_status(self, item: Any) -> None:
        """Remember a call that failed; its event comes before its result."""
        call = text_in(item, "id")
        if call is not None and isinstance(item, dict) and item.get("status") == "failed":
            self._failed.add(call)

    # -- changes of the context

    def _roll_back(self, turns: int) -> None:
        if turns > 0 and self._turns:
            before = self._turns[-min(turns, len(self._turns))]
            del self._turns[-min(turns, len(self._turns)) :]
            self._next_parent = START if before < 0 else before

    def _compaction(self, line: _Line) -> list[Fact]:
        """The summary, and the messages that replace the context, except those that Codex adds itself."""
        summary = text_in(line.payload, "message") or ""
        history = line.payload.get("replacement_history")
        items = [_Line(line.record, {"payload": item, "type": "response_item"}) for item in _objects(history)]
        facts: list[Fact] = [CompactionSummary(summary, "")]
        for message in self._read([item for item in items if item.item in _FIELDS]):
            text = message.text.strip()
            if message.role == "system" or _INJECTED.match(text) is not None or text == summary.strip() != "":
                continue
            kept: Message | None = message
            if message.role == "assistant":
                kept = self._calls.calls(message)
            elif message.role == "tool":
                kept = self._calls.results(message)
            else:
                kept = replace(message, parts=tuple(map(_synthetic, message.parts)))
            facts += [] if kept is None else [self._stamped(line, kept)]
        return facts

    def _stamped(self, line: _Line, message: Message) -> Message:
        return replace(message, timestamp=time_from_text(line.json.get("timestamp")))


_READ = (
    "session_meta",
    "event_msg/item_completed",
    "event_msg/thread_rolled_back",
    "event_msg/token_count",
    "turn_context",
)


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _synthetic(part: Part) -> Part:
    return replace(part, synthetic=True) if isinstance(part, Text) else part


def _has(payload: Json, key: str) -> bool:
    return payload.get(key) is not None
