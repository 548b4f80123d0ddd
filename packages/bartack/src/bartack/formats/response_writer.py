"""`ResponseWriter`: deltas to the response that a client of a wire format expects, without I/O.

It is the reverse of a decoder. Each format is a subclass that turns deltas into the format's events; `write` frames
them as the bytes of a stream, and `whole_response` joins the same events into the response of a request that does not
stream, so the two cannot differ.

Clients run a tool call as soon as its block ends, even if the stream breaks afterwards: Claude Code at
`content_block_stop`, Codex at `response.output_item.done`, opencode once the arguments are complete JSON, Gemini CLI on
a `functionCall`. The end of a call that the client executes is therefore held back until `Done`: a call of an answer
that failed never ends. If the answer was cut at the output limit, neither does a call whose arguments are incomplete.

A writer has no clock and creates no ids: the time is an input, and ids inside a response are derived from its own.
Whatever the format cannot express is added to `losses`, with the path of the part in the message.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import msgspec

from bartack.formats.body_values import INVALID_JSON, Json, parsed_object
from bartack.formats.losses import Losses, LossReport
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    FinishReason,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import Continuation, Part, Text, Thinking, ToolCall, ToolContent

__all__ = [
    "ErrorResponse",
    "Json",
    "ResponseWriter",
    "WholeCallWriter",
    "WrittenCall",
    "WrittenText",
    "error_kind",
    "server_sent_event",
]

# The HTTP status of each error, unless a format has another.
_STATUSES = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.CONTEXT_OVERFLOW: 400,
    ErrorCode.CONTENT_FILTER: 400,
    ErrorCode.AUTHENTICATION: 401,
    ErrorCode.QUOTA_EXCEEDED: 402,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.REQUEST_TOO_LARGE: 413,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.SERVER_ERROR: 500,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.TIMEOUT: 504,
}
# The finish reason that is written if a format has no word for one.
_NEAREST: dict[FinishReason, tuple[FinishReason, ...]] = {
    "refusal": ("content_filter",),
    "content_filter": ("refusal",),
}
# With these, the model has ended its calls itself.
_CALLS_ENDED: frozenset[FinishReason] = frozenset(("stop", "tool_calls", "pause"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ErrorResponse(msgspec.Struct, frozen=True):
    """A response that failed before its first byte."""

    status: int
    body: Json


class _WrittenPart:
    """A part of the answer while it is being written."""

    __slots__ = ("continuation", "has_foreign_data", "pieces", "place", "where")

    def __init__(self, number: int) -> None:
        self.where: str = f"parts[{number}]"
        self.continuation: Json = {}  # only data of the format's own
        self.has_foreign_data: bool = False
        self.place: int = -1  # the format's index of the part, once it has begun
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """All text, thinking or arguments so far."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return "".join(self.pieces)


class WrittenText(_WrittenPart):
    """Text or thinking."""

    __slots__ = ("kind",)

    def __init__(self, number: int, kind: Literal["text", "thinking"]) -> None:
        super().__init__(number)
        self.kind = kind


class WrittenCall(_WrittenPart):
    """A tool call."""

    __slots__ = ("id", "is_complete", "is_left_out", "is_provider_call", "name", "result")

    def __init__(self, number: int, start: ToolCallStart) -> None:
        super().__init__(number)
        self.id: str = start.tool_call_id
        self.name: str = start.tool_name
        self.is_provider_call: bool = start.executed_by == "provider"
        self.is_left_out: bool = False
        self.is_complete: bool = True
        self.result: ToolContent | None = None

    @property
    def arguments(self) -> Json:
        """The arguments as an object, which contains their text if they are not valid JSON."""
        arguments = parsed_object(self.text)
        return {INVALID_JSON: self.text} if arguments is None else arguments


class ResponseWriter(ABC):
    """One response to one client, from its first byte to its end."""

    format: ClassVar[str]
    media_type: str = "text/event-stream"
    continuation_type: ClassVar[Any] = Json  # the types of the continuation data that the writer reads
    words: ClassVar[Mapping[FinishReason, str]]  # the format's finish reasons; at least for "stop"
    more_reasons: ClassVar[Mapping[Any, FinishReason]] = {}  # what else a client reads as a finish reason

    def __init__(
        self,
        *,
        created: datetime = _EPOCH,
        response_id: str | None = None,
        model_id: str | None = None,
        provider: str | None = None,
        input_tokens: int = 0,
        include_usage: bool = True,
        as_array: bool = False,
        custom_tools: Collection[str] = (),
        namespaces: Mapping[str, tuple[str, str]] | None = None,
        tool_searches: Collection[str] = (),
    ) -> None:
        """`response_id` and `model_id` replace those of the deltas; a client expects the model that it requested.

        Continuation data is written if it belongs to `provider` (default: the format's name), whose data is of this
        format. What only one format has: `input_tokens` is an estimate to report before usage is known (Anthropic
        Messages); `include_usage` is the setting of the request (OpenAI Chat); `as_array` writes a JSON array instead
        of events (Gemini); `custom_tools` are the tools with free-text input (OpenAI), whose text is the argument
        `input`; `namespaces` has the namespace and name of each tool that was renamed, and `tool_searches` has the
        tools with which the client searches for others (OpenAI Responses). `tool_options` makes these three.
        """
        self.created = created
        self.response_id: str = response_id or ""
        self.model_id: str = model_id or ""
        self.input_tokens = input_tokens
        self.include_usage = include_usage
        self.as_array = as_array
        self.custom_tools: frozenset[str] = frozenset(custom_tools)
        self.namespaces: dict[str, tuple[str, str]] = dict(namespaces or {})
        self.tool_searches: frozenset[str] = frozenset(tool_searches)
        self.losses: Losses = Losses(provider or self.format)
        self.losses.expect(self.continuation_type)
        self.usage: Usage | None = None
        self.stop_sequence: str | None = None  # the one that ended the answer, if the caller enforced it
        self._origin = ""
        self._events: list[Json] = []
        self._text: WrittenText | None = None
        self._calls: dict[str, WrittenCall] = {}
        self._part_count = 0

    # -- for callers

    def write(self, delta: Delta) -> bytes:
        """The bytes that a delta adds to the stream; the deltas have to keep the streaming contract."""
        return b"".join(map(self.frame, self.events(delta)))

    def events(self, delta: Delta) -> list[Json]:
        """The events that a delta adds to the stream."""
        _STEPS[type(delta)](self, delta)
        events, self._events = self._events, []
        return events

    def keep_alive(self) -> bytes:
        """Bytes without content, for a client that is waiting; empty if the format has none."""
        return b": keep-alive\n\n"

    def whole_response(self, message: Message) -> Json:
        """The body of a response that is not streamed. Use a new writer for each response."""
        return self.joined([event for delta in self._deltas_of(message) for event in self.events(delta)])

    def report(self) -> LossReport:
        """What the response could not express so far."""
        return LossReport(tuple(self.losses.found))

    @classmethod
    @abstractmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        """The response for a request that failed before its first byte was sent."""

    @abstractmethod
    def joined(self, events: Iterable[Json]) -> Json:
        """The body of a response that is not streamed, from all events of the stream."""

    # -- for formats

    def emit(self, event: Json) -> None:
        """Add an event to the stream."""
        self._events.append(event)

    @abstractmethod
    def frame(self, event: Json) -> bytes:
        """The bytes of one event."""

    @abstractmethod
    def begin(self) -> None:
        """Emit the beginning of the response."""

    @abstractmethod
    def add_text(self, part: WrittenText, piece: str) -> None:
        """Emit a piece, which is not empty, of text or thinking."""

    @abstractmethod
    def end_text(self, part: WrittenText) -> None:
        """Emit the end of a part whose continuation data is complete. It may have had no text."""

    def shows(self, call: WrittenCall) -> bool:
        """Whether the format can express a call that its provider executed."""
        return False

    @abstractmethod
    def open_call(self, call: WrittenCall) -> None:
        """Emit the beginning of a call."""

    @abstractmethod
    def add_args(self, call: WrittenCall, piece: str) -> None:
        """Emit a piece of a call's arguments, which is already part of `call.text`."""

    @abstractmethod
    def end_call(self, call: WrittenCall) -> None:
        """Emit the end of a call; for a call of the client after everything else, unless it is incomplete."""

    @abstractmethod
    def finish(self, done: Done) -> None:
        """Emit the end of the response."""

    @abstractmethod
    def fail(self, failed: Failed) -> None:
        """Emit the format's error, which ends the response."""

    def finish_word(self, done: Done) -> str:
        """The format's word for a finish reason: the provider's own if clients read it as this reason, else ours.

        A reason that a client would read as another one is added to the losses.
        """
        reason, raw = done.finish_reason, done.raw_finish_reason
        reasons = {**self.more_reasons, **{word: own for own, word in self.words.items()}}
        if raw is not None and reasons.get(raw) == reason:
            return raw
        nearest = next(own for own in (reason, *_NEAREST.get(reason, ()), "stop") if own in self.words)
        word = self.words[nearest]
        # Formats without a word for it have tool calls and stop.
        if nearest != reason and (reason, nearest) != ("tool_calls", "stop"):
            self.losses.add("meta.finishReason", f"finish reason {reason}", f"the format has none; {word!r} is sent")
        return word

    # -- one step for each kind of delta

    def _on_start(self, delta: Start) -> None:
        self.response_id = self.response_id or delta.request_id
        self.model_id = self.model_id or delta.model_id
        self._origin = delta.provider or ""
        self.begin()

    def _on_text(self, delta: TextDelta | ThinkingDelta) -> None:
        part = self._text
        if part is None or part.kind != delta.kind or delta.new_part:
            self._end_text()
            part = self._text = WrittenText(self._next_number(), delta.kind)
        if delta.continuation:
            self._keep(part, delta.continuation)
        if delta.text_delta:
            self.add_text(part, delta.text_delta)

    def _end_text(self) -> None:
        part, self._text = self._text, None
        if part is not None:
            self.end_text(part)

    def _on_call_start(self, delta: ToolCallStart) -> None:
        self._end_text()
        call = self._calls[delta.tool_call_id] = WrittenCall(self._next_number(), delta)
        if delta.continuation:
            self._keep(call, delta.continuation)
        if call.is_provider_call and not (self._origin == self.losses.provider and self.shows(call)):
            call.is_left_out = True
            why = "the provider executed it, and the format cannot express it"
            self.losses.add(call.where, f"call of {call.name}", why)
        else:
            self.open_call(call)

    def _on_call_args(self, delta: ToolCallArgs) -> None:
        call = self._calls[delta.tool_call_id]
        if delta.args_text_delta and not call.is_left_out:
            call.pieces.append(delta.args_text_delta)
            self.add_args(call, delta.args_text_delta)

    def _on_call_end(self, delta: ToolCallEnd) -> None:
        call = self._calls[delta.tool_call_id]
        call.result = delta.result
        if delta.continuation:
            self._keep(call, delta.continuation)
        if call.is_provider_call and not call.is_left_out:
            self.end_call(call)

    def _on_usage(self, delta: Usage) -> None:
        self.usage = delta

    def _on_done(self, delta: Done) -> None:
        self._end_text()
        calls = [call for call in self._calls.values() if not call.is_provider_call]
        if calls and delta.finish_reason in ("stop", "other"):
            delta = Done("tool_calls", raw_finish_reason=delta.raw_finish_reason)
        for call in calls:
            # An empty object may be one whose fields were cut off: a message does not tell it from no arguments at all.
            call.is_complete = delta.finish_reason in _CALLS_ENDED or bool(parsed_object(call.text))
            if not call.is_complete:
                self.losses.add(call.where, f"end of the call of {call.name}", "its arguments are incomplete")
            elif not call.text.strip():  # clients parse the arguments as JSON
                call.pieces.append("{}")
                self.add_args(call, "{}")
            self.end_call(call)
        self.finish(delta)

    def _on_failed(self, delta: Failed) -> None:
        self.fail(delta)

    def _next_number(self) -> int:
        self._part_count += 1
        return self._part_count - 1

    def _keep(self, part: _WrittenPart, data: Json) -> None:
        """Keep continuation data if it is the format's own; of a part with other data, one loss is recorded."""
        if self._origin == self.losses.provider or not part.has_foreign_data:
            part.has_foreign_data = self._origin != self.losses.provider
            part.continuation |= self.losses.continuation(part.where, Continuation(self._origin, self.model_id, data))

    # -- messages

    def _deltas_of(self, message: Message) -> Iterator[Delta]:
        """The deltas of a message; the continuation data of each part belongs to its own provider."""
        meta = message.meta or Meta()
        model = "" if meta.model is None else meta.model.model
        yield Start(model, meta.response_id or "", provider=self.losses.provider)
        for number, part in enumerate(message.parts):
            yield from self._part_deltas(part, f"parts[{number}]")
        if meta.usage is not None:
            yield meta.usage
        yield Done(meta.finish_reason or "stop", raw_finish_reason=meta.raw_finish_reason)

    def _part_deltas(self, part: Part, where: str) -> Iterator[Delta]:
        data = self.losses.continuation(where, part.continuation) or None
        match part:
            case Text() | Thinking():
                make = TextDelta if isinstance(part, Text) else ThinkingDelta
                yield make(part.text, new_part=True, continuation=data)
            case ToolCall():
                call_id, result = part.tool_call_id, part.result
                yield ToolCallStart(call_id, part.tool_name, executed_by=part.executed_by, continuation=data)
                text = part.raw_args_text
                yield ToolCallArgs(call_id, json_text(part.arguments) if text is None else text)
                yield ToolCallEnd(
                    call_id,
                    result=None if result is None else result.content,
                    result_is_error=result is not None and result.is_error,
                )
            case _:
                self.losses.add(where, part.kind, "an answer consists of text, thinking and calls")


class WholeCallWriter(ResponseWriter):
    """A writer for a format in which a call is one event, and runs when it arrives.

    A call of the client waits for the end of the answer, and so does everything after it, to keep its place.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._waiting: list[Json | WrittenCall] | None = None  # from the first call on

    def emit(self, event: Json) -> None:
        if self._waiting is None:
            super().emit(event)
        else:
            self._waiting.append(event)

    def open_call(self, call: WrittenCall) -> None:
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(call)

    def add_args(self, call: WrittenCall, piece: str) -> None:
        pass  # a call is written whole

    def end_call(self, call: WrittenCall) -> None:
        pass  # it waits for `finish`

    @abstractmethod
    def emit_call(self, call: WrittenCall, arguments: Json) -> None:
        """Emit a complete call."""

    def finish(self, done: Done) -> None:
        waiting, self._waiting = self._waiting or [], None
        for item in waiting:
            if not isinstance(item, WrittenCall):
                self.emit(item)
            elif item.is_complete:
                self.emit_call(item, self._checked_arguments(item))

    def _checked_arguments(self, call: WrittenCall) -> Json:
        arguments = call.arguments
        if list(arguments) == [INVALID_JSON]:
            why = f"arguments must be a JSON object; their text is sent as {INVALID_JSON}"
            self.losses.add(call.where, "invalid arguments", why)
        return arguments

    def fail(self, failed: Failed) -> None:
        self._waiting = None
        self.emit(self.error_response(failed).body)


_STEPS: dict[type[Delta], Callable[[ResponseWriter, Any], None]] = {
    Start: ResponseWriter._on_start,
    TextDelta: ResponseWriter._on_text,
    ThinkingDelta: ResponseWriter._on_text,
    ToolCallStart: ResponseWriter._on_call_start,
    ToolCallArgs: ResponseWriter._on_call_args,
    ToolCallEnd: ResponseWriter._on_call_end,
    Usage: ResponseWriter._on_usage,
    Done: ResponseWriter._on_done,
    Failed: ResponseWriter._on_failed,
}


def server_sent_event(event: Json, name: str = "") -> bytes:
    """An event with its data on one line."""
    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
    return b"event: " + name.encode() + b"\n" + data if name else data


def error_kind(
    failed: Failed, words: Mapping[ErrorCode, str], statuses: Mapping[ErrorCode, int] = MappingProxyType({})
) -> tuple[int, str]:
    """The HTTP status of an error and the format's word for it; `statuses` are those in which the format differs.

    An error without a status of its own is an overload if a retry may help.
    """
    code = failed.error_code
    if code not in _STATUSES:
        code = ErrorCode.OVERLOADED if failed.retryable else ErrorCode.SERVER_ERROR
    return statuses.get(code, _STATUSES[code]), words.get(code, "")
