"""Sessions for people: tables on a terminal, lines with tabs elsewhere. What is stored never steers the terminal."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from bartack.cli.terminal.safe_text import safe_line
from bartack.nouns.entries import Entry
from bartack.store import Finding, Hit, ModelSpend, SessionInfo, Spend
from bartack.store.index import text_of

__all__ = [
    "Column",
    "entry_rows",
    "finding_rows",
    "hit_rows",
    "info_rows",
    "print_rows",
    "progress",
    "spend_rows",
]

Row = Sequence[str]
_NARROW = 80  # columns of a terminal under which the less important ones are left out
_TEXT = 200  # characters of an entry that a line shows


class Column(NamedTuple):
    """A column's name, and what may happen to it when the window is narrow."""

    name: str
    is_number: bool = False
    is_extra: bool = False  # left out of narrow tables


INFOS = (
    Column("session"),
    Column("title"),
    Column("entries", is_number=True),
    Column("updated", is_extra=True),
    Column("tokens", is_number=True, is_extra=True),
    Column("cost", is_number=True, is_extra=True),
)
ENTRIES = (Column("seq", is_number=True), Column("time", is_extra=True), Column("kind"), Column("text"))
HITS = (Column("session"), Column("seq", is_number=True), Column("text"))
FINDINGS = (Column("session"), Column("seq", is_number=True), Column("fault"), Column("what"), Column("mended by"))
SPENDS = (
    Column("model"),
    Column("calls", is_number=True),
    Column("input", is_number=True),
    Column("output", is_number=True),
    Column("cost", is_number=True),
)


def info_rows(infos: Iterable[SessionInfo]) -> Iterator[Row]:
    for info in infos:
        tokens = info.spend.input_tokens + info.spend.output_tokens
        yield (
            safe_line(info.id),
            safe_line(info.title or ""),
            str(info.entries),
            f"{info.updated.astimezone():%Y-%m-%d %H:%M}",
            str(tokens),
            cost_text(info.spend),
        )


def entry_rows(entries: Iterable[Entry]) -> Iterator[Row]:
    for entry in entries:
        text = safe_line(text_of(entry.fact)[:_TEXT])
        yield str(entry.seq), f"{entry.timestamp.astimezone():%Y-%m-%d %H:%M:%S}", entry.fact.kind, text


def hit_rows(hits: Iterable[Hit]) -> Iterator[Row]:
    for hit in hits:
        yield safe_line(hit.session_id), str(hit.seq), safe_line(hit.snippet)


def finding_rows(findings: Iterable[Finding]) -> Iterator[Row]:
    for found in findings:
        seq = "" if found.seq is None else str(found.seq)
        mended = "--repair" if found.repairable else ""
        yield safe_line(found.session_id or ""), seq, found.fault, safe_line(found.message), mended


def spend_rows(models: Iterable[ModelSpend]) -> Iterator[Row]:
    for each in models:
        name = "" if each.model is None else f"{each.model.provider}/{each.model.model}"
        spend = each.spend
        yield safe_line(name), str(spend.calls), str(spend.input_tokens), str(spend.output_tokens), cost_text(spend)


def cost_text(spend: Spend) -> str:
    """Dollars; a plus says that there were calls whose cost nobody knows."""
    if not spend.calls:
        return ""
    if not spend.cost_usd:
        return "cost unknown" if spend.unpriced else "$0"
    return f"${spend.cost_usd:.4f}{'+' if spend.unpriced else ''}"


def print_rows(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """A table on a terminal; else one line per row, its cells with tabs between."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    shown = [place for place, column in enumerate(columns) if not (column.is_extra and console.width < _NARROW)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place in shown:
        justify: Any = "right" if columns[place].is_number else "left"
        table.add_column(columns[place].name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[place]) for place in shown))  # Text: brackets are no markup
    console.print(table)


@contextmanager
def progress(doing: str, total: int | None) -> Iterator[Any]:
    """A function to call after each step; shown on stderr, and only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda steps=1: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda steps=1: bar.advance(task, steps)
