"""Recomputes what a database derives from the entries of a session, and compares it with what is stored.

Queries rely on it, so damage to it shows wrong lists, totals, branches and search results although every entry is
intact. `bartack sessions fsck` finds that.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.nouns.errors import PartValidationError, StoreError
from bartack.store.append import Row, row_of
from bartack.store.blobs import referenced
from bartack.store.index import SPEND_FIELDS, ModelKey, model_key
from bartack.store.search import sortable
from bartack.store.session_store import NO_SPEND, Spend, Tail

__all__ = ["Derived", "derive", "differences"]


class Derived(NamedTuple):
    """One session."""

    title: str | None
    created: str
    updated: str
    tail: Tail
    branches: Mapping[int, int]  # seq of a branch start -> seq of its parent
    results: Mapping[str, int]  # tool call -> seq of its result
    redactions: Collection[str]
    spends: Mapping[ModelKey, Spend]
    blobs: Collection[str]


def derive(seqs: Sequence[int], texts: Sequence[bytes]) -> Derived | None:
    """What follows from these entries, all of one session; None if one of them is not an entry, or there is none."""
    entries: list[Entry] = []
    rows: list[Row] = []
    for text in texts:
        try:
            entries.append(wire.decode(Entry, text))
            rows.append(row_of(entries[-1], {}))
        except (PartValidationError, StoreError):
            return None
    return _derived(entries, dict(zip([row.id for row in rows], seqs, strict=True)), rows) if rows else None


def _derived(entries: Sequence[Entry], seqs: Mapping[str, int], rows: Sequence[Row]) -> Derived:
    redacted = {row.redacts for row in rows if row.redacts is not None}
    spends: dict[ModelKey, Spend] = {}
    for row in rows:
        if row.spend is not None:
            key = model_key(row.spend.model)
            spends[key] = spends.get(key, NO_SPEND) + row.spend.spend
    parents = {seqs[row.id]: seqs.get(row.parent_id or "", 0) for row in rows[1:]}
    titled = [row for row in rows if row.title is not None]
    return Derived(
        title=titled[-1].title if titled and titled[-1].id not in redacted else None,
        created=sortable(entries[0].timestamp),
        updated=sortable(entries[-1].timestamp),
        tail=Tail(rows[-1].id, seqs[rows[-1].id]),
        branches={seq: parent for seq, parent in parents.items() if parent != seq - 1},
        results={call: seqs[row.id] for row in rows for call in row.results},
        redactions=redacted,
        spends=spends,
        blobs={name for row in rows if row.needs_restore for name in referenced(row.text)},
    )


def differences(stored: Derived, expected: Derived) -> Iterator[tuple[int | None, str]]:
    """Where what is stored is wrong: a seq, if there is one, and a description."""
    for name in ("title", "created", "updated", "tail"):
        if getattr(stored, name) != getattr(expected, name):
            yield None, f"the recorded {name} is {getattr(stored, name)!r}, not {getattr(expected, name)!r}"
    for name in ("branches", "results"):
        yield from _wrong_items(name, getattr(stored, name), getattr(expected, name))
    for name in ("redactions", "blobs"):
        for item in sorted(set(getattr(stored, name)) ^ set(getattr(expected, name))):
            yield None, f"the index of {name} is wrong about {item!r}"
    for key in sorted(stored.spends.keys() | expected.spends.keys()):
        if not _is_same(stored.spends.get(key, NO_SPEND), expected.spends.get(key, NO_SPEND)):
            yield None, f"the recorded usage of model {'/'.join(key)!r} does not match the entries"


def _wrong_items(
    name: str, stored: Mapping[int | str, object], expected: Mapping[int | str, object]
) -> Iterator[tuple[int | None, str]]:
    for key in sorted(stored.keys() | expected.keys(), key=str):
        if stored.get(key) != expected.get(key):
            seq = key if isinstance(key, int) else expected.get(key)
            yield seq if isinstance(seq, int) else None, f"the index of {name} is wrong about {key!r}"


def _is_same(first: Spend, second: Spend) -> bool:
    """Whether the usage is the same. The cost is a sum of floats, which depends on the order a little."""
    counts = [name for name in SPEND_FIELDS if name != "cost_usd"]
    return math.isclose(first.cost_usd, second.cost_usd, rel_tol=1e-9, abs_tol=1e-12) and all(
        getattr(first, name) == getattr(second, name) for name in counts
    )
