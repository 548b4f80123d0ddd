"""A store on a PostgreSQL server, shared by programs on many machines.

The path of an append: `PostgresStore` queues it; one task commits everything pending in one transaction
(`group_commit`), in which `rows` looks up what exists and inserts. The commit returns once the server has it on disk
(`connection` refuses servers that do not wait). Followers are notified afterwards (`notifications`).
"""

from bartack.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
