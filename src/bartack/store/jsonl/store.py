"""`JsonlStore`: a folder with one file of JSON lines per session (bartack.store.jsonl.file).

Blobs are in ``blobs/``, the state of each session in a file beside it. One thread writes, in groups: pending lines are
written, then each file is synced once. A lock on the folder keeps the writers of all processes apart. Readers take no
lock, and see nothing that is not durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bartack.environment import Environment
from bartack.nouns.errors import StoreError
from bartack.store.append_only import Tables, TableStore
from bartack.store.errors import closed
from bartack.store.files import as_store_error, make_folder, refuse_network
from bartack.store.jsonl.copying import copy_folder
from bartack.store.jsonl.folder import Folder, refuse_windows
from bartack.store.jsonl.logs import FileLogs, WritableLogs
from bartack.store.session_store import Finding, Hit, Page, Totals
from bartack.store.writer_thread import Job, WriterThread

__all__ = ["JsonlStore"]

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
        self._writer = WriterThread(self._commit, name="bartack-jsonl-writer")
        # A thread for each, so that a search does not keep other readers waiting.
        self._reader, self._scanner = _Reader(self._folder, "reader"), _Reader(self._folder, "scanner")

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
        """Like `_read`, for what may take long."""
        self.check_usable()
        return await self._scanner.run(work)

    async def sessions(
        self,
        limit: int = 50,
        cursor: str | None = None,
        query: str | None = None,
        *,
        prefix: str = "",
        reserved: bool = False,
    ) -> Page:
        return await self._scan(lambda tables: tables.sessions(limit, cursor, query, prefix=prefix, reserved=reserved))

    async def search(self, text: str, limit: int = 50, *, prefix: str = "") -> tuple[Hit, ...]:
        return await self._scan(lambda tables: tables.search(text, limit, prefix=prefix))

    async def totals(self, session_id: str | None = None) -> Totals:
        return await self._scan(lambda tables: tables.totals(session_id))

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> tuple[Finding, ...]:
        self.check_usable()
        if repair and not self._is_read_only:
            await self._write(lambda _: self._logs.repair(session_id))
        return await self._scan(lambda tables: tables.inspect(session_id))

    async def backup(self, target: Path) -> None:
        """Copy the store to a new folder, as it is at one moment; appends wait only while that is recorded."""
        self.check_usable()
        with as_store_error(target):
            await asyncio.to_thread(copy_folder, self._folder, Folder(target))

    # -- the writer

    def _write(self, work: Callable[[Tables], T]) -> Awaitable[T]:
        if self._is_read_only:
            raise StoreError(f"{self.path} was opened read-only.")
        return self._writer.submit(lambda: work(self._logs), self._wait_s)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Run a group, in the thread."""
        with as_store_error(self.path), self._folder.locked():
            for job in jobs:
                self._logs.job = job
                try:
                    with as_store_error(self.path):
                        job.run(OSError)
                except StoreError as error:
                    job.error = error
            self._logs.flush()


class _Reader:
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
            raise closed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def close(self) -> None:
        self._is_closed = True
        self._thread.shutdown()
