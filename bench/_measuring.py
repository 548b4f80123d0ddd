"""What the benchmarks share: the best CPU time of several rounds, and servers in processes of their own."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


def cpu_s(work: Callable[[], object]) -> float:
    """The CPU time of this process for a piece of work. It is largely independent of other load and of the disk."""
    start = time.process_time()
    work()
    return time.process_time() - start


def best_cpu_us(work: Callable[[], object], count: int, rounds: int) -> float:
    """Microseconds of CPU for each of `count` items: the best of several rounds, because the others were disturbed."""
    return min(cpu_s(work) for _ in range(rounds)) / count * 1e6


@contextmanager
def server_process(serve: Callable[[Connection], None]) -> Iterator[Any]:
    """Run a server in another process, so that its CPU is not counted; what it sends through the pipe once it is ready.

    `serve` is a function of a module, and never returns.
    """
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=serve, args=(far,), daemon=True)
    process.start()
    try:
        yield near.recv()
    finally:
        process.terminate()
        process.join()
