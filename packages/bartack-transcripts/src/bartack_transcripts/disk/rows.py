"""Reads the rows of another program's SQLite database as if they were files. Nothing is written, not even next to it.

The program may be writing at the same time. SQLite needs a file next to the write-ahead log to read it, so the log is
read from a copy. No locks are taken: the rows are valid if neither the database nor the beginning of its log has
changed meanwhile.

From a damaged database, everything that SQLite can still reach is read: the rows of a table are looked up one by one,
by all row ids in the table and its indexes. A database may also be malicious, so its views are not read, no value may
be longer than the file, and the number of steps of a query is limited by the size of the file.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from bartack.app.safe_text import valid_text
from bartack.nouns.errors import BartackError, ErrorCode
from bartack_transcripts.disk.compressed import file_data
from bartack_transcripts.formats import Rows

__all__ = ["OnDamage", "is_database", "rows_of"]

OnDamage = Callable[[str, str], None]  # gets the name of a table or file, and what is wrong with it

_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter for a message with a damaged name
_MAGIC = b"SQLite format 3\0"
_ATTEMPTS = 10  # while the database is being written
_LOG_HEAD = 32  # bytes of the log of a database; they change when it is begun again
_STEPS = 1_000_000  # steps of SQLite's virtual machine between two checks of their total
_STEPS_PER_BYTE = 50  # a row has some 100 bytes, and takes some 100 steps, and as many again to be sorted


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database."""
    return file_data(path, len(_MAGIC)) == _MAGIC


def rows_of(path: Path, tables: Mapping[str, Rows], on_damage: OnDamage) -> dict[str, bytes]:
    """The rows of these tables as JSON, by kind and id.

    Raises `BartackError` if nothing can be read, and `OSError`.
    """
    for _ in range(_ATTEMPTS):
        problems: dict[str, str] = {}
        try:
            before = _state(path)
            with _opened(path) as database:
                _prepare(database, problems)
                rows_by_name = {
                    f"{kind}/{valid_text(str(row['id']))}": msgspec.json.encode(dict(row))
                    for kind, rows in tables.items()
                    for row in _selected(database, rows, problems)
                }
            is_unchanged = _state(path) == before
        except FileNotFoundError:
            path.stat()  # raises if it is the database itself that is missing
            continue  # its log was deleted, when the last program that wrote to it closed it
        except _ERRORS as error:
            raise BartackError(f"{path} cannot be read: {error}", code=ErrorCode.STORAGE_FAILED, cause=error) from error
        if is_unchanged:
            for table, problem in problems.items():
                on_damage(table, problem)
            return rows_by_name
    raise BartackError(f"{path} keeps changing while it is read; try again later.", code=ErrorCode.STORAGE_FAILED)


def _state(path: Path) -> tuple[int, int, list[bytes]]:
    """What changes when a database does, except that its log may grow."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, [file_data(log, _LOG_HEAD) for log in _logs(path)]


def _logs(path: Path) -> list[Path]:
    """The files with changes that are not in the database yet, or that have to be undone."""
    logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    return [log for log in logs if log.is_file() and log.stat().st_size]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory(prefix="bartack-") as folder:
        mode, logs = "immutable=1", _logs(path)
        size = sum(file.stat().st_size for file in (path, *logs))
        if logs:
            mode = "mode=rw"
            for file in (path, *logs):
                shutil.copyfile(file, Path(folder) / file.name)
            path = Path(folder) / path.name
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as database:
            database.row_factory = sqlite3.Row
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(size, _STEPS))
            database.set_progress_handler(_Budget(size), _STEPS)
            yield database


def _prepare(database: sqlite3.Connection, problems: dict[str, str]) -> None:
    """Let SQLite read the rest if the schema is damaged or the file is cut off."""
    database.execute("PRAGMA trusted_schema = OFF")
    try:
        database.execute("SELECT 1 FROM sqlite_schema").fetchall()
    except _ERRORS as error:
        problems["database"] = str(error)
        database.execute("PRAGMA writable_schema = ON")


class _Budget:
    """Interrupts a query that never ends."""

    def __init__(self, size: int) -> None:
        self._left = 50 + size * _STEPS_PER_BYTE // _STEPS

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def _selected(database: sqlite3.Connection, rows: Rows, problems: dict[str, str]) -> list[sqlite3.Row]:
    """The rows of a table; none if another version of the program has no such table, or without a column for them."""
    try:
        if not _is_table(database, rows.table):
            return []
        selected = database.execute(rows.query()).fetchall()
        if selected and "id" not in selected[0].keys():  # noqa: SIM118 - a row contains its values
            raise sqlite3.OperationalError("no such column: id")
        return selected
    except _ERRORS as error:
        if isinstance(error, sqlite3.OperationalError) and str(error).startswith("no such"):
            count = sum(1 for _ in _until_error(database, f"SELECT 1 FROM {rows.table}"))
            if count and "column" in str(error):
                problems[rows.table] = f"{error}; its {count} rows were not read"
            return []
        selected, lost = _salvaged(database, rows)
        problems[rows.table] = f"{error}; {len(selected)} rows were read, and {lost or 'an unknown number'} were not"
        return selected


def _is_table(database: sqlite3.Connection, name: str) -> bool:
    table = database.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return table is not None


def _salvaged(database: sqlite3.Connection, rows: Rows) -> tuple[list[sqlite3.Row], int]:
    """The rows that can be read, in the order in which they were added, and the number of those that cannot."""
    salvaged: list[sqlite3.Row] = []
    lost = 0
    for rowid in sorted(_row_ids(database, rows.table)):
        row = list(_until_error(database, rows.query("WHERE t.rowid = ?"), rowid))
        salvaged += row
        lost += not row
    return salvaged, lost


def _row_ids(database: sqlite3.Connection, table: str) -> set[int]:
    """The row ids that can be found by any way: from both ends of the table, and from both ends of each index."""
    indexes = [row["name"] for row in _until_error(database, f"PRAGMA index_list({table})")]
    ways = ["NOT INDEXED ORDER BY rowid", "NOT INDEXED ORDER BY rowid DESC"]
    for index in indexes:
        columns = [row["name"] for row in _until_error(database, f"PRAGMA index_info({_quoted(index)})") if row["name"]]
        order = ", ".join(map(_quoted, columns))
        reverse = ", ".join(f"{_quoted(column)} DESC" for column in columns)
        ways += [f"INDEXED BY {_quoted(index)} ORDER BY {ordering}" for ordering in (order, reverse) if ordering]
    return {row[0] for way in ways for row in _until_error(database, f"SELECT rowid FROM {table} {way}")}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _until_error(database: sqlite3.Connection, query: str, *values: int) -> Iterable[sqlite3.Row]:
    """The rows of a query, up to the first that cannot be read."""
    try:
        yield from database.execute(query, values)
    except _ERRORS:
        return
