"""Sessions in memory, for the stores without a database, and `MemoryStore`, which has nothing else.

A `SessionLog` is one session: its stored texts, and indexes over them. The indexes are brought up to date when they are
needed, so that a session that is only read costs little. `Logs` are the tables of a store made of such logs. JSONL
stores use both, and override where the logs come from.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice, zip_longest
from operator import attrgetter
from typing import TypeVar

from msgspec import Raw
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, MessageDeltaBatch, Redaction
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.session.title import TITLE, title_of
from bartack.store.append import Batch, Clock, Existing, Row, check_append, prepare
from bartack.store.append_only import Tables, TableStore
from bartack.store.blobs import has_blob_word, restore_blobs
from bartack.store.entries import Entries, Envelope, envelope_of, envelopes_of, unreadable_id
from bartack.store.errors import entry_not_found_error, session_not_found_error
from bartack.store.index import (
    ModelKey,
    branch_heads,
    branch_ranges,
    model_key,
    results_in,
    spend_of,
    text_of,
    totals_of,
)
from bartack.store.search import contains, newest_first, page_of, phrases, relevance, snippet, words
from bartack.store.session_store import (
    NO_SPEND,
    RESERVED,
    Hit,
    Inspection,
    Lease,
    Page,
    SessionAppend,
    SessionInfo,
    Spend,
    Tail,
    Totals,
)

__all__ = ["Logs", "MemoryStore", "SessionLog"]

T = TypeVar("T")


class SessionLog:
    """The entries of one session, as they are stored: after `extract_blobs`."""

    def __init__(self, session_id: str, find_blob: Callable[[str], bytes | None]) -> None:
        self.session_id = session_id
        self.lease: Lease | None = None
        self.checksum = b""  # the checksum of the last entry
        self._find_blob = find_blob
        self._texts: list[bytes] = []
        self._needs_restore = False
        self._seqs: list[int] = []
        self.ids: list[str] = []
        self._positions: dict[str, int] = {}  # entry id -> position, for those before `_indexed`
        self._indexed = 0
        self._branch_starts: dict[int, int] = {}
        self._results: set[str] = set()  # tool calls with a result before `_results_read`
        self._results_read = 0
        self._hidden: set[str] = set()
        self._titled = 0  # the position of the entry that gives the session its title
        self._spends: dict[ModelKey, Spend] = {}  # usage by model before `_spends_read`
        self._spends_read = 0
        self._info: SessionInfo | None = None  # outdated if it counts other entries

    # -- in

    def existing(self, batch: Batch) -> Existing:
        """What `check_append` needs."""
        positions = self._all_positions()
        for text in self._texts[self._results_read :]:
            self._index_results(text)
        self._results_read = len(self._texts)
        return Existing(
            tail=self.tail,
            texts={id: self._texts[positions[id]] for id in batch.ids if id in positions},
            seqs={id: self._seqs[positions[id]] for id in batch.references if id in positions},
            results=self._results,
            lease=self.lease,
            checksum=self.checksum,
        )

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows that passed `check_append`, for which `existing` was called."""
        for row in rows:
            self._extend([row.text], [row.seq], [row.id], [row.parent_id])
            self._needs_restore |= row.needs_restore
            self._results.update(row.results)
            self._results_read += 1
            if row.redacts is not None:
                self._hidden.add(row.redacts)
            if row.title is not None:
                self._titled = len(self._texts) - 1
            self.checksum = row.checksum

    def add_lines(self, texts: list[bytes], checksum: bytes, lines: bytes) -> None:
        """Add entries read from a file: their texts, the checksum of the last one, and all of them as lines.

        Unreadable ones keep their place.
        """
        self.checksum = checksum
        envelopes = envelopes_of(lines, len(texts)) or self._envelopes_one_by_one(texts)
        self._extend(
            texts,
            self._rising([envelope.seq for envelope in envelopes]),
            [envelope.id for envelope in envelopes],
            [envelope.parent_id for envelope in envelopes],
        )
        self._needs_restore |= has_blob_word(lines)
        for position, envelope in enumerate(envelopes, len(self._texts) - len(texts)):
            if envelope.kind == Redaction.kind:
                self._index_redaction(bytes(envelope.payload))
            elif envelope.kind == Custom.kind and TITLE.encode() in bytes(envelope.payload):
                self._index_title(position, bytes(envelope.payload))

    def _rising(self, seqs: list[int]) -> list[int]:
        """The seqs of the next lines. One that is out of order is damaged; its position determines it instead."""
        last = self._seqs[-1] if self._seqs else 0
        if seqs == list(range(last + 1, last + 1 + len(seqs))):
            return seqs
        rising: list[int] = []
        for seq, following in zip_longest(seqs, seqs[1:]):
            is_gap = seq > last and following in (None, seq + 1)  # a jump that the next line confirms
            last = seq if is_gap else last + 1
            rising.append(last)
        return rising

    def _envelopes_one_by_one(self, texts: list[bytes]) -> list[Envelope]:
        envelopes: list[Envelope] = []
        seq = self._seqs[-1] if self._seqs else 0
        for text in texts:
            envelope = envelope_of(text)
            if envelope is None:
                id = unreadable_id(self.session_id, seq + 1)
                envelope = Envelope(id, self.session_id, seq + 1, timestamp="", kind="", payload=Raw())
            envelopes.append(envelope)
            seq = envelope.seq
        return envelopes

    def _index_redaction(self, payload: bytes) -> None:
        try:
            self._hidden.add(wire.decode(Redaction, payload).entry_id)
        except PartValidationError:
            pass  # an unreadable entry, which the check reports

    def _index_title(self, position: int, payload: bytes) -> None:
        try:
            if title_of(wire.decode(Custom, payload)) is not None:
                self._titled = position
        except PartValidationError:
            pass  # an unreadable entry, which the check reports

    def _index_results(self, text: bytes) -> None:
        if b'"tool_result"' not in text and b'"result":' not in text:
            return
        envelope = envelope_of(text)
        if envelope is not None and envelope.kind == Message.kind:
            try:
                self._results.update(results_in(bytes(envelope.payload)))
            except PartValidationError:
                pass  # an unreadable entry, which the check reports

    def _extend(self, texts: list[bytes], seqs: list[int], ids: list[str], parent_ids: list[str | None]) -> None:
        start = len(self.ids)
        self._texts += texts
        self._seqs += seqs
        self.ids += ids
        previous = self.ids[start - 1 : -1] if start else [None, *ids[:-1]]
        if parent_ids != previous:
            self._index_branch_starts(start, parent_ids)

    def _index_branch_starts(self, start: int, parent_ids: list[str | None]) -> None:
        positions = self._all_positions()
        for position, parent_id in enumerate(parent_ids, start):
            if position and parent_id is not None and parent_id != self.ids[position - 1]:
                parent = positions.get(parent_id, position)
                if parent < position:
                    self._branch_starts[self._seqs[position]] = self._seqs[parent]

    def _all_positions(self) -> dict[str, int]:
        for position in range(self._indexed, len(self.ids)):
            self._positions.setdefault(self.ids[position], position)
        self._indexed = len(self.ids)
        return self._positions

    # -- out

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tail(self) -> Tail:
        """The last entry; the log must not be empty."""
        return Tail(self.ids[-1], self._seqs[-1])

    def seq_of(self, entry_id: str) -> int:
        """The seq of an entry; `NotFound`."""
        position = self._all_positions().get(entry_id)
        if position is None:
            raise entry_not_found_error(self.session_id, entry_id)
        return self._seqs[position]

    def load(self, head: str | None) -> Entries:
        """The branch to `head`."""
        last = self._seqs[-1] if head is None else self.seq_of(head)
        ranges = [
            range(bisect_left(self._seqs, seqs.start), bisect_right(self._seqs, seqs.stop - 1))
            for seqs in branch_ranges(last, self._branch_starts)
        ]
        return self._entries(ranges, self._hidden)

    def entries(self, after_seq: int = 0, limit: int | None = None, *, hide: bool = False) -> Entries:
        """Entries of all branches."""
        start = bisect_right(self._seqs, after_seq)
        end = len(self._seqs) if limit is None else min(start + limit, len(self._seqs))
        return self._entries([range(start, end)], self._hidden if hide else ())

    def _entries(self, ranges: Iterable[range], hidden: Iterable[str] = ()) -> Entries:
        texts: list[bytes] = []
        seqs: list[int] = []
        for positions in ranges:
            texts += self._texts[positions.start : positions.stop]
            seqs += self._seqs[positions.start : positions.stop]
        if self._needs_restore:
            texts = [restore_blobs(text, self._find_blob) for text in texts]
        return Entries(self.session_id, seqs, texts, frozenset(hidden))

    def heads(self) -> tuple[str, ...]:
        """The ids of the entries without children."""
        seqs = branch_heads(self._seqs[-1], self._branch_starts)
        return tuple(self.ids[bisect_right(self._seqs, seq) - 1] for seq in seqs)

    def info(self) -> SessionInfo:
        """The session, as it is listed."""
        if self._info is None or self._info.entries != len(self.ids):
            (first,) = self._entries([range(1)])
            self._info = SessionInfo(
                id=self.session_id,
                title=self.title,
                created=first.timestamp,
                updated=self.updated,
                entries=len(self.ids),
                tail=self.tail,
                spend=sum(self.spends().values(), NO_SPEND),
            )
        return self._info

    @property
    def title(self) -> str | None:
        """The title that the session was given last; None if it has none, or that was redacted."""
        (titled,) = self._entries([range(self._titled, self._titled + 1)], self._hidden)
        return title_of(titled.fact)

    @property
    def updated(self) -> datetime:
        """The time of the last entry."""
        (last,) = self._entries([range(len(self.ids) - 1, len(self.ids))])
        return last.timestamp

    def search(self, text: str) -> list[Hit]:
        """The entries that match the query."""
        query = phrases(text)
        hits = []
        for entry in self.entries():
            content = "" if entry.id in self._hidden else text_of(entry.fact)
            text_words = words(content)
            if contains(text_words, query):
                place, score = (self.session_id, entry.id, entry.seq), relevance(text_words, query)
                hits.append(Hit(*place, snippet(content, query), entry.timestamp, score=score))
        return hits

    def spends(self) -> dict[ModelKey, Spend]:
        """Usage by model; reads only the entries added since the last call."""
        for entry in self._entries([range(self._spends_read, len(self._texts))]):
            used = spend_of(entry.fact)
            if used is not None:
                key = model_key(used.model)
                self._spends[key] = self._spends.get(key, NO_SPEND) + used.spend
        self._spends_read = len(self._texts)
        return self._spends


class Logs:
    """`Tables` made of `SessionLog`s. A store on disk overrides where logs come from and go to."""

    def __init__(self) -> None:
        self._logs: dict[str, SessionLog] = {}
        self._blobs: dict[str, bytes] = {}
        self._journals: dict[str, list[MessageDeltaBatch]] = {}

    def find(self, session_id: str) -> SessionLog | None:
        return self._logs.get(session_id)

    def all(self) -> Iterable[SessionLog]:
        return self._logs.values()

    def infos(self) -> Iterable[SessionInfo]:
        """All sessions, as they are listed."""
        return [log.info() for log in self.all()]

    def hits(self, session_id: str, query: str) -> Sequence[Hit]:
        """The entries of a session that match the query."""
        return self._log(session_id).search(query)

    def insert(self, batch: Batch, rows: tuple[Row, ...], existing: Existing) -> None:
        log = self._logs.setdefault(batch.session_id, SessionLog(batch.session_id, self._blobs.get))
        self._blobs.update(batch.blobs)
        log.add(rows)

    def append_all(self, session_ids: Sequence[str], appends: Iterable[SessionAppend], clock: Clock) -> None:
        """Nothing is inserted before everything was checked, each session as one batch."""
        del session_ids
        entries: dict[str, list[Entry]] = {}
        tails: dict[str, str | None] = {}
        for append in appends:
            entries.setdefault(append.session_id, []).extend(append.entries)
            tails.setdefault(append.session_id, append.expected_tail)
        batches = [prepare(session_id, session_entries) for session_id, session_entries in entries.items()]
        looked_up = [self.existing(batch) for batch in batches]
        checked = [
            check_append(batch, existing, tails[batch.session_id], None, clock)
            for batch, existing in zip(batches, looked_up, strict=True)
        ]
        for batch, existing, (rows, _) in zip(batches, looked_up, checked, strict=True):
            if rows:
                self.insert(batch, rows, existing)

    def set_lease(self, lease: Lease) -> None:
        self._logs[lease.session_id].lease = lease

    def drop(self, session_id: str) -> None:
        del self._logs[session_id]
        self._journals.pop(session_id, None)

    def write_journal(self, session_id: str, batch: MessageDeltaBatch | None) -> None:
        batches = self._journals.setdefault(session_id, [])  # all of one generation, in the order of their numbers
        if batch is None or (batches and batches[0].generation != batch.generation):
            batches.clear()
        if batch is not None:
            batches.append(batch)

    def journal(self, session_id: str, generation: int, after_number: int) -> Sequence[MessageDeltaBatch]:
        batches = self._journals.get(session_id, [])
        is_known = bool(batches) and batches[0].generation == generation
        return batches[bisect_right(batches, after_number, key=attrgetter("number")) if is_known else 0 :]

    def inspect(self, session_id: str | None) -> Inspection:
        if session_id is None:
            return Inspection()
        log = self._log(session_id)
        return Inspection((), log.entries(), log.lease)

    # -- the same everywhere

    def _log(self, session_id: str) -> SessionLog:
        log = self.find(session_id)
        if log is None:
            raise session_not_found_error(session_id)
        return log

    def existing(self, batch: Batch) -> Existing:
        log = self.find(batch.session_id)
        return Existing(None) if log is None else log.existing(batch)

    def lease(self, session_id: str) -> Lease | None:
        return self._log(session_id).lease

    def tail(self, session_id: str) -> Tail:
        return self._log(session_id).tail

    def load(self, session_id: str, head: str | None) -> Entries:
        return self._log(session_id).load(head)

    def entries(self, session_id: str, after_seq: int, limit: int | None, *, hide: bool = False) -> Entries:
        return self._log(session_id).entries(after_seq, limit, hide=hide)

    def heads(self, session_id: str) -> tuple[str, ...]:
        return self._log(session_id).heads()

    def sessions(self, limit: int, cursor: str | None, query: str | None, *, prefix: str, reserved: bool) -> Page:
        def matches(info: SessionInfo) -> bool:
            is_listed = info.id.startswith(prefix) and info.id.startswith(RESERVED) is reserved
            return is_listed and (query is None or bool(self.hits(info.id, query)))

        return page_of(self.infos(), limit, cursor, matches)

    def search(self, text: str, limit: int, *, prefix: str, best_first: bool) -> tuple[Hit, ...]:
        searched = (info for info in newest_first(self.infos()) if info.id.startswith(prefix))
        hits = (replace(hit, title=info.title) for info in searched for hit in self.hits(info.id, text))
        if best_first:
            return tuple(sorted(hits, key=lambda hit: -(hit.score or 0.0))[:limit])
        return tuple(replace(hit, score=None) for hit in islice(hits, limit))

    def totals(self, session_id: str | None) -> Totals:
        logs = self.all() if session_id is None else [self._log(session_id)]
        return totals_of(item for log in logs for item in log.spends().items())


class MemoryStore(TableStore):
    """Sessions that do not outlive the process, for tests and for runs that need not be kept.

    Each piece of work runs without an await, so nothing can interleave with it.
    """

    def __init__(self, *, environment: Environment | None = None) -> None:
        super().__init__(environment)
        self._logs = Logs()

    def check_usable(self) -> None:
        """Never raises: a forked process has a copy of the sessions, as of everything in memory."""

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return work(self._logs)

    async def _write(self, work: Callable[[Tables], T], *, is_long: bool = False) -> T:
        del is_long
        return work(self._logs)

    async def close(self) -> None:
        self._followers.close()
