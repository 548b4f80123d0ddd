"""How commands print: JSON for programs, tables on a terminal, tab-separated lines elsewhere, and notes on stderr."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from bartack.app.safe_text import json_bytes, safe_text

Row = Sequence[str]
_NARROW = 80  # columns of a terminal below which optional columns are left out


class Column(NamedTuple):
    """A table column; numbers are aligned to the right, and optional columns left out on a narrow terminal."""

    name: str
    is_number: bool
    is_optional: bool


def columns(names: str) -> tuple[Column, ...]:
    """Columns by their names, separated by spaces; `#` marks a number, `?` an optional column, and `_` has no name."""
    return tuple(Column(name.strip("#?_"), "#" in name, "?" in name) for name in names.split())


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    sys.stdout.buffer.write(json_bytes(value) + b"\n")
    sys.stdout.buffer.flush()


def note(text: str, *, is_dim: bool = False) -> None:
    """Print a line to stderr. Nothing happens if stderr is closed."""
    if sys.stderr is None:  # closed before the process started
        return
    line = safe_text(text)
    if is_dim and sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[2m{line}\x1b[0m"
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def print_table(header: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print a table on a terminal, and tab-separated cells elsewhere. The cells must be safe to print."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    shown = [index for index, column in enumerate(header) if not (column.is_optional and console.width < _NARROW)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index in shown:
        justify: Any = "right" if header[index].is_number else "left"
        table.add_column(header[index].name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in shown))  # Text: brackets are not markup
    console.print(table)


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A function to call after each step, or with a number of steps. The bar is drawn on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda steps=1: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps=1: bar.advance(task, steps)
