"""Files that survive a power loss, and the locks that keep processes apart.

Durability. A file's name is durable once the folder that contains it is synced.

Write lock. SQLite has waiting processes poll, so one that writes all the time starves the others (1 append against
2,000 in a measurement). The kernel passes an `flock` on in order.

Guard. SQLite uses POSIX locks. They belong to the process, and closing any descriptor of the file releases them all. If
anything in this process opens and closes the database file directly, another process that closes the database believes
it is the last user and deletes the write-ahead log; everything written from then on is lost without an error. (Current
versions of SQLite check first, but the other process may have an older one.) An open file description lock on the same
bytes is not released that way and stops the other process from deleting the log. Linux and macOS have these locks; a
store is not opened where the system refuses one. On Windows, SQLite's locks belong to the handle, which needs no guard.
"""

import errno
import os
import re
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, ClassVar

if sys.platform != "win32":
    import fcntl
else:
    import msvcrt

from bartack.nouns.errors import StoreError
from bartack.store.errors import invalid_value_error, not_writable_error

__all__ = [
    "Guard",
    "Report",
    "WriteLock",
    "as_store_error",
    "ignore_progress",
    "make_folder",
    "network_kind",
    "new_file",
    "refuse_network",
    "sync_folder",
    "write_all",
    "write_file",
    "write_synced",
]

# -- errors


@contextmanager
def as_store_error(path: Path) -> Iterator[None]:
    """Turn the errors of file operations into `StoreError`. `path` is the store, for errors that name no file."""
    try:
        yield
    except UnicodeEncodeError as error:  # an id with an unpaired surrogate
        raise invalid_value_error(f"Invalid text: {error}", error) from error
    except PermissionError as error:
        raise not_writable_error(path, error) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise not_writable_error(path, error) from error
        raise StoreError(f"{error.filename or path}: {os.strerror(error.errno or 0)}", cause=error) from error


# -- durable files

# Called while a store is copied, with the steps that are done and all steps. It may raise an error, to stop the copy.
Report = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """The `Report` of a copy whose progress nobody wants to know."""


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, accessible to the owner only."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        sync_folder(folder.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, accessible to the owner only."""
    part = path.with_name(f"{path.name}.part")
    write_synced(part, data, os.O_TRUNC)
    part.replace(path)
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes, mode: int) -> None:
    """Write to a file, created for the owner only, and wait for the disk; `mode` is os.O_TRUNC or os.O_APPEND."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file that is at `path` only once it is complete and durable, accessible to the owner only."""
    if path.exists() and not overwrite:  # fail before the work; `_name_new` decides
        raise _file_exists_error(path)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            yield draft.file
            draft.flush()
            os.fsync(draft.fileno())
            if overwrite:
                Path(draft.name).replace(path)
            else:
                _name_new(Path(draft.name), path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def _name_new(draft: Path, path: Path) -> None:
    """Give a draft its name, unless another program has created such a file since the name was chosen."""
    try:
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: for a moment, others see an empty file
            path.touch(mode=0o600, exist_ok=False)
            draft.replace(path)
        else:
            draft.unlink()
    except FileExistsError:
        raise _file_exists_error(path) from None


def _file_exists_error(path: Path) -> StoreError:
    return StoreError(f"{path} already exists. Choose another file.")


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte: `os.write` may write fewer than asked for."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system supports that."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- locks

_LOCK_BYTE = 1 << 30  # beyond the content of a lock file: locks of Windows keep others from reading what they cover
_POLL_S = 0.02


class WriteLock:
    """A lock on a lock file: `flock`, or on Windows a lock on one of its bytes, where shared locks are exclusive too
    and waiting is not fair."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._waiter: _Waiter | None = None

    @contextmanager
    def held(self, *, shared: bool = False, wait_s: float | None = None) -> Iterator[None]:
        """Wait for the lock and hold it. Shared holders exclude only exclusive ones.

        Raises a retryable `StoreError` if another process holds it for longer than `wait_s`.
        """
        if sys.platform != "win32":
            if wait_s is None:
                fcntl.flock(self._fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            else:
                self._lock_within(wait_s)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        else:
            self._lock_byte(wait_s)
            try:
                yield
            finally:
                self._use_byte(locks=False)

    def _lock_byte(self, wait_s: float | None) -> None:
        """Take the lock of Windows, which has no wait of its own that would last long enough."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while True:
            try:
                self._use_byte(locks=True)
                return
            except OSError as error:
                if error.errno not in {errno.EACCES, errno.EDEADLK}:
                    raise
            if deadline is not None and time.monotonic() > deadline:
                raise self._lock_timeout_error(wait_s)
            time.sleep(_POLL_S)

    def _use_byte(self, *, locks: bool) -> None:
        if sys.platform == "win32":
            os.lseek(self._fd, _LOCK_BYTE, os.SEEK_SET)
            msvcrt.locking(self._fd, msvcrt.LK_NBLCK if locks else msvcrt.LK_UNLCK, 1)

    def _lock_timeout_error(self, wait_s: float | None) -> StoreError:
        duration = "" if wait_s is None else f" for {wait_s:g} s"
        return StoreError(
            f"{self._path}: another process has held the write lock{duration}. It may be stopped.", retryable=True
        )

    def _lock_within(self, wait_s: float) -> None:
        """Take the exclusive lock. Only the kernel's own wait is fair, and it has no time limit: a thread waits."""
        if self._waiter is None or not self._waiter.resume():
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waiter = _Waiter(self._fd)
            else:
                return
        if not self._waiter.wait(wait_s):
            raise self._lock_timeout_error(wait_s)
        self._waiter = None

    def close(self) -> None:
        os.close(self._fd)


class _Waiter:
    """A thread that waits for an exclusive `flock`. If it gets the lock when no caller waits, it releases it again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mutex = threading.Lock()
        self._is_wanted = True
        self._is_over = False
        self._granted = threading.Event()
        threading.Thread(target=self._run, name="bartack-lock-waiter", daemon=True).start()

    def _run(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:  # the store was closed meanwhile
            self._is_over = True
            return
        with self._mutex:
            self._is_over = True
            if self._is_wanted:
                self._granted.set()
            else:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def wait(self, wait_s: float) -> bool:
        """Whether the lock was granted in time; if not, the thread keeps its place in the queue."""
        self._granted.wait(wait_s)
        with self._mutex:
            self._is_wanted = self._granted.is_set()
            return self._is_wanted

    def resume(self) -> bool:
        """Want the lock again; False if the thread got it in the meantime and released it."""
        with self._mutex:
            self._is_wanted = not self._is_over
            return self._is_wanted


# The bytes of a database that SQLite read-locks while a connection uses it (the "shared" range of its file format).
_SHARED_FIRST = 0x40000000 + 2
_SHARED_SIZE = 510


class Guard:
    """The guard of one database file, shared by all stores of the process that have it open.

    Its descriptor must be closed last: closing it releases SQLite's locks like closing any other.
    """

    _guards: ClassVar[dict[tuple[int, int], "Guard"]] = {}
    _mutex = threading.Lock()

    def __init__(self, key: tuple[int, int], fd: int) -> None:
        self._key = key
        self._fd = fd
        self._users = 0

    @property
    def descriptor(self) -> int:
        """The database file, for reading. A descriptor of your own would release SQLite's locks when you close it."""
        return self._fd

    @classmethod
    def of(cls, path: Path, wait_s: float) -> "Guard":
        """The guard of this file. It is held until `release` has been called as often as this."""
        status = path.stat()
        key = (status.st_dev, status.st_ino)
        with cls._mutex:
            guard = cls._guards.get(key)
            if guard is None:
                guard = cls(key, os.open(path, os.O_RDONLY))
                try:
                    guard._lock(shared=True, wait_s=wait_s)
                except BaseException:
                    os.close(guard._fd)
                    raise
                cls._guards[key] = guard
            guard._users += 1
            return guard

    def loosen(self) -> None:
        """Call before closing the last connections: lets SQLite delete its log if the file has no other user here."""
        with self._mutex:
            if self._users == 1:
                self._lock(shared=False)

    def release(self) -> None:
        """Call after the connections are closed."""
        with self._mutex:
            self._users -= 1
            if self._users == 0:
                del self._guards[self._key]
                os.close(self._fd)

    def _lock(self, *, shared: bool, wait_s: float = 0.0) -> None:
        if sys.platform == "win32":
            return
        command, request = _lock_request(fcntl.F_RDLCK if shared else fcntl.F_UNLCK)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.fcntl(self._fd, command, request)
                return
            except OSError as error:  # a process that is opening or closing the file has it locked for a moment
                if error.errno == errno.EINVAL:
                    raise StoreError(f"{_NO_GUARD} (fcntl {command}: {error.strerror}). {_OTHER_STORES}") from error
                if error.errno not in {errno.EAGAIN, errno.EACCES} or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)


_NO_GUARD = "SQLite stores need open file description locks, which this system does not have"
_OTHER_STORES = "Use a PostgreSQL store, or one in JSON Lines files."


def _lock_request(kind: int) -> tuple[int, bytes]:
    """The command for an open file description lock, and its ``struct flock``, which each system lays out differently.

    Python does not define the command for every version of macOS.
    """
    match sys.platform:
        case "linux":
            return fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        case "darwin":
            return 90, struct.pack("qqihh", _SHARED_FIRST, _SHARED_SIZE, 0, kind, os.SEEK_SET)
        case other:
            raise StoreError(f"{_NO_GUARD} ({other}). {_OTHER_STORES}")


# -- file systems

# Locks or syncs on these do not reach other machines, or the disk: network file systems, and folders that a virtual
# machine shares with its host.
_REMOTE = {
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "9p", "afs", "kafs", "ceph", "lustre", "gpfs",
    "glusterfs", "beegfs", "orangefs", "ocfs2", "gfs2", "davfs", "sshfs", "virtiofs", "vboxsf", "vboxfs",
    "drvfs", "prl_fs", "vmhgfs", "hgfs", "grpcfuse", "osxfs", "gcsfuse", "s3fs", "acfs", "panfs", "coda",
}  # fmt: skip
# A FUSE file system may do anything with locks and syncs. These are known to pass them on to a local disk.
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.bindfs", "fuse.gocryptfs", "fuse.encfs", "fuse.mergerfs"}


def network_kind(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the network or shared file system that contains this folder; None if it is local or unknown."""
    if mounts is None:
        table = Path("/proc/self/mountinfo")
        mounts = table.read_text(encoding="utf-8", errors="surrogateescape") if table.exists() else ""
    best, kind = -1, ""
    for line in mounts.splitlines():
        mounted, _, source = line.partition(" - ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), mounted.split(" ")[4])
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), source.split(" ", 1)[0]
    is_remote = kind in _REMOTE or kind == "fuse" or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
    return kind if is_remote else None


_OCTAL = re.compile(r"\\([0-7]{3})")  # how the table writes spaces, tabs, newlines and backslashes


def refuse_network(path: Path, folder: Path) -> None:
    """Raise `StoreError` for a store at `path` if its folder is not on a local file system."""
    kind = network_kind(folder.resolve())
    if kind is not None:
        raise StoreError(
            f"{path} is on a network or shared file system ({kind}), where locks are unreliable. "
            "Use a local disk or PostgreSQL."
        )
