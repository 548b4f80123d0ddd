"""One session as a file of lines, and how an incomplete append at its end is recognised.

A line is the canonical JSON of an entry. An append of several entries is several lines, all but the last of which end
in a space: JSON readers ignore it, and it marks that the append continues. So an append is complete when its last line
is, and a crash in the middle of one leaves nothing half-written to be seen.

Bytes after the last complete append are torn. They are not read, and the next append first moves them to a separate
file (``.torn-1``, ``.torn-2``, ...).
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bartack.store.append import Row
from bartack.store.entries import envelope_of
from bartack.store.files import sync_folder, write_all, write_file
from bartack.store.session_log import SessionLog

__all__ = ["SessionFile"]


class SessionFile:
    """The file and its log in memory. The caller holds the folder's lock."""

    def __init__(self, path: Path, session_id: str, read_blob: Callable[[str], bytes]) -> None:
        self.path = path
        self._new_log = partial(SessionLog, session_id, read_blob)
        self.log = self._new_log()
        self.torn = b""
        self._pending: list[bytes] = []
        self._end = 0  # of the last complete append
        self._inode: int | None = None
        self._is_suspect = False  # a write failed, and the bytes it left after `_end` could not be removed

    def refresh(self) -> None:
        """Read what other processes appended."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._forget()
            return
        if status.st_ino != self._inode or status.st_size < self._end:
            self._forget()
            self._inode = status.st_ino
        if status.st_size > self._end + len(self.torn) and not self._is_suspect:
            with self.path.open("rb") as file:
                file.seek(self._end)
                self._take(file.read())

    def _forget(self) -> None:
        self.log, self.torn, self._end, self._inode = self._new_log(), b"", 0, None
        self._is_suspect = False

    def _take(self, data: bytes) -> None:
        texts, self.torn = split(data)
        whole = len(data) - len(self.torn)
        self.log.add_lines(texts, data[:whole])
        self._end += whole

    def add(self, rows: Sequence[Row]) -> None:
        """Add an append that passed `check_append`; `flush` writes it."""
        self.log.add(rows)
        self._pending.append(b" \n".join(row.text for row in rows) + b"\n")

    def flush(self) -> None:
        """Write everything that was added, and sync it. After an `OSError` none of it is stored."""
        data = b"".join(self._pending)
        self._pending.clear()
        is_new = not self.path.exists()
        try:
            self.move_torn_bytes()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._write(descriptor, data)
                self._inode = os.fstat(descriptor).st_ino
            finally:
                os.close(descriptor)
            if is_new:
                sync_folder(self.path.parent)
        except OSError:
            self._reread()
            raise
        self._end += len(data)

    def _reread(self) -> None:
        """Restore the log to before the appends that failed."""
        self.log = self._new_log()
        if self._end:
            with self.path.open("rb") as file:
                data = file.read(self._end)
            self.log.add_lines(split(data)[0], data)

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            # Remove what was written: after a failed sync, a later one may report success without having stored it.
            self._is_suspect = True
            os.ftruncate(descriptor, self._end)
            os.fsync(descriptor)
            self._is_suspect = False
            raise

    def move_torn_bytes(self) -> None:
        """Move what follows the last complete append to a separate file."""
        if self._is_suspect:
            self._truncate()
            self._is_suspect = False
        if self.torn:
            number = 1 + sum(1 for _ in self.path.parent.glob(f"{self.path.stem}.torn-*"))
            write_file(self.path.with_name(f"{self.path.stem}.torn-{number}"), self.torn)
            self._truncate()
            self.torn = b""

    def _truncate(self) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, self._end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The lines of the complete appends, and the torn rest."""
    lines = data.split(b"\n")
    torn = [lines.pop()]
    while lines and lines[-1].endswith(b" "):  # an append without its last line
        torn.append(lines.pop())
    start = len(lines) - 1  # of the last complete append
    while start > 0 and lines[start - 1].endswith(b" "):
        start -= 1
    if torn == [b""] and any(envelope_of(line) is None for line in lines[start:]):
        # After a power loss a file may have its full length but not its last content.
        torn += reversed(lines[start:])
        del lines[start:]
    texts = [line.removesuffix(b" ") for line in lines]
    return texts, b"\n".join(reversed(torn))
