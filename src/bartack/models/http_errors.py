"""An HTTP answer that is not 2xx -> the `Failed` it means.

Every vendor wraps its refusals differently: an object under `error`, a text under `error`, a flat object, a list of
one, a `detail`, a web page of a gateway in between. What is wanted of all of them is the same: the message, the words
for the kind of error, and when to come back. `bartack.formats.faults` then says which code that is.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from bartack.formats.faults import classify, most_telling
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode

__all__ = ["error_from_response", "retry_delay_in"]

_LONGEST_MESSAGE = 2000  # a web page or a whole request repeated says nothing more after that
_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
# "Please try again in 1.242s", "try again in 6m0s", "retry in 250ms", "Please retry after 20 seconds"
_WAIT = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+([\d.]+\s*[a-z]+(?:\s*[\d.]+\s*[a-z]+)*)", re.IGNORECASE)
_SPAN = re.compile(r"([\d.]+)\s*(milli|ms|[hms])", re.IGNORECASE)
_UNIT_MS = {"milli": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

# Where a word for the kind of error may stand, most telling first. Bedrock names it in `__type` or in a header.
_WORD_KEYS = ("code", "type", "status", "error_type", "__type", "reason")


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> Failed:
    """What the provider meant. Header names are in small letters; `now` is for waits that are given as a date."""
    said = _json(body)
    told = list(_objects(said))
    message = _message(told, body) or f"HTTP {status}"
    words = [*_words(told), *_header_words(headers)]
    raw_code = most_telling(words)
    code = classify(status, raw_code, message)
    if code is ErrorCode.PROVIDER_ERROR and 300 <= status < 400:
        message = f"HTTP {status}: redirects are not followed, since a key must not travel to another address"
    should_retry = headers.get("x-should-retry")
    return Failed(
        code,
        message,
        retryable=code.retryable if should_retry is None else should_retry == "true",
        status=status,
        retry_after_ms=_wait(headers, told, message, now),
        raw_code=raw_code,
    )


def retry_delay_in(message: str) -> int | None:
    """The milliseconds after which a message says to try again, or None."""
    found = _WAIT.search(message)
    return None if found is None else _milliseconds(found[1])


# -- what the body says


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _objects(said: Any, depth: int = 6) -> Iterator[dict[str, Any]]:
    """Every object that may describe the error, the outermost first. OpenRouter puts its upstream's body in `raw`."""
    if depth == 0:
        return
    if isinstance(said, list):
        for item in said[:8]:
            yield from _objects(item, depth - 1)
    elif isinstance(said, dict):
        yield said
        for key in ("error", "errors", "details", "innererror", "metadata", "raw", "detail"):
            inner = said.get(key)
            if key == "raw" and isinstance(inner, str):
                inner = _json(inner.encode()) or {"message": inner}
            yield from _objects(inner, depth - 1)


def _message(told: list[dict[str, Any]], body: bytes) -> str:
    found: list[str] = []
    for one in told:
        for key in ("message", "Message", "error", "detail", "msg"):
            text = one.get(key)
            if isinstance(text, str) and text.strip() and text not in found:
                found.append(text.strip())
    if found:
        # The innermost adds the cause where the outermost says only that an upstream failed.
        return ": ".join(found[:3])[:_LONGEST_MESSAGE]
    text = body.decode("utf-8", "replace").strip()
    title = _TITLE.search(text)
    return (title[1] if title else text)[:_LONGEST_MESSAGE]


def _words(told: list[dict[str, Any]]) -> Iterator[str]:
    for one in reversed(told):  # the innermost is the most exact
        for key in _WORD_KEYS:
            word = one.get(key)
            if isinstance(word, str) and word and word != "error":
                yield word.rpartition("#")[2]  # Smithy writes namespace#ErrorName


def _header_words(headers: Mapping[str, str]) -> Iterator[str]:
    kind = headers.get("x-amzn-errortype")
    if kind:
        yield kind.partition(":")[0].rpartition("#")[2]


# -- when to come back


def _wait(headers: Mapping[str, str], told: list[dict[str, Any]], message: str, now: datetime) -> int | None:
    for found in (_header_wait(headers, now), _body_wait(told, now), retry_delay_in(message)):
        if found is not None:
            return max(found, 0)
    return None


def _header_wait(headers: Mapping[str, str], now: datetime) -> int | None:
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


def _body_wait(told: list[dict[str, Any]], now: datetime) -> int | None:
    for one in told:
        delay = one.get("retryDelay")  # Google's RetryInfo: "17s"
        if isinstance(delay, str):
            return _milliseconds(delay)
        headers = one.get("headers")  # OpenRouter repeats its upstream's: the moment in milliseconds since 1970
        reset = _number(headers.get("X-RateLimit-Reset")) if isinstance(headers, dict) else None
        if reset is not None:
            return round(reset - now.timestamp() * 1000)
    return None


def _milliseconds(text: str) -> int | None:
    spans = [(_number(count), unit.lower()) for count, unit in _SPAN.findall(text)]
    known = [count * _UNIT_MS[unit] for count, unit in spans if count is not None]
    return round(sum(known)) if known else None


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
