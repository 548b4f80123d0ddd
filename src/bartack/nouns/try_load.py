"""`try_load`: reads data that may be incomplete or invalid; if it is, logs this and returns None (003 §6.1, D-7.5)."""

from collections.abc import Callable
from typing import Any, TypeVar

from bartack.nouns.errors import MissingRequiredField, PartValidationError
from bartack.nouns.logs import logger
from bartack.nouns.wire import LEDGER, Dialect

__all__ = ["none_if_invalid", "try_load"]

T = TypeVar("T")
_log = logger("views")


def try_load(noun: type[T], data: Any, dialect: Dialect = LEDGER) -> T | None:
    """As `Dialect.load`, but None if a field is missing or the data is invalid."""
    return none_if_invalid(getattr(noun, "__name__", str(noun)), lambda: dialect.load(noun, data))


def none_if_invalid(name: str, read: Callable[[], T]) -> T | None:
    """What `read` returns; None if a field is missing or invalid. The log names the place, not the value."""
    try:
        return read()
    except MissingRequiredField as error:
        _log.warning("%s is incomplete: nothing at %s.", name, error.path)
    except PartValidationError as error:
        _log.warning("%s is invalid at %s.", name, error.path)
    return None
