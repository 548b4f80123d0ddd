"""Any history to one that a provider accepts.

A stored history records what happened: processes are killed between a call and its result, users write in between,
models and providers are switched. Providers refuse such a history, in this request and in every later one. `repair`
returns the closest history that they accept; the stored one is never changed. `bartack.formats.format` has what
providers require.

A part without text may still be something that the provider sent: a compaction, a tool reference, an item that only the
provider understands. Only its format can tell, so `repair` asks (`Carries`) before it takes a part for blank text or
for reasoning that led to nothing.

The result depends only on the messages. Messages after a call do not change the id made for it, so a growing history
keeps its prefix, and prompt caches hit.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from operator import is_
from typing import Literal, assert_never

from msgspec.structs import replace

from bartack.formats.format import STRICTEST, HistoryRules
from bartack.formats.losses import PrefixChanged
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, Role
from bartack.nouns.noun import Noun
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = [
    "CONTINUE_PROMPT",
    "INTERRUPTED",
    "RESULTS_RECEIVED",
    "START_PROMPT",
    "Carries",
    "KnownCalls",
    "RepairNote",
    "Repaired",
    "RepairedRest",
    "made_id",
    "repair",
    "repair_rest",
]

# Texts that a model reads where a message or a result is missing.
INTERRUPTED = "Interrupted: the outcome of this call is unknown."
START_PROMPT = "Please begin."  # said by the user, before a greeting of the assistant or after instructions alone
CONTINUE_PROMPT = "Please continue."  # said by the user, after an answer
RESULTS_RECEIVED = "I have received the results."  # said by the assistant, between tool results and a user message


Carries = Callable[[Part], bool]  # whether an encoder sends an item of the provider for this part, whatever its text


def _carries_nothing(part: Part) -> bool:
    return False


class RepairNote(Noun, frozen=True):
    """One change: at which of the original messages, what was changed, and why."""

    index: int
    action: Literal["added", "dropped", "merged", "moved", "renamed"]
    what: str
    why: str
    path: str = ""  # inside the message, such as .parts[2]


class Repaired(Noun, frozen=True):
    """An accepted history, and how it differs from the original."""

    messages: tuple[Message, ...]
    notes: tuple[RepairNote, ...] = ()


_Turn = tuple[int, Message]  # a message, and the index of the original that it is or replaces


def repair(
    messages: Sequence[Message], rules: HistoryRules = STRICTEST, carries: Carries = _carries_nothing
) -> Repaired:
    """The closest history that a provider with these rules accepts; a valid one is returned unchanged.

    Never raises. Repairing the result again changes nothing. No text of the user or the assistant is lost except blank
    text, and no first result of a call that is kept.
    """
    repaired = repair_rest(messages, rules, carries=carries)
    return Repaired(tuple(message for _, message in repaired.turns), repaired.notes)


# -- the rest of a history whose beginning is known

# Between messages of these roles, what comes before does not depend on what comes after, except for late results.
_CUTS = frozenset({("assistant", "user"), ("tool", "assistant")})


@dataclass(eq=False)
class KnownCalls:
    """What the calls of a repaired beginning mean for the rest."""

    ids: set[str] = field(default_factory=set)
    sent_ids: set[str] = field(default_factory=set)
    open_ids: set[str] = field(default_factory=set)  # calls without a result
    last_role: Role | None = None  # the role of its last message; None if it is empty


@dataclass(eq=False)
class RepairedRest:
    """The repaired rest of a history. All indices count from its first message."""

    turns: list[_Turn]
    notes: tuple[RepairNote, ...]
    _messages: Sequence[Message]
    _calls: "dict[int, list[_Call]]"
    _known: KnownCalls

    def cuts(self) -> Iterator[tuple[int, int]]:
        """Where the history can be cut, by position in `turns` and by index of the original message, in order."""
        calls = iter(sorted(self._calls.items()))
        index, turn_calls = next(calls, (None, []))
        latest = -1  # the last message that the turns so far, or the results of their calls, come from
        for place in range(1, len(self.turns)):
            (before, last), (source, first) = self.turns[place - 1 : place + 1]
            latest = max(latest, before)
            while index is not None and index < source:
                latest = max(latest, *(call.source for call in turn_calls))
                index, turn_calls = next(calls, (None, []))
            is_original = first.role == self._messages[source].role
            if is_original and latest < source and (last.role, first.role) in _CUTS:
                yield place, source

    def calls_before(self, index: int) -> KnownCalls:
        """What is known about calls after this cut. Changes and returns what was known before."""
        known_calls = self._known
        for source in takewhile(lambda source: source < index, sorted(self._calls)):
            for call in self._calls[source]:
                known_calls.ids.add(call.part.tool_call_id)
                if not call.is_incomplete:
                    known_calls.sent_ids.add(call.sent_id)
                if call.part.executed_by == "client" and call.result is None:
                    known_calls.open_ids.add(call.part.tool_call_id)
        return known_calls

    def call_ids(self) -> frozenset[str]:
        """The ids of all calls of the history, including its beginning."""
        return frozenset(
            self._known.ids.union(call.part.tool_call_id for calls in self._calls.values() for call in calls)
        )


def repair_rest(
    messages: Sequence[Message],
    rules: HistoryRules,
    beginning: KnownCalls | None = None,
    carries: Carries = _carries_nothing,
) -> RepairedRest:
    """What `repair` makes of these messages after a beginning that was cut off at one of its `cuts`.

    Raises `PrefixChanged` if the beginning may have to be repaired differently.
    """
    beginning = beginning or KnownCalls()
    notes: list[RepairNote] = []
    calls = _matched(messages, rules, beginning, notes)
    turns = _with_results(messages, calls, rules, notes)
    turns = _with_content(turns, rules, carries, notes)
    if rules.merge_same_role:
        turns = _merged(turns, notes)
    turns = _with_missing_turns(turns, rules, beginning, carries, notes)
    if beginning.last_role is not None:
        index, first = turns[0]
        if index or first.role != messages[0].role or (beginning.last_role, first.role) not in _CUTS:
            raise PrefixChanged
    return RepairedRest(turns, tuple(sorted(notes, key=lambda note: note.index)), messages, calls, beginning)


# -- calls and their results


@dataclass
class _Call:
    part: ToolCall
    sent_id: str
    sent_name: str
    is_incomplete: bool  # its arguments were cut off
    result: ToolResult | None = None
    source: int = -1  # the message with the result

    @property
    def awaits_result(self) -> bool:
        return self.part.executed_by == "client" and not self.is_incomplete

    @property
    def sent_part(self) -> ToolCall:
        if (self.part.tool_call_id, self.part.tool_name) == (self.sent_id, self.sent_name):
            return self.part
        result = None if self.part.result is None else replace(self.part.result, tool_call_id=self.sent_id)
        return replace(self.part, tool_call_id=self.sent_id, tool_name=self.sent_name, result=result)

    @property
    def sent_result(self) -> ToolResult:
        if self.result is None:
            return ToolResult(self.sent_id, INTERRUPTED, is_error=True, error_code=ErrorCode.TOOL_INTERRUPTED)
        if self.part.tool_call_id == self.sent_id:
            return self.result
        return replace(self.result, tool_call_id=self.sent_id)


def _with_results(
    messages: Sequence[Message], calls: dict[int, list[_Call]], rules: HistoryRules, notes: list[RepairNote]
) -> list[_Turn]:
    """Every call followed by its one result, with unique and accepted ids."""
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        if index in calls:
            turns.append((index, _with_sent_calls(index, message, calls[index], notes)))
            awaiting = [call for call in calls[index] if call.awaits_result]
            if rules.allows_any_result_order:
                awaiting.sort(key=lambda call: _place_of_result(call, messages))
            turns += _results(index, messages, awaiting, notes)
        elif message.role != "tool":
            turns.append((index, message))
        elif not message.parts:
            notes.append(RepairNote(index, "dropped", "tool message", "it has no result"))
    return turns


def _matched(
    messages: Sequence[Message], rules: HistoryRules, beginning: KnownCalls, notes: list[RepairNote]
) -> dict[int, list[_Call]]:
    """The calls of each message. A result belongs to the last call before it that has its id and no result yet."""
    calls: dict[int, list[_Call]] = {}
    waiting: dict[str, list[_Call]] = {}
    sent_ids = _Ids(beginning.sent_ids)
    for index, message in enumerate(messages):
        incomplete = (message.meta and message.meta.open_calls) or ()
        for part in message.tool_calls:
            call = _Call(part, part.tool_call_id, part.tool_name, part.tool_call_id in incomplete)
            if not call.is_incomplete:
                if call.awaits_result and not rules.accepts_name(part.tool_name):
                    call.sent_name = rules.fitting_name(part.tool_name)
                    change = f"tool {part.tool_name!r} to {call.sent_name!r}"
                    notes.append(RepairNote(index, "renamed", change, "the name is not accepted"))
                call.sent_id = _sendable_id(part, rules, sent_ids)
                if call.sent_id != part.tool_call_id:
                    why = "an earlier call has this id" if part.tool_call_id in sent_ids else "the id is not accepted"
                    notes.append(RepairNote(index, "renamed", f"call {part.tool_call_id!r} to {call.sent_id!r}", why))
                sent_ids.add(call.sent_id)
            calls.setdefault(index, []).append(call)
            stack = waiting.setdefault(part.tool_call_id, [])
            if part.executed_by == "client":
                stack.append(call)
        for result in message.tool_results:
            candidates = waiting.get(result.tool_call_id)
            if candidates:
                call = candidates.pop()
                call.result, call.source = result, index
            elif result.tool_call_id in beginning.open_ids:
                raise PrefixChanged
            else:
                is_known = candidates is not None or result.tool_call_id in beginning.ids
                why = "its call needs no further result" if is_known else "no earlier call has this id"
                notes.append(RepairNote(index, "dropped", f"result of call {result.tool_call_id!r}", why))
    return calls


def made_id(original: str, attempt: int) -> str:
    """Nine letters and digits: Mistral requires this, and all other providers accept it."""
    return hashlib.sha256(f"{attempt} {original}".encode("utf-8", "surrogatepass")).hexdigest()[:9]


class _Ids:
    """A set of ids on top of one that is not to be changed."""

    def __init__(self, used: set[str]) -> None:
        self._known = used
        self._new: set[str] = set()

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._new or call_id in self._known

    def add(self, call_id: str) -> None:
        self._new.add(call_id)


def _sendable_id(call: ToolCall, rules: HistoryRules, sent_ids: _Ids) -> str:
    # The id of a provider call is sent only to that provider, which accepts its own ids.
    original = call.tool_call_id
    if original not in sent_ids and (call.executed_by == "provider" or rules.accepts_id(original)):
        return original
    made_ids = (made_id(original, attempt) for attempt in count())
    return next(candidate for candidate in made_ids if candidate not in sent_ids)


def _with_sent_calls(index: int, message: Message, calls: list[_Call], notes: list[RepairNote]) -> Message:
    by_id = {call.part.tool_call_id: call for call in calls}
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif by_id[part.tool_call_id].is_incomplete:
            why = "its arguments are incomplete"
            notes.append(RepairNote(index, "dropped", f"call {part.tool_call_id!r} and its result, if any", why))
        else:
            parts.append(by_id[part.tool_call_id].sent_part)
    if _same_parts(parts, message.parts):
        return message
    return replace(message, parts=tuple(parts), meta=_with_sent_ids(message.meta, by_id))


def _with_sent_ids(meta: Meta | None, by_id: dict[str, _Call]) -> Meta | None:
    if meta is None:
        return None
    sent_ids = {key: call.sent_id for key, call in by_id.items() if not call.is_incomplete}
    bad_args = {sent_ids[key]: why for key, why in (meta.bad_args or {}).items() if key in sent_ids}
    return replace(meta, open_calls=None, bad_args=bad_args or None)


def _results(index: int, messages: Sequence[Message], calls: list[_Call], notes: list[RepairNote]) -> Iterator[_Turn]:
    """The results of one message's calls: the original messages if they hold no other results, else a new one."""
    answered = [call for call in calls if call.result is not None]
    for call in calls:
        if call.result is None:
            addition = f"error result for call {call.part.tool_call_id!r}"
            notes.append(RepairNote(index, "added", addition, "it has no result"))
    _note_moves(index, messages, answered, notes)
    sources = list(dict.fromkeys(call.source for call in calls))
    stored = [part for source in sources if source >= 0 for part in messages[source].parts]
    if calls and (-1 in sources or stored != [call.result for call in calls]):
        yield index, Message("tool", tuple(call.sent_result for call in calls))
        return
    for source in sources:
        parts = tuple(call.sent_result for call in calls if call.source == source)
        unchanged = parts == messages[source].parts
        yield source, messages[source] if unchanged else replace(messages[source], parts=parts)


def _place_of_result(call: _Call, messages: Sequence[Message]) -> tuple[int, int]:
    """The message and part with the result of a call; a place after all of them if there is none."""
    if call.result is None:
        return len(messages), 0
    return call.source, messages[call.source].parts.index(call.result)


def _note_moves(index: int, messages: Sequence[Message], calls: list[_Call], notes: list[RepairNote]) -> None:
    following = set(takewhile(lambda place: messages[place].role == "tool", range(index + 1, len(messages))))
    for call in calls:
        if call.source not in following:
            change = f"result of call {call.part.tool_call_id!r}"
            notes.append(RepairNote(call.source, "moved", change, "results must directly follow their calls"))
    places = [_place_of_result(call, messages) for call in calls]
    if places != sorted(places):
        notes.append(RepairNote(index, "moved", "results", "they must be in the order of their calls"))


# -- content


def _with_content(turns: list[_Turn], rules: HistoryRules, carries: Carries, notes: list[RepairNote]) -> list[_Turn]:
    """The messages without blank text where that is refused, without trailing reasoning, and without empty messages."""
    complete: list[_Turn] = []  # from last to first, because what follows reasoning decides about it
    for index, message in reversed(turns):
        is_continued = rules.merge_same_role and bool(complete) and complete[-1][1].role == message.role == "assistant"
        content = _Content(message, rules, carries)
        parts = content.sendable_parts(index, notes, is_continued)
        if not any(content.has_content(part) or (is_continued and content.is_reasoning(part)) for part in parts):
            notes.append(RepairNote(index, "dropped", f"{message.role} message", "it has no content"))
        elif _same_parts(parts, message.parts):
            complete.append((index, message))
        else:
            complete.append((index, replace(message, parts=parts)))
    complete.reverse()
    return complete


class _Content:
    """The parts of one message that can be sent."""

    def __init__(self, message: Message, rules: HistoryRules, carries: Carries) -> None:
        self._message = message
        self._rules = rules
        self._carries = carries

    def sendable_parts(self, index: int, notes: list[RepairNote], is_continued: bool) -> tuple[Part, ...]:
        """The parts that are accepted, each dropped one in the notes."""
        message, rules = self._message, self._rules
        places = [place for place, part in enumerate(message.parts) if self.has_content(part)]
        may_end = is_continued or message.role != "assistant" or (rules.allows_trailing_reasoning and places)
        last = len(message.parts) if may_end else max(places, default=-1)
        parts: list[Part] = []
        for place, part in enumerate(message.parts):
            path = f".parts[{place}]"
            if place > last and self.is_reasoning(part):
                notes.append(RepairNote(index, "dropped", "thinking", "no text or call follows it", path))
            elif not rules.allows_empty_text and self._is_refused(part):
                notes.append(RepairNote(index, "dropped", _blank(part), "blank text is not accepted", path))
            else:
                parts.append(part if rules.allows_empty_text else self._without_blanks(part, index, path, notes))
        return tuple(parts)

    def _without_blanks(self, part: Part, index: int, path: str, notes: list[RepairNote]) -> Part:
        if not isinstance(part, ToolResult) or not isinstance(part.content, tuple):
            return part
        blanks = [place for place, piece in enumerate(part.content) if _is_blank(piece) and not self._carries(piece)]
        for place in blanks:
            where = f"{path}.content[{place}]"
            notes.append(RepairNote(index, "dropped", _blank(part.content[place]), "blank text is not accepted", where))
        if not blanks:
            return part
        return replace(part, content=tuple(piece for place, piece in enumerate(part.content) if place not in blanks))

    def has_content(self, part: Part) -> bool:
        match part:
            case Text():
                return not part.ignored and not self._is_refused(part)
            case Thinking():
                return not part.ignored and self._carries(part)
            case ToolCall() | ToolResult() | Image() | FileRef():
                return True
            case _:
                assert_never(part)

    def is_reasoning(self, part: Part) -> bool:
        return isinstance(part, Thinking) and not part.ignored and not self._carries(part)

    def _is_refused(self, part: Part) -> bool:
        """Whether a part is text without content. Where it is accepted, a message of it alone is not."""
        is_signed = self._rules.allows_signed_empty_text and self._message.role == "assistant"
        return _is_blank(part) and not (is_signed and part.continuation is not None) and not self._carries(part)


def _blank(part: Part) -> str:
    return "blank text" if part.continuation is None else f"blank text with data of {part.continuation.provider}"


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.ignored and not part.text.strip()


def _same_parts(parts: Sequence[Part], originals: Sequence[Part]) -> bool:
    return len(parts) == len(originals) and all(map(is_, parts, originals))


# -- the order of roles


def _merged(turns: list[_Turn], notes: list[RepairNote]) -> list[_Turn]:
    merged: list[_Turn] = []
    for index, message in turns:
        if merged and merged[-1][1].role == message.role != "system":
            merged[-1] = (merged[-1][0], _merge(merged[-1][1], message))
            notes.append(RepairNote(index, "merged", f"{message.role} message", "it follows another of the same role"))
        else:
            merged.append((index, message))
    return merged


def _merge(first: Message, second: Message) -> Message:
    metas = [message.meta for message in (first, second) if message.meta is not None]
    if not metas:
        return replace(first, parts=first.parts + second.parts)
    # The finish reason is that of the last message. `open_calls` have been dropped, and their ids may belong to other
    # calls now.
    bad_args = {call_id: why for meta in metas for call_id, why in (meta.bad_args or {}).items()}
    meta = replace(metas[-1], bad_args=bad_args or None, open_calls=None)
    return replace(first, parts=first.parts + second.parts, meta=meta)


def _with_missing_turns(
    turns: list[_Turn], rules: HistoryRules, beginning: KnownCalls, carries: Carries, notes: list[RepairNote]
) -> list[_Turn]:
    """The history with the turns added that a provider requires.

    System messages do not count as the start or end of a history: most formats have another place for them.
    """
    complete: list[_Turn] = []

    def add(index: int, role: Role, text: str, why: str) -> None:
        complete.append((index, Message(role, (Text(text, synthetic=True),))))
        notes.append(RepairNote(index, "added", f"{role} text {text!r}", why))

    for index, message in turns:
        is_start = beginning.last_role is None and all(earlier.role == "system" for _, earlier in complete)
        is_first = is_start and message.role != "system"
        if is_first and message.role != "user" and rules.starts_with_user:
            add(index, "user", START_PROMPT, "a conversation must start with the user")
        is_next = bool(complete) and complete[-1][1].role == "tool" and message.role in ("user", "system")
        if is_next and not rules.allows_user_after_tool:
            add(index, "assistant", RESULTS_RECEIVED, "the assistant must answer tool results first")
        complete.append((index, message))
    dialogue = [message for _, message in complete if message.role != "system"]
    end = turns[-1][0] if turns else 0
    if beginning.last_role is not None and not dialogue:
        raise PrefixChanged
    if not dialogue and (rules.starts_with_user or not complete or not rules.allows_assistant_last):
        add(end, "user", START_PROMPT, "the conversation has no messages")
    elif dialogue and dialogue[-1].role == "assistant" and not _may_be_last(dialogue[-1], rules, carries):
        add(end, "user", CONTINUE_PROMPT, "a conversation must not end with the assistant")
    return complete


def _may_be_last(answer: Message, rules: HistoryRules, carries: Carries) -> bool:
    is_paused = answer.meta is not None and answer.meta.finish_reason == "pause"
    is_providers = any(call.executed_by == "provider" for call in answer.tool_calls) or carries(answer.parts[-1])
    return rules.allows_assistant_last or (rules.allows_paused_last and is_paused and is_providers)
