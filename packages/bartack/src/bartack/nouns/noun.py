"""`Noun`: the base of all of Bartack's values.

Nouns are immutable and compare by value. `extra` keeps the keys of a JSON object that this version does not define, so
that reading and writing data from a newer version loses nothing.

msgspec reads and writes most nouns itself (`bartack.nouns.native`), so they have the key names of the canonical JSON.
It refuses unknown keys, which `bartack.nouns.wire` then reads. A key named ``extra`` is unknown too: at run time, the
field has a type that no JSON value has.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

__all__ = ["Extra", "Noun"]

if TYPE_CHECKING:
    Extra = dict[str, Any] | None
else:

    class Extra:
        """The type of `Noun.extra` for msgspec: no value of it can be read."""


class Noun(
    Struct,
    frozen=True,
    kw_only=True,
    repr_omit_defaults=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """An immutable value that keeps unknown keys."""

    extra: Extra = None
