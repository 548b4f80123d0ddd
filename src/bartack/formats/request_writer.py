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

from bartack.formats.format import Format
from bartack.formats.history_rules import HistoryRules
from bartack.formats.losses import Loss, Losses, LossReport
from bartack.formats.media import with_inline_data
from bartack.formats.repair import KnownCalls, RepairedRest, repair_rest
from bartack.formats.trail import Facts, PrefixChanged, Trail
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import History, ModelRequest

__all__ = ["RequestWriter", "Written", "encode_request"]

_MAX_CONVERSATIONS = 16
_MAX_BYTES = 64 * 1024 * 1024  # of JSON, in all conversations


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
        self._beginnings: dict[int, _Beginning] = {}  # by identity, the last used ones at the end

    def write(self, request: ModelRequest) -> Written:
        """The request, the same bytes whether or not its beginning was known."""
        beginning = self._take(request)
        try:
            return self._write(request, beginning)
        except PrefixChanged:
            return self._write(request, _Beginning(request))

    def _write(self, request: ModelRequest, beginning: "_Beginning") -> Written:
        rest = encode_request(self._format, request, beginning=beginning)
        report, call_ids = rest.report(), rest.repaired.call_ids()
        body = {key: value for key, value in rest.body.items() if key not in self._without} | self._fields
        items = rest.trail.items
        name = next((key for key, value in body.items() if items is not None and value is items), None)
        if name is None:  # the format does not continue, or a setting replaces the messages
            assert not beginning.messages  # it would have the same settings
            return Written(msgspec.json.encode(body), report, call_ids)
        new_items = beginning.extend(request, rest)
        written = Written(_joined(body, name, beginning.json, new_items), report, call_ids)
        self._put(beginning)
        return written

    def _take(self, request: ModelRequest) -> "_Beginning":
        found = [one for one in list(self._beginnings.values()) if one.starts(request)]
        longest = max(found, key=lambda one: len(one.messages), default=None)
        if longest is None or self._beginnings.pop(id(longest), None) is None:  # none, or taken by another thread
            return _Beginning(request)
        return longest

    def _put(self, beginning: "_Beginning") -> None:
        if not beginning.messages:
            return
        self._beginnings[id(beginning)] = beginning
        kept = list(self._beginnings.items())
        size = sum(len(one.json) for _, one in kept)
        while len(kept) > _MAX_CONVERSATIONS or (size > _MAX_BYTES and len(kept) > 1):
            key, oldest = kept.pop(0)
            self._beginnings.pop(key, None)
            size -= len(oldest.json)


def _joined(body: dict[str, Any], name: str, known: bytearray, items: list[Any]) -> bytes:
    """The JSON of a body whose list of this name begins with known items."""
    names = list(body)
    place = names.index(name)
    before = msgspec.json.encode({key: body[key] for key in names[:place]})[:-1]
    after = msgspec.json.encode({key: body[key] for key in names[place + 1 :]})[1:]
    new = msgspec.json.encode(items)[1:-1]
    return b"".join(
        (
            before,
            b"," if place else b"",
            msgspec.json.encode(name),
            b":[",
            known,
            b"," if known and new else b"",
            new,
            b"]," if len(after) > 1 else b"]",
            after,
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
    of_history: _Losses  # from repairing it
    of_messages: _Losses  # from encoding them
    others: list[Loss]

    def report(self) -> LossReport:
        """All losses: of the history as given, of the messages as sent, of everything else."""
        known = self.beginning
        of_history = (*known.of_history, *(loss for _, loss in self.of_history))
        return LossReport((*of_history, *known.of_messages, *(loss for _, loss in self.of_messages), *self.others))


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
    repaired = repair_rest(request.messages[first:], rules, beginning.calls)
    of_history = [
        (note.index, Loss(f"history[{first + note.index}]", note.what, note.why, action=note.action))
        for note in repaired.notes
        if note.action in ("dropped", "added", "moved")
    ]
    trail = Trail(beginning.sent, beginning.facts)
    losses = Losses(provider, trail)
    messages = tuple(with_inline_data(message) for _, message in repaired.turns)
    body = format.encode(replace(request, messages=messages, provider=provider), losses)
    if first and trail.starts[:1] != [trail.first]:
        raise PrefixChanged
    indexed = [(_message_index(loss), loss) for loss in losses.found]
    of_messages = sorted((one for one in indexed if one[0] >= 0), key=itemgetter(0))
    others = [loss for index, loss in indexed if index < 0]
    return EncodedRest(body, trail, repaired, beginning, of_history, of_messages, others)


def _message_index(loss: Loss) -> int:
    """The index of the message that the loss belongs to; -1 for a loss elsewhere."""
    name, _, rest = loss.where.partition("[")
    return int(rest.partition("]")[0]) if name == "messages" else -1


class _Beginning:
    """The beginning of a conversation, as written in earlier requests; empty at first."""

    def __init__(self, request: ModelRequest) -> None:
        self._config = request.config
        self._provider = request.provider
        self.messages: list[Message] = []
        self._thread: tuple[int, object] | None = None  # that the messages belong to, and where it begins
        self.sent = 0  # how many messages they became
        self.calls = KnownCalls()
        self.facts: Facts = {}
        self.of_history: list[Loss] = []
        self.of_messages: list[Loss] = []
        self.json = bytearray()  # the items, with commas between them

    def starts(self, request: ModelRequest) -> bool:
        """Whether the request has the same settings, begins with these messages, and continues."""
        known, given = self.messages, request.messages
        if len(given) <= len(known) or given[len(known) - 1] is not known[-1] or request.provider != self._provider:
            return False
        config, own = request.config, self._config
        # Equal numbers may be written differently.
        if config is not own and (config != own or repr(config.extra) != repr(own.extra)):
            return False
        head = 0
        while known[head].role == "system" and _is_same_prompt(known[head], given[head]):
            head += 1
        known[:head] = given[:head]
        if isinstance(given, History) and self._thread == (given.head, given.thread):
            known = known[: given.head]
        return all(map(is_, known, given))

    def extend(self, request: ModelRequest, rest: EncodedRest) -> list[Any]:
        """Add the part of a request that later ones repeat; returns the items of the remaining part."""
        trail, repaired, given = rest.trail, rest.repaired, request.messages
        self._thread = (given.head, given.thread) if isinstance(given, History) else None
        items = trail.items or []
        cuts = [cut for cut in repaired.cuts() if trail.can_end_before(self.sent + cut[0])]
        if not cuts:
            return items
        turn, index = cuts[-1]
        sent = self.sent + turn
        place = bisect_left(trail.starts, sent)
        json = msgspec.json.encode(items[:place])[1:-1]
        self.json += b"," + json if self.json else json
        self.calls = repaired.calls_before(index)
        self.calls.last_role = repaired.turns[turn - 1][1].role
        self.facts = trail.facts_before(sent)
        self.of_history += [loss for at, loss in rest.of_history if at < index]
        self.of_messages += [loss for at, loss in rest.of_messages if at < sent]
        self.messages += given[len(self.messages) : len(self.messages) + index]
        self.sent = sent
        return items[place:]


def _is_same_prompt(known: Message, given: Message) -> bool:
    """Whether a system message is written like another: agents make a new one for every call."""
    if known is given:
        return True
    texts = _plain_texts(known)
    return given.role == "system" and texts is not None and texts == _plain_texts(given)


def _plain_texts(message: Message) -> list[tuple[str, bool]] | None:
    """The texts of a message; None if there is more to it."""
    texts = [part for part in message.parts if isinstance(part, Text) and part.continuation is None]
    return [(part.text, part.ignored) for part in texts] if len(texts) == len(message.parts) else None
