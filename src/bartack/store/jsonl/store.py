"""`JsonlStore`: a folder with one file of JSON lines for each session (bartack.store.jsonl.file).

For people who want to read their sessions with other tools. Large bodies are in ``blobs/`` by their hash, leases in
files beside the sessions. One thread does all work, in groups: what waits is written, then each file is synced once.
A lock on the folder keeps processes apart; whoever reads waits for it too, so nobody sees what may yet fail.

Lists, search and totals read whole files, once per process and then only what was added.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.errors import ErrorCode, PartValidationError, StoreError
from bartack.store.append import Draft, Row, invalid, no_session
from bartack.store.blobs import digest, referenced
from bartack.store.files import TurnLock, make_folder, sync_folder, write_file
from bartack.store.jsonl.file import SessionFile
from bartack.store.memory import LogStore
from bartack.store.session_log import Log
from bartack.store.session_store import Finding, Lease
from bartack.store.writer_thread import GroupWriter, Job

__all__ = ["JsonlStore"]

T = TypeVar("T")

VERSION = 1  # of the folder's layout


class JsonlStore(LogStore):
    """A store in a folder. `JsonlStore.open` makes one."""

    poll_s = 0.05

    def __init__(self, folder: Path, environment: Environment, *, wait_s: float = 30.0) -> None:
        super().__init__(environment)
        self.folder = folder
        self._wait_s = wait_s
        self._files: dict[str, SessionFile] = {}
        self._touched: dict[SessionFile, list[Job]] = {}
        self._job: Job | None = None
        with _as_store_error(folder):
            make_folder(folder)
            self._turn = TurnLock(folder / "turn")
            with self._turn.held():
                _check_version(folder / "bartack-store.json")
        self._writer = GroupWriter(self._commit, name="bartack-jsonl")

    @classmethod
    async def open(
        cls, folder: Path | str, *, environment: Environment | None = None, wait_s: float = 30.0
    ) -> "JsonlStore":
        """The store in this folder, made if it is not there."""
        return await asyncio.to_thread(cls, Path(folder), environment or Environment(), wait_s=wait_s)

    async def close(self) -> None:
        if not self._watch.closed:
            await super().close()
            await self._writer.close()
            self._turn.close()

    async def inspect(self, session_id: str | None = None, *, mend: bool = False) -> tuple[Finding, ...]:
        if session_id is None:
            return ()

        def work() -> tuple[Finding, ...]:
            file = self._file(session_id)
            file.refresh()
            if file.log.tail is None and not file.torn:
                raise no_session(session_id)
            if mend and file.torn:
                file.put_torn_aside()
            return (*_torn(session_id, file), *self._damaged(session_id, file))

        return await self._write(work)

    # -- work, in the thread

    async def _read(self, work: Callable[[], T]) -> T:
        return await self._writer.submit(work, self._wait_s, is_read=True)

    async def _write(self, work: Callable[[], T]) -> T:
        return await self._writer.submit(work, self._wait_s)

    def _commit(self, jobs: Sequence[Job]) -> None:
        writes = [job for job in jobs if not job.is_read]
        with _as_store_error(self.folder):
            if writes:
                with self._turn.held():
                    self._run(writes)
                    self._flush()
            if len(writes) < len(jobs):
                with self._turn.held(shared=True):
                    self._run(job for job in jobs if job.is_read)

    def _run(self, jobs: Iterable[Job]) -> None:
        for self._job in jobs:
            try:
                with _as_store_error(self.folder):
                    self._job.run(OSError)
            except StoreError as error:
                self._job.error = error

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for file, jobs in touched.items():
            try:
                with _as_store_error(file.path):
                    file.flush()
            except StoreError as error:
                for job in jobs:
                    job.error = error

    # -- sessions

    def _find(self, session_id: str) -> Log | None:
        file = self._file(session_id)
        if file not in self._touched:  # else it is ahead of the disk
            file.refresh()
        if file.log.tail is None:
            return None
        file.log.held = self._held(session_id)
        return file.log

    def _file(self, session_id: str) -> SessionFile:
        file = self._files.get(session_id)
        if file is None:
            file = self._files[session_id] = SessionFile(self._path(session_id, "jsonl"), session_id, self._body)
        return file

    def _path(self, session_id: str, suffix: str) -> Path:
        name = quote(session_id, safe="").replace(".", "%2E")  # a dot begins the suffix
        return self.folder / f"{name}.{suffix}"

    def _all(self) -> Iterable[Log]:
        for path in sorted(self.folder.glob("*.jsonl")):
            log = self._find(unquote(path.stem))
            if log is not None:
                yield log

    def _store(self, session_id: str, draft: Draft, rows: Sequence[Row]) -> None:
        for name, body in draft.bodies.items():
            if not self._blob(name).exists():
                make_folder(self._blob(name).parent)
                write_file(self._blob(name), body)
        file = self._file(session_id)
        file.add(tuple(rows))
        assert self._job is not None
        self._touched.setdefault(file, []).append(self._job)

    def _blob(self, name: str) -> Path:
        return self.folder / "blobs" / name

    def _body(self, name: str) -> bytes:
        try:
            return self._blob(name).read_bytes()
        except FileNotFoundError:
            raise StoreError(f"the body {name} is lost", code=ErrorCode.STORAGE_CORRUPT) from None

    def _held(self, session_id: str) -> Lease | None:
        try:
            return wire.decode(Lease, self._path(session_id, "lease").read_bytes())
        except FileNotFoundError:
            return None
        except PartValidationError as error:
            raise StoreError(f"the lease file of session {session_id!r} is damaged: {error}") from error

    def _hold(self, lease: Lease) -> None:
        write_file(self._path(lease.session_id, "lease"), wire.encode(lease))

    def _drop(self, session_id: str) -> None:
        path = self._path(session_id, "jsonl")
        used = set(referenced(path.read_bytes()))
        for beside in (path, self._path(session_id, "lease"), *self.folder.glob(f"{path.stem}.torn-*")):
            beside.unlink(missing_ok=True)
        for other in self.folder.glob("*.jsonl"):
            used.difference_update(referenced(other.read_bytes()))
        for name in used:
            self._blob(name).unlink(missing_ok=True)
        sync_folder(self.folder)

    def _damaged(self, session_id: str, file: SessionFile) -> Iterator[Finding]:
        names = referenced(file.path.read_bytes()) if file.path.exists() else []
        for name in dict.fromkeys(names):
            blob = self._blob(name)
            if not blob.exists() or digest(blob.read_bytes()) != name:
                fault = "changed" if blob.exists() else "lost"
                yield Finding(session_id=session_id, fault="damaged", message=f"the body {name} is {fault}")


def _torn(session_id: str, file: SessionFile) -> Iterator[Finding]:
    if file.torn:
        message = f"{len(file.torn)} bytes at the end of {file.path.name} are no whole append"
        yield Finding(session_id=session_id, fault="torn", message=message, repairable=True)


def _check_version(path: Path) -> None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        write_file(path, msgspec.json.encode({"schemaVersion": VERSION}))
        return
    try:
        version = msgspec.json.decode(text, type=dict[str, int])["schemaVersion"]
    except (ValueError, KeyError) as error:
        raise StoreError(f"{path}: not the version of a store", code=ErrorCode.STORAGE_UNSUPPORTED) from error
    if version > VERSION:
        raise StoreError(f"{path}: the store has schema version {version}; this version of Bartack knows {VERSION}")


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:  # an id with half a surrogate pair
        raise invalid(f"not text: {error}", error) from error
    except OSError as error:
        where = error.filename or path
        raise StoreError(f"{where}: {os.strerror(error.errno or 0)}", cause=error) from error
