"""What is kept about servers between sessions: small JSON files that only their user may read, and that several
processes may change.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bartack.nouns.logs import logger

__all__ = ["KnownTools", "change_file", "default_path", "read_file"]


def read_file(path: Path | None) -> dict[str, Any]:
    """The object in the file; an empty one if there is no such file, or something else is in it."""
    try:
        value: Any = {} if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def change_file(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the object in the file, which is replaced as a whole, with mode 0600. Raises `OSError`."""
    with _lock_folder(path.parent):
        value = read_file(path)
        change(value)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - a descriptor
            json.dump(value, file, indent=2, sort_keys=True)
            file.write("\n")
        temporary.replace(path)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from changing files there at the same time. Raises `OSError` where that is not possible."""
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ModuleNotFoundError as error:
        raise OSError(
            errno.ENOTSUP, "Changing it requires a POSIX system. Edit the file instead", str(folder)
        ) from error
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- the file of known tools
#
# The definitions that tools had when they were last used, so that a later change is noticed.
#
# A server can change a tool or its description after the user has decided to trust it. The digests are kept in one file
# for all sessions, because that decision applies to all of them: "never ask about this tool" is a setting.

_log = logger("tools")


def default_path() -> Path | None:
    """The file in the user's data folder; None without the package that finds the folder."""
    if find_spec("platformdirs") is None:
        return None
    import platformdirs  # noqa: PLC0415 - an extra

    return Path(platformdirs.user_data_dir("bartack", appauthor=False)) / "mcp-tools.json"


class KnownTools:
    """The digests of one server's tools. Without a file they are kept in memory."""

    def __init__(self, path: Path | None, server: str) -> None:
        """`server` identifies the server by its name and address."""
        self._path = path
        self._server = server
        self._digests: dict[str, str] | None = None

    def get(self, tool: str) -> str | None:
        """The digest that the tool had when it was last used."""
        if self._digests is None:
            digests = read_file(self._path).get(self._server)
            self._digests = digests if isinstance(digests, dict) else {}
        return self._digests.get(tool)

    def record(self, tool: str, digest: str) -> None:
        """Note that the tool is used with this definition. If the file cannot be written, that is logged, and the
        next session compares with what the file had before."""
        if self.get(tool) == digest:
            return
        assert self._digests is not None
        self._digests[tool] = digest
        if self._path is None:
            return
        try:
            change_file(self._path, lambda servers: servers.setdefault(self._server, {}).update({tool: digest}))
        except OSError as error:
            _log.warning("cannot write %s: %s", self._path, error.strerror)
