"""`ClientRequest`: one request of a client, in the terms of its own wire format.

The gateway has the paths of the providers, so that a client needs nothing but another base URL. A body names its model
and says whether it wants a stream; Gemini's clients say both in the path.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request

from bartack.formats import ErrorResponse, RequestFacts, format_named, read_request, request_facts
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within
from bartack.nouns.requests import ModelRequest
from bartack_server.web.endpoint import HttpError

__all__ = ["ClientRequest", "client_request", "error_in", "failure_of", "presented_keys"]

MESSAGES, RESPONSES, CHAT = "anthropic-messages", "openai-responses", "openai-chat"
GEMINI, OLLAMA = "gemini-generate", "ollama-chat"
# Of any program, Claude Code, Codex, opencode and pi.
_SESSION_HEADERS = ("x-bartack-session", "x-claude-code-session-id", "session-id", "x-session-id", "session_id")
_RESOLVED = ("previous_response_id", "conversation")  # the gateway looks these up itself
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request body and what it asks for."""

    format: str
    model: str  # the name that the client uses
    streams: bool
    facts: RequestFacts
    data: bytes  # the body as it was sent
    body: dict[str, Any]
    headers: Mapping[str, str]
    query: Mapping[str, str]
    as_array: bool = False  # a stream of Gemini as a JSON array instead of events

    @property
    def session_key(self) -> str | None:
        """What the client calls its conversation."""
        names = [self.headers.get(name) for name in _SESSION_HEADERS]
        # Other fields of a body name a user or a cache, which many conversations share.
        return next((name for name in names if name), self.facts.session_keys.get("metadata.user_id.session_id"))

    def read(self, provider: str) -> ModelRequest:
        """The conversation and settings; continuation data in them belongs to this provider."""
        body = {name: value for name, value in self.body.items() if name not in _RESOLVED}
        return read_request(self.format, body, provider=provider, model_id=self.model, is_parsed=True)


def client_request(format: str, request: Request, data: bytes) -> ClientRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not valid."""
    body = _json_object(data)
    if format == GEMINI and isinstance(whole := body.get("generateContentRequest"), dict):
        body = whole  # A count may contain the whole request.
    facts = request_facts(format, body)
    if format == GEMINI:
        model, _, method = request.path_params["call"].rpartition(":")
        streams = method == "streamGenerateContent"
        as_array = streams and request.query_params.get("alt") != "sse"
    else:
        model, streams, as_array = body.get("model"), bool(facts.stream), False
    if not isinstance(model, str) or not model:
        raise PartValidationError("The request names no model.", path="$.model")
    return ClientRequest(
        format=format,
        model=model,
        streams=streams,
        facts=facts,
        data=data,
        body=body,
        headers=request.headers,
        query=request.query_params,
        as_array=as_array,
    )


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(data)
        is_shallow = is_within(body, MAX_DEPTH)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PartValidationError("The body is not valid JSON.") from None
    if not isinstance(body, dict) or not is_shallow:
        raise PartValidationError(f"The body must be a JSON object, nested at most {MAX_DEPTH} levels deep.")
    return body


def presented_keys(request: Request) -> Iterator[str]:
    """The keys that a request presents, in any of the places that clients put them."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for name in _KEY_HEADERS:
        if name in request.headers:
            yield request.headers[name].strip()
    if "key" in request.query_params:
        yield request.query_params["key"]


# The codes of what is refused here, as those of a provider that would refuse it.
_CODES = {
    ErrorCode.INVALID_VALUE: ErrorCode.INVALID_REQUEST,
    ErrorCode.MISSING_FIELD: ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_KIND: ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_CONFIG: ErrorCode.INVALID_REQUEST,
}
_STATUSES = {413: ErrorCode.REQUEST_TOO_LARGE}
_RAW_CODES = {"$.previous_response_id": "previous_response_not_found"}  # OpenAI's codes, by the path of what is refused


def failure_of(error: BartackError | HttpError) -> Failed:
    """The error as a provider would report it."""
    if isinstance(error, HttpError):
        return Failed(_STATUSES.get(error.status, ErrorCode.INVALID_REQUEST), error.message)
    delay_ms = error.retry_after_ms if isinstance(error, ModelError) else None
    code = _CODES.get(error.code, error.code)
    raw_code = _RAW_CODES.get(error.path) if isinstance(error, PartValidationError) else None
    return Failed(code, str(error), retryable=error.retryable, retry_after_ms=delay_ms, raw_code=raw_code)


def error_in(format: str, failed: Failed) -> ErrorResponse:
    """The error in the words of this format."""
    writer_type = format_named(format).writer
    assert writer_type is not None, f"{format} is not a format of clients"
    return writer_type.error_response(failed)
