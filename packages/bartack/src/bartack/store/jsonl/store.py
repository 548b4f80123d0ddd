"""`JsonlStore`: a folder with one file of JSON lines per session (bartack.store.jsonl.file).

Blobs are in ``blobs/``, the state of each session in a file beside it. One thread writes, in groups: pending lines are
written, then each file is synced once. A lock on the folder keeps the writers of all processes apart. Readers take no
lock, and see nothing that is not durable.

A backup copies the folder while others write to it. Session files only grow, so it is enough to record, under the lock,
how much of each is confirmed; the copying happens without the lock. A session that is dropped meanwhile is left out.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns.errors import StoreError
from bartack.store.append_only import Tables, TableStore
from bartack.store.blobs import referenced
from bartack.store.errors import store_closed_error
from bartack.store.files import (
    Report,
    as_store_error,
    ignore_progress,
    make_folder,
    refuse_network,
    sync_folder,
    write_file,
)
from bartack.store.jsonl.file import MARK_SIZE, open_file, read_at, unconfirmed_size
from bartack.store.jsonl.folder import Folder, refuse_windows
from bartack.store.jsonl.importing import ImportRecord
from bartack.store.jsonl.logs import FileLogs, WritableLogs
from bartack.store.jsonl.state import State, read_state, write_state
from bartack.store.session_store import Inspection
from bartack.store.writer_thread import WriteJob, WriterThread

__all__ = ["JsonlStore", "copy_folder"]

T = TypeVar("T")


class JsonlStore(TableStore):
    """A store in a folder, opened with `JsonlStore.open`."""

    poll_s = 0.05

    def __init__(
        self, folder: Path, environment: Environment | None, *, wait_s: float = 30.0, read_only: bool = False
    ) -> None:
        super().__init__(environment)
        self._is_read_only = read_only
        self.path: Path = folder
        self._wait_s = wait_s
        self._folder = Folder(folder)
        self._logs = WritableLogs(self._folder)
        with as_store_error(folder):
            refuse_windows(folder)
            if read_only:
                self._folder.check_readable()
            else:
                make_folder(folder)
                refuse_network(folder, folder)
                self._folder.check_version()
                with self._folder.locked_if_free() as is_locked:
                    if is_locked:
                        ImportRecord(self._folder).finish()
        self._writer = WriterThread(self._commit, name="bartack-jsonl-writer")
        # A thread for each, so that a search does not keep other readers waiting.
        self._reader, self._scanner = _ReaderThread(self._folder, "reader"), _ReaderThread(self._folder, "scanner")

    @classmethod
    async def open(
        cls,
        folder: Path | str,
        *,
        environment: Environment | None = None,
        wait_s: float = 30.0,
        read_only: bool = False,
    ) -> "JsonlStore":
        """Open the store in this folder, creating it if needed. `wait_s` limits the wait for other processes.

        A `read_only` store must exist, and may be on a read-only file system.
        """
        return await asyncio.to_thread(cls, Path(folder), environment, wait_s=wait_s, read_only=read_only)

    async def close(self) -> None:
        if not self._followers.closed:
            self._followers.close()
            await self._writer.close()
            await asyncio.to_thread(self._reader.close)
            await asyncio.to_thread(self._scanner.close)

    # -- readers

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return await self._reader.run(work)

    async def _scan(self, work: Callable[[Tables], T]) -> T:
        return await self._scanner.run(work)

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> Inspection:
        self.check_usable()
        if repair and not self._is_read_only:
            await self._write(lambda _: self._logs.repair(session_id))
        return await super().inspect(session_id)

    async def backup(self, target: Path, report: Report = ignore_progress) -> None:
        """Copy the store to a new folder, as it is at one moment; appends wait only while that is recorded."""
        self.check_usable()
        with as_store_error(target):
            await asyncio.to_thread(copy_folder, self._folder, Folder(target), report)

    # -- the writer

    def _write(self, work: Callable[[Tables], T], *, is_long: bool = False) -> Awaitable[T]:
        if self._is_read_only:
            raise StoreError(f"{self.path} was opened read-only.")
        return self._writer.submit(lambda: work(self._logs), inf if is_long else self._wait_s)

    def _commit(self, jobs: Sequence[WriteJob]) -> None:
        """Run a group, in the thread."""
        with as_store_error(self.path), self._folder.locked():
            ImportRecord(self._folder).finish()  # a process that died may have left one
            for job in jobs:
                self._logs.job = job
                try:
                    with as_store_error(self.path):
                        job.run(OSError)
                except StoreError as error:
                    job.error = error
            self._logs.flush()


class _ReaderThread:
    """A thread that reads, with its own view of the files."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._path = folder.path
        self._logs = FileLogs(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"bartack-jsonl-{name}")
        self._is_closed = False

    async def run(self, work: Callable[[Tables], T]) -> T:
        def run() -> T:
            with as_store_error(self._path):
                return work(self._logs)

        if self._is_closed:
            raise store_closed_error()
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def close(self) -> None:
        self._is_closed = True
        self._thread.shutdown()


def copy_folder(source: Folder, target: Folder, report: Report) -> None:
    """Copy a store to a folder that does not exist yet. Leases are not copied."""
    with source.locked():
        extents = {session_id: _extent_of(source, session_id) for session_id in source.session_ids()}
    make_folder(target.path.parent)
    try:
        target.path.mkdir(mode=0o700)
    except FileExistsError:
        raise StoreError(f"{target.path} already exists. Choose another folder for the backup.") from None
    sync_folder(target.path.parent)
    try:
        for done, (session_id, extent) in enumerate(extents.items(), 1):
            _copy_session(source, target, session_id, extent)
            report(done, len(extents))
        target.write_version()  # last: until then it is not a store
    except BaseException:
        shutil.rmtree(target.path)
        raise


class _Extent(NamedTuple):
    """How much of a session is copied. The last bytes identify it: another session with this id would have others."""

    size: int
    last_bytes: bytes
    state: State | None


def _extent_of(source: Folder, session_id: str) -> _Extent:
    """What there is of the session now. The caller holds the lock."""
    path = source.file_of(session_id)
    state = read_state(path.with_suffix(".state"), is_locked=True)
    with open_file(path, os.O_RDONLY) as descriptor:
        if descriptor is None:
            return _Extent(0, b"", state)
        size = os.fstat(descriptor).st_size
        if state is not None and state.is_current:
            size = min(size, state.size)
        elif state is not None:
            unconfirmed = read_at(descriptor, state.size, size)
            checksum = bytes.fromhex(state.checksum)
            size = state.size + unconfirmed_size(unconfirmed, state, checksum, source.find_blob)
        return _Extent(size, read_at(descriptor, max(0, size - MARK_SIZE), size), state)


def _read_extent(path: Path, extent: _Extent) -> bytes | None:
    """The bytes of the session; None if it was dropped, even if there is a new one with the same id."""
    with open_file(path, os.O_RDONLY) as descriptor:
        data = None if descriptor is None else read_at(descriptor, 0, extent.size)
    return data if data is not None and data.endswith(extent.last_bytes) else None


def _copy_session(source: Folder, target: Folder, session_id: str, extent: _Extent) -> None:
    data = _read_extent(source.file_of(session_id), extent)
    if data is None:
        return
    blobs = {name: source.find_blob(name) for name in dict.fromkeys(referenced(data))}
    if blobs and _read_extent(source.file_of(session_id), extent) is None:  # its blobs may be gone too
        return
    for name, blob in blobs.items():
        if blob is not None and not target.blob_path(name).exists():
            _write(target.blob_path(name), blob)
    path = target.file_of(session_id)
    _write(path, data)
    if extent.state is not None:
        write_state(path.with_suffix(".state"), replace(extent.state, boot="", lease=None))
    sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    make_folder(path.parent)
    write_file(path, data)
