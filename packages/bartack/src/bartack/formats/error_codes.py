"""A provider's error, by status, code and message, to our `ErrorCode`.

Providers have little in common here, so the most specific information counts first: a message about a prompt that is
too long is a `context_overflow` whatever the status; then the provider's own code; then the HTTP status. For codes that
only distinguish client from server errors (`invalid_request_error`, `api_error`), message and status decide.
"""

import re
from collections.abc import Iterable

from bartack.nouns.errors import ErrorCode

__all__ = ["classify", "most_specific"]

_OVERFLOW = re.compile(
    r"(maximum|max|exceed\w*|too (long|large|many tokens)|longer than|over|larger than).{0,80}"
    r"(context|prompt|input token|token limit|sequence length|maximum (prompt|input|sequence))"
    r"|context[ _-]?(length|window|size).{0,60}(exceed|limit|maximum|overflow|too)"
    r"|(prompt|input|request|conversation) is too long|too many (input )?tokens|input length and `?max_tokens`? exceed"
    r"|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE | re.DOTALL,
)

# Errors that some providers report as an invalid request, recognised by their messages.
_BY_MESSAGE = (
    (re.compile(r"(incorrect|invalid) api key|api key (not valid|is invalid|expired)", re.I), ErrorCode.AUTHENTICATION),
    (re.compile(r"credit balance is too low|insufficient (balance|credits?|funds)", re.I), ErrorCode.QUOTA_EXCEEDED),
    (
        re.compile(r"model identifier is invalid|\bmodel\b[^\n]{0,80}(does not exist|not found|decommissioned)", re.I),
        ErrorCode.MODEL_NOT_FOUND,
    ),
)

_BY_CODE: dict[str, ErrorCode] = {
    raw: code
    for code, raw_codes in {
        ErrorCode.CONTEXT_OVERFLOW: "context_length_exceeded context_window_exceeded string_above_max_length",
        ErrorCode.AUTHENTICATION: (
            "authentication_error invalid_api_key unauthorized unauthenticated invalid_authentication"
            " unrecognizedclientexception expiredtokenexception incompletesignature invalid_token wrong_api_key"
            " api_key_invalid invalidsignatureexception authenticationerror"
        ),
        ErrorCode.PERMISSION_DENIED: "permission_error permission_denied forbidden accessdeniedexception",
        ErrorCode.MODEL_NOT_FOUND: (
            "not_found_error model_not_found not_found resourcenotfoundexception model_not_available"
            " model_decommissioned model_deprecated deploymentnotfound notfounderror"
        ),
        ErrorCode.QUOTA_EXCEEDED: (
            "insufficient_quota billing_error quota_exceeded billing_hard_limit_reached insufficient_balance"
            " servicequotaexceededexception payment_required"
        ),
        ErrorCode.RATE_LIMITED: (
            "rate_limit_error rate_limit_exceeded resource_exhausted throttlingexception too_many_requests tokens"
            " requests rate_limit rate_limit_reached token_quota_exceeded request_quota_exceeded"
            " too_many_requests_error"
        ),
        ErrorCode.OVERLOADED: (
            "overloaded_error overloaded unavailable serviceunavailableexception modelnotreadyexception"
            " engine_overloaded slow_down service_unavailable"
            " service_tier_capacity_exceeded queue_exceeded"
        ),
        ErrorCode.TIMEOUT: "timeout_error deadline_exceeded modeltimeoutexception timeout request_timeout",
        ErrorCode.SERVER_ERROR: (
            "api_error server_error internal_error internal internalserverexception internal_server_error"
            " modelstreamerrorexception model_stream_error modelerrorexception upstream_error"
        ),
        ErrorCode.CONTENT_FILTER: "content_filter content_policy_violation responsibleaipolicyviolation safety",
        ErrorCode.REQUEST_TOO_LARGE: "request_too_large payload_too_large",
        ErrorCode.INVALID_REQUEST: (
            "invalid_request_error invalid_request invalid_argument validationexception bad_request"
            " failed_precondition tool_use_failed invalid_prompt invalid_value unsupported_value"
            " badrequesterror invalid_request_message_order"
        ),
    }.items()
    for raw in raw_codes.split()
}

_BY_STATUS: dict[int, ErrorCode] = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.AUTHENTICATION,
    402: ErrorCode.QUOTA_EXCEEDED,
    403: ErrorCode.PERMISSION_DENIED,
    404: ErrorCode.MODEL_NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    409: ErrorCode.SERVER_ERROR,
    413: ErrorCode.REQUEST_TOO_LARGE,
    422: ErrorCode.INVALID_REQUEST,
    424: ErrorCode.SERVER_ERROR,
    429: ErrorCode.RATE_LIMITED,
    503: ErrorCode.OVERLOADED,
    504: ErrorCode.TIMEOUT,
    529: ErrorCode.OVERLOADED,
}


# Codes that only distinguish client from server errors.
_VAGUE = (None, ErrorCode.INVALID_REQUEST, ErrorCode.SERVER_ERROR)


def classify(status: int | None, raw_code: str | None, message: str) -> ErrorCode:
    """The code of a provider's error."""
    raw = (raw_code or "").lower().removesuffix(":")
    if status is None and re.fullmatch(r"[45]\d\d", raw):  # OpenRouter sends the HTTP status as the code
        status = int(raw)
    by_code = _BY_CODE.get(raw)
    if by_code in (None, ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TOO_LARGE) and _OVERFLOW.search(message):
        return ErrorCode.CONTEXT_OVERFLOW
    if by_code is not None and by_code not in _VAGUE:
        return by_code
    by_message = next((code for pattern, code in _BY_MESSAGE if pattern.search(message)), None)
    if by_message is not None and (status is None or status < 500):
        return by_message
    if status in _BY_STATUS and (by_code is None or status not in (400, 422)):
        return _BY_STATUS[status]
    if by_code is not None:
        return by_code
    if status is None:
        return ErrorCode.PROVIDER_ERROR
    return ErrorCode.SERVER_ERROR if status >= 500 else ErrorCode.PROVIDER_ERROR


def most_specific(raw_codes: Iterable[str]) -> str | None:
    """The most specific of the codes that a provider gave for one error; the first if none is known."""
    return min(raw_codes, key=lambda raw: _rank(_BY_CODE.get(raw.lower())), default=None)


def _rank(code: ErrorCode | None) -> int:
    if code not in _VAGUE:
        return 0
    return 1 if code is not None else 2
