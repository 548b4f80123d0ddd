"""Writes export files of opencode, for `opencode import`.

opencode has no folder in which it would find a file: `opencode import FILE`, run in the directory of the project, adds
the session to its database. It checks the file against its schema, so every required field is there. A call and its
result are one part. Ids have to ascend, and what is in the database already is never changed. Messages are sorted by
their times, which therefore never go back.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.media import data_url
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry, StreamFailed
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack_transcripts.opencode.read import objects_of
from bartack_transcripts.values import Json, text_in
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, json_document, written_anew

__all__ = ["OPENCODE_WRITER"]

_VERSION = "1.18.33"  # the version whose objects these are
_FINISH = {"stop": "stop", "tool_calls": "tool-calls", "length": "length", "content_filter": "content-filter"}
_NO_MODEL = ModelRef("unknown", "unknown")


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The export file of a conversation."""
    writer = _Writer(outgoing)
    for entry in outgoing.entries:
        writer.add(entry)
    document = {"info": writer.session(), "messages": writer.messages}
    return WrittenTranscript(
        f"{writer.session_id}.json", json_document(document), tuple(writer.losses.found), writer.session_id
    )


class _Writer:
    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.session_id = f"ses_{sha256(outgoing.id.encode()).hexdigest()[:24]}"
        self.losses = Losses("")
        self.messages: list[Json] = []
        self._count = 0
        self._now = 0
        self._places: dict[str, int] = {}  # entry id -> the number of messages before it
        self._prompt = ""  # the id of the user's last message
        self._model = next((model for entry in outgoing.entries if (model := _model_of(entry))), _NO_MODEL)
        self._results = {
            result.tool_call_id: (result, entry)
            for entry in outgoing.entries
            if isinstance(entry.fact, Message)
            for result in entry.fact.tool_results
        }

    def session(self) -> Json:
        outgoing = self._outgoing
        return {
            "id": self.session_id,
            "slug": "imported",
            "version": _VERSION,
            "projectID": "global",
            "directory": outgoing.directory,
            "title": outgoing.title or "Imported session",
            "time": {"created": _ms(outgoing.entries[0]), "updated": _ms(outgoing.entries[-1])},
        }

    def add(self, entry: Entry) -> None:
        """Add what an entry becomes."""
        self._places[entry.id] = len(self.messages)
        match entry.fact:
            case Message(role="user") as message:
                parts = [part for piece in message.parts for part in self._content(piece)]
                if parts:
                    self._user(entry, parts)
            case Message(role="assistant") as message:
                meta = message.meta or Meta()
                self._model = meta.model or self._model
                self._answer(entry, [part for piece in message.parts for part in self._part(entry, piece)], meta)
            case Message(role="system"):
                self.losses.add(f"entry {entry.seq}", "system message", "the program has its own instructions")
            case CompactionSummary() as compaction:
                first = self._places.get(compaction.first_kept_entry_id, len(self.messages))
                part: Json = {"type": "compaction", "auto": True}
                if first < len(self.messages):
                    part["tail_start_id"] = self.messages[first]["info"]["id"]
                self._user(entry, [part])
                text = {"type": "text", "text": compaction.summary, "time": {"start": _ms(entry), "end": _ms(entry)}}
                self._answer(entry, [text], Meta(), summary=True)
            case StreamFailed() as failed:
                error = {"name": "UnknownError", "data": {"message": failed.error.message}}
                self._answer(entry, [], Meta(model=failed.model), error=error)
            case _:
                pass

    def _id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count:012x}{sha256(f'{self.session_id}{self._count}'.encode()).hexdigest()[:14]}"

    def _time(self, entry: Entry) -> int:
        self._now = max(self._now, _ms(entry))
        return self._now

    def _message(self, info: Json, parts: Iterable[Json]) -> str:
        id = self._id("msg")
        own = {"sessionID": self.session_id, "messageID": id}
        message_parts = [{**part, "id": self._id("prt"), **own} for part in parts]
        self.messages.append({"info": {**info, "id": id, "sessionID": self.session_id}, "parts": message_parts})
        return id

    def _user(self, entry: Entry, parts: Iterable[Json]) -> None:
        model = {"providerID": self._model.provider, "modelID": self._model.model}
        info = {"role": "user", "time": {"created": self._time(entry)}, "agent": "build", "model": model}
        self._prompt = self._message(info, parts)

    def _answer(self, entry: Entry, parts: Iterable[Json], meta: Meta, **fields: Any) -> None:
        directory = self._outgoing.directory
        reason = _FINISH.get(meta.finish_reason or "stop", "unknown")
        info = {
            "role": "assistant",
            "parentID": self._prompt or "msg_000000000000",
            "modelID": self._model.model,
            "providerID": self._model.provider,
            "mode": "build",
            "agent": "build",
            "path": {"cwd": directory, "root": directory},
            "cost": meta.cost_usd or 0,
            "tokens": _tokens(meta.usage),
            "time": {"created": self._time(entry), "completed": self._time(entry)},
            **({} if "error" in fields else {"finish": reason}),
        }
        self._message({**info, **fields}, parts)

    def _part(self, entry: Entry, part: Part) -> list[Json]:
        """A part of an answer."""
        times = {"start": _ms(entry), "end": _ms(entry)}
        match part:
            case Text():
                return [] if part.ignored else [{"type": "text", "text": part.text, "time": times}]
            case Thinking():
                metadata = _metadata(part)
                if part.continuation is not None and not metadata:
                    self.losses.add(f"entry {entry.seq}", "continuation data", "opencode keeps it in another form")
                return [{"type": "reasoning", "text": part.text, "time": times, **metadata}]
            case ToolCall() if part.executed_by == "client":
                call = {"type": "tool", "callID": part.tool_call_id, "tool": part.tool_name, **_metadata(part)}
                return [{**call, "state": self._state(entry, part)}]
            case ToolCall():
                self.losses.add(f"entry {entry.seq}", f"call of {part.tool_name}", "only its provider can read it")
        return []

    def _state(self, entry: Entry, call: ToolCall) -> Json:
        if call.tool_call_id not in self._results:
            return {"status": "pending", "input": call.arguments, "raw": call.raw_args_text or ""}
        if call.raw_args_text is not None:
            why = "arguments must be a JSON object; an empty one is written"
            self.losses.add(f"entry {entry.seq}", "invalid arguments", why)
        result, ended = self._results[call.tool_call_id]
        times = {"start": _ms(entry), "end": _ms(ended)}
        state: Json = {"input": call.arguments, "time": times}
        if result.is_error:
            return {"status": "error", **state, "error": _output(result)}
        content = result.content if isinstance(result.content, tuple) else ()
        files = [part for piece in content if not isinstance(piece, Text) for part in self._content(piece)]
        state |= {"output": _output(result), "title": result.title or "", "metadata": {}}
        own = {"id": self._id("prt"), "sessionID": self.session_id, "messageID": "msg_0"}
        return {
            "status": "completed",
            **state,
            **({"attachments": [{**file, **own} for file in files]} if files else {}),
        }

    def _content(self, part: Part) -> list[Json]:
        match part:
            case Text():
                return [] if part.ignored else [{"type": "text", "text": part.text, "synthetic": part.synthetic}]
            case Image(data=bytes(data)) | FileRef(data=bytes(data)):
                kind = part.mime_type or "application/octet-stream"
                name = part.path if isinstance(part, FileRef) else part.name or "image"
                return [{"type": "file", "mime": kind, "url": data_url(kind, data), "filename": name}]
            case Image() | FileRef():
                name = part.path if isinstance(part, FileRef) else part.url or ""
                self.losses.add(name, "file", "its content is not part of the session")
                return [{"type": "text", "text": f"[file: {name}]", "synthetic": True}]
        return []


def _metadata(part: Thinking | ToolCall) -> Json:
    """What the provider of a part needs to accept it again, where opencode keeps it."""
    data = {} if part.continuation is None else part.continuation.data
    item = data.get("item")
    if signature := text_in(data, "signature"):
        return {"metadata": {"anthropic": {"signature": signature}}}
    if text_in(data, "type") == "redacted_thinking" and (redacted := text_in(data, "data")):
        return {"metadata": {"anthropic": {"redactedData": redacted}}}
    if signature := text_in(data, "thoughtSignature"):
        return {"metadata": {"google": {"thoughtSignature": signature}}}
    if isinstance(part, Thinking) and (id := text_in(item, "id")):
        blob = text_in(item, "encrypted_content")
        return {"metadata": {"openai": {"itemId": id, "reasoningEncryptedContent": blob}}}
    return {}


def _output(result: ToolResult) -> str:
    if isinstance(result.content, tuple):
        return "\n".join(part.text for part in result.content if isinstance(part, Text))
    return result.content if isinstance(result.content, str) else output_text(result)


def _model_of(entry: Entry) -> ModelRef | None:
    fact = entry.fact
    return fact.meta.model if isinstance(fact, Message) and fact.meta is not None else None


def _ms(entry: Entry) -> int:
    return int(entry.timestamp.timestamp() * 1000)


def _tokens(usage: Usage | None) -> Json:
    if usage is None:
        return {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    cache_read, cache_write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    return {
        "input": max(0, usage.input_tokens - cache_read - cache_write),
        "output": usage.output_tokens - reasoning,
        "reasoning": reasoning,
        "cache": {"read": cache_read, "write": cache_write},
    }


def assembled(files: dict[str, bytes]) -> dict[str, bytes]:
    """The export file of a session from its rows or files; an export file is left as it is."""
    if not any(name.startswith(("session/", "info/", "message/", "part/")) for name in files):
        return files
    session, messages = objects_of(files)
    document = {"info": session, "messages": messages}
    name = re.sub(r"[^\w-]", "_", f"{session.get('id')}")  # an id may be anything, and the name is that of a file
    return {f"{name}.json": json_document(document)}


def _folder(outgoing: Outgoing) -> str:
    return "."  # it finds no files; `opencode import` reads one from anywhere


OPENCODE_WRITER = TranscriptWriter(
    write,
    _folder,
    "opencode import FILE, then opencode run -s {id}",
    is_tree=False,
    has_agent_sessions=True,
    joined=written_anew,
    assembled=assembled,
)
