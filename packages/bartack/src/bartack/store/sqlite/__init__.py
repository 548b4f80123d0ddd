"""A store as one SQLite file: the default.

The path of an append: `SqliteStore` hands it to the writer thread, which runs everything pending in one transaction
under the write lock (`store`); `tables` looks up what exists and inserts; the commit waits for the disk (`file` has the
settings). The triggers of `schema` refuse what no program may do.
"""

from bartack.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
