"""`Fold`: the base of the views, which add entries one by one and apply redactions."""

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
    """A view that grows with its session."""

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
        """Add the next entry. A redaction affects earlier entries, so the view is rebuilt."""
        self._entries.append(entry)
        if not isinstance(entry.fact, Redaction):
            self._add(entry)
            return
        self._omitted.clear()
        self._clear()
        for visible_entry in visible(self._entries):
            self._add(visible_entry)

    @property
    def session_id(self) -> str:
        """The session's id; empty before the first entry."""
        return self._entries[0].session_id if self._entries else ""

    @property
    def omitted(self) -> dict[str, int]:
        """What this view cannot represent, with counts."""
        return dict(sorted(self._omitted.items()))

    def _omit(self, kind: str) -> None:
        self._omitted[kind] += 1

    @abstractmethod
    def _clear(self) -> None:
        """Reset the view."""

    @abstractmethod
    def _add(self, entry: Entry) -> None:
        """Add one entry, with redactions applied."""

    @abstractmethod
    def dump(self) -> dict[str, Any]:
        """The view as JSON in Python values."""


class Chain:
    """The entries read from a view: numbered, each the child of the previous one, with derived ids."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.entries: list[Entry] = []

    def add(self, fact: Fact, timestamp: datetime, *, id: str | None = None) -> None:
        """Append a fact; `id` is the entry's id if the view includes it."""
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
