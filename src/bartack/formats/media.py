"""What every encoder has to know of pictures and files: their type, and what stands for those that it cannot send.

A provider that cannot be shown a file is told its name, so that the message still says that there was one: a message
that holds nothing else would be empty, and empty messages are refused.
"""

from base64 import b64decode
from pathlib import PurePosixPath

from msgspec.structs import replace

from bartack.formats.losses import Losses
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, ToolResult

__all__ = ["has_content", "media_type", "named", "split_data_url", "with_inline_data"]

# Only what providers take: a file of any other type is not sent, so its type does not matter.
_BY_SUFFIX = {
    ".pdf": "application/pdf",
    ".csv": "text/csv",
    ".doc": "application/msword",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xls": "application/vnd.ms-excel",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".html": "text/html",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
}


def media_type(part: Image | FileRef) -> str:
    """The type that the part names, or that its name or address ends in; empty where nothing says it."""
    if part.mime_type and not part.mime_type.endswith("/*"):
        return part.mime_type
    name = part.path if isinstance(part, FileRef) else (part.url or "").partition("?")[0]
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower(), part.mime_type or "")


def has_content(part: Image | FileRef) -> bool:
    """Whether the content travels with the part, inline or by an address; no bytes are no content."""
    return bool(part.data or part.url)


def named(part: Image | FileRef, where: str, why: str, losses: Losses) -> str:
    """The text that stands for a picture or file which cannot be sent; the loss is noted."""
    what = f"the file {part.path}" if isinstance(part, FileRef) else f"an image ({part.mime_type})"
    losses.add(where, what, why if has_content(part) else "its content does not travel with the message")
    name = part.path if isinstance(part, FileRef) else part.mime_type
    inline = part.url is None or part.url.startswith("data:")
    place = "" if inline or part.url == name else f", {part.url}"
    return f"[{'file' if isinstance(part, FileRef) else 'image'}: {name}{place}]"


def split_data_url(url: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of a ``data:`` address in base64; None for any other, and where it is broken."""
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        data = b64decode(text, validate=True)
    except ValueError:  # no base64, or not even ASCII
        return None
    return head.removeprefix("data:").removesuffix(";base64"), data


def with_inline_data(message: Message) -> Message:
    """The message with the bytes of ``data:`` addresses as data; few providers take them as addresses."""
    parts = tuple(_inline(part) for part in message.parts)
    is_changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
    return replace(message, parts=parts) if is_changed else message


def _inline(part: Part) -> Part:
    match part:
        case Image(url=str(url)) | FileRef(url=str(url)) if url.startswith("data:"):
            found = split_data_url(url)
            if found is None:
                return part
            kind = found[0].partition(";")[0]  # what follows says how text is written
            return replace(part, url=None, data=found[1], mime_type=kind or part.mime_type)
        case ToolResult(content=tuple(content)):
            pieces = tuple(_inline(piece) for piece in content)
            changed = any(new is not old for new, old in zip(pieces, content, strict=True))
            return replace(part, content=pieces) if changed else part
        case _:
            return part
