"""Writes files of Qwen Code: a chain of lines with the contents of Gemini's API."""

import re
from typing import Any

from bartack.interop.gemini_parts import ContentWriter
from bartack.interop.qwen.read import PROVIDER
from bartack.interop.values import Json, text_in
from bartack.interop.writing import Outgoing, TranscriptWriter, Written, json_line, time_text
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry
from bartack.nouns.ids import as_uuid
from bartack.nouns.messages import Message

__all__ = ["QWEN_WRITER"]

_VERSION = "0.15.10"  # whose lines these are
_ANSWER = "Got it. Thanks for the additional context!"  # the model's answer that the program adds after a summary


def write(outgoing: Outgoing) -> Written:
    """The lines of a conversation."""
    writer = _Writer(outgoing)
    for entry in outgoing.entries:
        writer.add(entry)
    if outgoing.title:
        title = {"customTitle": outgoing.title, "titleSource": "manual"}
        fields = {"type": "system", "subtype": "custom_title", "systemPayload": title}
        writer.line(outgoing.entries[-1], fields, suffix="title")
    data = b"".join(map(json_line, writer.lines))
    return Written(f"{outgoing.id}.jsonl", data, tuple(writer.contents.losses.found))


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self.lines: list[Json] = []
        self.contents = ContentWriter(PROVIDER)
        self._outgoing = outgoing
        self._parent = text_in(outgoing.after, "uuid")
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
        kept = [one for id in self._outgoing.kept_by(entry) for one in self._written.get(id, ())]
        history: list[Any] = [
            {"role": "user", "parts": [{"text": compaction.summary}]},
            {"role": "model", "parts": [{"text": _ANSWER}]},
            *kept,
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
        fields["usageMetadata"] = _usage(meta.usage)
    return fields


def _usage(usage: Usage) -> Json:
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
