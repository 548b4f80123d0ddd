"""One file from a repository on the Hugging Face Hub, or from the mirror that ``HF_ENDPOINT`` names.

huggingface_hub (extra ``local``) downloads it, with its own retries, proxies and tokens. What it raises when the Hub
cannot be used becomes one `ModelError`, so that another source can be tried.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bartack.models.client import mask_secrets
from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["hub_address", "hub_file"]

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
