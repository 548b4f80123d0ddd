"""`Environment`: the source of time and new ids. The pure modules take both as inputs; everything else gets them here.

Tests pass a fake clock and counted random bits, which makes everything downstream reproducible.
"""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from bartack.nouns.ids import uuid7

__all__ = ["Environment"]


_now: Callable[[], datetime] = partial(datetime.now, UTC)  # called for every delta


def _random() -> int:
    return secrets.randbits(74)


class Environment:
    """A clock and an id generator."""

    def __init__(self, now: Callable[[], datetime] = _now, random: Callable[[], int] = _random) -> None:
        self.now = now
        self._random = random

    def new_id(self) -> str:
        """A new UUIDv7."""
        return uuid7(self.now(), self._random())
