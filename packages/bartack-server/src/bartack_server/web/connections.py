"""`LimitedProtocol`: HTTP connections that cannot exhaust the server, whoever opens them.

A client without a token can open connections and begin requests, so everything that happens before the token is checked
has a limit: how large the head of a request may be, how long it may take to arrive, and how many connections there are,
from one address and in total.

A connection is *waiting* while it has no request in progress: its head is incomplete, or the last response was sent. If
a new connection exceeds a limit, the one that has been waiting longest is closed in its place, because an honest client
sends its head at once. A thousand unfinished requests therefore push out each other, even if they come from the address
of other users: a gateway, or this machine. The new connection is refused only if no other one is waiting.
"""

import asyncio
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["ConnectionLimits", "LimitedProtocol", "LimitedState"]


class ConnectionLimits(NamedTuple):
    """How many connections may be open at once, and what a request may take until its handler is called."""

    total: int = 1000
    per_address: int | None = 500  # None behind a proxy, whose address all connections have
    head_bytes: int = 65_536
    head_s: float = 10.0


class LimitedState(ServerState):
    """The connections of a server, by the address of the client."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.limits = limits
        self._total = 0
        self._open: dict[str, int] = {}  # address -> number of its connections
        self._waiting: dict[str, dict[LimitedProtocol, None]] = {}  # address -> waiting connections, longest first

    def enter(self, connection: "LimitedProtocol") -> bool:
        """Count a new connection; False if there is no room for it. A waiting one may be closed to make room."""
        address = connection.address
        if self._open.get(address) == self.limits.per_address:
            has_room = self._close_waiting(address)
        elif self._total == self.limits.total:
            has_room = self._close_waiting(max(self._waiting, key=lambda name: len(self._waiting[name]), default=""))
        else:
            has_room = True
        if has_room:
            self._total += 1
            self._open[address] = self._open.get(address, 0) + 1
        return has_room

    def _close_waiting(self, address: str) -> bool:
        for connection in self._waiting.get(address, ()):
            connection.abort()
            return True
        return False

    def leave(self, connection: "LimitedProtocol") -> None:
        """Forget a connection that `enter` has counted."""
        self.stop_waiting(connection)
        self._total -= 1
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def wait(self, connection: "LimitedProtocol") -> None:
        """The connection has no request in progress."""
        self._waiting.setdefault(connection.address, {})[connection] = None

    def stop_waiting(self, connection: "LimitedProtocol") -> None:
        """A request is in progress, or the connection is closed."""
        waiting = self._waiting.get(connection.address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.address, None)


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    server_state: LimitedState

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = self.server_state.limits
        self._is_counted = False
        self._deadline: asyncio.TimerHandle | None = None
        # The bytes since the last complete head or piece of a body. The parser collects them: they are part of a head,
        # of the trailers of a body, or of the size of a chunk.
        self._collected = 0

    @property
    def address(self) -> str:
        """The address of the client."""
        return "" if self.client is None else self.client[0]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.server_state.enter(self):
            self._is_counted = True
            self._wait()
        else:
            self._refuse(503, "Too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection without an answer, to make room for another one."""
        self._forget()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            piece = data[: self._limits.head_bytes - self._collected]
            data = data[len(piece) :]
            self._collected += len(piece)
            super().data_received(piece)
            if self._collected >= self._limits.head_bytes:
                self._refuse(431, f"The head of the request is larger than {self._limits.head_bytes:,} bytes.")

    def on_headers_complete(self) -> None:
        self._collected = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._collected = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._collected = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self._is_counted:
            self._wait()

    def _wait(self) -> None:
        self.server_state.wait(self)
        self._deadline = self.loop.call_later(self._limits.head_s, self._expire)

    def _stop_waiting(self) -> None:
        self.server_state.stop_waiting(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._stop_waiting()
            self.server_state.leave(self)

    def _expire(self) -> None:
        self._refuse(408, f"The head of the request took longer than {self._limits.head_s:g} seconds.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer for the application, which has not seen the request, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None:  # otherwise the client would take it for the response to its last request
            head = "content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            text = f"{head}content-length: {len(message)}\r\n\r\n{message}"
            self.transport.write(STATUS_LINE[status] + text.encode())
        self.transport.close()
