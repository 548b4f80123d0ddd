"""The colors and symbols used on the terminal."""

import os
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from rich.console import Console
from rich.theme import Theme

# Names of styles, which a theme defines.
FAINT = "bartack.faint"
FAINT_ITALIC = "bartack.faint_italic"
NAME = "bartack.name"
GOOD = "bartack.good"
BAD = "bartack.bad"
NOTE = "bartack.note"

# For rich's Markdown: the terminal's own colors and no backgrounds, so that it is readable on dark and light alike.
THEME = Theme(
    {
        FAINT: "dim",
        FAINT_ITALIC: "dim italic",
        NAME: "bold",
        GOOD: "green",
        BAD: "red",
        NOTE: "yellow",
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


DEFAULT_THEME = "auto"
# What each theme changes. "auto" uses the terminal's own colors.
THEMES: Mapping[str, Mapping[str, str]] = {
    DEFAULT_THEME: {},
    "light": {NOTE: "dark_orange3", GOOD: "dark_green", BAD: "dark_red", "markdown.code": "dark_blue"},
    "high-contrast": {
        FAINT: "none",
        FAINT_ITALIC: "italic",
        GOOD: "bold bright_green",
        BAD: "bold bright_red",
        NOTE: "bold bright_yellow",
        "markdown.code": "bold bright_cyan",
        "markdown.link_url": "underline",
    },
    "mono": {GOOD: "bold", BAD: "bold reverse", NOTE: "bold", "markdown.code": "bold"},
}


_CODE_THEMES = {"light": "ansi_light", "mono": None}  # where it is not that for dark backgrounds
# Of the prompt, the line below it and questions, in the words of prompt_toolkit.
_PROMPTS = {
    "prompt": "bold ansicyan",
    "continuation": "ansibrightblack",
    "bottom-toolbar": "noreverse ansibrightblack",
    "question": "bold ansiyellow",
}
_THEMED_PROMPTS: Mapping[str, Mapping[str, str]] = {
    "light": {"prompt": "bold ansiblue", "question": "bold #af5f00"},
    "high-contrast": {
        "prompt": "bold ansibrightcyan",
        "continuation": "",
        "bottom-toolbar": "noreverse",
        "question": "bold ansibrightyellow",
    },
    "mono": {"prompt": "bold", "continuation": "", "bottom-toolbar": "noreverse", "question": "bold"},
}


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
    steps: dict[str, str]  # the status of a step in a plan -> its symbol


_UNICODE = Symbols("✓", "✗", "→", "?", "›", "▌", "•", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", {"todo": "☐", "doing": "▶", "done": "☑"})
_ASCII = Symbols("+", "x", ">", "?", ">", "|", "-", "...", "|/-\\", {"todo": "[ ]", "doing": "[>]", "done": "[x]"})
# Screen readers read symbols badly or not at all.
_WORDS = Symbols(
    "Done:",
    "Failed:",
    "Tool:",
    "Approval needed:",
    "You:",
    "Quote:",
    "-",
    "...",
    "-",
    {"todo": "To do:", "doing": "Doing:", "done": "Done:"},
)
_ASCII_TERMINALS = ("dumb", "unknown", "linux")  # the Linux console has a font of 512 glyphs


Display = Literal["full", "plain", "screen-reader"]


class ChatConsole(Console):
    """A console with the user's choice of display: with a live area and colors, as plain text that is only appended, or
    as plain text with words instead of symbols."""

    def __init__(self, *, display: Display = "full", theme_name: str = DEFAULT_THEME, **settings: Any) -> None:
        super().__init__(theme=Theme({**THEME.styles, **THEMES[theme_name]}), **settings)
        self.display: Display = display
        self.theme_name = theme_name

    def use(self, theme_name: str) -> None:
        """Change the theme."""
        self.theme_name = theme_name
        self.push_theme(Theme({**THEME.styles, **THEMES[theme_name]}))


def code_theme(console: Console) -> str | None:
    """The colors of code, which are the terminal's own; None for no colors."""
    name = console.theme_name if isinstance(console, ChatConsole) else DEFAULT_THEME
    return _CODE_THEMES.get(name, "ansi_dark")


def prompt_styles(theme_name: str) -> dict[str, str]:
    """The styles of prompts in a theme."""
    return {**_PROMPTS, **_THEMED_PROMPTS.get(theme_name, {})}


def is_plain(console: Console) -> bool:
    """Whether text is only appended: because of the terminal's capabilities, or the user's choice."""
    is_asked_for = isinstance(console, ChatConsole) and console.display != "full"
    return is_asked_for or console.is_dumb_terminal or not console.is_terminal


def symbols_for(console: Console) -> Symbols:
    """Unicode symbols if the terminal can show them, ASCII otherwise, and words for a screen reader."""
    if isinstance(console, ChatConsole) and console.display == "screen-reader":
        return _WORDS
    if os.environ.get("TERM", "").lower() in _ASCII_TERMINALS:
        return _ASCII
    try:
        "".join((_UNICODE.good, _UNICODE.bad, _UNICODE.quote, _UNICODE.spinner)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE
