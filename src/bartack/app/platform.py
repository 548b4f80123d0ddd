"""What needs a POSIX system says so before it starts, instead of failing in the middle."""

import os

from bartack.app.errors import with_hint
from bartack.nouns.errors import BartackError, ErrorCode

WSL = "On Windows, work in WSL, or use 'bartack run' or 'bartack serve'."


def require_posix(what: str, hint: str = WSL) -> None:
    """Raise a `BartackError` with a hint on a system without process groups and POSIX signals."""
    if not hasattr(os, "killpg"):
        raise with_hint(BartackError(f"{what} require Linux or macOS.", code=ErrorCode.INVALID_CONFIG), hint)
