"""JSON from a client as typed values."""

from typing import Any

import msgspec

from bartack.nouns.errors import PartValidationError

__all__ = ["converted"]


def converted(value: Any, kind: Any, where: str = "$") -> Any:
    """The value as this type; `PartValidationError` names the place inside `where` that does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        raise PartValidationError(text, path=path.strip("`").replace("$", where, 1) or where) from None
