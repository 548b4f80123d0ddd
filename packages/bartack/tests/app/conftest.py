"""An empty home for tests of the settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.app.settings import settings_file
from bartack.models.vendors import VENDORS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home as the current directory, no keys, no settings, and no cached file."""
    for vendor in VENDORS.values():
        for name in vendor.key_names:
            monkeypatch.delenv(name, raising=False)
    for name in ("BARTACK_CONFIG", "BARTACK_MODEL", "BARTACK_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    settings_file.cache_clear()
    yield tmp_path
    settings_file.cache_clear()
