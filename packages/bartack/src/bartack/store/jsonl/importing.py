"""`ImportRecord`: what makes appends to several session files one step.

Confirming a session means writing its state, and there is one state per session. So the states of an import are written
twice. First, a record says how long each file is; then lines are appended to the files, which no state confirms. Then
the record is replaced by one with the new states: this is the moment at which the import is stored. Last, the states
are written to their places, and the record is removed.

Whoever takes the folder's lock and finds a record finishes the import: it writes the states, or, if there are none yet,
cuts every file to its length. The lock is held during the whole import, so a record that is found is that of a process
that died.
"""

import os

import msgspec
from msgspec import Struct

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store.blobs import referenced
from bartack.store.checksums import seal, unseal
from bartack.store.files import sync_folder, write_file
from bartack.store.jsonl.folder import Folder
from bartack.store.jsonl.state import State, write_state

__all__ = ["RECORD_FILE", "ImportRecord"]

RECORD_FILE = "bartack-import.json"


class _Record(Struct, frozen=True):
    sizes: dict[str, int]  # the session files before the import, by name; 0: there is none
    states: dict[str, State] | None = None  # None: not all lines are durable


_DECODER = msgspec.json.Decoder(_Record)


class ImportRecord:
    """The record of the import in a folder. The caller holds the folder's lock."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._path = folder.path / RECORD_FILE

    def begin(self, sizes: dict[str, int]) -> None:
        """Record the sizes before anything is appended."""
        self._write(_Record(sizes))

    def commit(self, states: dict[str, State]) -> None:
        """Store the import. The lines are durable."""
        self._write(_Record({}, states))

    def finish(self) -> None:
        """Complete an import that is stored, and undo one that is not; without a record, do nothing."""
        try:
            text = unseal(self._path.read_bytes())
        except FileNotFoundError:
            return
        if text is None:
            raise StoreError(f"{self._path} is damaged. Restore a backup.", code=ErrorCode.STORAGE_CORRUPT)
        record = _DECODER.decode(text)
        for session_id, state in (record.states or {}).items():
            write_state(self._folder.file_of(session_id).with_suffix(".state"), state)
        if record.states is None:
            self._undo(record.sizes)
        sync_folder(self._folder.path)
        self._path.unlink()
        sync_folder(self._folder.path)

    def _write(self, record: _Record) -> None:
        write_file(self._path, seal(msgspec.json.encode(record)))

    def _undo(self, sizes: dict[str, int]) -> None:
        for session_id, size in sizes.items():
            path = self._folder.file_of(session_id)
            if size:
                os.truncate(path, size)
            else:
                path.unlink(missing_ok=True)
                path.with_suffix(".state").unlink(missing_ok=True)
        self._delete_unused_blobs()

    def _delete_unused_blobs(self) -> None:
        """Blobs are written before the lines that refer to them, so it is not recorded which ones the import added."""
        blobs = {path.name: path for path in self._folder.blob_path("").glob("*")}
        if blobs:
            for session_id in self._folder.session_ids():
                for name in referenced(self._folder.file_of(session_id).read_bytes()):
                    blobs.pop(name, None)
        for path in blobs.values():
            path.unlink()
