"""Writing deltas as a response, and comparing what a decoder reads from it with them.

`content_of` is what every format can express: the order of text, thinking and calls, and how the answer ended. Parts of
one kind that follow each other are joined, because most formats have no boundaries between them.
"""

import json
from collections.abc import Iterable
from typing import Any

from bartack.formats import FORMATS as ALL_FORMATS
from bartack.formats import decoder, format_named, writer
from bartack.formats.body_values import INVALID_JSON, parsed_object
from bartack.formats.response_writer import ResponseWriter
from bartack.nouns.deltas import Delta
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking, ToolCall
from tests.recordings.agreement import assembler_of, decoded

FORMATS = [name for name in ALL_FORMATS if format_named(name).writer is not None]

Json = dict[str, Any]


def write_all(writer: ResponseWriter, deltas: Iterable[Delta]) -> bytes:
    return b"".join(map(writer.write, deltas))


def reread(format: str, deltas: Iterable[Delta], **options: Any) -> list[Delta]:
    """What a client's decoder reads from the written bytes."""
    return decoded(decoder(format), write_all(writer(format, **options), deltas))


def message_of(deltas: list[Delta]) -> Message:
    return assembler_of(deltas).build_final_message()


def content_of(deltas: list[Delta]) -> list[tuple[Any, ...]]:
    """The content of a finished answer, without calls that a provider executed or that the output limit cut off."""
    message = message_of(deltas)
    assert message.meta is not None
    is_cut = message.meta.finish_reason in ("length", "content_filter", "refusal")
    content: list[tuple[Any, ...]] = []
    for part in message.parts:
        match part:
            case Text() | Thinking() if part.text and content and content[-1][0] == part.kind:
                content[-1] = (part.kind, content[-1][1] + part.text)
            case Text() | Thinking() if part.text:
                content.append((part.kind, part.text))
            case ToolCall(executed_by="client") if part.arguments or not is_cut:
                arguments, raw = part.arguments, part.raw_args_text or ""
                if list(arguments) == [INVALID_JSON]:  # formats whose arguments are an object
                    arguments, raw = {}, arguments[INVALID_JSON]
                content.append(("call", part.tool_call_id, part.tool_name, arguments, raw.strip()))
    return content


def by_kind(deltas: list[Delta]) -> tuple[str, str, list[Any]]:
    """All thinking, all text, and the calls: a whole response of some formats has no order among them."""
    content = content_of(deltas)
    thinking, text = ("".join(row[1] for row in content if row[0] == kind) for kind in ("thinking", "text"))
    return thinking, text, [(*row[1:4], parsed_object(row[4]) or row[4]) for row in content if row[0] == "call"]


def sse_events(body: bytes) -> list[Json]:
    """The JSON of every server-sent event, without comments and ``[DONE]``."""
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
