"""Ids: UUIDv7 from a given time and given random bits, and stable UUIDs derived from other ids."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

__all__ = ["as_uuid", "derived_id", "is_uuid", "uuid7"]

# The namespace of all derived ids. A random UUID; changing it would change every derived id.
_NAMESPACE = UUID("5f1b6a52-0c4e-4d0e-9f2b-6f0d3a9b7c11")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7(timestamp: datetime, random: int) -> str:
    """A UUIDv7 (RFC 9562 §5.7) from the milliseconds of `timestamp` and 74 bits of `random`. Ids sort by time."""
    ms = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    high, low = (random >> 62) & 0xFFF, random & (1 << 62) - 1
    return str(UUID(int=(ms & (1 << 48) - 1) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def is_uuid(text: str) -> bool:
    """Whether it is a UUID in its usual form."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def as_uuid(foreign: str) -> str:
    """The id itself if it is a UUID, or the UUIDv5 derived from it (D-7.3)."""
    try:
        return str(UUID(foreign))
    except ValueError:
        return str(uuid5(_NAMESPACE, foreign))


def derived_id(parent: str, name: str | int) -> str:
    """A stable id for something without one, derived from its parent and its name or index there."""
    return str(uuid5(UUID(as_uuid(parent)), str(name)))
