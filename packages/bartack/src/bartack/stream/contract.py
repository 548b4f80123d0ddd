"""`Contract`: the streaming contract, enforced delta by delta (000 §5-6, 001 §5.2).

A `Contract` follows one stream. It raises `StreamError`, with the id of the violated rule, for the first delta that is
not allowed; a rejected delta changes nothing. Both the assembler and the guard around models use it, so the rules are
in one place.

The tables ASSEMBLY and CALL define which kinds are allowed when. The rest is here: `seq` increases, a call is opened
once and closed before the end, text is valid, and sizes are limited.

Decoders have neither a run nor a clock. The code that reads a stream stamps its deltas with `DeltaStamper`, and only
there: it turns bare deltas into the `MessageDelta` values of one stream.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, get_args

from msgspec.structs import replace

from bartack.nouns.deltas import (
    TOKEN_COUNTS,
    Delta,
    Done,
    Failed,
    FinishReason,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode, InvalidStateTransition, PartValidationError, StreamError
from bartack.nouns.noun import Noun
from bartack.nouns.requests import RequestMetadata
from bartack.nouns.tables import ASSEMBLY, CALL, AssemblyStatus, CallStatus, advance
from bartack.nouns.wire import dump, load

__all__ = ["Contract", "DeltaStamper", "StreamLimits"]

_FINISH_REASONS = frozenset(get_args(FinishReason))


class StreamLimits(Noun, frozen=True, kw_only=True):
    """Size limits of one stream: far above what providers send, far below what exhausts memory."""

    max_chars: int = 8 * 1024 * 1024  # text, thinking and arguments together; each delta counts as one more
    max_args_chars: int = 1024 * 1024  # the limit for one tool call


class Contract:
    """Checks the deltas of one stream."""

    def __init__(self, run_id: str | None = None, limits: StreamLimits | None = None) -> None:
        limits = limits or StreamLimits()
        self.run_id = run_id
        self.status = AssemblyStatus.IDLE
        self.ended = False  # true after `done` or `error`
        self.last_seq = -1
        self._checks = _ALLOWED[self.status]
        self._limits = limits
        self._room = limits.max_chars  # characters left; a delta uses one more than its text
        self._calls: dict[str, CallStatus] = {}
        self._args_room: dict[str, int] = {}  # what each open call may still receive, except for the selected one
        self._args_id: str | None = None  # the selected call: the one that arguments arrived for last
        self._args_left = 0  # its room
        self._provider_calls: set[str] = set()
        # The stamps checked last. Most deltas have the same objects, which need not be checked again.
        self._run_seen: str | None = None
        self._time_seen: datetime | None = None

    def admit(self, stamped: MessageDelta) -> None:
        """Accept the next delta, or raise `StreamError` and change nothing."""
        if type(stamped) is not MessageDelta:
            raise StreamError(f"expected a MessageDelta, got {type(stamped).__name__}", rule="000-4.1")
        seq, delta = stamped.seq, stamped.delta
        if stamped.timestamp is not self._time_seen or stamped.run_id is not self._run_seen:
            self._check_stamps(stamped)
        if type(seq) is not int or seq <= self.last_seq:
            raise StreamError(f"seq must increase: got {seq!r} after {self.last_seq}", rule="000-5.3")
        try:
            check = self._checks[type(delta)]
        except KeyError:
            raise self._out_of_place_error(delta) from None
        check(self, delta)
        self.last_seq = seq

    def admit_bare(self, deltas: Sequence[Delta]) -> tuple[Sequence[Delta], StreamError | None]:
        """The deltas that are allowed next, and why the one after them is not, if there is one.

        For deltas that `DeltaStamper` stamps afterwards: its stamps need no checks, and `last_seq` remains as it is.
        """
        for index, delta in enumerate(deltas):
            try:
                check = self._checks.get(type(delta))
                if check is None:
                    raise self._out_of_place_error(delta)
                check(self, delta)
            except StreamError as error:
                return deltas[:index], error
        return deltas, None

    def _check_stamps(self, stamped: MessageDelta) -> None:
        run_id, time = stamped.run_id, stamped.timestamp
        _require_text(run_id, "runId", "000-4.1")
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise StreamError(f"timestamp must be a time with a time zone, got {time!r}", rule="000-4.1")
        if self.run_id is not None and run_id != self.run_id:
            raise StreamError(f"expected a delta of run {self.run_id!r}, got one of run {run_id!r}", rule="001-4.2.2")
        self._run_seen, self._time_seen = run_id, time

    def _too_large_error(self) -> StreamError:
        limits = self._limits
        return StreamError(
            f"the stream exceeds {limits.max_chars:,} characters, or {limits.max_args_chars:,} in one call's arguments",
            rule="D-3.11.2",
            code=ErrorCode.STREAM_TOO_LARGE,
        )

    def _enter(self, delta: Delta) -> None:
        self.status = advance(ASSEMBLY, self.status, delta.kind)
        self.ended = self.status in (AssemblyStatus.DONE, AssemblyStatus.ERROR)
        self._checks = _ALLOWED[self.status]

    def _out_of_place_error(self, delta: Delta) -> StreamError:
        if type(delta) not in _CHECKS:
            return StreamError(f"{type(delta).__name__} is not a kind of delta", rule="000-4.2")
        kind = delta.kind
        if self.status is AssemblyStatus.IDLE:
            return StreamError(f"{kind} before start", rule="000-5.1")
        if self.status is AssemblyStatus.STARTED:
            return StreamError("second start in one stream", rule="001-8.3")
        rule = "000-5.2" if kind in ("done", "error") else "D-3.1"
        return StreamError(f"{kind} after the end of the stream", rule=rule)

    # -- one check for each kind of delta

    def _start(self, delta: Start) -> None:
        _require_payload(delta)
        self._enter(delta)

    def _text(self, delta: TextDelta | ThinkingDelta) -> None:
        text = delta.text_delta
        if type(text) is not str or not text.isascii():
            _require_text(text, "textDelta", _PAYLOAD_RULES[delta.kind])
        if delta.continuation is not None:
            _require_payload(delta)
        room = self._room - len(text) - 1
        if room < 0:
            raise self._too_large_error()
        self._room = room

    def _call_start(self, delta: ToolCallStart) -> None:
        _require_payload(delta)
        if not delta.tool_call_id:
            raise StreamError("tool call id must not be empty", rule="000-6.1")
        status = self._calls.get(delta.tool_call_id, CallStatus.ABSENT)
        if status is not CallStatus.ABSENT:
            raise StreamError(f"duplicate tool call id {delta.tool_call_id!r}", rule="D-3.8")
        if self._room < 1:
            raise self._too_large_error()
        self._room -= 1
        self._calls[delta.tool_call_id] = advance(CALL, status, delta.kind)
        self._args_room[delta.tool_call_id] = self._limits.max_args_chars
        if delta.executed_by == "provider":
            self._provider_calls.add(delta.tool_call_id)

    def _call_args(self, delta: ToolCallArgs) -> None:
        text = delta.args_text_delta
        if type(text) is not str or not text.isascii():
            _require_text(text, "argsTextDelta", _PAYLOAD_RULES[delta.kind])
        if delta.tool_call_id is not self._args_id:  # most pieces belong to the same call as the one before
            self._select_call(delta)
        size = len(text)
        room, args_left = self._room - size - 1, self._args_left - size
        if room < 0 or args_left < 0:
            raise self._too_large_error()
        self._room, self._args_left = room, args_left

    def _select_call(self, delta: ToolCallArgs) -> None:
        """Make this call the one whose room is `_args_left`."""
        call_id = delta.tool_call_id
        if type(call_id) is not str or call_id not in self._args_room:  # only an open call accepts arguments
            self._advance_call(delta, "000-5.5")
        if self._args_id is not None:
            self._args_room[self._args_id] = self._args_left
        self._args_id, self._args_left = call_id, self._args_room[call_id]

    def _call_end(self, delta: ToolCallEnd) -> None:
        _require_payload(delta)
        status = self._advance_call(delta, "001-5.2.5")
        if delta.result is not None and delta.tool_call_id not in self._provider_calls:
            raise StreamError(f"result for call {delta.tool_call_id!r}, which the client executes", rule="D-3.10")
        self._calls[delta.tool_call_id] = status
        del self._args_room[delta.tool_call_id]
        if delta.tool_call_id == self._args_id:
            self._args_id = None

    def _advance_call(self, delta: ToolCallArgs | ToolCallEnd, rule: str) -> CallStatus:
        if type(delta.tool_call_id) is not str:
            _require_text(delta.tool_call_id, "toolCallId", _PAYLOAD_RULES[delta.kind])
        status = self._calls.get(delta.tool_call_id, CallStatus.ABSENT)
        try:
            return advance(CALL, status, delta.kind)
        except InvalidStateTransition as error:
            raise StreamError(
                f"{delta.kind} for call {delta.tool_call_id!r}, whose status is {status}", rule=rule
            ) from error

    def _usage(self, delta: Usage) -> None:
        _require_payload(delta)
        for name in TOKEN_COUNTS:
            count = getattr(delta, name)
            if count is not None and count < 0:
                raise StreamError(f"{name} must not be negative, got {count}", rule="000-4.9")
        if self._room < 1:
            raise self._too_large_error()
        self._room -= 1

    def _done(self, delta: Done) -> None:
        if type(delta.finish_reason) is not str or delta.finish_reason not in _FINISH_REASONS:
            raise StreamError(f"unknown finish reason {delta.finish_reason!r}", rule="D-3.4.5")
        _require_payload(delta)
        still_open = [call_id for call_id, status in self._calls.items() if status is CallStatus.OPEN]
        if still_open:
            raise StreamError(f"done before the end of calls: {', '.join(still_open)}", rule="001-5.2.5")
        self._enter(delta)

    def _failed(self, delta: Failed) -> None:
        if not isinstance(delta.error_code, ErrorCode):
            raise StreamError(f"unknown error code {delta.error_code!r}", rule="000-4.11")
        _require_payload(delta)
        self._enter(delta)


_CHECKS: dict[type[Delta], Callable[[Contract, Any], None]] = {
    Start: Contract._start,
    TextDelta: Contract._text,
    ThinkingDelta: Contract._text,
    ToolCallStart: Contract._call_start,
    ToolCallArgs: Contract._call_args,
    ToolCallEnd: Contract._call_end,
    Usage: Contract._usage,
    Done: Contract._done,
    Failed: Contract._failed,
}


def _allowed(status: AssemblyStatus) -> dict[type[Delta], Callable[[Contract, Any], None]]:
    allowed = {}
    for cls, check in _CHECKS.items():
        try:
            advance(ASSEMBLY, status, cls.kind)
        except InvalidStateTransition:
            continue
        allowed[cls] = check
    return allowed


# The table, evaluated once for every kind: reading it for every delta would cost as much as the checks.
_ALLOWED = {status: _allowed(status) for status in AssemblyStatus}

_PAYLOAD_RULES = {
    "start": "000-4.3",
    "text": "000-4.4",
    "thinking": "000-4.5",
    "tool_call_start": "000-4.6",
    "tool_call_args": "000-4.7",
    "tool_call_end": "000-4.8",
    "usage": "000-4.9",
    "done": "000-4.10",
    "error": "000-4.11",
}


def _require_payload(delta: Delta) -> None:
    """Reject what could not be stored: a field of the wrong type, or free-form data that is not JSON."""
    try:
        load(Delta, dump(delta))
    except PartValidationError as error:
        raise StreamError(str(error), rule=_PAYLOAD_RULES[delta.kind]) from error


def _require_text(value: object, key: str, rule: str) -> None:
    if type(value) is not str:
        raise StreamError(f"{key} must be text, got {type(value).__name__}", rule=rule)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise StreamError(f"{key} contains an unpaired surrogate", rule=rule) from None


# -- stamps


class DeltaStamper:
    """Stamps the deltas of one stream with their run, an increasing number and the time."""

    def __init__(self, run_id: str, metadata: RequestMetadata | None = None, *, first_seq: int = 0) -> None:
        """`metadata` supplies the numbers of the model call and the attempt."""
        self._run_id = run_id
        self._seq = first_seq
        metadata = metadata or RequestMetadata()
        numbers = {"model_call_index": metadata.model_call_index, "attempt": metadata.attempt}
        extra_fields: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        self._make: Callable[..., MessageDelta] = (
            partial(MessageDelta, **extra_fields) if extra_fields else MessageDelta
        )

    def stamp(
        self,
        deltas: Sequence[Delta],
        timestamp: datetime,
        *,
        requested_at: datetime | None = None,
        provider_raw: dict[str, Any] | None = None,
    ) -> list[MessageDelta]:
        """The stamped deltas. `start` gets the time of the request, if known, and the others get `timestamp`.

        `provider_raw`, for debugging, is attached to the first one.
        """
        first, self._seq = self._seq, self._seq + len(deltas)
        if len(deltas) == 1:  # a live stream: one event per read
            stamped = [self._make(self._run_id, first, deltas[0], timestamp)]
        else:
            stamped = list(map(self._make, repeat(self._run_id), range(first, self._seq), deltas, repeat(timestamp)))
        if requested_at is not None and stamped and type(stamped[0].delta) is Start:
            stamped[0] = replace(stamped[0], timestamp=requested_at)
        if provider_raw is not None and stamped:
            stamped[0] = replace(stamped[0], provider_raw=provider_raw)
        return stamped
