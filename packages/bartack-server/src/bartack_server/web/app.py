"""`app`: the ASGI application: the API and the page, behind access checks.

    app = bartack_server.web.app(agent, store="sqlite:sessions.db")              # for uvicorn; app.token is the token
    fastapi.mount("/agent", bartack_server.web.app(agent, authorize=who))        # inside another application

If it is mounted, include its `lifespan` in that of the outer application; otherwise it opens with the first request and
is never drained. A protocol adds its routes as `Endpoint`s; see `routes`.
"""

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bartack.agent import Agent
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.queues import RunQueue
from bartack.store.session_store import SessionStore
from bartack_server.web import ag_ui, ai_sdk, bodies
from bartack_server.web.access import COOKIE_S, Authorize, Hosts, RateLimit, TokenAccess, User, UsesAtOnce
from bartack_server.web.api import ENDPOINTS
from bartack_server.web.endpoint import Call, Endpoint, HttpError, error_response, json_response, read_body
from bartack_server.web.event_stream import EventStream
from bartack_server.web.inspect_api import INSPECT_ENDPOINTS
from bartack_server.web.openapi import openapi_document
from bartack_server.web.page import PAGE_ENDPOINTS
from bartack_server.web.service import SessionService

__all__ = ["Guarded", "WebApp", "app"]

_CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types bartack",
    )
)
_HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_CODES = {401: "authentication", 403: "permission_denied", 404: "not_found", 405: "method_not_allowed"}


class WebApp(Starlette):
    """The application, with its `service`, `token` and `lifespan`."""

    def __init__(
        self,
        service: SessionService,
        access: TokenAccess | Authorize,
        hosts: Hosts,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        self.service = service
        self.access = access
        self.hosts = hosts
        self._refusals = RateLimit(100, 1.0)  # wrong tokens and codes, by address
        self.request_limit = RateLimit(400, 100.0)
        # Both are below the number of connections that a server accepts, so that one user leaves room for others.
        self._requests = UsesAtOnce(400)
        self._streams = UsesAtOnce(300)
        protocols = (*ai_sdk.ENDPOINTS, *ag_ui.ENDPOINTS)
        self._endpoints = (
            *_own_endpoints(access),
            *INSPECT_ENDPOINTS,
            *ENDPOINTS,
            *protocols,
            *endpoints,
        )
        rows = (*PAGE_ENDPOINTS, *self._endpoints)
        super().__init__(
            routes=[Route(row.path, _Handler(self, row), methods=[row.method]) for row in rows],
            lifespan=self.lifespan,
            exception_handlers={HTTPException: _http_exception, Exception: _unexpected},
        )
        self.add_middleware(Guarded, hosts=hosts)

    @property
    def token(self) -> str:
        """The token that programs send as ``Authorization: Bearer``."""
        assert isinstance(self.access, TokenAccess), "with authorize=, there is no token"
        return self.access.token

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Open the store and resume open runs; at the end, drain."""
        async with self.service.running():
            with _on_stop(self.service.closing.set):
                yield

    async def drain(self) -> None:
        """End all live streams, and give live runs time to end."""
        await self.service.drain()

    def suspend(self) -> None:
        """End live runs at once; the next server resumes them."""
        self.service.runs.suspend()

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        cookie_name = self.access.cookie_name if isinstance(self.access, TokenAccess) else None
        return openapi_document(self._endpoints, cookie_name, list(self.service.agent_names))

    async def answer(self, row: Endpoint, request: Request, uses: ExitStack) -> Response:
        """The response of an endpoint, which the caller sends before it closes `uses`.

        Raises `BartackError` or `HttpError`.
        """
        await self.service.open()
        user = User("") if row.is_public else await self._user(request)
        if not row.is_public:
            self._begin_use(row, user, uses)
        body = None if row.body is None else await read_body(request, row.body, row.max_body)
        answer = await row.handle(Call(request, self.service, user, body))
        return answer if isinstance(answer, Response) else json_response(answer)

    def _begin_use(self, row: Endpoint, user: User, uses: ExitStack) -> None:
        if self.request_limit.is_exceeded(user.name):
            raise _too_many_requests_error("Too many requests.")
        limits = {"requests": self._requests}
        if row.media_type == EventStream.media_type:
            limits["event streams"] = self._streams
        for name, limit in limits.items():
            if not limit.begin(user.name):
                raise _too_many_requests_error(f"Too many {name} at once.")
            uses.callback(limit.end, user.name)

    async def _user(self, request: Request) -> User:
        """The user; `HttpError` if there is none, or if the request could have been made by another site."""
        access = self.access
        answer = access.user_of(request) if isinstance(access, TokenAccess) else access(request)
        user = await answer if inspect.isawaitable(answer) else answer
        if user is None:
            if not {"authorization", "cookie"}.isdisjoint(request.headers):  # without any, nothing was guessed
                self.refuse(request)
            raise HttpError(401, "authentication", "Sign in first, or send the token.", {"www-authenticate": "Bearer"})
        is_ambient = "cookie" in request.headers and "authorization" not in request.headers
        if is_ambient and request.method not in ("GET", "HEAD") and "origin" not in request.headers:
            raise HttpError(403, "permission_denied", "The request has no Origin.")
        return user

    def refuse(self, request: Request) -> None:
        """Count a wrong token or code; `HttpError` if there were too many."""
        address = request.client.host if request.client is not None else ""
        if self._refusals.is_exceeded(address):
            raise _too_many_requests_error("Too many wrong tokens.")


def app(
    agent: Agent[Any, Any] | Mapping[str, Agent[Any, Any]],
    *,
    store: SessionStore | str | Path | None = None,
    authorize: Authorize | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
    models: Sequence[str] = (),
    routes: Sequence[Endpoint] = (),
    drain_s: float = 20.0,
    queue: Callable[[SessionStore], RunQueue] | None = None,
) -> WebApp:
    """An ASGI application for one agent, or for several by name; the first one is the default.

    `store` is a store or its address; by default that of the first agent. Agents use this store instead of their own.
    `authorize` gets each request and returns the `User`, or None to refuse it; without it, requests need the `token`,
    by default a random one. `hosts` are the names under which clients reach the application, with their ports
    (``localhost:8000``, ``https://agents.example.com``); by default any loopback name. `models` are the models that
    users may choose besides those of the agents. `routes` are added to the API. `drain_s` is how long live runs may
    take to end when the server stops. With `queue`, a function of the store such as `bartack.queues.StoreQueue`, runs
    are handed to workers.

    Raises `BartackError` with the code ``invalid_config``.
    """
    agents = dict(agent) if isinstance(agent, Mapping) else {agent.name or "agent": agent}
    if not agents:
        raise BartackError("The application needs an agent.", code=ErrorCode.INVALID_CONFIG)
    if authorize is not None and token is not None:
        raise BartackError("Pass either authorize or token, not both.", code=ErrorCode.INVALID_CONFIG)
    first = next(iter(agents.values()))
    service = SessionService(
        agents,
        first.store if store is None else store,
        models=models,
        drain_s=drain_s,
        queue=queue,
    )
    return WebApp(service, authorize or TokenAccess(token), Hosts(hosts), routes)


@contextmanager
def _on_stop(end_streams: Callable[[], None]) -> Iterator[None]:
    """Call this when the process is asked to stop, before its own handlers.

    Other servers wait for all connections to close before they end the lifespan, and live streams do not close by
    themselves.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    replaced = {number: handler for number, handler in handlers.items() if callable(handler)}

    def stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end_streams)
        replaced[signal.Signals(number)](number, frame)

    for number in replaced:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


async def _http_exception(request: Request, error: Exception) -> Response:
    """Raised by Starlette for an unknown path or method, or by `authorize`."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "refused")
    headers = dict(error.headers or {})
    if error.status_code == 405:  # Starlette lists the methods of the first route only
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        # The id of a session may look like the rest of a longer path, so the shorter one matches as well.
        same = [route for route in matching if route.path == matching[0].path]
        headers["Allow"] = ", ".join(sorted({method for route in same for method in route.methods}))
    return error_response(HttpError(error.status_code, code, f"{error.detail.rstrip('.')}.", headers))


async def _unexpected(_: Request, __: Exception) -> Response:
    """Of a handler or `authorize`. Starlette answers outside of all middleware, and raises it again for the log."""
    return error_response(HttpError(500, "internal", "The server failed; its log says why.", _HEADERS))


def _own_endpoints(access: TokenAccess | Authorize) -> list[Endpoint]:
    document = Endpoint("GET", "/api/openapi.json", _openapi, "Return this document.")
    if not isinstance(access, TokenAccess):
        return [document]
    return [
        document,
        Endpoint(
            "POST",
            "/api/login",
            _login,
            "Exchange a code for a cookie.",
            body=bodies.Login,
            max_body=1000,
            is_public=True,
        ),
        Endpoint("POST", "/api/logout", _logout, "Delete the cookie."),
    ]


async def _openapi(call: Call) -> Any:
    return call.request.app.openapi()


async def _login(call: Call) -> Response:
    own: WebApp = call.request.app
    assert isinstance(own.access, TokenAccess)
    if "origin" not in call.request.headers:
        raise HttpError(403, "permission_denied", "The request has no Origin.")
    cookie = own.access.exchange(call.body.code)
    if cookie is None:
        own.refuse(call.request)
        raise HttpError(401, "authentication", "This link has been used, or is not valid.")
    response = json_response({"user": "owner"})
    _set_cookie(response, call.request, cookie, COOKIE_S)
    return response


async def _logout(call: Call) -> Response:
    response = json_response({})
    _set_cookie(response, call.request, "", 0)
    return response


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        request.app.access.cookie_name,
        value,
        max_age=seconds,
        path=None,  # the browser uses that of the API: a proxy may add a prefix that is not known here
        secure=request.url.scheme == "https" or request.app.hosts.is_secure,
        httponly=True,
        samesite="strict",
    )


def _too_many_requests_error(message: str) -> HttpError:
    return HttpError(429, "rate_limited", message, {"retry-after": "5"})


class _Handler:
    """An endpoint as an ASGI application, because a request counts until its response is sent."""

    def __init__(self, app: WebApp, row: Endpoint) -> None:
        self._app = app
        self._row = row

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as uses:
            try:
                response = await self._app.answer(self._row, Request(scope, receive, send), uses)
            except (BartackError, HttpError) as error:
                response = error_response(error)
            await response(scope, receive, send)


class Guarded:
    """Checks Host and Origin before anything else, and adds the security headers to every response."""

    def __init__(self, inner: ASGIApp, hosts: Hosts) -> None:
        self._inner = inner
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return  # no WebSockets: a connection that is not answered is refused by the server

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal_error(Request(scope))
        if refusal is not None:
            await error_response(refusal)(scope, receive, send_with_headers)
        else:
            await self._inner(scope, receive, send_with_headers)

    def _refusal_error(self, request: Request) -> HttpError | None:
        host = request.headers.getlist("host")
        if len(host) != 1 or not self._hosts.accepts(host[0]):
            text = "Unknown host name. Add it to hosts, or pass it as --public-url."
            return HttpError(421, "permission_denied", text)
        origins = request.headers.getlist("origin")
        scheme = request.url.scheme
        if any(not self._hosts.accepts_origin(origin, host[0], scheme) for origin in origins):
            return HttpError(403, "permission_denied", "Requests from other sites are refused.")
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            is_visit = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
            if not is_visit or "/api/" in request.url.path:
                return HttpError(403, "permission_denied", "Requests from other sites are refused.")
        return None
