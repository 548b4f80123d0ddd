"""Text and JSON from models and tools, made safe to print on a terminal.

A terminal acts on control characters: they move the cursor, write the clipboard, change the window title. So escape
sequences are removed whole, and then every other invisible character, including those that reverse the reading
direction.
"""

import json
import re
from typing import Any

import msgspec

from bartack.display.visible_text import FILLERS, TAB, emoji_pieces, is_visible
from bartack.nouns.terminal_control import ESCAPE_SEQUENCE

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte of a file name that is not UTF-8
_FILLER = re.compile(f"[{FILLERS}]")


def safe_text(text: str) -> str:
    """The text with its line breaks, tabs as spaces, and no control characters."""
    if not text.isprintable():
        text = _LINE_ENDS.sub("\n", ESCAPE_SEQUENCE.sub("", text))
    return "\n".join(_without_invisible(line) for line in text.split("\n"))


def safe_line(text: str) -> str:
    """The same on one line."""
    return " ".join(safe_text(text).split())


def encodable(text: str, encoding: str) -> str:
    """The text with a question mark for each character that the encoding lacks."""
    if text.isascii():
        return text
    return text.encode(encoding, "replace").decode(encoding, "replace")


def valid_text(text: str) -> str:
    """A command-line argument or path, with U+FFFD for bytes that are not UTF-8 and could not be stored."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    """The value as JSON, on one line unless indented, with every unprintable character as \\uXXXX.

    JSON itself only requires this below U+0020. Readers get the same text.
    """
    data = msgspec.json.encode(value)
    text = data.decode()
    if not text.isprintable():
        # JSON is printable outside of strings, so these characters are inside one.
        data = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text).encode()
    return data if indent is None else msgspec.json.format(data, indent=indent)


def _without_invisible(line: str) -> str:
    if not line.isascii():
        line = _FILLER.sub("", line)
    if line.isprintable():
        return line
    line = _SURROGATE.sub("\ufffd", line.replace("\t", TAB))
    return "".join(piece if is_emoji else "".join(filter(is_visible, piece)) for piece, is_emoji in emoji_pieces(line))
