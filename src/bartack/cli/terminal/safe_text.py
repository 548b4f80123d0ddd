"""Text from models and tools, made harmless for a terminal.

A terminal obeys what stands between the letters: it moves its cursor, writes the clipboard, changes its title. So
escape sequences are taken out whole, and after them every character that is no sign on the screen, the ones that turn
the direction of reading included. What is left can be printed anywhere.
"""

import re
import unicodedata

__all__ = ["encodable", "safe_line", "safe_text", "visible_text"]

# ESC [ ... letter; ESC ] (also P, X, ^, _) ... up to BEL or ESC \, at most to the end of the line, so that an open one
# swallows no answer; ESC and one more; and the one-byte forms of the same (U+0080 to U+009F).
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats, half characters, separators
_TAB = "    "


def safe_text(text: str) -> str:
    """The text with its lines, tabs as spaces, and nothing that a terminal would obey."""
    if not text.isprintable():
        text = _LINE_ENDS.sub("\n", _SEQUENCE.sub("", text))
    return "\n".join(_shown(line) for line in text.split("\n"))


def safe_line(text: str) -> str:
    """The same on one line."""
    return " ".join(safe_text(text).split())


def visible_text(text: str) -> str:
    """The text with its lines, and an escape in letters (\\x1b) for each character that would not be seen: for a human
    who decides about it and must see all there is."""
    return "\n".join(
        "".join(sign if _is_seen(sign) else sign.encode("unicode_escape").decode() for sign in line.replace("\t", _TAB))
        for line in text.split("\n")
    )


def encodable(text: str, encoding: str) -> str:
    """The text with a question mark for whatever the output cannot hold."""
    if text.isascii():
        return text
    return text.encode(encoding, "replace").decode(encoding, "replace")


def _shown(line: str) -> str:
    if line.isprintable():
        return line
    line = line.replace("\t", _TAB)
    return "".join(sign for sign in line if _is_seen(sign))


def _is_seen(sign: str) -> bool:
    return unicodedata.category(sign) not in _UNSEEN
