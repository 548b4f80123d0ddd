"""Text that a person has to judge, with everything in it visible.

A model can hide what a call does: behind characters that show nothing, that look like a space, or that reverse the
reading direction. Here each of them becomes an escape. Only invisible characters inside an emoji stay, because they
change nothing else.
"""

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["FILLERS", "TAB", "emoji_pieces", "is_visible", "visible_blanks", "visible_text", "without_fillers"]

_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats, lone surrogates, separators
TAB = "    "
_EMOJI = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
# Invisible characters inside an emoji: a joiner between two of them, and the letters of the flags of England, Scotland
# and Wales. Anywhere else they can hide text.
_IN_EMOJI = re.compile(
    f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"
    "|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)

# Letters and marks that look like nothing. Terminals disagree about their width.
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"
# Those, a sign that looks like a space, and what would make an emoji of the sign before it, if that can be one.
_BLANK = re.compile(
    f"[{FILLERS}\u2800]|(?<![{_EMOJI}0-9#*\u00a9\u00ae\u203c\u2049\u2122\u2139\u3030\u303d])[\ufe0e\ufe0f]"
)
_SPACES = frozenset(" \u3000")  # blanks that look like blanks


def visible_text(text: str) -> str:
    """The text with its line breaks, and every invisible character as an escape (\\x1b), also those that look like a
    space. Use it for what a user has to approve."""
    return "\n".join(_visible_line(line) for line in text.replace("\t", TAB).split("\n"))


def visible_blanks(line: str) -> str:
    """A line with its tabs and the spaces at its end as escapes."""
    text = line.rstrip(" ")
    return text.replace("\t", "\\t") + "\\x20" * (len(line) - len(text))


def without_fillers(text: str) -> str:
    """The text without characters that look like nothing although they are letters or marks. Text can be hidden in
    these: there are more of them than values of a byte."""
    return text if text.isascii() else _BLANK.sub("", text)


def _visible_line(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        piece if is_emoji else "".join(map(_shown, _BLANK.sub(lambda match: _escape(match[0]), piece)))
        for piece, is_emoji in emoji_pieces(line)
    )


def _shown(sign: str) -> str:
    is_blank = unicodedata.category(sign) == "Zs" and sign not in _SPACES
    return sign if is_visible(sign) and not is_blank else _escape(sign)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def emoji_pieces(line: str) -> Iterator[tuple[str, bool]]:
    """The line in pieces, and which of them are invisible characters inside an emoji."""
    position = 0
    for match in _IN_EMOJI.finditer(line):
        yield line[position : match.start()], False
        yield match[0], True
        position = match.end()
    yield line[position:], False


def is_visible(sign: str) -> bool:
    """Whether a character shows anything, be it a blank."""
    return unicodedata.category(sign) not in _INVISIBLE
