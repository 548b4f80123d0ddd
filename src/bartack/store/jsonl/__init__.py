"""A store as a folder of JSON Lines files."""

from bartack.store.jsonl.store import JsonlStore

__all__ = ["JsonlStore"]
