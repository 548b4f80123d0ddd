"""The ledger view (000, 001, 004): the canonical JSON of a session. It represents everything; nothing is omitted."""

from collections.abc import Iterable
from typing import Any

from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.nouns.wire import none_if_invalid
from bartack.views.fold import Fold

__all__ = ["Ledger", "dump", "load", "try_load"]


class _LedgerJson(Noun, frozen=True, kw_only=True):
    view: str = "ledger"
    session_id: str
    omitted: dict[str, int] | None = None
    entries: tuple[Entry, ...]


class Ledger(Fold):
    """The ledger of a session, built entry by entry."""

    def _clear(self) -> None:
        self._shown: list[Any] = []

    def _add(self, entry: Entry) -> None:
        self._shown.append(wire.dump(entry))

    def dump(self) -> dict[str, Any]:
        """``{"view": "ledger", "sessionId", "omitted": {}, "entries": [...]}``."""
        return {"view": "ledger", "sessionId": self.session_id, "omitted": {}, "entries": list(self._shown)}


def dump(entries: Iterable[Entry]) -> dict[str, Any]:
    """The ledger of these entries, as JSON in Python values."""
    return Ledger.of(entries).dump()


def load(data: Any) -> tuple[Entry, ...]:
    """Read the entries of a ledger; raises `PartValidationError`."""
    ledger = wire.load(_LedgerJson, data)
    if ledger.view != "ledger":
        raise PartValidationError(f"expected a ledger, got the view {ledger.view!r}", path="$.view")
    return ledger.entries


def try_load(data: Any) -> tuple[Entry, ...] | None:
    """As `load`, but if a field is missing or invalid, log it and return None (D-7.5)."""
    return none_if_invalid("A ledger", lambda: load(data))
