"""`SandboxedDirectory`: access to the files below one directory, and to nothing outside it.

A path is never passed to the kernel as a whole. It is walked one name at a time: each directory is opened relative to
the previous one and never through a symbolic link, so there is no window between a check and its use in which a link
could be swapped in. ``..`` is resolved in the text of the path, which is exact because links are not followed.

Only regular files are opened. Pipes would block, opening a device can have side effects, and /proc and /sys expose the
secrets of other processes. A file is replaced by renaming a new one over it: readers see the old or the new content,
and a hard link to the file elsewhere keeps the old.

Other programs write to the same files and know nothing of our locks, and a rename would silently discard what they
wrote a moment before. So a file that is to be replaced only if it has a certain content is exchanged with the new one
in a single step. The old file then has a name that nobody else knows: once no program has it open for writing, which a
lease on it shows, its content is final. If that is not the expected content, the files are exchanged back. A file that
must not exist yet is linked to its name, which fails if there is one. Where the system has no such exchange, the
content is compared immediately before the rename.
"""

import ctypes
import errno
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import IO

from msgspec import Struct

from bartack.nouns.errors import ToolError
from bartack.tools.globs import IgnoreRule, is_ignored, parse_ignore_rules
from bartack.tools.preview import PreviewChanged

if sys.platform == "linux":
    import fcntl

__all__ = ["ABSENT", "DirectoryEntry", "SandboxedDirectory", "file_version", "read_regular_file"]


def _flags(names: str) -> int:
    # Some platforms lack some of these flags. The module still imports there; `LocalRuntime` refuses to connect.
    return sum(getattr(os, f"O_{name}", 0) for name in names.split())


_DIRECTORY = _flags("RDONLY DIRECTORY NOFOLLOW CLOEXEC")
_FILE = _flags("RDONLY NOFOLLOW CLOEXEC NONBLOCK NOCTTY")
_NEW_FILE = _flags("WRONLY CREAT EXCL NOFOLLOW CLOEXEC")
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}  # what systems and file systems answer that cannot do it
_LOOKUP_S = 0.002  # between looking a file up and opening it in the kernel; measured: microseconds
ABSENT = "absent"  # instead of the digest of a file: there is none
_MAX_DEPTH = 64
_MAX_NAMES = 100_000  # the most entries listed of one directory
_HISTORY = {".git", ".hg", ".svn"}  # never walked through
# Large directories that are rarely worth searching, also where no .gitignore names them: installed packages, caches.
_IGNORED = {
    ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache",
    ".hypothesis",
}  # fmt: skip
_MAX_IGNORE_FILE_BYTES = 1_000_000


class DirectoryEntry(Struct, frozen=True):
    """A file, directory or other entry below the root."""

    path: str
    info: os.stat_result
    is_ignored: bool = False  # a rule of .gitignore applies, or it is a cache; its content is left out

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
        self._root_names = self.path.parts
        self._forbidden_names = [path.parts for path in self._forbidden]
        self._git_top = next((top for top in (self.path, *self.path.parents) if (top / ".git").exists()), None)
        outer = "" if self._git_top in (None, self.path) else str(self.path.relative_to(self._git_top))
        self._outer = f"{outer}/" if outer else ""  # the root as seen from the top of its git work tree
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
            raise _not_allowed_error("/".join(names))
        return tuple(names)

    def _is_forbidden(self, names: tuple[str, ...]) -> bool:
        names = (*self._root_names, *names)
        for path in self._forbidden_names:
            size = len(path)
            if names[:size] == path or (
                len(names) == size and names[:-1] == path[:-1] and names[-1].startswith(path[-1])
            ):
                return True
        return False

    def _check_device(self, fd: int, path: str) -> os.stat_result:
        info = os.fstat(fd)
        if info.st_dev in self._kernel_devices:
            raise ToolError(f"{_shown(path)} belongs to a kernel file system and is not accessible.")
        return info

    def _check_regular(self, info: os.stat_result, path: str) -> None:
        if stat.S_ISLNK(info.st_mode):
            raise _link_error(path)
        if stat.S_ISDIR(info.st_mode):
            raise ToolError(f"{_shown(path)} is a directory.")
        if not stat.S_ISREG(info.st_mode):
            raise ToolError(f"{_shown(path)} is not a regular file.")
        if (info.st_dev, info.st_ino) in self._forbidden_inodes():
            raise _not_allowed_error(path)

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

    def replace(self, path: str, data: bytes, *, expected: str | None = None) -> bool:
        """Write a file atomically; True if it is new.

        `expected` is the SHA-256 of the content to be replaced, or `ABSENT`. Raises `PreviewChanged` if the file has
        another content, and leaves it as it is.
        """
        *parents, name = self._file_parts(path)
        with self.directory(parents, create=True) as parent, _tool_errors(path):
            existing = self._existing(name, parent, path)
            temporary = f".bartack-{secrets.token_hex(8)}.tmp"
            fd = os.open(temporary, _NEW_FILE, 0o666, dir_fd=parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    if existing is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(existing.st_mode) & 0o777)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if not _put(temporary, name, parent, expected, sha256(data).hexdigest()):
                    raise PreviewChanged(f"{_shown(path)} has been changed by another process. Read it again.")
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
            return existing is None

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

    def walk(self, path: str, *, recursive: bool, ignoring: bool = False) -> Iterator[DirectoryEntry]:
        """The entries of a directory by name, each directory before its content. Links are listed, not followed.

        With `ignoring`, entries that .gitignore excludes are marked, and not entered. The directory itself is
        entered in any case.
        """
        names = self.parts(path)
        with self.directory(names) as fd:
            rules = self._rules_above(names) if ignoring else None
            yield from self._walk(fd, names, _MAX_DEPTH if recursive else 0, rules)

    def _walk(
        self, fd: int, above: tuple[str, ...], depth: int, rules: tuple[IgnoreRule, ...] | None
    ) -> Iterator[DirectoryEntry]:
        try:
            with os.scandir(fd) as entries:
                entry_names = sorted(entry.name for entry in islice(entries, _MAX_NAMES))
        except OSError:
            return  # deleted since it was opened
        if rules is not None and ".gitignore" in entry_names:
            rules += self._own_rules(above)
        for name in entry_names:
            names = (*above, name)
            if self._is_forbidden(names):
                continue
            try:
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # deleted in the meantime, or not readable
            path, is_directory = "/".join(names), stat.S_ISDIR(info.st_mode)
            ignored = rules is not None and (
                (is_directory and name in _IGNORED)
                or is_ignored(rules, f"{self._outer}{path}", is_directory=is_directory)
            )
            yield DirectoryEntry(path, info, ignored)
            if is_directory and depth and not ignored and name not in _HISTORY:
                yield from self._walk_below(fd, names, depth, rules)

    def _walk_below(
        self, fd: int, names: tuple[str, ...], depth: int, rules: tuple[IgnoreRule, ...] | None
    ) -> Iterator[DirectoryEntry]:
        try:
            child = os.open(names[-1], _DIRECTORY, dir_fd=fd)
        except OSError:
            return
        try:
            if os.fstat(child).st_dev not in self._kernel_devices:
                yield from self._walk(child, names, depth - 1, rules)
        finally:
            os.close(child)

    def _rules_above(self, names: tuple[str, ...]) -> tuple[IgnoreRule, ...]:
        """The rules that apply to a directory from those above it, up to the top of the git work tree."""
        rules: list[IgnoreRule] = []
        if self._git_top is not None:
            folders = [self._git_top / ".git/info/exclude"]
            outer = self.path.relative_to(self._git_top).parts
            folders += [self._git_top.joinpath(*outer[:depth], ".gitignore") for depth in range(len(outer))]
            for depth, file in enumerate(folders, -1):
                rules += parse_ignore_rules(_outer_text(file), "/".join(outer[: max(depth, 0)]))
        for depth in range(len(names)):
            rules += self._own_rules(names[:depth])
        return tuple(rules)

    def _own_rules(self, names: tuple[str, ...]) -> tuple[IgnoreRule, ...]:
        """The rules of the .gitignore in a directory below the root; none if there is no such file."""
        try:
            with self.file("/".join((*names, ".gitignore"))) as (fd, _):
                text = os.read(fd, _MAX_IGNORE_FILE_BYTES).decode("utf-8", "replace")
        except ToolError:
            return ()
        return tuple(parse_ignore_rules(text, f"{self._outer}{'/'.join(names)}".rstrip("/")))


def _outer_text(file: Path) -> str:
    data = read_regular_file(file, _MAX_IGNORE_FILE_BYTES)
    return "" if data is None else data.decode("utf-8", "replace")


def read_regular_file(path: Path, max_bytes: int) -> bytes | None:
    """The beginning of a file, also through links; None if it cannot be read, or is no regular file. A pipe would
    block, and a device might never end."""
    try:
        descriptor = os.open(path, _flags("RDONLY CLOEXEC NONBLOCK NOCTTY"))
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(descriptor)


def file_version(info: os.stat_result) -> tuple[int, ...]:
    """A value that differs between two versions of a file."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _put(temporary: str, name: str, parent: int, expected: str | None, own: str) -> bool:
    """Give the temporary file its name; False if the file with that name does not have the expected content.

    `own` is the digest of the temporary file. What has the temporary name afterwards is no longer needed.
    """
    if expected is None:
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        return True
    try:
        if expected == ABSENT:
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            return True
        if _exchange(temporary, name, parent):
            return _settle(temporary, name, parent, expected, own)
        is_expected = _final_digest(name, parent) == expected
        if is_expected:
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        return is_expected
    except (FileExistsError, FileNotFoundError):
        return False


def _settle(temporary: str, name: str, parent: int, expected: str, own: str) -> bool:
    """Exchange the files back and forth until the one with the temporary name can be discarded: it has the content
    that is to be replaced, or that it had when it was last exchanged, so that the other one is newer."""
    discardable, visible, is_put = expected, own, True
    while True:
        replaced = _final_digest(temporary, parent)
        if replaced == discardable:
            return is_put
        discardable, visible, is_put = visible, replaced or "", False
        _exchange(temporary, name, parent)


def _exchange(temporary: str, name: str, parent: int) -> bool:
    """Exchange two files in one step; False if the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(parent, os.fsencode(temporary), parent, os.fsencode(name), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code))


def _final_digest(name: str, parent: int) -> str | None:
    """The digest of a file; None if a program has it open for writing, or is about to, or if it is not a file."""
    try:
        with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as file:
            is_leased = _lease(file)
            if is_leased is False:
                return None
            digest = file_digest(file, "sha256").hexdigest()
            return None if is_leased and _is_wanted(file) else digest
    except OSError:  # a link, or a directory
        return None


def _lease(file: IO[bytes]) -> bool | None:
    """Make programs that open the file for writing wait until it is closed here. False if one has it open already, and
    None where there are no leases: on other systems and some file systems, and for files of other users."""
    if sys.platform == "linux":
        try:
            # The kernel signals that a program waits. By default, that would be SIGIO, which ends this process.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            return False if error.errno == errno.EAGAIN else None
        return True
    return None


def _is_wanted(file: IO[bytes]) -> bool:
    """Whether a program waits for the lease, because it looked the file up before the file lost its name."""
    if sys.platform == "linux":
        time.sleep(_LOOKUP_S)
        return fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_RDLCK
    return False


def _kernel_devices() -> set[int]:
    devices = {Path(path).stat().st_dev for path in ("/proc", "/sys") if Path(path).is_dir()}
    return devices - {Path("/").stat().st_dev}  # where they are not mounted, they are ordinary directories


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _link_error(name) from None
        raise


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}...")


def _link_error(path: str) -> ToolError:
    return ToolError(f"{_shown(path)} is a symbolic link; links are not followed.")


def _not_allowed_error(path: str) -> ToolError:
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
