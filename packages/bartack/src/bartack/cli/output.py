"""How commands print: JSON for programs, tables on a terminal, tab-separated lines elsewhere, and notes on stderr."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any, NamedTuple

from bartack.app.safe_text import json_bytes, safe_text

Row = Sequence[str]
_GAP = 2  # spaces between columns
_CONTINUED = "  ... "  # before the rest of a long line
_MIN_CUT = 20  # characters that a column that may be cut has at least


class Column(NamedTuple):
    """A table column; numbers are aligned to the right. If a terminal is too narrow, optional columns are left out, and
    then the text of one column may be cut."""

    name: str
    is_number: bool
    is_optional: bool
    may_be_cut: bool


def columns(names: str) -> tuple[Column, ...]:
    """Columns by their names, separated by spaces; `#` marks a number, `?` an optional column, `~` one that may be cut,
    and `_` has no name."""
    return tuple(Column(name.strip("#?~_"), "#" in name, "?" in name, "~" in name) for name in names.split())


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


def show_by_windows(text: str) -> None:
    """Print a text to stderr, a terminal, so that none of it leaves the window before the user has asked for more."""
    import typer  # noqa: PLC0415 - only a question needs it

    columns, rows = get_terminal_size()
    lines = [piece for line in text.split("\n") for piece in _folded(line, columns)]
    step = max(rows - 2, 1)  # a line for the note, and one for what is typed
    for start in range(0, len(lines), step):
        typer.echo("\n".join(lines[start : start + step]), err=True)
        if start + step < len(lines):
            note = f"[{start + step:,} of {len(lines):,} lines in this window; Enter shows more]"
            typer.prompt(note, default="", show_default=False, prompt_suffix=" ", err=True)


def _folded(line: str, columns: int) -> list[str]:
    """The line as the window will show it, with a mark where it continues: what the model wrote begins no line."""
    columns = columns if line.isascii() else columns // 2  # a sign may be two columns wide
    step = max(columns - len(_CONTINUED), 1)
    return [line[:columns], *(_CONTINUED + line[at : at + step] for at in range(columns, len(line), step))]


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
    cells = [[Text(cell) for cell in row] for row in rows]  # Text: brackets are not markup
    widths = [max([len(column.name), *(line[index].cell_len for line in cells)]) for index, column in enumerate(header)]
    columns, cut = _fit_columns(header, widths, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for index in columns:
        justify: Any = "right" if header[index].is_number else "left"
        table.add_column(header[index].name, justify=justify, overflow="fold")
    for line in cells:
        for index in columns:
            if header[index].may_be_cut:
                line[index].truncate(cut, overflow="ellipsis")
        table.add_row(*(line[index] for index in columns))
    console.print(table)


def _fit_columns(header: Sequence[Column], widths: Sequence[int], width: int) -> tuple[list[int], int]:
    """The columns that fit into this width, and how wide the one is that may be cut."""
    columns = list(range(len(header)))
    for index in reversed(range(len(header))):
        least = [min(widths[index], _MIN_CUT) if header[index].may_be_cut else widths[index] for index in columns]
        if header[index].is_optional and sum(least) + _GAP * (len(columns) - 1) > width:
            columns.remove(index)
    fixed_width = sum(widths[index] + _GAP for index in columns if not header[index].may_be_cut)
    return columns, max(width - fixed_width, _MIN_CUT)


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
