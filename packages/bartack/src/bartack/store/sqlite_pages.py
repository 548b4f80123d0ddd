"""What is left in the pages of a damaged SQLite file, read without SQLite.

SQLite finds a row by its tree of pages, and gives up where that is broken. Here, rows are found by their content: an
entry begins with ``{"id":"``, a blob is named by its digest. A row is stored as a *cell*: the size of its record, its
number, the record's header with the type of each column, and the columns. If a cell stands before the content, whose
sizes all fit together, the record is taken from it, wherever its page belongs: to a tree, to the list of free pages, or
to nothing any more.

Of a long record, the cell contains the beginning, and the number of the first page of a chain with the rest. A page may
also be in the write-ahead log, in several versions. The caller decides whether what comes out is an entry.

The format of the file is described at https://www.sqlite.org/fileformat2.html.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from bartack.store.blobs import digest

__all__ = ["SqlitePages"]

_ENTRY = re.compile(rb'\{"id":"')
_BLOB_NAME = re.compile(rb"[0-9a-f]{%d}" % len(digest(b"")))
# The columns of the tables `entry` and `blob`, and which one the content is.
_ENTRY_COLUMNS, _TEXT = 7, 4
_BLOB_COLUMNS, _NAME, _DATA = 2, 0, 1
_BEFORE = 600  # bytes of a cell before its text: numbers, and the id of the entry
_INTEGER_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_LOG_HEADER, _FRAME_HEADER = 32, 24
_DEFAULT_PAGE = 4096


class _Cell(NamedTuple):
    record: int  # where the record begins in its page
    size: int  # the length of the record
    columns: list[tuple[int, int]]  # where each one begins in the record, and its size


class SqlitePages:
    """The pages of a database and of its write-ahead log, whole or not."""

    def __init__(self, data: bytes, log: bytes) -> None:
        self._size = _page_size(data)
        self._pages = [data[start : start + self._size] for start in range(0, len(data), self._size)]
        self._logged: dict[int, bytes] = {}  # the newest version of each page in the log
        self._frames: list[bytes] = []
        frame_size = _FRAME_HEADER + self._size
        for start in range(_LOG_HEADER, len(log), frame_size):
            page = log[start + _FRAME_HEADER : start + frame_size]
            self._frames.append(page)
            self._logged[int.from_bytes(log[start : start + 4])] = page

    def texts(self) -> Iterator[bytes]:
        """What may be the texts of entries."""
        for page in (*self._pages, *self._frames):
            for match in _ENTRY.finditer(page):
                cell = _find_cell(page, match.start(), _ENTRY_COLUMNS, _TEXT)
                if cell is not None:
                    yield from (_column(record, cell, _TEXT) for record in self._records(page, cell))

    def blobs(self) -> dict[str, bytes]:
        """The blobs that match their names."""
        blobs: dict[str, bytes] = {}
        for page in (*self._pages, *self._frames):
            for match in _BLOB_NAME.finditer(page):
                cell = _find_cell(page, match.start(), _BLOB_COLUMNS, _NAME)
                for record in () if cell is None else self._records(page, cell):
                    blob = _column(record, cell, _DATA)
                    if digest(blob) == match[0].decode():
                        blobs[digest(blob)] = blob
        return blobs

    def _records(self, page: bytes, cell: _Cell) -> Iterator[bytes]:
        """The record, with the pages of its chain from the file and, if that differs, from the log."""
        local = _local_size(cell.size, self._size)
        begin = page[cell.record : cell.record + local]
        if local == cell.size:
            yield begin
            return
        first = int.from_bytes(page[cell.record + local : cell.record + local + 4])
        in_file = begin + self._chain(first, cell.size - local, prefers_log=False)
        yield in_file
        if self._logged:
            in_log = begin + self._chain(first, cell.size - local, prefers_log=True)
            if in_log != in_file:
                yield in_log

    def _chain(self, number: int, size: int, *, prefers_log: bool) -> bytes:
        """The content of a chain of pages; it is shorter than `size` where the chain is broken."""
        parts: list[bytes] = []
        while size > 0:
            page = self._page(number, prefers_log=prefers_log)
            if len(page) <= 4:
                break
            parts.append(page[4 : 4 + size])
            size -= self._size - 4
            number = int.from_bytes(page[:4])
        return b"".join(parts)

    def _page(self, number: int, *, prefers_log: bool) -> bytes:
        in_file = self._pages[number - 1] if 0 < number <= len(self._pages) else b""
        in_log = self._logged.get(number, b"")
        return (in_log or in_file) if prefers_log else (in_file or in_log)


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[16:18])
    is_valid = data.startswith(b"SQLite format 3\0") and 512 <= size <= 32768 and size & (size - 1) == 0
    return size if is_valid else _DEFAULT_PAGE  # a store has pages of the default size


def _local_size(size: int, page_size: int) -> int:
    """How much of a record of this size is in its cell."""
    if size <= page_size - 35:
        return size
    least = (page_size - 12) * 32 // 255 - 23
    local = least + (size - least) % (page_size - 4)
    return local if local <= page_size - 35 else least


def _find_cell(page: bytes, content: int, columns: int, column: int) -> _Cell | None:
    """The cell of a record in which the content at this place is the column; None if there is none."""
    for start in range(content - 1, max(-1, content - _BEFORE), -1):
        cell = _read_cell(page, start, columns)
        if cell is not None and cell.record + cell.columns[column][0] == content:
            return cell
    return None


def _read_cell(page: bytes, start: int, columns: int) -> _Cell | None:
    """The cell at this place, if what is there can be one with so many columns."""
    size, place = _varint(page, start)
    _, record = _varint(page, place)
    header_size, place = _varint(page, record)
    header_end = record + header_size
    if not columns < header_size <= 1 + 9 * columns or size <= header_size:
        return None
    column_places: list[tuple[int, int]] = []
    offset = header_size
    while place < header_end and len(column_places) < columns:
        kind, place = _varint(page, place)
        column_size = _INTEGER_SIZES[kind] if kind < len(_INTEGER_SIZES) else (kind - 12) // 2
        column_places.append((offset, column_size))
        offset += column_size
    is_whole = place == header_end and len(column_places) == columns and offset == size
    return _Cell(record, size, column_places) if is_whole else None


def _varint(page: bytes, place: int) -> tuple[int, int]:
    """The number at this place, and where it ends."""
    value = 0
    for index in range(place, min(place + 8, len(page))):
        value = value << 7 | page[index] & 0x7F
        if page[index] < 0x80:
            return value, index + 1
    return value << 8 | (page[place + 8] if place + 8 < len(page) else 0), place + 9


def _column(record: bytes, cell: _Cell | None, column: int) -> bytes:
    if cell is None:
        return b""
    offset, size = cell.columns[column]
    return record[offset : offset + size]
