"""A store as one SQLite file."""

from bartack.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
