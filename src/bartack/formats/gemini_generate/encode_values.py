"""What both of Gemini's formats share: base64 in either alphabet, one object for a list of one, ids for calls."""

import re
from typing import Any

from bartack.formats import body_values
from bartack.formats.body_values import list_at, text_at
from bartack.formats.media import media_type
from bartack.nouns.parts import FileRef, Image, Part

__all__ = ["CallIds", "bytes_at", "is_taken", "items_at", "own_data"]

_URL_SAFE = str.maketrans("-_", "+/")
# ai.google.dev/gemini-api/docs on images, audio, video and documents; all else is an "Unsupported MIME type".
_TAKEN = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[^*]+"
    r"|application/(pdf|json|rtf|x-javascript|x-typescript|x-python-code)"
)
_FETCHED = ("https://", "http://", "gs://")


def items_at(value: Any, path: str) -> list[Any]:
    """The value as a list; `PartValidationError` with the path if it is neither a list nor an object."""
    return [value] if isinstance(value, dict) else list_at(value, path)


def bytes_at(value: Any, path: str) -> bytes:
    """The bytes that the value holds in base64; Google's libraries write it with either alphabet."""
    return body_values.bytes_at(text_at(value, path).translate(_URL_SAFE), path)


def own_data(part: Part, provider: str) -> dict[str, Any]:
    """The part's continuation data if it is this provider's; for parts that are lost as a whole where it is not."""
    continuation = part.continuation
    return {} if continuation is None or continuation.provider != provider else continuation.data


def is_taken(part: Image | FileRef) -> bool:
    """Whether Gemini reads this type, inline or from where it lies. What an address holds, it may find out itself."""
    kind = media_type(part)
    if part.data:
        return _TAKEN.fullmatch(kind) is not None
    is_readable = not kind or kind.endswith("/*") or _TAKEN.fullmatch(kind) is not None
    return is_readable and (part.url or "").startswith(_FETCHED)


class CallIds:
    """Gives every call of a body that is read an id of its own."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._made = 0

    def new(self, given: Any = None) -> str:
        """The given id, or a made one where there is none or it is taken."""
        call_id = given if isinstance(given, str) else ""
        while not call_id or call_id in self._used:
            self._made += 1
            call_id = f"call-{self._made}"
        self._used.add(call_id)
        return call_id
