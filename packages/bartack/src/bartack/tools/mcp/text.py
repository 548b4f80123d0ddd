"""Text from a server: without terminal control, and without the values of secrets that the server was given.

It is a module of its own because `bartack.tools.mcp` can be imported without the SDK, and `content` cannot.
"""

import unicodedata
from collections.abc import Mapping

from bartack.display.visible_text import without_fillers
from bartack.nouns.terminal_control import without_terminal_control
from bartack.tools.output import valid_text

__all__ = ["plain_text", "redacted", "visible_prose"]

_MIN_SECRET = 6  # shorter values, such as "1" or "true", occur everywhere


def plain_text(text: str) -> str:
    """The text of a result, without terminal control. What a terminal shows is also cleaned when it is printed; this
    keeps control characters out of the session and of other windows."""
    return without_terminal_control(valid_text(text))


def visible_prose(text: str) -> str:
    """A description for a model, without anything that a person who reads it would not see."""
    text = without_fillers(plain_text(text))
    if text.isprintable():
        return text
    return "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) not in {"Cf", "Co", "Cn"})


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """The text with the names of variables and headers in place of their values."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        if len(value) >= _MIN_SECRET:
            text = text.replace(value, f"${{{name}}}")
    return text
