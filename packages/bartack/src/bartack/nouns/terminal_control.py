"""Characters on which a terminal acts: they move the cursor, write the clipboard, change the window title."""

import re

__all__ = ["ESCAPE_SEQUENCE", "without_terminal_control"]

# ESC [ ... letter; ESC ] (also P, X, ^, _) ... up to BEL or ESC \, at most to the end of the line, so that an
# unterminated one does not hide the rest; ESC and one more; and the one-byte forms of these (U+0080 to U+009F).
ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def without_terminal_control(text: str) -> str:
    """The text without escape sequences and control characters; tabs stay, and every line break is a line feed."""
    if text.isprintable():
        return text
    return _CONTROL.sub("", ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
