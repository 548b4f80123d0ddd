"""Threads of Amp: one JSON file each, with a list of messages.

Blocks are those of Anthropic's API, except results: they name their call as `toolUseID` and have what became of it in
`run`. Messages have no time unless the user sent them. Newer versions store usage with each answer; that of older
ones is in a ledger behind the messages, which is kept and not read.
"""

import re
from collections.abc import Sequence
from dataclasses import replace as replace_transcript
from datetime import datetime
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Text, ToolResult
from bartack_transcripts.blocks import block_messages
from bartack_transcripts.message_list import read_list_in, result_of
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import (
    Json,
    object_in,
    objects_in,
    short_line,
    text_in,
    time_from_ms,
    usage_of,
    value_in,
)

__all__ = ["looks_like_amp", "read_amp"]

_AGENT = "amp"
_FAILED = ("error", "cancelled", "rejected-by-user")
_THREAD = re.compile(rb'"id"\s*:\s*"[^"]+"')
_CREATED = re.compile(rb'"created"\s*:\s*\d+')
_MESSAGES = re.compile(rb'"messages"\s*:\s*\[')


def looks_like_amp(name: str, head: bytes) -> bool:
    """Whether a file begins with the id, the time and the messages of a thread."""
    is_object = name.endswith(".json") and head.lstrip().startswith(b"{")
    return is_object and all(field.search(head) is not None for field in (_THREAD, _CREATED, _MESSAGES))


def read_amp(files: Files) -> list[Transcript]:
    """The session in a file."""
    threads = read_list_in(_AGENT, files, "messages", lambda item: text_in(item, "role") or "no role", _messages_of)
    return [_identified(transcript, thread) for transcript, thread in threads]


def _identified(transcript: Transcript, thread: Json) -> Transcript:
    id, title = text_in(thread, "id"), text_in(thread, "title")
    metadata: Json = {"program": _AGENT}
    trees = objects_in(thread, "env", "initial", "trees")
    address = urlsplit(text_in(trees[0], "uri") or "") if trees else urlsplit("")
    if address.scheme == "file":
        metadata["directory"] = unquote(address.path)
    header = replace(transcript.header, title=short_line(title) or transcript.header.title, metadata=metadata)
    return replace_transcript(transcript, id=id or transcript.id, header=header, has_own_id=id is not None)


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    role, time = text_in(item, "role") or "", time_from_ms(value_in(item, "meta", "sentAt"))
    if role == "info":
        return _summaries(item, time)
    messages = block_messages(role, objects_in(item, "content"), _result, record, report)
    usage = object_in(item, "usage")
    meta = _meta(usage) if usage and role == "assistant" else None
    return [
        replace(message, timestamp=time, meta=meta if message.role == "assistant" else None) for message in messages
    ]


def _summaries(item: Json, time: datetime | None) -> list[Message]:
    """What the program tells the model about messages that it left out, or that are in another thread."""
    texts = [text_in(block, "summary", "summary") for block in objects_in(item, "content")]
    parts = tuple(Text(text, synthetic=True) for text in texts if text is not None)
    return [Message("user", parts, timestamp=time)] if parts else []


def _meta(usage: Json) -> Meta:
    model = text_in(usage, "model")
    counts = usage_of(
        usage.get("inputTokens"),
        usage.get("outputTokens"),
        cache_read=usage.get("cacheReadInputTokens"),
        cache_write=usage.get("cacheCreationInputTokens"),
    )
    return Meta(model=None if model is None else ModelRef("amp", model), usage=counts)


def _result(block: Json) -> ToolResult | None:
    call = text_in(block, "toolUseID")
    if block.get("type") != "tool_result" or call is None:
        return None
    run = object_in(block, "run")
    status = text_in(run, "status")
    output = next((run[key] for key in ("result", "error", "progress") if run.get(key) is not None), None)
    return result_of(call, output, is_error=status in _FAILED)
