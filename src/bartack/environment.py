"""`Environment`: where time and new ids come from. The core takes both as inputs; shells get them here.

Tests give a clock that counts and random bits that count, and everything downstream is the same every time.
"""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

from bartack.nouns.ids import uuid7

__all__ = ["Environment"]


def _now() -> datetime:
    return datetime.now(UTC)


def _random() -> int:
    return secrets.randbits(74)


class Environment:
    """The clock and the maker of ids."""

    def __init__(self, now: Callable[[], datetime] = _now, random: Callable[[], int] = _random) -> None:
        self.now = now
        self._random = random

    def new_id(self) -> str:
        """A new UUIDv7."""
        return uuid7(self.now(), self._random())
