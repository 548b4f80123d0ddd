"""`RetryPolicy`: whether a failed model call is made again, and after which pause.

Only what may succeed unchanged is tried again: errors that their model calls retryable, or codes that the user names.
The pause grows exponentially up to a limit, less a random share of it so that many clients do not come back together;
a provider that says how long to wait is obeyed, up to a limit too, beyond which waiting is not worth it.
"""

from collections.abc import Callable

from msgspec import Struct

from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode

__all__ = ["RetryPolicy"]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How failed model calls are retried."""

    max_retries: int = 2  # after the first attempt, for each model
    base_ms: int = 500
    max_ms: int = 30_000
    jitter: float = 0.5  # the largest share of a pause that chance takes away
    max_retry_after_ms: int = 120_000  # a provider that asks for more is not waited for
    codes: frozenset[ErrorCode] | None = None  # None: what the error itself calls retryable

    def delay_ms(self, failed: Failed, attempt: int, chance: Callable[[], float]) -> int | None:
        """The pause after this attempt (the first is 1) failed; None if it was the last.

        `chance` gives numbers from 0 to 1.
        """
        may_retry = failed.retryable if self.codes is None else failed.error_code in self.codes
        if not may_retry or attempt > self.max_retries:
            return None
        if failed.retry_after_ms is not None:
            return failed.retry_after_ms if failed.retry_after_ms <= self.max_retry_after_ms else None
        pause = min(self.max_ms, self.base_ms * (1 << min(attempt - 1, 30)))
        return round(pause * (1 - self.jitter * chance()))
