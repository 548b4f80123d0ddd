"""One part <-> one content block of Bedrock's Converse.

A block is an object with one key that names its kind. Media have a format, a source of bytes (base64) or an S3
address, and documents a name. Blocks that our parts cannot say in full are kept in continuation data as ``block`` and
sent back as they came.
"""

import re
from base64 import b64encode
from pathlib import PurePosixPath
from typing import Any

from bartack.formats.body_values import bytes_at, object_at, text_at
from bartack.formats.media import media_type
from bartack.nouns.parts import FileRef, Image

__all__ = ["DocumentNames", "media_block", "read_media", "text_block"]

# media type -> kind of block and its format; of several names for one format the first is what a reader gives back
_MEDIA: dict[str, tuple[str, str]] = {
    "image/png": ("image", "png"),
    "image/jpeg": ("image", "jpeg"),
    "image/jpg": ("image", "jpeg"),
    "image/gif": ("image", "gif"),
    "image/webp": ("image", "webp"),
    "application/pdf": ("document", "pdf"),
    "text/csv": ("document", "csv"),
    "application/msword": ("document", "doc"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("document", "docx"),
    "application/vnd.ms-excel": ("document", "xls"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
    "text/html": ("document", "html"),
    "text/plain": ("document", "txt"),
    "application/json": ("document", "txt"),
    "text/markdown": ("document", "md"),
    "video/x-matroska": ("video", "mkv"),
    "video/quicktime": ("video", "mov"),
    "video/mp4": ("video", "mp4"),
    "video/webm": ("video", "webm"),
    "video/x-flv": ("video", "flv"),
    "video/mpeg": ("video", "mpeg"),
    "video/x-ms-wmv": ("video", "wmv"),
    "video/3gpp": ("video", "three_gp"),
    "audio/mpeg": ("audio", "mp3"),
    "audio/wav": ("audio", "wav"),
    "audio/x-wav": ("audio", "wav"),
    "audio/aac": ("audio", "aac"),
    "audio/flac": ("audio", "flac"),
    "audio/ogg": ("audio", "ogg"),
    "audio/opus": ("audio", "opus"),
    "audio/mp4": ("audio", "m4a"),
    "audio/webm": ("audio", "webm"),
}
_TYPES = {kind: mime_type for mime_type, kind in reversed(_MEDIA.items())}
_REFUSED_IN_NAMES = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")


class DocumentNames:
    """Names for documents, each once in a request: letters, digits, spaces, hyphens, parentheses and brackets."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name_for(self, path: str) -> str:
        """A name that the provider takes, as near to the file's own as it gets."""
        stem = _REFUSED_IN_NAMES.sub(" ", PurePosixPath(path).stem)
        wished = " ".join(stem.split())[:190].strip() or "document"
        name, number = wished, 1
        while name in self._taken:
            number += 1
            name = f"{wished} ({number})"
        self._taken.add(name)
        return name


def text_block(text: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """The block of a text, with its citations if it has any; None for blank text, which is refused."""
    if "block" in data:
        block: dict[str, Any] = data["block"]
        return block
    if "citations" in data:
        return {"citationsContent": {"content": [{"text": text}], "citations": data["citations"]}}
    return {"text": text} if text.strip() else None


def media_block(part: Image | FileRef, data: dict[str, Any], names: DocumentNames) -> dict[str, Any] | None:
    """The block of a picture or file; None where Converse has none for its type or takes it from elsewhere only."""
    if "block" in data:
        block: dict[str, Any] = data["block"]
        return block
    mime_type = media_type(part)
    kind = _MEDIA.get(mime_type) or (("document", "txt") if mime_type.startswith("text/") else None)
    if kind is None:
        return None
    if part.data:
        source: dict[str, Any] = {"bytes": b64encode(part.data).decode()}
    elif part.url is not None and part.url.startswith("s3://"):
        source = {"s3Location": {"uri": part.url}}
    else:
        return None
    name, media_format = kind
    named = {"name": names.name_for(getattr(part, "path", ""))} if name == "document" else {}
    return {name: {**named, "format": media_format, "source": source}}


def read_media(block: dict[str, Any], path: str) -> Image | FileRef:
    """The picture or file in a block of media, as far as a part can say it."""
    [(kind, value)] = block.items()
    media = object_at(value, f"{path}.{kind}")
    mime_type = _TYPES.get((kind, str(media.get("format"))))
    source = object_at(media.get("source"), f"{path}.{kind}.source")
    data = bytes_at(source["bytes"], f"{path}.{kind}.source.bytes") if "bytes" in source else None
    url = None
    if "s3Location" in source:
        place = f"{path}.{kind}.source.s3Location"
        url = text_at(object_at(source["s3Location"], place).get("uri"), f"{place}.uri")
    if kind == "image" and mime_type is not None and (data is None) != (url is None):
        return Image(mime_type, data=data, url=url)
    return FileRef(str(media.get("name") or kind), mime_type=mime_type, data=data, url=url if data is None else None)
