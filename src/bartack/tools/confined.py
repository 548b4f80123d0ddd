"""`ConfinedRoot`: files below one directory, and no way out of it.

A path is never handed to the kernel as a whole. It is walked one name at a time, each directory opened relative to the
one before and never through a symbolic link, so there is no moment between a check and its use in which a link could be
put in the way. ``..`` is resolved in the text of the path; since no link is followed, that is exact.

Only regular files are opened. Pipes would block, devices do things when they are opened, and /proc and /sys show the
secrets of processes. A file is replaced by renaming a new one over it: a reader sees the old or the new text, and a
hard link to a file elsewhere keeps its content.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

from bartack.nouns.errors import ToolError

__all__ = ["ConfinedRoot", "Found", "identity"]


def _flags(names: str) -> int:
    # The module can be imported where a system lacks some of them; `LocalRuntime` does not connect there.
    return sum(getattr(os, f"O_{name}", 0) for name in names.split())


_DIRECTORY = _flags("RDONLY DIRECTORY NOFOLLOW CLOEXEC")
_FILE = _flags("RDONLY NOFOLLOW CLOEXEC NONBLOCK NOCTTY")
_NEW_FILE = _flags("WRONLY CREAT EXCL NOFOLLOW CLOEXEC")
_MAX_DEPTH = 64
_MAX_NAMES = 100_000  # in one directory
# Large, and not what anyone searches: history, installed packages, caches.
_PASSED_OVER = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis",
}  # fmt: skip


class Found(Struct, frozen=True):
    """Something below the root."""

    path: str
    info: os.stat_result

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.info.st_mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)


class ConfinedRoot:
    """A directory, held open. `forbidden` are files (with what stands beside them under the same first letters, as
    databases have) and directories that may not be touched although they are inside."""

    def __init__(self, root: Path, forbidden: Sequence[Path] = ()) -> None:
        self.path = root.resolve(strict=True)
        self._forbidden = [path.resolve() for path in forbidden]
        self._unreal = _kernel_devices()
        self.fd = os.open(self.path, _DIRECTORY)
        try:
            self._check_real(self.fd, str(root))
        except ToolError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self.fd)

    # -- paths

    def parts(self, path: str) -> tuple[str, ...]:
        """The names from the root to `path`; `ToolError` where it leads outside or is forbidden."""
        if "\0" in path:
            raise ToolError("a path holds no NUL character")
        if path.startswith("/"):
            inside = Path(os.path.normpath(path))
            if not inside.is_relative_to(self.path):
                raise ToolError(f"{_shown(path)} is outside of {self.path}")
            path = str(inside.relative_to(self.path))
        names: list[str] = []
        for name in path.split("/"):
            if name == "..":
                if not names:
                    raise ToolError(f"{_shown(path)} is outside of {self.path}")
                names.pop()
            elif name not in {"", "."}:
                names.append(name)
        self._check_allowed(tuple(names))
        return tuple(names)

    def _check_allowed(self, names: tuple[str, ...]) -> None:
        if self.is_forbidden(names):
            raise ToolError(f"{_shown('/'.join(names))} may not be touched")

    def is_forbidden(self, names: tuple[str, ...]) -> bool:
        """Whether it is one of the forbidden files or directories, or inside of one."""
        here = self.path.joinpath(*names)
        return any(
            here.is_relative_to(path) or (here.parent == path.parent and here.name.startswith(path.name))
            for path in self._forbidden
        )

    def _check_real(self, fd: int, path: str) -> os.stat_result:
        info = os.fstat(fd)
        if info.st_dev in self._unreal:
            raise ToolError(f"{_shown(path)} is the kernel's, not a file")
        return info

    def _check_regular(self, info: os.stat_result, path: str) -> None:
        if stat.S_ISLNK(info.st_mode):
            raise ToolError(f"{_shown(path)} is a symbolic link; links are not followed")
        if stat.S_ISDIR(info.st_mode):
            raise ToolError(f"{_shown(path)} is a directory")
        if not stat.S_ISREG(info.st_mode):
            raise ToolError(f"{_shown(path)} is not a regular file")
        if any((info.st_dev, info.st_ino) == known for known in self._forbidden_inodes()):
            raise ToolError(f"{_shown(path)} may not be touched")

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
        """The descriptor of a directory below the root; with `create` it is made where it is missing."""
        path = "/".join(names)
        with _told(path):
            fd = os.dup(self.fd)
        try:
            for name in names:
                with _told(path):
                    if create:
                        _make_directory(name, fd)
                    deeper = _open_directory(name, fd)
                os.close(fd)
                fd = deeper
                self._check_real(fd, path)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def file(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor of a regular file, for reading."""
        *parents, name = self._file_parts(path)
        with self.directory(parents) as parent:
            with _told(path):
                self._check_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
                fd = os.open(name, _FILE, dir_fd=parent)
            try:
                info = self._check_real(fd, path)
                self._check_regular(info, path)  # what was opened, whatever stood there a moment ago
                yield fd, info
            finally:
                os.close(fd)

    def is_file(self, names: Sequence[str]) -> bool:
        """Whether a regular file stands there."""
        with self.directory(names[:-1]) as parent, _told("/".join(names)):
            return stat.S_ISREG(os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode)

    def _file_parts(self, path: str) -> tuple[str, ...]:
        names = self.parts(path)
        if not names:
            raise ToolError("the root is a directory")
        return names

    # -- writing

    def replace(self, path: str, data: bytes, *, before: os.stat_result | None = None) -> bool:
        """Put a file with this content there; whether it is new. `before` is the file that it is meant to replace:
        `ToolError` where another stands there by now."""
        *parents, name = self._file_parts(path)
        with self.directory(parents, create=True) as parent, _told(path):
            old = self._standing(name, parent, path)
            temporary = f".bartack-{secrets.token_hex(8)}.tmp"
            fd = os.open(temporary, _NEW_FILE, 0o666, dir_fd=parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    if old is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if before is not None and not _same(before, self._standing(name, parent, path)):
                    raise ToolError(f"{_shown(path)} was changed meanwhile; read it again")
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            return old is None

    def _standing(self, name: str, parent: int, path: str) -> os.stat_result | None:
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_regular(info, path)
        return info

    # -- walking

    def walk(self, path: str, *, recursive: bool) -> Iterator[Found]:
        """What is in a directory, by name; a directory stands before what is in it. Links are named, not followed."""
        names = self.parts(path)
        with self.directory(names) as fd:
            yield from self._walk(fd, names, _MAX_DEPTH if recursive else 0)

    def _walk(self, fd: int, above: tuple[str, ...], depth: int) -> Iterator[Found]:
        with os.scandir(fd) as entries:
            found = sorted(entry.name for entry in islice(entries, _MAX_NAMES))
        for name in found:
            names = (*above, name)
            if self.is_forbidden(names):
                continue
            try:
                one = Found("/".join(names), os.stat(name, dir_fd=fd, follow_symlinks=False))
            except OSError:
                continue  # gone, or not ours to see
            yield one
            if one.is_directory and depth and name not in _PASSED_OVER:
                yield from self._walk_below(fd, names, depth)

    def _walk_below(self, fd: int, names: tuple[str, ...], depth: int) -> Iterator[Found]:
        try:
            below = os.open(names[-1], _DIRECTORY, dir_fd=fd)
        except OSError:
            return
        try:
            if os.fstat(below).st_dev not in self._unreal:
                yield from self._walk(below, names, depth - 1)
        finally:
            os.close(below)


def _kernel_devices() -> set[int]:
    devices = {Path(path).stat().st_dev for path in ("/proc", "/sys") if Path(path).is_dir()}
    return devices - {Path("/").stat().st_dev}  # where they are not mounted they are ordinary directories


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            raise ToolError(f"{_shown(name)} is a symbolic link; links are not followed") from None
        raise


def _make_directory(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        pass


def _same(before: os.stat_result, now: os.stat_result | None) -> bool:
    return now is not None and identity(before) == identity(now)


def identity(info: os.stat_result) -> tuple[int, ...]:
    """What tells one state of a file from the next."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}...")


@contextmanager
def _told(path: str) -> Iterator[None]:
    """The system's refusals as words for a model."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{_shown(path)}: {error.strerror or error}", cause=error) from None
    except ValueError as error:  # half characters and the like
        raise ToolError(f"{_shown(path)} is not a path: {error}") from None
