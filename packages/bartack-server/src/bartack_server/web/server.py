"""`serve`: the application in a separate process, on uvicorn, which drains when it is asked to stop.

The first SIGTERM or SIGINT ends the live streams, starts no more runs and waits for live ones. The second suspends them
immediately. Either way, nothing is lost: the next server resumes open runs.
"""

import asyncio
import errno
import gc
import os
import signal
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from bartack.nouns.errors import BartackError, ErrorCode
from bartack_server.web.access import is_loopback, origin_of
from bartack_server.web.connections import ConnectionLimits, LimitedProtocol, LimitedState

__all__ = ["Address", "Drained", "bound_socket", "serve"]

_ANY = ("0.0.0.0", "::")  # every address of this machine, and the name of none
_GC_ALLOCATIONS = 20_000  # between two collections of new objects; the default is 700


class Drained(Protocol):
    """An ASGI application that ends its work before the server stops."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def drain(self) -> None:
        """End live streams, and give other work time to end."""

    def suspend(self) -> None:
        """End all work at once."""


class Address(NamedTuple):
    """Where a server listens, and how browsers reach it."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None  # the URL of a proxy that adds TLS, or of a development server on this machine
    reuse_port: bool = False  # other processes of this user may listen there as well

    def check(self) -> None:
        """Refuse an address that would send tokens and conversations unencrypted; `BartackError` says what to do
        instead.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise _option_error("TLS needs both a certificate and its key.")
        if self.public_url is not None:
            self._check_public_url(self.public_url)
        if self.is_loopback or self.tls_cert is not None or self.public_url is not None:
            return
        raise _option_error(
            f"Listening on {self.host} without TLS would send the token and every conversation in the clear. "
            "Pass a certificate and its key, or the https URL of a proxy in front of this server; "
            "or listen on 127.0.0.1 and use an SSH tunnel."
        )

    def _check_public_url(self, url: str) -> None:
        origin = origin_of(url) or ""
        is_local = self.is_loopback and is_loopback(origin.removeprefix("http://"))
        if not origin.startswith("https://") and not is_local:
            raise _option_error(f"Invalid public URL {url!r}: expected https://NAME, without a path.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def origins(self, port: int) -> list[str]:
        """The origins of the page, that to print first. They are also the names that Host may have."""
        if self.public_url is not None:
            return [origin_of(self.public_url) or ""]
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.is_loopback:
            names = [host, "localhost", "127.0.0.1", "[::1]"]
        else:
            names = [socket.gethostname()] if self.host in _ANY else [host, socket.gethostname()]
        default = {"http": 80, "https": 443}[scheme]
        suffix = "" if port == default else f":{port}"
        return [f"{scheme}://{name}{suffix}".lower() for name in dict.fromkeys(names)]


def bound_socket(address: Address) -> socket.socket:
    """A socket that listens there. `BartackError` if the address is unsafe, invalid or in use."""
    address.check()
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(
            (address.host, address.port), family=family, backlog=512, reuse_port=address.reuse_port
        )
    except ValueError:  # the system has no SO_REUSEPORT
        raise _option_error("Processes cannot share a port on this system.") from None
    except OSError as error:
        is_known = error.errno is not None and error.errno in errno.errorcode  # asyncio and getaddrinfo have their own
        reason = os.strerror(error.errno or 0) if is_known else error.strerror or error
        raise _option_error(f"Cannot listen on {address.host!r}, port {address.port}: {reason}.") from error


async def serve(app: Drained, address: Address, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=address.public_url is not None,
        timeout_graceful_shutdown=5,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=address.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise _option_error(f"Cannot use {address.tls_cert} with {address.tls_key} for TLS: {error}.") from error
    # Hundreds of live runs are many objects that stay. The default threshold has the collector look at them several
    # times a second, for an eighth of the CPU time of a busy server (bench/serve.py).
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS, *gc.get_threshold()[1:])
    # All connections of a proxy have its address.
    limits = ConnectionLimits() if address.public_url is None else ConnectionLimits(per_address=None)
    await _Server(config, app, on_ready, limits).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Drains before it stops accepting connections, so that streams end properly and requests get an answer."""

    def __init__(
        self, config: uvicorn.Config, app: Drained, on_ready: Callable[[], None], limits: ConnectionLimits
    ) -> None:
        super().__init__(config)
        self.server_state = LimitedState(limits)
        self._app = app
        self._on_ready = on_ready
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self.started and not self.should_exit:
            self._on_ready()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Called by the signal handler of uvicorn, between two instructions of whatever runs."""
        if self._loop is None:
            signal.default_int_handler(sig, frame)
        else:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self._app.suspend()

    async def _drain(self) -> None:
        await self._app.drain()
        self.should_exit = True


def _option_error(message: str) -> BartackError:
    return BartackError(message, code=ErrorCode.INVALID_CONFIG)
