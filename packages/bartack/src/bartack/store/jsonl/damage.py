"""What can be wrong with the files of a JSONL store, as findings for `bartack.store.maintenance`.

Everything is read from the disk. The caller holds the folder's lock, so that nothing is half-written by a live process.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from bartack.store.blobs import damage_to, referenced
from bartack.store.checksums import broken_at
from bartack.store.errors import session_not_found_error
from bartack.store.jsonl.file import FindBlob, confirmed_size, open_file, read_at, unconfirmed_size, whole
from bartack.store.jsonl.folder import VERSION_FILE, Folder
from bartack.store.jsonl.lines import StoredLines, is_journal_damaged, split
from bartack.store.jsonl.state import State, is_state_torn, read_state
from bartack.store.memory import SessionLog
from bartack.store.session_store import Finding, FindingKind

__all__ = ["damage_to_folder", "damage_to_session"]

# A state is derived from its session, and is not synced: one that cannot be read is what a power loss may leave.
_TORN_STATE = "the state of the session was written incompletely, as in a power loss, or is damaged"


class _SessionFiles(NamedTuple):
    """The files of a session at one moment."""

    data: bytes
    confirmed: int  # the size of what the state confirms
    state: State | None
    has_torn_state: bool


def damage_to_folder(folder: Folder) -> Iterator[Finding]:
    """Damage to the store as a whole, and to sessions that are not listed because nothing of them can be read."""
    if folder.has_damaged_version():
        yield _finding(None, "damaged", f"{VERSION_FILE} is damaged", repairable=True)
    names = folder.session_ids()
    for session_id in names:
        try:
            snapshot = _read(folder, session_id)
        except OSError as error:
            yield _finding(session_id, "damaged", f"the file of the session cannot be read: {error}")
            continue
        if not snapshot.data and snapshot.state is not None and snapshot.state.size:
            yield _finding(session_id, "damaged", "the file of the session is empty", repairable=True)
        elif snapshot.data and not _complete(folder, snapshot):
            yield from damage_to_session(folder, session_id)
    for session_id in set(folder.session_ids(".state")) - set(names):
        path = folder.file_of(session_id).with_suffix(".state")
        state = read_state(path, is_locked=True)
        if state is not None and state.size:
            yield _finding(session_id, "damaged", "the file of the session is missing", repairable=True)
        elif is_state_torn(path):
            yield _finding(session_id, "torn", _TORN_STATE, repairable=True)


def damage_to_session(folder: Folder, session_id: str) -> Iterator[Finding]:
    """Lost, torn and altered lines, missing and altered blobs, and a damaged state."""
    snapshot = _read(folder, session_id)
    data, state = snapshot.data, snapshot.state
    if not data and not (state is not None and state.size):
        raise session_not_found_error(session_id)
    if snapshot.has_torn_state:
        yield _finding(session_id, "torn", _TORN_STATE, repairable=True)
    if is_journal_damaged(folder.file_of(session_id).with_suffix(".journal")):
        yield _finding(session_id, "damaged", "the journal of the answer in progress is damaged")
    size = _complete(folder, snapshot)
    lines = split(data[:size])
    yield from _damage_to_end(session_id, snapshot, size)
    log = SessionLog(session_id, folder.find_blob)
    log.add_lines(lines.texts, b"", data[:size])
    yield from _damage_to_lines(log, lines, folder.find_blob)


def _read(folder: Folder, session_id: str) -> _SessionFiles:
    path = folder.file_of(session_id)
    state_path = path.with_suffix(".state")
    state = read_state(state_path, is_locked=True)
    data, confirmed = b"", 0
    with open_file(path, os.O_RDONLY) as descriptor:
        if descriptor is not None:
            data = read_at(descriptor, 0, os.fstat(descriptor).st_size)
            confirmed = confirmed_size(descriptor, len(data), state)
    return _SessionFiles(data, confirmed, state, is_state_torn(state_path))


def _complete(folder: Folder, snapshot: _SessionFiles) -> int:
    """The size of what readers see."""
    data, confirmed, state, _ = snapshot
    previous = b"" if state is None else bytes.fromhex(state.checksum)
    return confirmed + unconfirmed_size(data[confirmed:], state, previous, folder.find_blob)


def _damage_to_end(session_id: str, snapshot: _SessionFiles, size: int) -> Iterator[Finding]:
    data, confirmed, state, _ = snapshot
    if torn := len(data) - size:
        yield _finding(session_id, "torn", f"the last {torn} bytes are an incomplete append", repairable=True)
    last = split(data[:confirmed]).checksums[-1:] if confirmed else []
    if state is not None and state.size and [bytes.fromhex(state.checksum)] != last:
        is_short = confirmed < state.size
        message = f"the end of the session, up to seq {state.seq}, is lost" if is_short else "the last entry is altered"
        yield _finding(session_id, "damaged" if is_short else "checksum", message, repairable=is_short)
    if size and data[size - 1 : size] != b"\n":
        fault: FindingKind = "torn" if size > confirmed else "damaged"  # only what is confirmed must be complete
        yield _finding(session_id, fault, "the last line does not end in a newline", repairable=True)


def _damage_to_lines(log: SessionLog, lines: StoredLines, find_blob: FindBlob) -> Iterator[Finding]:
    seqs = log.entries().seqs
    for position in broken_at((whole(text, find_blob) for text in lines.texts), lines.checksums):
        message = "the entry does not match its checksum"
        yield _finding(log.session_id, "checksum", message, seq=seqs[position])
    for seq, text in zip(seqs, lines.texts, strict=True):
        for name in dict.fromkeys(referenced(text)):
            damage = damage_to(name, find_blob(name))
            if damage is not None:
                yield _finding(log.session_id, "damaged", damage, seq=seq)


def _finding(
    session_id: str | None, kind: FindingKind, message: str, *, seq: int | None = None, repairable: bool = False
) -> Finding:
    return Finding(session_id=session_id, seq=seq, fault=kind, message=message, repairable=repairable)
