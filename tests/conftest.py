"""What every test may use: hypothesis profiles, and the folder of the recorded provider streams."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.recordings.plain import recordings_root

# The same examples on every run: a red build is the change's fault. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The background jobs of a shell ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of the recordings; without one the test is skipped."""
    root = recordings_root()
    if not root.is_dir():
        pytest.skip(f"no recordings at {root}; BARTACK_RECORDINGS names their folder")
    return root
