"""What Gemini's two streams have in common: errors and generated media."""

import re
from base64 import b64decode
from typing import Any

from bartack.formats.emitter import Emitter
from bartack.formats.faults import classify
from bartack.nouns.parts import FileRef, Image

__all__ = ["media", "media_tool", "refuse", "text_of"]

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d+)?)s")
_URL_SAFE = str.maketrans("-_", "+/")


def text_of(value: dict[str, Any], key: str) -> str:
    """The text under a key; "" for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


# -- generated media


def media_tool(kind: str) -> str:
    """The name under which generated media appear as a call: ``image_output`` for ``image/png`` or ``image``."""
    return f"{kind.partition('/')[0] or 'file'}_output"


def media(mime_type: str, data: str, uri: str) -> Image | FileRef | None:
    """Media by their content or their address; None if there is neither, or the content is no base64."""
    content: dict[str, Any] = {"url": uri}
    if data or not uri:
        try:
            content = {"data": b64decode(data.translate(_URL_SAFE) + "=" * (-len(data) % 4), validate=True)}
        except ValueError:
            return None
        if not data:
            return None
    if mime_type.startswith("image/"):
        return Image(mime_type, **content)
    return FileRef(media_tool(mime_type), mime_type=mime_type or None, **content)


# -- errors


def refuse(out: Emitter, error: Any) -> None:
    """End the stream with the error that Google put into it: ``{code, status, message, details}`` or part of that."""
    if not isinstance(error, dict):
        out.refused(str(error))
        return
    code = error.get("code")
    status = code if isinstance(code, int) and code >= 400 else None
    word = text_of(error, "status") or (code if isinstance(code, str) else "").rpartition("/")[2]
    message = text_of(error, "message") or word or "the provider gave no reason"
    out.fail(
        classify(status, word, message),
        message,
        status=status,
        retry_after_ms=_retry_after_ms(error.get("details")),
        raw_code=word or None,
    )


def _retry_after_ms(details: Any) -> int | None:
    """From google.rpc.RetryInfo: ``{"retryDelay": "34.07s"}``."""
    for detail in details if isinstance(details, list) else []:
        delay = _SECONDS.fullmatch(text_of(detail, "retryDelay")) if isinstance(detail, dict) else None
        if delay is not None:
            return round(float(delay[1]) * 1000)
    return None
