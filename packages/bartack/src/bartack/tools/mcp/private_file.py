"""Small JSON files that only their user may read, and that several processes may change."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["changed_file", "read_file"]


def read_file(path: Path | None) -> dict[str, Any]:
    """The object in the file; an empty one if there is no such file, or something else is in it."""
    try:
        value: Any = {} if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def changed_file(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the object in the file, which is replaced as a whole, with mode 0600. Raises `OSError`."""
    with _locked(path.parent):
        value = read_file(path)
        change(value)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - a descriptor
            json.dump(value, file, indent=2, sort_keys=True)
            file.write("\n")
        temporary.replace(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
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
