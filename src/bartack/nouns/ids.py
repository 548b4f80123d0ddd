"""Ids: UUIDs of version 7 made from a given time and given random bits, and stable ones made from foreign ids."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

__all__ = ["as_uuid", "derived_id", "uuid7"]

# The namespace of every id that Bartack derives; itself a random UUID, fixed for good.
_NAMESPACE = UUID("5f1b6a52-0c4e-4d0e-9f2b-6f0d3a9b7c11")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7(now: datetime, random: int) -> str:
    """A UUIDv7 (RFC 9562 §5.7): milliseconds of `now`, then 74 bits of `random`. Later ones sort later as text."""
    ms = (now - _EPOCH) // timedelta(milliseconds=1)
    high, low = (random >> 62) & 0xFFF, random & (1 << 62) - 1
    return str(UUID(int=(ms & (1 << 48) - 1) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def as_uuid(foreign: str) -> str:
    """The id itself if it is a UUID, else a UUIDv5 that is always the same for it (D-7.3)."""
    try:
        return str(UUID(foreign))
    except ValueError:
        return str(uuid5(_NAMESPACE, foreign))


def derived_id(parent: str, name: str | int) -> str:
    """The id of something that has none, by what holds it and its place or name there."""
    return str(uuid5(UUID(as_uuid(parent)), str(name)))
