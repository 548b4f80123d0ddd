"""`Output`: the items of one response on their way to the emitter, and how much of each has been told.

A text is told in pieces, or as a whole of which only the rest is told, or both; the same holds for the input of a call.
An item is closed by its finished account, which may add texts that were never told piece by piece. Only then is all of
its continuation data known, so it follows the last text.

What has been streamed has been shown and stays. A finished text that does not continue it adds nothing; it is kept in
the continuation data as `final`.

Two texts may not be told at once. The item whose text is being told is the `speaker`. Reasoning `gives_way` to other
items, since some servers close it only when the whole answer is over; what its item adds then is told as an empty text
that names the same item.
"""

from typing import Any, assert_never

from bartack.formats.emitter import Emitter
from bartack.formats.openai_responses.events import ENTRY_KINDS
from bartack.formats.openai_responses.items import (
    FREE_TEXT,
    Item,
    ItemKind,
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

__all__ = ["OpenItem", "OpenText", "Output"]

_ANSWERED_BY_AN_ITEM = frozenset({"shell_call", "tool_search_call", "program"})

Place = tuple[str, int]  # the list of an item and the index in it: ("content", 0)


class OpenText:
    """One text of an item: the pieces that have been streamed, and what its entry holds besides the text."""

    __slots__ = ("annotations", "entry", "nth", "pieces", "place", "shown")

    def __init__(self, place: Place, nth: int, entry_type: str) -> None:
        self.place = place
        self.nth = nth
        self.pieces: list[str] = []
        self.shown = False
        self.entry: dict[str, Any] = {"type": entry_type}
        self.annotations: list[Any] = []

    def continuation(self, item: Item) -> dict[str, Any]:
        """What goes back with this text, if it is (for now) the last of its item."""
        entry = self.entry
        if self.annotations and not entry.get("annotations"):
            entry = {**entry, "annotations": self.annotations}
        return {"item": item, "field": self.place[0], "nth": self.nth, "part": entry}


class OpenItem:
    """One item: what is known of it, and how much of it has been told."""

    __slots__ = ("closed", "current", "final", "gave_way", "key", "kind", "opened", "pieces", "raw", "texts")

    def __init__(self, key: int, kind: ItemKind, raw: Item) -> None:
        self.key = key
        self.kind = kind
        self.raw = raw
        self.closed = False
        self.texts: dict[Place, OpenText] = {}
        self.current: OpenText | None = None
        self.gave_way: Item | None = None  # of reasoning that gave way: the fields that were told then
        self.opened = False  # of a call: its start has been told
        self.pieces: list[str] = []  # of a call: its input as it has been streamed
        self.final: list[str] = []  # finished texts, or input, that do not continue what was streamed

    def is_account(self, raw: Item, kind: ItemKind) -> bool:
        """Whether a whole item may be a fuller account of this one, going by its type."""
        return not self.closed and self.kind == kind and self.raw.get("type") in (None, raw.get("type"))


class Output:
    """Tells the emitter what items say."""

    def __init__(self, out: Emitter) -> None:
        self._out = out
        self.speaker: OpenItem | None = None
        self.tools: Any = None  # the request's, as the response repeats them
        self.refused = False
        self.has_client_calls = False
        self._silent: list[OpenItem] = []  # reasoning that is open and has told nothing yet
        self._unanswered: dict[Any, OpenItem] = {}  # calls whose result is an item of its own
        self._last_kind: ItemKind | None = None

    def begin(self, item: OpenItem) -> None:
        """An item has opened."""
        if item.kind == "thinking":
            self._silent.append(item)

    def close(self, item: OpenItem, raw: Item) -> None:
        """The finished account of an item; said again, it changes nothing."""
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
                self._carry(raw)
            case _:
                assert_never(item.kind)
        item.closed = True

    def close_unanswered(self) -> None:
        """No result will come for the calls that wait for one."""
        for call in self._unanswered.values():
            self._out.close_call(call.key, continuation={"item": kept_of_call(call.raw)})

    # -- texts

    def text_at(self, item: OpenItem, entry_type: str, index: object) -> OpenText:
        """The text at a place of an item; one that was not announced is announced by this."""
        place = _field_of(entry_type), index if isinstance(index, int) else 0
        text = item.texts.get(place)
        if text is None:
            text = item.texts[place] = OpenText(place, len(item.texts), entry_type)
        self.refused |= entry_type == "refusal"
        return text

    def say(self, item: OpenItem, text: OpenText, piece: str) -> None:
        """More of a text."""
        if item.current is not text:
            self._end_text(item, {"id": item.raw["id"]} if item.raw.get("id") else {})
            item.current = text
            text.shown = False
        text.pieces.append(piece)
        self._show(item.kind, text, piece, None, item)
        self.speaker = item

    def say_rest(self, item: OpenItem, text: OpenText, whole: str) -> None:
        """A whole text, of which the rest is news."""
        rest = _rest(item, text.pieces, whole)
        if rest:
            self.say(item, text, rest)

    def give_way(self, item: OpenItem) -> None:
        """Another item wants to speak: reasoning ends here, as far as can be known."""
        item.gave_way = item_fields(item.raw)
        self._end_text(item, item.gave_way)
        self.speaker = None

    def _end_text(self, item: OpenItem, fields: Item) -> None:
        text, item.current = item.current, None
        if text is not None:
            self._show(item.kind, text, "", text.continuation(fields), item)

    def _show(
        self, kind: ItemKind, text: OpenText, piece: str, continuation: dict[str, Any] | None, item: OpenItem | None
    ) -> None:
        self._place_silent(item)
        tell = self._out.thinking if kind == "thinking" else self._out.text
        tell(piece, new_part=not text.shown and self._last_kind == kind, continuation=continuation)
        text.shown = True
        self._last_kind = kind

    def _place_silent(self, speaker: OpenItem | None) -> None:
        """Reasoning that is still silent takes its place before what is told now: it must go back in this order."""
        silent, self._silent = self._silent, []
        for item in silent:
            if item is not speaker and not item.closed and item.raw.get("id"):
                item.gave_way = item_fields(item.raw)
                self._show("thinking", _nothing(), "", {"item": item.gave_way}, None)

    def _close_texts(self, item: OpenItem) -> None:
        last = item.current
        for last, entry in self._matched(item):
            last.entry = part_fields(entry)
            self.say_rest(item, last, text_of(entry))
        if self.speaker is item:
            self.speaker = None
        fields = item_fields(item.raw)
        if item.gave_way is not None and item.current is None:
            told, final = item.gave_way, _final(item)
            if final or any(value and key != "status" and told.get(key) != value for key, value in fields.items()):
                self._carry(fields, **final)
            return
        last, item.current = item.current or last, None
        if last is not None:
            self._show(item.kind, last, "", {**last.continuation(fields), **_final(item)}, item)
        elif fields:
            self._show(item.kind, _nothing(), "", {"item": fields}, item)

    def _matched(self, item: OpenItem) -> list[tuple[OpenText, dict[str, Any]]]:
        """The entries of a finished item, each with its text.

        An entry belongs to the text that was streamed at its index, if it agrees with it. A server may number
        `content_index` across the items of a response, though; so the entries left over take, in order, the streamed
        texts of their type that no other entry claimed.
        """
        entries = [(index, _type_of(entry), entry) for _, index, entry in texts_of(item.raw)]
        streamed = list(item.texts.values())
        texts: list[OpenText | None] = []
        for index, entry_type, entry in entries:
            text = item.texts.get((_field_of(entry_type), index))
            agrees = text is not None and text not in texts and _rest_of(text.pieces, text_of(entry)) is not None
            texts.append(text if agrees else None)
        matched = []
        for nth, (index, entry_type, entry) in enumerate(entries):
            if texts[nth] is None:
                left = (text for text in streamed if text not in texts and text.entry.get("type") == entry_type)
                texts[nth] = next(left, None)
            text = texts[nth] or self.text_at(item, entry_type, _free_index(item, _field_of(entry_type), index))
            matched.append((text, entry))
        return matched

    def _carry(self, raw: Item, **others: Any) -> None:
        """An item that only its provider understands. Empty text carries it, since reasoning may not end a message."""
        self._show("text", _nothing(), "", {"item": raw, **others}, None)

    # -- calls

    def open_call(self, item: OpenItem) -> None:
        """The start of a call."""
        self._place_silent(item)
        raw = item.raw
        who = executed_by(raw, self.tools)
        self.has_client_calls |= who == "client"
        ids = (raw.get("call_id"), raw.get("id"))
        provider_id = next((one for one in ids if isinstance(one, str) and one), None)
        self._out.open_call(item.key, name_of(raw), provider_id=provider_id, executed_by=who)
        item.opened = True
        self._last_kind = "call"

    def say_input(self, item: OpenItem, piece: str) -> None:
        """More input of a call. Before the call has a name nothing is told: its finished account says it all."""
        if not item.opened or item.closed:
            return
        field = FREE_TEXT.get(str(item.raw.get("type")))
        text = piece
        if field is not None:
            text = json_text(piece)[1:-1]  # free text grows inside a JSON string
            if not item.pieces:
                text = f'{{"{field}":"{text}'
        item.pieces.append(piece)
        self._out.call_args(item.key, text)

    def say_input_rest(self, item: OpenItem, whole: str) -> None:
        """The whole input of a call, of which the rest is news."""
        rest = _rest(item, item.pieces, whole)
        if rest:
            self.say_input(item, rest)

    def _close_call(self, item: OpenItem) -> None:
        if not item.opened:
            self.open_call(item)
        raw = item.raw
        field = FREE_TEXT.get(str(raw.get("type")))
        if not item.pieces:
            self._out.call_args(item.key, arguments_of(raw))
        else:
            whole = raw.get(field or "arguments")
            self.say_input_rest(item, whole if isinstance(whole, str) else "")
            if field is not None:
                self._out.call_args(item.key, '"}')
        kept = {"item": kept_of_call(raw), **_final(item)}
        if executed_by(raw, self.tools) == "client":
            self._out.close_call(item.key, continuation=kept)
        elif raw.get("type") in _ANSWERED_BY_AN_ITEM:
            self._unanswered[_hashable(raw.get("call_id"))] = item
        else:
            result, failed = outcome_of(raw)
            self._out.close_call(item.key, continuation=kept, result=result, result_is_error=failed)

    def _close_result(self, item: OpenItem) -> None:
        """The item that holds a call's result; where its call came in an earlier response it stands for itself."""
        call = self._unanswered.pop(_hashable(item.raw.get("call_id")), None)
        if call is None:
            self._carry(item.raw)
            return
        result, failed = outcome_of(item.raw)
        kept = {"item": kept_of_call(call.raw), "output": item.raw}
        self._out.close_call(call.key, continuation=kept, result=result, result_is_error=failed)


def _rest(item: OpenItem, pieces: list[str], whole: str) -> str | None:
    """What a whole text adds to the pieces of it that were streamed. One that does not continue them is recorded."""
    rest = _rest_of(pieces, whole)
    if rest is None and whole not in item.final:
        item.final.append(whole)
    return rest


def _rest_of(pieces: list[str], whole: str) -> str | None:
    """The end of a text that begins with these pieces; "" where it says less; None where it says something else.

    UTF-16 is compared, because a server may have cut the pieces inside a surrogate pair.
    """
    streamed = "".join(pieces)
    pieces[:] = [streamed] if streamed else []
    if whole.startswith(streamed):
        return whole[len(streamed) :]
    old, new = (text.encode("utf-16-le", "surrogatepass") for text in (streamed, whole))
    if new.startswith(old):
        return new[len(old) :].decode("utf-16-le", "surrogatepass")
    return "" if old.startswith(new) else None


def _final(item: OpenItem) -> dict[str, Any]:
    return {"final": item.final} if item.final else {}


def _type_of(entry: dict[str, Any]) -> str:
    entry_type = str(entry.get("type"))
    return entry_type if entry_type in ENTRY_KINDS else "output_text"


def _field_of(entry_type: str) -> str:
    return "summary" if entry_type == "summary_text" else "content"


def _free_index(item: OpenItem, field: str, index: int) -> int:
    while (field, index) in item.texts:
        index += 1
    return index


def _nothing() -> OpenText:
    return OpenText(("content", 0), 0, "")


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""
