"""Any history to one that a provider accepts.

A stored history records what happened: processes are killed between a call and its result, users write in between,
models and providers are switched. Providers refuse such a history, in this request and in every later one. `repair`
returns the closest history that they accept; the stored one is never changed. `bartack.formats.history_rules` has what
providers require.

The result depends only on the messages. Messages after a call do not change the id made for it, so a growing history
keeps its prefix, and prompt caches hit.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from operator import is_
from typing import Literal, assert_never

from msgspec.structs import replace

from bartack.formats.history_rules import STRICTEST, HistoryRules
from bartack.formats.trail import PrefixChanged
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, Role
from bartack.nouns.noun import Noun
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = [
    "CONTINUE_PROMPT",
    "INTERRUPTED",
    "RESULTS_RECEIVED",
    "START_PROMPT",
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
START_PROMPT = "Please begin."  # from the user, before a greeting of the assistant or after instructions alone
CONTINUE_PROMPT = "Please continue."  # from the user, after an answer
RESULTS_RECEIVED = "I have received the results."  # from the assistant, between tool results and a user message


class RepairNote(Noun, frozen=True):
    """One change: at which of the original messages, what was changed, and why."""

    index: int
    action: Literal["added", "dropped", "merged", "moved", "renamed"]
    what: str
    why: str


class Repaired(Noun, frozen=True):
    """An accepted history, and how it differs from the original."""

    messages: tuple[Message, ...]
    notes: tuple[RepairNote, ...] = ()


_Turn = tuple[int, Message]  # a message, and the index of the original that it is or replaces


def repair(messages: Sequence[Message], rules: HistoryRules = STRICTEST) -> Repaired:
    """The closest history that a provider with these rules accepts; a valid one is returned unchanged.

    Never raises. Repairing the result again changes nothing. No text of the user or the assistant is lost except blank
    text, and no first result of a call that is kept.
    """
    repaired = repair_rest(messages, rules)
    return Repaired(tuple(message for _, message in repaired.turns), repaired.notes)


# -- the rest of a history whose beginning is known

# Between messages of these roles, what comes before does not depend on what comes after, except for late results.
_CUTS = frozenset({("assistant", "user"), ("tool", "assistant")})


@dataclass(eq=False)
class KnownCalls:
    """What the calls of a repaired beginning mean for the rest."""

    ids: set[str] = field(default_factory=set)
    sent_ids: set[str] = field(default_factory=set)
    open_ids: set[str] = field(default_factory=set)  # of calls without a result
    last_role: Role | None = None  # of the beginning; None if there is none


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
        index, made = next(calls, (None, []))
        latest = -1  # of the messages that the turns so far and the results of their calls come from
        for place in range(1, len(self.turns)):
            (before, last), (at, first) = self.turns[place - 1 : place + 1]
            latest = max(latest, before)
            while index is not None and index < at:
                latest = max(latest, *(call.source for call in made))
                index, made = next(calls, (None, []))
            is_original = first.role == self._messages[at].role
            if is_original and latest < at and (last.role, first.role) in _CUTS:
                yield place, at

    def calls_before(self, index: int) -> KnownCalls:
        """What is known about calls after this cut. Changes and returns what was known before."""
        known = self._known
        for at in takewhile(lambda at: at < index, sorted(self._calls)):
            for call in self._calls[at]:
                known.ids.add(call.part.tool_call_id)
                if not call.is_incomplete:
                    known.sent_ids.add(call.sent_id)
                if call.part.executed_by == "client" and call.result is None:
                    known.open_ids.add(call.part.tool_call_id)
        return known

    def call_ids(self) -> frozenset[str]:
        """The ids of all calls of the history, including its beginning."""
        return frozenset(
            self._known.ids.union(call.part.tool_call_id for calls in self._calls.values() for call in calls)
        )


def repair_rest(messages: Sequence[Message], rules: HistoryRules, known: KnownCalls | None = None) -> RepairedRest:
    """What `repair` makes of these messages after a beginning that was cut off at one of its `cuts`.

    Raises `PrefixChanged` if the beginning may have to be repaired differently.
    """
    known = known or KnownCalls()
    notes: list[RepairNote] = []
    calls = _matched(messages, rules, known, notes)
    turns = _with_results(messages, calls, notes)
    turns = _with_content(turns, rules, notes)
    if rules.merge_same_role:
        turns = _merged(turns, notes)
    turns = _with_missing_turns(turns, rules, known, notes)
    if known.last_role is not None:
        index, first = turns[0]
        if index or first.role != messages[0].role or (known.last_role, first.role) not in _CUTS:
            raise PrefixChanged
    return RepairedRest(turns, tuple(sorted(notes, key=lambda note: note.index)), messages, calls, known)


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


def _with_results(messages: Sequence[Message], calls: dict[int, list[_Call]], notes: list[RepairNote]) -> list[_Turn]:
    """Every call followed by its one result, with unique and accepted ids."""
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        if index in calls:
            turns.append((index, _with_sent_calls(index, message, calls[index], notes)))
            turns += _results(index, messages, [call for call in calls[index] if call.awaits_result], notes)
        elif message.role != "tool":
            turns.append((index, message))
        elif not message.parts:
            notes.append(RepairNote(index, "dropped", "tool message", "it has no result"))
    return turns


def _matched(
    messages: Sequence[Message], rules: HistoryRules, known: KnownCalls, notes: list[RepairNote]
) -> dict[int, list[_Call]]:
    """The calls of each message. A result belongs to the last call before it that has its id and no result yet."""
    calls: dict[int, list[_Call]] = {}
    waiting: dict[str, list[_Call]] = {}
    sent_ids = _Ids(known.sent_ids)
    for index, message in enumerate(messages):
        incomplete = (message.meta and message.meta.open_calls) or ()
        for part in message.tool_calls:
            call = _Call(part, part.tool_call_id, part.tool_name, part.tool_call_id in incomplete)
            if not call.is_incomplete:
                if call.awaits_result and not rules.accepts_name(part.tool_name):
                    call.sent_name = rules.fitting_name(part.tool_name)
                    what = f"tool {part.tool_name!r} to {call.sent_name!r}"
                    notes.append(RepairNote(index, "renamed", what, "the name is not accepted"))
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
            elif result.tool_call_id in known.open_ids:
                raise PrefixChanged
            else:
                is_known = candidates is not None or result.tool_call_id in known.ids
                why = "its call needs no further result" if is_known else "no earlier call has this id"
                notes.append(RepairNote(index, "dropped", f"result of call {result.tool_call_id!r}", why))
    return calls


def made_id(original: str, attempt: int) -> str:
    """Nine letters and digits: Mistral requires this, and all other providers accept it."""
    return hashlib.sha256(f"{attempt} {original}".encode("utf-8", "surrogatepass")).hexdigest()[:9]


class _Ids:
    """A set of ids on top of one that is not to be changed."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
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
    made = (made_id(original, attempt) for attempt in count())
    return next(candidate for candidate in made if candidate not in sent_ids)


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
    sent = {key: call.sent_id for key, call in by_id.items() if not call.is_incomplete}
    bad_args = {sent[key]: why for key, why in (meta.bad_args or {}).items() if key in sent}
    return replace(meta, open_calls=None, bad_args=bad_args or None)


def _results(index: int, messages: Sequence[Message], calls: list[_Call], notes: list[RepairNote]) -> Iterator[_Turn]:
    """The results of one message's calls: the original messages if they hold no other results, else a new one."""
    answered = [call for call in calls if call.result is not None]
    for call in calls:
        if call.result is None:
            what = f"error result for call {call.part.tool_call_id!r}"
            notes.append(RepairNote(index, "added", what, "it has no result"))
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


def _note_moves(index: int, messages: Sequence[Message], calls: list[_Call], notes: list[RepairNote]) -> None:
    following = set(takewhile(lambda place: messages[place].role == "tool", range(index + 1, len(messages))))
    for call in calls:
        if call.source not in following:
            what = f"result of call {call.part.tool_call_id!r}"
            notes.append(RepairNote(call.source, "moved", what, "results must directly follow their calls"))
    places = [(call.source, messages[call.source].parts.index(call.result)) for call in calls if call.result]
    if places != sorted(places):
        notes.append(RepairNote(index, "moved", "results", "they must be in the order of their calls"))


# -- content


def _with_content(turns: list[_Turn], rules: HistoryRules, notes: list[RepairNote]) -> list[_Turn]:
    """The messages without blank text where that is refused, without trailing reasoning, and without empty messages."""
    kept: list[_Turn] = []  # from last to first, because what follows reasoning decides about it
    for index, message in reversed(turns):
        is_continued = rules.merge_same_role and bool(kept) and kept[-1][1].role == message.role == "assistant"
        parts = _sendable_parts(message, is_continued, rules)
        if not any(_has_content(part, message.role, rules) or (is_continued and _is_reasoning(part)) for part in parts):
            notes.append(RepairNote(index, "dropped", f"{message.role} message", "it has no content"))
        elif _same_parts(parts, message.parts):
            kept.append((index, message))
        else:
            kept.append((index, replace(message, parts=parts)))
            notes.append(RepairNote(index, "dropped", "blank text or trailing reasoning", "it is not accepted"))
    kept.reverse()
    return kept


def _sendable_parts(message: Message, is_continued: bool, rules: HistoryRules) -> tuple[Part, ...]:
    places = [place for place, part in enumerate(message.parts) if _has_content(part, message.role, rules)]
    last = len(message.parts) if is_continued or message.role != "assistant" else max(places, default=-1)
    parts = [part for place, part in enumerate(message.parts) if place < last or not _is_reasoning(part)]
    if rules.allows_empty_text:
        return tuple(parts)
    return tuple(
        _without_blanks(part) for part in parts if not _is_blank(part) or _is_signed(part, message.role, rules)
    )


def _without_blanks(part: Part) -> Part:
    if not isinstance(part, ToolResult) or not isinstance(part.content, tuple):
        return part
    content = tuple(piece for piece in part.content if not _is_blank(piece))
    return part if len(content) == len(part.content) else replace(part, content=content)


def _has_content(part: Part, role: Role, rules: HistoryRules) -> bool:
    match part:
        case Text():
            return not part.ignored and (not _is_blank(part) or _is_signed(part, role, rules))
        case Thinking():
            return False
        case ToolCall() | ToolResult() | Image() | FileRef():
            return True
        case _:
            assert_never(part)


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.ignored and not part.text.strip()


def _is_signed(part: Part, role: Role, rules: HistoryRules) -> bool:
    return rules.allows_signed_empty_text and role == "assistant" and part.continuation is not None


def _is_reasoning(part: Part) -> bool:
    return isinstance(part, Thinking) and not part.ignored


def _same_parts(new: Sequence[Part], old: Sequence[Part]) -> bool:
    return len(new) == len(old) and all(map(is_, new, old))


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
    turns: list[_Turn], rules: HistoryRules, known: KnownCalls, notes: list[RepairNote]
) -> list[_Turn]:
    """The history with the turns added that a provider requires.

    System messages do not count as the start or end of a history: most formats have another place for them.
    """
    complete: list[_Turn] = []

    def add(index: int, role: Role, text: str, why: str) -> None:
        complete.append((index, Message(role, (Text(text, synthetic=True),))))
        notes.append(RepairNote(index, "added", f"{role} text {text!r}", why))

    for index, message in turns:
        is_start = known.last_role is None and all(earlier.role == "system" for _, earlier in complete)
        is_first = is_start and message.role != "system"
        if is_first and message.role != "user" and rules.starts_with_user:
            add(index, "user", START_PROMPT, "a conversation must start with the user")
        is_next = bool(complete) and complete[-1][1].role == "tool" and message.role in ("user", "system")
        if is_next and not rules.allows_user_after_tool:
            add(index, "assistant", RESULTS_RECEIVED, "the assistant must answer tool results first")
        complete.append((index, message))
    dialogue = [message for _, message in complete if message.role != "system"]
    end = turns[-1][0] if turns else 0
    if known.last_role is not None and not dialogue:
        raise PrefixChanged
    if not dialogue and (rules.starts_with_user or not complete or not rules.allows_assistant_last):
        add(end, "user", START_PROMPT, "the conversation has no messages")
    elif dialogue and dialogue[-1].role == "assistant" and not _may_be_last(dialogue[-1], rules):
        add(end, "user", CONTINUE_PROMPT, "a conversation must not end with the assistant")
    return complete


def _may_be_last(answer: Message, rules: HistoryRules) -> bool:
    is_paused = answer.meta is not None and answer.meta.finish_reason == "pause"
    is_providers = any(call.executed_by == "provider" for call in answer.tool_calls)
    return rules.allows_assistant_last or (rules.allows_paused_last and is_paused and is_providers)
