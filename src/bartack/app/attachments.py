"""Files attached to a prompt: a path in, a part of a message out. The type of a file is read from its first bytes."""

from pathlib import Path

from bartack.app.errors import with_hint
from bartack.app.safe_text import valid_text
from bartack.formats import ModelRequest, encode
from bartack.formats.losses import Loss
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.media_types import type_of_data
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image

MAX_BYTES = 50_000_000  # no provider accepts more in one request
# Every provider accepts plain text; some handle these kinds of it specially.
_TEXTS = {".csv": "text/csv", ".html": "text/html", ".md": "text/markdown"}


def load_attachment(path: Path) -> Image | FileRef:
    """The file as an image, a PDF or UTF-8 text. Raises `PartValidationError` for anything else."""
    name = valid_text(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise not_attached(name, f"{error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise not_attached(name, f"larger than {MAX_BYTES // 1_000_000} MB")
    if not data:
        raise not_attached(name, "the file is empty")
    kind = type_of_data(data)
    if kind is not None:
        return Image(kind, data=data) if kind.startswith("image/") else FileRef.from_bytes(data, name, mime_type=kind)
    if not _is_text(data):
        raise not_attached(name, "unsupported file type")
    return FileRef(name, mime_type=_TEXTS.get(path.suffix.lower(), "text/plain"), data=data, size=len(data))


def unsupported_content(model: Model, message: Message) -> tuple[Loss, ...]:
    """The content of this message that the model's provider does not accept, if that is known before a request."""
    match model:
        case ProviderModel():
            return model.prepare((message,)).report.losses
        case LocalModel():
            request = ModelRequest((message,), config=model.get_config(), provider="local")
            return encode("openai-chat", request).report.losses
        case _:
            return ()


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def not_attached(name: str, problem: str) -> PartValidationError:
    """The error for a file that cannot be sent to a model."""
    error = PartValidationError(f"Cannot attach {name}: {problem}.", path="--attach", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Images (PNG, JPEG, GIF, WebP), PDFs and UTF-8 text files can be attached.")
