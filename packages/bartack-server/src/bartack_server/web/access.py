"""Who may use the server: the token, the cookie that a browser gets for it, and the checks of Host and Origin.

A page of another site must not be able to use a server on this machine, so a token is needed on the loopback address
too. It never appears in a URL that is logged or kept: the link that `bartack serve` prints has a one-time code in its
fragment, which browsers do not send. The page exchanges the code for a cookie that scripts cannot read and other sites
cannot send. Programs send the token itself, as ``Authorization: Bearer``.

The cookie is signed with a key derived from the token and holds nothing but its expiry, so it survives a restart, and
works on every server with the same token. Its name follows from the token as well: a browser sends the cookies of all
servers on one machine to each of them, whatever their ports.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import HTTPConnection

from bartack.nouns.errors import BartackError, ErrorCode

__all__ = [
    "COOKIE_S",
    "Authorize",
    "Hosts",
    "RateLimit",
    "TokenAccess",
    "User",
    "UsesAtOnce",
    "is_loopback",
    "origin_of",
]

COOKIE_S = 30 * 24 * 3600
_CODE_BYTES = 24


class User(Struct, frozen=True):
    """Someone who may use the server, and which sessions: those whose ids start with `prefix`.

    New sessions of the user get such an id. The empty prefix means all sessions.
    """

    name: str
    prefix: str = ""

    def may_use(self, session_id: str) -> bool:
        """Whether this is one of their sessions."""
        return session_id.startswith(self.prefix)


Authorize = Callable[[HTTPConnection], User | Awaitable[User | None] | None]


class TokenAccess:
    """One token, and the codes and cookies derived from it. Everyone who has it is the same user."""

    def __init__(self, token: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._clock = clock
        self._key = hmac.digest(self.token.encode(), b"bartack web cookie", "sha256")
        self.cookie_name = f"bartack_web_{self._signature('name')[:8]}"
        self._code = secrets.token_urlsafe(_CODE_BYTES)
        self.on_new_code: Callable[[str], None] = lambda _: None

    @property
    def code(self) -> str:
        """The code that can be exchanged for a cookie, once."""
        return self._code

    def exchange(self, code: str) -> str | None:
        """The cookie for a code, which can be used only once; None for a wrong code."""
        if not hmac.compare_digest(code.encode(), self._code.encode()):
            return None
        self.cookie_name = f"bartack_web_{self._signature('name')[:8]}"
        self._code = secrets.token_urlsafe(_CODE_BYTES)
        self.on_new_code(self._code)
        expires = str(int(self._clock()) + COOKIE_S)
        return f"{expires}.{self._signature(expires)}"

    def user_of(self, connection: HTTPConnection) -> User | None:
        """The user, if the request has the token or the cookie."""
        header = connection.headers.get("authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            is_right = hmac.compare_digest(token.strip().encode(), self.token.encode())
            return User("owner") if scheme.lower() == "bearer" and is_right else None
        return User("owner") if self._is_valid(connection.cookies.get(self.cookie_name, "")) else None

    def _is_valid(self, cookie: str) -> bool:
        expires, _, signature = cookie.partition(".")
        is_signed = hmac.compare_digest(signature.encode(), self._signature(expires).encode())
        return is_signed and expires.isascii() and expires.isdigit() and int(expires) > self._clock()

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


class Hosts:
    """The names under which the server is reached: ``localhost:8000``, or a whole ``https://agents.example.com``.

    A page whose own name was made to resolve to this machine still sends that name as Host, and is refused. Without
    names, any name of the loopback interface is accepted, with any port.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        """Raises `BartackError` if a name with a scheme is not an origin: no request could have it."""
        self._origins = frozenset(_known_origin(name) for name in names if "://" in name)
        self._names = frozenset(name.lower() for name in names if "://" not in name)
        self._names |= {urlsplit(origin).netloc for origin in self._origins}

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server by https only, even if a proxy connects to it without."""
        return bool(self._origins) and all(origin.startswith("https://") for origin in self._origins)

    def accepts(self, host: str) -> bool:
        """Whether a Host header has one of the names."""
        return host.lower() in self._names if self._names else is_loopback(host)

    def accepts_origin(self, origin: str, host: str, scheme: str) -> bool:
        """Whether an Origin header belongs to a page that this server itself has sent.

        `host` and `scheme` are those of the request. Behind a proxy, the scheme may differ from the browser's, so a
        name given with its scheme takes precedence.
        """
        sender = origin.lower()
        if sender in self._origins:
            return urlsplit(sender).netloc == host.lower()
        return sender == f"{scheme}://{host}".lower() and self.accepts(host) and not self._has_origin(host)

    def _has_origin(self, host: str) -> bool:
        return any(urlsplit(origin).netloc == host.lower() for origin in self._origins)


_ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")
_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str | None:
    """A URL without a path as browsers write it: in lower case, without the port that its scheme implies; None if it
    is not one."""
    match = _ORIGIN.fullmatch(url.lower())
    if match is None:
        return None
    scheme, name, port = match.groups()
    number = int(port or _PORTS[scheme])
    if not 0 < number < 65536:
        return None
    return f"{scheme}://{name}" if number == _PORTS[scheme] else f"{scheme}://{name}:{number}"


def _known_origin(name: str) -> str:
    origin = origin_of(name)
    if origin is None:
        text = f"Invalid host {name!r}: expected NAME:PORT, or https://NAME without a path."
        raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    return origin


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


class RateLimit:
    """At most `burst` at once and `per_s` on average, for each key. Memory is bounded."""

    def __init__(self, burst: int, per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._levels: dict[Any, tuple[float, float]] = {}  # how much was used, and when that was computed

    def is_exceeded(self, key: Any) -> bool:
        """Count one use; True if it exceeds the limit."""
        time = self._clock()
        used = self._used(key, time)
        if used + 1 > self._burst:
            self._levels[key] = (used, time)
            return True
        if len(self._levels) > 10_000:  # drop the keys that have recovered completely
            self._levels = {name: level for name, level in self._levels.items() if self._used(name, time) > 0}
        self._levels[key] = (used + 1, time)
        return False

    def _used(self, key: Any, time: float) -> float:
        used, updated = self._levels.get(key, (0.0, time))
        return max(0.0, used - (time - updated) * self._per_s)


class UsesAtOnce:
    """At most `limit` uses at the same time, for each key."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._uses: dict[str, int] = {}

    def begin(self, key: str) -> bool:
        """Count a use, which `end` ends; False if there are too many."""
        if self._uses.get(key, 0) >= self._limit:
            return False
        self._uses[key] = self._uses.get(key, 0) + 1
        return True

    def end(self, key: str) -> None:
        """Forget a use."""
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._uses[key]
