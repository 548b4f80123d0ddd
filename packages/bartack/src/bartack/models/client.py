"""`ProviderClient`: what a model needs from the network, so that another transport can take its place.

A client sends an `HttpRequest` and returns an `HttpResponse` whose body arrives in chunks. Network failures are
`ModelError`, with the host name and no secret in the message. `bartack.models.http` has the client that uses the
network; `bartack.models.recording` records and replays one. `safe_headers`, `mask_secrets` and `ChunkMasker` keep keys
out of errors, logs and recordings: providers repeat keys in their error messages, sometimes in full, and proxies repeat
whole requests.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from bartack.nouns.errors import ConfigError

__all__ = [
    "MASK",
    "ChunkMasker",
    "HttpRequest",
    "HttpResponse",
    "ProviderClient",
    "Timeouts",
    "mask_bytes",
    "mask_secrets",
    "safe_headers",
    "secret_values",
]


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_INVALID_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_INVALID_IN_URL = re.compile(r"[\x00-\x20\x7f]")


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request. `secrets` are the strings in it that must not be logged.

    A line break in the URL or a header would add headers, or a second request, to what is sent. Creating such a request
    raises `PartValidationError` with the code `invalid_config`; the message names the header and not its value.
    """

    method: str = "POST"
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _INVALID_IN_URL.search(self.url):
            raise ConfigError("The URL contains a space or a control character.", path="$.url")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
                raise ConfigError("The name of a header is not valid.", path="$.headers")
            if not isinstance(value, str) or _INVALID_IN_HEADER.search(value):
                problem = "contains a line break or a control character" if isinstance(value, str) else "is not text"
                raise ConfigError(f"The value of the header {name} {problem}.", path="$.headers")

    @property
    def host(self) -> str:
        """The name of the server."""
        return urlsplit(self.url).hostname or ""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.host}, {len(self.body)} bytes)"


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response whose body is still arriving. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = {}
    chunks: AsyncIterator[bytes]


class ProviderClient(Protocol):
    """Sends requests. One client can serve many models and concurrent requests."""

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """The response, valid inside the context; leaving it returns the connection to the pool or closes it."""

    async def aclose(self) -> None:
        """Close all connections."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """Time limits in seconds; None waits forever.

    A reachable server accepts a connection within seconds. A model may think for minutes before its first byte and, if
    its provider sends no pings, between two bytes; five minutes is longer than any pause we have seen.
    """

    connect: float | None = 10.0  # TCP and TLS
    first_byte: float | None = 300.0  # from sending the request to the first byte of the body
    silence: float | None = 300.0  # between two chunks
    total: float | None = 3600.0  # the whole exchange


# -- what may be logged

MASK = "[hidden]"
_MIN_SECRET_CHARS = 4  # a shorter string is not a key, and masking it would garble words

# Any other header may hold a key, a cookie or an account.
_SAFE_HEADERS = frozenset(
    {
        "accept", "anthropic-beta", "anthropic-version", "cf-ray", "content-encoding", "content-length",
        "content-type", "date", "openai-processing-ms", "openai-version", "request-id", "retry-after",
        "retry-after-ms", "traceparent", "transfer-encoding", "user-agent", "x-amzn-errortype", "x-amzn-requestid",
        "x-bartack-trace-id", "x-goog-api-client", "x-request-id", "x-should-retry",
    }
)  # fmt: skip

_SECRET_NAME = re.compile(r"auth|key|token|secret|password|cookie|credential|signature", re.IGNORECASE)

# Keys by the prefixes that their vendors give them for secret scanners.
_KEYS = (
    r"\b(?:sk|pk|rk)-[\w*.-]{8,}"  # OpenAI, Anthropic (sk-ant-), DeepSeek, OpenRouter (sk-or-); also half masked
    r"|\bgsk_\w{8,}|\bxai-(?!responses\b)[\w*-]{8,}|\bcsk-[\w*-]{8,}|\bpplx-\w{8,}|\bfw_\w{8,}|\btgp_v1_[\w-]{8,}|\bhf_\w{8,}"
    r"|\bAIza[\w-]{20,}|\bya29\.[\w.-]{8,}|\bAQ\.[\w-]{20,}"  # Google: API key, access token, express key
    r"|\b(?:AKIA|ASIA|ABSK)[A-Za-z0-9+/=]{12,}"  # AWS: access key, session key, Bedrock bearer token
    r"|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"  # JSON web token
    r"|(?i:\bbearer\s+)[\w.~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password in a URL
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=access_token=))[^&\s\"']{4,}"
)


def safe_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that hold no secrets, with names in lower case."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in _SAFE_HEADERS}


def secret_values(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the headers whose names suggest a secret."""
    return tuple(value for name, value in headers.items() if _SECRET_NAME.search(name))


def mask_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with these secrets, and anything that looks like a key, replaced by `MASK`."""
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    return re.sub(_KEYS, MASK, text)


def mask_bytes(data: bytes, secrets: Iterable[str] = ()) -> bytes:
    """The same for bytes, which need not be UTF-8."""
    masker = ChunkMasker(secrets)
    return b"".join([*masker.feed(data), *masker.end()])


_BEARER = re.compile(rb"bearer\s+\Z", re.IGNORECASE)
_MAX_KEY_BYTES = 4096  # a JSON web token with many claims has about 2,000
_MAX_HELD_BYTES = 64 * 1024


@cache  # compiling takes milliseconds, and most programs mask nothing
def _key_bytes() -> re.Pattern[bytes]:
    return re.compile(_KEYS.encode())


class ChunkMasker:
    """Masks secrets in a body that arrives in chunks, including secrets that are split between chunks.

    A chunk is held back while its end may be the beginning of a secret, which is rare: most chunks end with a line. A
    secret is replaced in the chunk where it begins, and removed from the chunks where it continues. Bytes that are not
    UTF-8 are kept.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret.encode() for secret in secrets if len(secret) >= _MIN_SECRET_CHARS]
        self._held = b""
        self._sizes: deque[int] = deque()  # the sizes of the chunks in `_held`
        self._masked = 0  # how many bytes at the start of `_held` belong to a secret that has been replaced

    def feed(self, chunk: bytes) -> list[bytes]:
        """The chunks that can be recorded now, in their order."""
        self._held += chunk
        self._sizes.append(len(chunk))
        spans = self._spans()
        safe = len(self._held) if len(self._held) > _MAX_HELD_BYTES + len(chunk) else self._safe_size()
        safe = next((begin for begin, end in spans if begin < safe < end), safe)
        return self._taken(safe, spans)

    def end(self) -> list[bytes]:
        """The chunks that were held back."""
        return self._taken(len(self._held), self._spans())

    def _taken(self, safe: int, spans: list[tuple[int, int]]) -> list[bytes]:
        chunks: list[bytes] = []
        start = 0
        while self._sizes and start + self._sizes[0] <= safe:
            end = start + self._sizes.popleft()
            chunks.append(self._with_masks(start, end, spans))
            start = end
        self._masked = max([0, self._masked - start, *(end - start for begin, end in spans if begin < start)])
        self._held = self._held[start:]
        return chunks

    def _with_masks(self, start: int, end: int, spans: list[tuple[int, int]]) -> bytes:
        pieces = []
        position = max(start, min(self._masked, end))
        for begin, stop in spans:
            if stop > position and begin < end:
                if begin >= position:
                    pieces += [self._held[position:begin], MASK.encode()]
                position = min(stop, end)
        return b"".join([*pieces, self._held[position:end]])

    def _spans(self) -> list[tuple[int, int]]:
        """Where secrets begin and end; those that overlap are one."""
        matches = [match.span() for match in _key_bytes().finditer(self._held, self._masked)]
        for secret in self._secrets:
            matches += [match.span() for match in re.finditer(re.escape(secret), self._held)]
        spans: list[tuple[int, int]] = []
        for begin, end in sorted(matches):
            if spans and begin < spans[-1][1]:
                begin, end = spans[-1][0], max(end, spans.pop()[1])
            spans.append((begin, end))
        return spans

    def _safe_size(self) -> int:
        """How many of the bytes cannot belong to a secret that is not complete yet."""
        tail = self._held[-_MAX_KEY_BYTES:]
        words = tail.split()
        unsafe = len(words[-1]) if words and not tail[-1:].isspace() else 0
        bearer = _BEARER.search(tail, 0, len(tail) - unsafe)
        if bearer is not None:
            unsafe = len(tail) - bearer.start()
        for secret in self._secrets:
            sizes = range(len(secret) - 1, unsafe, -1)
            unsafe = next((size for size in sizes if tail.endswith(secret[:size])), unsafe)
        return len(self._held) - unsafe
