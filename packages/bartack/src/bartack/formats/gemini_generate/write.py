"""Deltas to Gemini's streamGenerateContent, and a message to the response of generateContent.

A function call is one part with all its arguments, and Gemini CLI runs it when it arrives. So a call of the client, and
everything after it, waits until the answer is complete. Google's SDK fails on comments in the stream, so there is
nothing to keep a connection alive with, and no ``[DONE]``.

A signature that comes with a piece of text is written on it; one that comes later is a part of its own, without text.
"""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from bartack.formats.gemini_generate.decode import FINISH, GeminiContinuation
from bartack.formats.response_writer import (
    ErrorResponse,
    Json,
    WholeCallWriter,
    WrittenCall,
    WrittenText,
    error_kind,
    server_sent_event,
)
from bartack.nouns.deltas import Delta, Done, Failed, FinishReason, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.parts import FileRef, Image

__all__ = ["GenerateWriter"]

# cloud.google.com/apis/design/errors
_ERRORS = {
    ErrorCode.INVALID_REQUEST: "INVALID_ARGUMENT",
    ErrorCode.CONTEXT_OVERFLOW: "INVALID_ARGUMENT",
    ErrorCode.CONTENT_FILTER: "INVALID_ARGUMENT",
    ErrorCode.AUTHENTICATION: "UNAUTHENTICATED",
    ErrorCode.PERMISSION_DENIED: "PERMISSION_DENIED",
    ErrorCode.MODEL_NOT_FOUND: "NOT_FOUND",
    ErrorCode.REQUEST_TOO_LARGE: "INVALID_ARGUMENT",
    ErrorCode.QUOTA_EXCEEDED: "RESOURCE_EXHAUSTED",
    ErrorCode.RATE_LIMITED: "RESOURCE_EXHAUSTED",
    ErrorCode.SERVER_ERROR: "INTERNAL",
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.TIMEOUT: "DEADLINE_EXCEEDED",
}
_TEXT_METADATA = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
_SIGNED = 0  # the `place` of a part whose signature was written


class GenerateWriter(WholeCallWriter):
    """Writes chunks with one candidate."""

    format: ClassVar[str] = "gemini-generate"
    continuation_type: ClassVar[Any] = GeminiContinuation
    words: ClassVar[dict[FinishReason, str]] = {
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "content_filter": "SAFETY",
        "other": "OTHER",
    }
    more_reasons: ClassVar[dict[str | int, FinishReason]] = FINISH

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.as_array:
            self.media_type = "application/json"
        self._separator = b"["

    def frame(self, event: Json) -> bytes:
        if not self.as_array:
            return server_sent_event(event)
        separator, self._separator = self._separator, b","
        return separator + msgspec.json.encode(event)

    def write(self, delta: Delta) -> bytes:
        body = super().write(delta)
        return body + b"]" if self.as_array and isinstance(delta, Done | Failed) else body

    def keep_alive(self) -> bytes:
        return b""

    # -- texts

    def begin(self) -> None:
        pass  # every chunk has the id and the model

    def add_text(self, part: WrittenText, piece: str) -> None:
        fields: Json = {"text": piece, **_thought(part)}
        if part.place != _SIGNED and "thoughtSignature" in part.continuation:
            part.place = _SIGNED
            fields["thoughtSignature"] = part.continuation["thoughtSignature"]
        self._emit_part(fields)

    def end_text(self, part: WrittenText) -> None:
        data = part.continuation
        if part.place != _SIGNED and "thoughtSignature" in data:
            self._emit_part({"text": "", **_thought(part), "thoughtSignature": data["thoughtSignature"]})
        metadata = {name: data[name] for name in _TEXT_METADATA if name in data}
        if metadata:
            self._emit_part({"text": ""}, **metadata)

    # -- calls

    def shows(self, call: WrittenCall) -> bool:
        return "part" in call.continuation

    def open_call(self, call: WrittenCall) -> None:
        if not call.is_provider_call:
            super().open_call(call)
        elif "inlineData" not in call.continuation["part"]:
            self._emit_part(call.continuation["part"])

    def end_call(self, call: WrittenCall) -> None:
        if not call.is_provider_call:
            return
        part = call.continuation["part"]
        if "inlineData" in part and isinstance(call.result, tuple):
            media = [item.data for item in call.result if isinstance(item, Image | FileRef) and item.data]
            inline = {**part["inlineData"], "data": b64encode(b"".join(media)).decode()}
            self._emit_part({**part, "inlineData": inline})
        if "resultPart" in call.continuation:
            self._emit_part(call.continuation["resultPart"])

    def emit_call(self, call: WrittenCall, arguments: Json) -> None:
        signature = call.continuation.get("thoughtSignature")
        signed = {} if signature is None else {"thoughtSignature": signature}
        self._emit_part({"functionCall": {"id": call.id, "name": call.name, "args": arguments}, **signed})

    # -- chunks

    def _emit_part(self, part: Json, **candidate_fields: Any) -> None:
        """Emit a chunk with one part; the last one has the usage, too."""
        usage = {}
        if "finishReason" in candidate_fields and self.usage is not None:
            usage = {"usageMetadata": _counts(self.usage)}
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **candidate_fields}
        self.emit({"candidates": [candidate], **usage, "modelVersion": self.model_id, "responseId": self.response_id})

    def finish(self, done: Done) -> None:
        super().finish(done)
        self._emit_part({"text": ""}, finishReason=self.finish_word(done))

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        status, word = error_kind(failed, _ERRORS, {ErrorCode.QUOTA_EXCEEDED: 429})
        error: Json = {"code": status, "message": failed.message or str(failed.error_code), "status": word}
        if failed.retry_after_ms is not None:
            delay = f"{failed.retry_after_ms / 1000:g}s"
            error["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
        return ErrorResponse(status, {"error": error})

    def joined(self, events: Iterable[Json]) -> Json:
        response: Json = {}
        candidate: Json = {}
        groups: list[tuple[Json, list[str]]] = []  # parts, with the pieces of their text
        for event in events:
            response |= event
            candidate |= event["candidates"][0]
            for part in event["candidates"][0]["content"]["parts"]:
                _join_part(groups, part)
        parts = [{**part, "text": "".join(pieces)} if pieces else part for part, pieces in groups]
        return {**response, "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _thought(part: WrittenText) -> Json:
    return {"thought": True} if part.kind == "thinking" else {}


def _join_part(groups: list[tuple[Json, list[str]]], part: Json) -> None:
    """Add a part, or its text to the part before it. A part with a signature is never joined."""
    is_plain = part.keys() <= {"text", "thought"}
    if is_plain and not part["text"]:
        return
    if is_plain and groups and groups[-1][0].keys() == part.keys():
        groups[-1][1].append(part["text"])
    else:
        groups.append((part, [part["text"]] if is_plain else []))


def _counts(usage: Usage) -> Json:
    """Google counts thoughts apart from the answer."""
    thoughts = usage.reasoning_tokens
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": max(usage.output_tokens - (thoughts or 0), 0),
        "totalTokenCount": usage.total_tokens,
    }
    if thoughts is not None:
        counts["thoughtsTokenCount"] = thoughts
    if usage.cache_read_tokens is not None:
        counts["cachedContentTokenCount"] = usage.cache_read_tokens
    return counts
