"""`Watchdog`: notices from outside that the event loop of a worker is blocked, and by what.

One call that blocks (a `time.sleep` or a synchronous request in an async tool or in a model) stops everything in its
loop: all runs, and the renewal of all leases, so others take the runs over while this process looks alive and does
nothing. Nothing inside the loop can notice that. A thread can: the loop ticks regularly, and if the ticks stay away,
the thread logs the stack of the loop's thread, which names the line that blocks. After a limit it ends the process, so
that a service manager starts another one; nothing is lost, because everything that was acknowledged is stored.

The thread also looks at its own clock. If it was not woken in time itself, the whole process was stopped or the machine
is overloaded, and the loop gets as much time again.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType

__all__ = ["BLOCKED_EXIT", "BLOCKED_S", "Watchdog"]

BLOCKED_S = 5.0
"""How long the loop may be blocked before that is logged; a little less than a lease lasts."""
BLOCKED_EXIT = 75
"""The exit status of a process that was blocked for too long: EX_TEMPFAIL, try again."""
_FRAMES = 30
_log = logging.getLogger("bartack_server.watchdog")


class Watchdog:
    """Watches the running event loop while its block runs."""

    def __init__(
        self,
        *,
        blocked_s: float = BLOCKED_S,
        exit_s: float | None = None,
        live: Callable[[], Iterable[str]] = tuple,
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        """`exit_s` is how long the loop may be blocked before the process ends; None: it never does. `live` returns
        the sessions to name in the log."""
        self._blocked_s = blocked_s
        self._exit_s = exit_s
        self._live = live
        self._end_process = end_process
        self._interval_s = min(blocked_s, exit_s or blocked_s) / 5
        self._ticked_at = 0.0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = 0

    def __enter__(self) -> "Watchdog":
        self._loop_thread = threading.get_ident()
        self._tick(asyncio.get_running_loop())
        threading.Thread(target=self._watch, name="bartack-watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked_at = time.monotonic()
        self._timer = loop.call_later(self._interval_s, self._tick, loop)

    def _watch(self) -> None:
        looked_at = time.monotonic()
        reported_at: float | None = None  # the tick after which the loop was reported as blocked
        while not self._stopped.wait(self._interval_s):
            current = time.monotonic()
            if current - looked_at > 3 * self._interval_s:
                self._ticked_at = current
            looked_at, ticked_at = current, self._ticked_at
            blocked_s = current - ticked_at
            is_over = self._exit_s is not None and blocked_s >= self._exit_s
            if (is_over or blocked_s >= self._blocked_s) and reported_at != ticked_at:
                reported_at = ticked_at
                self._report(blocked_s)
            if is_over:
                _log.critical("The event loop has been blocked for %.0f s; this process ends.", blocked_s)
                self._end_process(BLOCKED_EXIT)
                return

    def _report(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        stack = "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:]).rstrip()
        sessions: list[str] = []
        with suppress(RuntimeError):  # a set that changes meanwhile: the loop is not blocked any more
            sessions = sorted(self._live())
        _log.error(
            "The event loop has been blocked for %.1f s, and no lease is renewed (live sessions: %s). "
            "Something that is not async was called here; use asyncio.to_thread for it:\n%s",
            blocked_s,
            ", ".join(map(repr, sessions)) or "none",
            stack,
        )
