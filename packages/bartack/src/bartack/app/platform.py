"""Checks of what commands need from the system, with clear errors: POSIX, and a current directory."""

import os
from pathlib import Path

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
