"""Transcripts of Codex: the rollout files of its command line, 0.40 to 0.169.

A line is ``{"timestamp", "type", "payload"}``. Lines of type ``response_item`` are the items of the Responses API that
the model received or sent, and so the conversation. Everything visible is in the file twice: the other lines are events
for the screen, of which only usage, errors, interruptions and the status of commands are read.

- An answer is several items: reasoning, text and calls. It ends with the usage of its response, or with anything that
  is not from the model.
- A compaction has the list of messages that replaces the context.
- ``thread_rolled_back`` removes the last turns: what follows is a branch.
- A fork has only its own lines, and names the file and the line where it begins (`base_of`). That file can be a fork.
- A sub-agent has a file of its own, which names the session that called it.
- A file that has no items at all, such as that of a review, is read from its events (`events.py`).
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.usage import token_count
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import (
    CompactionSummary,
    Fact,
    RunEnded,
    SessionHeader,
    StreamFailed,
    ThinkingLevelChange,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, ToolResult
from bartack_transcripts.codex.events import items_of
from bartack_transcripts.transcript import (
    START,
    Files,
    Problem,
    ReadReport,
    Record,
    Transcript,
    TranscriptStep,
    first_record_id,
)
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    object_in,
    objects_in,
    parse_lines,
    parse_object,
    read_messages,
    short_line,
    text_in,
    thinking_level,
    time_from_text,
    usage_of,
    value_in,
)

__all__ = ["base_of", "looks_like_codex", "read_codex"]

_RECOGNISED = re.compile(rb'"type"\s*:\s*"(?:session_meta|response_item|turn_context|event_msg)"')
_BARE = re.compile(rb'\{\s*"id"\s*:\s*"[^"]*"\s*,\s*"timestamp"\s*:')  # the first line before 0.32
_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INJECTED = re.compile(
    r"\s*<(environment_context|user_instructions|permissions|skills_instructions|INSTRUCTIONS)|# AGENTS.md"
)
# Text in the role of the user that Codex wrote and the model needs, such as <turn_aborted>: one element.
_NOTICE = re.compile(r"\s*<([a-z]+_[a-z_]+|skill)\b[^>]*>.*</\1>\s*", re.DOTALL)
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
_KEPT = 80_000  # characters of prompts that a compaction of the first versions keeps: 20,000 tokens
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_ENCRYPTED = ("compaction", "context_compaction")  # summaries that only OpenAI can read


def looks_like_codex(name: str, head: bytes) -> bool:
    """Whether a file is a rollout, by its first lines."""
    is_bare = name.startswith("rollout-") and _BARE.match(head) is not None
    return name.endswith(".jsonl") and (is_bare or _RECOGNISED.search(head) is not None)


def base_of(data: bytes) -> str | None:
    """The pattern of the file that a fork continues; None if the file is complete."""
    first = parse_object(data.partition(b"\n")[0]) if b'"history_base"' in data else ""
    base = text_in(first, "payload", "history_base", "thread_id")
    return f"rollout-*{base}.jsonl*" if base is not None and _THREAD.fullmatch(base) else None


def read_codex(files: Files) -> list[Transcript]:
    """The session in the first file. The next file is the one that it continues, and so on."""
    if not files:
        return []
    name, *earlier_files = files
    report = ReadReport()
    lines = [_Line(*parsed) for parsed in parse_lines(name, files[name], report)]
    meta = _meta_in(lines)
    before, is_whole = _continued(meta, [files[file] for file in earlier_files])
    if not is_whole:
        report.problems.append(Problem(name, 0, "the session that this one continues is missing or incomplete"))
    has_items = any(line.type == "response_item" for line in (*before, *lines))
    conversation = _Conversation(report, b"" if has_items else b"events")
    conversation.add(before)
    conversation.add(lines if has_items else _from_events(lines))
    header = _header(meta, short_line(conversation.title or text_in(meta, "title")))
    id = text_in(meta, "id")
    own_id = id or first_record_id(files[name])
    return [Transcript("codex", own_id, header, conversation.steps, report, has_own_id=id is not None)]


def _meta_in(lines: Sequence["_Line"]) -> Json:
    return next((line.payload for line in lines if line.type == "session_meta"), {})


def _continued(meta: Json, files: Sequence[bytes]) -> tuple[list["_Line"], bool]:
    """The lines of the sessions that one continues, the oldest first, and whether these are all."""
    segments: list[list[_Line]] = []
    base, is_whole = meta.get("history_base"), True
    for data in files:
        if not isinstance(base, dict):
            break
        lines = [_Line(None, json) for _, json in parse_lines("", data, ReadReport())]
        end = token_count(base.get("end_ordinal_exclusive")) or 0
        numbers = [token_count(line.json.get("ordinal"), place) or 0 for place, line in enumerate(lines)]
        segments.append([line for number, line in zip(numbers, lines, strict=True) if number < end])
        is_whole &= end - 1 in numbers
        base = _meta_in(lines).get("history_base")
    return [line for segment in reversed(segments) for line in segment], is_whole and not isinstance(base, dict)


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
        self.event = event  # the event that the line is made of
        payload = json.get("payload")
        # Before 0.32, items were not wrapped, and the first line was the metadata itself.
        self.payload: Json = payload if isinstance(payload, dict) else {} if "payload" in json else json
        self.type = text_in(json, "type") or ""
        if "payload" not in json:
            is_item = self.type in _FIELDS
            self.type = "response_item" if is_item else self.type or ("session_meta" if "id" in json else "")
        # An item that has a role and no type is a message, as in requests to the API.
        self.item = text_in(self.payload, "type") or ("message" if "role" in self.payload else "")

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
    item_lines: list[_Line] = []
    for line in lines:
        is_event = line.type == "event_msg"
        items = items_of(line.payload, has_items=has_items) if is_event else []
        time = line.json.get("timestamp")
        for number, item in enumerate(items):
            json = {"timestamp": time, "type": "response_item", "payload": item}
            item_lines.append(_Line(None if number else line.record, json, line))
        item_lines += [] if items else [line]
    return item_lines


class _Answer:
    """The items of one response, and the line with its usage."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.usage_line: _Line | None = None  # if it comes after the items
        self.usage: Any = None
        self.response_id: str | None = None

    def has_call(self, line: _Line) -> bool:
        """Whether a call of the answer has the id of this one already; then this is another answer."""
        id = text_in(line.payload, "call_id")
        return id is not None and any(text_in(earlier.payload, "call_id") == id for earlier in self.lines)


class _Answers:
    """Joins the items of each response, and finds its usage, which may be reported again without a new response.

    Items are stored as they arrive, followed by the usage of the response. The first versions stored them when all
    calls were done: after the usage, and each call with its result after it.
    """

    def __init__(self, lines: Sequence[_Line]) -> None:
        self.of: dict[int, _Answer] = {}  # index of a line of the model -> its answer
        self.usages: set[int] = set()  # the indexes of the lines with the usage of an answer before them
        self._is_late = _stores_items_late(lines)
        self._answer: _Answer | None = None
        self._is_open = False
        self._total: Any = None
        self._early: Json | None = None  # the usage of the items that follow
        for index, line in enumerate(lines):
            self._add(index, line)

    def _add(self, index: int, line: _Line) -> None:
        usage, total, response_id = _usage_in(line)
        if line.is_from_model:
            if self._answer is None or not self._is_open or self._answer.has_call(line):
                self._answer, self._is_open = _Answer(), True
                self._answer.usage, self._early = self._early, None
            self._answer.lines.append(line)
            self.of[index] = self._answer
        elif usage is not None:
            self._is_open = False
            is_repeated, self._total = total is not None and total == self._total, total or self._total
            if not is_repeated and self._is_late:
                self._early = usage
            elif not is_repeated and self._answer is not None and self._answer.usage is None:
                self._answer.usage, self._answer.usage_line, self._answer.response_id = usage, line, response_id
                self.usages.add(index)
        elif line.type in ("turn_context", "compacted") or line.item in _TURN_EVENTS:
            self._is_open, self._early = False, None
        elif line.type == "response_item" and not (self._is_late and line.item in _OUTPUTS):
            self._is_open = False


def _stores_items_late(lines: Sequence[_Line]) -> bool:
    """Whether the first usage in a file is before all items of the model."""
    for line in lines:
        if line.is_from_model or line.type == "token_usage_record":
            return False
        if _usage_in(line)[0] is not None:
            return True
    return False


_TURN_EVENTS = ("task_started", "task_complete", "turn_aborted", "thread_rolled_back")


def _usage_in(line: _Line) -> tuple[Json | None, Any, str | None]:
    """The usage of a response, that of all so far, and the id of the response."""
    info: Any = line.payload if line.type == "token_usage_record" else None
    key = "usage"
    if line.kind == "event_msg/token_count":
        info, key = line.payload.get("info"), "last_token_usage"
    usage_info = object_in(info)
    usage = usage_info.get(key)
    is_given = isinstance(usage, dict)
    return usage if is_given else None, usage_info.get("total_token_usage"), text_in(line.payload, "response_id")


class _Conversation:
    """Makes the steps of a session, in the order of its lines."""

    def __init__(self, report: ReadReport, mode: bytes) -> None:
        self.steps: list[TranscriptStep] = []
        self._mode = mode  # part of what steps are from: the same records can be read in two ways
        self._name: str | None = None
        self._first_prompt: str | None = None
        self._report = report
        self._provider = "openai"
        self._effort: str | None = None
        self._messages = MessageFacts()
        self._failed: set[str] = set()  # calls that ended in an error, by the events about them
        self._turns: list[tuple[int, Message]] = []  # the step before each prompt, and the prompt
        self._next_parent: int | None = None  # set by a rollback, for the next step
        self._unnamed = 0  # calls

    @property
    def title(self) -> str | None:
        """The name that the session was given, or its first prompt."""
        return self._name or self._first_prompt

    def add(self, lines: Sequence[_Line]) -> None:
        """Add the lines of a file."""
        answers = _Answers(lines)
        for index, line in enumerate(lines):
            if index in answers.usages:
                continue  # it is part of the step of its answer
            if index in answers.of:
                if answers.of[index].lines[0] is line:
                    self._add_answer(answers.of[index])
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
        self.steps.append(TranscriptStep(tuple(facts), records, time, self._next_parent, content=self._mode))
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
            case _ if line.type == "response_item" and line.item in _OUTPUTS:
                return self._result(line)
            case "response_item/agent_message" | "inter_agent_communication":
                return self._from_agent(line)
            case "event_msg/item_completed":
                self._note_status(payload.get("item"))
            case "event_msg/mcp_tool_call_end" | "event_msg/patch_apply_end":
                self._note_end(payload)
            case "event_msg/task_complete" if text := text_in(payload, "error", "message"):
                return [StreamFailed(error=Failed(classify(None, None, text), text))]
            case "event_msg/turn_aborted":
                return [RunEnded(status="aborted", reason=text_in(payload, "reason") or "user")]
            case "event_msg/thread_name_updated":
                self._name = text_in(payload, "thread_name") or self._name
            case "event_msg/thread_rolled_back":
                self._roll_back(token_count(payload.get("num_turns")) or 0)
            case "compacted":
                return self._compaction(line)
        return []

    # -- the model and its answers

    def _settings(self, payload: Json) -> list[Fact]:
        facts: list[Fact] = []
        name, effort = text_in(payload, "model"), thinking_level(payload.get("effort"))
        facts += self._messages.switch_to(None if name is None else ModelRef(self._provider, name))
        if effort is not None and effort != self._effort:
            facts.append(ThinkingLevelChange(level=effort))
            self._effort = effort
        return facts

    def _add_answer(self, answer: _Answer) -> None:
        lines = answer.lines if answer.usage_line is None else [*answer.lines, answer.usage_line]
        for line in lines:
            self._count(line, is_read=True)
        messages = [message for message in self._read(answer.lines) if message.role == "assistant"]
        if not messages:
            self._add(lines, [])
            return
        message = self._messages.calls(Message("assistant", tuple(part for item in messages for part in item.parts)))
        bad = {
            call.tool_call_id: "not a JSON object"
            for call in message.tool_calls
            if call.raw_args_text is not None and call.executed_by == "client"
        }
        usage = answer.usage or {}
        meta = Meta(
            model=self._messages.model,
            response_id=answer.response_id,
            usage=usage_of(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                cache_read=usage.get("cached_input_tokens"),
                cache_write=usage.get("cache_write_input_tokens"),
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
        items = [self._item(line) for line in lines]
        model = "unknown" if self._messages.model is None else self._messages.model.model
        record = lines[0].record or Record("", 0, b"")
        body = {"model": model, "input": items}
        return read_messages("openai-responses", body, self._provider, record, self._report)

    def _item(self, line: _Line) -> Json:
        """An item as its API has it. Calls of the provider's own tools had no ids before 0.15x."""
        fields = {key: line.payload[key] for key in _FIELDS[line.item] if line.payload.get(key) is not None}
        if line.item.endswith("_call") and not (text_in(fields, "call_id") or text_in(fields, "id")):
            self._unnamed += 1
            fields["id"] = f"{line.item}_{self._unnamed}"
        output = fields.get("output")
        if isinstance(output, dict) and "content" in output:  # the first versions wrote such an output
            fields["output"] = output["content"]
            if output.get("success") is False and (call := text_in(fields, "call_id")):
                self._failed.add(call)
        elif isinstance(output, dict):  # written by no known version; the API takes text or a list
            fields["output"] = json_text(output)
        return {"type": line.item, **fields}

    # -- prompts and results

    def _prompt(self, line: _Line) -> list[Fact]:
        """A message that is not from the model. What Codex adds itself is for people to see, and not sent again."""
        facts: list[Fact] = []
        for message in self._read([line]):
            is_injected = message.role != "user" or _INJECTED.match(message.text) is not None
            is_notice = _NOTICE.fullmatch(message.text) is not None
            parts: list[Part] = []
            for part in message.parts:
                is_text = isinstance(part, Text)
                parts.append(
                    replace(part, synthetic=is_injected or is_notice, ignored=is_injected) if is_text else part
                )
            if not is_injected and not is_notice:
                self._turns.append((len(self.steps) - 1, message))
                text = next((part.text for part in reversed(parts) if isinstance(part, Text)), "")  # images come first
                self._first_prompt = self._first_prompt or text.partition(_REQUEST)[2] or text
            facts.append(self._stamped(line, replace(message, parts=tuple(parts))))
        return facts

    def _from_agent(self, line: _Line) -> list[Fact]:
        """A message of another agent; only its provider can read one that is encrypted."""
        content = line.payload.get("content")
        blocks = [{"text": content}] if isinstance(content, str) else objects_in(content)
        text = "\n".join(text for block in blocks if (text := text_in(block, "text")))
        if not text:
            return []
        message = self._stamped(line, Message("user", (Text(text, synthetic=True),)))
        self._turns.append((len(self.steps) - 1, message))
        self._first_prompt = self._first_prompt or text
        return [message]

    def _result(self, line: _Line) -> list[Fact]:
        facts: list[Fact] = []
        for message in self._read([line]):
            if message.role == "tool":
                results = tuple(map(self._with_status, message.tool_results))
                open_results = self._messages.results(replace(message, parts=results))
                facts += [] if open_results is None else [self._stamped(line, open_results)]
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

    def _note_end(self, event: Json) -> None:
        """The same for the events of legacy files."""
        call, result = text_in(event, "call_id"), event.get("result")
        done = value_in(result, "Ok")
        is_error = isinstance(done, dict) and (done.get("isError") is True or done.get("is_error") is True)
        is_failed = isinstance(result, dict) and "Err" in result
        if call is not None and (is_error or is_failed or event.get("success") is False):
            self._failed.add(call)

    # -- changes of the context

    def _roll_back(self, turns: int) -> None:
        if turns > 0 and self._turns:
            before, _ = self._turns[-min(turns, len(self._turns))]
            del self._turns[-min(turns, len(self._turns)) :]
            self._next_parent = START if before < 0 else before

    def _compaction(self, line: _Line) -> list[Fact]:
        """The summary, and the messages that replace the context, except those that Codex adds itself."""
        summary = text_in(line.payload, "message") or ""
        history = line.payload.get("replacement_history")
        items = [_Line(line.record, {"payload": item, "type": "response_item"}) for item in objects_in(history)]
        if not summary and any(item.item in _ENCRYPTED for item in items):
            if line.record is not None:
                self._report.left_out(
                    line.record, "the summary is encrypted; the messages before it stay in the context"
                )
            return []
        facts: list[Fact] = [CompactionSummary(summary=summary, first_kept_entry_id="")]
        replacements = self._read([item for item in items if item.item in _FIELDS])
        for message in replacements if isinstance(history, list) else self._latest_prompts():
            text = message.text.strip()
            is_summary = message.role == "user" and text == summary.strip() != ""
            if message.role == "system" or _INJECTED.match(text) is not None or is_summary:
                continue
            fact: Message | None = message
            if message.role == "assistant":
                fact = self._messages.calls(message)
            elif message.role == "tool":
                fact = self._messages.results(message)
            else:
                fact = replace(message, parts=tuple(map(_synthetic, message.parts)))
            facts += [] if fact is None else [self._stamped(line, fact)]
        return facts

    def _latest_prompts(self) -> list[Message]:
        """The prompts that the first versions kept beside a summary."""
        prompts: list[Message] = []
        size = 0
        for _, prompt in reversed(self._turns):
            size += len(prompt.text)
            if size > _KEPT:
                break
            prompts.append(prompt)
        return prompts[::-1]

    def _stamped(self, line: _Line, message: Message) -> Message:
        return replace(message, timestamp=time_from_text(line.json.get("timestamp")))


_READ = (
    "session_meta",
    "event_msg/item_completed",
    "event_msg/mcp_tool_call_end",
    "event_msg/patch_apply_end",
    "event_msg/thread_name_updated",
    "event_msg/thread_rolled_back",
    "event_msg/token_count",
    "turn_context",
)


def _synthetic(part: Part) -> Part:
    return replace(part, synthetic=True) if isinstance(part, Text) else part
