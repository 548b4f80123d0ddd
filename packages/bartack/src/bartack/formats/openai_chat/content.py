"""Pieces of content in Chat Completions requests, from and to text, image and file parts.

Content that the vendor does not accept is a loss; a text file is sent as text.
"""

from base64 import b64encode
from typing import Any, assert_never

from msgspec.structs import replace

from bartack.formats.losses import Losses
from bartack.formats.media import data_url, exact_data, has_content, media_type, placeholder
from bartack.formats.openai_chat.capabilities import ChatCapabilities
from bartack.nouns.parts import ContentPart, Continuation, FileRef, Image, Text

__all__ = ["decode_content", "encode_content", "is_plain"]

Json = dict[str, Any]

_IMAGE_TYPES = frozenset(
    ("image/png", "image/jpeg", "image/gif", "image/webp")
)  # platform.openai.com/docs/guides/images
# OpenAI's two formats; other vendors name a format by the subtype of the media type.
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/wave": "wav", "audio/x-wav": "wav"}
_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_UNNAMED = "file"  # the path of an inline file that came without a name
_READABLE = ("text/", "application/json", "application/xml", "application/yaml")


def is_plain(piece: Json) -> bool:
    """Whether a piece is text without further fields."""
    return piece.keys() == {"type", "text"} and piece["type"] == "text" and isinstance(piece["text"], str)


# -- parts to pieces


def encode_content(part: ContentPart, data: Json, where: str, losses: Losses, vendor: ChatCapabilities) -> list[Json]:
    """The piece for one part, or none if the part is ignored. `data` is its continuation data."""
    if "content" in data:
        return [data["content"]]
    match part:
        case Text():
            return [] if part.ignored else [{"type": "text", "text": part.text, **data.get("chunk", {})}]
        case Image():
            piece = _image(part, data, vendor)
        case FileRef():
            piece = _file(part, data, vendor)
        case _:
            assert_never(part)
    if piece is None:
        why = "the provider does not accept content of this type, or not from this URL"
        piece = {"type": "text", "text": placeholder(part, where, why, losses)}
    return [{**piece, **data.get("chunk", {})}]


def _address(part: Image | FileRef) -> str | None:
    """The content's web address, or a data URL for inline content; None for other addresses."""
    if part.data is None:
        return part.url if (part.url or "").startswith(("https://", "http://")) else None
    return data_url(media_type(part), part.data)


def _image(part: Image | FileRef, data: Json, vendor: ChatCapabilities) -> Json | None:
    detail = {"detail": part.detail} if isinstance(part, Image) and part.detail is not None else {}
    image = {"url": _address(part), **detail, **data.get("image_url", {})}
    is_readable = part.data is None or (part.data and media_type(part) in _IMAGE_TYPES)
    if not vendor.images or image["url"] is None or not is_readable:
        return None
    return {"type": "image_url", "image_url": image}


def _file(part: FileRef, data: Json, vendor: ChatCapabilities) -> Json | None:
    kind = media_type(part)
    if "file" in data:
        return {"type": "file", "file": data["file"]}
    if not has_content(part):
        return None
    if kind.startswith("image/"):
        return _image(part, data, vendor)
    sound = _AUDIO_FORMATS.get(kind, kind.removeprefix("audio/"))
    if kind.startswith("audio/") and sound in vendor.audio and part.data is not None:
        return {"type": "input_audio", "input_audio": {"data": b64encode(part.data).decode(), "format": sound}}
    address = _address(part)
    if kind.startswith("video/") and vendor.video and address is not None:
        return {"type": "video_url", "video_url": {"url": address}}
    if kind.startswith(("audio/", "video/")):
        return None
    return _readable(part) or (None if address is None else _document(part, address, vendor))


def _document(part: FileRef, address: str, vendor: ChatCapabilities) -> Json | None:
    match vendor.files:
        case "file":
            is_pdf = media_type(part) == "application/pdf" or (part.data is None and not media_type(part))
            if not is_pdf or (part.data is None and not vendor.file_urls):
                return None
            return {"type": "file", "file": {"filename": part.path, "file_data": address}}
        case "document_url":
            name = {} if part.path == part.url else {"document_name": part.path}
            return {"type": "document_url", "document_url": address, **name}
        case "file_url":
            return {"type": "file_url", "file_url": {"url": address}}
        case "file_url_or_base64":
            content = address if part.data is None else b64encode(part.data).decode()
            name = {} if part.path in (part.url, _UNNAMED) else {"file_name": part.path}
            return {"type": "file_url", "file_url": {"url": content}, **name}
        case "none":
            return None
        case _:
            assert_never(vendor.files)


def _readable(part: FileRef) -> Json | None:
    if part.data is None or not media_type(part).startswith(_READABLE):
        return None
    return {"type": "text", "text": f"{part.path}:\n{part.data.decode('utf-8', 'replace')}"}


# -- pieces to parts


def decode_content(piece: Json, provider: str, model: str) -> ContentPart:
    """The part for one piece. Fields that the part has no place for are kept as continuation data."""
    kind = piece.get("type")
    payload = piece.get(kind) if isinstance(kind, str) else None
    part: ContentPart | None = None
    data: Json = {}
    if kind == "text" and isinstance(piece.get("text"), str):
        part = Text(piece["text"])
    elif kind == "image_url":
        url, data = _address_in(payload, "image_url")
        part = _read_image(url) if url else None
        if part is not None and part.data is None and url.startswith("data:"):  # not base64 as we would write it
            data = {"image_url": {"url": url, **data.get("image_url", {})}}
    elif kind == "input_audio" and isinstance(payload, dict) and isinstance(payload.get("data"), str):
        part = _read_audio(payload)
    elif kind == "file" and isinstance(payload, dict):
        part, data = _read_file(payload)
    elif kind in ("video_url", "file_url", "document_url"):
        url, data = _address_in(payload, kind)
        name = piece.get("document_name") or piece.get("file_name")
        fallback = "video/mp4" if kind == "video_url" else "application/pdf"
        part = _read_address(url, name if isinstance(name, str) else url, fallback) if url and not data else None
    if part is None:
        part, data = Text(""), {"content": piece}
    else:
        used = ("type", kind, "document_name", "file_name")
        extra = {key: value for key, value in piece.items() if key not in used and value is not None}
        data = {**data, **({"chunk": extra} if extra else {})}
    return replace(part, continuation=Continuation(provider, model, data)) if data else part


def _address_in(payload: Any, key: str) -> tuple[str, Json]:
    """The address, which is the payload or its `url`, and the other fields of the payload."""
    if isinstance(payload, str):
        return payload, {}
    if not isinstance(payload, dict) or not isinstance(payload.get("url"), str):
        return "", {}
    extra = {name: value for name, value in payload.items() if name != "url" and value is not None}
    return payload["url"], {key: extra} if extra else {}


def _read_image(url: str) -> Image:
    inline = exact_data(url)
    return Image("image/*", url=url) if inline is None else Image(inline[0], data=inline[1])


def _read_audio(sound: Json) -> FileRef | None:
    form = str(sound.get("format") or "")
    kind = _AUDIO_TYPES.get(form, f"audio/{form}")
    inline = exact_data(f"data:{kind};base64,{sound['data']}")
    return None if inline is None else FileRef(f"audio.{form}", data=inline[1], mime_type=kind)


def _read_address(url: str, name: str, fallback: str) -> FileRef | None:
    """A file by its URL or data URL, or (Perplexity) by its bare base64; None for what is none of these."""
    title = name if name != url else _UNNAMED
    inline = exact_data(url)
    if inline is not None:
        return FileRef(title, data=inline[1], mime_type=inline[0])
    if ":" in url:
        return FileRef(name, url=url, mime_type=fallback)
    bare = exact_data(data_url(fallback, b"") + url)
    return None if bare is None else FileRef(title, data=bare[1], mime_type=media_type(FileRef(title)) or fallback)


def _read_file(payload: Json) -> tuple[FileRef | None, Json]:
    address, name = payload.get("file_data"), payload.get("filename")
    if isinstance(address, str) and isinstance(name, str) and payload.keys() == {"file_data", "filename"}:
        return _read_address(address, name, "application/pdf"), {}
    reference = payload.get("file_id") or name
    return (FileRef(reference), {"file": payload}) if isinstance(reference, str) else (None, {})
