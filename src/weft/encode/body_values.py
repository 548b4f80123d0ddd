"""What bodies are made of: JSON as text, extra settings, and for readers values that are checked where they stand."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.errors import MissingRequiredField, PartValidationError

__all__ = ["bytes_at", "json_text", "list_at", "number_at", "object_at", "text_at", "texts_at", "with_extra"]


def json_text(value: Any) -> str:
    """Compact JSON, the same text for the same value."""
    return msgspec.json.encode(value).decode()


def with_extra(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The body with a provider's own settings in it; an object that both have is joined, and the extra key wins."""
    for key, value in (extra or {}).items():
        ours = body.get(key)
        body[key] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return body


def object_at(value: Any, path: str) -> dict[str, Any]:
    """The value if it is an object; `PartValidationError` with the path if not."""
    if not isinstance(value, dict):
        raise _wrong(value, "an object", path)
    return value


def list_at(value: Any, path: str) -> list[Any]:
    """The value if it is a list; `PartValidationError` with the path if not."""
    if not isinstance(value, list):
        raise _wrong(value, "a list", path)
    return value


def text_at(value: Any, path: str) -> str:
    """The value if it is text; `PartValidationError` with the path if not."""
    if not isinstance(value, str):
        raise _wrong(value, "text", path)
    return value


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """The texts of a list; `PartValidationError` with the path if it is none, or holds something else."""
    return tuple(text_at(item, f"{path}[{index}]") for index, item in enumerate(list_at(value, path)))


def number_at(value: Any, path: str) -> Any:
    """The value if it is a number; `PartValidationError` with the path if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number", path)
    return value


def bytes_at(value: Any, path: str) -> bytes:
    """The bytes that the value holds in base64; `PartValidationError` with the path if it does not."""
    try:
        return b64decode(text_at(value, path), validate=True)
    except binascii.Error as error:
        raise PartValidationError(f"not base64: {error}", path=path) from error


def _wrong(value: Any, expected: str, path: str) -> PartValidationError:
    if value is None:
        return MissingRequiredField(f"{expected} is missing", path=path)
    return PartValidationError(f"expected {expected}, got {type(value).__name__}", path=path)
