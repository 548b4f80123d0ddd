"""`run_async`: runs a coroutine on uvloop if it is installed (extra ``cli``), otherwise on asyncio.

A live answer arrives in hundreds of small pieces, and most of what each costs is waking up the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

__all__ = ["loop_factory", "run_async"]

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
