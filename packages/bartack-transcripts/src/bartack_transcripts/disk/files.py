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

from bartack.app.errors import with_hint
from bartack.app.safe_text import valid_text
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack_transcripts.disk.compressed import COMPRESSED, file_data
from bartack_transcripts.disk.forks import origin_of
from bartack_transcripts.disk.rows import OnDamage, is_database, rows_of
from bartack_transcripts.formats import FORMATS, Transcript, TranscriptFormat, export_mark, recognised_format
from bartack_transcripts.values import short_line

__all__ = [
    "FoundTranscript",
    "OnError",
    "as_it_is_now",
    "error_text",
    "files_below",
    "files_of",
    "find_transcripts",
    "found_at",
    "found_below",
    "home_of",
    "is_transcript",
    "read_transcripts",
]

_ARCHIVES = ("sessions", "archived_sessions")  # folders of Codex, with a folder for each day or without
_HEAD = 64 * 1024  # bytes by which a file is recognised


class FoundTranscript(NamedTuple):
    """A transcript on disk."""

    format: TranscriptFormat
    path: Path
    name: str  # relative to the folder of its program, with forward slashes
    size: int
    modified: datetime


# -- finding


OnError = Callable[[Path, OSError], None]  # gets what cannot be read


def find_transcripts(agents: Collection[str], on_error: OnError) -> Iterator[FoundTranscript]:
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
        variable, _, subfolder = home[1:].partition("/") if home.startswith("$") else ("", "", "")
        location = home
        if variable:
            value = os.environ.get(variable)
            location = os.path.join(value, subfolder) if value else ""  # noqa: PTH118 - keeps an empty subfolder
        path = Path(location).expanduser()
        if location and os.path.isdir(path):  # noqa: PTH112 - False for what cannot be read
            return path
        if location and variable:
            return None
    return None


def found_at(path: Path, agent: str | None = None) -> FoundTranscript:
    """The transcript in a file, recognised by its content, or read as one of this program.

    Raises `BartackError` if it is not a transcript of a known program.
    """
    row = None if agent is None else FORMATS[agent]
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe or a device may never end
        raise BartackError(f"{path} is not a regular file.", code=ErrorCode.INVALID_VALUE)
    if row is None and path.is_dir():
        row = next((candidate for candidate in FORMATS.values() if _is_marked(candidate, path)), None)
    elif row is None:
        row = recognised_format(path.name.removesuffix(COMPRESSED), file_data(path, _HEAD))
    if row is None:
        titles = ", ".join(sorted(known_format.title for known_format in FORMATS.values()))
        error = BartackError(f"{path} is not a transcript of a known program.", code=ErrorCode.INVALID_VALUE)
        hint = f"Known programs: {titles}. 'bartack sessions import' reads Bartack's own JSONL."
        raise with_hint(error, hint)
    return _found(row, path, _name_of(row, path))


def found_below(folder: Path, agent: str | None, on_error: OnError) -> Iterator[FoundTranscript]:
    """The transcripts in a folder and below it, of all programs or of this one. Other files are skipped."""
    for name, folders, files in os.walk(folder, onerror=lambda error: on_error(Path(error.filename), error)):
        place = Path(name)
        is_whole = is_transcript(place)
        if is_whole:
            folders.clear()
        folders.sort()
        for path in [place] if is_whole else sorted(place / file for file in files):
            with _reported(path, on_error), suppress(BartackError):
                transcript = found_at(path)
                if agent in (None, transcript.format.name):
                    yield transcript


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


def as_it_is_now(source: FoundTranscript) -> FoundTranscript:
    """The transcript with its present size and time, which may have changed since it was found."""
    return _found(source.format, source.path, source.name)


def _found(row: TranscriptFormat, path: Path, name: str) -> FoundTranscript:
    files = [path.stat()]
    for part in _parts_of(row, path):
        with suppress(OSError):  # it is reported when it is read
            files.append(part.stat())
    modified = datetime.fromtimestamp(max(status.st_mtime for status in files), UTC)
    size = sum(status.st_size for status in files)
    return FoundTranscript(row, path, valid_text(name.removesuffix(COMPRESSED)), size, modified)


def _parts_of(row: TranscriptFormat, path: Path) -> Iterator[Path]:
    """What changes if a transcript does and it does not itself: the files in a folder, or the log of a database."""
    if row.tables:
        yield path.with_name(path.name + "-wal")
    if row.marker is not None:
        for place, _, names in os.walk(path):  # nothing if it is a file
            yield from (Path(place, name) for name in names)


def read_transcripts(source: FoundTranscript, *, is_growing: bool = False) -> list[Transcript]:
    """The sessions in a transcript: the one that it is about first, then those of its sub-agents.

    The last line of a file that `is_growing` is read only when it is complete. A database without rows has no sessions.

    Raises `BartackError` if nothing in it is a record of the program.
    """
    lost: list[tuple[str, str]] = []
    files = files_of(source, lambda name, problem: lost.append((name, problem)))
    if source.format.tables and not files and not lost:
        return []
    if is_growing and source.name.endswith(".jsonl"):
        complete_lines, newline, _ = files[source.name].rpartition(b"\n")
        if not newline:
            return []
        files[source.name] = complete_lines + newline
    transcripts = source.format.read(files)
    if not any(transcript.report.total("read") + transcript.report.total("opaque") for transcript in transcripts):
        found_wrong = [f"{name}: {problem}" for name, problem in lost] + [
            problem.what for transcript in transcripts for problem in transcript.report.problems
        ]
        why = "".join(f" First problem: {problem}" for problem in found_wrong[:1])
        error = f"{source.path} has no records of {source.format.title}.{why}"
        raise BartackError(error, code=ErrorCode.INVALID_VALUE)
    for name, problem in lost:
        transcripts[0].report.lost(name, problem)
    for transcript in transcripts:
        _add_title(transcript)
    with suppress(FileNotFoundError):  # a neighbour that was deleted meanwhile is not named
        _note_outer(transcripts[0], source)
    with suppress(FileNotFoundError):
        _note_origin(transcripts[0], source, export_mark(files.get(source.name, b"")))
    return transcripts


def _add_title(transcript: Transcript) -> None:
    """Name a session in which nobody typed a prompt after what the model got or answered first."""
    if transcript.header.title is None:
        facts = (fact for step in transcript.steps for fact in step.facts if isinstance(fact, Message))
        texts = (_visible_text(message) for message in facts if message.role in ("user", "assistant"))
        title = short_line(next((text for text in texts if text.strip()), None))
        transcript.header = replace(transcript.header, title=title)


def _visible_text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text) and not part.ignored)


def _note_outer(transcript: Transcript, source: FoundTranscript) -> None:
    """Name the session that called a sub-agent, whose file only the folder can tell."""
    pattern = source.format.outer_of(source.name)
    outer_paths = [] if pattern is None else sorted(source.path.absolute().parent.parent.glob(pattern))
    if outer_paths:
        (outer, *_) = source.format.read({outer_paths[0].name: file_data(outer_paths[0], _HEAD)})
        metadata = {**(transcript.header.metadata or {}), "parentSession": outer.session_id}
        transcript.header = replace(transcript.header, metadata=metadata)


def _note_origin(transcript: Transcript, source: FoundTranscript, mark: tuple[str, bool] | None) -> None:
    """Name the session that this one was exported or copied from, if it does not do that itself."""
    metadata = transcript.header.metadata or {}
    origin = None
    if mark is not None:
        transcript.copy_of = mark[0] if mark[1] else None
        origin = mark[0] if mark[0] != transcript.session_id else None
    elif source.format.copies_forks and not {"parentSession", "forkedFrom"} & metadata.keys():
        path = origin_of(source.path)
        origin = None if path is None else source.format.read({path.name: file_data(path)})[0].session_id
        origin = None if origin == transcript.session_id else origin  # a backup
    if origin is not None:
        transcript.header = replace(transcript.header, metadata={**metadata, "forkedFrom": origin})


def files_of(source: FoundTranscript, on_damage: OnDamage) -> dict[str, bytes]:
    """The files of a transcript, or the rows of a database as if they were files.

    Raises `BartackError` and `OSError` if the transcript itself cannot be read; `on_damage` gets every other failure.
    """
    if source.path.is_dir():
        return _files_in(source.path, on_damage)
    if source.format.tables and is_database(source.path):
        return rows_of(source.path, source.format.tables, on_damage)
    files = {source.name: file_data(source.path)}
    for ending in source.format.companions:
        companion = source.path.with_name(source.path.stem + ending)
        with _reported(companion, lambda path, error: on_damage(path.name, error_text(error))):
            if _is_regular(companion):
                files[source.name.removesuffix(source.path.suffix) + ending] = companion.read_bytes()
    base = source.format.base_of(files[source.name])
    while base is not None:
        path = next((path for folder in _folders_around(source.path) for path in files_below(str(folder), base)), None)
        name = "" if path is None else path.name.removesuffix(COMPRESSED)
        if path is None or name in files:
            break
        try:
            files[name] = file_data(path) if _is_regular(path) else b""
        except (BartackError, OSError) as error:
            on_damage(base, error_text(error))
            break
        base = source.format.base_of(files[name])
    return files


def files_below(folder: str, pattern: str) -> Iterator[Path]:
    """The files in a folder and below it whose name matches a pattern; a folder that vanishes meanwhile has none."""
    waiting = [folder]
    for place in waiting:
        with suppress(OSError):
            folders, files = _listing(place, Path(place).stat().st_mtime_ns)
            yield from (Path(place, name) for name in files if fnmatchcase(name, pattern))
            waiting += [f"{place}/{name}" for name in folders]


@lru_cache(maxsize=10_000)
def _listing(folder: str, changed: int) -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder, which are the same until it changes."""
    with os.scandir(folder) as directory:
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in directory)
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
        yield from (archive for name in _ARCHIVES if (archive := folder.with_name(name)).is_dir())
