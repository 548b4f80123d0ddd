"""Reads, writes, edits, lists and searches files in a sandboxed directory, with messages a model can act on."""

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import IO

from bartack.nouns.errors import ToolError
from bartack.nouns.parts import Image
from bartack.tools import search_process
from bartack.tools.output import ToolOutput, image_type, valid_text
from bartack.tools.runtime import EditFile, ListFiles, ReadFile, SearchFiles, WriteFile
from bartack.tools.sandbox import DirectoryEntry, SandboxedDirectory, file_version

__all__ = ["FileOperations", "edited"]

_MAX_IMAGE_BYTES = 5_000_000  # the limit of most providers
_MAX_EDIT_BYTES = 10_000_000
_SNIFF_BYTES = 8_192  # a NUL among the first bytes marks a binary file
_READ_BYTES = 65_536
_SEARCH_SECONDS = 30.0
_MAX_SEARCHED_BYTES = 2_000_000  # per file; larger files are usually data
_MAX_SEARCHED_TOTAL = 200_000_000
_MATCH_CHARS = 300  # of a matching line


class FileOperations:
    """The file operations of one runtime.

    It remembers the version of each file it has read, so that a newer version is never overwritten unseen.
    """

    def __init__(self, root: SandboxedDirectory, max_bytes: int) -> None:
        self.root = root
        self._max_bytes = max_bytes
        self._seen: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._write_lock = threading.Lock()  # two concurrent edits would lose one of them

    # -- reading

    def read(self, operation: ReadFile, stop: threading.Event) -> ToolOutput:
        """Lines of text, or an image. Raises `ToolError` for other binary files."""
        path = operation.path
        with self.root.file(path) as (fd, info), os.fdopen(os.dup(fd), "rb") as file:
            start = file.read(_SNIFF_BYTES)
            mime_type = image_type(start)
            if mime_type is not None and info.st_size <= _MAX_IMAGE_BYTES:
                file.seek(0)
                return ToolOutput((Image(mime_type, data=file.read(_MAX_IMAGE_BYTES)),), title=path)
            if b"\0" in start:
                raise ToolError(f"{path!r} is a binary file ({info.st_size} bytes).")
            file.seek(0)
            text = _line_range(file, operation, self._max_bytes, stop)
        self._seen[self.root.parts(path)] = file_version(info)
        return ToolOutput(text)

    # -- changing

    def write(self, operation: WriteFile) -> ToolOutput:
        """Write a file. Raises `ToolError` if it has changed since it was last read."""
        path, data = operation.path, valid_text(operation.text).encode()
        names = self.root.parts(path)
        with self._write_lock:
            existing = self._existing(path)
            seen = self._seen.get(names)
            if existing is not None and seen is not None and file_version(existing) != seen:
                raise ToolError(f"{path!r} has changed since it was read. Read it again before writing it.")
            new = self.root.replace(path, data, before=existing)
            self._remember(path)
        return ToolOutput(f"{'Created' if new else 'Replaced'} {path} ({len(data)} bytes).", title=path)

    def _existing(self, path: str) -> os.stat_result | None:
        try:
            with self.root.file(path) as (_, info):
                return info
        except ToolError as error:
            if isinstance(error.cause, FileNotFoundError):
                return None
            raise

    def _remember(self, path: str) -> None:
        with self.root.file(path) as (_, info):
            self._seen[self.root.parts(path)] = file_version(info)

    def edit(self, operation: EditFile) -> ToolOutput:
        """Replace text in a file. Raises `ToolError` if the text is missing, or ambiguous."""
        path = operation.path
        with self._write_lock:
            with self.root.file(path) as (fd, info):
                text = _whole_text(fd, info, path)
            changed, message = edited(text, operation)
            self.root.replace(path, valid_text(changed).encode(), before=info)
            self._remember(path)
        return ToolOutput(message, title=path)

    # -- listing and searching

    def list(self, operation: ListFiles, stop: threading.Event) -> ToolOutput:
        """One entry per line: directories end in a slash, files have their size, links are marked."""
        lines: list[str] = []
        for entry in self.root.walk(operation.path, recursive=operation.recursive):
            if stop.is_set():
                raise ToolError("Listing was stopped.")
            if operation.pattern is not None and not _matches(entry.path, operation.pattern):
                continue
            if len(lines) == operation.limit:
                lines.append(f"[first {operation.limit} entries; there are more]")
                break
            lines.append(_described(entry))
        return ToolOutput(valid_text("\n".join(lines)) or "(empty)", title=operation.path)

    def search(self, operation: SearchFiles, stop: threading.Event) -> ToolOutput:
        """Matches as ``path:line: text``. Raises `ToolError` for an invalid pattern, or after the time limit."""
        pattern = re.escape(operation.pattern) if operation.literal else operation.pattern
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"Invalid regular expression: {error}") from None
        lines = ["{}:{}: {}".format(*json.loads(line)) for line in self._search(operation, pattern, stop).splitlines()]
        if not lines:
            return ToolOutput("No matches.", metadata={"matches": 0})
        note = f"\n[first {len(lines)} matches; there may be more]" if len(lines) == operation.limit else ""
        return ToolOutput("\n".join(lines) + note, metadata={"matches": len(lines)})

    def _search(self, operation: SearchFiles, pattern: str, stop: threading.Event) -> str:
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
            self._send_files(process.stdin, operation, pattern, stop)
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

    def _send_files(self, pipe: IO[bytes], operation: SearchFiles, pattern: str, stop: threading.Event) -> None:
        query = {"pattern": pattern, "ignoreCase": operation.ignore_case}
        query |= {"limit": operation.limit, "lineChars": _MATCH_CHARS}
        with suppress(BrokenPipeError):  # the process has reached the limit, or was killed
            pipe.write(json.dumps(query).encode() + b"\n")
            for path, data in self._searched_files(operation):
                if stop.is_set():
                    break
                pipe.write(json.dumps([path, len(data)]).encode() + b"\n" + data)
            pipe.close()

    def _searched_files(self, operation: SearchFiles) -> Iterator[tuple[str, bytes]]:
        total = 0
        for path in self._searched_paths(operation.path):
            if operation.files is not None and not _matches(path, operation.files):
                continue
            try:
                with self.root.file(path) as (fd, _):
                    data = os.read(fd, _MAX_SEARCHED_BYTES)
            except ToolError:
                continue  # deleted in the meantime, or not readable
            if b"\0" in data[:_SNIFF_BYTES]:
                continue
            total += len(data)
            if total > _MAX_SEARCHED_TOTAL:
                raise ToolError("Too many files to search. Narrow the search with path or files.")
            if data:
                yield path, data

    def _searched_paths(self, path: str) -> Iterator[str]:
        names = self.root.parts(path)
        if names and self.root.is_file(names):
            yield "/".join(names)
            return
        for entry in self.root.walk(path, recursive=True):
            if entry.is_file and entry.info.st_size <= _MAX_SEARCHED_BYTES:
                yield entry.path


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


def _whole_text(fd: int, info: os.stat_result, path: str) -> str:
    if info.st_size > _MAX_EDIT_BYTES:
        raise ToolError(f"{path!r} is too large to edit ({info.st_size} bytes).")
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(_MAX_EDIT_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not valid UTF-8 text.") from None


def edited(text: str, operation: EditFile) -> tuple[str, str]:
    """The text with the replacement made, and what was done; `ToolError` if the old text is missing, or ambiguous."""
    path = operation.path
    if not operation.old:
        raise ToolError("old is empty. Specify the text to replace, or write the whole file.")
    if operation.old == operation.new:
        raise ToolError("old and new are the same.")
    old, new = _with_line_ends(text, operation.old, operation.new)
    count = text.count(old)
    if count == 0:
        raise ToolError(f"The text to replace was not found in {path!r}. Read the file and copy it exactly.")
    if count > 1 and not operation.everywhere:
        raise ToolError(
            f"The text to replace occurs {count} times in {path!r} (lines {_line_numbers(text, old)})."
            " Include more context, or set everywhere."
        )
    line = text.count("\n", 0, text.index(old)) + 1
    occurrences = "1 occurrence" if count == 1 else f"{count} occurrences, the first"
    return text.replace(old, new), f"Replaced {occurrences} at line {line} of {path}."


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Models write LF; in a file with CRLF line ends they mean those."""
    if old in text or "\r\n" not in text or "\r" in old:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\n", "\r\n")


def _line_numbers(text: str, old: str, most: int = 5) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < most:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(lines) + (", ..." if at >= 0 else "")


def _matches(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(PurePosixPath(path).name, pattern)


def _described(entry: DirectoryEntry) -> str:
    if entry.is_directory:
        return f"{entry.path}/"
    if stat.S_ISLNK(entry.info.st_mode):
        return f"{entry.path} (link, not followed)"
    return f"{entry.path} ({entry.info.st_size} bytes)" if entry.is_file else f"{entry.path} (special file)"
