"""The title of a session: from its header, or from a later entry that renames it."""

from collections.abc import Sequence
from typing import Final

from bartack.nouns.entries import Custom, Entry, Fact, SessionHeader

__all__ = ["TITLE", "title_from", "title_in", "title_of"]

TITLE: Final = "bartack.title"  # the name of a `Custom` fact that renames its session
_MAX = 100_000  # characters
_FROM_PROMPT = 60  # characters of a title derived from a prompt


def title_of(fact: Fact) -> str | None:
    """The title that this fact sets; None if it sets none."""
    match fact:
        case SessionHeader():
            return fact.title
        case Custom(name=name, data={"title": str(title)}) if name == TITLE:
            return title[:_MAX]
        case _:  # no other kind of fact has a title
            return None


def title_in(branch: Sequence[Entry]) -> str | None:
    """The title of the session according to these entries."""
    titles = (title_of(entry.fact) for entry in reversed(branch))
    return next((title for title in titles if title is not None), None)


def title_from(prompt: str) -> str | None:
    """The title of a session that begins with this prompt: its first words, on one line; None if it is blank."""
    line = " ".join(prompt.split())
    if len(line) <= _FROM_PROMPT:
        return line or None
    words = line[: _FROM_PROMPT - 1]
    return f"{words.rpartition(' ')[0] or words}…"
