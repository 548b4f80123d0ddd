"""How a request proves who sends it: a key in a header, AWS's signature, or Google's access token.

Keys go into headers and never into addresses, which end up in logs. `Credentials.sign` may wait for the world (a
metadata server, a token endpoint); it raises `ModelError` with the code `authentication` where there is nothing to
sign with. The libraries for AWS and Google are extras and imported when they are first needed.
"""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from bartack.models.client import HttpRequest
from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["AuthStyle", "AwsSignature", "Credentials", "GoogleToken", "HeaderKey", "NoCredentials"]

AuthStyle = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws", "google", "none"]

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Credentials(Protocol):
    """Something that can sign requests."""

    async def sign(self, request: HttpRequest) -> HttpRequest:
        """The request with its proof, and the proof among its secrets."""


class NoCredentials:
    """For servers that ask for none."""

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return request


class HeaderKey:
    """A key in a header, as most vendors want it."""

    def __init__(self, style: AuthStyle, key: str) -> None:
        self._name, self._prefix = ("Authorization", "Bearer ") if style == "bearer" else (style, "")
        self._key = key

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return _signed(request, {self._name: f"{self._prefix}{self._key}"}, self._key)

    def __repr__(self) -> str:
        return f"HeaderKey({self._name})"


class AwsSignature:
    """AWS signature version 4, with whatever credentials botocore finds (extra ``bedrock``)."""

    def __init__(self, region: str, service: str = "bedrock") -> None:
        self._region = region
        self._service = service
        self._found: Any = None  # botocore's own credentials, which renew themselves

    async def sign(self, request: HttpRequest) -> HttpRequest:
        return await asyncio.to_thread(self._sign, request)

    def _sign(self, request: HttpRequest) -> HttpRequest:
        try:
            from botocore.auth import SigV4Auth  # noqa: PLC0415 - an extra
            from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - an extra
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra
            from botocore.session import Session  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise _missing("AWS credentials", "bedrock", "AWS_BEARER_TOKEN_BEDROCK") from None
        try:
            if self._found is None:
                self._found = Session().get_credentials()
            keys = None if self._found is None else self._found.get_frozen_credentials()
        except BotoCoreError as error:
            raise ModelError(f"AWS credentials: {error}", code=ErrorCode.MISSING_CREDENTIALS) from None
        if keys is None:
            raise ModelError(
                "no AWS credentials: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
                " or a profile",
                code=ErrorCode.MISSING_CREDENTIALS,
            )
        signed = AWSRequest(request.method, request.url, headers=dict(request.headers), data=request.body)
        SigV4Auth(keys, self._service, self._region).add_auth(signed)
        return _signed(request, dict(signed.headers.items()), keys.access_key, keys.secret_key, keys.token or "")


class GoogleToken:
    """An access token of Google's application default credentials (extra ``vertex``)."""

    def __init__(self) -> None:
        self._found: Any = None  # google-auth's own credentials, renewed here when they have expired

    async def sign(self, request: HttpRequest) -> HttpRequest:
        token = await asyncio.to_thread(self._token)
        return _signed(request, {"Authorization": f"Bearer {token}"}, token)

    def _token(self) -> str:
        try:
            import google.auth  # noqa: PLC0415 - an extra
            from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise _missing("Google credentials", "vertex", "api_key with an access token") from None
        try:
            if self._found is None:
                self._found, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
            if not self._found.valid:
                self._found.refresh(_fetch)
        except GoogleAuthError as error:
            raise ModelError(
                f"no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS or log in with gcloud ({error})",
                code=ErrorCode.MISSING_CREDENTIALS,
            ) from None
        return str(self._found.token)


class _Fetched:
    """An answer in the shape that google-auth reads."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def _fetch(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,
) -> _Fetched:
    """google-auth's way to the network; the ones it ships need another HTTP library."""
    from google.auth.exceptions import TransportError  # noqa: PLC0415 - an extra

    if not url.startswith(("https://", "http://")):
        raise TransportError(f"not an address of the web: {url}")  # type: ignore[no-untyped-call]
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout or 30) as response:
            return _Fetched(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _Fetched(error.code, dict(error.headers), error.read())
    except OSError as error:
        raise TransportError(error) from error  # type: ignore[no-untyped-call]


def _signed(request: HttpRequest, headers: Mapping[str, str], *secrets: str) -> HttpRequest:
    known = tuple(secret for secret in secrets if secret)
    return replace(request, headers={**request.headers, **headers}, secrets=request.secrets + known)


def _missing(what: str, extra: str, instead: str) -> ModelError:
    return ModelError(
        f"{what} need the extra: pip install 'bartack[{extra}]' (or set {instead})", code=ErrorCode.MISSING_DEPENDENCY
    )
