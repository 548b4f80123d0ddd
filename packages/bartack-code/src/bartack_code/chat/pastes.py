"""Pastes: what the terminal pastes in, what is inserted into the prompt out.

The paths of files that are dropped on the terminal become mentions. A long text is folded: `[Pasted #1: 500 lines]`
stands for it until the message is sent, and can be moved, deleted as one character, and unfolded. An image in the
clipboard is read with the program that the desktop has for that, and becomes a file.
"""

import re
import subprocess
from hashlib import sha256
from pathlib import Path

from rich.cells import split_graphemes

from bartack.nouns.parts import type_of_data
from bartack.store.files import new_file
from bartack_code.workspace.attachments import pasted_text

_LINES = 10  # more are folded
_CHARACTERS = 2_000
_LONGEST = 40  # code points; a family with skin tones has 11
_PLACEHOLDER = re.compile(r"\[Pasted #\d+: [\d,]+ (?:lines|characters)\]")


class Pastes:
    """The long pastes of one chat."""

    def __init__(self, directory: Path) -> None:
        """Mentions are relative to `directory`."""
        self._directory = directory
        self._folded: dict[str, str] = {}

    def fold(self, pasted: str) -> str:
        """What a paste inserts."""
        text = pasted_text(pasted, self._directory)
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= _LINES and len(text) <= _CHARACTERS:
            return text
        length = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        placeholder = f"[Pasted #{len(self._folded) + 1}: {length}]"
        self._folded[placeholder] = text
        return placeholder

    def unfold(self, text: str) -> str:
        """The text with everything that was pasted into it."""
        return _PLACEHOLDER.sub(lambda match: self._folded.get(match[0], match[0]), text)

    def last_length(self, text: str) -> int:
        """How many code points the last character of the text has: an emoji with joiners, or a folded paste, is one."""
        spans, _ = split_graphemes(text[-_LONGEST:])
        last = spans[-1][1] - spans[-1][0] if spans else 0
        return next((len(placeholder) for placeholder in self._folded if text.endswith(placeholder)), last)


# -- the image in the clipboard

_PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_TIMEOUT_S = 5.0


def clipboard_image() -> bytes | None:
    """The image as PNG; None if there is none, or no program that can read it."""
    for words in _PROGRAMS:
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0 and type_of_data(done.stdout) == "image/png":
            return done.stdout
    return None


def saved_image(folder: Path) -> Path | None:
    """The image in the clipboard, as a file in this folder; None if there is none. Raises `OSError`."""
    data = clipboard_image()
    if data is None:
        return None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{sha256(data).hexdigest()[:12]}.png"
    with new_file(path, overwrite=True) as file:  # with the same content, if it is there already
        file.write(data)
    return path
