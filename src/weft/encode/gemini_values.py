"""What both of Gemini's formats share: base64 in either alphabet, one object for a list of one, ids for calls."""

import re
from typing import Any

from weft.encode import body_values
from weft.encode.body_values import list_at, text_at
from weft.parts import Part

__all__ = ["CallIds", "bytes_at", "items_at", "own_data", "split_data_url"]

_URL_SAFE = str.maketrans("-_", "+/")
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)


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


def split_data_url(url: str) -> tuple[str, str] | None:
    """The media type and the base64 text of a ``data:`` address; None for any other."""
    found = _DATA_URL.fullmatch(url)
    return None if found is None else (found[1], found[2])


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
