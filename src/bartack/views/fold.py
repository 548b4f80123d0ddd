"""`Fold`: what the views have in common: entries come one by one, and what was redacted is never shown."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from bartack.nouns.entries import Entry, Fact, Redaction
from bartack.nouns.ids import derived_id
from bartack.session.redaction import visible

__all__ = ["Chain", "Fold"]


class Fold(ABC):
    """A view that grows with its session. Looking (`dump`) changes nothing."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._omitted: Counter[str] = Counter()
        self._clear()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The view of these entries."""
        fold = cls()
        for entry in entries:
            fold.push(entry)
        return fold

    def push(self, entry: Entry) -> None:
        """Take the next entry. A redaction reaches back, so after one the view is made anew."""
        self._entries.append(entry)
        if not isinstance(entry.fact, Redaction):
            self._add(entry)
            return
        self._omitted.clear()
        self._clear()
        for seen in visible(self._entries):
            self._add(seen)

    @property
    def session_id(self) -> str:
        """The session's id; empty before the first entry."""
        return self._entries[0].session_id if self._entries else ""

    @property
    def omitted(self) -> dict[str, int]:
        """How many of which things this view cannot carry."""
        return dict(sorted(self._omitted.items()))

    def _omit(self, what: str) -> None:
        self._omitted[what] += 1

    @abstractmethod
    def _clear(self) -> None:
        """Forget what the entries amounted to."""

    @abstractmethod
    def _add(self, entry: Entry) -> None:
        """Fold one entry, as everybody may see it."""

    @abstractmethod
    def dump(self) -> dict[str, Any]:
        """The view as JSON in Python values."""


class Chain:
    """Entries made by reading a view: numbered, each the child of the one before, ids by their place."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.entries: list[Entry] = []

    def add(self, fact: Fact, timestamp: datetime, *, id: str | None = None) -> None:
        """Append a fact; `id` is the entry's own where the view shows it."""
        self.entries.append(
            Entry(
                id=id or derived_id(self.session_id, len(self.entries)),
                session_id=self.session_id,
                parent_id=self.entries[-1].id if self.entries else None,
                seq=len(self.entries) + 1,
                timestamp=timestamp,
                fact=fact,
            )
        )
