"""`try_load`: reads data that may be incomplete. A missing field is logged and gives None (003 §6.1, D-7.5)."""

from collections.abc import Callable
from typing import Any, TypeVar

from bartack.nouns.errors import MissingRequiredField
from bartack.nouns.logs import logger
from bartack.nouns.wire import LEDGER, Dialect

__all__ = ["none_if_incomplete", "try_load"]

T = TypeVar("T")
_log = logger("views")


def try_load(noun: type[T], data: Any, dialect: Dialect = LEDGER) -> T | None:
    """As `Dialect.load`, but None if a field is missing. Other invalid data raises `PartValidationError`."""
    return none_if_incomplete(noun.__name__, lambda: dialect.load(noun, data))


def none_if_incomplete(name: str, read: Callable[[], T]) -> T | None:
    """What `read` returns; None if a field is missing."""
    try:
        return read()
    except MissingRequiredField as error:
        _log.warning("%s is incomplete: nothing at %s.", name, error.path)
        return None
