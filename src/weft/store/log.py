"""`Log`: one session in memory, as the stores without a database keep it: stored texts, and what finds them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import datetime

from weft import wire
from weft.entries import Redaction, SessionHeader
from weft.errors import NotFound, PartValidationError
from weft.messages import Message, ModelRef
from weft.store import tree
from weft.store.admission import Draft, Present, Row
from weft.store.blobs import restore
from weft.store.facts import results_in, spend_of, text_of
from weft.store.search import holds, phrases, snippet, words
from weft.store.session_store import NO_SPEND, Hit, Lease, ModelSpend, SessionInfo, Spend, Tail, Totals
from weft.store.stored import Entries, Peek, peek_all, unreadable_id

__all__ = ["Log", "totals_of"]

Bodies = Callable[[str], bytes]
_Key = tuple[str, str]  # provider and model; both empty for a call that names none


class Log:
    """The entries of one session. Texts are kept as they are stored: after `cut`."""

    def __init__(self, session_id: str, body_of: Bodies) -> None:
        self.session_id = session_id
        self.held: Lease | None = None
        self._body_of = body_of
        self._texts: list[bytes] = []
        self._is_cut = False  # whether `restore` has anything to do for any of them
        self._seqs: list[int] = []
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._jumps: dict[int, int] = {}
        self._results: set[str] = set()
        self._hidden: set[str] = set()
        self._spends: dict[_Key, Spend] = {}
        self._spends_counted = 0  # entries that `_spends` includes

    # -- in

    def present(self, draft: Draft) -> Present:
        """What `admit` wants to know."""
        return Present(
            tail=self.tail,
            texts={id: self._texts[self._places[id]] for id in draft.ids if id in self._places},
            seqs={id: self._seqs[self._places[id]] for id in draft.named if id in self._places},
            results=self._results,
            held=self.held,
        )

    def add(self, row: Row) -> None:
        """An entry that was admitted."""
        self._add(row.text, row.seq, row.id, row.parent_id)
        self._results.update(row.results)
        self._is_cut |= row.is_cut
        if row.redacts is not None:
            self._hidden.add(row.redacts)

    def add_texts(self, texts: list[bytes]) -> None:
        """Entries as they were found in a file; also a text that is none takes its place."""
        for text, outside in zip(texts, peek_all(texts), strict=True):
            if outside is None:
                seq = self._seqs[-1] + 1 if self._seqs else 1
                self._add(text, seq, unreadable_id(self.session_id, seq), None)
                continue
            self._add(text, outside.seq, outside.id, outside.parent_id)
            if b'"tool_result"' in text or b'"result":' in text or outside.kind == Redaction.kind:
                self._note(outside)
            if b'$blob"' in text:
                self._is_cut = True

    def _note(self, outside: Peek) -> None:
        payload = bytes(outside.payload)
        try:
            if outside.kind == Redaction.kind:
                self._hidden.add(wire.decode(Redaction, payload).entry_id)
            elif outside.kind == Message.kind:
                self._results.update(results_in(payload))
        except PartValidationError:
            pass  # it reads as unreadable, and the check reports it

    def _add(self, text: bytes, seq: int, id: str, parent_id: str | None) -> None:
        place = len(self._ids)
        if place and parent_id is not None and parent_id != self._ids[-1]:
            parent = self._places.get(parent_id)
            if parent is not None:
                self._jumps[seq] = self._seqs[parent]
        self._places.setdefault(id, place)
        self._texts.append(text)
        self._seqs.append(seq)
        self._ids.append(id)

    # -- out

    @property
    def tail(self) -> Tail | None:
        """The last entry's place; None before the first."""
        return Tail(self._ids[-1], self._seqs[-1]) if self._ids else None

    def seq_of(self, entry_id: str) -> int:
        """Where an entry stands; `NotFound`."""
        place = self._places.get(entry_id)
        if place is None:
            raise NotFound(f"there is no entry {entry_id!r} in session {self.session_id!r}")
        return self._seqs[place]

    def load(self, head: str | None) -> Entries:
        """The branch to `head`."""
        last = self._seqs[-1] if head is None else self.seq_of(head)
        places: list[int] = []
        for seqs in tree.path(last, self._jumps):
            places += range(bisect_left(self._seqs, seqs.start), bisect_right(self._seqs, seqs.stop - 1))
        return self._entries(places, self._hidden)

    def entries(self, after_seq: int = 0, limit: int | None = None, *, hide: bool = False) -> Entries:
        """The entries of all branches."""
        start = bisect_right(self._seqs, after_seq)
        end = len(self._seqs) if limit is None else min(start + limit, len(self._seqs))
        return self._entries(range(start, end), self._hidden if hide else ())

    def _entries(self, places: Iterable[int], hidden: Iterable[str]) -> Entries:
        places = list(places)
        texts = [self._texts[place] for place in places]
        if self._is_cut:
            texts = [restore(text, self._body_of) for text in texts]
        return Entries(self.session_id, [self._seqs[place] for place in places], texts, frozenset(hidden))

    def heads(self) -> tuple[str, ...]:
        """The ids of the branches' last entries."""
        return tuple(self._ids[bisect_right(self._seqs, seq) - 1] for seq in tree.heads(self._seqs[-1], self._jumps))

    def info(self) -> SessionInfo:
        """The session's line in a list."""
        ends = self._entries([0, len(self._ids) - 1], self._hidden)
        header = ends[0].fact
        return SessionInfo(
            id=self.session_id,
            title=header.title if isinstance(header, SessionHeader) else None,
            created=ends[0].timestamp,
            updated=ends[1].timestamp,
            entries=len(self._ids),
            tail=Tail(self._ids[-1], self._seqs[-1]),
            spend=sum(self.spends().values(), NO_SPEND),
        )

    @property
    def updated(self) -> datetime:
        """The time of the last entry."""
        return self._entries([len(self._ids) - 1], ())[0].timestamp

    def search(self, query: str) -> list[Hit]:
        """The entries that hold the query."""
        asked = phrases(query)
        hits = []
        for entry in self.entries():
            text = "" if entry.id in self._hidden else text_of(entry.fact)
            if holds(words(text), asked):
                hits.append(Hit(self.session_id, entry.id, entry.seq, snippet(text, asked)))
        return hits

    def spends(self) -> dict[_Key, Spend]:
        """What each model used; only entries that came since the last call are read."""
        new = self._entries(range(self._spends_counted, len(self._texts)), ())
        for entry in new:
            spent = spend_of(entry.fact)
            if spent is not None:
                key = _key(spent.model)
                self._spends[key] = self._spends.get(key, NO_SPEND) + spent.spend
        self._spends_counted = len(self._texts)
        return self._spends


def _key(model: ModelRef | None) -> _Key:
    return ("", "") if model is None else (model.provider, model.model)


def totals_of(spends: Iterable[tuple[_Key, Spend]]) -> Totals:
    """The sum of what sessions used, altogether and by model."""
    models: dict[_Key, Spend] = {}
    for key, spend in spends:
        models[key] = models.get(key, NO_SPEND) + spend
    by_model = tuple(ModelSpend(ModelRef(*key) if any(key) else None, spend) for key, spend in sorted(models.items()))
    return Totals(sum(models.values(), NO_SPEND), by_model)
