"""`ItemEmitter`: emits the items of one response, and tracks how much of each has been emitted.

A text arrives in pieces, as a whole of which only the rest is new, or both; the same holds for the input of a call. The
finished item closes it and may add texts that never arrived in pieces. Only then is its continuation data complete, so
that follows the last text. What has been emitted stays: a finished text that does not continue it adds nothing and is
kept in the continuation data (`final`).

Two texts cannot be emitted at the same time. The item whose text is being emitted is `active`. Reasoning is suspended
when another item starts, because some servers finish it only with the whole answer
(openai-compat-responses/pydantic-ai--*_raw_cot_stream_openrouter--0-f0afdb); what its item adds later becomes an empty
text that refers to the same item.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Literal, assert_never

from bartack.formats.emitter import Emitter
from bartack.formats.openai_responses.items import (
    ENTRY_KINDS,
    FREE_TEXT,
    Item,
    ItemKind,
    Key,
    arguments_of,
    executed_by,
    item_fields,
    kept_of_call,
    name_of,
    outcome_of,
    part_fields,
    text_of,
    texts_of,
)
from bartack.nouns.json_values import json_text

__all__ = ["HAS_OUTPUT_ITEM", "ItemEmitter", "OpenItem", "OpenText"]

HAS_OUTPUT_ITEM = frozenset({"shell_call", "tool_search_call", "program"})

_TEXT_BYTES = 1000  # what a text takes besides its characters, roughly

Place = tuple[str, int]  # the list of an item and the index in it: ("content", 0)


class OpenText:
    """One text of an item: the pieces that have been emitted, and its entry without the text."""

    __slots__ = ("annotations", "entry", "nth", "pieces", "place", "started")

    def __init__(self, place: Place, nth: int, entry_type: str) -> None:
        self.place = place
        self.nth = nth
        self.pieces: list[str] = []
        self.started = False
        self.entry: dict[str, Any] = {"type": entry_type}
        self.annotations: list[Any] = []

    def continuation(self) -> dict[str, Any]:
        """The continuation data of this text beside that of its item."""
        entry = self.entry
        if self.annotations and not entry.get("annotations"):
            entry = {**entry, "annotations": self.annotations}
        return {"field": self.place[0], "nth": self.nth, "part": entry}


class OpenItem:
    """One item: what is known of it, and how much of it has been emitted."""

    __slots__ = (
        "again",
        "closed",
        "current",
        "executed_by",
        "final",
        "index",
        "key",
        "kind",
        "names",
        "opened",
        "pieces",
        "raw",
        "suspended",
        "texts",
        "version",
    )

    def __init__(self, key: int, kind: ItemKind, raw: Item, index: Key = None) -> None:
        self.key = key
        self.kind = kind
        self.raw = raw
        self.index = index
        self.names: set[Key] = set()  # the ids that refer to it
        self.again = 0  # how many items before it have its id
        self.version = 0  # the hash of a closed item's final content, which is not kept
        self.closed = False
        self.texts: dict[Place, OpenText] = {}
        self.current: OpenText | None = None
        self.suspended: Item | None = None  # the fields emitted so far, if this is suspended reasoning
        self.opened = False  # true once the start of a call has been emitted
        self.executed_by: Literal["client", "provider"] = "client"  # the value in that start; the final item may differ
        self.pieces: list[str] = []  # the input of a call, emitted so far
        self.final: dict[str, None] = {}  # finished texts or input that do not continue what was emitted

    def may_be(self, raw: Item, kind: ItemKind) -> bool:
        """Whether this may be the same item, judged by its type."""
        return not self.closed and self.kind == kind and self.raw.get("type") in (None, raw.get("type"))

    def accepts(self, raw: Item, index: Key) -> bool:
        """Whether a finished item with the same id is this one: it is still open, or was finished in the same way."""
        if not self.closed:
            return True
        is_placed = index is not None and self.index is not None
        return not self.is_elsewhere(index) if is_placed else self.version == _version(raw)

    def is_elsewhere(self, index: Key) -> bool:
        """Whether this index belongs to another item, as far as the server numbers them."""
        return index is not None and self.index is not None and index != self.index

    def continuation(self, fields: Item, text: OpenText | None = None) -> dict[str, Any]:
        """The continuation data of a part: the known fields of this item, and those of the part's text."""
        data = {"item": fields, **({"again": self.again} if self.again else {})}
        return data if text is None else {**data, **text.continuation()}


class ItemEmitter:
    """Emits the content of items as deltas."""

    def __init__(self, out: Emitter, hold: Callable[[int], None]) -> None:
        """`hold` counts what is kept for the rest of the response."""
        self._out = out
        self._hold = hold
        self.active: OpenItem | None = None
        self.tools: Any = None  # the tools of the request, which the response repeats
        self.refused = False
        self.has_client_calls = False
        self._silent_reasoning: deque[OpenItem] = deque()  # open reasoning without content so far
        self._awaiting_result: dict[Any, OpenItem] = {}  # calls whose result is an item of its own
        self._last_kind: ItemKind | None = None

    def begin(self, item: OpenItem) -> None:
        """Register an item that has started."""
        if item.kind == "thinking":
            self._silent_reasoning.append(item)

    def close(self, item: OpenItem, raw: Item) -> None:
        """Close an item with its final content. Closing it again changes nothing."""
        if item.closed:
            return
        item.raw = raw
        match item.kind:
            case "text" | "thinking":
                self._close_texts(item)
            case "call":
                self._close_call(item)
            case "result":
                self._close_result(item)
            case "opaque":
                self._emit_opaque({"item": raw})
            case _:
                assert_never(item.kind)
        item.closed, item.version = True, _version(raw)
        if raw.get("type") not in HAS_OUTPUT_ITEM:
            item.raw = {}

    def close_without_results(self) -> None:
        """Close the calls whose result item never arrived."""
        for call in self._awaiting_result.values():
            self._out.close_call(call.key, continuation={"item": kept_of_call(call.raw)})

    # -- texts

    def text_at(self, item: OpenItem, entry_type: str, index: object) -> OpenText:
        """The text at a place of an item, added if it was not announced."""
        place = _field_of(entry_type), index if isinstance(index, int) else 0
        text = item.texts.get(place)
        if text is None:
            text = item.texts[place] = OpenText(place, len(item.texts), entry_type)
            self._hold(_TEXT_BYTES)
        self.refused |= entry_type == "refusal"
        return text

    def emit(self, item: OpenItem, text: OpenText, piece: str) -> None:
        """Emit more of a text."""
        if item.current is not text:
            self._end_text(item, {"id": item.raw["id"]} if item.raw.get("id") else {})
            item.current = text
            text.started = False
        text.pieces.append(piece)
        self._emit(item.kind, text, piece, None, item)
        self.active = item

    def emit_rest(self, item: OpenItem, text: OpenText, final_text: str) -> None:
        """Emit what is new in a complete text."""
        ending = self._rest_or_final(item, text.pieces, final_text)
        if ending:
            self._hold(len(ending))
            self.emit(item, text, ending)

    def suspend(self, item: OpenItem) -> None:
        """End the text of an active reasoning item for now, because another item starts."""
        item.suspended = item_fields(item.raw)
        self._end_text(item, item.suspended)
        self.active = None

    def _end_text(self, item: OpenItem, fields: Item) -> None:
        text, item.current = item.current, None
        if text is not None:
            self._emit(item.kind, text, "", item.continuation(fields, text), item)

    def _emit(
        self, kind: ItemKind, text: OpenText, piece: str, continuation: dict[str, Any] | None, item: OpenItem | None
    ) -> None:
        self._emit_silent_reasoning(item)
        if not piece and continuation is None:  # the start of an entry without text, whose data follow at its end
            return
        emit = self._out.thinking if kind == "thinking" else self._out.text
        emit(piece, new_part=not text.started and self._last_kind == kind, continuation=continuation)
        text.started = True
        self._last_kind = kind

    def _emit_silent_reasoning(self, active: OpenItem | None) -> None:
        """Emit an empty part for open reasoning without content before this item: their order is that of the input."""
        silent = self._silent_reasoning
        while silent and (active is None or silent[0].key <= active.key):
            item = silent.popleft()
            if item is not active and not item.closed and item.raw.get("id"):
                item.suspended = item_fields(item.raw)
                self._emit("thinking", _empty_text(), "", item.continuation(item.suspended), None)

    def _close_texts(self, item: OpenItem) -> None:
        last = item.current
        for last, entry in self._matched(item):
            last.entry = part_fields(entry)
            self.emit_rest(item, last, text_of(entry))
            if not last.pieces and _has_content(last.entry):
                self.emit(item, last, "")
        if self.active is item:
            self.active = None
        fields = item_fields(item.raw)
        if item.suspended is not None and item.current is None:
            emitted, final = item.suspended, _final(item)
            if final or any(value and key != "status" and emitted.get(key) != value for key, value in fields.items()):
                self._emit_opaque({**item.continuation(fields), **final})
            return
        last, item.current = item.current or last, None
        if last is not None:
            self._emit(item.kind, last, "", {**item.continuation(fields, last), **_final(item)}, item)
        elif fields:
            self._emit(item.kind, _empty_text(), "", item.continuation(fields), item)

    def _matched(self, item: OpenItem) -> list[tuple[OpenText, dict[str, Any]]]:
        """The entries of a finished item, each with its text.

        An entry belongs to the text that was streamed at its index, if it continues that text. Because some servers
        number `content_index` across all items of a response, the remaining entries get the remaining streamed texts
        of their type, in order.
        """
        entries = [(index, _type_of(field, entry), entry) for field, index, entry in texts_of(item.raw)]
        texts: list[OpenText | None] = []
        claimed: set[OpenText | None] = set()
        for index, entry_type, entry in entries:
            text = item.texts.get((_field_of(entry_type), index))
            if text is None or text in claimed or _continuation_of(text.pieces, text_of(entry)) is None:
                text = None
            texts.append(text)
            claimed.add(text)
        unmatched: dict[object, deque[OpenText]] = defaultdict(deque)
        for streamed in item.texts.values():
            if streamed not in claimed:
                unmatched[streamed.entry.get("type")].append(streamed)
        # Entries that were not streamed get the indexes after the last streamed one.
        free = max((index for _, index in item.texts), default=-1) + 1
        matched = []
        for text, (index, entry_type, entry) in zip(texts, entries, strict=True):
            if text is None and unmatched[entry_type]:
                text = unmatched[entry_type].popleft()
            matched.append((text or self.text_at(item, entry_type, free + index), entry))
        return matched

    def _emit_opaque(self, continuation: dict[str, Any]) -> None:
        """Emit what only the provider understands, on an empty text: reasoning may not end a message."""
        self._emit("text", _empty_text(), "", continuation, None)

    # -- calls

    def open_call(self, item: OpenItem) -> None:
        """Emit the start of a call."""
        self._emit_silent_reasoning(item)
        raw = item.raw
        item.executed_by = executor = executed_by(raw, self.tools)
        self.has_client_calls |= executor == "client"
        ids = (raw.get("call_id"), raw.get("id"))
        provider_id = next((item_id for item_id in ids if isinstance(item_id, str) and item_id), None)
        self._out.open_call(item.key, name_of(raw), provider_id=provider_id, executed_by=executor)
        item.opened = True
        self._last_kind = "call"

    def emit_input(self, item: OpenItem, piece: str) -> None:
        """Emit more input of a call. A call without a name yet is emitted when it is closed."""
        if not item.opened or item.closed:
            return
        field = FREE_TEXT.get(str(item.raw.get("type")))
        text = piece
        if field is not None:
            text = json_text(piece)[1:-1]  # free text becomes part of a JSON string
            if not item.pieces:
                text = f'{{"{field}":"{text}'
        item.pieces.append(piece)
        self._out.call_args(item.key, text)

    def emit_input_rest(self, item: OpenItem, final_input: str) -> None:
        """Emit what is new in the complete input of a call."""
        ending = self._rest_or_final(item, item.pieces, final_input)
        if ending:
            self._hold(len(ending))
            self.emit_input(item, ending)

    def _rest_or_final(self, item: OpenItem, pieces: list[str], final: str) -> str | None:
        """What a complete text adds to its pieces. One that does not continue them is recorded in `item.final`."""
        ending = _continuation_of(pieces, final)
        if ending is None and final not in item.final:
            item.final[final] = None
            self._hold(len(final))
        return ending

    def _close_call(self, item: OpenItem) -> None:
        if not item.opened:
            self.open_call(item)
        raw = item.raw
        field = FREE_TEXT.get(str(raw.get("type")))
        if not item.pieces:
            self._out.call_args(item.key, arguments_of(raw))
        else:
            final_input = raw.get(field or "arguments")
            self.emit_input_rest(item, final_input if isinstance(final_input, str) else "")
            if field is not None:
                self._out.call_args(item.key, '"}')
        continuation = {"item": kept_of_call(raw), **_final(item)}
        if item.executed_by == "client":
            self._out.close_call(item.key, continuation=continuation)
        elif raw.get("type") in HAS_OUTPUT_ITEM:
            self._awaiting_result[_hashable(raw.get("call_id"))] = item
        else:
            result, failed = outcome_of(raw)
            self._out.close_call(item.key, continuation=continuation, result=result, result_is_error=failed)

    def _close_result(self, item: OpenItem) -> None:
        """Close a call with its result item. Without the call, which was in an earlier response, the item is opaque."""
        call = self._awaiting_result.pop(_hashable(item.raw.get("call_id")), None)
        if call is None:
            self._emit_opaque({"item": item.raw})
            return
        result, failed = outcome_of(item.raw)
        continuation = {"item": kept_of_call(call.raw), "output": item.raw}
        self._out.close_call(call.key, continuation=continuation, result=result, result_is_error=failed)


def _continuation_of(pieces: list[str], final: str) -> str | None:
    """The rest of a text that begins with these pieces; "" if it is shorter; None if it is a different text.

    Compared as UTF-16, because a server may have cut the pieces inside a surrogate pair. The time depends on the length
    of `whole` only: many short ones may follow a long text.
    """
    streamed = "".join(pieces)
    pieces[:] = [streamed] if streamed else []
    if final.startswith(streamed):
        return final[len(streamed) :]
    streamed = streamed[: 2 * len(final) + 1]  # what is longer than this is longer than `whole` in UTF-16, too
    streamed_utf16, final_utf16 = (text.encode("utf-16-le", "surrogatepass") for text in (streamed, final))
    if final_utf16.startswith(streamed_utf16):
        return final_utf16[len(streamed_utf16) :].decode("utf-16-le", "surrogatepass")
    return "" if streamed_utf16.startswith(final_utf16) else None


def _final(item: OpenItem) -> dict[str, Any]:
    return {"final": list(item.final)} if item.final else {}


def _version(raw: Item) -> int:
    return hash(repr(raw))


def _type_of(field: str, entry: dict[str, Any]) -> str:
    """The type of an entry in a list of its item. One of an unknown type is placed like the usual entry of the list."""
    entry_type = str(entry.get("type"))
    if entry_type in ENTRY_KINDS:
        return entry_type
    return "summary_text" if field == "summary" else "output_text"


def _field_of(entry_type: str) -> str:
    return "summary" if entry_type == "summary_text" else "content"


def _has_content(entry: dict[str, Any]) -> bool:
    """Whether an entry without text has anything to send back: it is of an unknown type, or has annotations."""
    return entry.get("type") not in (None, *ENTRY_KINDS) or any(
        value for name, value in entry.items() if name != "type"
    )


def _empty_text() -> OpenText:
    return OpenText(("content", 0), 0, "")


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""
