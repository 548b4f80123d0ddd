"""Disks for SQLite that fail on purpose: one that records every write, and one that refuses some."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from bartack.store.sqlite import SqliteStore

# In order: ("write", file, offset, data), ("truncate", file, size), ("sync", file), ("delete", file),
# and ("acknowledged", number) from the test itself.
Operation = tuple[Any, ...]


def on_disk(name: str) -> type[SqliteStore]:
    """A SQLite store that uses the VFS of this name."""
    return type("SqliteStoreOnDisk", (SqliteStore,), {"vfs": name})


class RecordingDisk(apsw.VFS):
    """A VFS that writes through and records."""

    def __init__(self, name: str) -> None:
        self.operations: list[Operation] = []
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _RecordingFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        self.operations.append(("delete", Path(filename).name))
        super().xDelete(filename, syncdir)


class _RecordingFile(apsw.VFSFile):
    def __init__(self, disk: RecordingDisk, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path).name if path else "temporary"
        self._operations = disk.operations
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._operations.append(("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._operations.append(("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._operations.append(("sync", self._name))


def after_power_cut(operations: list[Operation], is_kept: Callable[[], bool]) -> dict[str, bytes]:
    """The files that a disk may contain if power is lost after these operations.

    Synced writes are there. Of the others, each is there only if `is_kept` returns True: disks reorder writes.
    """
    durable: dict[str, bytearray] = {}
    waiting: dict[str, list[Operation]] = {}
    for operation in operations:
        kind, name = operation[0], operation[1]
        if kind in {"write", "truncate"}:
            waiting.setdefault(name, []).append(operation)
        elif kind == "sync":
            for write in waiting.pop(name, []):
                _apply(durable, write)
        elif kind == "delete":
            durable.pop(name, None)
            waiting.pop(name, None)
    for unsynced in waiting.values():
        for write in unsynced:
            if is_kept():
                _apply(durable, write)
    return {name: bytes(content) for name, content in durable.items()}


def _apply(files: dict[str, bytearray], operation: Operation) -> None:
    content = files.setdefault(operation[1], bytearray())
    if operation[0] == "truncate":
        del content[operation[2] :]
        return
    _, _, offset, data = operation
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def reordering(seed: int) -> Callable[[], bool]:
    """Keeps unsynced writes at random: none, half or most of them."""
    chance = random.Random(seed)
    share = chance.choice([0.0, 0.5, 0.9])
    return lambda: chance.random() < share


class FailingDisk(apsw.VFS):
    """A VFS whose operations count down to a failure: one, or with `lasting` all from then on until `left` is None."""

    def __init__(self, name: str, error: type[apsw.Error], only: frozenset[str], *, lasting: bool) -> None:
        self.error = error
        self.only = only
        self.lasting = lasting
        self.left: int | None = None  # operations until the failure; None: it works
        self.failures: Counter[str] = Counter()
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _FailingFile(self, name, flags)

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """The failures are intended: nothing to report."""
        return True

    def count(self, operation: str) -> None:
        if self.left is None or operation not in self.only:
            return
        if self.left > 0:
            self.left -= 1
            return
        self.failures[operation] += 1
        if not self.lasting:
            self.left = None
        raise self.error("injected")


class _FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """As above."""
        return True

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        self._disk.count("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count("write")
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count("truncate")
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count("sync")
        super().xSync(flags)
