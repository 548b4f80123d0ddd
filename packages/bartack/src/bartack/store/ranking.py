"""Search over all sessions: the best matches first, those of a session together.

A store finds and scores entries. Here, they are filtered, and a session's score is that of its best entry, raised if it
is recent and if there are more.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple, get_args

import msgspec

from bartack.nouns.entries import Entry, StreamFailed
from bartack.nouns.errors import NotFound, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store.index import Where, text_of
from bartack.store.search import Phrase, contains, phrases, words
from bartack.store.session_store import RESERVED, Hit, SessionStore

__all__ = ["MATCH_LIMITS", "FoundSession", "SearchFilter", "parse_search_time", "parse_where", "search_sessions"]

# How many of the best matches are considered: first a few, then more if the filters leave too little of them.
MATCH_LIMITS = (500, 10_000)
_PASSAGES = 3  # shown for a session
_HALF_LIFE_S = 30 * 24 * 3600.0  # a match of now counts twice as much as a very old one, and half of that is lost in
_PER_DOUBLING = 0.1  # how much twice as many matches raise the score
_CALL_DISTANCE = 200  # entries before a result among which its call is looked for


class SearchFilter(NamedTuple):
    """Restricts a search. `accepts` decides by the id of a session, `model` is one that the session used (its name, or
    PROVIDER/NAME), and the others concern the entry: a call of this tool or its result, a time, a failure, or where in
    it the words are."""

    accepts: Callable[[str], Awaitable[bool]] | None = None
    model: str | None = None
    tool: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    errors_only: bool = False
    where: Where | None = None


ALL_ENTRIES = SearchFilter()


class FoundSession(Noun, frozen=True, kw_only=True):
    """A session with its best matches, best first; `matches` counts all of those that were considered."""

    session_id: str
    title: str | None = None
    score: float
    matches: int
    hits: tuple[Hit, ...]


async def search_sessions(
    store: SessionStore, text: str, limit: int = 20, *, prefix: str = "", chosen: SearchFilter = ALL_ENTRIES
) -> tuple[FoundSession, ...]:
    """The sessions that match best, in order. `text` and `prefix` are those of `SessionStore.search`."""
    search = _Search(store, chosen, phrases(text))
    sessions: list[FoundSession] = []
    for most in MATCH_LIMITS:
        hits = await store.search(text, most, prefix=prefix, best_first=True)
        sessions = _grouped([hit for hit in hits if await search.accepts(hit)], store.environment.now())
        if len(hits) < most or len(sessions) >= limit:
            break
    return tuple(sessions[:limit])


def parse_where(text: str | None, *, path: str = "$") -> Where | None:
    """Where another program wants to search. `PartValidationError` if there is no such place."""
    if text is None:
        return None
    try:
        where: Where = msgspec.convert(text, Where)
    except msgspec.ValidationError:
        problem = f"{text[:40]!r} is no place to search; choose from {', '.join(get_args(Where))}."
        raise PartValidationError(problem, path=path) from None
    return where


def parse_search_time(text: str | None, *, path: str = "$") -> datetime | None:
    """A time in ISO 8601 that another program sent; one without a zone is UTC. `PartValidationError` if it is none."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text[:40]!r} is not an ISO 8601 time, such as 2026-01-31T09:00:00Z."
        raise PartValidationError(problem, path=path) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _grouped(hits: Sequence[Hit], now: datetime) -> list[FoundSession]:
    sessions: dict[str, list[Hit]] = {}
    for hit in hits:
        sessions.setdefault(hit.session_id, []).append(hit)
    grouped = [_session(id, matches, now) for id, matches in sessions.items()]
    return sorted(grouped, key=lambda session: session.score, reverse=True)


def _session(session_id: str, hits: Sequence[Hit], now: datetime) -> FoundSession:
    best = max((hit.score or 0.0) * _recency(hit, now) for hit in hits)
    score = best * (1 + _PER_DOUBLING * math.log2(len(hits)))
    return FoundSession(
        session_id=session_id, title=hits[0].title, score=score, matches=len(hits), hits=tuple(hits[:_PASSAGES])
    )


def _recency(hit: Hit, now: datetime) -> float:
    age = 0.0 if hit.time is None else max((now - hit.time).total_seconds(), 0.0)
    return 1 + math.exp2(-age / _HALF_LIFE_S)


class _Search:
    """What is asked about each match, the cheap questions first. The answer about a session is remembered."""

    def __init__(self, store: SessionStore, chosen: SearchFilter, query: Sequence[Phrase]) -> None:
        self._store = store
        self._chosen = chosen
        self._query = query
        self._sessions: dict[str, bool] = {}

    async def accepts(self, hit: Hit) -> bool:
        since, until = self._chosen.since, self._chosen.until
        if hit.session_id.startswith(RESERVED) or (hit.time is None and (since or until)):
            return False
        if hit.time is not None and ((since and hit.time < since) or (until and hit.time >= until)):
            return False
        if hit.session_id not in self._sessions:
            self._sessions[hit.session_id] = await self._accepts_session(hit.session_id)
        return self._sessions[hit.session_id] and await self._accepts_entry(hit)

    async def _accepts_session(self, session_id: str) -> bool:
        if self._chosen.accepts is not None and not await self._chosen.accepts(session_id):
            return False
        if self._chosen.model is None:
            return True
        try:
            models = [item.model for item in (await self._store.totals(session_id)).models if item.model is not None]
        except NotFound:  # purged in the meantime
            return False
        return any(self._chosen.model in (model.model, f"{model.provider}/{model.model}") for model in models)

    async def _accepts_entry(self, hit: Hit) -> bool:
        tool = self._chosen.tool
        if tool is None and not self._chosen.errors_only and self._chosen.where is None:
            return True
        before = _CALL_DISTANCE if tool is not None else 0
        try:
            entries = await self._store.entries(hit.session_id, max(hit.seq - 1 - before, 0), before + 1)
        except NotFound:
            return False
        *earlier, entry = takewhile(lambda entry: entry.seq <= hit.seq, entries)
        if self._chosen.where is not None and not contains(words(text_of(entry.fact, self._chosen.where)), self._query):
            return False
        return (not self._chosen.errors_only or _is_failure(entry)) and (tool is None or _uses(entry, tool, earlier))


def _is_failure(entry: Entry) -> bool:
    if isinstance(entry.fact, StreamFailed):
        return True
    return isinstance(entry.fact, Message) and any(
        isinstance(part, ToolResult) and part.is_error for part in entry.fact.parts
    )


def _uses(entry: Entry, tool: str, earlier: Sequence[Entry]) -> bool:
    """Whether an entry calls the tool, or has its result."""
    results = {part.tool_call_id for part in _parts(entry) if isinstance(part, ToolResult)}
    own = (part for part in _parts(entry) if isinstance(part, ToolCall))
    calls = (
        part
        for other in earlier
        for part in _parts(other)
        if isinstance(part, ToolCall) and part.tool_call_id in results
    )
    return any(call.tool_name == tool for call in (*own, *calls))


def _parts(entry: Entry) -> Sequence[object]:
    return entry.fact.parts if isinstance(entry.fact, Message) else ()
