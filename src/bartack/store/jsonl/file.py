"""One session as a file of lines, and how a torn end is told from a whole one.

A line is the canonical JSON of an entry. An append of several entries is several lines of which all but the last end in
a space: to a JSON reader it means nothing, and it says that the append goes on. So an append is whole when its last
line is, and a crash in the middle of it leaves nothing half-written to be seen.

Bytes after the last whole append are torn. They are not read, and the next append first puts them into a file of their
own beside this one (``.torn-1``, ``.torn-2``, ...).
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bartack.store.append import Row
from bartack.store.entries import peek
from bartack.store.files import sync_folder, write_all, write_file
from bartack.store.session_log import Log

__all__ = ["SessionFile"]


class SessionFile:
    """The file, and the log that was read from it. Whoever calls holds the folder's lock."""

    def __init__(self, path: Path, session_id: str, body_of: Callable[[str], bytes]) -> None:
        self.path = path
        self._new_log = partial(Log, session_id, body_of)
        self.log = self._new_log()
        self.torn = b""
        self._waiting: list[bytes] = []
        self._end = 0  # of the last whole append
        self._inode: int | None = None
        self._is_suspect = False  # a write failed, and what it left behind `_end` could not be cut off

    def refresh(self) -> None:
        """Read what others appended."""
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
        self.log.add_texts(texts, data[:whole])
        self._end += whole

    def add(self, rows: tuple[Row, ...]) -> None:
        """An append that was admitted; `flush` writes it."""
        for row in rows:
            self.log.add(row)
        self._waiting.append(b" \n".join(row.text for row in rows) + b"\n")

    def flush(self) -> None:
        """Everything that was added, on the disk; after an `OSError` none of it is there."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        is_new = not self.path.exists()
        try:
            self.put_torn_aside()
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
        """The log as it was before the appends that failed."""
        self.log = self._new_log()
        if self._end:
            with self.path.open("rb") as file:
                data = file.read(self._end)
            self.log.add_texts(split(data)[0], data)

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            # Whatever was written goes again: a sync that failed once may later report a success that is none.
            self._is_suspect = True
            os.ftruncate(descriptor, self._end)
            os.fsync(descriptor)
            self._is_suspect = False
            raise

    def put_torn_aside(self) -> None:
        """Move what follows the last whole append into a file of its own."""
        if self._is_suspect:
            self._cut()
            self._is_suspect = False
        if self.torn:
            number = 1 + sum(1 for _ in self.path.parent.glob(f"{self.path.stem}.torn-*"))
            write_file(self.path.with_name(f"{self.path.stem}.torn-{number}"), self.torn)
            self._cut()
            self.torn = b""

    def _cut(self) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, self._end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The lines of the whole appends, and the torn rest."""
    lines = data.split(b"\n")
    torn = [lines.pop()]
    while lines and lines[-1].endswith(b" "):  # an append without its last line
        torn.append(lines.pop())
    start = len(lines) - 1  # of the last whole append
    while start > 0 and lines[start - 1].endswith(b" "):
        start -= 1
    if torn == [b""] and any(peek(line) is None for line in lines[start:]):
        # After a loss of power the end of a file may be there in length and not in content.
        torn += reversed(lines[start:])
        del lines[start:]
    texts = [line.removesuffix(b" ") for line in lines]
    return texts, b"\n".join(reversed(torn))
