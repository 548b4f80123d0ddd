"""`SandboxedDirectory`: access to the files below one directory, and to nothing outside it.

A path is never passed to the kernel as a whole. It is walked one name at a time: each directory is opened relative to
the previous one and never through a symbolic link, so there is no window between a check and its use in which a link
could be swapped in. ``..`` is resolved in the text of the path, which is exact because links are not followed.

Only regular files are opened. Pipes would block, opening a device can have side effects, and /proc and /sys expose the
secrets of other processes. A file is replaced by renaming a new one over it: readers see the old or the new content,
and a hard link to the file elsewhere keeps the old.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from bartack.nouns.errors import ToolError

__all__ = ["DirectoryEntry", "SandboxedDirectory", "file_version"]


def _flags(names: str) -> int:
    # Some platforms lack some of these flags. The module still imports there; `LocalRuntime` refuses to connect.
    return sum(getattr(os, f"O_{name}", 0) for name in names.split())


_DIRECTORY = _flags("RDONLY DIRECTORY NOFOLLOW CLOEXEC")
_FILE = _flags("RDONLY NOFOLLOW CLOEXEC NONBLOCK NOCTTY")
_NEW_FILE = _flags("WRONLY CREAT EXCL NOFOLLOW CLOEXEC")
_MAX_DEPTH = 64
_MAX_NAMES = 100_000  # in one directory
# Large directories that are rarely worth searching: history, installed packages, caches.
_SKIPPED = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis",
}  # fmt: skip


class DirectoryEntry(Struct, frozen=True):
    """A file, directory or other entry below the root."""

    path: str
    info: os.stat_result

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.info.st_mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)


class SandboxedDirectory:
    """A directory, held open.

    `forbidden` lists files and directories inside it that are out of reach. A forbidden file includes siblings whose
    names start with its name, such as a database's journal.
    """

    def __init__(self, root: Path, forbidden: Sequence[Path] = ()) -> None:
        self.path: Path = root.resolve(strict=True)
        self._forbidden = [path.resolve() for path in forbidden]
        self._kernel_devices = _kernel_devices()
        self.fd: int = os.open(self.path, _DIRECTORY)
        try:
            self._check_device(self.fd, str(root))
        except ToolError:
            self.close()
            raise

    def close(self) -> None:
        """Release the directory."""
        os.close(self.fd)

    # -- paths

    def parts(self, path: str) -> tuple[str, ...]:
        """The names from the root to `path`. Raises `ToolError` if it is outside the root or forbidden."""
        if "\0" in path:
            raise ToolError("The path contains a NUL character.")
        if path.startswith("/"):
            inside = Path(os.path.normpath(path))
            if not inside.is_relative_to(self.path):
                raise ToolError(f"{_shown(path)} is outside {self.path}.")
            path = str(inside.relative_to(self.path))
        names: list[str] = []
        for name in path.split("/"):
            if name == "..":
                if not names:
                    raise ToolError(f"{_shown(path)} is outside {self.path}.")
                names.pop()
            elif name not in {"", "."}:
                names.append(name)
        if self._is_forbidden(tuple(names)):
            raise _not_allowed("/".join(names))
        return tuple(names)

    def _is_forbidden(self, names: tuple[str, ...]) -> bool:
        here = self.path.joinpath(*names)
        return any(
            here.is_relative_to(path) or (here.parent == path.parent and here.name.startswith(path.name))
            for path in self._forbidden
        )

    def _check_device(self, fd: int, path: str) -> os.stat_result:
        info = os.fstat(fd)
        if info.st_dev in self._kernel_devices:
            raise ToolError(f"{_shown(path)} belongs to a kernel file system and is not accessible.")
        return info

    def _check_regular(self, info: os.stat_result, path: str) -> None:
        if stat.S_ISLNK(info.st_mode):
            raise _is_link(path)
        if stat.S_ISDIR(info.st_mode):
            raise ToolError(f"{_shown(path)} is a directory.")
        if not stat.S_ISREG(info.st_mode):
            raise ToolError(f"{_shown(path)} is not a regular file.")
        if (info.st_dev, info.st_ino) in self._forbidden_inodes():
            raise _not_allowed(path)

    def _forbidden_inodes(self) -> Iterator[tuple[int, int]]:
        for path in self._forbidden:
            try:
                info = path.stat()
            except OSError:
                continue
            yield info.st_dev, info.st_ino

    # -- opening

    @contextmanager
    def directory(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """The descriptor of a directory below the root. With `create`, missing directories are created."""
        path = "/".join(names)
        with _tool_errors(path):
            fd = os.dup(self.fd)
        try:
            for name in names:
                with _tool_errors(path):
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(name, dir_fd=fd)
                    child = _open_directory(name, fd)
                os.close(fd)
                fd = child
                self._check_device(fd, path)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def file(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor of a regular file, opened for reading."""
        *parents, name = self._file_parts(path)
        with self.directory(parents) as parent:
            with _tool_errors(path):
                self._check_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
                fd = os.open(name, _FILE, dir_fd=parent)
            try:
                info = self._check_device(fd, path)
                self._check_regular(info, path)  # again, because the name may have been swapped since
                yield fd, info
            finally:
                os.close(fd)

    def is_file(self, names: Sequence[str]) -> bool:
        """Whether these names lead to a regular file."""
        with self.directory(names[:-1]) as parent, _tool_errors("/".join(names)):
            return stat.S_ISREG(os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode)

    def _file_parts(self, path: str) -> tuple[str, ...]:
        names = self.parts(path)
        if not names:
            raise ToolError(f"{_shown(path)} is the working directory, not a file.")
        return names

    # -- writing

    def replace(self, path: str, data: bytes, *, before: os.stat_result | None = None) -> bool:
        """Write a file atomically; True if it is new.

        `before` is the version to be replaced. Raises `ToolError` if the file has changed since.
        """
        *parents, name = self._file_parts(path)
        with self.directory(parents, create=True) as parent, _tool_errors(path):
            old = self._existing(name, parent, path)
            temporary = f".bartack-{secrets.token_hex(8)}.tmp"
            fd = os.open(temporary, _NEW_FILE, 0o666, dir_fd=parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    if old is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if before is not None:
                    now = self._existing(name, parent, path)
                    if now is None or file_version(now) != file_version(before):
                        raise ToolError(f"{_shown(path)} has been changed by another process. Read it again.")
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            return old is None

    def remove(self, path: str) -> None:
        """Delete a file."""
        *parents, name = self._file_parts(path)
        with self.directory(parents) as parent, _tool_errors(path):
            self._check_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
            os.unlink(name, dir_fd=parent)

    def _existing(self, name: str, parent: int, path: str) -> os.stat_result | None:
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_regular(info, path)
        return info

    # -- walking

    def walk(self, path: str, *, recursive: bool) -> Iterator[DirectoryEntry]:
        """The entries of a directory by name, each directory before its content. Links are listed, not followed."""
        names = self.parts(path)
        with self.directory(names) as fd:
            yield from self._walk(fd, names, _MAX_DEPTH if recursive else 0)

    def _walk(self, fd: int, above: tuple[str, ...], depth: int) -> Iterator[DirectoryEntry]:
        with os.scandir(fd) as entries:
            found = sorted(entry.name for entry in islice(entries, _MAX_NAMES))
        for name in found:
            names = (*above, name)
            if self._is_forbidden(names):
                continue
            try:
                entry = DirectoryEntry("/".join(names), os.stat(name, dir_fd=fd, follow_symlinks=False))
            except OSError:
                continue  # deleted in the meantime, or not readable
            yield entry
            if entry.is_directory and depth and name not in _SKIPPED:
                yield from self._walk_below(fd, names, depth)

    def _walk_below(self, fd: int, names: tuple[str, ...], depth: int) -> Iterator[DirectoryEntry]:
        try:
            child = os.open(names[-1], _DIRECTORY, dir_fd=fd)
        except OSError:
            return
        try:
            if os.fstat(child).st_dev not in self._kernel_devices:
                yield from self._walk(child, names, depth - 1)
        finally:
            os.close(child)


def file_version(info: os.stat_result) -> tuple[int, ...]:
    """A value that differs between two versions of a file."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _kernel_devices() -> set[int]:
    devices = {Path(path).stat().st_dev for path in ("/proc", "/sys") if Path(path).is_dir()}
    return devices - {Path("/").stat().st_dev}  # where they are not mounted, they are ordinary directories


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _is_link(name) from None
        raise


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}...")


def _is_link(path: str) -> ToolError:
    return ToolError(f"{_shown(path)} is a symbolic link; links are not followed.")


def _not_allowed(path: str) -> ToolError:
    return ToolError(f"Access to {_shown(path)} is not allowed.")


@contextmanager
def _tool_errors(path: str) -> Iterator[None]:
    """Turn the operating system's errors into messages for the model."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{_shown(path)}: {error.strerror or error}", cause=error) from None
    except ValueError as error:  # lone surrogates and the like
        raise ToolError(f"{_shown(path)} is not a valid path: {error}") from None
