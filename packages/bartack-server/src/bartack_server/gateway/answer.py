"""`GatewayAnswer`: the response to one request of a client, from the first upstream that can give it.

Three parts work at the same time. The pump asks one upstream after the other and turns the deltas of the answer into
bytes of the client's format, or passes the upstream's own bytes on (`bartack_server.gateway.pass_through`). The sender
takes these bytes out of an `Outbox`. A third task waits for the client to disconnect, which cancels the other two and
closes the connection to the upstream.

    upstream -> deltas -> writer -> Outbox -> client

The head of the response is delayed until the first delta with content. Until then, a failure is still an HTTP status
that the client understands, and another upstream can take over without a trace. Once the client has seen a part of the
answer, a failure ends the stream with the error of its format. If an upstream thinks for long, the head is sent without
content, and the connection is kept alive as the format allows.

A response that is not streamed is written from the whole message, by the same writer, unless its bytes pass through.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bartack.agent.run_log import start
from bartack.environment import Environment
from bartack.formats import Loss, LossReport, ResponseWriter, tool_options, writer
from bartack.formats.anthropic_messages.read import without_client_details
from bartack.formats.stop_sequences import StopSequences
from bartack.models.provider import ProviderModel
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, Usage
from bartack.nouns.entries import Fact
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest, RequestMetadata
from bartack.nouns.tables import AssemblyStatus
from bartack.session.context.window import message_tokens, tool_tokens
from bartack.stream.assembler import MessageAssembler
from bartack_server.gateway.client_requests import MESSAGES, RESPONSES, ClientRequest, error_in, failure_of
from bartack_server.gateway.drafts import AnswerDraft
from bartack_server.gateway.envelopes import Envelopes, SealedAnswer, has_envelope
from bartack_server.gateway.outbox import Outbox
from bartack_server.gateway.pass_through import PassThrough, WholePassThrough, can_pass_through, passed_call
from bartack_server.gateway.recording import ConversationRecord, LiveAnswer, answer_fact
from bartack_server.gateway.upstreams import MAX_ATTEMPTS, Upstream, error_for_client, may_fail_over
from bartack_server.web.event_stream import disconnected

__all__ = ["GatewayAnswer", "RequestOutcome", "estimated_tokens"]

_log = logger("gateway")
_HEAD_DELAY_S = 10.0  # shorter than the time after which clients and proxies give up a silent connection
_BEAT_S = 15.0
_ENFORCED = "config.stopSequences"  # what the gateway does itself if the upstream cannot
_NO_UPSTREAM = Failed(ErrorCode.SERVER_ERROR, "No model was asked.")


async def _nothing(*_: object) -> None:
    pass


class RequestOutcome(Struct, kw_only=True):
    """What became of a request, for its log and its accounts. Filled in while the request is answered."""

    upstream: Upstream | None = None  # the last one that was asked
    session_id: str = ""
    attempts: int = 0
    error: Failed | None = None
    usage: Usage | None = None  # as the upstream reported it
    spent: Usage | None = None  # the same, or an estimate if the answer did not come to its end
    report: LossReport = LossReport()  # what the upstream did not receive
    first_byte_s: float | None = None
    duration_s: float = 0.0
    is_abandoned: bool = False  # the client disconnected

    @property
    def upstream_name(self) -> str:
        """The name of the upstream that was asked last."""
        return "" if self.upstream is None else self.upstream.name


class GatewayAnswer(Response):
    """Answers one request."""

    def __init__(
        self,
        request: ClientRequest,
        upstreams: Sequence[Upstream],
        environment: Environment,
        closing: asyncio.Event,
        endings: set[asyncio.Task[Any]],
        *,
        envelopes: Envelopes,
        conversation: ConversationRecord | None = None,
        draft: AnswerDraft | None = None,
        session_id: str | None = None,
        reserve: Callable[[Upstream, ModelRequest], Awaitable[None]] = _nothing,
        on_end: Callable[[RequestOutcome], Awaitable[None]] = _nothing,
        earlier: tuple[Message, ...] = (),
    ) -> None:
        """`closing` is set when the server is about to stop, which waits for the `endings`: they store, charge and log
        what became of requests. `earlier` messages come before those of the request.

        `session_id` is where an agent answers. `reserve` is called before each upstream is asked, and may refuse the
        request with a `BartackError`.
        """
        super().__init__()
        self._request = request
        self._model_request: ModelRequest | None = None  # as it was read for the last upstream
        self._upstreams = upstreams
        self._environment = environment
        self._closing = closing
        self._envelopes = envelopes
        self._sealed: SealedAnswer | None = None  # if the upstream speaks another format
        self._conversation = conversation
        self._draft = None if conversation is None else draft
        self._live = None if conversation is None else LiveAnswer(conversation)
        self._storing: asyncio.Task[None] | None = None  # stores the answer
        self._endings = endings
        self._session_id = session_id
        self._reserve = reserve
        self._on_end = on_end
        self._earlier = earlier
        self._outbox = Outbox()
        self._response_id: str | None = None
        self._writer: ResponseWriter = self._new_writer(None)
        self._relay: PassThrough | WholePassThrough | None = None
        self._assembler: MessageAssembler | None = None
        self._has_begun = False  # content of the answer was written
        self._is_committed = False  # the head of the response was sent
        self.outcome = RequestOutcome()

    # -- the response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = time.monotonic()
        pump = asyncio.ensure_future(self._pump(started_s))
        sender = asyncio.ensure_future(self._send(send, pump))
        waiting = [asyncio.ensure_future(disconnected(receive)), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait((sender, *waiting), return_when=asyncio.FIRST_COMPLETED)
            if not sender.done() and self._closing.is_set():
                pump.cancel()
                await sender
        finally:
            self.outcome.is_abandoned = not sender.done()
            for task in (sender, pump, *waiting):
                task.cancel()
            ending = start(self._end(started_s, sender, pump, *waiting))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            sent = await asyncio.shield(ending)  # a server whose time to stop is over cancels this, but not the ending
        if isinstance(sent, Exception) and not isinstance(sent, OSError):
            raise sent  # the server logs it

    async def _end(self, started_s: float, *tasks: "asyncio.Future[Any]") -> BaseException | None:
        """Wait for the tasks, and note what became of the request; returns how the first of them failed."""
        sent, *_ = await asyncio.gather(*tasks, return_exceptions=True)
        self.outcome.duration_s = time.monotonic() - started_s
        self.outcome.spent = self._spent()
        await self._record()
        await self._on_end(self.outcome)
        return sent

    def _spent(self) -> Usage | None:
        """What the upstream will charge for. Most report it with the end of the answer, so that a client could have all
        but the end of it for nothing; and those of Chat Completions only if the client asks for it."""
        usage, assembler = self.outcome.usage, self._assembler
        is_complete = assembler is not None and assembler.status is AssemblyStatus.DONE and usage is not None
        if assembler is None or is_complete or not self._has_begun:
            return usage
        output_tokens = message_tokens(assembler.snapshot())
        if usage is None:
            return Usage(0 if self._model_request is None else estimated_tokens(self._model_request), output_tokens)
        return replace(usage, output_tokens=max(output_tokens, usage.output_tokens), total_tokens=-1, cost=None)

    async def _record(self) -> None:
        """Store the answer, or what there is of it."""
        conversation = self._conversation
        if conversation is None:
            return
        try:
            await self._store()
        except StoreError as failure:  # the client has its answer
            _log.error("A conversation could not be stored: %s", failure)
            if self._draft is not None:
                self._draft.close()
        else:
            if self._draft is not None:
                self._draft.delete()
        if self._live is not None:
            await self._live.end()
        self.outcome.session_id = conversation.session_id

    def _store(self) -> "asyncio.Future[None]":
        """Begin to store the answer as it is now. Requests that come later are stored after it."""
        if self._storing is None:
            assert self._conversation is not None
            self._storing = start(self._conversation.end(self._answer()))
        return self._storing

    def _answer(self) -> Fact | None:
        """The answer as it is now; None if no upstream was asked."""
        error, assembler = self.outcome.error, self._assembler
        if assembler is None:
            return None
        if error is None and assembler.status is not AssemblyStatus.DONE:
            error = Failed(ErrorCode.CANCELLED, "The client disconnected.")
        response_id = self._response_id if self._relay is None else None
        return answer_fact(assembler, error, response_id, round(self.outcome.duration_s * 1000))

    async def _complete(self) -> None:
        """Begin to store a complete answer. One that the client may refer to at once is stored before its end."""
        if self._conversation is None:
            return
        storing = self._store()
        if self._response_id is not None and self._relay is None and self._request.body.get("store") is not False:
            with suppress(StoreError):  # `_record` reports it
                await asyncio.shield(storing)

    async def _send(self, send: Send, pump: "asyncio.Future[None]") -> None:
        if self._request.streams:
            await self._send_stream(send)
        await asyncio.wait((pump,))
        if not pump.cancelled():
            pump.result()  # raises an error of ours
        if self._is_committed:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            status, body = self._whole()
            self._keep()
            await send(
                {"type": "http.response.start", "status": status, "headers": self._raw_headers("application/json")}
            )
            await send({"type": "http.response.body", "body": body, "more_body": False})

    def _keep(self) -> None:
        """Write the deltas of the bytes that are sent next to the draft."""
        if self._draft is None or self._conversation is None or self._conversation.is_answered:
            return
        try:
            self._draft.flush(self._conversation, self._response_id if self._relay is None else None)
        except OSError as error:  # the answer is worth more than its record
            _log.error("An answer in progress could not be stored: %s", error)
            self._draft.delete()
            self._draft = None

    async def _send_stream(self, send: Send) -> None:
        delay_s = _HEAD_DELAY_S
        while True:
            try:
                body = await self._outbox.take(delay_s)
            except TimeoutError:
                body = self._writer.keep_alive()
            if body is None:
                return
            self._keep()
            if not self._is_committed:
                self._is_committed = True
                delay_s = _BEAT_S
                headers = self._raw_headers(self._writer.media_type)
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": True})

    def _raw_headers(self, media_type: str) -> list[tuple[bytes, bytes]]:
        outcome = self.outcome
        headers = {
            "content-type": media_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-bartack-upstream": outcome.upstream_name,
            "x-bartack-changes": str(len(outcome.report.losses)),
        }
        if outcome.error is not None and outcome.error.retry_after_ms is not None and not self._has_begun:
            headers["retry-after"] = str(-(-outcome.error.retry_after_ms // 1000))
        return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]

    def _whole(self) -> tuple[int, bytes]:
        """The status and body of a response that is not streamed, or failed before its first byte."""
        if self.outcome.error is not None:
            response = error_in(self._request.format, self.outcome.error)
            return response.status, msgspec.json.encode(response.body)
        if isinstance(self._relay, WholePassThrough):
            return 200, self._relay.body
        assert self._assembler is not None
        message = self._assembler.build_final_message()
        if self._sealed is not None:
            message = self._sealed.message(message)
        return 200, msgspec.json.encode(self._writer.whole_response(message))

    # -- the pump

    async def _pump(self, started_s: float) -> None:
        try:
            await self._ask(started_s)
        except BartackError as error:  # the request cannot be expressed in the format of the upstream
            self._fail(failure_of(error))
        except asyncio.CancelledError:
            if self._closing.is_set():
                self._fail(Failed(ErrorCode.OVERLOADED, "The gateway is shutting down.", retryable=True))
            raise
        finally:
            self._outbox.end()

    async def _ask(self, started_s: float) -> None:
        for upstream in self._candidates():
            self.outcome.upstream = upstream
            self.outcome.attempts += 1
            self.outcome.error = None
            failed = await self._attempt(upstream, started_s)
            if failed is None:
                return
            upstream.note(failed)
            self.outcome.error = error_for_client(upstream, failed)
            if self._has_begun or not may_fail_over(failed):
                break
        self._fail(self.outcome.error or _NO_UPSTREAM)

    def _candidates(self) -> Iterator[Upstream]:
        """The upstreams to ask. If all of them have asked for a pause, none, and the shortest pause is the error."""
        pauses = {id(upstream): upstream.pause() for upstream in self._upstreams}
        free = [upstream for upstream in self._upstreams if pauses[id(upstream)] is None]
        if not free:
            paused = [pause for pause in pauses.values() if pause is not None]
            self.outcome.error = min(paused, key=lambda pause: pause.retry_after_ms or 0)
        return iter(free[:MAX_ATTEMPTS])

    async def _attempt(self, upstream: Upstream, started_s: float) -> Failed | None:
        """Let an upstream answer; returns how it failed."""
        if self._draft is not None:
            self._draft.restart()
        stream = await self._call(upstream)
        relay, draft, live = self._relay, self._draft, self._live if self._request.streams else None
        assembler = self._assembler = MessageAssembler(guarded=True)
        preamble: list[MessageDelta] = []  # what comes before the first content
        async with aclosing(stream) as deltas:  # type: ignore[type-var]
            async for stamped in deltas:
                delta = stamped.delta
                assembler.consume(stamped)
                if draft is not None and relay is None:
                    draft.add((delta,))
                if type(delta) is Usage:
                    self.outcome.usage = delta
                if type(delta) is Done and relay is None:
                    await self._complete()
                if type(delta) is Failed:
                    return delta
                new = [stamped]
                if not self._has_begun:
                    preamble.append(stamped)
                    if type(delta) in (Start, Usage):
                        continue
                    self._has_begun = True
                    self.outcome.first_byte_s = time.monotonic() - started_s
                    new = preamble
                for piece in new:
                    if live is not None:
                        live.add(piece)
                    if relay is None:
                        self._write(piece)
                if self._outbox.is_full:
                    await self._outbox.room()
        if relay is not None:
            relay.finish(None, b"")
            await self._complete()
        return None

    async def _call(self, upstream: Upstream) -> AsyncIterator[MessageDelta]:
        """Begin a call. If its bytes are passed through, there is a relay for them."""
        model, request = upstream.model, self._request
        metadata = RequestMetadata(run_id=self._environment.new_id(), session_id=self._session_id)
        model_id = model.get_config().model_id
        is_own_format = upstream.format == request.format
        label = model.provider if is_own_format else request.format
        is_passed = can_pass_through(request, model) and not self._earlier and not has_envelope(request.data)
        try:
            client_request = request.read(label)
        except PartValidationError:
            if not is_passed:
                raise
            client_request = ModelRequest((), config=ModelConfig(model_id))  # what is new to us is not to the upstream
            self._conversation = self._live = None
        if self._earlier:
            client_request = replace(client_request, messages=(*self._earlier, *client_request.messages))
        if self._conversation is not None:
            self._conversation.begin(client_request)
            if request.format == RESPONSES:
                self._response_id = self._response_id or self._conversation.new_response_id()
        await self._reserve(upstream, client_request)
        self._model_request = client_request
        model_request = replace(
            client_request,
            config=replace(client_request.config, model_id=model_id),
            provider=model.provider,
            metadata=metadata,
        )
        model_request = self._envelopes.opened(request.format, model_request, upstream)
        details: tuple[Loss, ...] = ()
        if request.format == MESSAGES and not is_own_format:
            model_request, details = without_client_details(model_request)
        self._sealed = None if is_own_format else SealedAnswer(self._envelopes, request.format, upstream)
        self._writer = self._new_writer(model.provider if is_own_format else None, model_request)
        self._relay = None
        stops = model_request.config.stop_sequences or ()
        if not isinstance(model, ProviderModel):
            stream = model.respond(model_request)
            return self._with_stops(stream, stops) if stops else stream
        if is_passed:
            assert isinstance(model, ProviderModel)
            self._relay = PassThrough(request.format, self._outbox) if request.streams else WholePassThrough()
            return model.send(passed_call(request, model_request, model), observe=self._observe)
        call = model.encode(model_request)
        losses = (loss for loss in call.report.losses if loss.where != _ENFORCED)
        self.outcome.report = LossReport((*details, *losses))
        return self._with_stops(model.send(call), stops) if stops else model.send(call)

    def _observe(self, chunk: bytes, deltas: Sequence[Delta]) -> None:
        assert self._relay is not None
        if self._draft is not None:
            self._draft.add(deltas)
        self._relay.observe(chunk, deltas)

    async def _with_stops(
        self, stream: AsyncIterator[MessageDelta], sequences: Sequence[str]
    ) -> AsyncIterator[MessageDelta]:
        """The answer up to the first stop sequence, which some upstreams do not take."""
        stops = StopSequences(sequences)
        numbers = count()
        async with aclosing(stream) as deltas:  # type: ignore[type-var]
            async for stamped in deltas:
                for delta in stops.deltas(stamped.delta):
                    self._writer.stop_sequence = stops.matched
                    yield replace(stamped, seq=next(numbers), delta=delta)

    def _new_writer(self, provider: str | None, request: ModelRequest | None = None) -> ResponseWriter:
        own = self._request
        return writer(
            own.format,
            created=self._environment.now(),
            response_id=self._response_id,
            model_id=own.model,
            provider=provider,
            input_tokens=estimated_tokens(request) if request is not None and own.format in _COUNTED else 0,
            include_usage=own.facts.include_usage,
            as_array=own.as_array,
            **tool_options(() if request is None else request.tools, own.format),
        )

    def _write(self, stamped: MessageDelta) -> None:
        if not self._request.streams:
            return
        if self._sealed is None:
            self._outbox.put(self._writer.write(stamped.delta))
        else:
            for delta in self._sealed.deltas(stamped.delta):
                self._outbox.put(self._writer.write(delta))

    def _fail(self, failed: Failed) -> None:
        """End the answer with an error: in the stream, if the client has seen a part of it."""
        self.outcome.error = failed
        if not self._request.streams or not (self._has_begun or self._is_committed):
            return  # it is still an HTTP status
        if self._has_begun and self._relay is not None:
            self._relay.finish(failed, self._new_writer(None).write(failed))
        else:
            self._outbox.put(self._writer.write(failed))


_COUNTED = frozenset((MESSAGES,))  # formats whose streams begin with a count of the input


def estimated_tokens(request: ModelRequest) -> int:
    """The estimated tokens of a request: its messages, system prompt and tools."""
    return sum(map(message_tokens, request.messages)) + tool_tokens(request.tools)
