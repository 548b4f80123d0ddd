"""`ProviderModel`: a vendor's row, a client and a configuration make a model.

A call is prepared (encoded, with a report of what the provider is not told), then sent: the request is signed, the
answer's bytes go through the decoder of the vendor's format, the deltas are stamped with run, number and time, and each
passes the guard. Nothing is kept between calls but the configuration, which is a value: `update_config` puts another in
its place and calls under way go on with theirs.

What goes wrong on the way is an `error` delta. Before the first byte of the body it says what failed; after it, a lost
connection is `stream_truncated`, unless the provider had said that it was done.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.formats import Decoder, LossReport, decoder, encode, format_named
from bartack.models.auth import Credentials, NoCredentials
from bartack.models.client import HttpRequest, HttpResponse, ProviderClient
from bartack.models.guard import Guard, GuardedStream
from bartack.models.model import configured, with_system_prompt
from bartack.models.prices import ModelInfo, cost_soon, model_info
from bartack.models.refusals import refusal, wait_named_in
from bartack.models.secrecy import hide
from bartack.models.vendors import Vendor
from bartack.nouns.config import CacheConfig, ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import Delta, Failed, MessageDelta, Start, Usage
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError, StreamError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["ErrorMapper", "PreparedCall", "ProviderModel"]

# Gets the error as Bartack's tables read it and gives the one to tell.
ErrorMapper = Callable[[Failed], Failed]

_MAX_REFUSAL_BYTES = 1024 * 1024


class PreparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, ready to be sent: the request, not yet signed, and what it does not say."""

    request: HttpRequest
    report: LossReport
    config: ModelConfig
    metadata: RequestMetadata
    run_id: str
    used_call_ids: frozenset[str] = frozenset()


class ProviderModel:
    """A model of a vendor, reached over HTTP. Safe for many calls at once."""

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
    ) -> None:
        """Touches no network. Raises `PartValidationError` with the code `invalid_config` for what cannot work.

        `base_url` is the vendor's own unless given, and holds no placeholder any more. With `provider_raw` each delta
        that a piece of the network completed carries that piece, for debugging.
        """
        url = base_url or vendor.base_url or ""
        if not url.startswith(("https://", "http://")) or "{" in url:
            raise PartValidationError(
                f"{vendor.name} needs a base_url that begins with https:// or http://, not {hide(url)!r}",
                path="$.base_url",
                code=ErrorCode.INVALID_CONFIG,
            )
        if "{" in vendor.path.replace("{model}", ""):
            raise PartValidationError(
                f"the path of {vendor.name} has settings that nobody filled in: {vendor.path}",
                path="$.vendor.path",
                code=ErrorCode.INVALID_CONFIG,
            )
        changes = {} if cache_config is None or config.cache_config is not None else {"cache_config": cache_config}
        self.client = client
        self.config = configured(config, changes)
        self.cache_config = self.config.cache_config
        self.error_mapper = error_mapper
        self.vendor = vendor
        self._base_url = url.rstrip("/")
        self._credentials = credentials or NoCredentials()
        self._headers = {"Content-Type": "application/json", **vendor.headers, **(headers or {})}
        self._environment = environment or Environment()
        self._provider_raw = provider_raw

    # -- configuration

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls; a setting that is invalid raises and changes nothing."""
        self.config = configured(self.config, config)
        self.cache_config = self.config.cache_config

    def get_config(self) -> ModelConfig:
        """The settings as they are now."""
        return self.config

    def model_info(self) -> ModelInfo:
        """What is known about the model; None stands for what is not."""
        return model_info(self.provider, self.config.model_id, prices=self.vendor.prices)

    def supports(self, feature: str) -> bool:
        """Whether the vendor's format can be asked for this at all."""
        return feature in format_named(self.vendor.format).features

    @property
    def provider(self) -> str:
        """Whose continuation data this model's answers hold."""
        return self.vendor.provider or self.vendor.name

    async def aclose(self) -> None:
        """Let go of the client's connections."""
        await self.client.aclose()

    async def __aenter__(self) -> "ProviderModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- asking

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        invocation_state: dict[str, Any] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> GuardedStream:
        """One answer, as it is made; see `Model.stream`. Raises only for a call that cannot be put into words."""
        call = self.prepare(
            messages,
            tool_specs,
            system_prompt,
            tool_choice=tool_choice,
            system_prompt_content=system_prompt_content,
            request_metadata=request_metadata,
            **params,
        )
        return self.send(call)

    def prepare(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> PreparedCall:
        """The call that `stream` would make, to look at its `report` before it is sent with `send`."""
        config = self.config
        if tool_choice is not None:
            params = {**params, "tool_choice": tool_choice}
        if params:
            config = configured(config, params)
        history = with_system_prompt(messages, system_prompt, system_prompt_content)
        metadata = request_metadata or RequestMetadata()
        tools = tuple(tool_specs or ())
        request = ModelRequest(history, config=config, tools=tools, provider=self.provider, metadata=metadata)
        encoded = encode(self.vendor.format, request)
        return PreparedCall(
            request=self._request(config, encoded.body),
            report=encoded.report,
            config=config,
            metadata=metadata,
            run_id=metadata.run_id or self._environment.new_id(),
            used_call_ids=frozenset(call.tool_call_id for message in messages for call in message.tool_calls),
        )

    def send(self, call: PreparedCall) -> GuardedStream:
        """The answer to a prepared call."""
        return GuardedStream(self._stamped(call), call.run_id)

    def _request(self, config: ModelConfig, body: dict[str, Any]) -> HttpRequest:
        vendor = self.vendor
        body = {key: value for key, value in body.items() if key not in vendor.body_without} | dict(vendor.body)
        model_id = quote(config.model_id.removeprefix("models/"), safe="")
        return HttpRequest(
            url=self._base_url + vendor.path.replace("{model}", model_id),
            headers=self._headers,
            body=msgspec.json.encode(body),
        )

    # -- one answer

    async def _stamped(self, call: PreparedCall) -> AsyncIterator[MessageDelta]:
        environment, run_id, metadata = self._environment, call.run_id, call.metadata
        guard = Guard(run_id, environment)
        admit = guard.admit
        answer = _Answer(self, call)
        is_plain = metadata.model_call_index is None and metadata.attempt is None and not self._provider_raw
        seq = 0
        async with aclosing(answer.batches()) as batches:
            async for deltas in batches:
                now = environment.now()
                for delta in deltas:
                    if is_plain:
                        stamped = MessageDelta(run_id, seq, delta, now)
                    else:
                        stamped = MessageDelta(
                            run_id,
                            seq,
                            delta,
                            now,
                            model_call_index=metadata.model_call_index,
                            attempt=metadata.attempt,
                            provider_raw=answer.take_raw(),
                        )
                    try:
                        admit(stamped)
                    except StreamError as error:
                        for last in guard.failure(Failed(error.code, str(error))):
                            yield last
                        return
                    yield stamped
                    seq += 1


class _Answer:
    """One request and what came back: batches of deltas, one for each piece of the network that completes any."""

    def __init__(self, model: ProviderModel, call: PreparedCall) -> None:
        self._model = model
        self._call = call
        self._secrets: tuple[str, ...] = ()
        self._heard = False
        self._raw: list[bytes] = []
        self._usage: Usage | None = None
        self._model_id = call.config.model_id
        vendor = model.vendor
        self._decoder: Decoder = decoder(
            vendor.format,
            framing=vendor.framing,
            provider=model.provider,
            model_id=call.config.model_id,
            local_id=model._environment.new_id(),
            used_call_ids=call.used_call_ids,
        )

    async def batches(self) -> AsyncGenerator[list[Delta], None]:
        """The deltas until the end. Nothing but cancellation leaves this generator."""
        receive, out = self._decoder.receive_data, self._decoder.out
        keeps_raw = self._model._provider_raw
        try:
            request = await self._model._credentials.sign(self._call.request)
            self._secrets = request.secrets
            async with self._model.client.send(request) as response:
                if not 200 <= response.status < 300:
                    yield await self._finished(self._ended_by(await _refused(response, self._model._environment.now())))
                    return
                async for chunk in response.chunks:
                    self._heard = True
                    if keeps_raw:
                        self._raw.append(chunk)
                    deltas = receive(chunk)
                    if out.ended:
                        yield await self._finished(deltas)
                        return
                    if deltas:
                        self._note(deltas)
                        yield deltas
            yield await self._finished(self._decoder.receive_eof())
        except ModelError as error:
            yield await self._finished(self._ended_by(self._failure(error)))
        except OSError as error:  # a client that does not translate; time-outs are among them
            code = ErrorCode.TIMEOUT if isinstance(error, TimeoutError) else ErrorCode.CONNECTION_FAILED
            said = ModelError(f"{self._call.request.host}: {error or type(error).__name__}", code=code)
            yield await self._finished(self._ended_by(self._failure(said)))

    def take_raw(self) -> str | None:
        """The bytes since the last time, as text."""
        if not self._raw:
            return None
        raw, self._raw = b"".join(self._raw), []
        return hide(raw.decode("utf-8", "backslashreplace"), self._secrets)

    def _note(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, Usage):
                self._usage = delta
            elif isinstance(delta, Start):
                self._model_id = delta.model_id or self._model_id

    def _failure(self, error: ModelError) -> Failed:
        code = error.code
        if self._heard and code is ErrorCode.CONNECTION_FAILED:
            code = ErrorCode.STREAM_TRUNCATED  # D-3.5
        return Failed(
            code,
            error.message,
            retryable=error.retryable,
            status=error.status,
            retry_after_ms=error.retry_after_ms,
        )

    def _ended_by(self, failed: Failed) -> list[Delta]:
        """What the end of the bytes completes; this failure, unless the provider had said that it was done."""
        deltas = self._decoder.receive_eof()
        if deltas and type(deltas[-1]) is Failed:
            deltas[-1] = failed
        return deltas

    async def _finished(self, deltas: list[Delta]) -> list[Delta]:
        """The last deltas: usage with its price where the provider named none, then the end."""
        self._note(deltas)
        *before, end = deltas
        if type(end) is Failed:
            end = self._explained(end)
        usage, prices = self._usage, self._model.vendor.prices
        if usage is not None and usage.cost is None and prices is not None:
            cost = await cost_soon(usage, self._model_id, prices=prices)
            if cost is None:
                cost = await cost_soon(usage, self._call.config.model_id, prices=prices)
            if cost is not None:
                before.append(replace(usage, cost=cost))
        return [*before, end]

    def _explained(self, failed: Failed) -> Failed:
        wait = failed.retry_after_ms
        if wait is None and failed.retryable:
            wait = wait_named_in(failed.message)
        failed = replace(failed, message=hide(failed.message, self._secrets), retry_after_ms=wait)
        mapper = self._model.error_mapper
        return failed if mapper is None else mapper(failed)


async def _refused(response: HttpResponse, now: datetime) -> Failed:
    body = bytearray()
    try:
        async for chunk in response.chunks:
            body += chunk
            if len(body) > _MAX_REFUSAL_BYTES:
                break
    except ModelError:  # the status says enough
        pass
    return refusal(response.status, response.headers, bytes(body), now=now)
