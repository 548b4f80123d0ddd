"""The feed view (002): a flat list of messages as a terminal or chat window shows them, with tool progress in between.

Its JSON uses snake_case. A failed model call is a message with `is_api_error_message`, and the progress of a running
tool is a `ProgressMessage`. The feed has no token counts, finish reasons, approvals or model changes; these are counted
in ``omitted``.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry, RunStarted, SessionHeader, StreamFailed, ToolProgress
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Koding, Message, Meta, Role
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Part, Text
from bartack.nouns.wire import Dialect, none_if_invalid
from bartack.views.fold import Chain, Fold

__all__ = ["FEED", "Feed", "FeedMessage", "FeedOptions", "ProgressMessage", "dump", "load", "try_load"]


class FeedOptions(Noun, frozen=True, kw_only=True):
    """Options of a user message (002)."""

    is_koding_request: bool = False
    koding_context: str | None = None


class FeedMessage(Noun, frozen=True, kw_only=True):
    """One message of the feed."""

    type: ClassVar[Literal["message"]] = "message"
    id: str
    role: Role
    content: tuple[Part, ...]
    timestamp: datetime | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None
    response_id: str | None = None
    is_api_error_message: bool = False
    error_code: ErrorCode | None = None
    options: FeedOptions | None = None


class ProgressMessage(Noun, frozen=True, kw_only=True):
    """Progress of a running tool (002).

    `normalized_messages` are the messages in the feed that belong to this call and its siblings: the one that requested
    them, and the results so far.
    """

    type: ClassVar[Literal["progress"]] = "progress"
    id: str
    content: str
    tool_call_id: str
    sibling_tool_call_ids: tuple[str, ...]
    tools: tuple[str, ...]
    normalized_messages: tuple[FeedMessage, ...]
    timestamp: datetime


class _FeedJson(Noun, frozen=True, kw_only=True):
    view: str
    session_id: str
    omitted: dict[str, int] | None = None
    messages: tuple[FeedMessage | ProgressMessage, ...]


_NAMES = {"tool_call_id": "tool_use_id", "sibling_tool_call_ids": "sibling_tool_use_ids"}
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
FEED = Dialect(rename=lambda name: _NAMES.get(name, name))

# Fields of `Meta` that the feed cannot represent.
_OMITTED_META = ("usage", "finish_reason", "model", "bad_args", "summary", "trace", "approvals")


class Feed(Fold):
    """The feed of a session, built entry by entry."""

    def _clear(self) -> None:
        self.messages: list[FeedMessage | ProgressMessage] = []
        self._tools: tuple[str, ...] = ()
        self._groups: dict[str, list[FeedMessage]] = {}  # call id -> the messages about its group of calls
        self._siblings: dict[str, tuple[str, ...]] = {}

    def _add(self, entry: Entry) -> None:
        fact = entry.fact
        match fact:
            case Message():
                self._add_message(fact, entry)
            case StreamFailed():
                self.messages.append(_api_error(fact, entry))
            case ToolProgress():
                self.messages.append(self._progress(fact, entry))
            case RunStarted():
                self._tools = fact.tools
                self._omit(fact.kind)
            case _:  # every other kind, also a new one, is counted among the omitted ones
                self._omit(fact.kind)

    def _add_message(self, message: Message, entry: Entry) -> None:
        feed_message = _shown(message, entry)
        self.messages.append(feed_message)
        for name in _OMITTED_META:
            if getattr(message.meta, name, None) is not None:
                self._omit(f"meta.{name}")
        group = [feed_message]
        siblings = tuple(call.tool_call_id for call in message.tool_calls)
        for call_id in siblings:
            self._groups[call_id], self._siblings[call_id] = group, siblings
        for result in message.tool_results:
            calls_group = self._groups.get(result.tool_call_id, [])
            if feed_message not in calls_group:
                calls_group.append(feed_message)

    def _progress(self, fact: ToolProgress, entry: Entry) -> ProgressMessage:
        call_id = fact.tool_call_id
        return ProgressMessage(
            id=entry.id,
            content=fact.content,
            tool_call_id=call_id,
            sibling_tool_call_ids=tuple(id for id in self._siblings.get(call_id, ()) if id != call_id),
            tools=self._tools,
            normalized_messages=tuple(self._groups.get(call_id, ())),
            timestamp=entry.timestamp,
        )

    def dump(self) -> dict[str, Any]:
        """``{"view": "feed", "session_id", "omitted": {...}, "messages": [...]}``."""
        return {
            "view": "feed",
            "session_id": self.session_id,
            "omitted": self.omitted,
            "messages": [FEED.dump(message) for message in self.messages],
        }


def _shown(message: Message, entry: Entry) -> FeedMessage:
    meta = message.meta or Meta()
    koding = meta.koding
    return FeedMessage(
        id=message.id or entry.id,
        role=message.role,
        content=message.parts,
        timestamp=message.timestamp or entry.timestamp,
        cost_usd=meta.cost_usd,
        duration_ms=meta.duration_ms,
        response_id=meta.response_id,
        is_api_error_message=meta.is_api_error_message,
        options=None if koding is None else FeedOptions(is_koding_request=True, koding_context=koding.context),
    )


def _api_error(fact: StreamFailed, entry: Entry) -> FeedMessage:
    return FeedMessage(
        id=entry.id,
        role="assistant",
        content=(Text(fact.error.message or fact.error.error_code),),
        timestamp=entry.timestamp,
        duration_ms=fact.duration_ms,
        response_id=fact.response_id,
        is_api_error_message=True,
        error_code=fact.error.error_code,
    )


def dump(entries: Iterable[Entry]) -> dict[str, Any]:
    """The feed of these entries, as JSON in Python values."""
    return Feed.of(entries).dump()


def load(data: Any) -> tuple[Entry, ...]:
    """Read the entries of a session from its feed; raises `PartValidationError`. Entry ids are derived.

    002 does not require the time of a message, but an entry has one: that of the message before, or else the first in
    the feed, or else 1970.
    """
    feed = FEED.load(_FeedJson, data)
    if feed.view != "feed":
        raise PartValidationError(f"expected a feed, got the view {feed.view!r}", path="$.view")
    chain = Chain(feed.session_id)
    tools: tuple[str, ...] = ()
    time = next((message.timestamp for message in feed.messages if message.timestamp is not None), _NO_TIME)
    for message in feed.messages:
        time = message.timestamp or time
        if not chain.entries:
            chain.add(SessionHeader(origin="feed"), time)
        if isinstance(message, ProgressMessage):
            if message.tools != tools:
                tools = message.tools
                chain.add(RunStarted(tools=tools), time)
            chain.add(ToolProgress(tool_call_id=message.tool_call_id, content=message.content), time, id=message.id)
        elif message.is_api_error_message and message.error_code is not None:
            chain.add(_failure(message, message.error_code), time, id=message.id)
        else:
            chain.add(_message(message, time), time)
    return tuple(chain.entries)


def try_load(data: Any) -> tuple[Entry, ...] | None:
    """As `load`, but if a field is missing or invalid, log it and return None (D-7.5)."""
    return none_if_invalid("A feed", lambda: load(data))


def _failure(feed_message: FeedMessage, code: ErrorCode) -> StreamFailed:
    text = "".join(part.text for part in feed_message.content if isinstance(part, Text))
    error = Failed(code, text, retryable=code.retryable)
    return StreamFailed(error=error, response_id=feed_message.response_id, duration_ms=feed_message.duration_ms)


def _message(feed_message: FeedMessage, time: datetime) -> Message:
    options = feed_message.options
    meta = Meta(
        cost_usd=feed_message.cost_usd,
        duration_ms=feed_message.duration_ms,
        response_id=feed_message.response_id,
        is_api_error_message=feed_message.is_api_error_message,
        koding=Koding(options.koding_context) if options is not None and options.is_koding_request else None,
    )
    return Message(
        feed_message.role,
        feed_message.content,
        id=feed_message.id,
        timestamp=time,
        meta=None if meta == Meta() else meta,
    )
