"""A deterministic environment for tests: a clock that advances whenever it is read, and ids from a counter."""

from datetime import UTC, datetime, timedelta
from itertools import count

from bartack.environment import Environment

__all__ = ["counting_environment"]


def counting_environment(
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC), step: timedelta = timedelta(seconds=1)
) -> Environment:
    """The clock begins at `start` and advances by `step` each time it is read."""
    ticks, bits = count(), count(1)
    return Environment(now=lambda: start + step * next(ticks), random=lambda: next(bits))
