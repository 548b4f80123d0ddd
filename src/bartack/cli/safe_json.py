"""JSON that a terminal does not obey: a value in, its bytes out.

JSON itself escapes only the controls below U+0020. Those above, and the signs that turn the direction of reading, are
written as \\uXXXX too, which every reader takes for the same text.
"""

import json
from typing import Any

import msgspec

__all__ = ["json_bytes"]


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    """The value on one line, or with `indent` on many; without a line end."""
    data = msgspec.json.encode(value)
    text = data.decode()
    if not text.isprintable():
        # Outside of strings JSON is printable, so what is not stands inside of one.
        data = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text).encode()
    return data if indent is None else msgspec.json.format(data, indent=indent)
