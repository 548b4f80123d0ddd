"""Copying the folder of a JSONL store while others write to it.

Session files only grow, so it is enough to record, under the lock, how much of each is confirmed. Everything else
happens without it. A session that is dropped meanwhile is left out.
"""

import os
from pathlib import Path

from msgspec.structs import replace

from bartack.nouns.errors import StoreError
from bartack.store.blobs import referenced
from bartack.store.files import make_folder, sync_folder, write_file
from bartack.store.jsonl.file import open_file, read_at, unconfirmed_size
from bartack.store.jsonl.folder import Folder
from bartack.store.jsonl.state import State, read_state, write_state

__all__ = ["copy_folder"]


def copy_folder(source: Folder, target: Folder) -> None:
    """Copy a store to a folder that does not exist yet. Leases are not copied."""
    if target.path.exists():
        raise StoreError(f"{target.path} already exists. Choose another folder for the backup.")
    with source.locked():
        sizes = {session_id: _snapshot(source, session_id) for session_id in source.session_ids()}
    make_folder(target.path)
    for session_id, (size, state) in sizes.items():
        _copy_session(source, target, session_id, size, state)
    target.write_version()  # last: until then it is not a store


def _snapshot(source: Folder, session_id: str) -> tuple[int, State | None]:
    """How much of the session there is now."""
    path = source.file_of(session_id)
    state = read_state(path.with_suffix(".state"), is_locked=True)
    with open_file(path, os.O_RDONLY) as descriptor:
        size = 0 if descriptor is None else os.fstat(descriptor).st_size
        if descriptor is None or state is None or state.is_current:
            return (size if state is None else min(size, state.size)), state
        rest = read_at(descriptor, state.size, size)
    return state.size + unconfirmed_size(rest, state, bytes.fromhex(state.checksum), source.find_blob), state


def _copy_session(source: Folder, target: Folder, session_id: str, size: int, state: State | None) -> None:
    with open_file(source.file_of(session_id), os.O_RDONLY) as descriptor:
        if descriptor is None:
            return
        data = read_at(descriptor, 0, size)
    blobs = {name: source.find_blob(name) for name in dict.fromkeys(referenced(data))}
    if not source.file_of(session_id).exists():  # dropped, and its blobs perhaps too
        return
    for name, blob in blobs.items():
        if blob is not None and not target.blob_path(name).exists():
            _write(target.blob_path(name), blob)
    path = target.file_of(session_id)
    _write(path, data)
    if state is not None:
        write_state(path.with_suffix(".state"), replace(state, boot="", lease=None))
    sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    make_folder(path.parent)
    write_file(path, data)
