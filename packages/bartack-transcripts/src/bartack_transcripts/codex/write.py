"""Writes rollout files of Codex.

A file needs the metadata of the session and the items of the conversation. Without ``history_mode`` it is a legacy
file, which is complete in itself. Codex lists a session only if an event repeats its first prompt, and shows only what
events repeat, so prompts and answers are written twice, as Codex does. In a file with ``history_mode``, all lines are
numbered, and Codex does not open it if the last one has no number.
"""

import json

from bartack.formats.losses import Losses
from bartack.formats.openai_responses.input_items import InputItems
from bartack.formats.openai_responses.items import ResponsesContinuation
from bartack.nouns.entries import CompactionSummary, Entry
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack_transcripts.values import Json, parse_object, text_in
from bartack_transcripts.writing import (
    Outgoing,
    TranscriptWriter,
    WrittenTranscript,
    json_line,
    time_text,
    with_call_ids,
    with_lines,
)

__all__ = ["CODEX_WRITER"]

_VERSION = "0.166.0"  # the version whose lines these are
_CALL_ID = r"(?s).{1,64}"
_PROVIDER = "openai"  # only its reasoning can be sent back


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The lines of a conversation."""
    losses = Losses(_PROVIDER)
    losses.expect(ResponsesContinuation)
    lines = [] if outgoing.last_record is not None else [_line(outgoing.entries[0], "session_meta", _meta(outgoing))]
    entries = [entry for entry in outgoing.entries if isinstance(entry.fact, Message | CompactionSummary)]
    messages = with_call_ids([entry.fact for entry in entries if isinstance(entry.fact, Message)], _CALL_ID)
    items = _items(messages, losses)
    index = 0
    items_of_entry: dict[str, list[Json]] = {}  # the items of each message, by entry
    for entry in entries:
        if isinstance(entry.fact, CompactionSummary):
            kept_items = [item for id in outgoing.kept_by(entry) for item in items_of_entry.get(id, ())]
            lines.append(_line(entry, "compacted", _compacted(entry.fact, kept_items)))
            continue
        items_of_entry[entry.id] = items[index]
        lines += [_line(entry, "response_item", item) for item in items[index]]
        lines += [_line(entry, "event_msg", event) for event in _events(messages[index])]
        index += 1
    if outgoing.last_record is None and not any(_is_prompt(line) for line in lines):
        lines.insert(1, _line(outgoing.entries[0], "event_msg", _prompt(outgoing, messages)))
    name = f"rollout-{outgoing.started:%Y-%m-%dT%H-%M-%S}-{outgoing.id}.jsonl"
    return WrittenTranscript(name, b"".join(map(json_line, lines)), tuple(losses.found))


def _items(messages: list[Message], losses: Losses) -> list[list[Json]]:
    """The items of each message."""
    message_items: list[list[Json]] = [[] for _ in messages]
    if not any(message.parts for message in messages):
        return message_items
    writer = InputItems(losses, stored=False)
    for index, message in enumerate(messages):
        if message.role == "system":
            losses.add(f"messages[{index}]", "system message", "the program has its own instructions")
        else:
            writer.add(message, index)
    for item, index in zip(writer.items(), losses.trail.starts, strict=True):
        if index >= 0:
            message_items[index].append(_stored(item))
    return message_items


def _stored(item: Json) -> Json:
    """The item as Codex stores it: content is always a list, and messages have a type."""
    if "role" not in item:
        return item
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}


def _meta(outgoing: Outgoing) -> Json:
    git = {} if outgoing.git_branch is None else {"git": {"branch": outgoing.git_branch}}
    return {
        "id": outgoing.id,
        "timestamp": time_text(outgoing.started),
        "cwd": outgoing.directory,
        "originator": "codex_cli_rs",
        "cli_version": _VERSION,
        "source": "cli",
        **git,
    }


def _line(entry: Entry, type: str, payload: Json) -> Json:
    return {"timestamp": time_text(entry.timestamp), "type": type, "payload": payload}


def _events(message: Message) -> list[Json]:
    """What Codex shows of a message."""
    text = "".join(part.text for part in message.parts if isinstance(part, Text) and not part.ignored)
    is_typed = any(isinstance(part, Text) and not part.synthetic for part in message.parts)
    if not text or message.role not in ("user", "assistant") or not is_typed:
        return []
    if message.role == "user":
        return [{"type": "user_message", "message": text, "images": []}]
    return [{"type": "agent_message", "message": text}]


def _is_prompt(line: Json) -> bool:
    return text_in(line, "payload", "type") == "user_message"


def _prompt(outgoing: Outgoing, messages: list[Message]) -> Json:
    """The event by which Codex lists a session in which nobody typed a prompt, such as one begun by a command."""
    text = outgoing.title or next((message.text for message in messages if message.text.strip()), "Imported session")
    return {"type": "user_message", "message": text, "images": []}


def _compacted(compaction: CompactionSummary, kept_items: list[Json]) -> Json:
    """The summary, and the context that replaces everything before it."""
    summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": compaction.summary}]}
    return {"message": compaction.summary, "replacement_history": [summary, *kept_items]}


def _joined(name: str, data: bytes, added_lines: bytes) -> bytes | None:
    """A file with new lines, which are numbered if those of the file are."""
    lines = (parse_object(line) for line in reversed(data.split(b"\n")))
    numbers = (line.get("ordinal") for line in lines if isinstance(line, dict))
    last = next((number for number in numbers if isinstance(number, int)), None)
    if last is not None:
        added = enumerate(map(json.loads, added_lines.splitlines()), last + 1)
        added_lines = b"".join(
            json_line({"timestamp": line["timestamp"], "ordinal": number, **line}) for number, line in added
        )
    return with_lines(name, data, added_lines)


def _folder(outgoing: Outgoing) -> str:
    return f"sessions/{outgoing.started:%Y/%m/%d}"


CODEX_WRITER = TranscriptWriter(
    write, _folder, "codex resume {id}", is_tree=False, has_agent_sessions=True, joined=_joined
)
