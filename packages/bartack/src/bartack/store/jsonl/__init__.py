"""A store as a folder of JSON StoredLines files, for people who want to read their sessions with other tools.

The path of an append: `JsonlStore` runs it in the writer thread under the folder's lock, `SessionFile` writes the lines
and syncs each file once per group.
"""

from bartack.store.jsonl.store import JsonlStore

__all__ = ["JsonlStore"]
