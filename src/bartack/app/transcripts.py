"""The sessions of other programs on this machine: finding and reading them.

Files of other programs are only ever read. Anything unreadable is reported and skipped: folders and files without
permission, loops of links, files that are removed meanwhile.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bartack.app.compressed import COMPRESSED, file_data
from bartack.app.errors import with_hint
from bartack.app.forks import origin_of
from bartack.app.safe_text import valid_text
from bartack.app.transcript_rows import OnDamage, is_database, rows_of
from bartack.interop import FORMATS, Transcript, TranscriptFormat, export_mark, recognised_format
from bartack.nouns.errors import BartackError, ErrorCode

__all__ = [
    "Found",
    "OnError",
    "error_text",
    "files_of",
    "find_transcripts",
    "found_at",
    "found_below",
    "home_of",
    "is_transcript",
    "read_transcripts",
]

_ARCHIVES = ("sessions", "archived_sessions")  # of Codex, with a folder for each day or without
_HEAD = 64 * 1024  # bytes by which a file is recognised


class Found(NamedTuple):
    """A transcript on disk."""

    format: TranscriptFormat
    path: Path
    name: str  # in the folder of its program, with forward slashes
    size: int
    modified: datetime


# -- finding


OnError = Callable[[Path, OSError], None]  # gets what cannot be read


def find_transcripts(agents: Collection[str], on_error: OnError) -> Iterator[Found]:
    """The transcripts of installed programs, or of these only, in the places where they keep them."""
    for row in FORMATS.values():
        home = home_of(row) if not agents or row.name in agents else None
        if home is None:
            continue
        for place in row.places:
            is_moved = place.unless is not None and os.path.exists(home / place.unless)  # noqa: PTH110 - as in home_of
            if is_moved:
                continue
            for folder in _matches(home, place.folder.split("/"), on_error):
                for path in _matches(folder, place.file.split("/"), on_error):
                    with _reported(path, on_error):
                        if _is_regular(path) or _is_marked(row, path):
                            yield _found(row, path, path.relative_to(folder).as_posix())


_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _matches(folder: Path, pattern: Sequence[str], on_error: OnError) -> Iterator[Path]:
    """What is in a folder and matches a pattern, whose parts are patterns for names."""
    if not pattern:
        yield folder
        return
    names = [pattern[0]]
    if "*" in pattern[0]:
        try:
            names = sorted(path.name for path in folder.iterdir() if fnmatchcase(path.name, pattern[0]))
        except OSError as error:
            names = []
            if error.errno not in _NO_FOLDER:
                on_error(folder, error)
    for name in names:
        yield from _matches(folder / name, pattern[1:], on_error)


@contextmanager
def _reported(path: Path, on_error: OnError) -> Iterator[None]:
    """Report what cannot be read. A file that does not exist, or no longer, is not an error."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        on_error(path, error)


def _is_regular(path: Path) -> bool:
    """Whether this is a file; False for a folder. Anything else is an error: reading a pipe may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return stat.S_ISREG(mode)


def home_of(row: TranscriptFormat) -> Path | None:
    """The folder of a program; None if it is not installed, or has not been used."""
    for home in row.homes:
        variable, _, rest = home[1:].partition("/") if home.startswith("$") else ("", "", "")
        given = home if not variable else os.path.join(os.environ[variable], rest) if os.environ.get(variable) else ""  # noqa: PTH118 - keeps an empty rest
        path = Path(given).expanduser()
        if given and os.path.isdir(path):  # noqa: PTH112 - False for what cannot be read
            return path
        if given and variable:
            return None
    return None


def found_at(path: Path, agent: str | None = None) -> Found:
    """The transcript in a file, recognised by its content, or read as one of this program.

    Raises `BartackError` if it is not a transcript of a known program.
    """
    row = None if agent is None else FORMATS[agent]
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe or a device may never end
        raise BartackError(f"{path} is not a regular file.", code=ErrorCode.INVALID_VALUE)
    if row is None and path.is_dir():
        row = next((each for each in FORMATS.values() if _is_marked(each, path)), None)
    elif row is None:
        row = recognised_format(path.name.removesuffix(COMPRESSED), file_data(path, _HEAD))
    if row is None:
        known = ", ".join(sorted(each.title for each in FORMATS.values()))
        error = BartackError(f"{path} is not a transcript of a known program.", code=ErrorCode.INVALID_VALUE)
        hint = f"Known programs: {known}. 'bartack sessions import' reads Bartack's own JSONL."
        raise with_hint(error, hint)
    return _found(row, path, _name_of(row, path))


def found_below(folder: Path, agent: str | None, on_error: OnError) -> Iterator[Found]:
    """The transcripts in a folder and below it, of all programs or of this one. Other files are skipped."""
    for name, folders, files in os.walk(folder, onerror=lambda error: on_error(Path(error.filename), error)):
        place = Path(name)
        is_whole = is_transcript(place)
        if is_whole:
            folders.clear()
        folders.sort()
        for path in [place] if is_whole else sorted(place / file for file in files):
            with _reported(path, on_error), suppress(BartackError):
                found = found_at(path)
                if agent in (None, found.format.name):
                    yield found


def is_transcript(path: Path) -> bool:
    """Whether this is a file, or a folder that is a transcript as a whole."""
    is_file = os.path.isfile(path)  # noqa: PTH113 - unlike that of Path, it is False for what cannot be read
    return is_file or any(_is_marked(row, path) for row in FORMATS.values())


def _is_marked(row: TranscriptFormat, folder: Path) -> bool:
    """Whether a folder is a transcript of this program as a whole."""
    return row.marker is not None and os.path.exists(folder / row.marker)  # noqa: PTH110 - as above


def _name_of(row: TranscriptFormat, path: Path) -> str:
    """The name of a transcript, which may be more than that of its file: that of a sub-agent has its session's.

    The place is the one that most of the path matches. Files can be elsewhere, so the path may match only the end of a
    pattern; but a folder counts only if at least one is there by its name.
    """
    parts = path.absolute().parts
    best, size = path.name, 0
    for place in row.places:
        folders, file = place.folder.split("/"), place.file.split("/")
        for start in range(len(folders) + 1):
            pattern = [*folders[start:], *file]
            last = parts[-len(pattern) :]
            is_named = len(pattern) == 1 or any("*" not in folder for folder in pattern[:-1])
            if len(last) == len(pattern) > size and is_named and all(map(fnmatchcase, last, pattern)):
                best, size = "/".join(last[-len(file) :]), len(pattern)
    return best


def _found(row: TranscriptFormat, path: Path, name: str) -> Found:
    files = [path.stat()]
    for other in _parts_of(row, path):
        with suppress(OSError):  # it is reported when it is read
            files.append(other.stat())
    modified = datetime.fromtimestamp(max(status.st_mtime for status in files), UTC)
    size = sum(status.st_size for status in files)
    return Found(row, path, valid_text(name.removesuffix(COMPRESSED)), size, modified)


def _parts_of(row: TranscriptFormat, path: Path) -> Iterator[Path]:
    """What changes if a transcript does and it does not itself: the files in a folder, or the log of a database."""
    if row.tables:
        yield path.with_name(path.name + "-wal")
    for place, _, names in os.walk(path):  # nothing if it is a file
        yield from (Path(place, name) for name in names)


def read_transcripts(found: Found, *, is_growing: bool = False) -> list[Transcript]:
    """The sessions in a transcript: the one that it is about first, then those of its sub-agents.

    The last line of a file that `is_growing` is read only when it is complete.

    Raises `BartackError` if nothing in it is a record of the program.
    """
    lost: list[tuple[str, str]] = []
    files = files_of(found, lambda name, what: lost.append((name, what)))
    if is_growing and found.name.endswith(".jsonl"):
        whole, newline, _ = files[found.name].rpartition(b"\n")
        if not newline:
            return []
        files[found.name] = whole + newline
    transcripts = found.format.read(files)
    if not any(one.report.total("read") + one.report.total("opaque") for one in transcripts):
        found_wrong = [f"{name}: {what}" for name, what in lost] + [
            problem.what for one in transcripts for problem in one.report.problems
        ]
        why = "".join(f" First problem: {problem}" for problem in found_wrong[:1])
        error = f"{found.path} has no records of {found.format.title}.{why}"
        raise BartackError(error, code=ErrorCode.INVALID_VALUE)
    for name, what in lost:
        transcripts[0].report.lost(name, what)
    _note_outer(transcripts[0], found)
    _note_origin(transcripts[0], found, export_mark(files.get(found.name, b"")))
    return transcripts


def _note_outer(transcript: Transcript, found: Found) -> None:
    """Name the session that called a sub-agent, whose file only the folder can tell."""
    pattern = found.format.outer_of(found.name)
    names = [] if pattern is None else sorted(path.name for path in found.path.absolute().parent.parent.glob(pattern))
    if names:
        (outer, *_) = found.format.read({names[0]: b""})  # its id depends on its name only
        metadata = {**(transcript.header.metadata or {}), "parentSession": outer.session_id}
        transcript.header = replace(transcript.header, metadata=metadata)


def _note_origin(transcript: Transcript, found: Found, mark: tuple[str, bool] | None) -> None:
    """Name the session that this one was exported or copied from, if it does not do that itself."""
    about = transcript.header.metadata or {}
    origin = None
    if mark is not None:
        transcript.copy_of = mark[0] if mark[1] else None
        origin = mark[0] if mark[0] != transcript.session_id else None
    elif found.format.copies_forks and not {"parentSession", "forkedFrom"} & about.keys():
        name = origin_of(found.path)
        origin = None if name is None else f"{transcript.agent}:{valid_text(name)}"
    if origin is not None:
        transcript.header = replace(transcript.header, metadata={**about, "forkedFrom": origin})


def files_of(found: Found, on_damage: OnDamage) -> dict[str, bytes]:
    """The files of a transcript, or the rows of a database as if they were files.

    Raises `BartackError` and `OSError` if the transcript itself cannot be read; `on_damage` gets every other failure.
    """
    if found.path.is_dir():
        return _files_in(found.path, on_damage)
    if found.format.tables and is_database(found.path):
        return rows_of(found.path, found.format.tables, on_damage)
    files = {found.name: file_data(found.path)}
    for ending in found.format.companions:
        other = found.path.with_name(found.path.stem + ending)
        with _reported(other, lambda path, error: on_damage(path.name, error_text(error))):
            if _is_regular(other):
                files[found.name.removesuffix(found.path.suffix) + ending] = other.read_bytes()
    base = found.format.base_of(files[found.name])
    while base is not None:
        path = next((path for folder in _folders_around(found.path) for path in _below(str(folder), base)), None)
        name = "" if path is None else path.name.removesuffix(COMPRESSED)
        if path is None or name in files:
            break
        try:
            files[name] = file_data(path) if _is_regular(path) else b""
        except (BartackError, OSError) as error:
            on_damage(base, error_text(error))
            break
        base = found.format.base_of(files[name])
    return files


def _below(folder: str, pattern: str) -> Iterator[Path]:
    """The files in a folder and below it whose name matches a pattern."""
    waiting = [folder]
    for place in waiting:
        with suppress(OSError):
            folders, files = _listing(place, Path(place).stat().st_mtime_ns)
            yield from (Path(place, name) for name in files if fnmatchcase(name, pattern))
            waiting += [f"{place}/{name}" for name in folders]


@lru_cache(maxsize=10_000)
def _listing(folder: str, changed: int) -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder, which are the same until it changes."""
    with os.scandir(folder) as found:
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    return [name for name, is_folder in entries if is_folder], [name for name, is_folder in entries if not is_folder]


def _files_in(folder: Path, on_damage: OnDamage) -> dict[str, bytes]:
    """The files of a folder and below it."""
    files: dict[str, bytes] = {}

    def on_error(path: Path, error: OSError) -> None:
        on_damage(valid_text(path.relative_to(folder).as_posix()), error_text(error))

    paths = [
        Path(place) / name
        for place, _, names in os.walk(folder, onerror=lambda error: on_error(Path(error.filename), error))
        for name in names
    ]
    for path in sorted(paths):
        with _reported(path, on_error):
            if _is_regular(path):
                files[valid_text(path.relative_to(folder).as_posix())] = path.read_bytes()
    return files


def error_text(error: Exception) -> str:
    """What is wrong, without the path, which is shown beside it."""
    return (error.strerror if isinstance(error, OSError) else getattr(error, "message", None)) or str(error)


def _folders_around(path: Path) -> Iterator[Path]:
    """The folder of a file, and if that is the folder of a day, those of all days and of the archive."""
    folder = path.absolute().parent
    yield folder
    while folder.name.isdigit():
        folder = folder.parent
    if folder.name in _ARCHIVES:
        yield from (other for name in _ARCHIVES if (other := folder.with_name(name)).is_dir())
