"""`JsonlStore`: a folder with one file of JSON lines per session (bartack.store.jsonl.file).

Blobs are in ``blobs/``, leases in files beside the sessions. One thread does all work in groups: pending lines are
written, then each file is synced once. A lock on the folder keeps processes apart; readers take it too, so that none
sees lines whose sync may still fail.

Lists, search and totals read whole files: once per process, then only what was added.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import ErrorCode, PartValidationError, StoreError
from bartack.store.append import Batch, Existing, Row
from bartack.store.append_only import Tables, TableStore
from bartack.store.blobs import damage_to, referenced
from bartack.store.errors import missing_blob, newer_schema, no_session
from bartack.store.files import WriteLock, as_store_error, make_folder, refuse_network, sync_folder, write_file
from bartack.store.jsonl.file import SessionFile
from bartack.store.jsonl.journal import read_journal, write_journal
from bartack.store.memory import Logs
from bartack.store.session_log import SessionLog
from bartack.store.session_store import Finding, Lease
from bartack.store.writer_thread import Job, WriterThread

__all__ = ["VERSION_FILE", "JsonlStore"]

T = TypeVar("T")

VERSION = 1  # of the folder's layout
VERSION_FILE = "bartack-store.json"


class JsonlStore(TableStore):
    """A store in a folder, opened with `JsonlStore.open`."""

    poll_s = 0.05

    def __init__(self, folder: Path, environment: Environment | None, *, wait_s: float = 30.0) -> None:
        super().__init__(environment)
        self.folder = folder
        self._wait_s = wait_s
        self._logs = FileLogs(folder)
        with as_store_error(folder):
            make_folder(folder)
            refuse_network(folder, folder)
            self._lock = WriteLock(folder / "lock")
            with self._lock.held():
                _check_version(folder / VERSION_FILE)
        self._writer = WriterThread(self._commit, name="bartack-jsonl")

    @classmethod
    async def open(
        cls, folder: Path | str, *, environment: Environment | None = None, wait_s: float = 30.0
    ) -> "JsonlStore":
        """Open the store in this folder, creating it if needed. `wait_s` limits the wait for other processes."""
        return await asyncio.to_thread(cls, Path(folder), environment, wait_s=wait_s)

    async def close(self) -> None:
        if not self._followers.closed:
            self._followers.close()
            await self._writer.close()
            self._lock.close()

    async def inspect(self, session_id: str | None = None, *, repair: bool = False) -> tuple[Finding, ...]:
        if repair and session_id is not None:
            await self._write(lambda _: self._logs.move_torn_bytes(session_id))
        return await super().inspect(session_id)

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return await self._writer.submit(lambda: work(self._logs), self._wait_s, is_read=True)

    async def _write(self, work: Callable[[Tables], T]) -> T:
        return await self._writer.submit(lambda: work(self._logs), self._wait_s)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Run a group, in the thread."""
        writes = [job for job in jobs if not job.is_read]
        with as_store_error(self.folder):
            if writes:
                with self._lock.held():
                    self._run(writes)
                    self._logs.flush()
            if len(writes) < len(jobs):
                with self._lock.held(shared=True):
                    self._run(job for job in jobs if job.is_read)

    def _run(self, jobs: Iterable[Job]) -> None:
        for self._logs.job in jobs:
            try:
                with as_store_error(self.folder):
                    self._logs.job.run(OSError)
            except StoreError as error:
                self._logs.job.error = error


class FileLogs(Logs):
    """The sessions, blobs and leases in a folder. The caller holds its lock."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.job: Job | None = None  # the one that is running
        self._folder = folder
        self._files: dict[str, SessionFile] = {}
        self._unflushed: dict[SessionFile, list[Job]] = {}

    def flush(self) -> None:
        """Write and sync what the jobs of the group inserted. A failure is the outcome of the jobs it concerns."""
        unflushed, self._unflushed = self._unflushed, {}
        for file, jobs in unflushed.items():
            try:
                with as_store_error(file.path):
                    file.flush()
            except StoreError as error:
                for job in jobs:
                    job.error = error

    def find(self, session_id: str) -> SessionLog | None:
        file = self._file(session_id)
        if file not in self._unflushed:  # otherwise it is ahead of the disk
            file.refresh()
        if not file.log:
            return None
        file.log.lease = self._read_lease(session_id)
        return file.log

    def all(self) -> Iterable[SessionLog]:
        for path in sorted(self._folder.glob("*.jsonl")):
            log = self.find(unquote(path.stem))
            if log is not None:
                yield log

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        for name, blob in batch.blobs.items():
            if not self._blob_path(name).exists():
                make_folder(self._blob_path(name).parent)
                write_file(self._blob_path(name), blob)
        file = self._file(batch.session_id)
        file.add(rows)
        assert self.job is not None
        self._unflushed.setdefault(file, []).append(self.job)

    def set_lease(self, lease: Lease) -> None:
        write_file(self._path(lease.session_id, "lease"), wire.encode(lease))

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        write_journal(self._path(session_id, "journal"), batch)

    def journal(self, session_id: str, generation: int, after: int) -> list[bytes]:
        return read_journal(self._path(session_id, "journal"), generation, after)

    def drop(self, session_id: str) -> None:
        path = self._path(session_id, "jsonl")
        unused = set(referenced(path.read_bytes()))
        own = [self._path(session_id, suffix) for suffix in ("jsonl", "lease", "journal")]
        for file in (*own, *self._folder.glob(f"{path.stem}.torn-*")):
            file.unlink(missing_ok=True)
        for other in self._folder.glob("*.jsonl"):
            unused.difference_update(referenced(other.read_bytes()))
        for name in unused:
            self._blob_path(name).unlink(missing_ok=True)
        sync_folder(self._folder)

    def inspect(self, session_id: str | None) -> tuple[Finding, ...]:
        """Torn bytes, and missing or altered blobs."""
        return () if session_id is None else tuple(self._findings(session_id))

    def _findings(self, session_id: str) -> Iterator[Finding]:
        file = self._refreshed(session_id)
        if file.torn:
            message = f"the last {len(file.torn)} bytes of {file.path.name} are an incomplete append"
            yield Finding(session_id=session_id, fault="torn", message=message, repairable=True)
        for name in dict.fromkeys(referenced(file.path.read_bytes())):
            path = self._blob_path(name)
            damage = damage_to(name, path.read_bytes() if path.exists() else None)
            if damage is not None:
                yield Finding(session_id=session_id, fault="damaged", message=damage)

    def move_torn_bytes(self, session_id: str) -> None:
        self._refreshed(session_id).move_torn_bytes()

    def _refreshed(self, session_id: str) -> SessionFile:
        file = self._file(session_id)
        file.refresh()
        if not file.log and not file.torn:
            raise no_session(session_id)
        return file

    def _file(self, session_id: str) -> SessionFile:
        file = self._files.get(session_id)
        if file is None:
            file = self._files[session_id] = SessionFile(self._path(session_id, "jsonl"), session_id, self._read_blob)
        return file

    def _path(self, session_id: str, suffix: str) -> Path:
        name = quote(session_id, safe="").replace(".", "%2E")  # the first dot starts the suffix
        return self._folder / f"{name}.{suffix}"

    def _blob_path(self, name: str) -> Path:
        return self._folder / "blobs" / name

    def _read_blob(self, name: str) -> bytes:
        try:
            return self._blob_path(name).read_bytes()
        except FileNotFoundError:
            raise missing_blob(name) from None

    def _read_lease(self, session_id: str) -> Lease | None:
        path = self._path(session_id, "lease")
        try:
            return wire.decode(Lease, path.read_bytes())
        except FileNotFoundError:
            return None
        except PartValidationError as error:
            raise StoreError(f"{path}: damaged lease file: {error}", cause=error) from error


def _check_version(path: Path) -> None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        write_file(path, msgspec.json.encode({"schemaVersion": VERSION}))
        return
    try:
        version = msgspec.json.decode(text, type=dict[str, int])["schemaVersion"]
    except (ValueError, KeyError) as error:
        message = f"{path}: no schemaVersion found; the file is damaged."
        raise StoreError(message, code=ErrorCode.STORAGE_UNSUPPORTED) from error
    if version > VERSION:
        raise newer_schema(path.parent, version, VERSION)
