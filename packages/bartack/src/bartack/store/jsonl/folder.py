"""The folder of a JSONL store: its lock, the names of its files, and the version of its layout.

The lock is an `flock` on the folder itself, because a lock file can be deleted, and then two processes each hold a lock
of their own. If the folder was replaced meanwhile, the lock is taken on the one that is there now.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.checksums import seal, unseal
from bartack.store.errors import newer_schema_error
from bartack.store.files import write_file

if sys.platform != "win32":
    import fcntl

__all__ = ["VERSION_FILE", "Folder", "refuse_windows"]

VERSION = 1  # the version of the folder's layout
VERSION_FILE = "bartack-store.json"


class Folder:
    """The files of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file_of(self, session_id: str) -> Path:
        """The session's file; its state and torn bytes have other suffixes."""
        name = quote(session_id, safe="").replace(".", "%2E")  # the first dot starts the suffix
        return self.path / f"{name}.jsonl"

    def session_ids(self, suffix: str = ".jsonl") -> list[str]:
        """The sessions that have a file with this suffix, whatever is in it."""
        with os.scandir(self.path) as entries:
            return sorted(unquote(entry.name.removesuffix(suffix)) for entry in entries if entry.name.endswith(suffix))

    def blob_path(self, name: str) -> Path:
        return self.path / "blobs" / name

    def find_blob(self, name: str) -> bytes | None:
        """The blob; None if it is lost."""
        try:
            return self.blob_path(name).read_bytes()
        except OSError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other writers out."""
        descriptor = self._lock()
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def locked_if_free(self) -> Iterator[bool]:
        """Keep all other writers out, unless one is at work; yields whether that is so."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            is_locked = False
        try:
            yield is_locked
        finally:
            os.close(descriptor)

    def _lock(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    # -- the version

    def check_version(self) -> None:
        """Raise `StoreError` for a folder that a newer version has written; write the version into a new one."""
        if self._version_text() is None:
            with self.locked():
                self.write_version()
        self.check_readable()

    def check_readable(self) -> None:
        """Raise `StoreError` for a folder that is not a store, or that a newer version has written."""
        text = self._version_text()
        if text is None:
            raise StoreError(f"There is no store in {self.path}.", code=ErrorCode.INVALID_CONFIG)
        if (version := _version(text)) is not None and version > VERSION:
            raise newer_schema_error(self.path, version, VERSION)

    def write_version(self) -> None:
        write_file(self.path / VERSION_FILE, seal(msgspec.json.encode({"schemaVersion": VERSION})))

    def has_damaged_version(self) -> bool:
        text = self._version_text()
        return text is not None and _version(text) is None

    def _version_text(self) -> bytes | None:
        try:
            return (self.path / VERSION_FILE).read_bytes()
        except FileNotFoundError:
            return None


def _version(text: bytes) -> int | None:
    """The version in the file; None if it is damaged."""
    try:
        return msgspec.json.decode(unseal(text) or text, type=dict[str, int])["schemaVersion"]
    except (ValueError, KeyError):  # a seal that does not match ends here, too: a checksum is not a number
        return None


def refuse_windows(path: Path) -> None:
    """Raise `StoreError` on a system without `flock`."""
    if sys.platform == "win32":
        raise StoreError(f"{path}: JSONL stores need a POSIX system. Use SQLite.", code=ErrorCode.STORAGE_UNSUPPORTED)
