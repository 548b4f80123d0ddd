"""Nothing escapes a `SandboxedDirectory`. A control shows that each way out works without it."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bartack import ToolError
from bartack.tools import sandbox
from bartack.tools.preview import PreviewChanged
from bartack.tools.sandbox import ABSENT, SandboxedDirectory

SECRET = "the secret"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory with a secret, and below it the root."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "inside").write_text("harmless")
    return tmp_path


@pytest.fixture
def root(top: Path) -> Iterator[SandboxedDirectory]:
    root = SandboxedDirectory(top / "root")
    yield root
    root.close()


def read(root: SandboxedDirectory, path: str) -> str:
    with root.file(path) as (fd, _):
        return os.read(fd, 1_000).decode()


def test_files_inside_can_be_read(root: SandboxedDirectory, top: Path) -> None:
    inside = str(top / "root" / "inside")
    for path in ("inside", "./inside", "sub/../inside", "sub//../././inside", inside, f"{top}/root/sub/../inside"):
        assert read(root, path) == "harmless"


def by_dots(top: Path) -> str:
    return "../secret"


def by_dots_later(top: Path) -> str:
    return "sub/../../secret"


def by_absolute_path(top: Path) -> str:
    return str(top / "secret")


def by_absolute_path_with_dots(top: Path) -> str:
    return f"{top}/root/../secret"


def by_a_link(top: Path) -> str:
    (top / "root" / "link").symlink_to(top / "secret")
    return "link"


def by_a_relative_link(top: Path) -> str:
    (top / "root" / "link").symlink_to("../secret")
    return "link"


def by_a_linked_directory(top: Path) -> str:
    (top / "root" / "way").symlink_to(top)
    return "way/secret"


def by_a_link_to_a_link(top: Path) -> str:
    (top / "root" / "way").symlink_to(top)
    (top / "root" / "sub" / "two").symlink_to("../way/secret")
    return "sub/two"


WAYS = [
    by_dots, by_dots_later, by_absolute_path, by_absolute_path_with_dots, by_a_link, by_a_relative_link,
    by_a_linked_directory, by_a_link_to_a_link,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_paths_cannot_escape(root: SandboxedDirectory, top: Path, way: Callable[[Path], str]) -> None:
    path = way(top)
    assert (top / "root" / path).read_text() == SECRET  # control: the plain path escapes
    with pytest.raises(ToolError):
        read(root, path)
    with pytest.raises(ToolError):
        root.replace(path, b"mine")
    with pytest.raises(ToolError):
        list(root.walk(path, recursive=True))
    assert (top / "secret").read_text() == SECRET
    assert [entry.path for entry in root.walk(".", recursive=True) if "secret" in entry.path] == []


def test_nothing_is_created_outside(root: SandboxedDirectory, top: Path) -> None:
    (top / "root" / "way").symlink_to(top)
    (top / "root" / "dangling").symlink_to(top / "new")
    for path in ("../new", "way/new", "way/deep/new", str(top / "new"), "dangling", "/tmp/../new"):
        with pytest.raises(ToolError):
            root.replace(path, b"mine")
    assert sorted(path.name for path in top.iterdir()) == ["root", "secret"]


class Swap:
    """Before the n-th of the system calls that look at names, a directory or file becomes a link to the outside."""

    def __init__(self, top: Path, link: str, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = turn
        self._place = top / "root" / link
        self._target = top if link == "dir" else top / "secret"
        (top / "root" / "dir").mkdir()
        (top / "root" / "dir" / "secret").write_text("harmless")
        for name in ("open", "stat", "mkdir", "replace"):
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._place.rename(self._place.with_name("aside"))
                self._place.symlink_to(self._target)
            return real(*args, **options)

        return call


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("link", ["dir", "dir/secret"])
def test_a_link_swapped_in_during_an_operation_is_not_followed(
    root: SandboxedDirectory, top: Path, link: str, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    act: Callable[[], Any]
    for act in (lambda: read(root, "dir/secret"), lambda: root.replace("dir/secret", b"mine")):
        with monkeypatch.context() as patched:
            Swap(top, link, turn, patched)
            try:
                assert act() != SECRET
            except ToolError:
                pass
        assert (top / "secret").read_text() == SECRET
        for name in ("dir", "aside"):
            place = top / "root" / name
            if place.is_symlink():
                place.unlink()
            elif place.exists():
                shutil.rmtree(place)


def test_a_check_by_name_would_follow_a_swapped_link(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control for the test above."""
    path = top / "root" / "dir" / "secret"
    with monkeypatch.context() as patched:
        Swap(top, "dir", 1, patched)
        assert Path(os.path.realpath(path)).is_relative_to(top / "root")
        os.stat(top)  # noqa: PTH116 - the call that is counted
        with open(os.open(path, os.O_RDONLY)) as file:  # noqa: PTH123 - as a check by name would
            assert file.read() == SECRET


def test_only_regular_files_are_opened(root: SandboxedDirectory, top: Path) -> None:
    os.mkfifo(top / "root" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        original_directory = Path.cwd()
        os.chdir(top / "root")  # the length of a socket path is limited
        try:
            listener.bind("socket")
        finally:
            os.chdir(original_directory)
    for path in ("pipe", "socket", "sub", ".", "inside/deeper"):
        with pytest.raises(ToolError):
            read(root, path)
        with pytest.raises(ToolError):
            root.replace(path, b"mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a device")
def test_devices_are_not_opened(root: SandboxedDirectory, top: Path) -> None:
    try:
        os.mknod(top / "root" / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("devices cannot be created on this machine")
    with pytest.raises(ToolError, match="not a regular file"):
        read(root, "zero")


def test_kernel_file_systems_are_not_accessible_from_the_root_directory() -> None:
    root = SandboxedDirectory(Path("/"))
    try:
        assert Path("/proc/self/environ").is_file()  # control
        for path in ("/proc/self/environ", "proc/1/status", "/sys/kernel/uevent_seqnum", "/dev/null"):
            with pytest.raises(ToolError):
                read(root, path)
        with pytest.raises(ToolError):
            next(root.walk("/proc", recursive=False))
        assert "root" in {entry.path for entry in root.walk("/", recursive=False)}
    finally:
        root.close()


@pytest.mark.parametrize(
    "path",
    ["a\0b", "x" * 300, "x/" * 5_000, "\ud800", "", "inside\n", "/", "//", "~", "C:\\x", "%2e%2e/secret", "...."],
)
def test_invalid_paths_raise_tool_error(root: SandboxedDirectory, path: str) -> None:
    with pytest.raises(ToolError) as caught:
        read(root, path)
    assert len(caught.value.message) < 700


def test_forbidden_files_inside_are_not_accessible(top: Path) -> None:
    for name in ("store.db", "store.db-wal", "store.txt", "logs/one.jsonl"):
        (top / "root" / name).parent.mkdir(exist_ok=True)
        (top / "root" / name).write_text(SECRET)
    os.link(top / "root" / "store.db", top / "root" / "alias")
    root = SandboxedDirectory(top / "root", [top / "root" / "store.db", top / "root" / "logs"])
    try:
        for path in (
            "store.db",
            "sub/../store.db",
            "store.db-wal",
            "store.db-new",
            "logs/one.jsonl",
            "logs/new",
            "alias",
        ):
            with pytest.raises(ToolError, match="not allowed"):
                root.replace(path, b"mine")
            with pytest.raises(ToolError):
                read(root, path)
        assert read(root, "store.txt") == SECRET  # control
        names = {entry.path for entry in root.walk(".", recursive=True)}
        assert names == {"alias", "inside", "store.txt", "sub"}
    finally:
        root.close()


def test_a_failed_write_leaves_only_the_old_file(root: SandboxedDirectory, top: Path) -> None:
    file = top / "root" / "inside"
    before = sha256(file.read_bytes()).hexdigest()
    file.write_text("changed by another process")
    for expected in (before, ABSENT):
        with pytest.raises(PreviewChanged, match="changed by another process"):
            root.replace("inside", b"mine", expected=expected)
    with pytest.raises(PreviewChanged):
        root.replace("missing", b"mine", expected=before)
    assert file.read_text() == "changed by another process"
    with file.open("r+") as other:  # it may write at any moment
        with pytest.raises(PreviewChanged):
            root.replace("inside", b"mine", expected=sha256(file.read_bytes()).hexdigest())
        other.write("C")
    assert file.read_text() == "Changed by another process"
    assert sorted(path.name for path in (top / "root").iterdir()) == ["inside", "sub"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_is_replaced_if_it_has_the_expected_content(
    root: SandboxedDirectory, top: Path, monkeypatch: pytest.MonkeyPatch, *, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(sandbox, "_exchange", lambda *names: False)
    assert root.replace("new", b"mine", expected=ABSENT)
    assert not root.replace("new", b"again", expected=sha256(b"mine").hexdigest())
    with pytest.raises(PreviewChanged):
        root.replace("new", b"lost", expected=sha256(b"mine").hexdigest())
    assert (top / "root" / "new").read_bytes() == b"again"
    assert sorted(path.name for path in (top / "root").iterdir()) == ["inside", "new", "sub"]


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_descriptors_are_closed(root: SandboxedDirectory, top: Path) -> None:
    (top / "root" / "way").symlink_to(top)
    before = open_descriptors()
    for path in ("inside", "no", "way/secret", "sub", "sub/no/deeper", "../x"):
        for act in (
            lambda path: read(root, path),
            lambda path: root.replace(path, b"x"),
            lambda path: list(root.walk(path, recursive=True)),
        ):
            try:
                act(path)
            except ToolError:
                pass
    walking = root.walk(".", recursive=True)
    next(walking)
    del walking
    assert open_descriptors() == before


def test_a_directory_that_is_deleted_while_it_is_listed_is_empty(
    root: SandboxedDirectory, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "root" / "build" / "cache").mkdir(parents=True)
    inode = (top / "root" / "build" / "cache").stat().st_ino
    list_folder = os.scandir

    def vanish(fd: int) -> Any:
        if os.fstat(fd).st_ino == inode:
            (top / "root" / "build" / "cache").rmdir()
        return list_folder(fd)

    monkeypatch.setattr(os, "scandir", vanish)
    entries = [entry.path for entry in root.walk("build", recursive=True)]
    assert entries == ["build/cache"]
    assert not (top / "root" / "build" / "cache").exists()
