"""Text and JSON from models and tools, made safe to print on a terminal.

A terminal acts on control characters: they move the cursor, write the clipboard, change the window title. So escape
sequences are removed whole, and then every other invisible character, including those that reverse the reading
direction.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from bartack.nouns.terminal_control import ESCAPE_SEQUENCE

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats, lone surrogates, separators
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte of a file name that is not UTF-8
_TAB = "    "
_EMOJI = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
# Invisible characters inside an emoji: a joiner between two of them, and the letters of the flags of England, Scotland
# and Wales. Anywhere else they are removed, because they can hide text.
_IN_EMOJI = re.compile(
    f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"
    "|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)

# Letters and marks that look like nothing. Terminals disagree about their width.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"
_FILLER = re.compile(f"[{_FILLERS}]")
# Those, a sign that looks like a space, and what would make an emoji of the sign before it, if that can be one.
_BLANK = re.compile(
    f"[{_FILLERS}\u2800]|(?<![{_EMOJI}0-9#*\u00a9\u00ae\u203c\u2049\u2122\u2139\u3030\u303d])[\ufe0e\ufe0f]"
)
_SPACES = frozenset(" \u3000")  # that look like what they are


def safe_text(text: str) -> str:
    """The text with its line breaks, tabs as spaces, and no control characters."""
    if not text.isprintable():
        text = _LINE_ENDS.sub("\n", ESCAPE_SEQUENCE.sub("", text))
    return "\n".join(_without_invisible(line) for line in text.split("\n"))


def safe_line(text: str) -> str:
    """The same on one line."""
    return " ".join(safe_text(text).split())


def visible_text(text: str) -> str:
    """The text with its line breaks, and every invisible character as an escape (\\x1b), also those that look like a
    space. Use it for what a user has to approve."""
    return "\n".join(_visible_line(line) for line in text.replace("\t", _TAB).split("\n"))


def visible_blanks(line: str) -> str:
    """A line with its tabs and the spaces at its end as escapes."""
    text = line.rstrip(" ")
    return text.replace("\t", "\\t") + "\\x20" * (len(line) - len(text))


def _visible_line(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        piece if is_emoji else "".join(map(_shown, _BLANK.sub(lambda found: _escape(found[0]), piece)))
        for piece, is_emoji in _pieces(line)
    )


def _shown(sign: str) -> str:
    is_blank = unicodedata.category(sign) == "Zs" and sign not in _SPACES
    return sign if _is_visible(sign) and not is_blank else _escape(sign)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def _pieces(line: str) -> Iterator[tuple[str, bool]]:
    """The line in pieces, and which of them are invisible characters inside an emoji."""
    at = 0
    for found in _IN_EMOJI.finditer(line):
        yield line[at : found.start()], False
        yield found[0], True
        at = found.end()
    yield line[at:], False


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
    line = _SURROGATE.sub("\ufffd", line.replace("\t", _TAB))
    return "".join(piece if is_emoji else "".join(filter(_is_visible, piece)) for piece, is_emoji in _pieces(line))


def _is_visible(sign: str) -> bool:
    return unicodedata.category(sign) not in _INVISIBLE
