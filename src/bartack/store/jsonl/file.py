"""`SessionFile`: one session as a file of lines (bartack.store.jsonl.lines) and its state (bartack.store.jsonl.state).

What is remembered of a file is used only after it was compared with the disk: the bytes that were read last must still
be there, and since they contain a chained checksum, everything before them is the same too.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bartack.store.blobs import referenced, restore
from bartack.store.jsonl.lines import complete_size, read_texts
from bartack.store.jsonl.state import State, read_state
from bartack.store.session_log import SessionLog

__all__ = ["FindBlob", "SessionFile", "confirmed_size", "open_file", "read_at", "unconfirmed_size", "whole"]

FindBlob = Callable[[str], bytes | None]

_ATTEMPTS = 5
_MARK = 64  # bytes before the end that are compared: the checksum of the last line is among them


class SessionFile:
    """The file and its log in memory, for readers. They need no lock."""

    def __init__(self, path: Path, session_id: str, find_blob: FindBlob) -> None:
        self.path = path
        self.state_path = path.with_suffix(".state")
        self.state: State | None = None  # when it was last read
        self._find_blob = find_blob
        self._new_log = partial(SessionLog, session_id, find_blob)
        self._forget()

    def _forget(self) -> None:
        self.log = self._new_log()
        self._end = 0  # of what the log contains
        self._mark = b""  # the bytes before it

    def refresh(self) -> None:
        """Bring the log up to date: with what is confirmed, and before this boot also with what is complete."""
        for attempt in range(_ATTEMPTS):
            self.state = read_state(self.state_path)
            with open_file(self.path, os.O_RDONLY) as descriptor:
                if descriptor is None:
                    self._forget()
                    return
                if self._read(descriptor):
                    return
            time.sleep(attempt / 1000)  # a writer is replacing the file; or it is damaged

    def _read(self, descriptor: int) -> bool:
        """Whether the file and its state belong together."""
        size, state = self._checked_size(descriptor), self.state
        if state is None or not state.is_current:
            self._take(descriptor, size)
            return read_state(self.state_path) == state  # otherwise a writer has begun
        self._take(descriptor, size)
        return self.log.checksum.hex() == state.checksum

    def _checked_size(self, descriptor: int) -> int:
        """The size of the file. The log is forgotten if it is not that of this file."""
        size = os.fstat(descriptor).st_size
        if self._end > size or read_at(descriptor, self._end - len(self._mark), self._end) != self._mark:
            self._forget()
        return size

    def _take(self, descriptor: int, size: int) -> int:
        """Add what follows the log: all lines that are confirmed, and of the others those that count.

        Returns the size of what is confirmed.
        """
        confirmed = confirmed_size(descriptor, size, self.state)
        if confirmed < self._end and self.state is not None and self.state.is_current:
            self._forget()
        self._add(read_at(descriptor, self._end, confirmed))
        is_confirmed = self.state is not None and self._end == confirmed
        previous = bytes.fromhex(self.state.checksum) if self.state and is_confirmed else self.log.checksum
        rest = read_at(descriptor, self._end, size)
        self._add(rest[: unconfirmed_size(rest, self.state, previous, self._find_blob)])
        return confirmed

    def _add(self, data: bytes) -> None:
        if data:
            self.log.add_lines(*read_texts(data), data)
            self._advance(data)

    def _advance(self, data: bytes) -> None:
        self._end += len(data)
        self._mark = (self._mark + data[-_MARK:])[-_MARK:]


def confirmed_size(descriptor: int, size: int, state: State | None) -> int:
    """How much of the file the state confirms: up to the line that has its checksum.

    If the file was edited, that is not the recorded size.
    """
    if state is None or not state.size:
        return 0
    mark = f'"{state.checksum}"}}'.encode()
    if read_at(descriptor, state.size - len(mark) - 1, state.size - 1) == mark:
        return min(size, state.size)
    data = read_at(descriptor, 0, size)
    found = data.rfind(mark)
    if found < 0:
        return min(size, state.size)
    return data.find(b"\n", found) + 1 or size


def unconfirmed_size(data: bytes, state: State | None, previous: bytes, find_blob: FindBlob) -> int:
    """How much of what the state does not confirm counts. `previous` is the checksum before it."""
    if not data or (state is not None and state.is_current):
        return 0
    return complete_size(data, previous, lambda text: whole(text, find_blob))


def whole(text: bytes, find_blob: FindBlob) -> bytes | None:
    """A stored text with its blobs in place; None if one is lost."""
    is_lost = any(find_blob(name) is None for name in referenced(text))
    return None if is_lost else restore(text, find_blob)


@contextmanager
def open_file(path: Path, flags: int) -> Iterator[int | None]:
    """A descriptor of the file; None if it does not exist. Raises `OSError` for anything but a regular file."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)  # a pipe would block
    except FileNotFoundError:
        yield None
        return
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, start: int, end: int) -> bytes:
    """The bytes between two offsets; fewer if the file ends before."""
    parts: list[bytes] = []
    while start < end and (part := os.pread(descriptor, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
