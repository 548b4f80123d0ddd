"""`Endpoint`: one row per route of the API. Routes and the OpenAPI document are both made from the rows.

A handler gets a `Call`: the service, the user, the decoded body. It returns a response, or a value that becomes JSON. A
`BartackError` that it raises becomes an error response; see `STATUSES`.

    async def abort(call: Call) -> Any: ...

    ABORT = Endpoint("POST", "/api/sessions/{session:path}/abort", abort, "End the open run.", body=AbortBody)
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, QueueFull, SessionInUse
from bartack.nouns.json_values import MAX_DEPTH, is_within
from bartack_server.web.access import User
from bartack_server.web.service import SessionService

__all__ = [
    "MAX_BODY",
    "MAX_MESSAGE_BODY",
    "MAX_NUMBER",
    "PAGE",
    "POSITION",
    "SESSION_PAGE",
    "Call",
    "Endpoint",
    "HttpError",
    "Query",
    "error_response",
    "json_response",
    "limited_body",
]

MAX_BODY = 1_000_000  # bytes
MAX_MESSAGE_BODY = 30_000_000  # a message contains its attachments
_MAX_PAGE = 200
MAX_NUMBER = 2**53
POSITION = r"^([0-9]{1,18}|[^:\x00-\x20]+:[0-9]{1,18}:-?[0-9]{1,18}(:[0-9]{1,18})?)?$"
_JSON_TEXT = r'"([^"\\\x00-\x1f]|\\["\\])*"'
SESSION_CURSOR = rf"^(\[{_JSON_TEXT},{_JSON_TEXT}\])?$"
_BODY_S = 10.0  # until the body has arrived, for a small one
_BODY_BYTES_PER_S = 100_000  # a poor mobile connection


STATUSES = {
    ErrorCode.INVALID_VALUE: 400,
    ErrorCode.MISSING_FIELD: 400,
    ErrorCode.UNKNOWN_KIND: 400,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.TOOL_BAD_ARGUMENTS: 400,
    ErrorCode.TOOL_DENIED: 409,
    ErrorCode.NOT_ADOPTED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.MISSING_CREDENTIALS: 400,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.QUEUE_FULL: 503,
    ErrorCode.STORAGE_FAILED: 503,
}


class HttpError(Exception):
    """A request that is refused before it reaches a handler."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class Query(NamedTuple):
    """A query parameter, for the OpenAPI document."""

    name: str
    description: str
    type: str = "string"
    minimum: int | None = None
    maximum: int | None = None
    is_required: bool = False
    pattern: str | None = None
    format: str | None = None


_LIMIT = Query("limit", "How many items to return at most; by default 50.", "integer", 1, _MAX_PAGE)
PAGE = (_LIMIT, Query("cursor", "The cursor of the last page.", "integer", 0, MAX_NUMBER))
SESSION_PAGE = (_LIMIT, Query("cursor", "The cursor of the last page.", pattern=SESSION_CURSOR))


class Endpoint(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    handle: Callable[["Call"], Awaitable[Any]]
    summary: str
    body: Any = None  # the type of the body: a struct, or a union of them
    query: tuple[Query, ...] = ()
    items: str | None = None  # the noun in its pages
    media_type: str | None = "application/json"  # None: the response has no body
    result: Literal["object", "array"] = "object"  # the type of its JSON
    max_body: int = MAX_BODY
    is_public: bool = False  # without a token
    empty: str | None = None  # what status 204 means, if it is not the only one


@dataclass(frozen=True)
class Call:
    """One request to an endpoint."""

    request: Request
    service: SessionService
    user: User
    body: Any = None

    @property
    def session_id(self) -> str:
        """The session in the path; `NotFound` if it is not the user's."""
        session_id: str = self.request.path_params["session"]
        self.service.check_access(self.user, session_id)
        return session_id

    def query(self, name: str) -> str | None:
        """A query parameter; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def number(self, name: str, default: int, *, minimum: int = 0, maximum: int = MAX_NUMBER) -> int:
        """A query parameter that is a number; `PartValidationError` if it is not, or out of range."""
        text = self.query(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 17 and minimum <= int(text) <= maximum):
            raise PartValidationError(f"{name} must be a number from {minimum} to {maximum}.", path=f"$.query.{name}")
        return int(text)

    @property
    def limit(self) -> int:
        """How many items a page may have."""
        return self.number("limit", 50, minimum=1, maximum=_MAX_PAGE)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_response(error: Exception) -> Response:
    """The error as JSON: ``{"error": {"code", "message", ...}}``."""
    if isinstance(error, HttpError):
        return json_response({"error": {"code": error.code, "message": error.message}}, error.status, error.headers)
    if not isinstance(error, BartackError):
        raise error
    details: dict[str, Any] = {"code": str(error.code), "message": error.message, "retryable": error.retryable}
    headers: dict[str, str] = {}
    if isinstance(error, PartValidationError):
        details["path"] = error.path
    if isinstance(error, SessionInUse):
        details["message"] = "A run is live in this session. Wait for its end, stop it, or queue the message."
        details["owner"] = error.owner
        details["expiresInS"] = round(error.expires_in_s, 1)
    if isinstance(error, QueueFull):
        details |= {"queued": error.queued, "limit": error.limit}
    if STATUSES.get(error.code) == 503:
        headers["retry-after"] = "2"
    return json_response({"error": details}, STATUSES.get(error.code, 500), headers)


async def read_body(request: Request, body: Any, max_bytes: int) -> Any:
    """The JSON body; `HttpError` or `PartValidationError` if it is not JSON, too large or invalid."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, "unsupported_media_type", "Send the body as application/json.")
    data = await limited_body(request, max_bytes)
    try:
        value = msgspec.json.decode(data)
        if not is_within(value, MAX_DEPTH):
            raise PartValidationError(f"The body is nested more than {MAX_DEPTH} levels deep.")
        return msgspec.convert(value, body)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise PartValidationError(message, path=path.strip("`") or "$") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PartValidationError(f"The body is not valid JSON: {error}") from None


async def limited_body(request: Request, max_bytes: int) -> bytes:
    """The whole body; `HttpError` if it is larger or incomplete."""
    too_large = HttpError(413, "request_too_large", f"The body is larger than {max_bytes:,} bytes.")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > max_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S + max_bytes / _BODY_BYTES_PER_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError:
        raise HttpError(408, "request_timeout", "The body took too long to arrive.") from None
    except ClientDisconnect:
        raise HttpError(400, "disconnected", "The body is incomplete.") from None
    return b"".join(chunks)
