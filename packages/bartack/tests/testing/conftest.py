"""The tests use the loopback address: a proxy in the environment must not interfere."""

from tests.models.conftest import _no_proxies

__all__ = ["_no_proxies"]
