"""What every test may use: hypothesis profiles, and the folder of the recorded provider streams."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.recordings.plain import recordings_root

# The same examples on every run: a red build is the change's fault. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of the recordings; without one the test is skipped."""
    root = recordings_root()
    if not root.is_dir():
        pytest.skip(f"no recordings at {root}; WEFT_RECORDINGS names their folder")
    return root
