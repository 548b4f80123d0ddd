"""The Responses API: items that open, grow and close, told by events (`response.output_text.delta`, ...).

Servers differ in how much they tell. Some send every delta; some only `.done` events, only finished items, or only the
finished response. Every later and fuller account of the same thing adds what is new in it, so nothing is lost and
nothing comes twice, whatever a server leaves out.

Items are found by id; by `output_index` where a server gives an item another id in each event; or, where it gives
neither, as the newest of their kind. Several may be open at once. Calls may be told at once, since their deltas name
them. A message that has begun to speak keeps the floor until its item is done, and what others say meanwhile waits.

How items are told is `bartack.formats.openai_responses.output`; what they mean and what goes back is `bartack.formats.openai_responses.items`.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.emitter import amount, token_count
from bartack.formats.framing import Frame
from bartack.formats.openai_responses.events import ARGUMENTS, ENTRY_KINDS, TEXTS, Event, Key, Response
from bartack.formats.openai_responses.items import FREE_TEXT, Item, ItemKind, kind_of, part_fields, text_of
from bartack.formats.openai_responses.output import OpenItem, OpenText, Output
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ErrorCode

__all__ = ["OpenAIResponses"]

_INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
}
_NAMED = frozenset({"function_call", "custom_tool_call", "mcp_call", "mcp_approval_request"})

_Act = Callable[[OpenItem, Event], None]


class OpenAIResponses(Decoder):
    """Reads the event stream of one response."""

    format = "openai-responses"
    events = msgspec.json.Decoder(Event)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._output = Output(self.out)
        self._items: list[OpenItem] = []
        self._by_id: dict[Key, OpenItem] = {}
        self._by_index: dict[Key, OpenItem] = {}
        self._nameless: dict[ItemKind, deque[OpenItem]] = defaultdict(deque)  # nothing but their texts is known
        self._waiting: dict[OpenItem, list[tuple[_Act, Event]]] = {}
        self._frame = Frame(b"")
        # The hot path: an event like `_live` is the next piece of the same text or arguments.
        self._live: Event | None = None
        self._live_pieces: list[str] = []
        self._live_tell: Callable[[str], None] = self.out.text

    def read(self, event: Event, frame: Frame) -> None:
        live, piece = self._live, event.delta
        if (
            live is not None
            and event.item_id == live.item_id
            and event.type == live.type
            and event.output_index == live.output_index
            and event.content_index == live.content_index
            and event.summary_index == live.summary_index
            and type(piece) is str
        ):
            self._live_pieces.append(piece)
            self._live_tell(piece)
            return
        self._live, self._frame = None, frame
        kind = event.type = event.type or frame.event
        handle = _HANDLERS.get(kind)
        if handle is not None:
            handle(self, event)
        elif event.response is not None:  # created, queued, in_progress
            self._read_response(event.response)
        elif not kind and (event.error is not None or event.message is not None):
            self._read_error(event)

    def read_unparsed(self, frame: Frame) -> bool:
        return frame.data.strip() == b"[DONE]"  # some servers copy it from the chat format; it means nothing here

    def read_end(self) -> None:
        self._hear_all()
        self.truncated("response.completed")

    # -- which item an event is about

    def _find(self, event: Event, kind: ItemKind) -> OpenItem:
        item = self._by_id.get(event.item_id)
        if item is None and event.output_index is not None:
            item = self._by_index.get(event.output_index)
        if item is not None and item.kind == kind:
            return item
        if event.item_id is None and event.output_index is None:
            for newest in reversed(self._items):
                if newest.kind == kind and not newest.closed:
                    return newest
        item = self._add(kind, {}, event.output_index)
        if event.item_id is not None:
            self._by_id.setdefault(event.item_id, item)
        return item

    def _add(self, kind: ItemKind, raw: Item, index: Key) -> OpenItem:
        item = OpenItem(len(self._items), kind, raw)
        self._items.append(item)
        self._name(item, raw)
        if not raw:
            self._nameless[kind].append(item)
        if index is not None:
            self._by_index[index] = item
        self._output.begin(item)
        return item

    def _name(self, item: OpenItem, raw: Item) -> None:
        for name in _names(raw):
            self._by_id.setdefault(name, item)

    def _known(self, raw: Item, index: Key) -> OpenItem | None:
        """The item of which this is another account."""
        named = self._named(raw)
        if named is not None:
            return named
        kind = kind_of(raw)
        if index is not None:
            item = self._by_index.get(index)
            return item if item is not None and item.is_account(raw, kind) else None
        nameless = self._nameless[kind]
        while nameless and (nameless[0].raw or nameless[0].closed):
            nameless.popleft()
        return nameless[0] if nameless else None

    def _named(self, raw: Item) -> OpenItem | None:
        found = (self._by_id.get(name) for name in _names(raw))
        return next((item for item in found if item is not None and item.kind == kind_of(raw)), None)

    # -- who may speak

    def _route(self, item: OpenItem, event: Event, act: _Act) -> None:
        speaker = self._output.speaker
        if speaker is not None and speaker is not item and not item.opened:
            if speaker.kind == "text":
                self._waiting.setdefault(item, []).append((act, event))
                self._pending.hold(len(self._frame.data))
                return
            self._output.give_way(speaker)
        act(item, event)
        if self._waiting and self._output.speaker is None:
            self._hear_waiting()

    def _hear_waiting(self) -> None:
        """Those who wait speak one after the other, until one of them keeps the floor."""
        while self._waiting:
            speaker = self._output.speaker
            if speaker is not None:
                if speaker.kind == "text":
                    return
                self._output.give_way(speaker)
            item = next(iter(self._waiting))
            for act, event in self._waiting.pop(item):
                act(item, event)

    def _hear_all(self) -> None:
        """Nothing more will come: everything that waits is told."""
        while self._waiting:
            self._output.speaker = None
            self._hear_waiting()

    # -- texts

    def _read_piece(self, event: Event) -> None:
        if isinstance(event.delta, str) and event.delta:
            self._route(self._find(event, ENTRY_KINDS[TEXTS[str(event.type)]]), event, self._say_piece)

    def _say_piece(self, item: OpenItem, event: Event) -> None:
        if not item.closed:
            text = self._text_at(item, event, TEXTS[str(event.type)])
            self._output.say(item, text, event.delta)
            self._live, self._live_pieces = event, text.pieces
            self._live_tell = self.out.more_text if item.kind == "text" else self.out.more_thinking

    def _read_whole(self, event: Event) -> None:
        self._route(self._find(event, ENTRY_KINDS[TEXTS[str(event.type)]]), event, self._say_whole)

    def _say_whole(self, item: OpenItem, event: Event) -> None:
        whole = event.text or event.refusal
        if not item.closed and isinstance(whole, str):
            self._output.say_rest(item, self._text_at(item, event, TEXTS[str(event.type)]), whole)

    def _read_part(self, event: Event) -> None:
        entry = self._kept(event.part)
        kind = None if entry is None else ENTRY_KINDS.get(str(entry.get("type")))
        if kind is not None:
            self._route(self._find(event, kind), event, self._say_part)

    def _say_part(self, item: OpenItem, event: Event) -> None:
        entry = event.part
        if not item.closed:
            text = self._text_at(item, event, str(entry.get("type")))
            self._output.say_rest(item, text, text_of(entry))
            text.entry = part_fields(entry)

    def _read_annotation(self, event: Event) -> None:
        if self._kept(event.annotation) is not None:
            self._pending.hold(len(self._frame.data))
            self._route(self._find(event, "text"), event, self._keep_annotation)

    def _keep_annotation(self, item: OpenItem, event: Event) -> None:
        self._text_at(item, event, "output_text").annotations.append(event.annotation)

    def _text_at(self, item: OpenItem, event: Event, entry_type: str) -> OpenText:
        index = event.summary_index if entry_type == "summary_text" else event.content_index
        return self._output.text_at(item, entry_type, index)

    # -- calls

    def _read_argument_piece(self, event: Event) -> None:
        if isinstance(event.delta, str) and event.delta:
            self._route(self._find(event, "call"), event, self._say_argument_piece)

    def _say_argument_piece(self, item: OpenItem, event: Event) -> None:
        self._output.say_input(item, event.delta)
        if item.opened and not item.closed and item.raw.get("type") not in FREE_TEXT:
            self._live, self._live_pieces = event, item.pieces
            self._live_tell = partial(self.out.more_args, self.out.call_id(item.key))

    def _read_arguments(self, event: Event) -> None:
        self._route(self._find(event, "call"), event, self._say_arguments)

    def _say_arguments(self, item: OpenItem, event: Event) -> None:
        for whole in (event.arguments, event.input, event.code):
            if isinstance(whole, str):
                self._output.say_input_rest(item, whole)

    # -- items

    def _read_added(self, event: Event) -> None:
        raw = self._kept(event.item)
        # Known by its own id only: two calls may come with one call id (D-3.8.1).
        if raw is None or any(name in self._by_id for name in _names(raw)[:1]):
            return
        self._pending.hold(len(self._frame.data))
        item = self._add(kind_of(raw), raw, event.output_index)
        if item.kind == "call" and (raw.get("name") or raw.get("type") not in _NAMED):
            self._route(item, event, self._open_call)

    def _open_call(self, item: OpenItem, event: Event) -> None:
        self._output.open_call(item)

    def _read_done(self, event: Event) -> None:
        raw = self._kept(event.item)
        if raw is not None:
            item = self._known(raw, event.output_index) or self._add(kind_of(raw), raw, event.output_index)
            self._name(item, raw)
            self._route(item, event, self._close)

    def _close(self, item: OpenItem, event: Event) -> None:
        self._output.close(item, event.item)

    def _kept(self, value: Any) -> Item | None:
        """A JSON object of which something is kept, if it is one and not too deep."""
        return value if isinstance(value, dict) and self._pending.can_keep(value) else None

    # -- the response

    def _read_response(self, response: Response) -> None:
        self.out.start(_text_or_none(response.model), _text_or_none(response.id))
        if isinstance(response.tools, list):
            self._output.tools = response.tools
        usage = _usage(response.usage)
        if usage is not None:
            self.out.usage(usage)

    def _read_terminal(self, event: Event) -> None:
        response, word = event.response or Response(), str(event.type).removeprefix("response.")
        status = _text_or_none(response.status) or word
        self._read_response(response)
        self._settle(response.output if isinstance(response.output, list) else [])
        if "cancelled" in (status, word):
            self.out.fail(ErrorCode.CANCELLED, "the response was cancelled", raw_code="cancelled")
        elif "failed" in (status, word):
            self._refuse(response.error if isinstance(response.error, dict) else {"message": response.error})
        else:
            self._finish(response, status, word)

    def _finish(self, response: Response, status: str, word: str) -> None:
        details = response.incomplete_details
        reason = details.get("reason") if isinstance(details, dict) else None
        if reason or "incomplete" in (status, word):
            raw = str(reason or "incomplete")
            self.out.finish(_INCOMPLETE.get(raw, "other"), raw)
        else:
            refused = self._output.refused and not self._output.has_client_calls
            self.out.finish("refusal" if refused else "stop", status)
        self.out.done()

    def _settle(self, output: list[Any]) -> None:
        """Close every item that is still open, by the response's own account of it, and tell those never told."""
        accounts, unknown = self._matched(output)
        speaker = self._output.speaker
        if speaker is not None:
            self._output.close(speaker, accounts.get(speaker, speaker.raw))
        self._hear_all()
        for item in self._items:
            if item.kind != "call" or item.opened or item in accounts:
                self._output.close(item, accounts.get(item, item.raw))
        for raw in unknown:
            self._output.close(self._add(kind_of(raw), raw, None), raw)
        self._output.close_unanswered()

    def _matched(self, output: list[Any]) -> tuple[dict[OpenItem, Item], list[Item]]:
        """The finished account of each known item, and the items nobody has heard of.

        Some servers name the items of the finished response anew: then place and type tell which is which.
        """
        accounts: dict[OpenItem, Item] = {}
        renamed: list[tuple[int, Item]] = []
        for index, raw in enumerate(output):
            if self._kept(raw) is not None:
                named = self._named(raw)
                if named is not None and named not in accounts:
                    accounts[named] = raw
                else:
                    renamed.append((index, raw))
        unknown = []
        left: dict[ItemKind, dict[OpenItem, None]] = defaultdict(dict)
        for item in self._items:
            if item not in accounts:
                left[item.kind][item] = None
        for index, raw in renamed:
            alike, there = left[kind_of(raw)], self._by_index.get(index)
            if alike:
                item = there if there in alike else next(iter(alike))
                accounts[item] = raw
                del alike[item]
            else:
                unknown.append(raw)
        return accounts, unknown

    def _read_error(self, event: Event) -> None:
        """Both shapes: the error as an object under `error`, and its fields directly in the event."""
        self._hear_all()
        error = event.error
        self._refuse(error if isinstance(error, dict) else {"code": event.code, "message": event.message or error})

    def _refuse(self, error: dict[str, Any]) -> None:
        code = error.get("code") or error.get("type")
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        message = _text_or_none(error.get("message")) or "the provider reported an error"
        self.out.refused(message, raw_code=None if code is None else str(code), status=status)


def _names(raw: Item) -> list[str]:
    """What other events may call an item: its id, or (llama.cpp) the id of its call; a result has that of its call."""
    names = [raw.get("id")] if kind_of(raw) == "result" else [raw.get("id"), raw.get("call_id")]
    return [name for name in names if isinstance(name, str) and name]


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    sent, made = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if sent is None or made is None:
        return None
    into, out, cost = usage.get("input_tokens_details"), usage.get("output_tokens_details"), usage.get("cost")
    return Usage(
        sent,
        made,
        -1 if (total := _count(usage, "total_tokens")) is None else total,
        cache_read_tokens=_count(into, "cached_tokens"),
        cache_write_tokens=_count(into, "cache_write_tokens"),
        reasoning_tokens=_count(out, "reasoning_tokens"),
        cost=amount(cost),
    )


def _count(holder: Any, name: str) -> int | None:
    return token_count(holder.get(name)) if isinstance(holder, dict) else None


_D = OpenAIResponses
_HANDLERS: dict[str, Callable[[OpenAIResponses, Event], None]] = {
    **{kind: _D._read_piece if kind.endswith(".delta") else _D._read_whole for kind in TEXTS},
    **{kind: _D._read_argument_piece if kind.endswith(".delta") else _D._read_arguments for kind in ARGUMENTS},
    "response.output_item.added": _D._read_added,
    "response.output_item.done": _D._read_done,
    "response.content_part.done": _D._read_part,
    "response.reasoning_summary_part.done": _D._read_part,
    "response.output_text.annotation.added": _D._read_annotation,
    "response.completed": _D._read_terminal,
    "response.done": _D._read_terminal,
    "response.incomplete": _D._read_terminal,
    "response.failed": _D._read_terminal,
    "response.cancelled": _D._read_terminal,
    "error": _D._read_error,
    "response.error": _D._read_error,
}
