"""Text and values that a session can store, from whatever a tool gives.

The ledger refuses lone surrogates, numbers that are not finite and very deep nesting. A tool that has done its work and
returns such a thing must not lose its result, so it is written in the nearest form that can be stored.
"""

from typing import Any

import msgspec

from bartack.nouns import wire
from bartack.nouns.entries import ToolProgress
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text

__all__ = ["printed", "storable_object", "storable_text", "value_text"]


def storable_text(text: str) -> str:
    """The text with halves of characters replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_object(value: dict[str, Any]) -> dict[str, Any] | None:
    """The object as it comes back from the ledger, or None where the ledger does not take it."""
    try:
        wire.encode(ToolProgress("", "", metadata=value))
        stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    except (PartValidationError, TypeError, ValueError, RecursionError):
        return None
    return stored


def value_text(value: Any) -> str:
    """The value as JSON, with anything JSON has no type for as Python prints it."""
    try:
        return storable_text(json_text(value, default=_plain))
    except (TypeError, ValueError, RecursionError):  # odd keys, circles, bombs
        return printed(value)


def printed(value: Any) -> str:
    """The value as Python prints it, or its type's name where it cannot be printed."""
    try:
        return storable_text(str(value))
    except Exception:  # noqa: BLE001 - printing runs the value's own code
        return f"<{type(value).__name__}>"


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return printed(value)
