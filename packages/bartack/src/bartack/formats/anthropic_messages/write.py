"""Deltas to Anthropic's Messages stream, and a message to the whole response.

Blocks are numbered in the order in which they begin. The blocks of the client's calls stay open until the answer is
complete, so later blocks overlap them; Claude Code and Anthropic's SDKs sort events by their index. `message_start`
waits for the first delta after `Start` that is not usage, so that it has the counts of a provider that reports them
first. Clients stamp them on the message; until there are any, the estimate of the caller is sent.

A foreign model's thinking gets an empty signature, because the SDKs require the field.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from bartack.formats.anthropic_messages.decode import FINISH_REASONS, AnthropicContinuation
from bartack.formats.body_values import INVALID_JSON, beyond, parsed_object
from bartack.formats.emitter import CALL_ID
from bartack.formats.response_writer import (
    ErrorResponse,
    Json,
    ResponseWriter,
    WrittenCall,
    WrittenText,
    error_kind,
    server_sent_event,
)
from bartack.nouns.deltas import Done, Failed, FinishReason, Usage
from bartack.nouns.errors import ErrorCode

__all__ = ["MessagesWriter"]

# docs.claude.com, "Errors". A stream that was cut is an overload, which clients retry.
_ERRORS = {
    ErrorCode.INVALID_REQUEST: "invalid_request_error",
    ErrorCode.CONTEXT_OVERFLOW: "invalid_request_error",
    ErrorCode.CONTENT_FILTER: "invalid_request_error",
    ErrorCode.AUTHENTICATION: "authentication_error",
    ErrorCode.QUOTA_EXCEEDED: "billing_error",
    ErrorCode.PERMISSION_DENIED: "permission_error",
    ErrorCode.MODEL_NOT_FOUND: "not_found_error",
    ErrorCode.REQUEST_TOO_LARGE: "request_too_large",
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.SERVER_ERROR: "api_error",
    ErrorCode.TIMEOUT: "timeout_error",
    ErrorCode.OVERLOADED: "overloaded_error",
}
_TOO_LONG = "prompt is too long"  # Claude Code compacts the conversation if an error has these words
_NOT_FIELDS = frozenset(("type", "result", "container", CALL_ID))  # continuation data of a call
_GROWING = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class MessagesWriter(ResponseWriter):
    """Writes `message_start`, blocks, `message_delta` and `message_stop`."""

    format: ClassVar[str] = "anthropic-messages"
    continuation_type: ClassVar[Any] = AnthropicContinuation
    words: ClassVar[dict[FinishReason, str]] = {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
        "pause": "pause_turn",
    }
    more_reasons: ClassVar[dict[str, FinishReason]] = FINISH_REASONS

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._has_begun = False
        self._block_count = 0
        self._container: Json | None = None

    def frame(self, event: Json) -> bytes:
        return server_sent_event(event, event["type"])

    def keep_alive(self) -> bytes:
        return self.frame({"type": "ping"})

    # -- blocks

    def begin(self) -> None:
        pass  # `message_start` waits for usage

    def add_text(self, part: WrittenText, piece: str) -> None:
        if part.place < 0:
            part.place = self._open_text(part)
        kind = part.kind
        self._emit_delta(part.place, {"type": f"{kind}_delta", kind: piece})

    def end_text(self, part: WrittenText) -> None:
        data = part.continuation
        if part.kind == "thinking":
            self._end_thinking(part, data)
        else:
            citations = data.get("citations")
            for citation in citations if isinstance(citations, list) else ():
                if part.place < 0:
                    part.place = self._open_text(part)
                self._emit_delta(part.place, {"type": "citations_delta", "citation": citation})
        self._container = data.get("container", self._container)
        if part.place >= 0:
            self._emit_stop(part.place)

    def _end_thinking(self, part: WrittenText, data: Json) -> None:
        if "block" in data:
            self._emit_whole(data["block"])
        elif data.get("type") == "redacted_thinking":
            self._emit_whole({"type": "redacted_thinking", "data": data.get("data", "")})
        elif "signature" in data:
            if part.place < 0:
                part.place = self._open_text(part)
            self._emit_delta(part.place, {"type": "signature_delta", "signature": data["signature"]})

    def _open_text(self, part: WrittenText) -> int:
        is_thinking = part.kind == "thinking"
        return self._emit_start(
            {"type": "thinking", "thinking": "", "signature": ""} if is_thinking else {"type": "text", "text": ""}
        )

    def shows(self, call: WrittenCall) -> bool:
        return "type" in call.continuation

    def open_call(self, call: WrittenCall) -> None:
        data = call.continuation
        fields = beyond(data, *_NOT_FIELDS)
        kind = data.get("type", "tool_use")
        call.place = self._emit_start({"type": kind, "id": call.id, "name": call.name, "input": {}, **fields})

    def add_args(self, call: WrittenCall, piece: str) -> None:
        self._emit_delta(call.place, {"type": "input_json_delta", "partial_json": piece})

    def end_call(self, call: WrittenCall) -> None:
        if call.is_complete:
            self._emit_stop(call.place)
        result = call.continuation.get("result")
        if result is not None:
            self._emit_whole({**result, "tool_use_id": call.id})
        self._container = call.continuation.get("container", self._container)

    def _emit_whole(self, block: Json) -> None:
        self._emit_stop(self._emit_start(block))

    def _emit_start(self, block: Json) -> int:
        self._begin_message()
        index = self._block_count
        self._block_count += 1
        self.emit({"type": "content_block_start", "index": index, "content_block": block})
        return index

    def _emit_delta(self, index: int, delta: Json) -> None:
        self.emit({"type": "content_block_delta", "index": index, "delta": delta})

    def _emit_stop(self, index: int) -> None:
        self.emit({"type": "content_block_stop", "index": index})

    # -- the message

    def _begin_message(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        message: Json = {
            "id": self.response_id,
            "type": "message",
            "role": "assistant",
            "model": self.model_id,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _counts(self.usage or Usage(self.input_tokens, 0)),
        }
        self.emit({"type": "message_start", "message": message})

    def finish(self, done: Done) -> None:
        self._begin_message()
        if self.usage is None:
            why = "the format requires it; the estimate of the input is sent"
            self.losses.add("meta.usage", "usage", why, action="added")
        stop_reason = self.finish_word(done)
        delta: Json = {"stop_reason": stop_reason, "stop_sequence": self.stop_sequence}
        if self._container is not None:
            delta["container"] = self._container
        usage = _counts(self.usage or Usage(self.input_tokens, 0))
        self.emit({"type": "message_delta", "delta": delta, "usage": usage})
        self.emit({"type": "message_stop"})

    def fail(self, failed: Failed) -> None:
        self.emit(self.error_response(failed).body)

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        status, kind = error_kind(failed, _ERRORS, {ErrorCode.OVERLOADED: 529})
        message = failed.message or str(failed.error_code)
        if failed.error_code is ErrorCode.CONTEXT_OVERFLOW and not message.startswith(_TOO_LONG):
            message = f"{_TOO_LONG}: {message}"
        return ErrorResponse(status, {"type": "error", "error": {"type": kind, "message": message}})

    def joined(self, events: Iterable[Json]) -> Json:
        message: Json = {}
        blocks: list[Json] = []
        pieces: dict[tuple[int, str], list[str]] = {}
        ended: list[int] = []
        for event in events:
            match event["type"]:
                case "message_start":
                    message = dict(event["message"])
                case "content_block_start":
                    blocks.append(dict(event["content_block"]))
                case "content_block_delta":
                    _collect(event["delta"], event["index"], blocks, pieces)
                case "content_block_stop":
                    ended.append(event["index"])
                case "message_delta":
                    message |= event["delta"]
                    message["usage"] = event["usage"]
        for (index, name), texts in pieces.items():
            blocks[index][name] = "".join(texts)
        message["content"] = [_finished(blocks[index]) for index in sorted(ended)]
        return message


def _collect(delta: Json, index: int, blocks: list[Json], pieces: dict[tuple[int, str], list[str]]) -> None:
    name = _GROWING.get(delta["type"])
    if name is None:
        blocks[index].setdefault("citations", []).append(delta["citation"])
    else:
        pieces.setdefault((index, name), []).append(delta[name])


def _finished(block: Json) -> Json:
    text = block.pop("partial_json", None)
    if text is not None:
        arguments = parsed_object(text)
        block["input"] = {INVALID_JSON: text} if arguments is None else arguments
    return block


def _counts(usage: Usage) -> Json:
    """Anthropic counts cache reads and writes apart from `input_tokens`."""
    cache_read, cache_write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    counts: Json = {
        "input_tokens": max(usage.input_tokens - cache_read - cache_write, 0),
        "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    for name, key in (("cacheCreation", "cache_creation"), ("serverToolUse", "server_tool_use")):
        group = (usage.extra or {}).get(name)
        if isinstance(group, dict):
            counts[key] = group
    return counts
