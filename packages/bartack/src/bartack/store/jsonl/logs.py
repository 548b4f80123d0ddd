"""`FileLogs`: the sessions in a folder, for readers, and `WritableLogs`, for the writer.

Lists and totals read the summary that is kept with the state of each session, and no session file. Search reads the
files, but parses only those that contain every word of the query.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from bartack.nouns.entries import MessageDeltaBatch
from bartack.nouns.errors import StoreError
from bartack.store.append import Batch, Clock, Existing, Row, check_append, prepare
from bartack.store.blobs import has_blob_word, referenced
from bartack.store.files import as_store_error, make_folder, sync_folder, write_file
from bartack.store.index import model_key, totals_of
from bartack.store.jsonl.damage import damage_to_folder, damage_to_session
from bartack.store.jsonl.file import SessionFile, WritableFile, open_file, read_at
from bartack.store.jsonl.folder import Folder
from bartack.store.jsonl.importing import ImportRecord
from bartack.store.jsonl.lines import read_journal, write_journal
from bartack.store.jsonl.state import SessionSummary, State, read_state, summary_of
from bartack.store.memory import Logs, SessionLog
from bartack.store.search import phrases
from bartack.store.session_store import Hit, Inspection, Lease, SessionAppend, SessionInfo, Totals
from bartack.store.writer_thread import WriteJob, own_error

__all__ = ["FileLogs", "WritableLogs"]

_KEPT = 64  # sessions that are kept in memory
_STAGED_BYTES = 4 * 1024 * 1024  # what an import keeps before it writes

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
        return totals_of(
            (model_key(usage.model), usage.spend) for summary in self._summaries() for usage in summary.models
        )

    def _summaries(self) -> Iterator[SessionSummary]:
        """Of all sessions. One that cannot be read is left out; the check reports it."""
        for session_id in self._folder.session_ids():
            try:
                summary = self._summary(session_id)
            except OSError:
                continue
            if summary is not None:
                yield summary

    def _summary(self, session_id: str) -> SessionSummary | None:
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
        return all(word in text for phrase in phrases(query) for word in phrase.words)

    def journal(self, session_id: str, generation: int, after_number: int) -> Sequence[MessageDeltaBatch]:
        return read_journal(self._folder.file_of(session_id).with_suffix(".journal"), generation, after_number)

    def inspect(self, session_id: str | None) -> Inspection:
        with self._folder.locked():
            if session_id is None:
                return Inspection(tuple(damage_to_folder(self._folder)))
            findings = tuple(damage_to_session(self._folder, session_id))
            file = _used(self._files, session_id, SessionFile, self._folder)
            file.refresh()
            lease = None if file.state is None else file.state.lease
            return Inspection(findings, file.log.entries(), lease)


class WritableLogs(Logs):
    """The same for the writer, which holds the folder's lock. Its logs are ahead of the disk until `flush`."""

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self.job: WriteJob | None = None  # the one that is running
        self._folder = folder
        self._files: dict[str, WritableFile] = {}
        self._unflushed: dict[WritableFile, list[WriteJob]] = {}

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

    def existing(self, batch: Batch) -> Existing:
        self._file(batch.session_id).check_complete()  # a lost end is no conflict with what another process has written
        return super().existing(batch)

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        self._write_blobs(batch)
        self._changed(batch.session_id).add(batch, rows)

    def _write_blobs(self, batch: Batch) -> None:
        for name, blob in batch.blobs.items():
            path = self._folder.blob_path(name)
            if not path.exists():
                make_folder(path.parent)
                write_file(path, blob)

    def append_all(self, session_ids: Sequence[str], appends: Iterable[SessionAppend], clock: Clock) -> None:
        """The lines are written without being confirmed; the import's record then confirms all of them at once."""
        for file in list(self._unflushed):  # files of other jobs: they neither wait for this one nor fail with it
            self._flush(file)
        import_record = ImportRecord(self._folder)
        import_record.begin({session_id: self._file(session_id).written_size for session_id in session_ids})
        try:
            states = dict(self._staged(appends, clock))
            import_record.commit(states)
        except BaseException:
            import_record.finish()
            raise
        finally:
            for session_id in session_ids:
                self._files.pop(session_id, None)
        import_record.finish()

    def _staged(self, appends: Iterable[SessionAppend], clock: Clock) -> Iterator[tuple[str, State]]:
        """The states that will confirm the sessions, once their lines are durable. Only one session is in memory."""
        for session_id, session_appends in groupby(appends, key=lambda append: append.session_id):
            file = self._files[session_id] = WritableFile(
                self._folder.file_of(session_id), session_id, self._folder.find_blob
            )
            file.recover()
            file.check_complete()
            for append in session_appends:
                batch = prepare(session_id, append.entries)
                existing = Existing(None) if not file.log else file.log.existing(batch)
                rows, _ = check_append(batch, existing, append.expected_tail, None, clock)
                if not rows:
                    continue
                self._write_blobs(batch)
                file.add(batch, rows)
                if file.pending_size > _STAGED_BYTES:
                    file.stage()
            file.stage()
            del self._files[session_id]
            yield session_id, file.confirming_state()

    def set_lease(self, lease: Lease) -> None:
        self._changed(lease.session_id).set_lease(lease)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        write_journal(self._folder.file_of(session_id).with_suffix(".journal"), batch)

    def drop(self, session_id: str) -> None:
        self._flush(self._file(session_id))
        path = self._folder.file_of(session_id)
        unused = set(referenced(path.read_bytes()))
        if unused:
            for other_id in self._folder.session_ids():
                if other_id != session_id:
                    unused.difference_update(referenced(self._folder.file_of(other_id).read_bytes()))
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
