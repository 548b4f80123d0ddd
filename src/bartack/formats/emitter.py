"""`Emitter`: what a format's decoder tells its news to, so that every format keeps the streaming contract alike.

A format says "text", "a call opened under my key 3", "the provider finished"; the emitter turns that into deltas
in the order the contract demands (D-3.1): `Start` first, calls closed before `Done`, `Done` or `Failed` last and
nothing after it. It also gives every tool call an id that is unique in the run (D-3.8). The key under which a
format knows a call while it streams (an index, an item id) never leaves this class.
"""

from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from bartack.formats.error_codes import classify
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
from bartack.nouns.parts import ToolContent

__all__ = ["CALL_ID", "Emitter", "amount", "consistent", "token_count"]

CALL_ID = "callId"  # in continuation data: the provider's own id of a call that was given a local one

Key = str | int

# The largest whole number that all JSON readers hold exactly (RFC 7493, section 2.2); databases take it, too.
_MAX_AMOUNT = 2**53 - 1


def amount(value: Any) -> float | None:
    """The value if it is a number that can count something: not negative and not beyond exact arithmetic."""
    return float(value) if type(value) in (int, float) and 0 <= value <= _MAX_AMOUNT else None


def token_count(*values: Any) -> int | None:
    """The first of these values that can be a number of tokens."""
    return next((int(count) for count in map(amount, values) if count is not None), None)


def consistent(usage: Usage) -> Usage:
    """The usage with counts that fit together (D-3.4):

        cache_read_tokens + cache_write_tokens <= input_tokens
        reasoning_tokens <= output_tokens
        total_tokens >= input_tokens + output_tokens

    A breakdown that exceeds its whole is cut to it, and what was reported is kept in `extra`. OpenRouter counts
    reasoning with another tokenizer (118 of 107 in openrouter-chat/*deepseek_chat_v3_1-streaming--0-f01a64). Mistral
    counts cached tokens of a prompt that its input count leaves out (64 of 10 in
    mistral-chat/prism--mistral-stream-reasoning-model-1-1--0-131d10), and so does Azure for Grok (not recorded).
    """
    read, written, reasoning = usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    sent, made, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    if (read or 0) + (written or 0) <= sent and (reasoning or 0) <= made and sent + made <= total:
        return usage
    reported = {
        "cacheReadTokens": read,
        "cacheWriteTokens": written,
        "reasoningTokens": reasoning,
        "totalTokens": total,
    }
    read = _at_most(sent, read)
    written = _at_most(sent - (read or 0), written)
    reasoning = _at_most(made, reasoning)
    total = max(total, sent + made)
    kept = zip(reported.items(), (read, written, reasoning, total), strict=True)
    return replace(
        usage,
        total_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        extra={**(usage.extra or {}), "reported": {name: count for (name, count), used in kept if count != used}},
    )


def _at_most(whole: int, count: int | None) -> int | None:
    return None if count is None else min(count, whole)


class Emitter:
    """Collects the deltas of one stream."""

    def __init__(
        self, *, provider: str | None, model_id: str, local_id: str, used_call_ids: Collection[str] = ()
    ) -> None:
        self.deltas: list[Delta] = []
        self.started = False
        self.ended = False
        self._last = 0  # how many deltas there were when the stream ended: what is added later is dropped
        self.finish_reason: FinishReason | None = None
        self._raw_finish_reason: str | None = None
        self._provider = provider
        self._model_id = model_id
        self._local_id = local_id
        self._used_ids = set(used_call_ids)
        self._open_calls: dict[Key, str] = {}
        self._made_ids = 0
        self._has_client_calls = False
        self._usage: Usage | None = None
        self._joins_surrogates = False
        self._held_halves: dict[object, str] = {}

    def take(self) -> list[Delta]:
        """The deltas since the last call. Nothing follows the end, whatever was added after it."""
        deltas, self.deltas = self.deltas, []
        if self.ended:
            del deltas[self._last :]
            self._last = 0
        return [_mended(delta) for delta in deltas] if self._joins_surrogates else deltas

    def start(self, model_id: str | None = None, request_id: str | None = None) -> None:
        """The stream begins; said again, it changes nothing."""
        if not self.started:
            self.started = True
            self.deltas.append(Start(model_id or self._model_id, request_id or self._local_id, provider=self._provider))

    def more_text(self, piece: str) -> None:
        """More of a text that has begun: nearly every event of nearly every stream."""
        if self._joins_surrogates:
            self.text(piece)
        elif piece:
            self.deltas.append(TextDelta(piece))

    def more_thinking(self, piece: str) -> None:
        """More of a thought that has begun."""
        if self._joins_surrogates:
            self.thinking(piece)
        elif piece:
            self.deltas.append(ThinkingDelta(piece))

    def text(self, piece: str, *, new_part: bool = False, continuation: dict[str, Any] | None = None) -> None:
        """Visible text; an empty piece without continuation data says nothing."""
        if self._joins_surrogates:
            piece = self._joined("text", piece)
        if piece or continuation:
            if not self.started:
                self.start()
            self.deltas.append(TextDelta(piece, new_part=new_part, continuation=continuation))

    def thinking(self, piece: str, *, new_part: bool = False, continuation: dict[str, Any] | None = None) -> None:
        """Reasoning; an empty piece without continuation data says nothing."""
        if self._joins_surrogates:
            piece = self._joined("thinking", piece)
        if piece or continuation:
            if not self.started:
                self.start()
            self.deltas.append(ThinkingDelta(piece, new_part=new_part, continuation=continuation))

    # -- text that was cut inside a character

    def join_surrogates(self) -> None:
        """From here on, half a surrogate pair at the end of a piece is held for the next piece of its kind."""
        self._joins_surrogates = True

    def _joined(self, key: object, piece: str) -> str:
        piece = self._held_halves.pop(key, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._held_halves[key] = piece[-1]
            piece = piece[:-1]
        return _whole(piece)

    # -- tool calls

    def is_open(self, key: Key) -> bool:
        """Whether a call is open under this key."""
        return key in self._open_calls

    def call_id(self, key: Key) -> str:
        """The id outside of the call that is open under this key."""
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
        """A call opens under the format's own key; its id outside. A call still open under that key is closed first."""
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
        """More argument text of the call under this key; without an open call there is nothing it could belong to."""
        call_id = self._open_calls.get(key)
        if call_id is not None and piece:
            self.more_args(call_id, piece)

    def more_args(self, call_id: str, piece: str) -> None:
        """More argument text of a call that is known to be open, by its id outside."""
        if self._joins_surrogates:
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
        """The call under this key is complete; said again, it changes nothing."""
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
        """Tokens so far. Said at once, so that a stream cut later still shows what was billed."""
        usage = consistent(usage)
        if usage != self._usage:
            self.start()
            self._usage = usage
            self.deltas.append(usage)

    def finish(self, reason: FinishReason, raw: str | None = None) -> None:
        """The provider said why it stopped; `done` is held back until the stream ends, since usage may follow."""
        self.finish_reason = reason
        self._raw_finish_reason = raw

    def done(self) -> None:
        """The provider's terminal signal has come: close what is open and end the stream."""
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
        """The stream ends in an error."""
        if self.ended:
            return
        self.start()
        self.deltas.append(
            Failed(
                code,
                _whole(message),
                retryable=code.retryable if retryable is None else retryable,
                status=status,
                retry_after_ms=retry_after_ms,
                raw_code=None if raw_code is None else _whole(raw_code),
            )
        )
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._last = len(self.deltas)

    def refused(self, message: str, *, raw_code: str | None = None, status: int | None = None) -> None:
        """The provider said no inside the stream, in its own words."""
        self.fail(classify(status, raw_code, message), message, status=status, raw_code=raw_code)


def _whole(text: str) -> str:
    """Through UTF-16 two halves of a pair become the character they are; a half that stays alone is no text."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _mended(value: Any) -> Any:
    """The value with no half pair left in any text: ids, names and continuation data may hold some, too."""
    match value:
        case ErrorCode():
            return value
        case str():
            return _whole(value)
        case dict():
            return {_whole(key): _mended(item) for key, item in value.items()}
        case list():
            return [_mended(item) for item in value]
        case tuple():
            return tuple(_mended(item) for item in value)
        case Struct():
            return replace(value, **{name: _mended(getattr(value, name)) for name in value.__struct_fields__})
        case _:
            return value
