"""`Output`: the items of one response on their way to the emitter, and how much of each has been told.

A text is told in pieces, or as a whole of which only the rest is told, or both; the same holds for the input of a call.
An item is closed by its finished account, which may add texts that were never told piece by piece. Only then is all of
its continuation data known, so it follows the last text.

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
    """One text of an item: how many characters have been told, and what its entry says beside the text."""

    __slots__ = ("annotations", "entry", "nth", "place", "said", "shown")

    def __init__(self, place: Place, nth: int, entry_type: str) -> None:
        self.place = place
        self.nth = nth
        self.said = 0
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

    __slots__ = ("closed", "current", "gave_way", "key", "kind", "opened", "raw", "said", "texts")

    def __init__(self, key: int, kind: ItemKind, raw: Item) -> None:
        self.key = key
        self.kind = kind
        self.raw = raw
        self.closed = False
        self.texts: dict[Place, OpenText] = {}
        self.current: OpenText | None = None
        self.gave_way: Item | None = None  # of reasoning that gave way: the fields that were told then
        self.opened = False  # of a call: its start has been told
        self.said = 0  # of a call: how many characters of its input have been told

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
        field = "summary" if entry_type == "summary_text" else "content"
        place = field, index if isinstance(index, int) else 0
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
        text.said += len(piece)
        self._show(item.kind, text, piece, None, item)
        self.speaker = item

    def say_rest(self, item: OpenItem, text: OpenText, whole: str) -> None:
        """A whole text, of which the rest is news."""
        if len(whole) > text.said:
            self.say(item, text, whole[text.said :])

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
        for _, index, entry in texts_of(item.raw):
            entry_type = str(entry.get("type"))
            last = self.text_at(item, entry_type if entry_type in ENTRY_KINDS else "output_text", index)
            last.entry = part_fields(entry)
            self.say_rest(item, last, text_of(entry))
        if self.speaker is item:
            self.speaker = None
        fields = item_fields(item.raw)
        if item.gave_way is not None and item.current is None:
            told = item.gave_way
            if any(value and key != "status" and told.get(key) != value for key, value in fields.items()):
                self._carry(fields)
            return
        last, item.current = item.current or last, None
        if last is not None:
            self._show(item.kind, last, "", last.continuation(fields), item)
        elif fields:
            self._show(item.kind, _nothing(), "", {"item": fields}, item)

    def _carry(self, raw: Item) -> None:
        """An item that only its provider understands. Empty text carries it, since reasoning may not end a message."""
        self._show("text", _nothing(), "", {"item": raw}, None)

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
            if not item.said:
                text = f'{{"{field}":"{text}'
        item.said += len(piece)
        self._out.call_args(item.key, text)

    def say_input_rest(self, item: OpenItem, whole: str) -> None:
        """The whole input of a call, of which the rest is news."""
        if len(whole) > item.said:
            self.say_input(item, whole[item.said :])

    def _close_call(self, item: OpenItem) -> None:
        if not item.opened:
            self.open_call(item)
        raw = item.raw
        field = FREE_TEXT.get(str(raw.get("type")))
        if field is not None and item.said:
            whole = raw.get(field)
            self.say_input_rest(item, whole if isinstance(whole, str) else "")
            self._out.call_args(item.key, '"}')
        else:
            self._out.call_args(item.key, arguments_of(raw)[item.said :])
        kept = {"item": kept_of_call(raw)}
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


def _nothing() -> OpenText:
    return OpenText(("content", 0), 0, "")


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""
