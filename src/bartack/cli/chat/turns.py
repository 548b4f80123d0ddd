"""The turns of a session, and the places where it can go on. In: entries of all its branches. Out: plain values.

A turn is a message of the user with everything that follows until the next one. What is stored is a tree: whoever goes
back to an earlier turn and says something else begins a branch, and nothing is lost.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bartack.nouns.entries import Entry, RunEnded, RunStarted
from bartack.nouns.messages import Message

__all__ = ["Turn", "branch_of", "has_open_run", "other_ends", "turns_of"]


class Turn(NamedTuple):
    """What the user said, the entry before it (where an undo goes) and the last entry that belongs to it."""

    message: Message
    before: str
    end: str


def turns_of(branch: Sequence[Entry]) -> list[Turn]:
    """The turns of one branch, in order. What a run writes before the message of the user belongs to that turn."""
    turns: list[Turn] = []
    began = ""  # the last entry before the run that brings the next message
    last = ""
    for entry in branch:
        fact = entry.fact
        if isinstance(fact, RunStarted):
            began = last
        elif isinstance(fact, Message) and fact.role == "user" and not _is_synthetic(fact):
            before = began or last
            if turns:
                turns[-1] = turns[-1]._replace(end=before)
            turns.append(Turn(fact, before, entry.id))
            began = ""
        last = entry.id
        if turns and not began:
            turns[-1] = turns[-1]._replace(end=entry.id)
    return turns


def _is_synthetic(message: Message) -> bool:
    return all(getattr(part, "synthetic", False) for part in message.parts)


def branch_of(entries: Iterable[Entry], head: str) -> list[Entry]:
    """The entries from the first one to `head`."""
    by_id = {entry.id: entry for entry in entries}
    branch: list[Entry] = []
    at: str | None = head
    while at is not None and at in by_id:
        branch.append(by_id[at])
        at = by_id[at].parent_id
    return branch[::-1]


def other_ends(heads: Iterable[str], branch: Sequence[Entry]) -> list[str]:
    """The ends of the branches that are not this one, the newest first."""
    own = {entry.id for entry in branch}
    return [head for head in heads if head not in own][::-1]


def has_open_run(branch: Iterable[Entry]) -> bool:
    """Whether the last run was cut: it began and nothing says that it ended."""
    is_open = False
    for entry in branch:
        match entry.fact:
            case RunStarted():
                is_open = True
            case RunEnded():
                is_open = False
            case _:
                pass
    return is_open
