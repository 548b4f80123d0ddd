"""Files that go along with a prompt: a path in, a part of a message out. What a file is, its first bytes say."""

from pathlib import Path

from bartack.formats import ModelRequest, encode
from bartack.formats.losses import Loss
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image

__all__ = ["MAX_BYTES", "attached", "not_sent", "valid_text"]

MAX_BYTES = 50_000_000  # no provider takes more in one request
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
# Every provider takes plain text; these are the kinds of it that some of them treat as what they are.
_TEXTS = {".csv": "text/csv", ".html": "text/html", ".md": "text/markdown"}


def attached(path: Path) -> Image | FileRef:
    """The file as a part: a picture, a PDF, or UTF-8 text; any other one is a `PartValidationError`."""
    name = valid_text(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _wrong(name, f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _wrong(name, f"is larger than {MAX_BYTES // 1_000_000} MB")
    if not data:
        raise _wrong(name, "is empty")
    picture = _picture_type(data)
    if picture is not None:
        return Image(picture, data=data)
    if data.startswith(b"%PDF-"):
        return FileRef(name, mime_type="application/pdf", data=data, size=len(data))
    if not _is_text(data):
        raise _wrong(name, "is neither a picture (PNG, JPEG, GIF, WebP) nor a PDF nor text in UTF-8")
    return FileRef(name, mime_type=_TEXTS.get(path.suffix.lower(), "text/plain"), data=data, size=len(data))


def not_sent(model: Model, message: Message) -> tuple[Loss, ...]:
    """What of this message the model's provider cannot be told; nothing where the model does not say beforehand."""
    match model:
        case ProviderModel():
            return model.prepare((message,)).report.losses
        case LocalModel():
            request = ModelRequest((message,), config=model.get_config(), provider="local")
            return encode("openai-chat", request).report.losses
        case _:
            return ()


def valid_text(text: str) -> str:
    """A word of the command line or a path, with a mark for bytes that are not UTF-8: those cannot be stored."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _picture_type(data: bytes) -> str | None:
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _PICTURES if data.startswith(start)), None)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _wrong(name: str, what: str) -> PartValidationError:
    error = PartValidationError(f"the file {name} {what}", path="--attach", code=ErrorCode.INVALID_CONFIG)
    error.add_note("--attach takes pictures, PDFs and text files")
    return error
