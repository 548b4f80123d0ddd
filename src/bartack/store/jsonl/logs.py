"""`FileLogs`: the sessions in a folder, for readers, and `WritableLogs`, for the writer.

Lists and totals read the summary that is kept with the state of each session, and no session file. Search reads the
files, but parses only those that contain every word of the query.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import StoreError
from bartack.store.append import Batch, Existing, Row
from bartack.store.blobs import has_blob_word, referenced
from bartack.store.files import as_store_error, make_folder, sync_folder, write_file
from bartack.store.index import model_key, totals_of
from bartack.store.jsonl.appends import WritableFile
from bartack.store.jsonl.damage import damage_to_folder, damage_to_session
from bartack.store.jsonl.file import SessionFile, open_file, read_at
from bartack.store.jsonl.folder import Folder
from bartack.store.jsonl.journal import read_journal, write_journal
from bartack.store.jsonl.state import Summary, read_state, summary_of
from bartack.store.memory import Logs
from bartack.store.search import phrases
from bartack.store.session_log import SessionLog
from bartack.store.session_store import Finding, Hit, Lease, SessionInfo, Totals
from bartack.store.writer_thread import Job, own_error

__all__ = ["FileLogs", "WritableLogs"]

_KEPT = 64  # sessions that are kept in memory

F = TypeVar("F", bound=SessionFile)


class FileLogs(Logs):
    """The sessions, blobs and leases in a folder. Reading takes no lock."""

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self._folder = folder
        self._files: dict[str, SessionFile] = {}

    def find(self, session_id: str) -> SessionLog | None:
        file = _used(self._files, session_id, SessionFile, self._folder)
        file.refresh()
        _trim(self._files)
        return file.log or None

    def infos(self) -> Iterable[SessionInfo]:
        return [summary.info for summary in self._summaries()]

    def totals(self, session_id: str | None) -> Totals:
        if session_id is not None:
            return super().totals(session_id)
        return totals_of((model_key(each.model), each.spend) for one in self._summaries() for each in one.models)

    def _summaries(self) -> Iterator[Summary]:
        """Of all sessions. One that cannot be read is left out; the check reports it."""
        for session_id in self._folder.session_ids():
            try:
                summary = self._summary(session_id)
            except OSError:
                continue
            if summary is not None:
                yield summary

    def _summary(self, session_id: str) -> Summary | None:
        path = self._folder.file_of(session_id)
        state = read_state(path.with_suffix(".state"))
        if state is not None and state.summary is not None:
            size = os.stat(path).st_size  # noqa: PTH116 - twice as fast, and there may be thousands
            if size == state.size or (size > state.size and state.is_current):
                return state.summary
        log = self.find(session_id)
        return None if log is None else summary_of(log)

    def hits(self, session_id: str, query: str) -> Sequence[Hit]:
        try:
            log = self.find(session_id) if self._may_match(session_id, query) else None
        except OSError:
            return ()
        return () if log is None else log.search(query)

    def _may_match(self, session_id: str, query: str) -> bool:
        """Whether the file contains each word of the query, or a reference to a blob, which may contain it."""
        with open_file(self._folder.file_of(session_id), os.O_RDONLY) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, os.fstat(descriptor).st_size)
        if has_blob_word(data):
            return True
        text = data.lower().decode() if data.isascii() else data.decode(errors="replace").casefold()
        return all(word in text for phrase in phrases(query) for word in phrase)

    def journal(self, session_id: str, generation: int, after: int) -> Sequence[MessageDeltaBatch]:
        return read_journal(self._folder.file_of(session_id).with_suffix(".journal"), generation, after)

    def inspect(self, session_id: str | None) -> tuple[Finding, ...]:
        with self._folder.locked():
            if session_id is None:
                return tuple(damage_to_folder(self._folder))
            return tuple(damage_to_session(self._folder, session_id))


class WritableLogs(Logs):
    """The same for the writer, which holds the folder's lock. Its logs are ahead of the disk until `flush`."""

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self.job: Job | None = None  # the one that is running
        self._folder = folder
        self._files: dict[str, WritableFile] = {}
        self._unflushed: dict[WritableFile, list[Job]] = {}

    def flush(self) -> None:
        """Write and sync what the jobs of the group changed. A failure is the outcome of the jobs it concerns."""
        for file in list(self._unflushed):
            self._flush(file)
        _trim(self._files)

    def _flush(self, file: WritableFile) -> None:
        jobs = self._unflushed.pop(file, [])
        try:
            with as_store_error(file.path):
                if jobs:
                    file.flush()
        except StoreError as error:
            for job in jobs:
                job.error = own_error(error)

    def find(self, session_id: str) -> SessionLog | None:
        return self._file(session_id).log or None

    def _file(self, session_id: str) -> WritableFile:
        file = _used(self._files, session_id, WritableFile, self._folder)
        if file not in self._unflushed:
            file.recover()
        return file

    def _changed(self, session_id: str) -> WritableFile:
        """The file of the session, which the running job changes."""
        file = self._file(session_id)
        assert self.job is not None
        self._unflushed.setdefault(file, []).append(self.job)
        return file

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        self._file(batch.session_id).check_complete()
        for name, blob in batch.blobs.items():
            path = self._folder.blob_path(name)
            if not path.exists():
                make_folder(path.parent)
                write_file(path, blob)
        self._changed(batch.session_id).add(batch, rows)

    def set_lease(self, lease: Lease) -> None:
        self._changed(lease.session_id).set_lease(lease)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        write_journal(self._folder.file_of(session_id).with_suffix(".journal"), batch)

    def drop(self, session_id: str) -> None:
        self._flush(self._file(session_id))
        path = self._folder.file_of(session_id)
        unused = set(referenced(path.read_bytes()))
        if unused:
            for other in self._folder.session_ids():
                if other != session_id:
                    unused.difference_update(referenced(self._folder.file_of(other).read_bytes()))
        # The state first: a session without one is whole, a state without its session is damage.
        own = path.with_suffix(".state"), path, path.with_suffix(".journal")
        for file in (*own, *self._folder.path.glob(f"{path.stem}.torn-*")):
            file.unlink(missing_ok=True)
        for name in unused:
            self._folder.blob_path(name).unlink(missing_ok=True)
        sync_folder(self._folder.path)

    def repair(self, session_id: str | None) -> None:
        """Set torn bytes aside and accept that lost ones are lost."""
        if session_id is None:
            self._folder.write_version()
        else:
            self._file(session_id).repair()


def _used(files: dict[str, F], session_id: str, kind: type[F], folder: Folder) -> F:
    """The file of a session, which becomes the one that was used last."""
    file = files.pop(session_id, None) or kind(folder.file_of(session_id), session_id, folder.find_blob)
    files[session_id] = file
    return file


def _trim(files: dict[str, F]) -> None:
    while len(files) > _KEPT:
        del files[next(iter(files))]
