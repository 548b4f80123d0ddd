"""Locks on files that SQLite does not know of: whose turn it is to write, and a guard for SQLite's own locks.

The turn. SQLite lets waiting processes poll, and one that writes all the time starves the others (one append against
two thousand). The kernel hands an `flock` on in order.

The guard. SQLite's locks are POSIX locks: they belong to the process, and closing any descriptor of the file drops them
all. Should anything in this process open and close the database by itself, another process that closes the
database then takes itself for the last one and unlinks the write-ahead log under us; everything written from then on
is gone, without an error. (Current SQLite looks for others first; the other process may have an older one.) A read lock
of an open file description on the same bytes is not dropped that way and forbids the others to take themselves for the
last. Linux has these locks; elsewhere there is no guard.
"""

import errno
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

__all__ = ["Guard", "TurnLock", "make_folder", "network_kind", "sync_folder", "write_all", "write_file"]

if sys.platform != "win32":
    import fcntl

# The bytes of a database that SQLite read-locks while a connection uses it (its file format, "shared" range).
_SHARED_FIRST = 0x40000000 + 2
_SHARED_SIZE = 510


class TurnLock:
    """An `flock` on a file of its own."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def held(self, *, shared: bool = False) -> Iterator[None]:
        """Wait for the turn, and hand it on at the end. Those who share it only wait for those who do not."""
        if sys.platform != "win32":
            fcntl.flock(self._fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        else:
            yield

    def close(self) -> None:
        os.close(self._fd)


class Guard:
    """The guard of one database file, shared by all stores of the process that have it open.

    Its descriptor must be the last thing to be closed: closing it drops SQLite's locks like any other does.
    """

    _guards: ClassVar[dict[tuple[int, int], "Guard"]] = {}
    _mutex = threading.Lock()

    def __init__(self, key: tuple[int, int], fd: int) -> None:
        self._key = key
        self._fd = fd
        self._users = 0

    @classmethod
    def of(cls, path: Path) -> "Guard":
        """The guard of this file, held until as many `release`s as there were calls of this."""
        status = path.stat()
        key = (status.st_dev, status.st_ino)
        with cls._mutex:
            guard = cls._guards.get(key)
            if guard is None:
                guard = cls._guards[key] = cls(key, os.open(path, os.O_RDONLY))
                guard._lock(shared=True)
            guard._users += 1
            return guard

    def loosen(self) -> None:
        """Before the last connections close: let SQLite tidy up if nobody else in this process uses the file."""
        with self._mutex:
            if self._users == 1:
                self._lock(shared=False)

    def release(self) -> None:
        """After the connections are closed."""
        with self._mutex:
            self._users -= 1
            if self._users == 0:
                del self._guards[self._key]
                os.close(self._fd)

    def _lock(self, *, shared: bool) -> None:
        if sys.platform != "linux":
            return
        kind = fcntl.F_RDLCK if shared else fcntl.F_UNLCK
        wish = struct.pack("hhqqi", kind, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        for pause_ms in (1, 10, 100, 1000, 0):  # another process that just closes the file has it for a moment
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, wish)
                return
            except OSError as error:
                if error.errno not in {errno.EAGAIN, errno.EACCES} or not pause_ms:
                    raise
                time.sleep(pause_ms / 1000)


_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "davfs", "sshfs"}


def network_kind(folder: Path, mounts: str | None = None) -> str | None:
    """The kind of network file system that holds this folder; None for a local one, or where nobody can tell."""
    if mounts is None:
        table = Path("/proc/self/mountinfo")
        mounts = table.read_text(encoding="utf-8", errors="surrogateescape") if table.exists() else ""
    best, kind = -1, ""
    for line in mounts.splitlines():
        mounted, _, source = line.partition(" - ")
        point = mounted.split(" ")[4].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), source.split(" ", 1)[0]
    is_network = kind in _NETWORK or (
        kind.startswith("fuse.") and any(word in kind for word in ("ssh", "gluster", "s3"))
    )
    return kind if is_network else None


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, for their owner alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        sync_folder(folder.parent)


def write_file(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, for its owner alone."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(path)
    sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; the system may take only some of them at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system lets one."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
