"""`Noun`: the base of all of Bartack's values.

Nouns are immutable and compare by value. `extra` keeps the keys of a JSON object that this version does not define, so
that reading and writing data from a newer version loses nothing.
"""

from typing import Any

from msgspec import Struct

__all__ = ["Noun"]


class Noun(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """An immutable value that keeps unknown keys."""

    extra: dict[str, Any] | None = None
