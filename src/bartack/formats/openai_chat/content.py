"""Pieces of content in Chat Completions requests <-> text, pictures and files.

A piece that a provider cannot be sent is a loss; a file whose text can be read is sent as text.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.losses import Losses
from bartack.formats.media import has_content, media_type, named, split_data_url
from bartack.formats.openai_chat.accents import ChatAccent
from bartack.nouns.parts import ContentPart, Continuation, FileRef, Image, Text

__all__ = ["decode_content", "encode_content", "is_plain"]

Json = dict[str, Any]

_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))  # OpenAI's; nobody documents fewer
# The two formats of OpenAI; others go by the second half of the media type.
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/wave": "wav", "audio/x-wav": "wav"}
_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_READABLE = ("text/", "application/json", "application/xml", "application/yaml")


def is_plain(piece: Json) -> bool:
    """Whether a piece is text and nothing else."""
    return piece.keys() == {"type", "text"} and piece["type"] == "text"


# -- parts to pieces


def encode_content(part: ContentPart, data: Json, where: str, losses: Losses, accent: ChatAccent) -> list[Json]:
    """The pieces for one part: one, or none where it may not or cannot be sent. `data` is its continuation data."""
    if "content" in data:
        return [data["content"]]
    match part:
        case Text():
            return [] if part.ignored else [{"type": "text", "text": part.text, **data.get("chunk", {})}]
        case Image():
            piece = _image(part, data, accent)
        case FileRef():
            piece = _file(part, data, accent)
        case _:
            assert_never(part)
    if piece is None:
        why = "the provider takes no content of this kind, or not from there"
        piece = {"type": "text", "text": named(part, where, why, losses)}
    return [{**piece, **data.get("chunk", {})}]


def _address(part: Image | FileRef) -> str | None:
    """Where the content is: on the web, or in the address itself; None where it is elsewhere."""
    if part.data is None:
        return part.url if (part.url or "").startswith(("https://", "http://")) else None
    return f"data:{media_type(part)};base64,{b64encode(part.data).decode()}"


def _image(part: Image | FileRef, data: Json, accent: ChatAccent) -> Json | None:
    picture = {"url": _address(part), **data.get("image_url", {})}
    is_readable = part.data is None or (part.data and media_type(part) in _PICTURES)
    if not accent.images or picture["url"] is None or not is_readable:
        return None
    return {"type": "image_url", "image_url": picture}


def _file(part: FileRef, data: Json, accent: ChatAccent) -> Json | None:
    kind = media_type(part)
    if "file" in data:  # a file that the provider keeps
        return {"type": "file", "file": data["file"]}
    if not has_content(part):
        return None
    if kind.startswith("image/"):
        return _image(part, data, accent)
    sound = _AUDIO_FORMATS.get(kind, kind.removeprefix("audio/"))
    if kind.startswith("audio/") and sound in accent.audio and part.data is not None:
        return {"type": "input_audio", "input_audio": {"data": b64encode(part.data).decode(), "format": sound}}
    address = _address(part)
    if kind.startswith("video/") and accent.video and address is not None:
        return {"type": "video_url", "video_url": {"url": address}}
    if kind.startswith(("audio/", "video/")):
        return None
    return _readable(part) or (None if address is None else _document(part, address, accent))


def _document(part: FileRef, address: str, accent: ChatAccent) -> Json | None:
    match accent.files:
        case "file":
            is_pdf = media_type(part) == "application/pdf" or (part.data is None and not media_type(part))
            if not is_pdf or (part.data is None and not accent.file_urls):
                return None
            return {"type": "file", "file": {"filename": part.path, "file_data": address}}
        case "document_url":
            name = {} if part.path == part.url else {"document_name": part.path}
            return {"type": "document_url", "document_url": address, **name}
        case "file_url":
            return {"type": "file_url", "file_url": {"url": address}}
        case "none":
            return None
        case _:
            assert_never(accent.files)


def _readable(part: FileRef) -> Json | None:
    if part.data is None or not media_type(part).startswith(_READABLE):
        return None
    return {"type": "text", "text": f"{part.path}:\n{part.data.decode('utf-8', 'replace')}"}


# -- pieces to parts


def decode_content(piece: Json, provider: str, model: str) -> ContentPart:
    """The part for one piece; what our part does not say is kept as continuation data."""
    kind = piece.get("type")
    payload = piece.get(kind) if isinstance(kind, str) else None
    part: ContentPart | None = None
    kept: Json = {}
    if kind == "text" and isinstance(piece.get("text"), str):
        part = Text(piece["text"])
    elif kind == "image_url":
        url, kept = _address_in(payload, "image_url")
        part = _read_image(url) if url else None
        if part is not None and part.data is None and url.startswith("data:"):  # not as we would write it
            kept = {"image_url": {"url": url, **kept.get("image_url", {})}}
    elif kind == "input_audio" and isinstance(payload, dict) and isinstance(payload.get("data"), str):
        part = _read_audio(payload)
    elif kind == "file" and isinstance(payload, dict):
        part, kept = _read_file(payload)
    elif kind in ("video_url", "file_url", "document_url"):
        url, kept = _address_in(payload, kind)
        name = piece.get("document_name")
        fallback = "video/mp4" if kind == "video_url" else "application/pdf"
        part = _read_address(url, name if isinstance(name, str) else url, fallback) if url and not kept else None
    if part is None:
        part, kept = Text(""), {"content": piece}
    else:
        used = ("type", kind, "document_name")
        others = {key: value for key, value in piece.items() if key not in used and value is not None}
        kept = {**kept, **({"chunk": others} if others else {})}
    if not kept:
        return part
    return _with(part, Continuation(provider, model, kept))


def _with(part: ContentPart, continuation: Continuation) -> ContentPart:
    match part:
        case Text(text=text):
            return Text(text, continuation=continuation)
        case Image():
            return Image(part.mime_type, data=part.data, url=part.url, continuation=continuation)
        case FileRef():
            return FileRef(part.path, data=part.data, url=part.url, mime_type=part.mime_type, continuation=continuation)
        case _:
            assert_never(part)


def _address_in(payload: Any, key: str) -> tuple[str, Json]:
    """The address, which is the payload or its `url`, and what else the payload says."""
    if isinstance(payload, str):
        return payload, {}
    if not isinstance(payload, dict) or not isinstance(payload.get("url"), str):
        return "", {}
    others = {name: value for name, value in payload.items() if name != "url" and value is not None}
    return payload["url"], {key: others} if others else {}


def _data_in(url: str) -> tuple[str, bytes] | None:
    """Media type and bytes of a data URL that says exactly what we would write."""
    found = split_data_url(url)
    return found if found is not None and url.endswith(f",{b64encode(found[1]).decode()}") else None


def _read_image(url: str) -> Image:
    inline = _data_in(url)
    return Image("image/*", url=url) if inline is None else Image(inline[0], data=inline[1])


def _read_audio(sound: Json) -> FileRef | None:
    form = str(sound.get("format") or "")
    kind = _AUDIO_TYPES.get(form, f"audio/{form}")
    inline = _data_in(f"data:{kind};base64,{sound['data']}")
    return None if inline is None else FileRef(f"audio.{form}", data=inline[1], mime_type=kind)


def _read_address(url: str, name: str, fallback: str) -> FileRef:
    inline = _data_in(url)
    if inline is not None:
        return FileRef(name if name != url else "file", data=inline[1], mime_type=inline[0])
    return FileRef(name, url=url, mime_type=fallback)


def _read_file(payload: Json) -> tuple[FileRef | None, Json]:
    address, name = payload.get("file_data"), payload.get("filename")
    if isinstance(address, str) and isinstance(name, str) and payload.keys() == {"file_data", "filename"}:
        return _read_address(address, name, "application/pdf"), {}
    kept = payload.get("file_id") or name
    return (FileRef(kept), {"file": payload}) if isinstance(kept, str) else (None, {})
