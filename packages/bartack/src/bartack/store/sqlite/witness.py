"""`Witness`: a note outside the database of how often the store was written to.

An older write-ahead log beside a newer database, a damaged frame in the log, or a restored copy of the file leaves a
store that is consistent, with entries missing that were acknowledged. Nothing inside the database shows that. So each
transaction counts itself in the table `store`, and once it is durable the count is noted in the lock file. A crash in
between leaves a note that lags behind, never one that leads: a database that is behind its note was rolled back.

The note names the store it belongs to, and every backup is a store of its own. If the file is another store than the
one in the note, a backup or another store was put in its place, and what was written since the backup is missing. A new
store clears the note that a deleted one has left. The note is not synced: after a power loss it may lag further.
"""

import os
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from bartack.store.checksums import seal, unseal

__all__ = ["Witness", "clear_note", "count_commit"]

_SIZE = 192  # bytes: always the same, so that one write replaces the note


class _WitnessNote(msgspec.Struct, frozen=True):
    store: str
    commits: int


_NOTE = msgspec.json.Decoder(_WitnessNote)  # not made on first use: stores are opened in several threads at once


class Witness:
    """The note in the lock file of a database."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-lock")
        self._fd: int | None = None

    def write(self, store: str, commits: int) -> None:
        """Note the count of this store. The caller holds the write lock, and everything is durable."""
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        note = seal(msgspec.json.encode(_WitnessNote(store, commits)))
        with suppress(OSError):  # a note may lag, for example because the disk is full
            os.lseek(self._fd, 0, os.SEEK_SET)  # Windows has no pwrite; the caller holds the lock
            os.write(self._fd, note.ljust(_SIZE - 1) + b"\n")

    def damage(self, connection: apsw.Connection) -> str | None:
        """What the note shows about the database: that it was rolled back, or that the note itself is damaged."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        if not data:
            return None
        text = unseal(data.rstrip(b" \n"))
        if len(data) != _SIZE or text is None:
            return f"{self._path} is damaged: whether the database was rolled back cannot be checked"
        noted = _NOTE.decode(text)
        rows = connection.execute("SELECT hex(id), commits FROM store").fetchall()
        store, commits = rows[0] if len(rows) == 1 else (None, None)
        if not isinstance(commits, int):
            return "the table store is damaged: whether the database was rolled back cannot be checked"
        if store != noted.store:
            return (
                "the file is not the store that was here before: a backup of it, or another store, was put in its "
                "place, and what was written since may be missing"
            )
        if commits >= noted.commits:
            return None
        return (
            f"the database was rolled back: it contains {commits} transactions, but {noted.commits} were acknowledged. "
            "An older copy of the file or of its write-ahead log may have been put in place, or the log is damaged"
        )

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


def clear_note(path: Path) -> None:
    """Forget what was noted about the store at this path. The caller holds the write lock."""
    with suppress(FileNotFoundError):
        os.truncate(path.with_name(path.name + "-lock"), 0)


def count_commit(connection: apsw.Connection) -> tuple[str, int]:
    """Count the transaction that is open. Returns the id of the store, and how many there are now."""
    store, commits = connection.execute("UPDATE store SET commits = commits + 1 RETURNING hex(id), commits").get
    return store, commits
