"""Reading, writing, editing and listing files below a confined root, with words that a model can act on."""

import os
import stat
import threading
from fnmatch import fnmatch
from pathlib import PurePosixPath

from bartack.nouns.errors import ToolError
from bartack.nouns.parts import Image
from bartack.tools.confined import ConfinedRoot, Found, identity
from bartack.tools.operations import EditFile, ListFiles, ReadFile, WriteFile
from bartack.tools.output import ToolOutput, image_type
from bartack.tools.storable import storable_text

__all__ = ["FileWork"]

_MAX_IMAGE_BYTES = 5_000_000  # what providers take
_MAX_EDIT_BYTES = 10_000_000
_LOOK_BYTES = 8_192  # a NUL in there says that it is no text
_PIECE = 65_536


class FileWork:
    """The work of one runtime. It remembers what it has shown, so that nothing newer is overwritten unseen."""

    def __init__(self, root: ConfinedRoot, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._seen: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._changing = threading.Lock()  # two edits at once would lose one of them

    # -- reading

    def read(self, wish: ReadFile, stop: threading.Event) -> ToolOutput:
        """Lines of text, or a picture; `ToolError` for other binary files."""
        with self._root.file(wish.path) as (fd, info), os.fdopen(os.dup(fd), "rb") as file:
            start = file.read(_LOOK_BYTES)
            mime_type = image_type(start)
            if mime_type is not None and info.st_size <= _MAX_IMAGE_BYTES:
                file.seek(0)
                return ToolOutput((Image(mime_type, data=file.read(_MAX_IMAGE_BYTES)),), title=wish.path)
            if b"\0" in start:
                raise ToolError(f"{wish.path!r} is a binary file of {info.st_size} bytes")
            file.seek(0)
            lines = _Lines(wish, self._max_bytes)
            while not lines.full and (piece := file.readline(_PIECE)):
                lines.take(piece)
                if stop.is_set():
                    raise ToolError("reading was stopped")
        self._remember(wish.path, info)
        return lines.output()

    def _remember(self, path: str, info: os.stat_result) -> None:
        self._seen[self._root.parts(path)] = identity(info)

    # -- changing

    def write(self, wish: WriteFile) -> ToolOutput:
        """Put the text there; `ToolError` where the file was changed after it was last read here."""
        data = storable_text(wish.text).encode()
        names = self._root.parts(wish.path)
        with self._changing:
            standing = self._standing(wish.path)
            shown = self._seen.get(names)
            if standing is not None and shown is not None and identity(standing) != shown:
                raise ToolError(f"{wish.path!r} was changed after it was read; read it again before writing it")
            new = self._root.replace(wish.path, data, before=standing)
            self._remember_now(wish.path)
        return ToolOutput(f"{'created' if new else 'replaced'} {wish.path} ({len(data)} bytes)", title=wish.path)

    def _standing(self, path: str) -> os.stat_result | None:
        try:
            with self._root.file(path) as (_, info):
                return info
        except ToolError as error:
            if isinstance(error.cause, FileNotFoundError):
                return None
            raise

    def _remember_now(self, path: str) -> None:
        with self._root.file(path) as (_, info):
            self._remember(path, info)

    def edit(self, wish: EditFile) -> ToolOutput:
        """Replace the text; `ToolError` where it is not there, or there more than once."""
        if not wish.old:
            raise ToolError("old is empty: say which text is replaced, or write the whole file")
        if wish.old == wish.new:
            raise ToolError("old and new are the same")
        with self._changing:
            with self._root.file(wish.path) as (fd, info):
                text = _whole_text(fd, info, wish.path)
            old, new = _with_line_ends(text, wish.old, wish.new)
            count = text.count(old)
            if count == 0:
                raise ToolError(f"the text to replace is not in {wish.path!r}; read the file and copy it exactly")
            if count > 1 and not wish.everywhere:
                raise ToolError(
                    f"the text to replace stands in {wish.path!r} {count} times (lines {_lines_of(text, old)});"
                    " give more of what surrounds it, or say everywhere"
                )
            at = text.index(old)
            self._root.replace(wish.path, storable_text(text.replace(old, new)).encode(), before=info)
            self._remember_now(wish.path)
        line = text.count("\n", 0, at) + 1
        return ToolOutput(f"{count} replaced in {wish.path}, the first at line {line}", title=wish.path)

    # -- listing

    def list(self, wish: ListFiles, stop: threading.Event) -> ToolOutput:
        """One name a line: directories end in a slash, files have their size, links are named as such."""
        names: list[str] = []
        for found in self._root.walk(wish.path, recursive=wish.recursive):
            if stop.is_set():
                raise ToolError("listing was stopped")
            if wish.pattern is not None and not _matches(found.path, wish.pattern):
                continue
            if len(names) == wish.limit:
                names.append(f"[the first {wish.limit}; there are more]")
                break
            names.append(_named(found))
        return ToolOutput(storable_text("\n".join(names)) or "(empty)", title=wish.path)


class _Lines:
    """The wished lines of a file, given in pieces of at most a line."""

    def __init__(self, wish: ReadFile, max_bytes: int) -> None:
        self._first, self._last = max(wish.offset, 1), max(wish.offset, 1) + max(wish.limit, 1) - 1
        self._max_bytes = max_bytes
        self._taken: list[bytes] = []
        self._bytes = 0
        self._line = 1
        self.full = False

    def take(self, piece: bytes) -> None:
        if self._line > self._last or self._bytes >= self._max_bytes:
            self.full = True
            return
        if self._line >= self._first:
            self._taken.append(piece)
            self._bytes += len(piece)
        if piece.endswith(b"\n"):
            self._line += 1

    def output(self) -> ToolOutput:
        data = b"".join(self._taken)
        text = data.decode("utf-8", "replace")
        notes = []
        if not self._taken and self._first > 1:
            notes.append(f"[the file ends before line {self._first}]")
        if self.full:
            notes.append(f"[there is more; go on with offset={self._line}]")
        if "\ufffd" in text and "\ufffd".encode() not in data:
            notes.append("[not UTF-8: unreadable bytes are shown as \ufffd]")
        if not notes:
            return ToolOutput(text)
        return ToolOutput("\n".join([text.removesuffix("\n"), *notes] if text else notes))


def _whole_text(fd: int, info: os.stat_result, path: str) -> str:
    if info.st_size > _MAX_EDIT_BYTES:
        raise ToolError(f"{path!r} is too large to edit ({info.st_size} bytes)")
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(_MAX_EDIT_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not UTF-8 text") from None


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Models write plain line ends; in a file that has the other kind they mean that one."""
    if old in text or "\r\n" not in text or "\r" in old:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\n", "\r\n")


def _lines_of(text: str, old: str, most: int = 5) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < most:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(lines) + (", ..." if at >= 0 else "")


def _matches(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(PurePosixPath(path).name, pattern)


def _named(found: Found) -> str:
    if found.is_directory:
        return f"{found.path}/"
    if stat.S_ISLNK(found.info.st_mode):
        return f"{found.path} (link, not followed)"
    return f"{found.path} ({found.info.st_size} bytes)" if found.is_file else f"{found.path} (special)"
