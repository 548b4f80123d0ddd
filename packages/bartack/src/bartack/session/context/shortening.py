"""Messages as they are sent to a model: without what is meant for people only, and shortened to save tokens."""

from typing import assert_never

from msgspec.structs import replace

from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import (
    FULL_OUTPUT,
    ContentPart,
    FileRef,
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)

__all__ = ["for_model", "shorten_output", "shorten_text", "truncate"]

_MAX_CHARS = 2_000  # truncating a longer tool output saves more than half of it
_HEAD_CHARS = 700  # the beginning identifies a file or command
_TAIL_CHARS = 300  # the end usually has the outcome
_REMOVED = "[This output was removed from the conversation.]"


def for_model(message: Message) -> Message | None:
    """The message without ignored parts (003 §3.2) and removed outputs; None if nothing is left to send.

    The context of a koding request (002) follows its text.
    """
    meta = message.meta
    if meta is not None and meta.is_api_error_message:
        return None
    if message.parts and (meta is None or meta.koding is None) and all(map(_is_sent_whole, message.parts)):
        return message
    parts = tuple(_part_for_model(part) for part in message.parts if not _is_ignored(part))
    if not parts:
        return None
    if meta is not None and meta.koding is not None and meta.koding.context and message.role == "user":
        return replace(message, parts=(*parts, Text(meta.koding.context, synthetic=True)))
    if len(parts) == len(message.parts) and all(
        part is original for part, original in zip(parts, message.parts, strict=True)
    ):
        return message
    return replace(message, parts=parts)


def _is_sent_whole(part: Part) -> bool:
    """Whether this is a part as most are, which is sent as it is."""
    if isinstance(part, Text):
        return not part.ignored
    if isinstance(part, ToolResult):
        return part.compacted_at is None and not isinstance(part.content, tuple)
    return isinstance(part, ToolCall)


def _is_ignored(part: Part) -> bool:
    return isinstance(part, Text | Thinking) and part.ignored


def _part_for_model(part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    if part.compacted_at is not None:  # 003 §3.4
        return replace(part, content=_REMOVED, continuation=None)
    if not isinstance(part.content, tuple):
        return part
    content = tuple(piece for piece in part.content if not _is_ignored(piece) and not _is_full_output(piece))
    return part if len(content) == len(part.content) else replace(part, content=content)


def _is_full_output(piece: ContentPart) -> bool:
    return isinstance(piece, FileRef) and bool((piece.metadata or {}).get(FULL_OUTPUT))


def shorten_output(message: Message) -> Message | None:
    """The message with long tool outputs truncated, and without their images and files; None if there are none."""
    parts = tuple(_short_part(part) for part in message.parts)
    if all(part is original for part, original in zip(parts, message.parts, strict=True)):
        return None
    return replace(message, parts=parts)


def shorten_text(message: Message) -> Message:
    """The message with long texts truncated."""
    parts = (replace(part, text=truncate(part.text)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def _short_part(part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    text, media = _text_and_media(part.content)
    if len(text) <= _MAX_CHARS and not media:
        return part
    pieces = [truncate(text), *media] if text else media
    return replace(part, content="\n".join(pieces), continuation=None)


def truncate(text: str) -> str:
    """The beginning and end of a long text with a note between them; a short text unchanged."""
    if len(text) <= _MAX_CHARS:
        return text
    missing = len(text) - _HEAD_CHARS - _TAIL_CHARS
    note = f"[... {missing:,} of {len(text):,} characters omitted to save space ...]"
    return f"{text[:_HEAD_CHARS]}\n{note}\n{text[-_TAIL_CHARS:]}"


def _text_and_media(content: ToolContent) -> tuple[str, list[str]]:
    """A tool's output as text, and a note for each image or file in it."""
    if isinstance(content, str):
        return content, []
    if isinstance(content, dict):
        return json_text(content), []
    texts: list[str] = []
    media: list[str] = []
    for piece in content:
        match piece:
            case Text():
                texts.append(piece.text)
            case Image():
                media.append("[An image was omitted to save space.]")
            case FileRef():
                media.append(f"[The file {piece.path} was omitted to save space.]")
            case _:
                assert_never(piece)
    return "\n".join(texts), media
