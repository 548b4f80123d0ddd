"""Deltas to the lines of Ollama's `/api/chat`, and a message to the whole response.

A call is one line with all its arguments. Ollama's clients parse every line, so a connection is kept alive by a line
without content. Errors have a message and no code.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from bartack.formats.response_writer import (
    ErrorKind,
    ErrorResponse,
    Json,
    WholeCallWriter,
    WrittenCall,
    WrittenText,
    error_kind,
)
from bartack.nouns.deltas import Done, Failed, FinishReason
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import write_time_text

__all__ = ["OllamaWriter"]

_READ: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
_WORDS: dict[FinishReason, str] = {
    "stop": "stop",
    "tool_calls": "stop",
    "length": "length",
    "content_filter": "stop",
    "refusal": "stop",
    "pause": "stop",
    "other": "stop",
}
_ERRORS: dict[ErrorCode, ErrorKind] = {
    code: (status, "")
    for code, status in {
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
    }.items()
}


class OllamaWriter(WholeCallWriter):
    """Writes one JSON object per line."""

    format: ClassVar[str] = "ollama-chat"
    media_type: str = "application/x-ndjson"

    def frame(self, event: Json) -> bytes:
        return msgspec.json.encode(event) + b"\n"

    def keep_alive(self) -> bytes:
        return self.frame(self._line({}))

    def _line(self, message: Json, **fields: Any) -> Json:
        return {
            "model": self.model_id,
            "created_at": write_time_text(self.created),
            "message": {"role": "assistant", "content": "", **message},
            "done": False,
            **fields,
        }

    def begin(self) -> None:
        pass  # every line has the model

    def add_text(self, part: WrittenText, piece: str) -> None:
        self.emit(self._line({"content" if part.kind == "text" else "thinking": piece}))

    def end_text(self, part: WrittenText) -> None:
        pass

    def emit_call(self, call: WrittenCall, arguments: Json) -> None:
        function = {"name": call.name, "arguments": arguments}
        self.emit(self._line({"tool_calls": [{"id": call.id, "function": function}]}))

    def finish(self, done: Done) -> None:
        super().finish(done)
        usage = self.usage
        counts = {}
        if usage is not None:
            counts = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
        self.emit(self._line({}, done=True, done_reason=self.finish_word(done, _READ, _WORDS), **counts))

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        status, _ = error_kind(failed, _ERRORS)
        return ErrorResponse(status, {"error": failed.message or str(failed.error_code)})

    def joined(self, events: Iterable[Json]) -> Json:
        lines = list(events)
        messages = [line["message"] for line in lines]
        thinking = "".join(message.get("thinking", "") for message in messages)
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        message: Json = {"role": "assistant", "content": "".join(message["content"] for message in messages)}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = calls
        return {**lines[-1], "message": message}
