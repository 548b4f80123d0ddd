"""Transcripts of strands-agents: the folders of its `FileSessionManager`, and snapshots.

A session is a folder with a file for each message of each agent, numbered from 0. Messages are those of Bedrock's
Converse API for every model; which model it was is not stored. The state of the conversation manager records how
many messages are no longer sent, and what summary takes their place. It changes all the time, so it comes last.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from bartack.formats.usage import token_count
from bartack.interop.transcript import Files, Record, Report, Step, Transcript
from bartack.interop.values import (
    Json,
    ToolCallIds,
    parse_object,
    read_messages,
    short_line,
    text_in,
    time_from_text,
    usage_of,
)
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Fact, SessionHeader
from bartack.nouns.messages import Meta

__all__ = ["looks_like_strands", "read_strands"]

_PROVIDER = "bedrock"  # whose messages these are
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
    others: list[Record] = []
    for record in records:
        message, state = _MESSAGE.fullmatch(record.file), _AGENT.fullmatch(record.file)
        if message is not None:
            agents.setdefault(message[1], []).append((int(message[2][:18]), record))
        elif state is not None:
            agents.setdefault(state[1], [])
            states[state[1]] = record
        else:
            others.append(record)
    about = next((record for record in others if record.file.endswith("session.json")), None)
    session = {} if about is None else _object(about)
    id = text_in(session, "session_id") or PurePosixPath(next(iter(files), "session")).parts[0]
    transcripts: list[Transcript] = []
    for agent in sorted(agents or {"": []}, key=lambda name: (name != "default", name)):
        reader = _Reader()
        for _, record in sorted(agents.get(agent, ()), key=lambda numbered: numbered[0]):
            reader.add(record)
        reader.finish(states.get(agent), others if not transcripts else ())
        own_id = f"{id}/{agent}" if transcripts else id
        transcripts.append(Transcript("strands", own_id, _header(reader, agent), reader.steps, reader.report))
    return transcripts


def _header(reader: "_Reader", agent: str) -> SessionHeader:
    metadata: Json = {"program": "strands"} | ({"agent": agent} if agent else {})
    return SessionHeader(title=short_line(reader.title), origin="strands", metadata=metadata)


def _object(record: Record) -> Json:
    found = parse_object(record.data)
    return found if isinstance(found, dict) else {}


def _read_snapshot(record: Record) -> Transcript:
    reader = _Reader()
    document = parse_object(record.data)
    data = document.get("data") if isinstance(document, dict) else None
    messages = data.get("messages") if isinstance(data, dict) else None
    time = time_from_text(document.get("created_at")) if isinstance(document, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            reader.steps.append(
                Step(tuple(reader.facts(message, None, record)), (), time, None, None, repr(message).encode())
            )
    reader.report.add("snapshot", "read")
    reader.steps.append(Step((), (record,), time))
    return Transcript("strands", PurePosixPath(record.file).stem, _header(reader, ""), reader.steps, reader.report)


class _Reader:
    """Makes one step of each message."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.report = Report()
        self.title: str | None = None
        self._calls = ToolCallIds()

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
            shown = json.get("redact_message") or json.get("message")
            facts = self.facts(shown, time, record) if isinstance(shown, dict) else []
            self.report.add("message", "read" if facts else "opaque")
        self.steps.append(Step(tuple(facts), (record,), time))

    def facts(self, message: Json, time: Any, record: Record) -> list[Fact]:
        """The messages that one of Converse makes: results and other content are apart."""
        content = message.get("content")
        body = {"role": message.get("role"), "content": _with_bytes(content)}
        made: list[Fact] = []
        for one in read_messages(
            "bedrock-converse", {"modelId": "unknown", "messages": [body]}, _PROVIDER, record, self.report
        ):
            if one.role == "tool":
                results = self._calls.results(one)
                made += [] if results is None else [replace(results, timestamp=time)]
                continue
            if one.role == "assistant":
                one = replace(self._calls.calls(one), meta=Meta(usage=_usage(message.get("metadata"))))
            elif one.role == "user":
                self.title = self.title or one.text
            made.append(replace(one, timestamp=time))
        return made

    def finish(self, state: Record | None, others: Iterable[Record]) -> None:
        """Add what changes while the session grows: the state of the agent, and of the session."""
        removed, facts = 0, []
        if state is not None:
            manager = _object(state).get("conversation_manager_state")
            manager = manager if isinstance(manager, dict) else {}
            removed = min(token_count(manager.get("removed_message_count")) or 0, len(self.steps))
            summary = manager.get("summary_message")
            content = summary.get("content") if isinstance(summary, dict) else None
            texts = [text_in(block, "text") or "" for block in content] if isinstance(content, list) else []
            if removed > 0 or any(texts):
                facts.append(CompactionSummary("".join(texts) or _REMOVED, ""))
            self.report.add("agent", "read")
        records = [*([] if state is None else [state]), *others]
        for record in others:
            self.report.add(PurePosixPath(record.file).name, "read")
        if records:
            kept = removed if facts and removed < len(self.steps) else None
            self.steps.append(Step(tuple(facts), tuple(records), None, None, kept))


def _with_bytes(value: Any) -> Any:
    """The content with bytes as plain base64, as Converse has them in JSON."""
    if isinstance(value, dict):
        if value.get("__bytes_encoded__") is True:
            return value.get("data")
        return {key: _with_bytes(item) for key, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


def _usage(metadata: Any) -> Usage | None:
    usage = metadata.get("usage") if isinstance(metadata, dict) else None
    if not isinstance(usage, dict):
        return None
    sent, made, total = (token_count(usage.get(key)) for key in ("inputTokens", "outputTokens", "totalTokens"))
    return usage_of(
        sent,
        made,
        read=usage.get("cacheReadInputTokens"),
        written=usage.get("cacheWriteInputTokens"),
        includes_cache=total == (sent or 0) + (made or 0),  # depends on the model's provider
    )
