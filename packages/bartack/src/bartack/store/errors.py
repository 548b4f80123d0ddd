"""The errors that several stores raise, worded once."""

from pathlib import Path

from bartack.nouns.entries import SessionHeader
from bartack.nouns.errors import ErrorCode, NotFound, StoreError

__all__ = [
    "entry_not_found_error",
    "invalid_value_error",
    "newer_schema_error",
    "newer_session_error",
    "not_writable_error",
    "session_not_found_error",
    "store_closed_error",
]


def invalid_value_error(message: str, cause: Exception | None = None) -> StoreError:
    """Input that no store can accept."""
    return StoreError(message, code=ErrorCode.INVALID_VALUE, cause=cause)


def session_not_found_error(session_id: str) -> NotFound:
    return NotFound(f"Session {session_id!r} does not exist.")


def entry_not_found_error(session_id: str, entry_id: str) -> NotFound:
    return NotFound(f"Entry {entry_id!r} does not exist in session {session_id!r}.")


def store_closed_error() -> StoreError:
    return StoreError("The store is closed.")


def not_writable_error(path: Path, cause: Exception) -> StoreError:
    """Missing permissions or a read-only file system, whichever way that was noticed."""
    return StoreError(
        f"{path} is not writable. Check the permissions of it and its folder, or use another store.", cause=cause
    )


def newer_session_error(session_id: str, version: int) -> StoreError:
    """A session written by a later version of Bartack, which may contain what this one would misread."""
    return StoreError(
        f"Session {session_id!r} has format version {version}, but this version of Bartack supports up to "
        f"{SessionHeader().version}. Upgrade Bartack.",
        code=ErrorCode.STORAGE_UNSUPPORTED,
    )


def newer_schema_error(place: object, version: int, supported: int) -> StoreError:
    return StoreError(
        f"{place} has schema version {version}, but this version of Bartack supports up to {supported}. "
        "Upgrade Bartack.",
        code=ErrorCode.STORAGE_UNSUPPORTED,
    )
