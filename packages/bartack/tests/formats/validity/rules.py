"""Rules shared by several formats, for `tests.formats.validity.checks`."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]

NAME = r"[a-zA-Z0-9_-]{1,64}"  # tool names, at OpenAI, Anthropic and Amazon alike
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def is_blank(text: Any) -> bool:
    """Whether this is not text, or text without a visible character."""
    return not isinstance(text, str) or not text.strip()


def missing(value: Any, keys: Sequence[str], path: str) -> Iterator[str]:
    """The missing required keys of an object; a fault if it is not an object."""
    if not isinstance(value, dict):
        yield f"{path} is not an object"
        return
    for key in keys:
        if value.get(key) is None:
            yield f"{path}.{key} is missing"


def not_matching(pattern: str, text: Any, path: str) -> Iterator[str]:
    """A fault unless the whole text matches."""
    if not isinstance(text, str) or re.fullmatch(pattern, text) is None:
        yield f"{path}: {text!r} does not match {pattern}"


def not_base64(text: Any, path: str) -> Iterator[str]:
    """A fault unless this is base64 of at least one byte. Recordings abbreviate long data with dots."""
    if not isinstance(text, str) or not text:
        yield f"{path} is not base64"
        return
    try:
        b64decode(text, altchars="-_" if "-" in text or "_" in text else None, validate=True)
    except binascii.Error:
        yield f"{path} is not base64"


def not_fetchable(url: Any, path: str, schemes: tuple[str, ...] = ("https://", "http://")) -> Iterator[str]:
    """A fault unless the URL has one of these schemes."""
    if not isinstance(url, str) or not url.startswith(schemes):
        yield f"{path}: {url!r} is not a URL that the provider can fetch"


def not_an_address(url: Any, path: str, inline: frozenset[str] = PICTURES) -> Iterator[str]:
    """A fault unless this is a data URL of one of these types, or a web URL."""
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        mime_type = head.removeprefix("data:").removesuffix(";base64")
        if mime_type not in inline:
            yield f"{path}: {mime_type!r} is not accepted inline"
        yield from not_base64(data, path)
    else:
        yield from not_fetchable(url, path)


def twice(ids: Sequence[Any], path: str) -> Iterator[str]:
    """Ids that occur more than once."""
    for repeated in sorted({str(repeated) for repeated in ids if ids.count(repeated) > 1}):
        yield f"{path}: {repeated!r} twice"
