"""Pastes: what the terminal pastes in, what is inserted into the prompt out.

The paths of files that are dropped on the terminal become mentions. A long text is folded: `[Pasted #1: 500 lines]`
stands for it until the message is sent, and can be moved, deleted as one character, and unfolded.
"""

import re
from pathlib import Path

from rich.cells import split_graphemes

from bartack.app.mentions import pasted_text

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

    def inserted(self, pasted: str) -> str:
        """What a paste inserts."""
        text = pasted_text(pasted, self._directory)
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= _LINES and len(text) <= _CHARACTERS:
            return text
        length = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        placeholder = f"[Pasted #{len(self._folded) + 1}: {length}]"
        self._folded[placeholder] = text
        return placeholder

    def unfolded(self, text: str) -> str:
        """The text with everything that was pasted into it."""
        return _PLACEHOLDER.sub(lambda found: self._folded.get(found[0], found[0]), text)

    def last_length(self, text: str) -> int:
        """How many code points the last character of the text has: an emoji with joiners, or a folded paste, is one."""
        spans, _ = split_graphemes(text[-_LONGEST:])
        last = spans[-1][1] - spans[-1][0] if spans else 0
        return next((len(one) for one in self._folded if text.endswith(one)), last)
