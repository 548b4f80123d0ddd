"""`Emitter`: collects the deltas of a decoder, so that every format keeps the streaming contract.

A decoder reports text, calls and finish reasons as they arrive; the emitter turns them into deltas in the order that
the contract requires (D-3.1): `Start` first, calls closed before `Done`, `Done` or `Failed` last. It also gives every
tool call an id that is unique in the run (D-3.8). The key that a format uses for a call while it streams, an index or
an item id, is not visible outside.
"""

from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from bartack.formats.error_codes import classify
from bartack.formats.framing import LIMIT
from bartack.formats.usage import consistent
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
from bartack.nouns.json_values import MAX_DEPTH, is_within, json_text
from bartack.nouns.parts import ToolContent

__all__ = ["CALL_ID", "Emitter", "PendingData", "joined_pairs"]

CALL_ID = "callId"  # the provider's own id of a call with a local id, in continuation data

Key = str | int


class Emitter:
    """Collects the deltas of one stream."""

    def __init__(
        self, *, provider: str | None, model_id: str, local_id: str, used_call_ids: Collection[str] = ()
    ) -> None:
        self.deltas: list[Delta] = []
        self.started: bool = False
        self.ended: bool = False
        self._last = 0  # the number of deltas when the stream ended; later ones are dropped
        self.finish_reason: FinishReason | None = None
        self._raw_finish_reason: str | None = None
        self._provider = provider
        self.model_id: str = model_id  # the requested model, and from the start on the reported one
        self._local_id = local_id
        # Grows by one id for each call of this response, and the client limits the size of a response.
        self._used_ids = set(used_call_ids)
        self._open_calls: dict[Key, str] = {}
        self._made_ids = 0
        self._has_client_calls = False
        self.last_usage: Usage | None = None
        self.joins_surrogates: bool = False  # until then, a hot path may append to `deltas` itself
        self._pending_halves: dict[object, str] = {}

    def take(self) -> list[Delta]:
        """The deltas since the last call. Nothing follows the end, whatever was added after it."""
        deltas, self.deltas = self.deltas, []
        if self.ended:
            del deltas[self._last :]
            self._last = 0
        return [_without_surrogates(delta) for delta in deltas] if self.joins_surrogates else deltas

    def start(self, model_id: str | None = None, request_id: str | None = None) -> None:
        """Start the stream. Repeating it changes nothing."""
        if not self.started:
            self.started = True
            self.model_id = model_id or self.model_id
            self.deltas.append(Start(self.model_id, request_id or self._local_id, provider=self._provider))

    def more_text(self, piece: str) -> None:
        """Add to the open text part. The hot path: nearly every event of a stream."""
        if self.joins_surrogates:
            self.text(piece)
        elif piece:
            self.deltas.append(TextDelta(piece))

    def more_thinking(self, piece: str) -> None:
        """Add to the open thinking part."""
        if self.joins_surrogates:
            self.thinking(piece)
        elif piece:
            self.deltas.append(ThinkingDelta(piece))

    def text(self, piece: str, *, new_part: bool = False, continuation: dict[str, Any] | None = None) -> None:
        """Add visible text. An empty piece without continuation data is ignored."""
        if self.joins_surrogates:
            piece = self._joined("text", piece)
        if piece or continuation:
            if not self.started:
                self.start()
            self.deltas.append(TextDelta(piece, new_part=new_part, continuation=continuation))

    def thinking(self, piece: str, *, new_part: bool = False, continuation: dict[str, Any] | None = None) -> None:
        """Add reasoning. An empty piece without continuation data is ignored."""
        if self.joins_surrogates:
            piece = self._joined("thinking", piece)
        if piece or continuation:
            if not self.started:
                self.start()
            self.deltas.append(ThinkingDelta(piece, new_part=new_part, continuation=continuation))

    # -- surrogate pairs that were cut in two

    def join_surrogates(self) -> None:
        """From now on, keep half a surrogate pair at the end of a piece for the next piece of its kind."""
        self.joins_surrogates = True

    def _joined(self, key: object, piece: str) -> str:
        piece = self._pending_halves.pop(key, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._pending_halves[key] = piece[-1]
            piece = piece[:-1]
        return joined_pairs(piece)

    # -- tool calls

    def is_open(self, key: Key) -> bool:
        """Whether a call with this key is open."""
        return key in self._open_calls

    def call_id(self, key: Key) -> str:
        """The public id of the open call with this key."""
        return self._open_calls[key]

    def open_call(
        self,
        key: Key,
        name: str,
        *,
        provider_id: str | None = None,
        executed_by: Literal["client", "provider"] = "client",
        continuation: dict[str, Any] | None = None,
    ) -> str:
        """Open a call under the format's own key, and return its public id. A call open under it is closed first."""
        self.start()
        if key in self._open_calls:
            self.close_call(key)
        call_id = self._unique_id(provider_id)
        if provider_id and call_id != provider_id:
            continuation = {**(continuation or {}), CALL_ID: provider_id}
        self._open_calls[key] = call_id
        self._has_client_calls |= executed_by == "client"
        self.deltas.append(ToolCallStart(call_id, name, executed_by=executed_by, continuation=continuation))
        return call_id

    def call_args(self, key: Key, piece: str) -> None:
        """Add argument text to the call with this key; ignored if there is none."""
        call_id = self._open_calls.get(key)
        if call_id is not None and piece:
            self.more_args(call_id, piece)

    def more_args(self, call_id: str, piece: str) -> None:
        """Add argument text to an open call by its public id."""
        if self.joins_surrogates:
            piece = self._joined(("call", call_id), piece)
        if piece:
            self.deltas.append(ToolCallArgs(call_id, piece))

    def close_call(
        self,
        key: Key,
        *,
        continuation: dict[str, Any] | None = None,
        result: ToolContent | None = None,
        result_is_error: bool = False,
    ) -> None:
        """Close the call with this key. Repeating it changes nothing."""
        call_id = self._open_calls.pop(key, None)
        if call_id is not None:
            self.deltas.append(
                ToolCallEnd(call_id, continuation=continuation, result=result, result_is_error=result_is_error)
            )

    def _unique_id(self, provider_id: str | None) -> str:
        call_id = provider_id or ""
        while not call_id or call_id in self._used_ids:
            self._made_ids += 1
            call_id = f"{self._local_id}-{self._made_ids}"
        self._used_ids.add(call_id)
        return call_id

    # -- the end

    def usage(self, usage: Usage) -> None:
        """Report the tokens so far, at once, so that a stream that is cut later still shows what was billed."""
        usage = consistent(usage)
        if usage != self.last_usage and not self.ended:
            self.start()
            self.last_usage = usage
            self.deltas.append(usage)

    def finish(self, reason: FinishReason, raw: str | None = None) -> None:
        """Note the finish reason. `Done` waits for the end of the stream, because usage may follow."""
        self.finish_reason = reason
        self._raw_finish_reason = raw

    def done(self) -> None:
        """Close open calls and end the stream: the provider's terminal signal has arrived."""
        if self.ended:
            return
        self.start()
        for key in list(self._open_calls):
            self.close_call(key)
        reason = self.finish_reason or "stop"
        if reason == "stop" and self._has_client_calls:
            reason = "tool_calls"
        self.deltas.append(Done(reason, raw_finish_reason=self._raw_finish_reason))
        self._end()

    def fail(
        self,
        code: ErrorCode,
        message: str,
        *,
        retryable: bool | None = None,
        status: int | None = None,
        retry_after_ms: int | None = None,
        raw_code: str | None = None,
    ) -> None:
        """End the stream with an error."""
        if self.ended:
            return
        self.start()
        self.deltas.append(
            Failed(
                code,
                joined_pairs(message),
                retryable=code.retryable if retryable is None else retryable,
                status=status,
                retry_after_ms=retry_after_ms,
                raw_code=None if raw_code is None else joined_pairs(raw_code),
            )
        )
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._last = len(self.deltas)

    def refused(self, message: str, *, raw_code: str | None = None, status: int | None = None) -> None:
        """End the stream with an error that the provider reported."""
        self.fail(classify(status, raw_code, message), message, status=status, raw_code=raw_code)


def joined_pairs(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_surrogates(value: Any) -> Any:
    """The value without lone surrogates in any text, including ids, names and continuation data."""
    match value:
        case ErrorCode():
            return value
        case str():
            return joined_pairs(value)
        case dict():
            return {joined_pairs(key): _without_surrogates(item) for key, item in value.items()}
        case list():
            return [_without_surrogates(item) for item in value]
        case tuple():
            return tuple(_without_surrogates(item) for item in value)
        case Struct():
            return replace(
                value, **{name: _without_surrogates(getattr(value, name)) for name in value.__struct_fields__}
            )
        case _:
            return value


_MAX_DEPTH = MAX_DEPTH - 4  # a part's continuation data wraps up to four levels around what is kept


class PendingData:
    """Counts what is held back in one answer. Exceeding a limit ends the stream with an error (D-3.11.2)."""

    def __init__(self, out: Emitter) -> None:
        self._out = out
        self.size = 0  # a hot path may add to it, and call `hold` once it exceeds `LIMIT`

    def hold(self, size: int) -> None:
        """Count this many more bytes as held back."""
        self.size += size
        if self.size > LIMIT:
            self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"More than {LIMIT} bytes of one answer had to be held back.")

    def can_keep(self, value: Any) -> bool:
        """Whether free-form JSON is shallow enough to be stored. If it is not, the stream has ended with an error."""
        if is_within(value, _MAX_DEPTH):
            return True
        self._out.fail(ErrorCode.STREAM_TOO_LARGE, f"The provider's data is nested deeper than {_MAX_DEPTH} levels.")
        return False

    def text_of_json(self, value: Any) -> str:
        """Arguments as text, where a server sends them as JSON; "" if they are too deep, which ends the stream."""
        if isinstance(value, str):
            return value
        return json_text(value) if self.can_keep(value) else ""
