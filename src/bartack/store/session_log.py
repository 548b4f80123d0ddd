"""`Log`: one session in memory, as the stores without a database keep it: stored texts, and what finds them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Raw

from bartack.nouns import wire
from bartack.nouns.entries import Entry, Redaction, SessionHeader
from bartack.nouns.errors import NotFound, PartValidationError
from bartack.nouns.messages import Message, ModelRef
from bartack.store import index as tree
from bartack.store.append import Draft, Present, Row
from bartack.store.blobs import restore
from bartack.store.entries import Entries, Peek, peek, peek_all, unreadable_id
from bartack.store.index import results_in, spend_of, text_of
from bartack.store.search import holds, phrases, snippet, words
from bartack.store.session_store import NO_SPEND, Hit, Lease, ModelSpend, SessionInfo, Spend, Tail, Totals

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
        self._placed = 0  # entries that `_places` includes: a session that is only read needs none
        self._jumps: dict[int, int] = {}
        self._results: set[str] = set()
        self._noted = 0  # entries whose results `_results` includes
        self._hidden: set[str] = set()
        self._spends: dict[_Key, Spend] = {}
        self._spends_counted = 0  # entries that `_spends` includes

    # -- in

    def present(self, draft: Draft) -> Present:
        """What `admit` wants to know."""
        places = self._up_to_date_places()
        for text in self._texts[self._noted :]:
            self._note_results(text)
        self._noted = len(self._texts)
        return Present(
            tail=self.tail,
            texts={id: self._texts[places[id]] for id in draft.ids if id in places},
            seqs={id: self._seqs[places[id]] for id in draft.named if id in places},
            results=self._results,
            held=self.held,
        )

    def add(self, row: Row) -> None:
        """An entry that was admitted; `present` was asked before."""
        self._extend([row.text], [row.seq], [row.id], [row.parent_id])
        self._results.update(row.results)
        self._noted += 1
        self._is_cut |= row.is_cut
        if row.redacts is not None:
            self._hidden.add(row.redacts)

    def add_texts(self, texts: list[bytes], data: bytes) -> None:
        """Entries as they were found in a file, and all of them as its lines; a text that is none takes its place."""
        outsides = peek_all(texts, data)
        if outsides is None:
            outsides = self._peek_each(texts)
        self._extend(
            texts,
            [outside.seq for outside in outsides],
            [outside.id for outside in outsides],
            [outside.parent_id for outside in outsides],
        )
        self._is_cut |= data.rfind(b'$blob"') >= 0  # backwards, the search skips to the next $ and not to every quote
        for outside in outsides:
            if outside.kind == Redaction.kind:
                self._note_redaction(bytes(outside.payload))

    def _peek_each(self, texts: list[bytes]) -> list[Peek]:
        outsides: list[Peek] = []
        seq = self._seqs[-1] if self._seqs else 0
        for text in texts:
            outside = peek(text)
            if outside is None:
                id = unreadable_id(self.session_id, seq + 1)
                outside = Peek(id, self.session_id, seq + 1, timestamp="", kind="", payload=Raw())
            outsides.append(outside)
            seq = outside.seq
        return outsides

    def _note_redaction(self, payload: bytes) -> None:
        try:
            self._hidden.add(wire.decode(Redaction, payload).entry_id)
        except PartValidationError:
            pass  # it reads as unreadable, and the check reports it

    def _note_results(self, text: bytes) -> None:
        if b'"tool_result"' not in text and b'"result":' not in text:
            return
        outside = peek(text)
        if outside is not None and outside.kind == Message.kind:
            try:
                self._results.update(results_in(bytes(outside.payload)))
            except PartValidationError:
                pass  # it reads as unreadable, and the check reports it

    def _extend(self, texts: list[bytes], seqs: list[int], ids: list[str], parent_ids: list[str | None]) -> None:
        start = len(self._ids)
        self._texts += texts
        self._seqs += seqs
        self._ids += ids
        before = self._ids[start - 1 : -1] if start else [None, *ids[:-1]]
        if parent_ids != before:  # else each follows the one before it
            self._find_jumps(start, parent_ids)

    def _find_jumps(self, start: int, parent_ids: list[str | None]) -> None:
        places = self._up_to_date_places()
        for place, parent_id in enumerate(parent_ids, start):
            if place and parent_id is not None and parent_id != self._ids[place - 1]:
                parent = places.get(parent_id, place)
                if parent < place:
                    self._jumps[self._seqs[place]] = self._seqs[parent]

    def _up_to_date_places(self) -> dict[str, int]:
        for place in range(self._placed, len(self._ids)):
            self._places.setdefault(self._ids[place], place)
        self._placed = len(self._ids)
        return self._places

    # -- out

    @property
    def tail(self) -> Tail | None:
        """The last entry's place; None before the first."""
        return Tail(self._ids[-1], self._seqs[-1]) if self._ids else None

    def seq_of(self, entry_id: str) -> int:
        """Where an entry stands; `NotFound`."""
        place = self._up_to_date_places().get(entry_id)
        if place is None:
            raise NotFound(f"there is no entry {entry_id!r} in session {self.session_id!r}")
        return self._seqs[place]

    def load(self, head: str | None) -> Entries:
        """The branch to `head`."""
        last = self._seqs[-1] if head is None else self.seq_of(head)
        ranges = [
            range(bisect_left(self._seqs, seqs.start), bisect_right(self._seqs, seqs.stop - 1))
            for seqs in tree.path(last, self._jumps)
        ]
        return self._entries(ranges, self._hidden)

    def entries(self, after_seq: int = 0, limit: int | None = None, *, hide: bool = False) -> Entries:
        """The entries of all branches."""
        start = bisect_right(self._seqs, after_seq)
        end = len(self._seqs) if limit is None else min(start + limit, len(self._seqs))
        return self._entries([range(start, end)], self._hidden if hide else ())

    def _entries(self, ranges: Iterable[range], hidden: Iterable[str]) -> Entries:
        texts: list[bytes] = []
        seqs: list[int] = []
        for places in ranges:
            texts += self._texts[places.start : places.stop]
            seqs += self._seqs[places.start : places.stop]
        if self._is_cut:
            texts = [restore(text, self._body_of) for text in texts]
        return Entries(self.session_id, seqs, texts, frozenset(hidden))

    def _entry(self, place: int, hidden: Iterable[str]) -> Entry:
        return self._entries([range(place, place + 1)], hidden)[0]

    def heads(self) -> tuple[str, ...]:
        """The ids of the branches' last entries."""
        return tuple(self._ids[bisect_right(self._seqs, seq) - 1] for seq in tree.heads(self._seqs[-1], self._jumps))

    def info(self) -> SessionInfo:
        """The session's line in a list."""
        first = self._entry(0, self._hidden)
        header = first.fact
        return SessionInfo(
            id=self.session_id,
            title=header.title if isinstance(header, SessionHeader) else None,
            created=first.timestamp,
            updated=self.updated,
            entries=len(self._ids),
            tail=Tail(self._ids[-1], self._seqs[-1]),
            spend=sum(self.spends().values(), NO_SPEND),
        )

    @property
    def updated(self) -> datetime:
        """The time of the last entry."""
        return self._entry(len(self._ids) - 1, ()).timestamp

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
        new = self._entries([range(self._spends_counted, len(self._texts))], ())
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
