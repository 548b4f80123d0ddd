"""Text and values that a session can store, from whatever a tool gives.

The ledger refuses lone surrogates, numbers that are not finite and very deep nesting. A tool that has done its work and
returns such a thing must not lose its result, so it is written in the nearest form that can be stored.
"""

import json
from typing import Any

import msgspec

from weft import wire
from weft.entries import ToolProgress
from weft.errors import PartValidationError

__all__ = ["json_text", "storable_object", "storable_text"]


def storable_text(text: str) -> str:
    """The text with halves of characters replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_object(value: Any) -> bool:
    """Whether the ledger takes this object as it is."""
    try:
        wire.encode(ToolProgress("", "", metadata=value))
    except (PartValidationError, RecursionError):
        return False
    return True


def json_text(value: Any) -> str:
    """The value as JSON, and what JSON has no word for as Python writes it."""
    try:
        return storable_text(json.dumps(value, ensure_ascii=False, default=_plain))
    except (TypeError, ValueError, RecursionError):  # odd keys, circles, bombs
        return storable_text(repr(value))


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
