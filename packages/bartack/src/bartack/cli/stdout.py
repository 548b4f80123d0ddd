"""stdout that reports precisely when it can no longer be written to: the disk is full, or the reader of a pipe went
away. Other errors of the system stay as they are.
"""

import io
import os
import sys
from typing import Any

PIPE_CLOSED = 128 + 13  # the status that shells give a program ended by SIGPIPE


class OutputClosed(OSError):
    """stdout can no longer be written to; the cause is the system's error."""

    @property
    def is_pipe(self) -> bool:
        """Whether the reader of a pipe went away, which is not an error."""
        return isinstance(self.__cause__, BrokenPipeError)

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        return getattr(self.__cause__, "strerror", None) or str(self.__cause__)


def guard_stdout() -> None:
    """Let every write to `sys.stdout` that fails raise `OutputClosed`."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    buffer: Any = sys.stdout.buffer
    if type(getattr(buffer, "raw", buffer)) is io.FileIO:  # not a console of Windows
        guarded: Any = _GuardedFile(sys.stdout.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            guarded if buffer is getattr(buffer, "raw", buffer) else io.BufferedWriter(guarded),  # see python -u
            encoding=sys.stdout.encoding,
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    sys.stdout.reconfigure(errors="replace")  # a character its encoding lacks must not be fatal


class _GuardedFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data) if data else 0  # typer tries an empty one, and ignores its error
        except OSError as error:
            # What is still buffered is lost, but the interpreter must be able to flush it when it exits.
            with open(os.devnull, "wb") as devnull:  # noqa: PTH123 - not a path of the file system
                os.dup2(devnull.fileno(), self.fileno())
            raise OutputClosed from error
