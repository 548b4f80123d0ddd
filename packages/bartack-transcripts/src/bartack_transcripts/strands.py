"""Transcripts of strands-agents: the folders of its `FileSessionManager`, and snapshots.

A session is a folder with a file for each message of each agent, numbered from 0. Messages are those of Bedrock's
Converse API for every model; which model it was is not stored. The state of the conversation manager records how
many messages are no longer sent, and what summary takes their place. It changes all the time, so it comes last.

In a folder that is written, the results of the calls of one answer are in one message, and messages alternate between
the user and the model, as the Converse API demands. The state of the conversation manager names its class, which has
to be the one that the agent uses: the summarizing one if the session was compacted, and otherwise the sliding window,
which is the default.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from bartack.formats.bedrock_converse.blocks import ConverseBlockWriter
from bartack.formats.bedrock_converse.decode import ConverseContinuation
from bartack.formats.losses import Losses
from bartack.formats.usage import token_count
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry, Fact, SessionHeader
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep, digest_id
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    object_in,
    parse_object,
    read_messages,
    short_line,
    text_in,
    time_from_text,
    usage_of,
    value_in,
)
from bartack_transcripts.writing import (
    Outgoing,
    TranscriptWriter,
    WrittenTranscript,
    json_document,
    with_call_ids,
    written_anew,
)

__all__ = ["STRANDS_WRITER", "looks_like_strands", "read_strands"]

_PROVIDER = "bedrock"  # the provider whose messages these are
_MESSAGE = re.compile(r"(?:.*/)?agents/agent_([^/]*)/messages/message_(\d+)\.json")
_AGENT = re.compile(r"(?:.*/)?agents/agent_([^/]*)/agent\.json")
_SNAPSHOT = re.compile(rb'\s*\{\s*"scope"\s*:\s*"agent"\s*,\s*"schema_version"')
_REMOVED = "Earlier messages are no longer part of the context."


def looks_like_strands(name: str, head: bytes) -> bool:
    """Whether a file is the first one of a session's folder, or a snapshot."""
    is_session = PurePosixPath(name).name == "session.json" and b'"session_type"' in head
    return is_session or (name.endswith(".json") and _SNAPSHOT.match(head) is not None)


def read_strands(files: Files) -> list[Transcript]:
    """The session of each agent in the folder, or the one in a snapshot."""
    records = [Record(name, 0, data) for name, data in files.items()]
    if len(records) == 1 and _SNAPSHOT.match(records[0].data):
        return [_read_snapshot(records[0])]
    agents: dict[str, list[tuple[int, Record]]] = {}
    states: dict[str, Record] = {}
    session_files: list[Record] = []
    for record in records:
        message, state = _MESSAGE.fullmatch(record.file), _AGENT.fullmatch(record.file)
        if message is not None:
            agents.setdefault(message[1], []).append((int(message[2][:18]), record))
        elif state is not None:
            agents.setdefault(state[1], [])
            states[state[1]] = record
        else:
            session_files.append(record)
    session_file = next((record for record in session_files if record.file.endswith("session.json")), None)
    session = {} if session_file is None else object_in(parse_object(session_file.data))
    source_id = text_in(session, "session_id")
    first = next((several[0][1] for several in agents.values() if several), None)
    id = source_id or digest_id(b"" if first is None else first.data)
    transcripts: list[Transcript] = []
    for agent in sorted(agents or {"": []}, key=lambda name: (name != "default", name)):
        reader = _Reader()
        for _, record in sorted(agents.get(agent, ()), key=lambda numbered: numbered[0]):
            reader.add(record)
        reader.finish(states.get(agent), session_files if not transcripts else ())
        own_id = f"{id}/{agent}" if transcripts else id
        header = _header(reader, agent)
        has_own_id = source_id is not None
        transcripts.append(Transcript("strands", own_id, header, reader.steps, reader.report, has_own_id=has_own_id))
    return transcripts


def _header(reader: "_Reader", agent: str) -> SessionHeader:
    metadata: Json = {"program": "strands"} | ({"agent": agent} if agent else {})
    return SessionHeader(title=short_line(reader.title), origin="strands", metadata=metadata)


def _read_snapshot(record: Record) -> Transcript:
    reader = _Reader()
    document = parse_object(record.data)
    time = time_from_text(value_in(document, "created_at"))
    messages = value_in(document, "data", "messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            reader.steps.append(
                TranscriptStep(tuple(reader.facts(message, None, record)), (), time, None, None, repr(message).encode())
            )
    reader.report.add("snapshot", "read")
    reader.steps.append(TranscriptStep((), (record,), time))
    first = messages[0] if isinstance(messages, list) and messages else None
    id = digest_id(json_text(first).encode())
    return Transcript("strands", id, _header(reader, ""), reader.steps, reader.report, has_own_id=False)


class _Reader:
    """Makes one step of each message."""

    def __init__(self) -> None:
        self.steps: list[TranscriptStep] = []
        self.report = ReadReport()
        self.title: str | None = None
        self._messages = MessageFacts()

    def add(self, record: Record) -> None:
        """Add the file of a message."""
        json = parse_object(record.data)
        facts: list[Fact] = []
        time = None
        if isinstance(json, str):
            self.report.damaged(record, json)
        else:
            time = time_from_text(json.get("created_at"))
            # A message that was redacted is replaced for the model; the original stays in the record.
            visible_message = json.get("redact_message") or json.get("message")
            facts = self.facts(visible_message, time, record) if isinstance(visible_message, dict) else []
            self.report.add("message", "read" if facts else "opaque")
        self.steps.append(TranscriptStep(tuple(facts), (record,), time))

    def facts(self, message: Json, time: Any, record: Record) -> list[Fact]:
        """The messages that one of Converse makes: results and other content are apart."""
        content = message.get("content")
        body = {"role": message.get("role"), "content": _with_bytes(content)}
        facts: list[Fact] = []
        for item in read_messages(
            "bedrock-converse", {"modelId": "unknown", "messages": [body]}, _PROVIDER, record, self.report
        ):
            meta = Meta(usage=_usage(message.get("metadata"))) if item.role == "assistant" else None
            facts += self._messages.of(replace(item, timestamp=time, meta=meta))
            if item.role == "user":
                self.title = self.title or item.text
        return facts

    def finish(self, state: Record | None, session_files: Iterable[Record]) -> None:
        """Add what changes while the session grows: the state of the agent, and of the session."""
        removed, facts = 0, []
        if state is not None:
            manager = object_in(parse_object(state.data), "conversation_manager_state")
            removed = min(token_count(manager.get("removed_message_count")) or 0, len(self.steps))
            content = value_in(manager, "summary_message", "content")
            texts = [text_in(block, "text") or "" for block in content] if isinstance(content, list) else []
            if removed > 0 or any(texts):
                facts.append(CompactionSummary(summary="".join(texts) or _REMOVED, first_kept_entry_id=""))
            self.report.add("agent", "read")
        records = [*([] if state is None else [state]), *session_files]
        for record in session_files:
            self.report.add(PurePosixPath(record.file).name, "read")
        if records:
            first_kept = removed if facts and removed < len(self.steps) else None
            self.steps.append(TranscriptStep(tuple(facts), tuple(records), None, None, first_kept))


def _with_bytes(value: Any) -> Any:
    """The content with bytes as plain base64, as Converse has them in JSON."""
    if isinstance(value, dict):
        if value.get("__bytes_encoded__") is True:
            return value.get("data")
        return {key: _with_bytes(item) for key, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


def _usage(metadata: Any) -> Usage | None:
    usage = value_in(metadata, "usage")
    if not isinstance(usage, dict):
        return None
    input_tokens, output_tokens, total = (
        token_count(usage.get(key)) for key in ("inputTokens", "outputTokens", "totalTokens")
    )
    return usage_of(
        input_tokens,
        output_tokens,
        cache_read=usage.get("cacheReadInputTokens"),
        cache_write=usage.get("cacheWriteInputTokens"),
        includes_cache=total == (input_tokens or 0) + (output_tokens or 0),  # depends on the model's provider
    )


# -- writing

_CALL_ID = r"[a-zA-Z0-9_-]{1,64}"  # the pattern of Converse


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The files of a session with one agent."""
    losses = Losses("bedrock")
    losses.expect(ConverseContinuation)
    turns, removed, summary = _turns(outgoing, losses)
    time = outgoing.started.isoformat()
    times = {"created_at": time, "updated_at": time}
    manager: Json = {"__name__": "SlidingWindowConversationManager", "removed_message_count": 0, "model_call_count": 0}
    if summary is not None:
        content = {"role": "user", "content": [{"text": summary}]}
        manager = {"__name__": "SummarizingConversationManager", "removed_message_count": removed}
        manager["summary_message"] = content
    agent = {"agent_id": "default", "state": {}, "conversation_manager_state": manager, "_internal_state": {}, **times}
    folder = f"session_{outgoing.id}"
    files = {f"{folder}/agents/agent_default/agent.json": json_document(agent)}
    for number, (message, entry) in enumerate(turns):
        timestamp = entry.timestamp.isoformat()
        body = {
            "message": message,
            "message_id": number,
            "redact_message": None,
            "created_at": timestamp,
            "updated_at": timestamp,
        }
        files[f"{folder}/agents/agent_default/messages/message_{number}.json"] = json_document(body)
    session = {"session_id": outgoing.id, "session_type": "AGENT", **times}
    return WrittenTranscript(f"{folder}/session.json", json_document(session), tuple(losses.found), other_files=files)


def _turns(outgoing: Outgoing, losses: Losses) -> tuple[list[tuple[Json, Entry]], int, str | None]:
    """The messages, how many of them are no longer sent, and the summary in their place."""
    messages = with_call_ids(outgoing.messages, _CALL_ID)
    writer = ConverseBlockWriter("unknown", losses)
    turns: list[tuple[Json, Entry]] = []
    places: dict[str, int] = {}  # entry id -> index in `turns`
    summary: str | None = None
    removed = index = 0
    for entry in outgoing.entries:
        if isinstance(entry.fact, CompactionSummary):
            summary = entry.fact.summary
            removed = next((places[id] for id in outgoing.kept_by(entry) if id in places), len(turns))
        if not isinstance(entry.fact, Message):
            continue
        message, where, index = messages[index], f"messages[{index}]", index + 1
        if message.role == "system":
            losses.add(where, "system message", "the program has its own instructions")
            continue
        numbered = enumerate(message.parts)
        blocks = [block for number, part in numbered for block in writer.blocks(part, f"{where}.parts[{number}]")]
        blocks = [_with_status(block) for block in (*blocks, *writer.take_after_results())]
        role = "assistant" if message.role == "assistant" else "user"
        places[entry.id] = len(turns)
        if blocks and len(turns) > removed and turns[-1][0]["role"] == role:
            turns[-1][0]["content"] += _encoded(blocks)
            places[entry.id] -= 1
        elif blocks:
            turns.append(({"role": role, "content": _encoded(blocks)}, entry))
    return turns, removed, summary


def _with_status(block: Json) -> Json:
    """A result with its status, which Converse does not require, but strands does."""
    result = block.get("toolResult")
    return block if result is None else {"toolResult": {"status": "success", **result}}


def _encoded(value: Any) -> Any:
    """The blocks with bytes as strands stores them."""
    if isinstance(value, dict):
        return {
            key: {"__bytes_encoded__": True, "data": item} if key == "bytes" else _encoded(item)
            for key, item in value.items()
        }
    return [_encoded(item) for item in value] if isinstance(value, list) else value


def _in_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a session that was read, in the folder where its program looks for them."""
    session = next((parse_object(data) for name, data in files.items() if name.endswith("session.json")), "")
    id = text_in(session, "session_id")
    if id is None or any(name.startswith("session_") for name in files):
        return files
    folder = re.sub(r"[^\w.-]", "_", f"session_{id}")
    return {f"{folder}/{name}": data for name, data in files.items()}


def _folder(outgoing: Outgoing) -> str:
    return "."  # sessions may be anywhere


STRANDS_WRITER = TranscriptWriter(
    write, _folder, 'FileSessionManager(session_id="{id}")', is_tree=False, joined=written_anew, assembled=_in_folder
)
