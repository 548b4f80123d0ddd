"""`ShownStep`: what a client displays of the answer in progress, and the changes that turn it into the stored answer.

Deltas extend it. A snapshot or the stored answer is compared with it: what is missing is added, a call that was cut off
is dropped, and if they contradict each other the step is voided and shown again.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Literal

from bartack.display.changes import (
    CallDropped,
    CallEnded,
    CallGrew,
    CallReady,
    CallStarted,
    Change,
    Subagent,
    TextEnded,
    TextGrew,
    TextKind,
    TextStarted,
)
from bartack.nouns.deltas import MessageDelta, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallEnd, ToolCallStart
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.stream.assembler import parse_arguments

__all__ = ["ShownCall", "ShownKeys", "ShownStep", "given_id"]

# The real result of a sub-agent's call is only in the session of the sub-agent.
NESTED = "The sub-agent has continued."
CUT_OFF = "Not executed: the call was cut off."
# The name in the metadata of a call for the id that the model gave it, if that was taken.
_PROVIDER_ID = "providerToolCallId"


def given_id(call: ToolCall) -> str:
    """The id that the model gave a call."""
    return str((call.metadata or {}).get(_PROVIDER_ID, call.tool_call_id))


class ShownKeys:
    """The keys of one stream. `taken_keys` are those of calls that the client shows from an earlier stream."""

    def __init__(self, taken_keys: Iterable[str] = ()) -> None:
        self._texts = 0
        self._calls: set[str] = set()
        self._taken = frozenset(taken_keys)
        self.are_known = False  # the calls that get keys are among those in the client

    def for_text(self) -> str:
        """A new key for a text."""
        self._texts += 1
        return f"t{self._texts}"

    def for_call(self, call_id: str) -> str:
        """The id of a call, or a variant of it if it is taken."""
        key = self._variant(call_id, self._calls if self.are_known else self._calls | self._taken)
        self._calls.add(key)
        return key

    def for_stored(self, call: ToolCall) -> str:
        """The key of a stored call. One that was shown before it was stored has a variant of the model's id for it."""
        if not self.are_known:
            return self.for_call(call.tool_call_id)
        live_key = self._variant(given_id(call), self._calls)
        was_live = live_key in self._taken and call.tool_call_id not in self._taken
        key = live_key if was_live else call.tool_call_id
        self._calls.add(key)
        return key

    def _variant(self, call_id: str, used: Set[str]) -> str:
        key, number = call_id, 1
        while key in used:
            number += 1
            key = f"{call_id}~{number}"
        return key

    def free(self, key: str) -> None:
        """The call is no longer shown."""
        self._calls.discard(key)


class _ShownText:
    def __init__(self, key: str, kind: TextKind) -> None:
        self.key, self.kind = key, kind
        self.pieces: list[str] = []
        self.is_open = True

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def can_become(self, part: Part) -> bool:
        if not isinstance(part, Text if self.kind == "text" else Thinking):
            return False
        return part.text.startswith(self.text) if self.is_open else part.text == self.text


class ShownCall:
    """A call as it is shown."""

    def __init__(self, key: str, call_id: str, tool_name: str, by_provider: bool) -> None:
        self.key, self.call_id, self.tool_name, self.by_provider = key, call_id, tool_name, by_provider
        self.pieces: list[str] = []
        self.arguments: dict[str, Any] | None = None  # None as long as they are incomplete
        self.raw_text: str | None = None  # None if they are valid
        self.started_at: datetime | None = None
        self.question: ApprovalRequired | None = None
        self.is_undecided = False  # the question has no answer
        self.is_denied = False
        self.is_deferred = False  # it has started, and its result will be posted
        self.subagent: Subagent | None = None
        self.outer: ShownCall | None = None  # the call that runs the sub-agent, if one made this call
        self.nested: dict[str, ShownCall] = {}  # calls of its sub-agent that await a decision or a result, by id
        self.is_paused = False  # the sub-agent waits for them
        self.has_ended = False

    @property
    def is_ready(self) -> bool:
        return self.arguments is not None

    def can_become(self, part: Part) -> bool:
        if not isinstance(part, ToolCall) or part.tool_name != self.tool_name:
            return False
        if self.call_id not in (part.tool_call_id, (part.metadata or {}).get(_PROVIDER_ID)):
            return False
        if self.arguments is not None:
            return (self.arguments, self.raw_text) == (part.arguments, part.raw_args_text)
        return part.raw_args_text is None or part.raw_args_text.startswith("".join(self.pieces))

    @property
    def is_waiting(self) -> bool:
        is_paused = self.is_paused and all(call.is_waiting for call in self.nested.values())
        return self.is_undecided or self.is_deferred or is_paused

    def end(self, result: ToolResult, stored_at: datetime | None = None) -> Iterator[Change]:
        """The call has a result."""
        yield from self.end_nested()
        if not self.has_ended:
            self.has_ended = True
            started_at = self.started_at or (result.time and result.time.start) or stored_at
            yield CallEnded(
                self.key,
                self.tool_name,
                result=result,
                arguments=self.arguments or {},
                seconds=_seconds(result.time or Span(), started_at, stored_at),
                was_asked=self.question is not None,
                by_provider=self.by_provider,
                is_nested=self.outer is not None,
            )

    def end_nested(self, waiting: Container[str] = ()) -> Iterator[Change]:
        """The sub-agent has continued with its calls, except those that are still waiting."""
        for call_id in [call_id for call_id in self.nested if call_id not in waiting]:
            call = self.nested.pop(call_id)
            denied = ToolResult(call_id, "The call was denied.", is_error=True, error_code=ErrorCode.TOOL_DENIED)
            yield from call.end(denied if call.is_denied else ToolResult(call_id, NESTED))


class ShownStep:
    """The parts of one step, in order."""

    def __init__(self, keys: ShownKeys) -> None:
        self._keys = keys
        self._parts: list[_ShownText | ShownCall] = []
        self._text: _ShownText | None = None  # the one that grows
        self.calls: dict[str, ShownCall] = {}  # keyed by the ids in the deltas, and once stored by those in the answer

    # -- growing

    def extend(self, stamped: MessageDelta) -> Iterator[Change]:
        """Add a delta."""
        delta = stamped.delta
        match delta:
            case TextDelta() | ThinkingDelta():
                kind: TextKind = "text" if isinstance(delta, TextDelta) else "thinking"
                if self._text is None or self._text.kind != kind or delta.new_part:
                    yield from self._start_text(kind)
                if delta.text_delta:
                    yield self._grow_text(delta.text_delta)
            case ToolCallStart():
                key = self._keys.for_call(delta.tool_call_id)
                yield from self._start_call(key, delta.tool_call_id, delta.tool_name, delta.executed_by)
            case ToolCallArgs():
                if delta.args_text_delta:
                    yield self._grow_call(self.calls[delta.tool_call_id], delta.args_text_delta)
            case ToolCallEnd():
                call = self.calls[delta.tool_call_id]
                yield self._end_arguments(call)
                if delta.result is not None:
                    result = ToolResult(call.call_id, delta.result, is_error=delta.result_is_error)
                    yield from call.end(result)
            case _:
                pass

    def _start_text(self, kind: TextKind) -> Iterator[Change]:
        yield from self._end_text()
        self._text = _ShownText(self._keys.for_text(), kind)
        self._parts.append(self._text)
        yield TextStarted(self._text.key, kind)

    def _grow_text(self, text: str) -> TextGrew:
        assert self._text is not None
        self._text.pieces.append(text)
        return TextGrew(self._text.key, self._text.kind, text)

    def _end_text(self) -> Iterator[Change]:
        text, self._text = self._text, None
        if text is not None:
            text.is_open = False
            yield TextEnded(text.key, text.kind)

    def _start_call(
        self, key: str, call_id: str, tool_name: str, executed_by: Literal["client", "provider"]
    ) -> Iterator[Change]:
        yield from self._end_text()
        call = ShownCall(key, call_id, tool_name, executed_by == "provider")
        self._parts.append(call)
        self.calls[call_id] = call
        yield CallStarted(call.key, tool_name, call.by_provider)

    def _grow_call(self, call: ShownCall, text: str) -> CallGrew:
        call.pieces.append(text)
        return CallGrew(call.key, call.tool_name, text)

    def _end_arguments(self, call: ShownCall) -> CallReady:
        text = "".join(call.pieces)
        try:
            return self._ready(call, parse_arguments(text))
        except PartValidationError as error:
            return self._ready(call, {}, raw_text=text, fault=str(error))

    def _ready(
        self,
        call: ShownCall,
        arguments: dict[str, Any],
        *,
        raw_text: str | None = None,
        fault: str | None = None,
        is_whole: bool = True,
    ) -> CallReady:
        call.arguments, call.raw_text = arguments, raw_text
        return CallReady(
            call.key,
            call.tool_name,
            arguments=arguments,
            by_provider=call.by_provider,
            raw_text=raw_text,
            fault=fault,
            is_whole=is_whole,
        )

    # -- comparing

    def can_become(self, parts: Sequence[Part], *, is_final: bool) -> bool:
        """Whether adding to what is shown, and dropping calls that were cut off, can make it equal to these parts."""
        missing = list(reversed(parts))
        for own in self._parts:
            if missing and own.can_become(missing[-1]):
                missing.pop()
            elif not (is_final and isinstance(own, ShownCall) and not own.is_ready):
                return False
        return True

    def become(
        self, parts: Sequence[Part], *, bad_args: Mapping[str, str], open_calls: Sequence[str], is_final: bool
    ) -> Iterator[Change]:
        """Make what is shown equal to these parts, as far as `can_become` allows."""
        missing = list(reversed(parts))
        for own in self._parts.copy():
            if missing and own.can_become(missing[-1]):
                yield from self._complete(own, missing.pop(), bad_args, open_calls)
            else:
                assert isinstance(own, ShownCall)
                yield CallDropped(own.key, own.tool_name, CUT_OFF)
        for part in reversed(missing):
            if isinstance(part, Text | Thinking):
                yield from self._start_text("text" if isinstance(part, Text) else "thinking")
            else:
                assert isinstance(part, ToolCall)
                key = self._keys.for_stored(part)
                yield from self._start_call(key, part.tool_call_id, part.tool_name, part.executed_by)
            yield from self._complete(self._parts[-1], part, bad_args, open_calls)
        if is_final:
            yield from self._end_text()

    def _complete(
        self, own: _ShownText | ShownCall, part: Part, bad_args: Mapping[str, str], open_calls: Sequence[str]
    ) -> Iterator[Change]:
        if isinstance(own, ShownCall):
            assert isinstance(part, ToolCall)
            yield from self._complete_call(own, part, bad_args.get(part.tool_call_id), open_calls)
        else:
            assert isinstance(part, Text | Thinking)
            addition = part.text[len(own.text) :]
            if addition:
                yield self._grow_text(addition)

    def _complete_call(
        self, own: ShownCall, call: ToolCall, fault: str | None, open_calls: Sequence[str]
    ) -> Iterator[Change]:
        self.calls[call.tool_call_id] = own
        if not own.is_ready:
            so_far = "".join(own.pieces)
            text = call.raw_args_text if call.raw_args_text is not None else _written_like(so_far, call.arguments)
            is_whole = text.startswith(so_far)
            if is_whole and len(text) > len(so_far):
                yield self._grow_call(own, text[len(so_far) :])
            if call.tool_call_id in open_calls:
                return
            yield self._ready(own, call.arguments, raw_text=call.raw_args_text, fault=fault, is_whole=is_whole)
        if call.result is not None:
            yield from own.end(call.result)

    # -- ending without an answer

    def void(self) -> None:
        """The client no longer shows any of this, so the ids of its calls can be used again."""
        for part in self._parts:
            if isinstance(part, ShownCall):
                self._keys.free(part.key)

    def give_up(self, reason: str) -> Iterator[Change]:
        """End what is open. The answer was never completed, so none of its calls ran."""
        yield from self._end_text()
        for part in self._parts:
            if isinstance(part, ShownCall) and not part.has_ended:
                yield CallDropped(part.key, part.tool_name, reason)


def _written_like(prefix: str, arguments: dict[str, Any]) -> str:
    """The arguments as JSON text that continues the prefix, if one of the usual ways of writing them does."""
    compact = json_text(arguments)
    if not compact.startswith(prefix):
        for separators in ((", ", ": "), (",", ":")):
            for ensure_ascii in (False, True):
                text = json.dumps(arguments, separators=separators, ensure_ascii=ensure_ascii)
                if text.startswith(prefix):
                    return text
    return compact


def _seconds(measured: Span, started_at: datetime | None, stored_at: datetime | None) -> float | None:
    """How long a call took: as it was measured or, for a result without that, between two entries. The clock may have
    been set back between them.
    """
    start, end = measured.start or started_at, measured.end or stored_at
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)
