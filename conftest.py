"""Shared by the tests of all packages: Hypothesis profiles, the number of workers, and the folder of recorded streams.

Importing `lab` sets the import path of processes that tests start, so that they find what tests share.
"""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

import lab  # noqa: F401 - sets PYTHONPATH
from tests.recordings.plain import recordings_root

# The same examples on every run, so that a red build is caused by the change. HYPOTHESIS_PROFILE=explore looks for new
# ones; quick is for the runs under other Pythons.
settings.register_profile("ci", deadline=None, max_examples=20, derandomize=True, print_blob=True)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=4)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Background jobs of a shell ignore SIGINT, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers per core for `-n auto`: many tests wait for a terminal, another process or a server."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and all modules stay until the end: the garbage collector need not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of the recordings; without one the test is skipped."""
    root = recordings_root()
    if not root.is_dir():
        pytest.skip(f"no recordings at {root}; set BARTACK_RECORDINGS to their folder")
    return root
