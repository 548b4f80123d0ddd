"""`Environment`: the source of time and new ids. The pure modules take both as inputs; everything else gets them here.

Tests pass a fake clock and counted random bits, which makes everything downstream reproducible.
"""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from bartack.nouns.ids import uuid7

__all__ = ["Environment"]


_now: Callable[[], datetime] = partial(datetime.now, UTC)  # called for every delta


def _random() -> int:
    return secrets.randbits(74)


def _boot_s() -> float | None:
    """Seconds since the machine was booted, the time it was suspended included; None where that is not known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


class Environment:
    """The clocks and an id generator."""

    def __init__(
        self,
        now: Callable[[], datetime] = _now,
        random: Callable[[], int] = _random,
        *,
        boot_s: Callable[[], float | None] = _boot_s,
    ) -> None:
        """`now` is the wall clock, which may be set at any time; `boot_s` the time since the boot, which cannot."""
        self.now = now
        self.boot_s = boot_s
        self._random = random

    def later(self, started_at: datetime, mark_s: float) -> datetime:
        """The current time, for something that started then, when `time.monotonic()` was `mark_s`.

        The difference is how long it took, even if the clock was set meanwhile. The clock of a test is taken as it is,
        except that it does not run backwards.
        """
        if self.now is _now:
            return started_at + timedelta(seconds=time.monotonic() - mark_s)
        return max(started_at, self.now())

    def new_id(self) -> str:
        """A new UUIDv7."""
        return uuid7(self.now(), self._random())
