"""`Noun`: what every value of Bartack has in common.

Nouns are frozen and compare by value. `extra` holds the keys of a JSON object that this version of Bartack does not
know, so that reading and writing a newer version's value loses nothing.
"""

from typing import Any

from msgspec import Struct

__all__ = ["Noun"]


class Noun(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A frozen value with a place for unknown keys."""

    extra: dict[str, Any] | None = None
