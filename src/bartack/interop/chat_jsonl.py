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
from bartack.interop.message_list import ListReader, no_folder, outgoing_messages
from bartack.interop.transcript import Files, Record, Report, Step, Transcript
from bartack.interop.values import Json, parse_lines, read_messages, text_in
from bartack.interop.writing import Outgoing, TranscriptWriter, Written, json_line, written_anew
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["CHAT_WRITER", "looks_like_chat", "read_chat"]

_AGENT = "chat-jsonl"
_PROVIDER = "openai"
_RECOGNISED = re.compile(rb'"messages"\s*:\s*\[|"role"\s*:\s*"(?:system|developer|user|assistant|tool)"')


def looks_like_chat(name: str, head: bytes) -> bool:
    """Whether the first line is a conversation or a message."""
    first = head.partition(b"\n")[0]
    return name.endswith(".jsonl") and _RECOGNISED.search(first) is not None and first.lstrip().startswith(b"{")


def read_chat(files: Files) -> list[Transcript]:
    """The sessions in a file: one for each line with a conversation, or one for all lines with messages."""
    name = next(iter(files), None)
    if name is None:
        return []
    main = ListReader(_AGENT, name)
    others: list[Transcript] = []
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
            main.steps.append(Step((), (record,)))
            others.append(_other(name, conversation, record))
        else:
            if json:
                main.report.add("no messages", "opaque")
            main.steps.append(Step((), (record,)))
    return [main.transcript(), *others]


def _conversation(json: Json) -> list[Any] | None:
    body = json.get("body")
    found = json.get("messages", body.get("messages") if isinstance(body, dict) else None)
    return found if isinstance(found, list) else None


def _other(name: str, conversation: list[Any], record: Record) -> Transcript:
    """The session of a further line; its records are with the first one."""
    reader = ListReader(_AGENT, name)
    reader.add(record, "conversation", partial(_read, conversation, record, reader.report))
    return reader.transcript(f"-{record.place + 1}", has_own_records=False)


def _read(messages: Sequence[Any], record: Record, report: Report) -> Sequence[Message]:
    return read_messages("openai-chat", {"model": "unknown", "messages": list(messages)}, _PROVIDER, record, report)


def write(outgoing: Outgoing) -> Written:
    """A conversation on one line."""
    losses = Losses(_PROVIDER)
    messages = tuple(message for _, message in outgoing_messages(outgoing, losses))
    request = ModelRequest(messages=messages, config=ModelConfig("unknown"), provider=_PROVIDER)
    found: list[Json] = encode(request, losses)["messages"]
    return Written(f"{outgoing.id}.jsonl", json_line({"messages": found}), tuple(losses.found))


# A line is a whole conversation, so nothing can be added to one.
CHAT_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=written_anew)
