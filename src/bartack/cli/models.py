"""`bartack models`: fetch the weights of local models, see which are here, and remove them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bartack.cli.command import new_app
from bartack.cli.sessions_print import Column, print_rows
from bartack.cli.store_access import JsonOption, print_json
from bartack.cli.terminal.safe_text import safe_line
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

app = new_app("Fetch, list and remove the weights of local models.")

_COLUMNS = (
    Column("model"),
    Column("size", is_number=True),
    Column("here"),
    Column("licence", is_extra=True),
    Column("what it is", is_extra=True),
)
_HINTS = {
    ErrorCode.CONNECTION_FAILED: "what was fetched is kept; the same command goes on from there",
    ErrorCode.DOWNLOAD_INVALID: "nothing of it was kept; try again, and if it stays so, do not trust that package index",
    ErrorCode.STORAGE_FAILED: "BARTACK_CACHE names another folder to keep models in",
    ErrorCode.INVALID_CONFIG: "bartack models list shows what there is",
}

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="One of bartack models list.", autocompletion=lambda: list(known_models())),
]


@app.command(name="pull", no_args_is_help=False)
def pull_model(name: NameArgument = DEFAULT_WEIGHTS, as_json: JsonOption = False) -> None:
    """Fetch a model, verify it, and keep it for use without a network. A pull that was cut goes on where it stopped."""
    model = _named(name)
    was_here = model.is_downloaded
    path = fetch(model)
    if as_json:
        print_json(_facts(model))
    else:
        print(f"{model.name} {'was here already' if was_here else 'is here'}: {path}")


@app.command(name="list", no_args_is_help=False)
def list_models(as_json: JsonOption = False) -> None:
    """List the models that can be pulled, and which of them are here. Any other .gguf file works by its path."""
    models = known_models().values()
    if as_json:
        print_json({"items": [_facts(model) for model in models]})
        return
    rows = (
        (model.name, _megabytes(model.size), "yes" if model.is_downloaded else "no", model.licence, model.summary)
        for model in models
    )
    print_rows(_COLUMNS, rows)


@app.command(name="remove", no_args_is_help=True)
def remove_model(name: NameArgument, as_json: JsonOption = False) -> None:
    """Delete a model from this machine, and what a pull that was cut left behind."""
    model = _named(name)
    freed = remove(model)
    if as_json:
        print_json({"removed": model.name, "freed": freed})
    elif freed:
        print(f"{model.name} is gone: {_megabytes(freed)} freed")
    else:
        print(f"{model.name} was not here")


def fetch(model: KnownModel) -> Path:
    """Pull a model, and show on stderr what it is, its size and licence, and how far it has come."""
    _note(described(model))
    with _hinted(), _shown() as progress:
        return pull(model, progress=progress)


def described(model: KnownModel) -> str:
    """A model in a line: its name, size and licence."""
    return f"{model.title}: {_megabytes(model.size)}, licence {_licence(model)}"


def _named(name: str) -> KnownModel:
    with _hinted():
        return known_model(name)


def _facts(model: KnownModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": model.title,
        "isHere": model.is_downloaded,
        "path": str(model.path),
        "size": model.size,
        "sha256": model.sha256,
        "licence": model.licence,
        "usesTools": model.uses_tools,
    }


def _licence(model: KnownModel) -> str:
    return model.licence if model.licence_note is None else f"{model.licence} ({model.licence_note})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


# -- how it goes, on stderr


@contextmanager
def _shown() -> Iterator[Callable[[DownloadProgress], None]]:
    """A bar on a terminal; elsewhere a line for every step."""
    if not sys.stderr.isatty():
        yield _Lines().tell
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(progress: DownloadProgress) -> None:
            bar.update(task, description=progress.step, completed=progress.done, total=progress.total)

        yield tell


class _Lines:
    """Tells the beginning of every step, once."""

    def __init__(self) -> None:
        self._step = ""

    def tell(self, progress: DownloadProgress) -> None:
        if progress.step != self._step:
            self._step = progress.step
            _note(f"{progress.step} ({progress.done * 100 // progress.total} % of {_megabytes(progress.total)})")


@contextmanager
def _hinted() -> Iterator[None]:
    try:
        yield
    except BartackError as error:
        hint = _HINTS.get(error.code)
        if hint is not None:
            error.add_note(hint)
        raise
    except OSError as error:
        error.add_note(_HINTS[ErrorCode.STORAGE_FAILED])
        raise


def _note(text: str) -> None:
    print(safe_line(text), file=sys.stderr)
