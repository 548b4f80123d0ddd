"""An HTTP response that is not 2xx -> the `Failed` that it means.

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
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode

__all__ = ["error_from_response", "retry_delay_in"]

_MAX_MESSAGE_CHARS = 2000  # some servers return a web page, or repeat the whole request
_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
# "Please try again in 1.242s", "try again in 6m0s", "retry in 250ms", "Please retry after 20 seconds"
_DELAY = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+([\d.]+\s*[a-z]+(?:\s*[\d.]+\s*[a-z]+)*)", re.IGNORECASE)
_DURATION = re.compile(r"([\d.]+)\s*(milli|ms|[hms])", re.IGNORECASE)
_UNIT_MS = {"milli": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

_MESSAGE_KEYS = ("message", "Message", "error", "detail", "msg")
# Keys for the kind of error, most specific first. Bedrock uses `__type`, or the header x-amzn-errortype.
_KIND_KEYS = ("code", "type", "status", "error_type", "__type", "reason")


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> Failed:
    """The error that a response reports. Header names are in lower case; `now` is for delays given as a date."""
    objects = list(_objects(_json(body)))
    message = _message(objects, body) or f"HTTP {status}"
    raw_code = most_specific(list(_kinds(objects, headers)))
    code = classify(status, raw_code, message)
    if code is ErrorCode.PROVIDER_ERROR and 300 <= status < 400:
        message = f"HTTP {status}: redirects are not followed, to keep the API key from another host."
    should_retry = headers.get("x-should-retry")  # as in _base_client.py of openai-python and anthropic
    return Failed(
        code,
        message,
        retryable=code.retryable if should_retry is None else should_retry == "true",
        status=status,
        retry_after_ms=_retry_delay(headers, objects, message, now),
        raw_code=raw_code,
    )


def retry_delay_in(message: str) -> int | None:
    """The delay in milliseconds that a message specifies, or None."""
    found = _DELAY.search(message)
    return None if found is None else _milliseconds(found[1])


# -- the body


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
    found: list[str] = []
    for one in objects:
        for key in _MESSAGE_KEYS:
            text = one.get(key)
            if isinstance(text, str) and text.strip() and text not in found:
                found.append(text.strip())
    if found:
        # An inner message adds the cause when the outer one only reports that an upstream failed.
        return ": ".join(found[:3])[:_MAX_MESSAGE_CHARS]
    text = body.decode("utf-8", "replace").strip()
    title = _TITLE.search(text)
    return (title[1] if title else text)[:_MAX_MESSAGE_CHARS]


def _kinds(objects: list[dict[str, Any]], headers: Mapping[str, str]) -> Iterator[str]:
    for one in reversed(objects):  # the innermost is the most specific
        for key in _KIND_KEYS:
            kind = one.get(key)
            if isinstance(kind, str) and kind and kind != "error":
                yield kind.rpartition("#")[2]  # Smithy writes namespace#ErrorName
    if header := headers.get("x-amzn-errortype"):
        yield header.partition(":")[0].rpartition("#")[2]


# -- when to retry


def _retry_delay(headers: Mapping[str, str], objects: list[dict[str, Any]], message: str, now: datetime) -> int | None:
    for delay in (_delay_in_headers(headers, now), _delay_in_body(objects, now), retry_delay_in(message)):
        if delay is not None:
            return max(delay, 0)
    return None


def _delay_in_headers(headers: Mapping[str, str], now: datetime) -> int | None:
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return round(exact)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return round(seconds * 1000)
    if value is None:
        return None
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return round(((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds() * 1000)


def _delay_in_body(objects: list[dict[str, Any]], now: datetime) -> int | None:
    for one in objects:
        delay = one.get("retryDelay")  # "17s" in google.rpc.RetryInfo
        if isinstance(delay, str):
            return _milliseconds(delay)
        # Milliseconds since 1970: openrouter-chat/...deepseek_r1_0528_qwen3_8b_free-streaming--0-dfc2c6
        headers = one.get("headers")
        reset = _number(headers.get("X-RateLimit-Reset")) if isinstance(headers, dict) else None
        if reset is not None:
            return round(reset - now.timestamp() * 1000)
    return None


def _milliseconds(text: str) -> int | None:
    durations = [(_number(count), unit.lower()) for count, unit in _DURATION.findall(text)]
    known = [count * _UNIT_MS[unit] for count, unit in durations if count is not None]
    return round(sum(known)) if known else None


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
