"""What is left of a damaged session, as entries that any store accepts: `whole_session`, for exports and salvage.

Entries that are intact stay as they are, byte for byte. One that cannot be read, or is lost, becomes a `Custom` fact
named ``bartack.unreadable`` in its place, with what is left of its text.

`salvaged_sessions` looks for the JSON of entries in the bytes of any file of a store, whatever is around them. Of a
SQLite file it also reads what SQLite can still read, since long entries are spread over its pages.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, SessionHeader
from bartack.nouns.errors import PartValidationError, StoreError
from bartack.session.outline import UNREADABLE
from bartack.store.blobs import referenced, restore
from bartack.store.checksums import split_checksum
from bartack.store.entries import NO_TIME, Envelope, envelope_of, read_entry, unreadable_id

__all__ = ["salvaged_sessions", "whole_session"]


def whole_session(session_id: str, seqs: Iterable[int], texts: Iterable[bytes]) -> Iterator[bytes]:
    """The canonical JSON of the entries, without gaps, repeats and unknown parents. The seqs rise."""
    last = 0
    previous: str | None = None
    ids: set[str] = set()
    for seq, text in zip(seqs, texts, strict=True):
        for missing in range(last + 1, seq):
            entry = _placeholder(session_id, missing, previous)
            ids.add(entry.id)
            previous = entry.id
            yield wire.encode(entry)
        envelope = envelope_of(text)
        if envelope is not None and _is_in_place(envelope, session_id, seq, text, ids):
            previous = envelope.id
        else:
            entry = _in_place(session_id, seq, text, previous, ids)
            text, previous = wire.encode(entry), entry.id
        ids.add(previous)
        last = seq
        yield text


def _is_in_place(envelope: Envelope, session_id: str, seq: int, text: bytes, ids: set[str]) -> bool:
    if (envelope.session_id, envelope.seq) != (session_id, seq) or envelope.id in ids:
        return False
    if seq == 1 and (envelope.kind, envelope.parent_id) != (SessionHeader.kind, None):
        return False
    if seq > 1 and envelope.parent_id not in ids:
        return False
    return not (referenced(text) and _lacks_blob(text))


def _lacks_blob(text: bytes) -> bool:
    """Whether a text with something like a reference is not an entry: then a blob is lost."""
    try:
        wire.decode(Entry, text)
    except PartValidationError:
        return True
    return False


def _in_place(session_id: str, seq: int, text: bytes, previous: str | None, ids: set[str]) -> Entry:
    """What can be read of the entry, moved to its position."""
    entry = read_entry(session_id, seq, text)
    fact = entry.fact
    if isinstance(fact, Custom) and fact.name == UNREADABLE:
        fact = replace(fact, data={**fact.data, "text": text.decode(errors="replace")})
    return replace(
        entry,
        id=unreadable_id(session_id, seq) if entry.id in ids else entry.id,
        session_id=session_id,
        seq=seq,
        parent_id=entry.parent_id if entry.parent_id in ids else previous,
        fact=fact if seq > 1 or isinstance(fact, SessionHeader) else SessionHeader(),
    )


def _placeholder(session_id: str, seq: int, previous: str | None) -> Entry:
    fact = SessionHeader() if seq == 1 else Custom(UNREADABLE, {"error": "the entry is lost"})
    return Entry(
        id=unreadable_id(session_id, seq),
        session_id=session_id,
        seq=seq,
        timestamp=NO_TIME,
        fact=fact,
        parent_id=previous,
    )


# -- files

_START = re.compile(rb'\{"id":"')
_SQLITE = b"SQLite format 3\0"


def salvaged_sessions(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """The sessions in a folder or file, each as the canonical JSON of its entries; raises `OSError`."""
    sessions: dict[str, dict[int, bytes]] = {}
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        data = file.read_bytes()
        find_blob = _blobs_beside(file)
        texts = list(_texts_in(data))
        if data.startswith(_SQLITE):
            log = file.with_name(f"{file.name}-wal")
            texts += _texts_in(log.read_bytes() if log.exists() else b"")
            stored, find_blob = _read_sqlite(file)
            texts += stored
        for text in texts:
            envelope = envelope_of(text)
            if envelope is not None and envelope.seq > 0:
                sessions.setdefault(envelope.session_id, {})[envelope.seq] = restore(text, find_blob)
    for session_id, entries in sessions.items():
        seqs = sorted(entries)
        yield session_id, list(whole_session(session_id, seqs, [entries[seq] for seq in seqs]))


def _texts_in(data: bytes) -> Iterator[bytes]:
    """Whatever looks like an entry, without its checksum."""
    text = data.decode("latin-1")  # one character for each byte
    decoder = json.JSONDecoder()
    end = 0
    for found in _START.finditer(data):
        if found.start() >= end:
            with suppress(ValueError, RecursionError):
                _, end = decoder.raw_decode(text, found.start())
                yield split_checksum(data[found.start() : end])[0]


def _blobs_beside(file: Path) -> Callable[[str], bytes | None]:
    def find_blob(name: str) -> bytes | None:
        with suppress(OSError):
            return (file.parent / "blobs" / name).read_bytes()
        return None

    return find_blob


def _read_sqlite(file: Path) -> tuple[list[bytes], Callable[[str], bytes | None]]:
    """The entries that SQLite can read, and a function that reads blobs."""
    import apsw  # noqa: PLC0415 - an extra, needed only for a SQLite file

    from bartack.store.sqlite.file import connect_read_only  # noqa: PLC0415

    texts: list[bytes] = []
    blobs: dict[str, bytes] = {}
    row: tuple[Any, ...]
    with suppress(apsw.Error, StoreError):
        connection = connect_read_only(file, wait_s=1.0)
        try:
            for order in ("ASC", "DESC"):  # from both ends, up to the damage
                with suppress(apsw.Error):
                    for (text,) in connection.execute(f"SELECT CAST(text AS BLOB) FROM entry ORDER BY number {order}"):
                        texts.append(text)
            sql = "SELECT data FROM blob WHERE name = ?"
            for (name,) in connection.execute("SELECT name FROM blob").fetchall():
                with suppress(apsw.Error):
                    (row,) = connection.execute(sql, (name,)).fetchall()
                    blobs[str(name)] = row[0]
        finally:
            connection.close()
    return texts, blobs.get
