"""`WritableFile`: appending to a session file. The caller holds the folder's lock.

Before it appends, a writer deals with what the state does not confirm. If that was written since the machine was
started, it is an append that failed or was killed, and is moved to a separate file (``.torn-1``, ``.torn-2``, ...).
Otherwise the state may be older than the file: complete appends are synced and confirmed, and only the torn rest is
moved. Confirmed bytes are never moved, even if they are damaged.

The order of an append: the lines, a sync, the state. Only then is it acknowledged.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.append import Batch, Row
from bartack.store.errors import invalid
from bartack.store.files import sync_folder, write_all, write_file
from bartack.store.index import model_key, totals_of
from bartack.store.jsonl.file import SessionFile, open_file, read_at
from bartack.store.jsonl.lines import join
from bartack.store.jsonl.state import State, Summary, boot_id, read_state, summary_of, write_state
from bartack.store.session_store import Lease

__all__ = ["WritableFile"]

_OWNER_LIMIT = 1024  # bytes; a state has a fixed size


class WritableFile(SessionFile):
    """The file and its log, which may be ahead of the disk until `flush`."""

    def _forget(self) -> None:
        super()._forget()
        self._pending: list[bytes] = []
        self._summary: Summary | None = None  # of the log

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
            number = 1 + sum(1 for _ in self.path.parent.glob(f"{self.path.stem}.torn-*"))
            write_file(self.path.with_name(f"{self.path.stem}.torn-{number}"), read_at(descriptor, self._end, size))
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
            raise invalid(f"The name of the lease owner is too long: {lease.owner[:40]!r}...")
        self.log.lease = lease

    def flush(self) -> None:
        """Write what was added and sync it, then write the state. After an error, the outcome is unknown."""
        data = b"".join(self._pending)
        self._pending.clear()
        try:
            if data:
                if self.state is None or not self.state.is_current:  # readers must see that a write is in progress
                    write_state(self.state_path, replace(self.state or State(boot=""), boot=boot_id()))
                self._append(data)
            self._write_state()
        except (OSError, StoreError):
            self._forget()
            raise

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
        if self._summary is None and self.log:
            self._summary = summary_of(self.log)
        self.state = State(
            boot=boot_id(),
            size=self._end,
            seq=self.log.tail.seq if self.log else 0,
            checksum=self.log.checksum.hex(),
            lease=self.log.lease,
            summary=self._summary,
        )
        write_state(self.state_path, self.state)


def _summary_after(summary: Summary, title: str | None, batch: Batch, rows: Sequence[Row]) -> Summary:
    """The summary of the session with these rows."""
    spends = [(model_key(each.model), each.spend) for each in summary.models]
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
    return Summary(info, totals.models)
