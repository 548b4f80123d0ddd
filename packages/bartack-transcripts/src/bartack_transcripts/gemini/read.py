"""Transcripts of Gemini CLI: lines since 0.2x, and the single JSON object of earlier versions.

A file is a log of changes to a list of messages:

- A message is added to the list, or replaces the one with the same id. An answer is written when it arrives, and again
  when its tools have finished; both lines are one step here.
- ``{"$set": {"messages": [...]}}`` replaces the list: when a session is continued, with the same messages in another
  notation, and when it is compressed, with a summary and the messages that were kept.
- ``{"$rewindTo": id}`` removes this message and all after it.

So a change of what was there before is a branch, unless the messages mean the same. Results are stored twice, in the
calls of an answer and in a message of the user; they are read once. Signatures of thoughts are not stored.

A sub-agent has a file of its own, named by its id, in a folder with the id of the session that called it.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from glob import escape
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.gemini import gemini_usage
from bartack.formats.usage import consistent
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import CompactionSummary, Fact, RunEnded, SessionHeader, StreamFailed
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, ToolResult
from bartack_transcripts.gemini_parts import part_list, read_contents, text_of_parts
from bartack_transcripts.json_lists import parse_list
from bartack_transcripts.transcript import START, Files, ReadReport, Record, Transcript, TranscriptStep, digest_id
from bartack_transcripts.values import Json, MessageFacts, objects_in, parse_lines, short_line, text_in, time_from_text

__all__ = ["COMMANDS", "PROVIDER", "SNAPSHOT", "looks_like_gemini", "outer_of", "read_gemini"]

PROVIDER = "google"
SNAPSHOT = "<state_snapshot>"  # the beginning of a summary
_SUMMARY = re.compile(r"\s*<state_snapshot>\n(.*)\n</state_snapshot>\s*", re.DOTALL)
_RECOGNISED = re.compile(rb'"projectHash"\s*:')
_INJECTED = ("<session_context>", "<hook_context>")
COMMANDS = ("/", "?")  # such prompts are commands for the program, not for the model
_DIRECTORY = re.compile(r"\*\*Workspace Directories:\*\*\n\s*- (.+)")
_CANCELLED = "Request cancelled"


def looks_like_gemini(name: str, head: bytes) -> bool:
    """Whether a file begins with the metadata of a session."""
    is_lines = name.endswith(".jsonl") and _RECOGNISED.search(head.partition(b"\n")[0]) is not None
    return is_lines or (name.endswith(".json") and _RECOGNISED.search(head) is not None and b'"sessionId"' in head)


def outer_of(name: str) -> str | None:
    """The pattern of the file of the session that called a sub-agent."""
    outer = PurePosixPath(name).parent.name
    return f"session-*-{escape(outer[:8])}.json*" if outer else None


def read_gemini(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next(iter(files), None)
    if name is None:
        return []
    reader = _Reader()
    if name.endswith(".json"):
        parsed = parse_list(name, files[name], reader.report, "messages")
        for record, json in parsed.items:
            reader.add_message(json, (record,))
        reader.meta |= parsed.around
        if parsed.around:
            reader.report.add("metadata", "read")
        reader.steps += parsed.last_step()
    else:
        reader.add_lines(parse_lines(name, files[name], reader.report))
    id = _session_id(reader.meta)
    own_id = id or digest_id(b"".join(record.data for step in reader.steps[:1] for record in step.records[:1]))
    if name.endswith(".json"):
        own_id += ".json"  # a program that was updated writes the session again, as lines
    header = reader.header(name)
    return [Transcript("gemini", own_id, header, reader.steps, reader.report, has_own_id=id is not None)]


def _session_id(meta: Json) -> str | None:
    """The id of a sub-agent; that of any other session, after its time: each continuation is a file of its own."""
    id, started = text_in(meta, "sessionId"), text_in(meta, "startTime")
    if id is None or started is None or text_in(meta, "kind") == "subagent":
        return id
    return f"{started[:16].replace(':', '-')}-{id}"


def _is_ignored(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Text) and part.ignored for part in message.parts)


def _bare(part: Part) -> Part:
    return part if part.continuation is None else replace(part, continuation=None)


class _Turn(NamedTuple):
    """A message of the source as facts without ids and times, and the step in which it became facts."""

    id: str | None
    facts: tuple[Fact, ...]
    json: Json
    step: int = START

    @property
    def said(self) -> tuple[Fact, ...]:
        """The messages that a model gets, without signatures and the like: lists of messages may lack all others."""
        messages = (fact for fact in self.facts if isinstance(fact, Message) and not _is_ignored(fact))
        return tuple(replace(message, parts=tuple(map(_bare, message.parts))) for message in messages)


class _Reader:
    """Makes the steps of a session, and keeps the list of messages as the program would have it."""

    def __init__(self) -> None:
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self.meta: Json = {}
        self._turns: list[_Turn] = []
        self._place_of: dict[str, int] = {}  # message id -> index of its turn
        self._closed: set[str] = set()  # calls in the list that have a result
        self._messages = MessageFacts()
        self._next_parent: int | None = None  # set by a rewind, for the next step
        self._emptied: tuple[int, list[_Turn]] | None = None  # the last step before the list was emptied, and the list
        self._prompt: str | None = None
        self._directory: str | None = None

    def header(self, name: str) -> SessionHeader:
        metadata: Json = {"program": "gemini"}
        directories = self.meta.get("directories")
        directory = (
            directories[0]
            if isinstance(directories, list) and directories and isinstance(directories[0], str)
            else self._directory
        )
        if directory:
            metadata["directory"] = directory
        if id := text_in(self.meta, "sessionId"):
            metadata["sourceId"] = id
        if "/" in name:
            metadata["parentSession"] = f"gemini:{PurePosixPath(name).parent.name}"
        title = short_line(text_in(self.meta, "summary") or self._prompt)
        return SessionHeader(title=title, origin="gemini", metadata=metadata)

    # -- lines

    def add_lines(self, lines: Sequence[tuple[Record, Json]]) -> None:
        """Add the lines of a file."""
        place = 0
        while place < len(lines):
            record, json = lines[place]
            if text_in(json, "$rewindTo"):
                self._rewind(json, record)
            elif text_in(json, "id"):
                end = _end_of_message(lines, place)
                records = tuple(record for record, _ in lines[place:end])
                self.add_message(lines[end - 1][1], records)
                place = end - 1
            else:
                self._update(json, record)
            place += 1

    def add_message(self, json: Json, records: tuple[Record, ...]) -> None:
        """Add a message, or replace the one with the same id."""
        kind = text_in(json, "type") or "no type"
        id = text_in(json, "id")
        place = self._place_of.get(id or "", len(self._turns))
        closed = self._closed if place == len(self._turns) else _results_of(self._turns[:place])
        turns = [self._read_turn(json, records[-1], closed)]
        turns += [self._read_turn(turn.json, records[-1], closed) for turn in self._turns[place + 1 :]]
        if json:
            is_read = bool(turns[0].facts) or kind == "user"
            self.report.add(kind, "read" if is_read else "opaque")
            for _ in records[1:]:
                self.report.add("update", "read")
        self._change(place, turns, records)

    def _update(self, json: Json, record: Record) -> None:
        """Take over metadata, and a list of messages if there is one."""
        assigned = json.get("$set")
        changes = assigned if isinstance(assigned, dict) else json if text_in(json, "projectHash") else {}
        self.meta |= {key: value for key, value in changes.items() if key != "messages"}
        messages = changes.get("messages")
        if json:
            self.report.add("$set" if assigned is not None else "metadata", "read" if changes else "opaque")
        if not isinstance(messages, list):
            self._add_step((), (record,), time_from_text(changes.get("startTime")))
            return
        closed: set[str] = set()
        read_turns = _joined([self._read_turn(item, record, closed) for item in messages if isinstance(item, dict)])
        previous = [turn for turn in self._turns if turn.said]
        turns = [turn for turn in read_turns if turn.said]
        if turns and not previous and self._emptied is not None:
            # The program empties the list when it continues a session, and then writes it again.
            self._next_parent, self._turns = self._emptied
            self._emptied = None
            self._index()
            previous = [turn for turn in self._turns if turn.said]
        elif previous and not turns:
            self._emptied = len(self.steps) - 1, list(self._turns)
        if self._compact(previous, turns, record):
            return
        same = 0
        while same < min(len(previous), len(turns)) and previous[same].said == turns[same].said:
            same += 1
        if same == len(previous):
            self._change(len(self._turns), turns[same:], (record,))
            return
        keep = previous[same - 1] if same else None
        place = 0 if keep is None else self._turns.index(keep) + 1
        self._change(place, turns[same:], (record,))

    def _rewind(self, json: Json, record: Record) -> None:
        place = self._place_of.get(json["$rewindTo"], 0)
        self.report.add("$rewindTo", "read")
        self._change(place, [], (record,))

    # -- the list of messages

    def _change(self, place: int, turns: Sequence[_Turn], records: tuple[Record, ...]) -> None:
        """Replace the messages from this place on, in one step."""
        is_changed = place < len(self._turns)
        if is_changed:
            self._next_parent = self._turns[place - 1].step if place else START
            del self._turns[place:]
        number = len(self.steps)
        facts = [fact for turn in turns for fact in self._facts_of(turn)]
        added = [turn._replace(step=number) for turn in turns]
        self._turns += added
        if is_changed:
            self._index()
        else:
            self._closed |= _results_of(added)
            self._place_of |= {turn.id: index for index, turn in enumerate(added, place) if turn.id is not None}
        self._add_step(facts, records, _time_of(turns[0].json) if turns else None)

    def _index(self) -> None:
        self._closed = _results_of(self._turns)
        self._place_of = {turn.id: index for index, turn in enumerate(self._turns) if turn.id is not None}

    def _compact(self, previous: list[_Turn], turns: list[_Turn], record: Record) -> bool:
        """Whether the new list is a summary and the end of the old one; then it becomes a compaction."""
        first = turns[0].said[0] if turns else None
        if (
            not isinstance(first, Message)
            or SNAPSHOT not in first.text
            or (previous and previous[0].said == turns[0].said)
        ):
            return False
        kept_count = next(
            (
                count
                for count in range(min(len(previous), len(turns) - 1), -1, -1)
                if _ends_alike(previous, turns, count)
            ),
            0,
        )
        if len(turns) - kept_count > 2:  # the summary, and the model's answer to it
            return False
        match = _SUMMARY.fullmatch(first.text)
        number = len(self.steps)
        refers_to = previous[len(previous) - kept_count].step if kept_count else None
        summary = CompactionSummary(summary=match[1] if match else first.text, first_kept_entry_id="")
        self._turns = [turn._replace(step=number) for turn in turns[: len(turns) - kept_count]] + previous[
            len(previous) - kept_count :
        ]
        self._index()
        self._add_step((summary,), (record,), None, refers_to)
        return True

    def _add_step(
        self,
        facts: Sequence[Fact],
        records: tuple[Record, ...],
        time: datetime | None = None,
        refers_to: int | None = None,
    ) -> None:
        self.steps.append(TranscriptStep(tuple(facts), records, time, self._next_parent, refers_to))
        self._next_parent = None

    # -- messages

    def _facts_of(self, turn: _Turn) -> list[Fact]:
        """The facts of a message, with ids, time and everything about the answer."""
        facts: list[Fact] = []
        name, time = text_in(turn.json, "model"), _time_of(turn.json)
        for number, fact in enumerate(turn.facts):
            if not isinstance(fact, Message):
                facts.append(fact)
                continue
            message = replace(fact, timestamp=time, id=turn.id if not number else None)
            if message.role == "assistant":
                model = None if name is None else ModelRef(PROVIDER, name)
                reason: Any = "tool_calls" if message.tool_calls else "stop"
                meta = Meta(model=model, usage=_usage(turn.json.get("tokens")), finish_reason=reason)
                message = replace(message, meta=meta)
            elif message.role == "tool":
                message = _with_agents(message, turn.json)
            facts += self._messages.of(message)
        return facts

    def _read_turn(self, json: Json, record: Record, closed: set[str]) -> _Turn:
        """Read a message. `closed` are the calls that have a result already; those of this message are added."""
        id, kind, content = text_in(json, "id"), text_in(json, "type"), json.get("content")
        parts = part_list(content)
        text = text_of_parts(parts)
        match kind:
            case "user":
                facts: list[Fact] = self._user(parts, text, record)
            case "gemini":
                facts = list(self._answer(json, parts, record))
            case "error" if text:
                facts = [StreamFailed(error=Failed(classify(None, None, text), text))]
            case "info" if _CANCELLED in text:
                facts = [RunEnded(status="aborted", reason="user")]
            case _:
                facts = []
        return _Turn(id, tuple(_without(facts, closed)), json)

    def _user(self, parts: list[Json], text: str, record: Record) -> list[Fact]:
        trimmed = text.strip()
        if trimmed.startswith(_INJECTED):
            directory = _DIRECTORY.search(text)
            self._directory = self._directory or (directory[1].strip() if directory else None)
            return []
        if trimmed.startswith(COMMANDS):
            return [Message("user", (Text(text, ignored=True),))]
        if SNAPSHOT not in trimmed:
            self._prompt = self._prompt or trimmed or None
        return list(read_contents([{"role": "user", "parts": parts}], PROVIDER, record, self.report))

    def _answer(self, json: Json, parts: list[Json], record: Record) -> list[Message]:
        """The answer as the program would send it, and the results of its calls."""
        calls = [call for call in objects_in(json, "toolCalls") if text_in(call, "id") and text_in(call, "name")]
        if not any("functionCall" in part or part.get("thought") for part in parts):
            thoughts = [{"text": text, "thought": True} for text in map(_thought, objects_in(json, "thoughts")) if text]
            call_parts = [{"functionCall": {key: call.get(key) for key in ("id", "name", "args")}} for call in calls]
            parts = [*thoughts, *parts, *call_parts]
        parts = [part for part in parts if part.get("text") != ""]
        if not parts:
            return []
        responses = [part for call in calls for part in _result_parts(call)]
        contents = [{"role": "model", "parts": parts}, *([{"role": "user", "parts": responses}] if responses else [])]
        failed = {call["id"] for call in calls if call.get("status") in ("error", "cancelled")}
        return [_with_errors(message, failed) for message in read_contents(contents, PROVIDER, record, self.report)]


def _end_of_message(lines: Sequence[tuple[Record, Json]], place: int) -> int:
    """The end of the lines that write this message, and nothing else but the time of the last change."""
    id, end = lines[place][1]["id"], place + 1
    for index in range(place + 1, len(lines)):
        json = lines[index][1]
        if json.get("id") == id:
            end = index + 1
        elif not (isinstance(json.get("$set"), dict) and json["$set"].keys() == {"lastUpdated"}):
            break
    return end


def _ends_alike(previous: list[_Turn], turns: list[_Turn], count: int) -> bool:
    return [turn.said for turn in previous[len(previous) - count :]] == [
        turn.said for turn in turns[len(turns) - count :]
    ]


def _results_of(turns: Sequence[_Turn]) -> set[str]:
    return {result.tool_call_id for turn in turns for fact in turn.said for result in _results(fact)}


def _results(fact: Fact) -> tuple[ToolResult, ...]:
    return fact.tool_results if isinstance(fact, Message) else ()


def _joined(turns: Sequence[_Turn]) -> list[_Turn]:
    """The messages, each with the results of its calls: a list that a program was continued with has them apart."""
    joined: list[_Turn] = []
    for turn in turns:
        first = next(iter(turn.facts), None)
        if joined and isinstance(first, Message) and first.role == "tool":
            joined[-1] = joined[-1]._replace(facts=joined[-1].facts + turn.facts)
        else:
            joined.append(turn)
    return joined


def _without(facts: Sequence[Fact], closed: set[str]) -> list[Fact]:
    """The facts without results that were read before, which are in `closed`."""
    remaining: list[Fact] = []
    for fact in facts:
        if isinstance(fact, Message) and fact.role == "tool":
            open_results = tuple(result for result in fact.tool_results if result.tool_call_id not in closed)
            closed.update(result.tool_call_id for result in open_results)
            if open_results:
                remaining.append(replace(fact, parts=open_results))
        else:
            closed.difference_update(call.tool_call_id for call in getattr(fact, "tool_calls", ()))
            remaining.append(fact)
    return remaining


def _result_parts(call: Json) -> list[Json]:
    """The parts of a call's result. After a session was continued, each call has the results of all."""
    result = call.get("result")
    if isinstance(result, str):
        response = {"id": call["id"], "name": call["name"], "response": {"output": result}}
        return [{"functionResponse": response}]
    parts = part_list(result)
    own = [part for part in parts if text_in(part, "functionResponse", "id") in (None, call["id"])]
    return own if len(own) == len(parts) else [part for part in own if "functionResponse" in part]


def _with_errors(message: Message, failed: set[str]) -> Message:
    if message.role != "tool":
        return message
    results = [
        replace(result, is_error=result.is_error or result.tool_call_id in failed) for result in message.tool_results
    ]
    return replace(message, parts=tuple(results))


def _with_agents(message: Message, json: Json) -> Message:
    """The results, with the sessions of the sub-agents that they are from."""
    calls = objects_in(json, "toolCalls")
    agents = {text_in(call, "id"): agent for call in calls if (agent := text_in(call, "agentId"))}
    if not agents:
        return message
    results = (
        replace(result, metadata={"sessionId": f"gemini:{agents[result.tool_call_id]}"})
        if result.tool_call_id in agents
        else result
        for result in message.tool_results
    )
    return replace(message, parts=tuple(results))


def _thought(thought: Json) -> str:
    subject, description = text_in(thought, "subject"), text_in(thought, "description") or ""
    return description if subject is None else f"**{subject}** {description}"


def _usage(tokens: Any) -> Usage | None:
    if not isinstance(tokens, dict):
        return None
    counts = [tokens.get(key) for key in ("input", "tool", "output", "thoughts", "cached")]
    return consistent(gemini_usage(*counts))


def _time_of(json: Json) -> datetime | None:
    return time_from_text(json.get("timestamp"))
