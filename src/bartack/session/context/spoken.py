"""A message as a model may hear it: without what is for people only, and with long tool outputs cut where asked."""

from typing import assert_never

from msgspec.structs import replace

from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolContent, ToolResult

__all__ = ["OUTPUT_CHARS", "WHOLE_OUTPUT", "briefly", "cut_text", "shortened", "spoken"]

OUTPUT_CHARS = 2_000  # longer outputs are worth cutting: more than half of one is saved
_HEAD_CHARS = 700  # what a command or file begins with says what it is,
_TAIL_CHARS = 300  # and how it ends says how it went
WHOLE_OUTPUT = "whole_output"  # metadata of a file that keeps, for people, what a tool's output was cut from
DROPPED = "[this output was dropped from the conversation]"


def spoken(message: Message) -> Message | None:
    """The message without its ignored parts (003 §3.2); None if it says nothing to a model."""
    if message.meta is not None and message.meta.is_api_error_message:
        return None
    parts = tuple(_spoken_part(part) for part in message.parts if not _is_ignored(part))
    if not parts:
        return None
    if len(parts) == len(message.parts) and all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts)


def _is_ignored(part: Part) -> bool:
    return isinstance(part, Text | Thinking) and part.ignored


def _spoken_part(part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    if part.compacted_at is not None:  # 003 §3.4
        return replace(part, content=DROPPED, continuation=None)
    if not isinstance(part.content, tuple):
        return part
    content = tuple(piece for piece in part.content if not _is_ignored(piece) and not _is_for_people(piece))
    return part if len(content) == len(part.content) else replace(part, content=content)


def _is_for_people(piece: ContentPart) -> bool:
    return isinstance(piece, FileRef) and bool((piece.metadata or {}).get(WHOLE_OUTPUT))


def shortened(message: Message) -> Message | None:
    """The message with its long tool outputs cut; None if it holds none."""
    parts = tuple(_short_part(part) for part in message.parts)
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return None
    return replace(message, parts=parts)


def briefly(message: Message) -> Message:
    """The message with its long texts cut, for a summary that has no room for them."""
    parts = (replace(part, text=cut_text(part.text)) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def _short_part(part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    text, media = _written_out(part.content)
    if len(text) <= OUTPUT_CHARS and not media:
        return part
    pieces = [cut_text(text), *media] if text else media
    return replace(part, content="\n".join(pieces), continuation=None)


def cut_text(text: str) -> str:
    """The text's beginning and end with a note of how much is missing between them; a short one as it is."""
    if len(text) <= OUTPUT_CHARS:
        return text
    missing = len(text) - _HEAD_CHARS - _TAIL_CHARS
    note = f"[... {missing:,} of {len(text):,} characters were left out here to save room ...]"
    return f"{text[:_HEAD_CHARS]}\n{note}\n{text[-_TAIL_CHARS:]}"


def _written_out(content: ToolContent) -> tuple[str, list[str]]:
    """A tool's output as text, and a note for each picture or file in it."""
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
                media.append("[a picture was left out here to save room]")
            case FileRef():
                media.append(f"[the file {piece.path} was left out here to save room]")
            case _:
                assert_never(piece)
    return "\n".join(texts), media
