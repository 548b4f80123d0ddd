"""Responses API streams to deltas: items that start, grow and finish (`response.output_text.delta`, ...).

Servers differ in what they send: every delta, only `.done` events, only finished items, or only the finished response.
Each later and more complete version of an item adds what is new in it, so nothing is lost or repeated, whatever a
server omits. A response that was not streamed is read like the last event. Case names are folders in recordings/.

An item is found by its id; by `output_index` where its events have different ids (GitHub Copilot,
openai-responses/ai--github-copilot-id-rotation.1--0-17444d); and otherwise as the latest of its kind. Several items may
be open at once (xai-responses/ai--xai-x-search-tool--0-85a5aa). Calls are emitted immediately, since their deltas carry
an id. A message with text stays active until its item is done; events of other texts wait until then.

A server may give several items the same id. One that is announced after the other is done, or elsewhere in the output,
is another item; the rest of its events refer to the latest item with that id, unless their `output_index` decides.

`open_items` emits the items; `items` has their meaning and what is sent back.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bartack.formats.body_values import beyond, shown
from bartack.formats.decoder import Decoder
from bartack.formats.framing import LIMIT, Frame
from bartack.formats.openai_responses.items import (
    ARGUMENTS,
    ENTRY_KINDS,
    FREE_TEXT,
    NAME,
    TEXTS,
    Item,
    ItemKind,
    Key,
    Response,
    ResponsesEvent,
    kind_of,
    part_fields,
    text_of,
)
from bartack.formats.openai_responses.open_items import HAS_OUTPUT_ITEM, ItemEmitter, OpenItem, OpenText
from bartack.formats.usage import amount, token_count
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import MAX_DEPTH, is_within

__all__ = ["OpenAIResponses"]

_INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
}
_HAS_NAME = frozenset({"function_call", "custom_tool_call", "mcp_call"})

# Items are identified by these fields.
_TEXT_FIELDS = ("type", "id", "call_id", "name", "status")

_TERMINAL = frozenset(f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled"))

_ITEM_BYTES = 1000  # what an item takes besides its content, roughly

_Act = Callable[[OpenItem, ResponsesEvent], None]


class OpenAIResponses(Decoder):
    """Reads the event stream of one response."""

    format = NAME
    events = msgspec.json.Decoder(ResponsesEvent)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._emitter = ItemEmitter(self.out, self._pending.hold)
        self._items: list[OpenItem] = []
        self._by_id: dict[tuple[Key, ItemKind], OpenItem] = {}  # the latest one
        self._by_index: dict[Key, OpenItem] = {}
        self._unidentified: dict[ItemKind, deque[OpenItem]] = defaultdict(deque)  # items without an id
        self._waiting: dict[OpenItem, list[tuple[_Act, ResponsesEvent]]] = {}
        self._frame = Frame(b"")
        # The hot path: an event that equals `_live` in its ids has the next piece of the same text or arguments.
        self._live: ResponsesEvent | None = None
        self._live_pieces: list[str] = []
        self._live_emit: Callable[[str], None] = self.out.text

    def read(self, event: ResponsesEvent, frame: Frame) -> None:
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
            self._live_emit(piece)
            self._pending.size += len(piece)
            if self._pending.size > LIMIT:
                self._pending.hold(0)
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
        elif not kind:
            self._read_whole_response(frame)

    def read_unparsed(self, frame: Frame) -> bool:
        # OpenRouter sends it as in the chat format: openai-compat-responses/*_raw_cot_stream_openrouter--0-f0afdb.
        return frame.data.strip() == b"[DONE]"

    def read_end(self) -> None:
        self._run_all_waiting()
        self.truncated("response.completed")

    # -- finding the item of an event

    def _find(self, event: ResponsesEvent, kind: ItemKind) -> OpenItem:
        item = self._named(event.item_id, kind, event.output_index)
        if item is None or (item.closed and item.is_elsewhere(event.output_index)):
            item = self._by_index.get(event.output_index)
        if item is not None and item.kind == kind:
            return item
        if event.item_id is None and event.output_index is None:
            for newest in reversed(self._items):
                if newest.kind == kind and not newest.closed:
                    return newest
        item = self._add(kind, {}, event.output_index)
        if event.item_id is not None:
            self._add_id(item, event.item_id)
        return item

    def _add(self, kind: ItemKind, raw: Item, index: Key) -> OpenItem:
        item = OpenItem(len(self._items), kind, raw, index)
        self._items.append(item)
        self._pending.hold(_ITEM_BYTES)
        self._add_ids(item, raw)
        if not raw:
            self._unidentified[kind].append(item)
        if index is not None:
            self._by_index[index] = item
        self._emitter.begin(item)
        return item

    def _add_ids(self, item: OpenItem, raw: Item) -> None:
        for name in _ids(raw):
            holder = self._by_id.get((name, item.kind))
            # The id of another item's call does not hide an open item's own.
            if name == raw.get("id") or holder is None or holder.closed:
                self._add_id(item, name)

    def _add_id(self, item: OpenItem, name: Key) -> None:
        holder = self._by_id.get((name, item.kind))
        if holder is not None and holder is not item and name not in item.names:
            item.again = holder.again + 1
        self._by_id[name, item.kind] = item
        item.names.add(name)

    def _named(self, name: Key, kind: ItemKind, index: Key) -> OpenItem | None:
        """The item with this id: of several, the one at this index, or the latest."""
        latest = self._by_id.get((name, kind))
        indexed = None if latest is None else self._by_index.get(index)
        return indexed if indexed is not None and indexed.kind == kind and name in indexed.names else latest

    def _match(self, raw: Item, index: Key) -> OpenItem | None:
        """The item that this is a later version of."""
        kind = kind_of(raw)
        for name in _ids(raw):
            item = self._named(name, kind, index)
            if item is not None:
                return item if item.accepts(raw, index) else None
        if index is not None:
            item = self._by_index.get(index)
            return item if item is not None and item.may_be(raw, kind) else None
        unidentified = self._unidentified[kind]
        while unidentified and (unidentified[0].raw or unidentified[0].closed):
            unidentified.popleft()
        return unidentified[0] if unidentified else None

    # -- one text at a time

    def _route(self, item: OpenItem, event: ResponsesEvent, act: _Act) -> None:
        active = self._emitter.active
        if active is not None and active is not item and not item.opened:
            if active.kind == "text":
                self._waiting.setdefault(item, []).append((act, event))
                self._pending.hold(len(self._frame.data))
                return
            self._emitter.suspend(active)
        act(item, event)
        if self._waiting and self._emitter.active is None:
            self._run_waiting()

    def _run_waiting(self) -> None:
        """Run the waiting events item by item, until a message stays active."""
        while self._waiting:
            active = self._emitter.active
            if active is not None:
                if active.kind == "text":
                    return
                self._emitter.suspend(active)
            item = next(iter(self._waiting))
            for act, event in self._waiting.pop(item):
                act(item, event)

    def _run_all_waiting(self) -> None:
        """Run all waiting events: nothing more will arrive."""
        while self._waiting:
            self._emitter.active = None
            self._run_waiting()

    # -- texts

    def _read_piece(self, event: ResponsesEvent) -> None:
        if isinstance(event.delta, str) and event.delta:
            self._route(self._find(event, ENTRY_KINDS[TEXTS[str(event.type)]]), event, self._emit_piece)

    def _emit_piece(self, item: OpenItem, event: ResponsesEvent) -> None:
        if not item.closed:
            text = self._text_at(item, event, TEXTS[str(event.type)])
            self._emitter.emit(item, text, event.delta)
            self._pending.hold(len(event.delta))
            self._live, self._live_pieces = event, text.pieces
            self._live_emit = self.out.more_text if item.kind == "text" else self.out.more_thinking

    def _read_whole(self, event: ResponsesEvent) -> None:
        self._route(self._find(event, ENTRY_KINDS[TEXTS[str(event.type)]]), event, self._emit_whole)

    def _emit_whole(self, item: OpenItem, event: ResponsesEvent) -> None:
        final_text = event.text or event.refusal
        if not item.closed and isinstance(final_text, str):
            self._emitter.emit_rest(item, self._text_at(item, event, TEXTS[str(event.type)]), final_text)

    def _read_part(self, event: ResponsesEvent) -> None:
        entry = self._kept(event.part)
        kind = None if entry is None else ENTRY_KINDS.get(str(entry.get("type")))
        if kind is not None:
            self._route(self._find(event, kind), event, self._emit_part)

    def _emit_part(self, item: OpenItem, event: ResponsesEvent) -> None:
        entry = event.part
        if not item.closed:
            text = self._text_at(item, event, str(entry.get("type")))
            self._emitter.emit_rest(item, text, text_of(entry))
            text.entry = part_fields(entry)

    def _read_annotation(self, event: ResponsesEvent) -> None:
        if self._kept(event.annotation) is not None:
            self._pending.hold(len(self._frame.data))
            self._route(self._find(event, "text"), event, self._keep_annotation)

    def _keep_annotation(self, item: OpenItem, event: ResponsesEvent) -> None:
        self._text_at(item, event, "output_text").annotations.append(event.annotation)

    def _text_at(self, item: OpenItem, event: ResponsesEvent, entry_type: str) -> OpenText:
        index = event.summary_index if entry_type == "summary_text" else event.content_index
        return self._emitter.text_at(item, entry_type, index)

    # -- calls

    def _read_argument_piece(self, event: ResponsesEvent) -> None:
        if isinstance(event.delta, str) and event.delta:
            self._route(self._find(event, "call"), event, self._emit_argument_piece)

    def _emit_argument_piece(self, item: OpenItem, event: ResponsesEvent) -> None:
        self._emitter.emit_input(item, event.delta)
        self._pending.hold(len(event.delta))
        if item.opened and not item.closed and item.raw.get("type") not in FREE_TEXT:
            self._live, self._live_pieces = event, item.pieces
            self._live_emit = partial(self.out.more_args, self.out.call_id(item.key))

    def _read_arguments(self, event: ResponsesEvent) -> None:
        self._route(self._find(event, "call"), event, self._emit_arguments)

    def _emit_arguments(self, item: OpenItem, event: ResponsesEvent) -> None:
        for final_input in (event.arguments, event.input, event.code):
            if isinstance(final_input, str):
                self._emitter.emit_input_rest(item, final_input)

    # -- items

    def _read_added(self, event: ResponsesEvent) -> None:
        raw = event.item = self._kept(event.item)
        if raw is None:
            return
        kind, index = kind_of(raw), event.output_index
        for name in _ids(raw)[:1]:  # only its own id: two calls may have the same call id (D-3.8.1)
            earlier = self._named(name, kind, index)
            if earlier is not None and not earlier.closed and not earlier.is_elsewhere(index):
                return
        self._pending.hold(len(self._frame.data))
        item = self._add(kind, raw, index)
        if item.kind == "call" and (raw.get("name") or raw.get("type") not in _HAS_NAME):
            self._route(item, event, self._open_call)

    def _open_call(self, item: OpenItem, event: ResponsesEvent) -> None:
        self._emitter.open_call(item)

    def _read_done(self, event: ResponsesEvent) -> None:
        raw = event.item = self._kept(event.item)
        if raw is not None:
            item = self._match(raw, event.output_index) or self._add(kind_of(raw), raw, event.output_index)
            self._add_ids(item, raw)
            if raw.get("type") in HAS_OUTPUT_ITEM:  # it is kept until its result arrives
                self._pending.hold(len(self._frame.data))
            self._route(item, event, self._close)

    def _close(self, item: OpenItem, event: ResponsesEvent) -> None:
        self._emitter.close(item, event.item)

    def _kept(self, value: Any) -> Item | None:
        """The value if it is an object that is not nested too deep, without identifying fields that are not text."""
        if not isinstance(value, dict) or not self._pending.can_keep(value):
            return None
        odd = [key for key in _TEXT_FIELDS if key in value and not isinstance(value[key], str | None)]
        return beyond(value, *odd) if odd else value

    # -- the response

    def _read_response(self, response: Response) -> None:
        self.out.start(_text_or_none(response.model), _text_or_none(response.id))
        if isinstance(response.tools, list) and is_within(response.tools, MAX_DEPTH):
            self._emitter.tools = response.tools
        usage = _usage(response.usage)
        if usage is not None:
            self.out.usage(usage)

    def _read_terminal(self, event: ResponsesEvent) -> None:
        response, word = event.response or Response(), str(event.type).removeprefix("response.")
        status = _text_or_none(response.status) or word
        self._read_response(response)
        self._close_all(response.output if isinstance(response.output, list) else [])
        if "cancelled" in (status, word):
            self.out.fail(ErrorCode.CANCELLED, "The response was cancelled.", raw_code="cancelled")
        elif "failed" in (status, word):
            self._report(response.error if isinstance(response.error, dict) else {"message": response.error})
        else:
            self._finish(response, status, word)

    def _read_whole_response(self, frame: Frame) -> None:
        """Read a response that was not streamed: it is that of the last event, by itself."""
        response = msgspec.convert(self.plain_json(frame), Response)
        event = ResponsesEvent(f"response.{response.status}", response=response)
        if response.object == "response" and event.type in _TERMINAL:  # not one that is still in progress
            self._read_terminal(event)

    def _finish(self, response: Response, status: str, word: str) -> None:
        details = response.incomplete_details
        reason = details.get("reason") if isinstance(details, dict) else None
        if reason or "incomplete" in (status, word):
            raw = shown(reason or "incomplete")
            self.out.finish(_INCOMPLETE.get(raw, "other"), raw)
        else:
            refused = self._emitter.refused and not self._emitter.has_client_calls
            self.out.finish("refusal" if refused else "stop", status)
        self.out.done()

    def _close_all(self, output: list[Any]) -> None:
        """Close all open items with their final content in the response, and emit those that never appeared."""
        finished, unknown = self._finished_items(output)
        active = self._emitter.active
        if active is not None:
            self._emitter.close(active, finished.get(active, active.raw))
        self._run_all_waiting()
        for item in self._items:
            if item.kind != "call" or item.opened or item in finished:
                self._emitter.close(item, finished.get(item, item.raw))
        for raw in unknown:
            self._emitter.close(self._add(kind_of(raw), raw, None), raw)
        self._emitter.close_without_results()

    def _finished_items(self, output: list[Any]) -> tuple[dict[OpenItem, Item], list[Item]]:
        """The final content of each known item, and the items that never appeared before.

        Some servers change the ids in the finished response (GitHub Copilot, OpenRouter). Then position and type
        identify an item. Items with the same id have the same order there.
        """
        finished: dict[OpenItem, Item] = {}
        renamed: list[tuple[int, Item]] = []
        by_name: dict[tuple[Key, ItemKind], deque[OpenItem]] = defaultdict(deque)
        for item in self._items:
            for name in item.names:
                by_name[name, item.kind].append(item)
        for index, raw in enumerate(map(self._kept, output)):
            if raw is not None:
                candidates = next((items for name in _ids(raw) if (items := by_name[name, kind_of(raw)])), deque())
                while candidates and candidates[0] in finished:
                    candidates.popleft()
                if candidates:
                    finished[candidates.popleft()] = raw
                else:
                    renamed.append((index, raw))
        unknown = []
        unfinished: dict[ItemKind, dict[OpenItem, None]] = defaultdict(dict)
        for item in self._items:
            if item not in finished:
                unfinished[item.kind][item] = None
        for index, raw in renamed:
            alike, indexed = unfinished[kind_of(raw)], self._by_index.get(index)
            if alike:
                item = indexed if indexed in alike else next(iter(alike))
                finished[item] = raw
                del alike[item]
            else:
                unknown.append(raw)
        return finished, unknown

    def _read_error(self, event: ResponsesEvent) -> None:
        """Report an error: an object under `error`, or fields of the event itself."""
        self._run_all_waiting()
        error = event.error
        self._report(error if isinstance(error, dict) else {"code": event.code, "message": event.message or error})

    def _report(self, error: dict[str, Any]) -> None:
        code = error.get("code") or error.get("type")
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        message = _text_or_none(error.get("message")) or "The provider reported an error."
        self.out.refused(message, raw_code=None if code is None else shown(code), status=status)


def _ids(raw: Item) -> list[str]:
    """The ids by which events may refer to an item: its own, or that of its call (llama.cpp; not recorded)."""
    names = [raw.get("id")] if kind_of(raw) == "result" else [raw.get("id"), raw.get("call_id")]
    return [name for name in names if isinstance(name, str) and name]


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    input_tokens, output_tokens = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if input_tokens is None or output_tokens is None:
        return None
    into, out, cost = usage.get("input_tokens_details"), usage.get("output_tokens_details"), usage.get("cost")
    return Usage(
        input_tokens,
        output_tokens,
        -1 if (total := _count(usage, "total_tokens")) is None else total,
        cache_read_tokens=_count(into, "cached_tokens"),
        cache_write_tokens=_count(into, "cache_write_tokens"),
        reasoning_tokens=_count(out, "reasoning_tokens"),
        cost=amount(cost),
    )


def _count(holder: Any, name: str) -> int | None:
    return token_count(holder.get(name)) if isinstance(holder, dict) else None


_D = OpenAIResponses
_HANDLERS: dict[str, Callable[[OpenAIResponses, ResponsesEvent], None]] = {
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
