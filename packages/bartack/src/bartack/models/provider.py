"""`ProviderModel`: a vendor's model, called over HTTP.

A call is prepared first (encoded, with a report of what the provider does not receive) and then sent: the request is
signed, the bytes of the response go through the decoder of the vendor's format, and the deltas are stamped and checked.
Nothing is kept between calls except the configuration, and the JSON of recent conversations, which saves encoding them
again (`RequestWriter`).

A failure on the way becomes an `error` delta. Before the first byte of the body, it states what failed. After that, a
lost connection is `stream_truncated`, unless the provider had already finished. A body that is a web page or plain
JSON, which the decoder cannot read, is reported as such.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.formats import Decoder, LossReport, RequestWriter, Written, decoder, format_named
from bartack.formats.framing import LIMIT, FramingName
from bartack.models.auth import Credentials, NoCredentials
from bartack.models.client import (
    ChunkMasker,
    HttpRequest,
    HttpResponse,
    ProviderClient,
    mask_bytes,
    mask_secrets,
    secret_values,
)
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.http_errors import error_from_body, error_from_response, retry_delay_in, suggested_base_url
from bartack.models.model import StreamingModel
from bartack.models.prices import ModelInfo, cost_in_thread, model_info, start_loading
from bartack.models.vendors import Vendor
from bartack.nouns.config import CacheConfig, ModelConfig, ToolSpec
from bartack.nouns.deltas import Delta, Failed, Start, Usage
from bartack.nouns.errors import ConfigError, ErrorCode, ModelError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["CallLimit", "ChunkObserver", "ErrorMapper", "PreparedCall", "ProviderModel"]

# -- how many calls may be in progress at once
#
# A model has a limit of its own (``connect(..., limit=4)``), or shares one with other models, such as all those of one
# provider: ``connect(..., limit=shared)``. A call that has to wait has not been sent. It occupies its place until its
# stream has ended or is closed.


class CallLimit:
    """At most this many calls at once, in each event loop. Enter it for a call."""

    def __init__(self, calls: int) -> None:
        if type(calls) is not int or calls < 1:
            raise ConfigError(f"A limit of calls must be a positive number, got {calls!r}.", path="$.limit")
        self.calls = calls
        # A semaphore belongs to the event loop in which it was first waited for.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def _semaphore(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.calls))

    async def __aenter__(self) -> None:
        await self._semaphore().acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore().release()


# -- the trace of a call
#
# The header that identifies the trace of a request to the provider and to proxies on the way.
#
# A W3C trace id (32 hexadecimal digits) or a whole ``traceparent`` is sent as ``traceparent``, which collectors
# understand. Any other id is sent as ``x-bartack-trace-id``.

_ZERO = "0" * 32
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")  # version ff is forbidden


def trace_headers(trace_id: str | None, environment: Environment) -> dict[str, str]:
    """The header for this trace; none if there is no id. A new span id represents the request itself."""
    if trace_id is None:
        return {}
    if _TRACE_ID.fullmatch(trace_id) and trace_id != _ZERO:
        span_id = environment.new_id().replace("-", "")[-16:]
        return {"traceparent": f"00-{trace_id}-{span_id}-01"}
    parts = _TRACEPARENT.fullmatch(trace_id)
    if parts is not None and parts[1] != _ZERO and parts[2] != _ZERO[:16]:
        return {"traceparent": trace_id}
    return {"x-bartack-trace-id": trace_id}


# -- the model

# Receives the error as Bartack classifies it, and returns the one to report.
ErrorMapper = Callable[[Failed], Failed]
# Receives each chunk of a response as it came, with the deltas that it completes, before these are checked.
ChunkObserver = Callable[[bytes, Sequence[Delta]], None]

_log = logger("models")
_MAX_ERROR_BYTES = 1024 * 1024
# How much of a body is kept to recognize what is not a stream.
_HEAD_BYTES = 16 * 1024
_UNREADABLE = (ErrorCode.STREAM_TRUNCATED, ErrorCode.STREAM_MALFORMED)


class PreparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is ready to be sent: the unsigned HTTP request, what it leaves out, and the call ids it contains."""

    request: ModelRequest
    http_request: HttpRequest
    report: LossReport
    call_ids: Collection[str]
    is_streamed: bool = True  # else the response is one JSON object


class _CallTarget(NamedTuple):
    """What an exchange needs to know about its model: where the call goes, and how to read what comes back."""

    vendor: Vendor
    provider: str
    base_url: str
    client: ProviderClient
    credentials: Credentials
    environment: Environment
    error_mapper: ErrorMapper | None
    limit: CallLimit | None


class ProviderModel(StreamingModel):
    """A vendor's model, called over HTTP. Safe for concurrent calls."""

    def __init__(
        self,
        client: ProviderClient,
        config: ModelConfig,
        cache_config: CacheConfig | None = None,
        error_mapper: ErrorMapper | None = None,
        *,
        vendor: Vendor,
        base_url: str | None = None,
        credentials: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        provider_raw: bool = False,
        limit: CallLimit | None = None,
    ) -> None:
        """Does not use the network.

        Args:
            cache_config: The default for `config.cache_config`.
            base_url: Replaces the vendor's own.
            provider_raw: Attach the received bytes to the deltas, for debugging.
            limit: How many calls may be in progress at once.

        Raises:
            PartValidationError: The configuration is invalid (code `invalid_config`).
        """
        url = base_url or vendor.base_url or ""
        if not url.startswith(("https://", "http://")) or "{" in url:
            raise ConfigError(
                f"The base_url for {vendor.name} must start with https:// or http://, got {mask_secrets(url)!r}.",
                path="$.base_url",
            )
        if "{" in vendor.path.replace("{model}", ""):
            raise ConfigError(
                f"The path for {vendor.name} contains settings without a value: {vendor.path}",
                path="$.vendor.path",
            )
        if config.cache_config is None and cache_config is not None:
            config = replace(config, cache_config=cache_config)
        super().__init__(config, environment)
        self.client = client
        self.error_mapper = error_mapper
        self.vendor = vendor
        self._base_url = url.rstrip("/")
        self._credentials = credentials or NoCredentials()
        self._headers = {"Content-Type": "application/json", **vendor.headers, **(headers or {})}
        self._secrets = secret_values(self._headers)
        HttpRequest(url=self._base_url, headers=self._headers)  # raises at once what every call would raise
        self._provider_raw = provider_raw
        self._limit = limit

    @cached_property
    def _writer(self) -> RequestWriter:
        return self._new_writer()

    def _new_writer(self) -> RequestWriter:
        vendor = self.vendor
        return RequestWriter(format_named(vendor.format), without=vendor.body_without, fields=vendor.body)

    @property
    def provider(self) -> str:  # type: ignore[override]
        """The provider whose continuation data this model's answers contain."""
        return self.vendor.provider or self.vendor.name

    @property
    def base_url(self) -> str:
        """Where requests are sent, without the path."""
        return self._base_url

    @property
    def cache_config(self) -> CacheConfig | None:
        """The current prompt caching settings."""
        return self.config.cache_config

    def model_info(self) -> ModelInfo:
        """Name, context window and prices; None for what is not known."""
        return model_info(self.provider, self.config.model_id, prices=self.vendor.prices)

    def supports(self, feature: str) -> bool:
        """Whether the vendor's format can express this feature and the model supports it, as far as that is known.

        A feature is one of `bartack.formats.format.Feature`, or a tool that the provider executes, such as
        ``web_search``.
        """
        format, model_id = format_named(self.vendor.format), self.config.model_id
        is_hosted = format.hosted.row_of(feature, self.provider, model_id) is not None
        return is_hosted or feature in format.features_of(self.provider, model_id)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self.client.aclose()

    # -- calls

    def prepare(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        **options: Any,
    ) -> PreparedCall:
        """The call that `stream` would make of these arguments, to inspect it before it is sent with `send`."""
        return self.encode(self.request(messages, tool_specs, system_prompt, **options))

    def written(self, request: ModelRequest) -> Written:
        """The body of a request and what is left out of it, to inspect it: the same bytes that `respond` sends."""
        return self._new_writer().write(request)

    def respond(self, request: ModelRequest) -> GuardedStream:
        """The answer to a request. Raises only if the request cannot be expressed."""
        return self.send(self.encode(request))

    def send(self, call: PreparedCall, *, observe: ChunkObserver | None = None) -> GuardedStream:
        """The answer to a prepared call; `observe` sees the bytes of a response that is not an error."""
        target = _CallTarget(
            self.vendor,
            self.provider,
            self._base_url,
            self.client,
            self._credentials,
            self._environment,
            self.error_mapper,
            self._limit,
        )
        exchange = _Exchange(target, call, keeps_raw=self._provider_raw, observe=observe)
        take_raw = exchange.take_raw if self._provider_raw else None
        return guarded_batches(exchange.batches(), call.request.metadata, self._environment, take_raw=take_raw)

    async def fetch(self, call: PreparedCall) -> tuple[int, bytes]:
        """The status and body of a response that is no answer, such as a count of tokens. Raises `ModelError`."""
        request = await self._credentials.sign(call.http_request)
        async with self.client.send(request) as response:
            return response.status, b"".join([chunk async for chunk in response.chunks])

    def encode(self, request: ModelRequest) -> PreparedCall:
        """The call that `respond` would make. Raises if the request cannot be expressed."""
        return self.call_with(request, self._writer.write(request))

    def call_with(
        self, request: ModelRequest, body: Written, headers: Mapping[str, str] = MappingProxyType({})
    ) -> PreparedCall:
        """A call with a body of the caller's own, and further headers. The request names the model and the run."""
        model_id = quote(request.config.model_id.removeprefix("models/"), safe="")
        http_request = HttpRequest(
            url=self._base_url + self.vendor.path.replace("{model}", model_id),
            headers=self._headers_for(request) | dict(headers),
            body=body.body,
            secrets=(*self._secrets, *_tool_secrets(request.tools)),
        )
        return PreparedCall(request=request, http_request=http_request, report=body.report, call_ids=body.call_ids)

    def _headers_for(self, request: ModelRequest) -> dict[str, str]:
        """The headers of a call: those of the model, of the content, and of the trace. A list of both is joined."""
        headers = dict(self._headers)
        own_names = {name.lower(): name for name in headers}
        for name, value in format_named(self.vendor.format).headers(request).items():
            own = own_names.get(name, name)
            headers[own] = f"{headers[own]},{value}" if own in headers and value not in headers[own] else value
        return headers | trace_headers(request.metadata.traceparent or request.metadata.trace_id, self._environment)


def _tool_secrets(specs: Iterable[ToolSpec]) -> list[str]:
    options = [spec.hosted.options or {} for spec in specs if spec.hosted is not None]
    return [option["authorization"] for option in options if "authorization" in option]


class _Exchange:
    """One request and its response: a batch of deltas for each chunk that completes any.

    However the exchange ends, its last batch goes through `_finish`: the end of the stream as the decoder saw it, or
    the failure that took its place.
    """

    def __init__(
        self, target: _CallTarget, call: PreparedCall, *, keeps_raw: bool, observe: ChunkObserver | None
    ) -> None:
        self._target = target
        self._call = call
        self._keeps_raw = keeps_raw
        self._observe = observe
        self._secrets = call.http_request.secrets
        self._head = b""  # the beginning of the body
        self._raw: list[bytes] = []  # without secrets
        self._masker = ChunkMasker(self._secrets)
        self._has_content = False
        self._decoder: Decoder = decoder(
            target.vendor.format,
            framing=self._framing,
            provider=target.provider,
            model_id=call.request.config.model_id,
            local_id=target.environment.new_id(),
            used_call_ids=call.call_ids,
        )

    @property
    def _framing(self) -> FramingName | None:
        return self._target.vendor.framing if self._call.is_streamed else "json-array"

    async def batches(self) -> AsyncGenerator[list[Delta], None]:
        """The deltas until the end, once the limit of the model allows the call."""
        async with self._target.limit or nullcontext(), aclosing(self._batches()) as batches:
            async for deltas in batches:
                yield deltas

    async def _batches(self) -> AsyncGenerator[list[Delta], None]:
        try:
            request = await self._sign()
            async with self._target.client.send(request) as response:
                self._log_response(response.status)
                if not 200 <= response.status < 300:
                    failed = await _http_error(response, self._secrets, self._target.environment.now())
                    yield await self._finish(self._end_with(self._about_address(failed)))
                    return
                async for chunk in response.chunks if self._call.is_streamed else _join(response.chunks):
                    deltas = self._receive(chunk)
                    if self._decoder.out.ended:  # what follows in the body does not delay the answer
                        yield await self._finish(self._recognize_body(deltas, response))
                        return
                    if deltas:
                        yield deltas
                ending = self._recognize_body(self._decoder.receive_eof(), response)
            yield await self._finish(ending)
        except ModelError as error:
            yield await self._finish(self._end_with(self._failure(error)))
        except OSError as error:  # from a client that does not raise ModelError; includes TimeoutError
            code = ErrorCode.TIMEOUT if isinstance(error, TimeoutError) else ErrorCode.CONNECTION_FAILED
            failure = ModelError(f"{self._call.http_request.host}: {error or type(error).__name__}", code=code)
            yield await self._finish(self._end_with(self._failure(failure)))

    async def _sign(self) -> HttpRequest:
        request = await self._target.credentials.sign(self._call.http_request)
        self._secrets = request.secrets
        self._masker = ChunkMasker(self._secrets)
        if self._target.vendor.prices is not None:
            start_loading()  # while the request is on its way
        return request

    def _receive(self, chunk: bytes) -> list[Delta]:
        if len(self._head) < _HEAD_BYTES:
            self._head += chunk[:_HEAD_BYTES]
        if self._keeps_raw:
            self._raw += self._masker.feed(chunk)
        deltas = self._decoder.receive_data(chunk)
        if self._observe is not None:
            self._observe(chunk, deltas)
        if not self._has_content and not self._decoder.out.ended:
            self._note(deltas)
        return deltas

    def _log_response(self, status: int) -> None:
        metadata, host = self._call.request.metadata, self._call.http_request.host
        where = {name: getattr(metadata, name) for name in ("session_id", "run_id", "trace_id")}
        model_id = self._call.request.config.model_id
        _log.debug("%s of %s: HTTP %d", model_id, host, status, extra=where)

    def take_raw(self) -> dict[str, str] | None:
        """The bytes received since the last call: ``{"text": ...}``."""
        if not self._raw:
            return None
        raw, self._raw = b"".join(self._raw), []
        return {"text": raw.decode("utf-8", "backslashreplace")}

    def _note(self, deltas: list[Delta]) -> None:
        self._has_content |= any(type(delta) not in (Start, Usage) for delta in deltas)

    def _failure(self, error: ModelError) -> Failed:
        code = error.code
        if self._head and code is ErrorCode.CONNECTION_FAILED:
            code = ErrorCode.STREAM_TRUNCATED  # D-3.5
        return Failed(
            code, error.message, retryable=error.retryable, status=error.status, retry_after_ms=error.retry_after_ms
        )

    def _recognize_body(self, deltas: list[Delta], response: HttpResponse) -> list[Delta]:
        """The last deltas. If the body was, for example, a web page, they end in an error that names it."""
        end = deltas[-1]
        self._note(deltas[:-1])
        if type(end) is not Failed or end.error_code not in _UNREADABLE or self._has_content:
            return deltas
        failed = error_from_body(
            response.status,
            response.headers,
            mask_bytes(self._head, self._secrets),
            self._framing or self._decoder.framing,
            host=self._call.http_request.host,
            received_at=self._target.environment.now(),
        )
        return deltas if failed is None else [*deltas[:-1], self._about_address(failed)]

    def _about_address(self, failed: Failed) -> Failed:
        """The error, or one about the base URL if that seems to be the cause: a path that does not exist.

        The 404 for a path differs from the one for a model only in that it does not mention the model.
        """
        vendor, base_url = self._target.vendor, self._target.base_url
        names = ("model", self._call.request.config.model_id.lower())
        is_about_path = failed.status == 404 and not any(name in failed.message.lower() for name in names)
        suggested = suggested_base_url(base_url, vendor.path)
        if suggested is None or base_url == vendor.base_url:
            return failed
        if not is_about_path and failed.error_code is not ErrorCode.STREAM_MALFORMED:
            return failed
        message = f"{failed.message.rstrip('.')}. Check the base URL {base_url}: did you mean {suggested}?"
        return replace(failed, error_code=ErrorCode.INVALID_CONFIG, message=message, retryable=False)

    def _end_with(self, failed: Failed) -> list[Delta]:
        """The deltas that were pending, then this failure, unless the provider had already finished."""
        deltas = self._decoder.receive_eof()
        if deltas and type(deltas[-1]) is Failed:
            deltas[-1] = failed
        return deltas

    async def _finish(self, deltas: list[Delta]) -> list[Delta]:
        """The last deltas, with the calculated cost if the provider reported none."""
        self._raw += self._masker.end()
        *before, end = deltas
        if type(end) is Failed:
            end = self._explain(end)
        usage, prices = self._decoder.out.last_usage, self._target.vendor.prices
        if usage is not None and usage.cost is None and prices is not None:
            cost = await cost_in_thread(usage, self._decoder.out.model_id, prices=prices)
            if cost is None:
                cost = await cost_in_thread(usage, self._call.request.config.model_id, prices=prices)
            if cost is not None:
                before.append(replace(usage, cost=cost))
        return [*before, end]

    def _explain(self, failed: Failed) -> Failed:
        delay_ms = failed.retry_after_ms
        if delay_ms is None and failed.retryable:
            delay_ms = retry_delay_in(failed.message)
        failed = replace(failed, message=mask_secrets(failed.message, self._secrets), retry_after_ms=delay_ms)
        mapper = self._target.error_mapper
        return failed if mapper is None else mapper(failed)


async def _join(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A response that is not streamed as one chunk, or the beginning of one that is larger than any may be."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > LIMIT:
            break
    yield bytes(body)


async def _http_error(response: HttpResponse, secrets: Iterable[str], received_at: datetime) -> Failed:
    body = bytearray()
    with suppress(ModelError):  # the status alone is enough
        async for chunk in response.chunks:
            body += chunk
            if len(body) > _MAX_ERROR_BYTES:
                break
    # Masked here, because the message may end inside a secret, where nothing could recognize it.
    return error_from_response(
        response.status, response.headers, mask_bytes(bytes(body), secrets), received_at=received_at
    )
