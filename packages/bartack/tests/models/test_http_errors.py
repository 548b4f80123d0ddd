"""HTTP error responses -> error codes and retry delays, for every vendor (001-4.1.12)."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bartack.formats.framing import FramingName
from bartack.models.http_errors import error_from_body, error_from_response, retry_delay_in
from bartack.nouns.errors import ErrorCode

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def code_of(status: int, body: object, headers: dict[str, str] | None = None) -> ErrorCode:
    return error_from_response(status, headers or {}, json.dumps(body).encode(), received_at=NOW).error_code


# The code of each recorded error response, by the end of its folder's name.
RECORDED = {
    "0-0b80fa": ErrorCode.INVALID_REQUEST,
    "0-80b9c7": ErrorCode.MODEL_NOT_FOUND,
    "0-0cafb6": ErrorCode.MODEL_NOT_FOUND,
    "0-389515": ErrorCode.MODEL_NOT_FOUND,
    "0-bc1b91": ErrorCode.AUTHENTICATION,
    "0-776942": ErrorCode.MODEL_NOT_FOUND,
    "0-69c92c": ErrorCode.INVALID_REQUEST,
    "0-7bd30b": ErrorCode.INVALID_REQUEST,
    "0-dd709a": ErrorCode.MODEL_NOT_FOUND,
    "0-abeeda": ErrorCode.AUTHENTICATION,
    "0-a9e01f": ErrorCode.MODEL_NOT_FOUND,
    "0-4de500": ErrorCode.MODEL_NOT_FOUND,
    "0-6e9613": ErrorCode.MODEL_NOT_FOUND,
    "0-4d3d19": ErrorCode.MODEL_NOT_FOUND,
    "2-3b293c": ErrorCode.MODEL_NOT_FOUND,
    "0-e955ad": ErrorCode.INVALID_REQUEST,
    "0-f849d5": ErrorCode.PERMISSION_DENIED,
    "0-e0c7e7": ErrorCode.MODEL_NOT_FOUND,
    "1-e8c169": ErrorCode.AUTHENTICATION,
    "0-87b211": ErrorCode.INVALID_REQUEST,
    "0-e3095b": ErrorCode.INVALID_REQUEST,
    "0-09af25": ErrorCode.MODEL_NOT_FOUND,
    "0-b16ef6": ErrorCode.MODEL_NOT_FOUND,
    "0-dfc2c6": ErrorCode.RATE_LIMITED,
    "0-e966c7": ErrorCode.RATE_LIMITED,
    "0-0c4d5b": ErrorCode.MODEL_NOT_FOUND,
    "0-65a995": ErrorCode.INVALID_REQUEST,
    "0-738614": ErrorCode.INVALID_REQUEST,
    "0-be55bd": ErrorCode.MODEL_NOT_FOUND,
}


def test_every_recorded_error_response_has_the_right_code(recordings: Path) -> None:
    codes = {}
    for meta_file in sorted(recordings.glob("*/*/meta.json")):
        status = json.loads(meta_file.read_text()).get("http_status") or 200
        if status < 400:
            continue
        folder = meta_file.parent
        failed = error_from_response(status, {}, (folder / "response.json").read_bytes(), received_at=NOW)
        codes[folder.name[-8:]] = failed.error_code
        assert failed.status == status
        assert failed.message
        assert not failed.message.startswith("{"), "the message, not the whole body"
        assert failed.retryable is (failed.error_code is ErrorCode.RATE_LIMITED)
    assert len(codes) >= len(RECORDED)
    assert {case: codes[case] for case in RECORDED} == RECORDED
    assert ErrorCode.PROVIDER_ERROR not in codes.values()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_REQUEST),
        (401, ErrorCode.AUTHENTICATION),
        (402, ErrorCode.QUOTA_EXCEEDED),
        (403, ErrorCode.PERMISSION_DENIED),
        (404, ErrorCode.MODEL_NOT_FOUND),
        (408, ErrorCode.TIMEOUT),
        (409, ErrorCode.SERVER_ERROR),
        (413, ErrorCode.REQUEST_TOO_LARGE),
        (418, ErrorCode.PROVIDER_ERROR),
        (422, ErrorCode.INVALID_REQUEST),
        (424, ErrorCode.SERVER_ERROR),
        (429, ErrorCode.RATE_LIMITED),
        (500, ErrorCode.SERVER_ERROR),
        (503, ErrorCode.OVERLOADED),
        (504, ErrorCode.TIMEOUT),
        (529, ErrorCode.OVERLOADED),
    ],
)
def test_a_status_alone_has_a_code(status: int, code: ErrorCode) -> None:
    assert error_from_response(status, {}, b"", received_at=NOW).error_code is code


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        # Anthropic
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
        (401, {"type": "error", "error": {"type": "authentication_error", "message": "bad key"}}, "authentication"),
        (413, {"type": "error", "error": {"type": "request_too_large", "message": "big"}}, "request_too_large"),
        (
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
            "context_overflow",
        ),
        (
            400,
            {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}},
            "quota_exceeded",
        ),
        # OpenAI and compatible vendors
        (
            429,
            {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "m"}},
            "quota_exceeded",
        ),
        (429, {"error": {"code": "rate_limit_exceeded", "type": "tokens", "message": "m"}}, "rate_limited"),
        (400, {"error": {"code": "context_length_exceeded", "message": "m"}}, "context_overflow"),
        (
            400,
            {"error": {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            "content_filter",
        ),
        (404, {"error": {"code": "DeploymentNotFound", "message": "no such deployment"}}, "model_not_found"),
        (500, {"error": {"type": "server_error", "message": "oops"}}, "server_error"),
        (503, {"error": {"type": "server_error", "message": "oops"}}, "overloaded"),
        (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}, "quota_exceeded"),
        # Google
        (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}, "rate_limited"),
        (503, [{"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}], "overloaded"),
        (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}}, "permission_denied"),
        # Bedrock, in the body
        (429, {"__type": "com.amazon.coral#ThrottlingException", "message": "Too many requests"}, "rate_limited"),
        # Mistral, Cohere, xAI, Ollama, Hugging Face, FastAPI, vLLM
        (
            422,
            {"detail": [{"loc": ["body", "messages"], "msg": "field required", "type": "missing"}]},
            "invalid_request",
        ),
        (
            400,
            {"object": "error", "message": "Expected last role", "type": "invalid_request_message_order"},
            "invalid_request",
        ),
        (404, {"message": "model 'x' not found, make sure the correct model ID was used"}, "model_not_found"),
        (
            400,
            {"code": "Client specified an invalid argument", "error": "Incorrect API key provided"},
            "authentication",
        ),
        (404, {"error": "model 'x' not found"}, "model_not_found"),
        (401, {"error": "Invalid username or password."}, "authentication"),
        (401, {"detail": "Not authenticated"}, "authentication"),
        (400, {"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "invalid_request"),
        # a status without a body
        (418, {}, "provider_error"),
        (599, {}, "server_error"),
    ],
)
def test_error_bodies_and_statuses_of_the_vendors(status: int, body: object, code: str) -> None:
    assert code_of(status, body) == code


def test_bedrock_reports_the_kind_of_error_in_a_header() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/coral/"}
    failed = error_from_response(400, headers, b'{"message":"slow down"}', received_at=NOW)
    assert failed.error_code is ErrorCode.RATE_LIMITED
    assert failed.raw_code == "ThrottlingException"


def test_the_message_of_an_upstream_is_included() -> None:
    raw = json.dumps({"error": {"message": "prompt is too long", "status": "INVALID_ARGUMENT"}})
    body = {"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}}}
    failed = error_from_response(400, {}, json.dumps(body).encode(), received_at=NOW)
    assert failed.message == "Provider returned error: prompt is too long"
    assert failed.error_code is ErrorCode.CONTEXT_OVERFLOW


@pytest.mark.parametrize("piece", [b"<title>", b"<title> ", b"<", b"[", b'{"error":', b"retry in ", b"1s"])
def test_a_million_bytes_are_read_in_linear_time(piece: bytes) -> None:
    """In quadratic time this would take hours, on the event loop."""
    body = piece * (1_000_000 // len(piece))
    assert len(error_from_response(502, {}, body, received_at=NOW).message) <= 2000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "HTTP 502"),
        (b"<Title>\n a b\n</TITLE><title>c</title>", "a b"),
        (b"<title>a", "<title>a"),
        (b"<html><head><title>502 Bad Gateway</title></head></html>", "502 Bad Gateway"),
        (b"upstream connect error", "upstream connect error"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 100_000, "[" * 2000),
        (b'{"error":{"message":""}}', '{"error":{"message":""}}'),
    ],
)
def test_bodies_that_are_not_json_have_a_message(body: bytes, message: str) -> None:
    failed = error_from_response(502, {}, body, received_at=NOW)
    assert failed.error_code is ErrorCode.SERVER_ERROR
    assert failed.message == message


def test_a_redirect_is_reported_with_the_reason() -> None:
    failed = error_from_response(307, {"location": "https://elsewhere.example/"}, b"", received_at=NOW)
    assert "redirects are not followed" in failed.message
    assert not failed.retryable


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "1234", "retry-after": "9"}, 1234),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30_000),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30"}, 30_000),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "1e308"}, None),
        ({"retry-after": "-1e308"}, None),
        ({"retry-after-ms": "1e300", "retry-after": "9"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}, None),
        ({}, None),
    ],
)
def test_retry_delay_in_headers(headers: dict[str, str], wait: int | None) -> None:
    assert error_from_response(429, headers, b"{}", received_at=NOW).retry_after_ms == wait


def test_retry_delay_in_the_body() -> None:
    google = {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}]}}
    assert error_from_response(429, {}, json.dumps(google).encode(), received_at=NOW).retry_after_ms == 17_500
    reset = str(int(NOW.timestamp() * 1000) + 4000)
    router = {"error": {"code": 429, "message": "m", "metadata": {"headers": {"X-RateLimit-Reset": reset}}}}
    assert error_from_response(429, {}, json.dumps(router).encode(), received_at=NOW).retry_after_ms == 4000


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Rate limit reached. Please try again in 1.242s. Visit https://x", 1242),
        ("Please try again in 6m0s.", 360_000),
        ("try again in 250ms", 250),
        ("Please retry after 20 seconds", 20_000),
        ("retry in 1h2m3s", 3_723_000),
        ("retry after 300 milliseconds", 300),
        ("try again in a while", None),
        ("try again later", None),
        ("try again in 5 parsecs", None),
        ("try again in .... s", None),
        (f"try again in 1{'0' * 307}h", None),
    ],
)
def test_retry_delay_in_the_message(text: str, wait: int | None) -> None:
    assert retry_delay_in(text) == wait


def test_x_should_retry_overrides_the_default() -> None:
    assert not error_from_response(500, {"x-should-retry": "false"}, b"{}", received_at=NOW).retryable
    assert error_from_response(400, {"x-should-retry": "true"}, b"{}", received_at=NOW).retryable
    assert error_from_response(500, {}, b"{}", received_at=NOW).retryable


@pytest.mark.parametrize(
    ("framing", "content_type", "body", "content"),
    [
        ("sse", "text/event-stream", b"data: {}", None),
        ("sse", "application/json", b'{"a": 1}', "JSON"),
        ("ndjson", "application/x-ndjson", b'{"a": 1}', None),
        ("ndjson", "application/json", b'{"a": 1}', "JSON"),
        ("json-array", "application/json", b'[{"a": 1}]', None),
        ("json-array", "text/html", b"<!doctype html><html>", "HTML"),
        ("sse", "text/plain", b"no such path", "text"),
    ],
)
def test_a_body_that_is_not_a_stream_is_named(
    framing: FramingName, content_type: str, body: bytes, content: str | None
) -> None:
    failed = error_from_body(200, {"content-type": content_type}, body, framing, host="example.org", received_at=NOW)
    assert (failed is None) == (content is None)
    assert failed is None or f"example.org responded with {content} instead of a stream" in failed.message
