"""An HTTP response that is not 2xx, or holds no stream -> the `Failed` that it means.

Vendors wrap their errors differently: an object or a string under `error`, a flat object, a list of one, a `detail`, or
the web page of a gateway in between. All of them contain a message, words for the kind of error, and sometimes when to
retry. `bartack.formats.error_codes` then decides on the code.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from bartack.formats.error_codes import classify, most_specific
from bartack.formats.framing import FramingName, sniff
from bartack.formats.framing.frame import BOM
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode

__all__ = ["error_from_body", "error_from_response", "retry_delay_in", "suggested_base_url"]

_MAX_MESSAGE_CHARS = 2000  # some servers return a web page, or repeat the whole request
# How much of a body that is not an error is quoted.
_MAX_EXCERPT_CHARS = 200
_TITLE = re.compile(r"<title>", re.IGNORECASE)
_TITLE_END = re.compile(r"</title>", re.IGNORECASE)
# "Please try again in 1.242s", "try again in 6m0s", "retry in 250ms", "Please retry after 20 seconds"
_DELAY = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+([\d.]+\s*[a-z]+(?:\s*[\d.]+\s*[a-z]+)*)", re.IGNORECASE)
_DURATION = re.compile(r"([\d.]+)\s*(milli|ms|[hms])", re.IGNORECASE)
_MAX_DELAY_MS = 1e12  # 31 years: nothing that a server means
_UNIT_MS = {"milli": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

_VERSION = re.compile(r"/v\d+\w*(?=/|$)")
_OPENAI_PATHS = ("/chat/completions", "/responses")  # their version is part of the base URL

_MESSAGE_KEYS = ("message", "Message", "error", "detail", "msg")
# Keys for the kind of error, most specific first. Bedrock uses `__type`, or the header x-amzn-errortype.
_KIND_KEYS = ("code", "type", "status", "error_type", "__type", "reason")


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, received_at: datetime) -> Failed:
    """The error that a response reports. Header names are in lower case; `now` is for delays given as a date."""
    objects = list(_objects(_json(body)))
    message = _message(objects, body) or f"HTTP {status}"
    raw_code = most_specific(list(_kinds(objects, headers)))
    code = classify(status, raw_code, message)
    if code is ErrorCode.PROVIDER_ERROR and 300 <= status < 400:
        message = f"HTTP {status}: redirects are not followed, to keep the API key from another host."
    # See _base_client.py of openai-python and anthropic.
    should_retry = headers.get("x-should-retry")
    return Failed(
        code,
        message,
        retryable=code.retryable if should_retry is None else should_retry == "true",
        status=status,
        retry_after_ms=_retry_delay(headers, objects, message, received_at),
        raw_code=raw_code,
    )


def error_from_body(
    status: int, headers: Mapping[str, str], head: bytes, framing: FramingName, *, host: str, received_at: datetime
) -> Failed | None:
    """The error for a 2xx response that holds something other than a stream; None if it may be a stream.

    `head` is the beginning of the body. Content types are not reliable: streams are also sent as text/plain or
    application/json, so they only decide where the first bytes do not.
    """
    head = head.removeprefix(BOM).strip()
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    content = _other_content(head, content_type, framing)
    if content is None:
        return None
    if content == "JSON" and any("error" in fields for fields in _objects(_json(head))):
        failed = error_from_response(status, headers, head, received_at=received_at)
        if failed.error_code is not ErrorCode.PROVIDER_ERROR:
            return failed
    excerpt = " ".join(_message(list(_objects(_json(head))), head).split())
    if len(excerpt) > _MAX_EXCERPT_CHARS:
        excerpt = f"{excerpt[:_MAX_EXCERPT_CHARS]}..."
    message = f"{host} responded with {content} instead of a stream: {excerpt}"
    return Failed(ErrorCode.STREAM_MALFORMED, message, retryable=False, status=status)


def suggested_base_url(base_url: str, path: str) -> str | None:
    """The base URL that was probably meant, if this one lacks or repeats the version of the API."""
    version = _VERSION.search(path)
    if version is not None:
        prefix = path[: version.end()]
        return base_url.removesuffix(prefix) if base_url.endswith(prefix) else None
    return f"{base_url}/v1" if path in _OPENAI_PATHS and not _VERSION.search(base_url) else None


def retry_delay_in(message: str) -> int | None:
    """The delay in milliseconds that a message specifies, or None."""
    match = _DELAY.search(message)
    return None if match is None else _milliseconds(match[1])


# -- the body


def _other_content(head: bytes, content_type: str, framing: FramingName) -> str | None:
    """What a body is that is not a stream in this framing; None if it may be one."""
    if head.startswith(b"<"):
        return "HTML" if b"<html" in head[:1000].lower() or content_type == "text/html" else "XML"
    if head.startswith((b"{", b"[")):
        is_stream = framing == "json-array" or (framing == "ndjson" and content_type != "application/json")
        return None if is_stream else "JSON"
    is_text = head and sniff(head) is None and content_type in ("text/html", "text/plain", "application/json")
    return "text" if is_text else None


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _objects(value: Any, depth: int = 6) -> Iterator[dict[str, Any]]:
    """Every object that may describe the error, outermost first."""
    if depth == 0:
        return
    if isinstance(value, list):
        for item in value[:8]:
            yield from _objects(item, depth - 1)
    elif isinstance(value, dict):
        yield value
        for key in ("error", "errors", "details", "innererror", "metadata", "raw", "detail"):
            inner = value.get(key)
            # The upstream's body as text: openrouter-chat/...x_ai_grok_4-object_streaming--0-738614
            if key == "raw" and isinstance(inner, str):
                inner = _json(inner.encode()) or {"message": inner}
            yield from _objects(inner, depth - 1)


def _message(objects: list[dict[str, Any]], body: bytes) -> str:
    texts: list[str] = []
    for fields in objects:
        for key in _MESSAGE_KEYS:
            text = fields.get(key)
            if isinstance(text, str) and text.strip() and text not in texts:
                texts.append(text.strip())
    if texts:
        # An inner message adds the cause when the outer one only reports that an upstream failed.
        return ": ".join(texts[:3])[:_MAX_MESSAGE_CHARS]
    text = body.decode("utf-8", "replace").strip()
    title = _TITLE.search(text)
    end = None if title is None else _TITLE_END.search(text, title.end())
    return (text if title is None or end is None else text[title.end() : end.start()].strip())[:_MAX_MESSAGE_CHARS]


def _kinds(objects: list[dict[str, Any]], headers: Mapping[str, str]) -> Iterator[str]:
    for fields in reversed(objects):  # the innermost is the most specific
        for key in _KIND_KEYS:
            kind = fields.get(key)
            if isinstance(kind, str) and kind and kind != "error":
                yield kind.rpartition("#")[2]  # Smithy writes namespace#ErrorName
    if header := headers.get("x-amzn-errortype"):
        yield header.partition(":")[0].rpartition("#")[2]


# -- when to retry


def _retry_delay(
    headers: Mapping[str, str], objects: list[dict[str, Any]], message: str, received_at: datetime
) -> int | None:
    for delay in (
        _delay_in_headers(headers, received_at),
        _delay_in_body(objects, received_at),
        retry_delay_in(message),
    ):
        if delay is not None:
            return max(delay, 0)
    return None


def _delay_in_headers(headers: Mapping[str, str], received_at: datetime) -> int | None:
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return _whole_ms(exact)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return _whole_ms(seconds * 1000)
    if value is None:
        return None
    try:
        retry_at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return _whole_ms(
        ((retry_at if retry_at.tzinfo else retry_at.replace(tzinfo=UTC)) - received_at).total_seconds() * 1000
    )


def _delay_in_body(objects: list[dict[str, Any]], received_at: datetime) -> int | None:
    for fields in objects:
        delay = fields.get("retryDelay")  # "17s" in google.rpc.RetryInfo
        if isinstance(delay, str):
            return _milliseconds(delay)
        # Milliseconds since 1970: openrouter-chat/...deepseek_r1_0528_qwen3_8b_free-streaming--0-dfc2c6
        headers = fields.get("headers")
        reset = _number(headers.get("X-RateLimit-Reset")) if isinstance(headers, dict) else None
        if reset is not None:
            return _whole_ms(reset - received_at.timestamp() * 1000)
    return None


def _milliseconds(text: str) -> int | None:
    durations = [(_number(count), unit.lower()) for count, unit in _DURATION.findall(text)]
    durations_ms = [count * _UNIT_MS[unit] for count, unit in durations if count is not None]
    return _whole_ms(sum(durations_ms)) if durations_ms else None


def _whole_ms(delay: float) -> int | None:
    """A delay in whole milliseconds; None if it is longer than anyone waits."""
    return round(delay) if abs(delay) < _MAX_DELAY_MS else None


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
