"""`RequestWriter`: the requests of growing conversations as JSON, at a cost that does not grow with them.

A history grows at its end, and its messages never change. The writer keeps the JSON of the messages that it has written
before, up to a point that later messages cannot affect (`RepairedRest.cuts`, `Trail`). The next request of the same
conversation repairs and encodes only what follows, and is put together from both. Its bytes, and its report, are those
of a request that is encoded from its first message:

- A conversation is recognized by its messages, which must be the same objects; only plain system prompts are compared
  by their text. A `History` of the same thread is known to have them. If a message was changed, replaced by a summary
  or removed, or if a setting has changed, everything is encoded again.
- If a new message affects what was written (a late result of a call, for example), everything is encoded again.
- A format whose encoder does not call `Trail.wrote` is always encoded in full.

One request in its stages, with the beginning that was kept from the one before:

    messages     m0 ... m4 | m5 m6 m7    m0 to m4 are the same objects as last time
    turns        kept      | t5 t6 t7    `repair_rest`, given the `KnownCalls` of the beginning
    items        kept JSON | i5 i6 i7    `Format.encode`, given the facts in the `Trail`
    kept next    m0 ... m6 | m7          up to the last cut that repair and encoder both allow

The last item often has to wait: results may still be merged into it, or a later message may change what it says.

The writer keeps the beginnings of the conversations that it has seen last. A call takes the beginning that it uses, so
simultaneous calls cannot disturb each other: the second one encodes in full.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import is_, itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.body_values import beyond
from bartack.formats.format import Format, HistoryRules
from bartack.formats.losses import Facts, Loss, Losses, LossReport, PrefixChanged, Trail
from bartack.formats.media import with_inline_data
from bartack.formats.repair import KnownCalls, RepairedRest, repair_rest
from bartack.nouns.messages import Message
from bartack.nouns.parts import Image, Text
from bartack.nouns.requests import History, ModelRequest

__all__ = ["RequestWriter", "Written", "encode_request"]

_MAX_CONVERSATIONS = 16
_MAX_BYTES = 64 * 1024 * 1024  # the JSON of all conversations together


class Written(msgspec.Struct, frozen=True):
    """A request body as JSON, what was left out of it, and the ids of all calls in its history."""

    body: bytes
    report: LossReport
    call_ids: Collection[str]


class RequestWriter:
    """Writes the requests of one model. Safe for use by several threads."""

    def __init__(
        self, format: Format, *, without: Collection[str] = (), fields: Mapping[str, Any] | None = None
    ) -> None:
        """The keys in `without` are left out of every body, then `fields` are added to it."""
        self._format = format
        self._without = without
        self._fields = dict(fields or {})
        self._beginnings: dict[int, _Beginning] = {}  # keys: `id()`; the most recently used one is last

    def write(self, request: ModelRequest) -> Written:
        """The request, the same bytes whether or not its beginning was known."""
        beginning = self._take(request)
        try:
            return self._write(request, beginning)
        except PrefixChanged:
            return self._write(request, _Beginning(request))

    def _write(self, request: ModelRequest, beginning: "_Beginning") -> Written:
        encoded = encode_request(self._format, request, beginning=beginning)
        report, call_ids = encoded.report(), encoded.repaired.call_ids()
        body = beyond(encoded.body, *self._without) | self._fields
        items = encoded.trail.items
        name = next((key for key, value in body.items() if items is not None and value is items), None)
        if name is None:  # the format does not continue
            assert not beginning.messages  # it would have the same settings
            return Written(msgspec.json.encode(body), report, call_ids)
        new_items = beginning.extend(request, encoded)
        request_body = Written(_joined(body, name, beginning.json, new_items), report, call_ids)
        self._put(beginning)
        return request_body

    def _take(self, request: ModelRequest) -> "_Beginning":
        matching = [beginning for beginning in list(self._beginnings.values()) if beginning.starts(request)]
        longest = max(matching, key=lambda beginning: len(beginning.messages), default=None)
        if longest is None or self._beginnings.pop(id(longest), None) is None:  # none, or taken by another thread
            return _Beginning(request)
        return longest

    def _put(self, beginning: "_Beginning") -> None:
        if not beginning.messages:
            return
        self._beginnings[id(beginning)] = beginning
        beginnings = list(self._beginnings.items())
        size = sum(len(stored.json) for _, stored in beginnings)
        while len(beginnings) > _MAX_CONVERSATIONS or (size > _MAX_BYTES and len(beginnings) > 1):
            key, oldest = beginnings.pop(0)
            self._beginnings.pop(key, None)
            size -= len(oldest.json)


def _joined(body: dict[str, Any], name: str, written_json: bytearray, items: list[Any]) -> bytes:
    """The JSON of a body whose list of this name begins with known items."""
    names = list(body)
    place = names.index(name)
    fields_before = msgspec.json.encode({key: body[key] for key in names[:place]})[:-1]
    fields_after = msgspec.json.encode({key: body[key] for key in names[place + 1 :]})[1:]
    new_json = msgspec.json.encode(items)[1:-1]
    return b"".join(
        (
            fields_before,
            b"," if place else b"",
            msgspec.json.encode(name),
            b":[",
            written_json,
            b"," if written_json and new_json else b"",
            new_json,
            b"]," if len(fields_after) > 1 else b"]",
            fields_after,
        )
    )


_Losses = list[tuple[int, Loss]]  # each with the index of its message


@dataclass(eq=False)
class EncodedRest:
    """A request encoded after a known beginning."""

    body: dict[str, Any]
    trail: Trail
    repaired: RepairedRest
    beginning: "_Beginning"
    of_history: _Losses  # caused by repairing it
    of_messages: _Losses  # caused by encoding them
    of_settings: list[Loss]

    def report(self) -> LossReport:
        """All losses: of the history as given, of the messages as sent, of everything else."""
        beginning = self.beginning
        of_history = (*beginning.of_history, *(loss for _, loss in self.of_history))
        return LossReport(
            (*of_history, *beginning.of_messages, *(loss for _, loss in self.of_messages), *self.of_settings)
        )


def encode_request(
    format: Format,
    request: ModelRequest,
    rules: HistoryRules | None = None,
    beginning: "_Beginning | None" = None,
) -> EncodedRest:
    """The request encoded after this beginning, or as a whole. Raises `PrefixChanged` if it does not continue it."""
    beginning = beginning or _Beginning(request)
    provider = request.provider or format.name
    first = len(beginning.messages)
    rules = rules or format.history_rules(provider, request.config.model_id)
    trail = Trail(beginning.sent, beginning.facts)
    losses = Losses(provider, trail)
    repaired = repair_rest(request.messages[first:], rules, beginning.calls, lambda part: format.carries(part, losses))
    of_history = [
        (
            note.index,
            Loss(where=f"history[{first + note.index}]{note.path}", what=note.what, why=note.why, action=note.action),
        )
        for note in repaired.notes
        if note.action in ("dropped", "added", "moved")
    ]
    messages = tuple(with_inline_data(message) for _, message in repaired.turns)
    if not format.has_image_detail:
        for index, message in enumerate(messages, trail.first):
            for number, part in enumerate(message.parts):
                if isinstance(part, Image) and part.detail is not None:
                    where = f"messages[{index}].parts[{number}].detail"
                    losses.add(where, f"detail {part.detail!r}", "the format has no such setting for an image")
    body = format.encode(replace(request, messages=messages, provider=provider), losses)
    if first and trail.starts[:1] != [trail.first]:
        raise PrefixChanged
    indexed = [(_message_index(loss), loss) for loss in losses.found]
    of_messages = sorted((item for item in indexed if item[0] >= 0), key=itemgetter(0))
    of_settings = [loss for index, loss in indexed if index < 0]
    return EncodedRest(body, trail, repaired, beginning, of_history, of_messages, of_settings)


def _message_index(loss: Loss) -> int:
    """The index of the message that the loss belongs to; -1 for a loss elsewhere."""
    name, _, index = loss.where.partition("[")
    return int(index.partition("]")[0]) if name == "messages" else -1


class _Beginning:
    """The beginning of a conversation, as written in earlier requests; empty at first."""

    def __init__(self, request: ModelRequest) -> None:
        self._config = request.config
        self._provider = request.provider
        self.messages: list[Message] = []
        self._thread: tuple[int, object] | None = None  # where the thread of these messages begins, and the thread
        self.sent = 0  # how many messages they became
        self.calls = KnownCalls()
        self.facts: Facts = {}
        self.of_history: list[Loss] = []
        self.of_messages: list[Loss] = []
        self.json = bytearray()  # the items, with commas between them

    def starts(self, request: ModelRequest) -> bool:
        """Whether the request has the same settings, begins with these messages, and continues."""
        own_messages, messages = self.messages, request.messages
        if (
            len(messages) <= len(own_messages)
            or messages[len(own_messages) - 1] is not own_messages[-1]
            or request.provider != self._provider
        ):
            return False
        config, own_config = request.config, self._config
        # Equal numbers may be written differently.
        if config is not own_config and (config != own_config or repr(config.extra) != repr(own_config.extra)):
            return False
        head = 0
        while own_messages[head].role == "system" and _is_same_prompt(own_messages[head], messages[head]):
            head += 1
        own_messages[:head] = messages[:head]
        if isinstance(messages, History) and self._thread == (messages.head, messages.thread):
            own_messages = own_messages[: messages.head]
        return all(map(is_, own_messages, messages))

    def extend(self, request: ModelRequest, encoded: EncodedRest) -> list[Any]:
        """Add the part of a request that later ones repeat; returns the items of the remaining part."""
        trail, repaired, messages = encoded.trail, encoded.repaired, request.messages
        self._thread = (messages.head, messages.thread) if isinstance(messages, History) else None
        items = trail.items or []
        cuts = [cut for cut in repaired.cuts() if trail.can_end_before(self.sent + cut[0])]
        if not cuts:
            return items
        turn, index = cuts[-1]
        sent_count = self.sent + turn
        place = bisect_left(trail.starts, sent_count)
        json = msgspec.json.encode(items[:place])[1:-1]
        self.json += b"," + json if self.json else json
        self.calls = repaired.calls_before(index)
        self.calls.last_role = repaired.turns[turn - 1][1].role
        self.facts = trail.facts_before(sent_count)
        self.of_history += [loss for source, loss in encoded.of_history if source < index]
        self.of_messages += [loss for position, loss in encoded.of_messages if position < sent_count]
        self.messages += messages[len(self.messages) : len(self.messages) + index]
        self.sent = sent_count
        return items[place:]


def _is_same_prompt(prompt: Message, other_prompt: Message) -> bool:
    """Whether a system message is written like another: agents make a new one for every call."""
    if prompt is other_prompt:
        return True
    texts = _plain_texts(prompt)
    return other_prompt.role == "system" and texts is not None and texts == _plain_texts(other_prompt)


def _plain_texts(message: Message) -> list[tuple[str, bool]] | None:
    """The texts of a message; None if there is more to it."""
    texts = [part for part in message.parts if isinstance(part, Text) and part.continuation is None]
    return [(part.text, part.ignored) for part in texts] if len(texts) == len(message.parts) else None
