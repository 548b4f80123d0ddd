"""Signing in to a server with OAuth: tokens in a file of the user, and a browser that returns to this machine.

The SDK performs the flow itself: discovery, registration, PKCE, exchange and refreshing. This module keeps what it
obtains, and receives the browser's redirect on a port of the loopback interface (RFC 8252).
"""

import asyncio
import socket
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from bartack.tools.mcp.config import NEEDS_SIGN_IN, HttpServer, ServerFailure, expand_variables
from bartack.tools.mcp.saved_files import change_file, read_file

__all__ = ["LoopbackSignIn", "TokenFile", "auth_for", "default_tokens_path"]

T = TypeVar("T", bound=BaseModel)

SIGN_IN_S = 300.0  # how long a person may take to sign in
_MAX_REQUEST_BYTES = 16_000
_PAGE = "<!doctype html><meta charset=utf-8><title>Bartack</title><p>{} You can close this page.</p>"


def default_tokens_path() -> Path | None:
    """The file in the user's configuration folder; None without the package that finds the folder."""
    if find_spec("platformdirs") is None:
        return None
    import platformdirs  # noqa: PLC0415 - an extra

    return Path(platformdirs.user_config_dir("bartack", appauthor=False)) / "mcp-tokens.json"


class LoopbackSignIn:
    """Lets a person sign in with a browser, which is redirected to a port of this machine."""

    def __init__(self, show: Callable[[str], None], *, port: int = 0) -> None:
        """`show` presents a URL to the person, for example by opening a browser. `port` must be given if the server
        knows the redirect address of a client that was registered by hand."""
        self._show = show
        self._port = port
        self._socket: socket.socket | None = None

    @property
    def redirect_uri(self) -> str:
        """The address that the browser returns to."""
        if self._socket is None:
            self._socket = socket.create_server(("127.0.0.1", self._port))
            self._port = self._socket.getsockname()[1]  # the same one if a person has to sign in again
        return f"http://127.0.0.1:{self._port}/callback"

    async def redirect(self, url: str) -> None:
        """Present the page to sign in."""
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ServerFailure("it names a sign-in page that is not an http or https URL")
        assert self.redirect_uri, "the port is open before the browser can return to it"
        self._show(url)

    async def callback(self) -> AuthorizationCodeResult:
        """The code that the browser brought; `ServerFailure` if the person refused or took too long."""
        assert self._socket is not None
        arrived: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                head = await reader.readuntil(b"\r\n")
                target = urlsplit(head.split()[1].decode("ascii", "replace"))
                answer = {name: values[0] for name, values in parse_qs(target.query).items()}
                is_ours = target.path == "/callback" and ("code" in answer or "error" in answer)
                text = ("Signed in." if "code" in answer else "Not signed in.") if is_ours else "Nothing here."
                body = _PAGE.format(text).encode()
                status = b"200 OK" if is_ours else b"404 Not Found"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Type: text/html\r\nConnection: close\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
                if is_ours and not arrived.done():
                    arrived.set_result(answer)
            except (OSError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # not a browser
            finally:
                writer.close()

        server = await asyncio.start_server(receive, sock=self._socket, limit=_MAX_REQUEST_BYTES)
        self._socket = None
        async with server:
            try:
                async with asyncio.timeout(SIGN_IN_S):
                    answer = await arrived
            except TimeoutError:
                raise ServerFailure(f"the sign-in was not completed within {SIGN_IN_S:g} s") from None
        if "code" not in answer:
            raise ServerFailure(f"signing in failed: {answer.get('error', 'no code')}")
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    def close(self) -> None:
        """Release the port."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class TokenFile:
    """The tokens and the client registration for one server, in a file with mode 0600 or in memory."""

    def __init__(self, path: Path | None, url: str, registered: OAuthClientInformationFull | None = None) -> None:
        """`registered` is a client that was registered by hand."""
        self._path = path
        self._registered = registered
        self._key = url.partition("?")[0]
        tokens = read_file(path).get(self._key)
        self._kept: dict[str, Any] = tokens if isinstance(tokens, dict) else {}
        self.provider: OAuthClientProvider | None = None

    def __bool__(self) -> bool:
        return "tokens" in self._kept

    async def get_tokens(self) -> OAuthToken | None:
        """The stored tokens."""
        return _load(OAuthToken, self._kept.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, when they expire, and where they are refreshed."""
        metadata = None if self.provider is None else self.provider.context.oauth_metadata
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self._keep(tokens=_dump(tokens), expires_at=expires_at, metadata=_dump(metadata))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The stored registration, unless it is for a redirect address that is not used now."""
        if self._registered is not None:
            return self._registered
        info = _load(OAuthClientInformationFull, self._kept.get("client"))
        assert self.provider is not None
        used = {str(uri) for uri in self.provider.context.client_metadata.redirect_uris or ()}
        is_refreshed_only = self and self.provider.context.callback_handler is _no_callback
        if info is None or is_refreshed_only or used & {str(uri) for uri in info.redirect_uris or ()}:
            return info
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        await self._keep(client=_dump(client_info))

    async def _keep(self, **values: Any) -> None:
        self._kept = {**self._kept, **values}
        if self._path is not None:
            await asyncio.to_thread(change_file, self._path, lambda all: all.update({self._key: self._kept}))

    def attach(self, provider: OAuthClientProvider) -> None:
        """Pass the SDK's provider what it does not load itself."""
        self.provider = provider
        provider.context.token_expiry_time = self._kept.get("expires_at")
        provider.context.oauth_metadata = _load(OAuthMetadata, self._kept.get("metadata"))


def auth_for(config: HttpServer, auth: "httpx2.Auth | LoopbackSignIn | None", path: Path | None) -> httpx2.Auth | None:
    """What signs the requests to a server: the given `auth`, or stored tokens, or a person who signs in."""
    if isinstance(auth, httpx2.Auth):
        return auth
    url = expand_variables(config.url)
    redirect_uri = "http://127.0.0.1/callback" if auth is None else auth.redirect_uri
    registered = None
    if config.client_id is not None:
        secret = None if config.client_secret is None else expand_variables(config.client_secret)
        registered = OAuthClientInformationFull(
            client_id=expand_variables(config.client_id),
            client_secret=secret,
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            redirect_uris=[AnyUrl(redirect_uri)],
        )
    tokens = TokenFile(path, url, registered)
    if auth is None and not tokens:
        return None
    provider = OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="Bartack", redirect_uris=[AnyUrl(redirect_uri)], scope=config.scope),
        tokens,
        redirect_handler=_refuse_sign_in if auth is None else auth.redirect,
        callback_handler=_no_callback if auth is None else auth.callback,
        client_metadata_url=config.client_metadata_url,
    )
    tokens.attach(provider)
    return provider


async def _refuse_sign_in(url: str) -> None:
    raise ServerFailure(NEEDS_SIGN_IN)


async def _no_callback() -> AuthorizationCodeResult:
    raise ServerFailure(NEEDS_SIGN_IN)


def _load(kind: type[T], value: Any) -> T | None:
    try:
        return None if value is None else kind.model_validate(value)
    except ValidationError:
        return None


def _dump(value: BaseModel | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
