"""Fixtures that the tests of stores and of agents share."""

from tests.store.conftest import fast_path, postgres_schemas

__all__ = ["fast_path", "postgres_schemas"]
