"""What the writers of OpenAI's two formats share: errors, and the input of custom tools."""

from bartack.formats.response_writer import ErrorKind, ErrorResponse, WrittenCall, error_kind
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode

__all__ = ["custom_input", "openai_error"]

# The codes that OpenAI and its clients use. Codex retries server_error and rate_limit_exceeded, and stops at
# context_length_exceeded and insufficient_quota; an overload is a server_error, because it stops at that code, too.
_ERRORS: dict[ErrorCode, ErrorKind] = {
    ErrorCode.INVALID_REQUEST: (400, "invalid_request_error"),
    ErrorCode.CONTEXT_OVERFLOW: (400, "context_length_exceeded"),
    ErrorCode.CONTENT_FILTER: (400, "content_policy_violation"),
    ErrorCode.AUTHENTICATION: (401, "invalid_api_key"),
    ErrorCode.PERMISSION_DENIED: (403, "permission_denied"),
    ErrorCode.MODEL_NOT_FOUND: (404, "model_not_found"),
    ErrorCode.REQUEST_TOO_LARGE: (413, "request_too_large"),
    ErrorCode.QUOTA_EXCEEDED: (429, "insufficient_quota"),
    ErrorCode.RATE_LIMITED: (429, "rate_limit_exceeded"),
    ErrorCode.SERVER_ERROR: (500, "server_error"),
    ErrorCode.OVERLOADED: (503, "server_error"),
    ErrorCode.TIMEOUT: (504, "server_error"),
}


_NO_RESPONSE = "previous_response_not_found"  # clients send the whole history instead


def openai_error(failed: Failed) -> ErrorResponse:
    """OpenAI's response to a request that failed. Codex takes the delay of a rate limit from the message."""
    status, code = error_kind(failed, _ERRORS)
    message = failed.message or str(failed.error_code)
    if failed.error_code is ErrorCode.RATE_LIMITED and failed.retry_after_ms is not None:
        message = f"{message} Please try again in {failed.retry_after_ms / 1000:g}s."
    kind = "server_error" if status >= 500 else code if status == 429 else "invalid_request_error"
    param = None
    if failed.raw_code == _NO_RESPONSE:
        code, param = _NO_RESPONSE, "previous_response_id"
    return ErrorResponse(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def custom_input(call: WrittenCall) -> str:
    """The free text of a call of a custom tool, which models of other formats write as the argument `input`."""
    text = call.arguments.get("input")
    return text if isinstance(text, str) else call.text
