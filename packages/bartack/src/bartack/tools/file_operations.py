"""Reads, writes, edits, lists and searches files in a sandboxed directory, with messages a model can act on."""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import IO, NamedTuple

from bartack.nouns.errors import ToolError
from bartack.nouns.parts import Image
from bartack.tools import search_process
from bartack.tools.edit_matching import loose_matches, nearest_lines, reindented
from bartack.tools.globs import matches_glob, spans_directories
from bartack.tools.notebooks import as_cells, is_notebook, with_cells
from bartack.tools.output import ToolOutput, image_type, valid_text
from bartack.tools.preview import PreviewChanged
from bartack.tools.runtime import EditFile, ListFiles, ReadFile, Replacement, SearchFiles, WriteFile
from bartack.tools.sandbox import ABSENT, DirectoryEntry, SandboxedDirectory, file_version

__all__ = ["FileContent", "FileOperations", "changed_text", "content_of", "stored_content"]

_MAX_IMAGE_BYTES = 5_000_000  # the limit of most providers
_MAX_EDIT_BYTES = 10_000_000
_SNIFF_BYTES = 8_192  # a NUL among the first bytes marks a binary file
_READ_BYTES = 65_536
_SEARCH_SECONDS = 30.0
_MAX_SEARCHED_BYTES = 2_000_000  # per file; larger files are usually data
_MAX_SEARCHED_TOTAL = 200_000_000
_MATCH_CHARS = 300  # how much of a matching line is shown
_NAMED_EXAMPLES = 5  # files named among those left out


class FileContent(NamedTuple):
    """What a change is compared with: the digest of a file, and its text, or why it is not known."""

    digest: str  # SHA-256, or `ABSENT`
    text: str | None = None
    note: str | None = None


class FileOperations:
    """The file operations of one runtime.

    It remembers the version of each file it has read, so that a newer version is never overwritten unseen. The
    outputs of commands are in a folder beside the root, which can be read by its absolute path.
    """

    def __init__(self, root: SandboxedDirectory, max_bytes: int) -> None:
        self.root = root
        self._outputs: SandboxedDirectory | None = None
        self._max_bytes = max_bytes
        self._seen: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._write_lock = threading.Lock()  # two concurrent edits would lose one of them

    def output_folder(self) -> Path:
        """The folder for the outputs of commands, which is created when it is first needed."""
        with self._write_lock:
            if self._outputs is None:
                self._outputs = SandboxedDirectory(Path(tempfile.mkdtemp(prefix="bartack-output-")))
            return self._outputs.path

    def close(self) -> None:
        """Release the root, and delete the outputs of commands."""
        self.root.close()
        if self._outputs is not None:
            self._outputs.close()
            rmtree(self._outputs.path, ignore_errors=True)

    def _reach(self, path: str) -> SandboxedDirectory:
        """The directory that a path to be read is in."""
        outputs = self._outputs
        return outputs if outputs is not None and path.startswith(f"{outputs.path}/") else self.root

    # -- reading

    def read(self, operation: ReadFile, stop: threading.Event) -> ToolOutput:
        """Lines of text, or an image. Raises `ToolError` for other binary files."""
        path, root = operation.path, self._reach(operation.path)
        with root.file(path) as (fd, info), os.fdopen(os.dup(fd), "rb") as file:
            start = file.read(_SNIFF_BYTES)
            mime_type = image_type(start)
            if mime_type is not None and info.st_size <= _MAX_IMAGE_BYTES:
                file.seek(0)
                return ToolOutput((Image(mime_type, data=file.read(_MAX_IMAGE_BYTES)),), title=path)
            if b"\0" in start:
                raise ToolError(f"{path!r} is a binary file ({info.st_size} bytes).")
            file.seek(0)
            cells = _notebook_cells(file, info) if is_notebook(path) else None
            lines = file if cells is None else BytesIO(cells.encode())
            text = _line_range(lines, operation, self._max_bytes, stop)
        if root is self.root:
            self._seen[root.parts(path)] = file_version(info)
        return ToolOutput(text)

    # -- changing

    def content(self, operation: WriteFile | EditFile) -> FileContent:
        """What the operation would replace. Raises `ToolError` if the operation cannot succeed."""
        path = operation.path
        if isinstance(operation, EditFile):
            with self.root.file(path) as (fd, info):
                return content_of(_whole_text(fd, info, path).encode())
        self._check_unread_changes(path)
        return stored_content(self.root, path)

    def write(self, operation: WriteFile, expected: str | None = None) -> ToolOutput:
        """Write a file. Raises `ToolError` if it has changed since it was last read, and `PreviewChanged` if its
        content is not the `expected` one, which is named by its digest."""
        path, data = operation.path, valid_text(operation.text).encode()
        with self._write_lock:
            is_new = self.root.replace(path, data, expected=self._expected_content(operation, expected).digest)
            self._remember(path)
        return ToolOutput(f"{'Created' if is_new else 'Replaced'} {path} ({len(data)} bytes).", title=path)

    def _check_unread_changes(self, path: str) -> None:
        """Raise `ToolError` if the file has changed since it was last read."""
        existing, last_version = self._existing(path), self._seen.get(self.root.parts(path))
        if existing is not None and last_version is not None and file_version(existing) != last_version:
            raise ToolError(f"{path!r} has changed since it was read. Read it again before writing it.")

    def _expected_content(self, operation: WriteFile | EditFile, expected: str | None) -> FileContent:
        content = self.content(operation)
        if expected not in (None, content.digest):
            raise PreviewChanged(f"{operation.path!r} has changed since the call was approved. Read it again.")
        return content

    def _existing(self, path: str) -> os.stat_result | None:
        try:
            with self.root.file(path) as (_, info):
                return info
        except ToolError as error:
            if isinstance(error.cause, FileNotFoundError):
                return None
            raise

    def _remember(self, path: str) -> None:
        """Note the version that was just written, unless another process has deleted the file since."""
        info = self._existing(path)
        if info is not None:
            self._seen[self.root.parts(path)] = file_version(info)

    def edit(self, operation: EditFile, expected: str | None = None) -> ToolOutput:
        """Replace text in a file. Raises `ToolError` if the text is missing, or ambiguous, and `PreviewChanged` if its
        content is not the `expected` one, which is named by its digest."""
        path = operation.path
        with self._write_lock:
            content = self._expected_content(operation, expected)
            changed, message = changed_text(operation, content)
            self.root.replace(path, changed.encode(), expected=content.digest)
            self._remember(path)
        return ToolOutput(message, title=path)

    # -- listing and searching

    def list(self, operation: ListFiles, stop: threading.Event) -> ToolOutput:
        """One entry per line: directories end in a slash, files have their size, links are marked."""
        lines: list[str] = []
        ignored = _Ignored()
        pattern = None if operation.pattern is None else self._relative(operation.pattern)
        recursive = operation.recursive or (pattern is not None and spans_directories(pattern))
        is_ignoring = recursive and not operation.include_ignored
        for entry in self.root.walk(operation.path, recursive=recursive, ignoring=is_ignoring):
            if stop.is_set():
                raise ToolError("Listing was stopped.")
            if entry.is_ignored:
                ignored.add(entry)
                continue
            if pattern is not None and not self._matches(entry.path, pattern, operation.path):
                continue
            if len(lines) == operation.limit:
                lines.append(f"[first {operation.limit} entries; there are more]")
                break
            lines.append(_described(entry))
        empty = "(empty)" if pattern is None else "No matches."
        return ToolOutput("\n".join([valid_text("\n".join(lines)) or empty, *ignored.notes()]), title=operation.path)

    def search(self, operation: SearchFiles, stop: threading.Event) -> ToolOutput:
        """Matches as ``path:line: text``. Raises `ToolError` for an invalid pattern, or after the time limit."""
        pattern = re.escape(operation.pattern) if operation.literal else operation.pattern
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"Invalid regular expression: {error}") from None
        scope = _SearchScope()
        output = self._search(operation, pattern, scope, stop)
        lines = ["{}:{}: {}".format(*json.loads(line)) for line in output.splitlines()]
        matches = min(len(lines), operation.limit)
        notes = [] if len(lines) == matches else [f"[first {matches} matches; there are more]"]
        text = "\n".join([*(lines[:matches] or ["No matches."]), *notes, *scope.notes()])
        return ToolOutput(text, metadata={"matches": matches})

    def _relative(self, pattern: str) -> str:
        """A pattern with an absolute path, as seen from the root."""
        return pattern.removeprefix(f"{self.root.path}/")

    def _matches(self, path: str, pattern: str, start: str) -> bool:
        """Whether a file matches the pattern, seen from the root or from the directory that is searched."""
        above = self._reach(start).parts(start)
        return matches_glob(pattern, path, "/".join(PurePosixPath(path).parts[len(above) :]) or path)

    def _search(self, operation: SearchFiles, pattern: str, scope: "_SearchScope", stop: threading.Event) -> str:
        """The output of the search process."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", search_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
        ended, killed = threading.Event(), threading.Event()

        def kill_when_late() -> None:
            deadline = time.monotonic() + _SEARCH_SECONDS
            while time.monotonic() < deadline and not stop.is_set():
                if ended.wait(0.05):
                    return
            killed.set()
            process.kill()

        watchdog = threading.Thread(target=kill_when_late, daemon=True)
        watchdog.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            self._send_files(process.stdin, operation, pattern, scope, stop)
            output = process.stdout.read()
            process.wait()
        finally:
            ended.set()
            watchdog.join()
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
        if killed.is_set():
            raise ToolError(
                "The search was stopped." if stop.is_set() else f"The search timed out after {_SEARCH_SECONDS:g} s."
            )
        return output.decode()

    def _send_files(
        self, pipe: IO[bytes], operation: SearchFiles, pattern: str, scope: "_SearchScope", stop: threading.Event
    ) -> None:
        # One match more than asked for shows whether there are more.
        query = {"pattern": pattern, "ignoreCase": operation.ignore_case}
        query |= {"limit": operation.limit + 1, "lineChars": _MATCH_CHARS}
        with suppress(BrokenPipeError):  # the process has reached the limit, or was killed
            pipe.write(json.dumps(query).encode() + b"\n")
            for path, data in self._searched_files(operation, scope):
                if stop.is_set():
                    break
                pipe.write(json.dumps([path, len(data)]).encode() + b"\n" + data)
            pipe.close()

    def _searched_files(self, operation: SearchFiles, scope: "_SearchScope") -> Iterator[tuple[str, bytes]]:
        total = 0
        pattern = None if operation.files is None else self._relative(operation.files)
        for path, size in self._searched_paths(operation, scope):
            if pattern is not None and not self._matches(path, pattern, operation.path):
                continue
            if size > _MAX_SEARCHED_BYTES:
                scope.large.append(path)
                continue
            try:
                with self._reach(operation.path).file(path) as (fd, _):
                    data = os.read(fd, _MAX_SEARCHED_BYTES)
            except ToolError:
                continue  # deleted in the meantime, or not readable
            if b"\0" in data[:_SNIFF_BYTES]:
                continue
            total += len(data)
            if total > _MAX_SEARCHED_TOTAL:
                scope.ended_at = path
                return
            if data:
                yield path, data

    def _searched_paths(self, operation: SearchFiles, scope: "_SearchScope") -> Iterator[tuple[str, int]]:
        root = self._reach(operation.path)
        names = root.parts(operation.path)
        if names and root.is_file(names):
            yield "/".join(names), 0
            return
        for entry in root.walk(operation.path, recursive=True, ignoring=not operation.include_ignored):
            if entry.is_ignored:
                scope.ignored.add(entry)
            elif entry.is_file:
                yield entry.path, entry.info.st_size


class _Ignored:
    """The entries that were left out because of .gitignore, for a note to the model."""

    def __init__(self) -> None:
        self._count = 0
        self._examples: list[str] = []

    def add(self, entry: DirectoryEntry) -> None:
        self._count += 1
        if len(self._examples) < _NAMED_EXAMPLES:
            self._examples.append(f"{entry.path}/" if entry.is_directory else entry.path)

    def notes(self) -> Iterator[str]:
        if self._count:
            names = _named(self._examples, self._count)
            yield f"[ignored by .gitignore or as a cache: {names}; include_ignored includes them]"


class _SearchScope:
    """What a search left out, for notes to the model: a file that was not searched must not seem to have no matches."""

    def __init__(self) -> None:
        self.ignored = _Ignored()
        self.large: list[str] = []
        self.ended_at: str | None = None

    def notes(self) -> Iterator[str]:
        if self.large:
            names = _named(self.large[:_NAMED_EXAMPLES], len(self.large))
            yield f"[not searched, larger than {_MAX_SEARCHED_BYTES:,} bytes: {names}]"
        if self.ended_at is not None:
            limit = f"{_MAX_SEARCHED_TOTAL:,} bytes"
            yield f"[stopped after {limit}, before {valid_text(self.ended_at)}; narrow the search with path or files]"
        yield from self.ignored.notes()


def _named(examples: Sequence[str], count: int) -> str:
    more = f" and {count - len(examples):,} more" if count > len(examples) else ""
    return valid_text(", ".join(examples)) + more


def _line_range(file: IO[bytes], operation: ReadFile, max_bytes: int, stop: threading.Event) -> str:
    """The requested lines of a file, with notes about what is missing."""
    first = max(operation.offset, 1)
    last = first + max(operation.limit, 1) - 1
    data, line, notes = bytearray(), 1, []
    while piece := file.readline(_READ_BYTES):
        if line > last or len(data) >= max_bytes:
            notes.append(f"[more lines follow; continue with offset={line}]")
            break
        if line >= first:
            data += piece
        line += piece.endswith(b"\n")
        if stop.is_set():
            raise ToolError("Reading was stopped.")
    text = data.decode("utf-8", "replace")
    if not data and first > 1:
        notes.append(f"[the file ends before line {first}]")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        notes.append("[not valid UTF-8: invalid bytes are shown as \ufffd]")
    if not notes:
        return text
    return "\n".join([text.removesuffix("\n"), *notes] if text else notes)


def _notebook_cells(file: IO[bytes], info: os.stat_result) -> str | None:
    """The cells of a notebook as text; None if the file has to be read as it is."""
    data = file.read(_MAX_EDIT_BYTES) if info.st_size <= _MAX_EDIT_BYTES else b""
    file.seek(0)
    return as_cells(data.decode("utf-8", "replace"))


def _whole_text(fd: int, info: os.stat_result, path: str) -> str:
    if info.st_size > _MAX_EDIT_BYTES:
        raise ToolError(f"{path!r} is too large to edit ({info.st_size} bytes).")
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(_MAX_EDIT_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not valid UTF-8 text.") from None


def stored_content(root: SandboxedDirectory, path: str) -> FileContent:
    """The content of a file, which need not exist."""
    try:
        with root.file(path) as (fd, info), os.fdopen(os.dup(fd), "rb") as file:
            if info.st_size <= _MAX_EDIT_BYTES:
                return content_of(file.read())
            note = f"the existing file is too large to compare ({info.st_size} bytes)"
            return FileContent(file_digest(file, "sha256").hexdigest(), note=note)
    except ToolError as error:
        if isinstance(error.cause, FileNotFoundError):
            return FileContent(ABSENT)
        raise


def content_of(data: bytes) -> FileContent:
    """The content of a file."""
    digest = sha256(data).hexdigest()
    try:
        return FileContent(digest, data.decode())
    except UnicodeDecodeError:
        return FileContent(digest, note="the existing file is not UTF-8 text")


def changed_text(operation: WriteFile | EditFile, content: FileContent) -> tuple[str, str]:
    """The text that the operation leaves, and what was done; `ToolError` if it cannot be done."""
    if isinstance(operation, WriteFile):
        text = valid_text(operation.text)
        return text, f"Wrote {operation.path} ({len(text.encode())} bytes)."
    if content.text is None:
        raise ToolError(f"{operation.path!r} cannot be edited: {content.note or 'it does not exist'}.")
    cells = as_cells(content.text) if is_notebook(operation.path) else None
    text, message = edited(content.text if cells is None else cells, operation)
    if cells is not None:
        changed = with_cells(content.text, text)
        if changed is None:
            raise ToolError("Each cell of a notebook starts with a line such as # %% [code] or # %% [markdown].")
        text = changed
    return valid_text(text), message


def edited(text: str, operation: EditFile) -> tuple[str, str]:
    """The text with all replacements made, and what was done; `ToolError` if one of them cannot be made."""
    replacements = [Replacement(operation.old, operation.new, operation.everywhere), *operation.edits]
    messages = []
    for number, replacement in enumerate(replacements, 1):
        try:
            text, message = _replaced(text, replacement, operation.path)
        except ToolError as error:
            if len(replacements) == 1:
                raise
            raise ToolError(f"Edit {number} of {len(replacements)}: {error.message} Nothing was changed.") from None
        messages.append(message)
    return text, "\n".join(messages)


def _replaced(text: str, replacement: Replacement, path: str) -> tuple[str, str]:
    if not replacement.old:
        raise ToolError("old is empty. Specify the text to replace, or write the whole file.")
    if replacement.old == replacement.new:
        raise ToolError("old and new are the same.")
    target, new_text = _with_line_ends(text, replacement.old, replacement.new)
    count, note = text.count(target), ""
    if count == 0:
        spans = loose_matches(text, target)
        if len(spans) != 1:
            raise ToolError(_missing_text(text, target, path, len(spans)))
        start, end, new_text = spans[0].start, spans[0].end, reindented(new_text, target, spans[0].text)
        note = f" The whitespace of old differed; the lines are now:\n{new_text}"
        line = text.count("\n", 0, start) + 1
        return text[:start] + new_text + text[end:], f"Replaced 1 occurrence at line {line} of {path}.{note}"
    if count > 1 and not replacement.everywhere:
        raise ToolError(
            f"The text to replace occurs {count} times in {path!r} (lines {_line_numbers(text, target)})."
            " Include more context, or set everywhere."
        )
    line = text.count("\n", 0, text.index(target)) + 1
    occurrences = "1 occurrence" if count == 1 else f"{count} occurrences, the first"
    return text.replace(target, new_text), f"Replaced {occurrences} at line {line} of {path}."


def _missing_text(text: str, target: str, path: str, loose_count: int) -> str:
    """Why nothing was replaced, with what the model may have meant."""
    if loose_count > 1:
        return f"The text to replace was not found in {path!r}; {loose_count} places differ from it only in whitespace."
    message = f"The text to replace was not found in {path!r}. Read the file and copy it exactly."
    nearest = nearest_lines(text, target)
    return message if nearest is None else f"{message} The nearest lines, from line {nearest[0]}:\n{nearest[1]}"


def _with_line_ends(text: str, target: str, replacement: str) -> tuple[str, str]:
    """Models write LF; in a file with CRLF line ends they mean those."""
    if target in text or "\r\n" not in text or "\r" in target:
        return target, replacement
    return target.replace("\n", "\r\n"), replacement.replace("\n", "\r\n")


def _line_numbers(text: str, target: str, limit: int = 5) -> str:
    lines: list[str] = []
    position = text.find(target)
    while position >= 0 and len(lines) < limit:
        lines.append(str(text.count("\n", 0, position) + 1))
        position = text.find(target, position + len(target))
    return ", ".join(lines) + (", ..." if position >= 0 else "")


def _described(entry: DirectoryEntry) -> str:
    if entry.is_directory:
        return f"{entry.path}/"
    if stat.S_ISLNK(entry.info.st_mode):
        return f"{entry.path} (link, not followed)"
    return f"{entry.path} ({entry.info.st_size} bytes)" if entry.is_file else f"{entry.path} (special file)"
