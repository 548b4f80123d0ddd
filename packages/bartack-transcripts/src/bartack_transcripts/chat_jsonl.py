"""Messages of the Chat Completions API as lines of JSON: data sets for fine-tuning, batches and logs.

A line is a conversation, ``{"messages": [...]}``, or a batch with that in its ``body``; or it is one message, and the
file is one conversation. The format has no ids, times, errors and no usage.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.openai_chat.encode import encode
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest
from bartack_transcripts.message_list import ListReader, no_folder, outgoing_messages
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep
from bartack_transcripts.values import Json, parse_lines, parse_object, read_messages, text_in
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, json_line, written_anew

__all__ = ["CHAT_WRITER", "looks_like_chat", "read_chat"]

_AGENT = "chat-jsonl"
_PROVIDER = "openai"
_RECOGNISED = re.compile(rb'"messages"\s*:\s*\[|"role"\s*:\s*"(?:system|developer|user|assistant|tool)"')


def looks_like_chat(name: str, head: bytes) -> bool:
    """Whether the first line is a conversation or a message."""
    first, newline, _ = head.partition(b"\n")
    if not name.endswith(".jsonl") or _RECOGNISED.search(first) is None or not first.lstrip().startswith(b"{"):
        return False
    json = parse_object(first)
    if isinstance(json, str):  # damaged, or longer than the head
        return not newline
    return _conversation(json) is not None or text_in(json, "role") is not None


def read_chat(files: Files) -> list[Transcript]:
    """The sessions in a file: one for each line with a conversation, or one for all lines with messages."""
    name = next(iter(files), None)
    if name is None:
        return []
    main = ListReader(_AGENT, name)
    further: list[Transcript] = []
    is_first = True
    for record, json in parse_lines(name, files[name], main.report):
        conversation = _conversation(json)
        if conversation is None and text_in(json, "role"):
            main.add(record, "message", partial(_read, [json], record, main.report))
        elif conversation is not None and is_first:
            is_first = False
            main.add(record, "conversation", partial(_read, conversation, record, main.report))
        elif conversation is not None:
            main.report.add("conversation", "read")
            main.steps.append(TranscriptStep((), (record,)))
            further.append(_other(name, conversation, record))
        else:
            if json:
                main.report.add("no messages", "opaque")
            main.steps.append(TranscriptStep((), (record,)))
    return [main.transcript(), *further]


def _conversation(json: Json) -> list[Any] | None:
    body = json.get("body")
    messages = json.get("messages", body.get("messages") if isinstance(body, dict) else None)
    return messages if isinstance(messages, list) else None


def _other(name: str, conversation: list[Any], record: Record) -> Transcript:
    """The session of a further line; its records are with the first one."""
    reader = ListReader(_AGENT, name)
    reader.add(record, "conversation", partial(_read, conversation, record, reader.report))
    return reader.transcript(f"-{record.place + 1}", has_own_records=False)


def _read(messages: Sequence[Any], record: Record, report: ReadReport) -> Sequence[Message]:
    return read_messages("openai-chat", {"model": "unknown", "messages": list(messages)}, _PROVIDER, record, report)


def write(outgoing: Outgoing) -> WrittenTranscript:
    """A conversation on one line."""
    losses = Losses(_PROVIDER)
    messages = tuple(message for _, message in outgoing_messages(outgoing, losses))
    request = ModelRequest(messages=messages, config=ModelConfig("unknown"), provider=_PROVIDER)
    encoded: list[Json] = encode(request, losses)["messages"]
    return WrittenTranscript(f"{outgoing.id}.jsonl", json_line({"messages": encoded}), tuple(losses.found))


# A line is a whole conversation, so nothing can be added to one.
CHAT_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=written_anew)
