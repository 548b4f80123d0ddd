"""`SessionFile`: one session as a file of lines (bartack.store.jsonl.lines) and its state (bartack.store.jsonl.state);
and `WritableFile`, which appends to it.

Reading. What is remembered of a file is used only after it was compared with the disk: the bytes that were read last
must still be there, and since they contain a chained checksum, everything before them is the same too.

Writing. The caller holds the folder's lock. The order of an append is: the lines, a sync, the state. Only then is it
acknowledged. Before it appends, a writer deals with what the state does not confirm. If that was written since the
machine was started, it is an append that failed or was killed, and is moved to a separate file (``.torn-1``,
``.torn-2``, ...). Otherwise the state may be older than the file: complete appends are synced and confirmed, and only
the torn rest is moved. Confirmed bytes are never moved, even if they are damaged.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.append import Batch, Row
from bartack.store.blobs import referenced, restore_blobs
from bartack.store.errors import invalid_value_error
from bartack.store.files import sync_folder, write_all, write_file
from bartack.store.index import model_key, totals_of
from bartack.store.jsonl.lines import complete_size, join, read_texts
from bartack.store.jsonl.state import SessionSummary, State, boot_id, read_state, summary_of, write_state
from bartack.store.memory import SessionLog
from bartack.store.session_store import Lease

__all__ = [
    "MARK_SIZE",
    "FindBlob",
    "SessionFile",
    "WritableFile",
    "confirmed_size",
    "open_file",
    "read_at",
    "unconfirmed_size",
    "whole",
]

FindBlob = Callable[[str], bytes | None]

_ATTEMPTS = 5
MARK_SIZE = 64  # bytes before the end that are compared: the checksum of the last line is among them


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
        self._end = 0  # the log contains the file up to here
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
        unconfirmed = read_at(descriptor, self._end, size)
        self._add(unconfirmed[: unconfirmed_size(unconfirmed, self.state, previous, self._find_blob)])
        return confirmed

    def _add(self, data: bytes) -> None:
        if data:
            self.log.add_lines(*read_texts(data), data)
            self._advance(data)

    def _advance(self, data: bytes) -> None:
        self._end += len(data)
        self._mark = (self._mark + data[-MARK_SIZE:])[-MARK_SIZE:]


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
    position = data.rfind(mark)
    if position < 0:
        return min(size, state.size)
    return data.find(b"\n", position) + 1 or size


def unconfirmed_size(data: bytes, state: State | None, previous: bytes, find_blob: FindBlob) -> int:
    """How much of what the state does not confirm counts. `previous` is the checksum before it."""
    if not data or (state is not None and state.is_current):
        return 0
    return complete_size(data, previous, lambda text: whole(text, find_blob))


def whole(text: bytes, find_blob: FindBlob) -> bytes | None:
    """A stored text with its blobs in place; None if one is lost."""
    is_lost = any(find_blob(name) is None for name in referenced(text))
    return None if is_lost else restore_blobs(text, find_blob)


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


_OWNER_LIMIT = 1024  # bytes; a state has a fixed size


class WritableFile(SessionFile):
    """The file and its log, which may be ahead of the disk until `flush`."""

    def _forget(self) -> None:
        super()._forget()
        self._pending: list[bytes] = []
        self._summary: SessionSummary | None = None  # the summary of the log

    def recover(self) -> None:
        """Bring the log up to date, and confirm or set aside what the state does not confirm."""
        self.state = read_state(self.state_path, is_locked=True)
        with open_file(self.path, os.O_RDWR) as descriptor:
            if descriptor is None:
                self.state = None
                self._forget()
                return
            size = self._checked_size(descriptor)
            end = self._end
            confirmed = self._take(descriptor, size)
            if end != self._end:
                self._summary = None
            if size > confirmed:
                self._confirm(descriptor, confirmed, size)
        if self.state is not None and self.state.size == self._end:
            self.log.checksum = bytes.fromhex(self.state.checksum)
            self._summary = self.state.summary or self._summary
        self.log.lease = None if self.state is None else self.state.lease

    def repair(self) -> None:
        """Complete the last line, and accept that what the state confirms beyond it is lost."""
        if self._mark and not self._mark.endswith(b"\n"):
            self._append(b"")
        self._write_state()

    def check_complete(self) -> None:
        """Raise `StoreError` if entries that are confirmed are lost."""
        if self.state is None or self.state.size <= self._end or self.log.checksum.hex() == self.state.checksum:
            return
        raise StoreError(
            f"The end of {self.path}, up to seq {self.state.seq}, is lost. Restore a backup of the file, or accept the "
            "loss with 'bartack sessions fsck --repair'.",
            code=ErrorCode.STORAGE_CORRUPT,
        )

    def _confirm(self, descriptor: int, confirmed: int, size: int) -> None:
        """Make what follows the confirmed bytes durable, and set aside what does not count."""
        if self._end > confirmed:  # written again, because an earlier sync may have failed
            os.lseek(descriptor, confirmed, os.SEEK_SET)
            write_all(descriptor, read_at(descriptor, confirmed, self._end))
        if size > self._end:
            numbered = (self.path.with_name(f"{self.path.stem}.torn-{number}") for number in count(1))
            unused = next(path for path in numbered if not path.exists())
            write_file(unused, read_at(descriptor, self._end, size))
            os.ftruncate(descriptor, self._end)
        os.fsync(descriptor)
        self.log.lease = None if self.state is None else self.state.lease
        self._write_state()

    def add(self, batch: Batch, rows: Sequence[Row]) -> None:
        """Add an append that passed `check_append`; `flush` writes it."""
        self.log.add(rows)
        if self._summary is not None:
            is_title_new = any(row.title is not None or row.redacts is not None for row in rows)
            title = self.log.title if is_title_new else self._summary.info.title
            self._summary = _summary_after(self._summary, title, batch, rows)
        self._pending.append(join(rows))

    def set_lease(self, lease: Lease) -> None:
        """Set the lease; `flush` writes it."""
        if len(lease.owner.encode()) > _OWNER_LIMIT:
            raise invalid_value_error(f"The name of the lease owner is too long: {lease.owner[:40]!r}...")
        self.log.lease = lease

    def flush(self) -> None:
        """Write what was added and sync it, then write the state. After an error, the outcome is unknown."""
        data = b"".join(self._pending)
        self._pending.clear()
        try:
            if data:
                self._mark_writing()
                self._append(data)
            self._write_state()
        except (OSError, StoreError):
            self._forget()
            raise

    def stage(self) -> None:
        """Write what was added and sync it, but do not confirm it."""
        data = b"".join(self._pending)
        self._pending.clear()
        if data:
            self._mark_writing()
            self._append(data)

    @property
    def written_size(self) -> int:
        """How much of the file exists and counts, once it was recovered."""
        return self._end

    @property
    def pending_size(self) -> int:
        """How many bytes were added and are not written yet."""
        return sum(map(len, self._pending))

    def _mark_writing(self) -> None:
        """Readers must see that a write is in progress."""
        if self.state is None or not self.state.is_current:
            self.state = replace(self.state or State(boot=""), boot=boot_id())
            write_state(self.state_path, self.state)

    def _append(self, data: bytes) -> None:
        if self._mark and not self._mark.endswith(b"\n"):
            data = b"\n" + data
        with open_file(self.path, os.O_RDWR | os.O_CREAT) as descriptor:
            assert descriptor is not None  # it was created
            status = os.fstat(descriptor)
            if status.st_size != self._end:
                raise StoreError(f"{self.path} was changed by a program that does not use the store's lock.")
            os.lseek(descriptor, self._end, os.SEEK_SET)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):  # then it stays unconfirmed, and the next writer sets it aside
                    os.ftruncate(descriptor, self._end)
                    os.fsync(descriptor)
                raise
            if not self._end:
                sync_folder(self.path.parent)
            if not os.path.samestat(status, self.path.stat()):
                raise StoreError(f"{self.path} was renamed or replaced while it was written.")
        self._advance(data)

    def _write_state(self) -> None:
        self.state = self.confirming_state()
        write_state(self.state_path, self.state)

    def confirming_state(self) -> State:
        """The state that confirms everything that was written."""
        if self._summary is None and self.log:
            self._summary = summary_of(self.log)
        return State(
            boot=boot_id(),
            size=self._end,
            seq=self.log.tail.seq if self.log else 0,
            checksum=self.log.checksum.hex(),
            lease=self.log.lease,
            summary=self._summary,
        )


def _summary_after(summary: SessionSummary, title: str | None, batch: Batch, rows: Sequence[Row]) -> SessionSummary:
    """The summary of the session with these rows."""
    spends = [(model_key(usage.model), usage.spend) for usage in summary.models]
    spends += [(model_key(row.spend.model), row.spend.spend) for row in rows if row.spend is not None]
    totals = totals_of(spends)
    info = replace(
        summary.info,
        title=title,
        updated=datetime.fromisoformat(batch.updated),
        entries=summary.info.entries + len(rows),
        tail=batch.tail,
        spend=totals.spend,
    )
    return SessionSummary(info, totals.models)
