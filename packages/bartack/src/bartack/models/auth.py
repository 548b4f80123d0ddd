"""Request authentication: a key in a header, an AWS signature, or a Google access token.

Keys are sent in headers and never in URLs, which end up in logs. `Credentials.sign` may have to wait for a metadata
server or a token endpoint. It raises `ModelError` with the code `missing_credentials` if there are none. The
libraries for AWS and Google are extras, imported on first use.
"""

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from bartack.models.client import HttpRequest
from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["AuthStyle", "AwsSignature", "Credentials", "GoogleToken", "HeaderKey", "NoCredentials"]

AuthStyle = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws", "google", "none"]

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Credentials(Protocol):
    """Signs requests."""

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """The authenticated request, with its key or token added to `secrets`."""


class NoCredentials:
    """For servers without authentication."""

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return request


class HeaderKey:
    """An API key in a header."""

    def __init__(self, style: AuthStyle, key: str) -> None:
        self._name, self._prefix = ("Authorization", "Bearer ") if style == "bearer" else (style, "")
        self._key = key

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return _add_headers(request, {self._name: f"{self._prefix}{self._key}"}, self._key)


class AwsSignature:
    """AWS signature version 4, with the credentials that botocore finds (extra ``cloud``)."""

    def __init__(self, region: str, service: str = "bedrock") -> None:
        self._region = region
        self._service = service
        self._lock = threading.Lock()
        self._found: Any = None  # botocore's credentials, which renew themselves

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return await asyncio.to_thread(self._sign, request)

    def _sign(self, request: HttpRequest) -> HttpRequest:
        try:
            from botocore.auth import SigV4Auth  # noqa: PLC0415 - an extra
            from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - an extra
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra
            from botocore.session import Session  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise _missing_extra_error("AWS credentials", "cloud", "AWS_BEARER_TOKEN_BEDROCK") from None
        try:
            with self._lock:
                if self._found is None:
                    self._found = Session().get_credentials()
            keys = None if self._found is None else self._found.get_frozen_credentials()
        except BotoCoreError as error:
            raise ModelError(f"AWS credentials: {error}", code=ErrorCode.MISSING_CREDENTIALS) from None
        if keys is None:
            raise ModelError(
                "No AWS credentials found. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, or configure a profile.",
                code=ErrorCode.MISSING_CREDENTIALS,
            )
        signed = AWSRequest(request.method, request.url, headers=dict(request.headers), data=request.body)
        SigV4Auth(keys, self._service, self._region).add_auth(signed)
        return _add_headers(request, dict(signed.headers.items()), keys.access_key, keys.secret_key, keys.token or "")


class GoogleToken:
    """An access token from Google's application default credentials (extra ``cloud``)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Any = None  # google-auth's credentials, renewed here when they expire

    async def sign(self, request: HttpRequest) -> HttpRequest:
        token = await asyncio.to_thread(self._token)
        return _add_headers(request, {"Authorization": f"Bearer {token}"}, token)

    def _token(self) -> str:
        try:
            import google.auth  # noqa: PLC0415 - an extra
            from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise _missing_extra_error("Google credentials", "cloud", "an access token as api_key") from None
        try:
            with self._lock:  # calls that begin together share one token
                if self._found is None:
                    self._found, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
                if not self._found.valid:
                    self._found.refresh(_fetch)
        except GoogleAuthError as error:
            raise ModelError(
                f"No Google credentials found. Set GOOGLE_APPLICATION_CREDENTIALS or log in with gcloud. ({error})",
                code=ErrorCode.MISSING_CREDENTIALS,
            ) from None
        return str(self._found.token)


class _TokenResponse(NamedTuple):
    """A response in the form that google-auth expects."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _fetch(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,
) -> _TokenResponse:
    """A transport for google-auth; those it ships with need another HTTP library."""
    from google.auth.exceptions import TransportError  # noqa: PLC0415 - an extra

    if not url.startswith(("https://", "http://")):
        raise TransportError(f"not an HTTP URL: {url}")  # type: ignore[no-untyped-call]
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout or 30) as response:
            return _TokenResponse(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _TokenResponse(error.code, dict(error.headers), error.read())
    except OSError as error:
        raise TransportError(error) from error  # type: ignore[no-untyped-call]


def _add_headers(request: HttpRequest, headers: Mapping[str, str], *secrets: str) -> HttpRequest:
    return replace(request, headers={**request.headers, **headers}, secrets=(*request.secrets, *filter(None, secrets)))


def _missing_extra_error(feature: str, extra: str, instead: str) -> ModelError:
    return ModelError(
        f"{feature} require an extra. Run: pip install 'bartack[{extra}]' (or use {instead}).",
        code=ErrorCode.MISSING_DEPENDENCY,
    )
