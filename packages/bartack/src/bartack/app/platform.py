"""What commands need from the system: POSIX and a current directory, with clear errors, and an event loop.

`run_async` uses uvloop if it is installed (extra ``cli``), otherwise asyncio: a live answer arrives in hundreds of
small pieces, and most of what each costs is waking up the event loop.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from bartack.app.errors import with_hint
from bartack.nouns.errors import BartackError, ErrorCode

WSL = "On Windows, work in WSL, or use 'bartack run' or 'bartack serve'."


def require_posix(feature: str, hint: str = WSL) -> None:
    """Raise a `BartackError` with a hint on a system without process groups and POSIX signals."""
    if not hasattr(os, "killpg"):
        raise with_hint(BartackError(f"{feature} require Linux or macOS.", code=ErrorCode.INVALID_CONFIG), hint)


def current_directory() -> Path:
    """The current directory. Raises `BartackError` with a hint if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        missing = BartackError("The current directory no longer exists.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(missing, "Change to another one, and start again.") from error


T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What creates event loops; None for those of asyncio."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory
