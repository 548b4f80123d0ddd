"""The lines of a file of Claude Code, parsed, and grouped into answers."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bartack.nouns.json_values import json_text
from bartack_transcripts.transcript import Record
from bartack_transcripts.values import Json, object_in, objects_in, text_in

__all__ = ["SYNTHETIC", "AnswerLines", "Line", "answers_of", "blocks_of", "is_prompt", "tool_results_in"]

SYNTHETIC = "<synthetic>"  # the model of answers that the program wrote itself


class Line:
    """One record. `json` is empty if it is damaged."""

    __slots__ = ("blocks", "is_sidechain", "json", "message", "parent", "record", "type", "uuid")

    def __init__(self, record: Record, json: Json) -> None:
        self.record = record
        self.json = json
        self.type = text_in(json, "type") or ""
        self.uuid = text_in(json, "uuid")
        self.parent = text_in(json, "parentUuid")
        self.is_sidechain = json.get("isSidechain") is True
        self.message = object_in(json, "message")
        self.blocks = blocks_of(self.message.get("content"))

    @property
    def has_null_parent(self) -> bool:
        """Whether the line explicitly has no parent; in files of other programs, the field may be missing."""
        return self.parent is None and "parentUuid" in self.json

    @property
    def kind(self) -> str:
        """The type, with the subtype of those types that have many."""
        detail = text_in(self.json, "subtype") or text_in(self.json, "attachment", "type")
        return f"{self.type or 'no type'}/{detail}" if detail else self.type or "no type"


def blocks_of(content: Any) -> list[Json]:
    """The blocks of a message; text is short for one of them."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{**block, "input": {}} if _has_no_input(block) else block for block in objects_in(content)]


def _has_no_input(block: Json) -> bool:
    return block.get("type") == "tool_use" and block.get("input") is None


def tool_results_in(line: Line) -> list[str]:
    """The ids of the calls whose results are in this line."""
    if line.type != "user":
        return []
    ids = (text_in(block, "tool_use_id") for block in line.blocks if block.get("type") == "tool_result")
    return [id for id in ids if id is not None]


def is_prompt(line: Line) -> bool:
    """Whether the line is a message that is not the result of a tool."""
    return line.type == "user" and not tool_results_in(line)


@dataclass(eq=False)
class AnswerLines:
    """The lines of one answer of the model."""

    lines: list[Line]
    blocks: list[Json] = field(default_factory=list)
    _keys: set[Hashable] = field(default_factory=set)

    def add(self, line: Line) -> None:
        """Add the blocks of a line that are new; some versions wrote an answer twice. A line may repeat a text."""
        self.lines.append(line)
        earlier_keys = set(self._keys)
        for block in line.blocks:
            key = _key(block)
            if key not in (self._keys if "id" in block else earlier_keys):
                self._keys.add(key)
                self.blocks.append(block)

    def has(self, block: Json) -> bool:
        """Whether it has the block already."""
        return _key(block) in self._keys

    @property
    def last(self) -> Line:
        return self.lines[-1]

    def field(self, name: str) -> Any:
        """The last value that the message has for this field on any of its lines."""
        return next((line.message[name] for line in reversed(self.lines) if line.message.get(name) is not None), None)


def _key(block: Json) -> Hashable:
    """What identifies a block: the id of a call, or its content."""
    match block:
        case {"id": str(id)}:
            return "id", id
        case {"type": "text", "text": str(text)} if len(block) == 2:
            return "text", text
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)} if len(block) == 3:
            return "thinking", text, signature
    return json_text(block)


def answers_of(lines: Sequence[Line]) -> dict[int, AnswerLines]:
    """The answer of each assistant line, by its place.

    Lines with the same message id belong together if they are connected: a session that was copied into another file
    may have the same answer again elsewhere.
    """
    by_uuid = {line.uuid: line for line in lines if line.uuid is not None}
    latest: dict[str, AnswerLines] = {}
    answers: dict[int, AnswerLines] = {}
    for line in lines:
        if line.type != "assistant":
            continue
        id = text_in(line.message, "id")
        answer = None if id is None or line.message.get("model") == SYNTHETIC else latest.get(id)
        if answer is None or not _belongs(line, answer, answers, by_uuid):
            answer = AnswerLines([])
            if id is not None:
                latest[id] = answer
        answer.add(line)
        answers[line.record.place] = answer
    return answers


def _belongs(line: Line, answer: AnswerLines, answers: dict[int, AnswerLines], by_uuid: dict[str, Line]) -> bool:
    """Whether a line continues the answer: nothing but results and notes is between them."""
    if all(answer.has(block) for block in line.blocks):
        return True
    visited: set[str] = set()
    parent = line.parent
    while parent is not None and parent in by_uuid and parent not in visited:
        visited.add(parent)
        above = by_uuid[parent]
        if above.type == "assistant":
            return answers.get(above.record.place) is answer
        if is_prompt(above):
            return False
        parent = above.parent
    return True
