"""File systems and the errors of file operations."""

import asyncio
import errno
import os
from pathlib import Path

import apsw
import pytest

from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import StoreAddress, open_store
from bartack.store.files import network_kind, new_file
from bartack.store.sqlite import store as sqlite_store
from bartack.store.sqlite.file import is_up_to_date


def test_a_new_file_does_not_replace_one_that_appears_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    with pytest.raises(StoreError, match="already exists"), new_file(path, overwrite=False):
        path.write_bytes(b"precious")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("export.jsonl", b"precious")]


def test_a_new_file_is_never_seen_before_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setattr(Path, "replace", lambda _, target: pytest.fail(f"replaces {target}, which others see"))
    with new_file(path, overwrite=False) as file:
        file.write(b"whole")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("token", b"whole")]


def test_a_new_file_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "token"
    with new_file(path, overwrite=False) as file:
        file.write(b"whole")
    with pytest.raises(StoreError, match="already exists"), new_file(path, overwrite=False):
        pass
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("token", b"whole")]
    other = tmp_path / "other"
    with pytest.raises(StoreError, match="already exists"), new_file(other, overwrite=False):
        other.write_bytes(b"precious")
    assert other.read_bytes() == b"precious"


def test_a_database_that_vanishes_is_not_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: True)  # it was there a moment ago
    assert not is_up_to_date(tmp_path / "gone.db", 0.1)
    assert not asyncio.run(StoreAddress.parse(tmp_path / "gone.db").exists())


MOUNTS = """\
1 0 0:1 / / rw - ext4 /dev/vda rw
2 1 0:2 / /home/share rw shared:1 - nfs4 server:/x rw
3 1 0:3 / /mnt/my\\040disk rw - fuse.sshfs host: rw
4 2 0:4 / /home/share/local rw - xfs /dev/vdb rw
5 1 0:5 / /mnt/tab\\011 rw - virtiofs host rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home", None),
        ("/home/share/x", "nfs4"),
        ("/mnt/my disk/y", "fuse.sshfs"),
        ("/home/share/local/z", None),
        ("/mnt/tab\t", "virtiofs"),
    ],
)
def test_network_file_systems_are_recognised(folder: str, kind: str | None) -> None:
    assert network_kind(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "cifs",
        "9p",
        "ceph",
        "virtiofs",
        "vboxsf",
        "drvfs",
        "prl_fs",
        "vmhgfs",
        "fuse.sshfs",
        "fuse.other",
        "fuse",
    ],
)
def test_shared_folders_of_virtual_machines_are_recognised_too(kind: str) -> None:
    assert network_kind(Path("/data/x"), f"1 0 0:1 / /data rw - {kind} host rw") == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "fuse.gocryptfs"])
def test_local_file_systems_are_accepted(kind: str) -> None:
    assert network_kind(Path("/data/x"), f"1 0 0:1 / /data rw - {kind} /dev/x rw") is None


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_store_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("bartack.store.files.network_kind", lambda _: "virtiofs")
    with pytest.raises(StoreError, match=r"sessions is on a network or shared file system \(virtiofs\)"):
        await open_store(f"{kind}:{tmp_path / 'sessions'}")


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
