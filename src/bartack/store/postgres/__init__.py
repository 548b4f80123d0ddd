"""A store on a PostgreSQL server."""

from bartack.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
