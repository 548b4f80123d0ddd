"""Writes files of Gemini CLI.

Results go into the calls of the answer, and not into a message of their own: the program would send them twice. A
program of this family has no other providers, so thinking and signatures of other providers are left out.
"""

import re
from hashlib import sha256
from pathlib import PurePosixPath

from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry, StreamFailed
from bartack.nouns.ids import as_uuid
from bartack.nouns.messages import Message, Meta
from bartack_transcripts.gemini.read import COMMANDS, PROVIDER, SNAPSHOT
from bartack_transcripts.gemini_parts import ContentWriter, text_of_parts
from bartack_transcripts.values import Json, text_in
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, json_line, time_text, with_lines

__all__ = ["GEMINI_WRITER"]

_ANSWER = "Got it. Thanks for the additional context!"  # the model's answer that the program adds after a summary
_NO_COMMAND = "\u200b"  # a space without width
_SUBJECT = re.compile(r"\*\*(.+?)\*\* (.*)", re.DOTALL)


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The lines of a conversation."""
    writer = _Writer(outgoing)
    started = time_text(outgoing.started)
    if outgoing.last_record is None:
        header: Json = {
            "sessionId": outgoing.id,
            "projectHash": sha256(outgoing.directory.encode()).hexdigest(),
            "startTime": started,
            "lastUpdated": time_text(outgoing.entries[-1].timestamp),
            "kind": "main",
            "directories": [outgoing.directory],
        }
        writer.lines.append(header | ({"summary": outgoing.title} if outgoing.title else {}))
    elif outgoing.title:
        writer.lines.append({"$set": {"summary": outgoing.title}})
    for entry in outgoing.entries:
        writer.add(entry)
    name = f"session-{started[:16].replace(':', '-')}-{outgoing.id[:8]}.jsonl"
    return WrittenTranscript(name, b"".join(map(json_line, writer.lines)), tuple(writer.contents.losses.found))


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.lines: list[Json] = []
        self.contents = ContentWriter(PROVIDER)
        self._written: dict[str, Json] = {}  # the message of each entry
        self._call_of: dict[str, Json] = {}  # call id -> its JSON

    def add(self, entry: Entry) -> None:
        """Add what an entry becomes."""
        match entry.fact:
            case Message(role="system"):
                why = "the program has its own instructions"
                self.contents.losses.add(f"entry {entry.seq}", "system message", why)
            case Message(role="tool") as message:
                self._results(entry, message)
            case Message() as message:
                self._message(entry, message)
            case CompactionSummary() as compaction:
                self._compaction(entry, compaction)
            case StreamFailed() as failed:
                self._line(entry, {"type": "error", "content": failed.error.message})
            case _:
                pass

    def _line(self, entry: Entry, fields: Json, *, suffix: str = "") -> Json:
        id = as_uuid(entry.id + suffix if suffix else entry.id)
        line: Json = {"id": id, "timestamp": time_text(entry.timestamp), **fields}
        self.lines.append(line)
        self._written[entry.id + suffix] = line
        return line

    def _message(self, entry: Entry, message: Message) -> None:
        contents = self.contents.write(message, f"entry {entry.seq}")
        parts = [part for content in contents for part in content["parts"]]
        if message.role == "user":
            if parts:
                self._line(entry, {"type": "user", "content": self._sent(entry, parts)})
            return
        meta = message.meta or Meta()
        calls = [self._call(part["functionCall"], entry) for part in parts if "functionCall" in part]
        thoughts = [_thought(part["text"], entry) for part in parts if part.get("thought")]
        text_parts = [part for part in parts if "functionCall" not in part and not part.get("thought")]
        content: list[Json] | str = text_parts
        if text_parts and parts.index(text_parts[-1]) > len(thoughts) + len(text_parts) - 1:
            content = parts  # the program adds calls after all content, unless they are in it
        elif all(part.keys() == {"text"} for part in text_parts):
            content = "".join(part["text"] for part in text_parts)
        fields: Json = {"type": "gemini", "content": content, "thoughts": thoughts}
        if meta.usage is not None:
            fields["tokens"] = _tokens(meta.usage)
        if meta.model is not None:
            fields["model"] = meta.model.model
        self._line(entry, fields | ({"toolCalls": calls} if calls else {}))

    def _sent(self, entry: Entry, parts: list[Json]) -> list[Json]:
        """The prompt, so that the program sends it: it does not if the text looks like one of its commands."""
        if not text_of_parts(parts).strip().startswith(COMMANDS):
            return parts
        why = "the program takes this prompt for a command and would not send it"
        self.contents.losses.add(f"entry {entry.seq}", "an invisible character", why, action="added")
        place = next(index for index, part in enumerate(parts) if "text" in part)
        return [*parts[:place], {**parts[place], "text": _NO_COMMAND + parts[place]["text"]}, *parts[place + 1 :]]

    def _call(self, call: Json, entry: Entry) -> Json:
        call_json = {**call, "status": "success", "timestamp": time_text(entry.timestamp), "displayName": call["name"]}
        self._call_of[call["id"]] = call_json
        return call_json

    def _results(self, entry: Entry, message: Message) -> None:
        """Put results into their calls; those of calls in an earlier part of the file become a message."""
        failed = {result.tool_call_id for result in message.tool_results if result.is_error}
        orphans: list[Json] = []
        for content in self.contents.write(message, f"entry {entry.seq}"):
            for part in content["parts"]:
                id = text_in(part, "functionResponse", "id")
                call = self._call_of.get(id) if id is not None else None
                if call is None:
                    orphans.append(part)
                    continue
                call["result"] = [part]
                call["status"] = "error" if id in failed else "success"
        if orphans:
            self._line(entry, {"type": "user", "content": orphans})

    def _compaction(self, entry: Entry, compaction: CompactionSummary) -> None:
        kept_messages = [self._written[id] for id in self._outgoing.kept_by(entry) if id in self._written]
        text = f"{SNAPSHOT}\n{compaction.summary}\n</state_snapshot>"
        summary = {"id": as_uuid(entry.id), "timestamp": time_text(entry.timestamp), "type": "user"}
        answer = {**summary, "id": as_uuid(f"{entry.id}/answer"), "type": "gemini", "content": _ANSWER}
        messages = [{**summary, "content": [{"text": text}]}, answer, *kept_messages]
        self.lines.append({"$set": {"messages": messages, "lastUpdated": time_text(entry.timestamp)}})


def _thought(text: str, entry: Entry) -> Json:
    headline = _SUBJECT.fullmatch(text)
    subject, description = (headline[1], headline[2]) if headline else ("", text)
    return {"subject": subject, "description": description, "timestamp": time_text(entry.timestamp)}


def _tokens(usage: Usage) -> Json:
    thoughts = usage.reasoning_tokens or 0
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens - thoughts,
        "cached": usage.cache_read_tokens or 0,
        "thoughts": thoughts,
        "tool": 0,
        "total": usage.total_tokens,
    }


def _folder(outgoing: Outgoing) -> str:
    """The folder of a project is named after its directory; of two with the same name, the second one has a number."""
    name = re.sub("[^a-z0-9]+", "-", PurePosixPath(outgoing.directory).name.lower()).strip("-")
    return f"tmp/{name or 'project'}/chats"


def _joined(name: str, data: bytes, added_lines: bytes) -> bytes | None:
    """The file with new lines; the single object of old versions is rewritten as lines."""
    return with_lines(name, data, added_lines) if name.endswith(".jsonl") else None


GEMINI_WRITER = TranscriptWriter(write, _folder, "gemini --resume {id}", is_tree=False, joined=_joined)
