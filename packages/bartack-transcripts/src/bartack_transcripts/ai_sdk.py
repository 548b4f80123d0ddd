"""Messages of the AI SDK: a list of `UIMessage`, as applications store their chats.

A tool part is a call and its result, and one message can have several answers of the model in it, each after a
``step-start``. `bartack.protocols.ai_sdk_messages` reads and writes them.
"""

import re
from collections.abc import Sequence

from bartack.formats.losses import Losses
from bartack.nouns.entries import CompactionSummary, Entry
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking
from bartack.protocols.ai_sdk_messages import read_ui_messages, ui_messages
from bartack_transcripts.message_list import list_joined, no_folder, read_list, write_list
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import Json, text_in
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript

__all__ = ["AI_SDK_WRITER", "looks_like_ai_sdk", "read_ai_sdk"]

_RECOGNISED = re.compile(rb'"role"\s*:\s*"(?:system|user|assistant)"')


def looks_like_ai_sdk(name: str, head: bytes) -> bool:
    """Whether a file is a list of messages with parts."""
    is_list = name.endswith(".json") and head.lstrip().startswith(b"[")
    return is_list and _RECOGNISED.search(head) is not None and b'"parts"' in head


def read_ai_sdk(files: Files) -> list[Transcript]:
    """The session in a file."""
    return read_list("ai-sdk", files, lambda item: text_in(item, "role") or "no role", _messages_of)


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    return read_ui_messages([item])


def write(outgoing: Outgoing) -> WrittenTranscript:
    """A list of messages."""
    losses = Losses("")
    for entry in outgoing.entries:
        _note_losses(entry, losses)
    messages = [
        {**message, "parts": [_defined(part) for part in message["parts"] if _is_written(part, message["id"], losses)]}
        for message in ui_messages(outgoing.entries)
    ]
    return write_list(outgoing, messages, losses)


def _is_written(part: Json, message_id: str, losses: Losses) -> bool:
    """Whether this is no file with an address that a chat refuses, together with its message."""
    is_refused = part["type"] == "file" and not part["url"].startswith(("data:", "http:", "https:"))
    if is_refused:
        losses.add(f"message {message_id}", "file", "its address is none of the web")
    return not is_refused


def _defined(part: Json) -> Json:
    """The part without fields that are undefined in JavaScript, which the SDK does not accept as null."""
    is_output = part.get("state") == "output-available"
    return {key: value for key, value in part.items() if value is not None or (is_output and key == "output")}


def _note_losses(entry: Entry, losses: Losses) -> None:
    where = f"entry {entry.seq}"
    match entry.fact:
        case CompactionSummary():
            losses.add(where, "compaction", "a chat shows all messages")
        case Message(role="system"):
            losses.add(where, "system message", "the application has its own instructions")
        case Message(role="user", parts=parts) if all(isinstance(part, Text) and part.synthetic for part in parts):
            losses.add(where, "injected context", "a chat shows what was typed")
        case Message() as message:
            if any(isinstance(part, Thinking) and part.continuation is not None for part in message.parts):
                losses.add(where, "continuation data", "a chat has the text of thinking only")


AI_SDK_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=list_joined)
