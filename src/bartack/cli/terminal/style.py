"""The colors and symbols used on the terminal."""

import os

from msgspec import Struct
from rich.console import Console
from rich.theme import Theme

FAINT = "dim"
FAINT_ITALIC = "dim italic"
NAME = "bold"
GOOD = "green"
BAD = "red"
NOTE = "yellow"

# For rich's Markdown: the terminal's own colors and no backgrounds, so that it is readable on dark and light alike.
THEME = Theme(
    {
        **{f"markdown.h{level}": "bold" for level in range(2, 7)},
        "markdown.h1": "bold underline",
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


class Symbols(Struct, frozen=True):
    """The symbols that start lines, the ellipsis, and the frames of the spinner."""

    good: str
    bad: str
    call: str
    ask: str
    prompt: str
    quote: str
    bullet: str
    ellipsis: str
    spinner: str


_UNICODE = Symbols("✓", "✗", "→", "?", "›", "▌", "•", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_ASCII = Symbols("+", "x", ">", "?", ">", "|", "-", "...", "|/-\\")
_ASCII_TERMINALS = ("dumb", "unknown", "linux")  # the Linux console has a font of 512 glyphs


def symbols_for(console: Console) -> Symbols:
    """Unicode symbols if the terminal can show them, ASCII otherwise."""
    if os.environ.get("TERM", "").lower() in _ASCII_TERMINALS:
        return _ASCII
    try:
        "".join((_UNICODE.good, _UNICODE.bad, _UNICODE.quote, _UNICODE.spinner)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE
