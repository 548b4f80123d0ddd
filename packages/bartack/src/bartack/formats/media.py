"""What all encoders share about images and files: media types, data URLs, and the text for content that is not sent.

Content that a provider does not accept is replaced by its name: a message with nothing else would be empty, and empty
messages are refused.
"""

from base64 import b64decode, b64encode
from typing import assert_never

from msgspec.structs import replace

from bartack.formats.losses import Losses
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult, type_of_name

__all__ = ["data_url", "exact_data", "has_content", "media_type", "placeholder", "split_data_url", "with_inline_data"]


def media_type(part: Image | FileRef) -> str:
    """The part's media type, or the one that its name or URL implies; empty if unknown."""
    if part.mime_type and not part.mime_type.endswith("/*"):
        return part.mime_type
    name = part.path if isinstance(part, FileRef) else (part.url or "").partition("?")[0]
    return type_of_name(name) or part.mime_type or ""


def has_content(part: Image | FileRef) -> bool:
    """Whether the part has its content, inline or by URL. Zero bytes are no content."""
    return bool(part.data or part.url)


def placeholder(part: Image | FileRef, where: str, why: str, losses: Losses) -> str:
    """The text sent instead of an image or file, which is recorded as a loss."""
    description = f"file {part.path}" if isinstance(part, FileRef) else f"image ({part.mime_type})"
    losses.add(where, description, why if has_content(part) else "the message does not contain its data")
    name = part.path if isinstance(part, FileRef) else part.mime_type
    inline = part.url is None or part.url.startswith("data:")
    place = "" if inline or part.url == name else f", {part.url}"
    return f"[{'file' if isinstance(part, FileRef) else 'image'}: {name}{place}]"


def data_url(kind: str, data: bytes) -> str:
    """A ``data:`` URL in base64."""
    return f"data:{kind};base64,{b64encode(data).decode()}"


def exact_data(url: str) -> tuple[str, bytes] | None:
    """The media type and bytes of a data URL, if both exist and `data_url` gives the same URL for them."""
    inline = split_data_url(url)
    return inline if inline is not None and all(inline) and data_url(*inline) == url else None


def split_data_url(url: str) -> tuple[str, bytes] | None:
    """The media type and bytes of a ``data:`` URL in base64; None for any other URL and for invalid base64."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        data = b64decode(text, validate=True)
    except ValueError:  # not base64, or not even ASCII
        return None
    return head.removeprefix("data:").removesuffix(";base64"), data


def with_inline_data(message: Message) -> Message:
    """The message with data URLs replaced by their bytes: few providers accept data URLs."""
    parts = tuple(_inline(part) for part in message.parts)
    is_changed = any(part is not original for part, original in zip(parts, message.parts, strict=True))
    return replace(message, parts=parts) if is_changed else message


def _inline(part: Part) -> Part:
    match part:
        case Image(url=str(url)) | FileRef(url=str(url)) if url.startswith("data:"):
            inline = split_data_url(url)
            if inline is None:
                return part
            kind = inline[0].partition(";")[0]  # without parameters such as the charset
            return replace(part, url=None, data=inline[1], mime_type=kind or part.mime_type)
        case ToolResult(content=tuple(content)):
            pieces = tuple(_inline(piece) for piece in content)
            changed = any(piece is not original for piece, original in zip(pieces, content, strict=True))
            return replace(part, content=pieces) if changed else part
        case Text() | Thinking() | ToolCall() | ToolResult() | Image() | FileRef():
            return part
        case _:
            assert_never(part)
