"""The few marks and colours that everything in the terminal is made of."""

import os

from msgspec import Struct
from rich.console import Console
from rich.theme import Theme

__all__ = [
    "BAD",
    "FAINT",
    "FAINT_ITALIC",
    "GOOD",
    "NAME",
    "NOTE",
    "THEME",
    "Marks",
    "marks_for",
    "seconds",
    "whole_seconds",
]

FAINT = "dim"
FAINT_ITALIC = "dim italic"
NAME = "bold"
GOOD = "green"
BAD = "red"
NOTE = "yellow"

# Of rich's Markdown: the terminal's own colours and no backgrounds, so that it reads on dark and light alike.
THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.code": "cyan",
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.hr": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)


class Marks(Struct, frozen=True):
    """Signs that stand at the beginning of lines, and the ones that say that something is left out."""

    good: str
    bad: str
    call: str
    ask: str
    prompt: str
    quote: str
    bullet: str
    more: str
    spinner: str


_DRAWN = Marks("✓", "✗", "→", "?", "›", "▌", "•", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_TYPED = Marks("+", "x", ">", "?", ">", "|", "-", "...", "|/-\\")
_FEW_SIGNS = ("dumb", "unknown", "linux")  # the console of Linux has a font of 512 signs


def marks_for(console: Console) -> Marks:
    """Drawn signs where the output can hold them, typed ones elsewhere."""
    if os.environ.get("TERM", "").lower() in _FEW_SIGNS:
        return _TYPED
    try:
        "".join((_DRAWN.good, _DRAWN.bad, _DRAWN.quote, _DRAWN.spinner)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _TYPED
    return _DRAWN


def seconds(time: float) -> str:
    """A length of time, with tenths while they matter."""
    return f"{max(time, 0.0):.1f} s" if time < 9.95 else whole_seconds(time)


def whole_seconds(time: float) -> str:
    """A length of time that nobody takes so exactly; less than a second is one."""
    whole = max(round(time), 1)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"
