"""How commands print: JSON for programs, tables on a terminal, tab-separated lines elsewhere, and notes on stderr.

`guard_stdout` makes stdout report precisely when it can no longer be written to, and `print_tracebacks` is what --debug
adds.
"""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any, NamedTuple

from bartack.app.safe_text import json_bytes, safe_text
from bartack.nouns.logs import logger

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
    lines = [piece for line in text.split("\n") for piece in _fold_line(line, columns)]
    step = max(rows - 2, 1)  # a line for the note, and one for what is typed
    for start in range(0, len(lines), step):
        typer.echo("\n".join(lines[start : start + step]), err=True)
        if start + step < len(lines):
            note = f"[{start + step:,} of {len(lines):,} lines in this window; Enter shows more]"
            typer.prompt(note, default="", show_default=False, prompt_suffix=" ", err=True)


def _fold_line(line: str, columns: int) -> list[str]:
    """The line as the window will show it, with a mark where it continues: what the model wrote begins no line."""
    columns = columns if line.isascii() else columns // 2  # a sign may be two columns wide
    step = max(columns - len(_CONTINUED), 1)
    return [line[:columns], *(_CONTINUED + line[start : start + step] for start in range(columns, len(line), step))]


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


# -- a stdout that can no longer be written to
#
# The disk is full, or the reader of a pipe went away. Other errors of the system stay as they are.

PIPE_CLOSED = 128 + 13  # the status that shells give a program ended by SIGPIPE


class OutputClosed(OSError):
    """stdout can no longer be written to; the cause is the system's error."""

    @property
    def is_pipe(self) -> bool:
        """Whether the reader of a pipe went away, which is not an error."""
        return isinstance(self.__cause__, BrokenPipeError)

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        return getattr(self.__cause__, "strerror", None) or str(self.__cause__)


def guard_stdout() -> None:
    """Let every write to `sys.stdout` that fails raise `OutputClosed`."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    buffer: Any = sys.stdout.buffer
    if type(getattr(buffer, "raw", buffer)) is io.FileIO:  # not a console of Windows
        guarded: Any = _GuardedFile(sys.stdout.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            guarded if buffer is getattr(buffer, "raw", buffer) else io.BufferedWriter(guarded),  # see python -u
            encoding=sys.stdout.encoding,
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    sys.stdout.reconfigure(errors="replace")  # a character its encoding lacks must not be fatal


class _GuardedFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data) if data else 0  # typer tries an empty one, and ignores its error
        except OSError as error:
            # What is still buffered is lost, but the interpreter must be able to flush it when it exits.
            with open(os.devnull, "wb") as devnull:  # noqa: PTH123 - not a path of the file system
                os.dup2(devnull.fileno(), self.fileno())
            raise OutputClosed from error


# -- tracebacks of tools
#
# What --debug prints during a command. The model gets only the last line of each.


class _CurrentStderr(logging.Handler):
    """Prints to stderr as it is at the time: a chat shows what is printed during an answer above its live area."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


def print_tracebacks() -> None:
    """Print the tracebacks of tools to stderr from now on, with the text of the exceptions."""
    log = logger("content")
    log.setLevel(logging.DEBUG)
    if not any(isinstance(handler, _CurrentStderr) for handler in log.handlers):
        log.addHandler(_CurrentStderr())
