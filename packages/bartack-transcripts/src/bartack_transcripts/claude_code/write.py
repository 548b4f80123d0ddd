"""Writes the records of Claude Code, which Kode reads as well.

Claude Code resumes a file with a UUID as its name, in the folder of the directory that it is started in. A record needs
its type, uuid, parent, timestamp and message; the other fields are for programs that filter by them. Thinking is sent
back only to the model that the record names, so that is the true one.
"""

import re
from collections.abc import Sequence

from bartack.formats.anthropic_messages.blocks import BlockWriter
from bartack.formats.anthropic_messages.decode import AnthropicContinuation
from bartack.formats.losses import Losses
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry, StreamFailed
from bartack.nouns.ids import as_uuid, derived_id
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import Text
from bartack_transcripts.claude_code.lines import SYNTHETIC
from bartack_transcripts.values import Json, text_in
from bartack_transcripts.writing import (
    Outgoing,
    TranscriptWriter,
    WrittenTranscript,
    json_line,
    time_text,
    with_call_ids,
)

__all__ = ["CLAUDE_CODE_WRITER", "KODE_WRITER"]

_VERSION = "2.1.197"  # the version whose records these are
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
_CALL_ID = r"[a-zA-Z0-9_-]+"  # the pattern of Anthropic's API


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The records of a conversation."""
    losses = Losses("anthropic")
    losses.expect(AnthropicContinuation)
    writer = _Writer(outgoing, losses)
    return WrittenTranscript(f"{outgoing.id}.jsonl", b"".join(map(json_line, writer.records())), tuple(losses.found))


def _folder(outgoing: Outgoing) -> str:
    return f"projects/{re.sub(r'[^a-zA-Z0-9]', '-', outgoing.directory)}"


class _Writer:
    def __init__(self, outgoing: Outgoing, losses: Losses) -> None:
        self._outgoing = outgoing
        self._losses = losses
        self._parent = text_in(outgoing.last_record, "uuid")
        self._uuids: dict[str, str] = {}  # entry id -> uuid
        self._message_ids: set[str] = set()
        self._lines: list[Json] = []

    def records(self) -> list[Json]:
        outgoing = self._outgoing
        messages = tuple(with_call_ids(outgoing.messages, _CALL_ID))
        blocks = BlockWriter(messages, self._losses)
        index = 0
        for entry in outgoing.entries:
            match entry.fact:
                case Message():
                    self._message(entry, messages[index], blocks.blocks(index))
                    index += 1
                case CompactionSummary() as compaction:
                    self._compaction(entry, compaction)
                case StreamFailed() as failed:
                    text = {"type": "text", "text": failed.error.message or failed.error.error_code}
                    error: Json = {"isApiErrorMessage": True, "apiErrorStatus": failed.error.status}
                    self._add(entry, "assistant", {"message": self._answer(entry, [text], None), **error})
                case _:
                    pass
        if outgoing.title:
            self._lines.append({"type": "custom-title", "customTitle": outgoing.title, "sessionId": outgoing.id})
        return self._lines

    def _add(self, entry: Entry, kind: str, fields: Json, *, suffix: str = "", is_root: bool = False) -> None:
        uuid = derived_id(entry.id, suffix) if suffix else as_uuid(entry.id)
        outgoing = self._outgoing
        self._lines.append(
            {
                "parentUuid": None if is_root else self._parent,
                "isSidechain": False,
                "type": kind,
                **fields,
                "uuid": uuid,
                "timestamp": time_text(entry.timestamp),
                "userType": "external",
                "cwd": outgoing.directory,
                "sessionId": outgoing.id,
                "version": _VERSION,
                "gitBranch": outgoing.git_branch or "",
            }
        )
        self._parent = self._uuids[entry.id] = uuid

    def _message(self, entry: Entry, message: Message, blocks: Sequence[Json]) -> None:
        if message.role == "system":
            self._losses.add(f"entry {entry.seq}", "system message", "the program has its own instructions")
            return
        if not blocks:
            return
        if message.role == "assistant":
            self._add(entry, "assistant", {"message": self._answer(entry, list(blocks), message.meta)})
            return
        content: object = list(blocks)
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            content = blocks[0]["text"]
        texts = [part for part in message.parts if isinstance(part, Text)]
        is_meta = bool(texts) and all(part.synthetic for part in texts)
        fields: Json = {"message": {"role": "user", "content": content}}
        self._add(entry, "user", fields | ({"isMeta": True} if is_meta else {}))

    def _answer(self, entry: Entry, blocks: list[Json], meta: Meta | None) -> Json:
        model = None if meta is None or meta.model is None else meta.model.model
        has_calls = any(block.get("type") == "tool_use" for block in blocks)
        reason = (meta.finish_reason if meta is not None else None) or ("tool_calls" if has_calls else "stop")
        id = meta.response_id if meta is not None else None
        if id is None or id in self._message_ids:  # answers with the same id would be read as one
            id = f"msg_{as_uuid(entry.id).replace('-', '')}"
        self._message_ids.add(id)
        return {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": model or SYNTHETIC,
            "content": blocks,
            "stop_reason": _STOP_REASONS.get(reason, "end_turn"),
            "stop_sequence": None,
            "usage": _usage(meta.usage if meta is not None else None),
        }

    def _compaction(self, entry: Entry, compaction: CompactionSummary) -> None:
        """The boundary and the summary. The messages that are kept are named, and not repeated."""
        kept_uuids = [self._uuids[id] for id in self._outgoing.kept_by(entry) if id in self._uuids]
        summary = derived_id(entry.id, "summary")
        details: Json = {"trigger": "auto", "preTokens": compaction.tokens_before or 0}
        if kept_uuids:
            details["preservedSegment"] = {"headUuid": kept_uuids[0], "anchorUuid": summary, "tailUuid": kept_uuids[-1]}
            details["preservedMessages"] = {"anchorUuid": summary, "uuids": kept_uuids, "allUuids": kept_uuids}
        fields: Json = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info"}
        fields |= {"logicalParentUuid": self._parent, "isMeta": False, "compactMetadata": details}
        self._add(entry, "system", fields, is_root=True)
        message = {"role": "user", "content": compaction.summary}
        self._add(entry, "user", {"message": message, "isCompactSummary": True}, suffix="summary")


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cache_read, cache_write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max(0, usage.input_tokens - cache_read - cache_write),
        "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read,
        "output_tokens": usage.output_tokens,
    }


CLAUDE_CODE_WRITER = TranscriptWriter(write, _folder, "claude --resume {id}", is_tree=True)
KODE_WRITER = TranscriptWriter(write, _folder, "kode --resume {id}", is_tree=False)
