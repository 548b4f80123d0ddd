"""A server over HTTP, written with the SDK, with or without OAuth; it runs in a thread of the test process."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class Accounts(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that accepts everyone, and records the requests."""

    def __init__(self, lifetime_s: int) -> None:
        self.lifetime_s = lifetime_s
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.refreshed = 0
        self.denies = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.denies:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = secrets.token_urlsafe(32)
        assert client.client_id is not None
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(authorization_code.client_id, authorization_code.scopes)

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        expires_at = int(time.time()) + self.lifetime_s
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, expires_at=expires_at)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.lifetime_s, token_type="Bearer")

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshed += 1
        del self.refresh[refresh_token.token]
        return self._issue(refresh_token.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)


class Http:
    """A running server: its address, the headers it got, and ways to disturb it."""

    def __init__(self, accounts: Accounts | None) -> None:
        self.url = ""
        self.accounts = accounts
        self.headers: list[dict[str, str]] = []
        self.fault: str | None = None
        self.mcp: Any = None
        self.expired: set[str] = set()  # sessions that the server has forgotten


def new_server(http: Http, url: str) -> MCPServer:
    """The tools that the tests call."""
    auth = None
    if http.accounts is not None:
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
    server = MCPServer("web", auth=auth, auth_server_provider=http.accounts, log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Add a tool to this server."""

        def grown() -> str:
            """It is new."""
            return "I am new."

        server.add_tool(grown)
        await ctx.notify_tools_changed()
        return "grown"

    return server


@contextmanager
def serving(
    *, oauth: bool = False, lifetime_s: int = 3600, json_response: bool = False, port: int = 0
) -> Iterator[Http]:
    """The server on a free or the given port of the loopback interface, until the context is left."""
    http = Http(Accounts(lifetime_s) if oauth else None)
    app = _late(http, json_response)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    http.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    thread = threading.Thread(target=lambda: server.run(sockets=[socket]), daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield http
    finally:
        server.force_exit = server.should_exit = True
        thread.join(60)
        socket.close()


def _late(http: Http, json_response: bool) -> ASGIApp:
    """The application, made when its address is known; it notes headers and misbehaves if asked to."""
    app: ASGIApp | None = None

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal app
        if app is None:
            http.mcp = new_server(http, http.url)
            app = http.mcp.streamable_http_app(json_response=json_response)
        if scope["type"] == "http" and scope["path"] == "/mcp":
            http.headers.append(dict(Request(scope).headers))
            if http.headers[-1].get("mcp-session-id") in http.expired:
                await _answer(send, 404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"No session"}}')
                return
            if http.fault == "500":
                await _answer(send, 500, b"broken")
                return
            if http.fault == "huge":
                await _answer(send, 200, b"[" + b" " * 40_000_000)
                return
            if http.fault == "garbage":
                await _answer(send, 200, b"this is not JSON")
                return
        await app(scope, receive, send)

    return call


async def _answer(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
