"""File systems and the errors of file operations."""

import errno
import os
from pathlib import Path

import apsw
import pytest

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import open_store
from bartack.store.files import network_kind
from bartack.store.sqlite import store as sqlite_store

MOUNTS = """\
1 0 0:1 / / rw - ext4 /dev/vda rw
2 1 0:2 / /home/share rw shared:1 - nfs4 server:/x rw
3 1 0:3 / /mnt/my\\040disk rw - fuse.sshfs host: rw
4 2 0:4 / /home/share/local rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home", None), ("/home/share/x", "nfs4"), ("/mnt/my disk/y", "fuse.sshfs"), ("/home/share/local/z", None)],
)
def test_network_file_systems_are_recognised(folder: str, kind: str | None) -> None:
    assert network_kind(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
async def test_a_folder_without_write_permission_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int
) -> None:
    """Whether the folder or the file system is read-only; injected, because root may write anywhere."""
    path = tmp_path / "new" / "sessions"

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(path.parent))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError) as caught:
        await open_store(f"{kind}:{path}")
    assert caught.value.message.startswith(f"{path} is not writable. Check the permissions")
    assert caught.value.code is ErrorCode.STORAGE_FAILED


@pytest.mark.parametrize(
    ("error", "is_writable", "expected"),
    [
        (apsw.ReadOnlyError, True, "is not writable"),
        (apsw.CantOpenError, False, "is not writable"),
        (apsw.CantOpenError, True, "the database cannot be opened"),
    ],
)
async def test_sqlite_reports_a_read_only_folder_with_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[apsw.Error], is_writable: bool, expected: str
) -> None:
    """A normal user can open an existing lock file there, so that only SQLite notices."""

    def refuse(*_: object, **__: object) -> None:
        raise error("injected")

    monkeypatch.setattr(sqlite_store, "connect", refuse)
    monkeypatch.setattr(os, "access", lambda *_: is_writable)
    with pytest.raises(StoreError, match=expected):
        await open_store(f"sqlite:{tmp_path / 'a.db'}")
