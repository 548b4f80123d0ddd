"""`bartack models`: download, list and remove the weights of local models."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bartack.app.errors import with_hint
from bartack.cli.options import JsonOption, new_app, usage_errors
from bartack.cli.output import columns, note, print_json, print_table
from bartack.models.weights import (
    DEFAULT_WEIGHTS,
    DownloadProgress,
    KnownModel,
    known_model,
    known_models,
    pull,
    remove,
)
from bartack.nouns.errors import BartackError, ErrorCode

app = new_app("Download, list and remove local models.")

_COLUMNS = columns("model size# downloaded publisher? licence? description?")
_HINTS = {
    ErrorCode.CONNECTION_FAILED: "Run the same command again to resume the download.",
    ErrorCode.DOWNLOAD_INVALID: "The download was discarded. Try again; if it repeats, do not trust the source.",
    ErrorCode.MODEL_NOT_FOUND: "Check the name on the page of the repository. HF_TOKEN gives access to a private one.",
    ErrorCode.STORAGE_FAILED: "Set BARTACK_CACHE to keep models in another folder.",
    ErrorCode.INVALID_CONFIG: "'bartack models list' shows the available models.",
}

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name from 'bartack models list'.", autocompletion=lambda: list(known_models())
    ),
]


@app.command(name="pull", no_args_is_help=False)
def pull_model(name: NameArgument = DEFAULT_WEIGHTS, as_json: JsonOption = False) -> None:
    """Download a model and verify its checksum. An interrupted download is resumed.

    NAME is a name from 'bartack models list', or hf:OWNER/REPOSITORY/FILE.gguf for any file on Hugging Face.
    """
    model = _find_model(name)
    was_downloaded = model.is_downloaded
    path = download(model)
    if as_json:
        print_json(_facts(model))
    else:
        print(f"{model.name} {'is already downloaded' if was_downloaded else 'downloaded'}: {path}")


@app.command(name="list", no_args_is_help=False)
def list_models(as_json: JsonOption = False) -> None:
    """List the models that can be downloaded. Any other .gguf file can be used by its path."""
    models = known_models().values()
    if as_json:
        print_json({"items": [_facts(model) for model in models]})
        return
    rows = (
        (
            model.name,
            _megabytes(model.size),
            "yes" if model.is_downloaded else "no",
            model.publisher,
            model.licence,
            model.summary,
        )
        for model in models
    )
    print_table(_COLUMNS, rows)


@app.command(name="remove", no_args_is_help=True)
def remove_model(name: NameArgument, as_json: JsonOption = False) -> None:
    """Delete a downloaded model, including partial downloads."""
    model = _find_model(name)
    freed = remove(model)
    if as_json:
        print_json({"removed": model.name, "freed": freed})
    elif freed:
        print(f"removed {model.name}: {_megabytes(freed)} freed")
    else:
        print(f"{model.name} is not downloaded")


def download(model: KnownModel) -> Path:
    """Download a model if needed, showing what it is, the progress and the source on stderr."""
    note(description(model))
    with _hints(), _progress() as report:
        done = pull(model, progress=report)
    if done.source is not None:
        checked = "verified" if model.sha256 else "not pinned"
        note(f"source: {done.source}; sha256 {done.sha256} ({checked})")
    return done.path


def description(model: KnownModel) -> str:
    """A model in one line: title, size, publisher, licence and digest."""
    size = "" if not model.size else f"{_megabytes(model.size)}, "
    digest = "" if not model.sha256 else f", sha256 {model.sha256[:12]}..."
    return f"{model.title}: {size}published by {model.publisher}, licence {model.licence}{digest}"


def _find_model(name: str) -> KnownModel:
    with usage_errors(), _hints():
        return known_model(name)


def _facts(model: KnownModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": model.title,
        "isHere": model.is_downloaded,
        "path": str(model.path),
        "size": model.size,
        "sha256": model.sha256,
        "publisher": model.publisher,
        "repository": model.repository,
        "licence": model.licence,
        "usesTools": model.uses_tools,
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


@contextmanager
def _progress() -> Iterator[Callable[[DownloadProgress], None]]:
    """A progress bar on a terminal; elsewhere one line at the start of each step."""
    if not sys.stderr.isatty():
        steps: list[str] = []

        def print_step(progress: DownloadProgress) -> None:
            if progress.step not in steps[-1:]:
                steps.append(progress.step)
                percent = progress.done * 100 // progress.total
                note(f"{progress.step} ({percent} % of {_megabytes(progress.total)})")

        yield print_step
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda progress: bar.update(
            task, description=progress.step, completed=progress.done, total=progress.total
        )


@contextmanager
def _hints() -> Iterator[None]:
    try:
        yield
    except BartackError as error:
        with_hint(error, _HINTS.get(error.code))
        raise
    except OSError as error:
        with_hint(error, _HINTS[ErrorCode.STORAGE_FAILED])
        raise
