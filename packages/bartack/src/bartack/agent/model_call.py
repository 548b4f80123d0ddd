"""`ModelCall`: one request to a model, and its answer assembled as it arrives.

Every call of a run goes through here, for an answer and for a summary alike. However a call goes wrong, the failure is
a value: `ModelCall.failure` is the fact that keeps what had arrived and what it cost.

A failed call is repeated (`attempted`): immediately if the caller has removed the cause, after a delay if the retry
policy allows it, and with the next fallback model if this model has failed permanently.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta

from msgspec.structs import replace

from bartack.agent.hooks import Refusal
from bartack.agent.journal import Journal
from bartack.agent.run_context import ModelSwitch, RunContext, model_ref, refused
from bartack.agent.tracing import ModelCallSpan
from bartack.events import DeltaReceived, ModelSwitched, Retrying
from bartack.formats.losses import LossReport
from bartack.models.guard import GuardedStream, guarded
from bartack.models.model import respond
from bartack.models.provider import ProviderModel
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.entries import Fact, StreamFailed
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, Meta, Step, Trace
from bartack.nouns.parts import Part, Text, Thinking, ToolCall
from bartack.nouns.requests import ModelRequest
from bartack.stream.assembler import MessageAssembler

__all__ = ["ModelCall", "attempted"]

_NO_PROGRESS = Failed(
    ErrorCode.PROVIDER_ERROR,
    "The provider paused its answer, and continuing it would repeat the request: the answer added nothing to it.",
)
_STOPPED = Failed(ErrorCode.ABORTED, "Stopped before the model produced any output.")


class ModelCall:
    """One attempt at one call."""

    def __init__(
        self, context: RunContext, request: ModelRequest, *, publish: bool, snapshot: str | None = None
    ) -> None:
        """With `publish` the deltas, and a change of model that is due, become events. `snapshot` is that of the
        runtime's files."""
        self._context = context
        self.request = request
        self._publish = publish
        self._files = snapshot
        self._environment = context.settings.environment
        self._assembler = MessageAssembler(context.run_id, guarded=True)
        self._mark_s = time.monotonic()  # when the request was sent

    @classmethod
    async def of(
        cls, context: RunContext, request: ModelRequest, *, publish: bool, snapshot: str | None = None
    ) -> "ModelCall":
        """A call with this request, as the hook before it changes it."""
        changed = await context.settings.hooks.change_request(request)
        if isinstance(changed, Refusal):
            raise refused(changed)
        return cls(context, changed, publish=publish, snapshot=snapshot)

    def snapshot(self) -> Message:
        """The answer so far."""
        return self._assembler.snapshot()

    async def receive(self, journal: Journal | None = None) -> Failed | None:
        """Read the answer to its end, and write it to the journal meanwhile; the error if it failed."""
        context, request = self._context, self.request
        with context.tracer.model_call(request, context.model, model_ref(context.info)) as span:
            if span.traceparent is not None:
                self.request = replace(request, metadata=replace(request.metadata, traceparent=span.traceparent))
            failed: Failed | None = _STOPPED
            try:
                failed = await self._receive(journal, span)
            finally:
                span.finished(self._assembler, failed)
        return failed

    async def _receive(self, journal: Journal | None, span: ModelCallSpan) -> Failed | None:
        try:
            if self._publish and _repeats_request(self._context, self.request):
                return _NO_PROGRESS
            stream = self._stream()
        except BartackError as error:  # the request cannot be encoded, and nothing was sent
            return Failed(error.code, str(error))
        self._mark_s = time.monotonic()
        channel, consume = self._context.channel, self._assembler.consume
        index, attempt = self._context.state.call_index, self._context.state.failed_attempts + 1
        if journal is not None:
            journal.begin(self._context.log.session.tail.seq)
        is_reported = True
        async with aclosing(stream):
            async for delta in stream:
                consume(delta)
                if is_reported:
                    is_reported = span.received(delta)
                if journal is not None:
                    journal.add(delta)
                if self._publish and channel.is_open:
                    await channel.put_delta(DeltaReceived(delta, index, attempt))
        return self._assembler.get_error()

    def _stream(self) -> GuardedStream:
        context, model = self._context, self._context.model
        if self._publish and context.switch is not None:
            source = self._after_switch(context.switch)
            context.switch = None
        else:
            source = respond(model, self.request)
        if not isinstance(source, GuardedStream):
            source = _without_repeats(source)
        return guarded(source, context.run_id, environment=self._environment)

    def _after_switch(self, switch: ModelSwitch) -> AsyncIterator[MessageDelta]:
        """The answer of a model that is new in the session, after an event that reports what it does not receive."""
        context, model = self._context, self._context.model
        report, source = LossReport(), None
        if isinstance(model, ProviderModel):
            call = model.encode(self.request)
            report, source = call.report, model.send(call)
        assert context.state.model is not None  # the switch was recorded as a fact
        previous, reason = switch
        event = ModelSwitched(model=context.state.model, previous=previous, report=report, reason=reason)
        context.channel.put(event)
        return source or respond(model, self.request)

    # -- facts

    async def answer(self) -> Message:
        """The complete answer, as the hooks after the call change it; `RunFailed` if one of them refuses it."""
        message = self._numbered(self._assembler.build_final_message())
        changed = await self._context.settings.hooks.change_answer(message)
        if isinstance(changed, Refusal):
            raise refused(changed)
        return changed

    def failure(self, failed: Failed) -> StreamFailed:
        """The failed call, with what had arrived and what it cost."""
        snapshot = self._assembler.snapshot()
        meta = snapshot.meta
        reported = None if meta is None or not meta.model or not meta.model.model else meta.model
        return StreamFailed(
            error=failed,
            parts=self._assembler.parts,
            usage=self._assembler.usage,
            model=reported or self._context.state.model,
            response_id=None if meta is None else meta.response_id,
            duration_ms=self._duration_ms(snapshot),
            model_call_index=self.request.metadata.model_call_index,
            attempt=self.request.metadata.attempt,
        )

    def partial(self) -> list[Fact]:
        """What remains of a call that was stopped: its text and complete tool calls, marked as aborted; or a
        failure if there are none; or nothing if no delta had arrived."""
        if self._assembler.last_seq < 0:
            return []
        snapshot = self._assembler.snapshot()
        meta = snapshot.meta or Meta()
        incomplete = meta.open_calls or ()
        parts = tuple(
            part for part in snapshot.parts if not (isinstance(part, ToolCall) and part.tool_call_id in incomplete)
        )
        if not parts:
            return [self.failure(_STOPPED)]
        duration_ms = self._duration_ms(snapshot)
        meta = replace(meta, aborted=True, open_calls=None, duration_ms=duration_ms)
        return [self._numbered(replace(snapshot, parts=parts, meta=meta))]

    def _duration_ms(self, snapshot: Message) -> int | None:
        """From the request to the end of the stream, or until now if it was stopped; None if nothing was sent."""
        if snapshot.meta is None or snapshot.timestamp is None:
            return None
        if snapshot.meta.duration_ms is not None:
            return snapshot.meta.duration_ms
        ended_at = self._environment.later(snapshot.timestamp, self._mark_s)
        return (ended_at - snapshot.timestamp) // timedelta(milliseconds=1)

    def _numbered(self, message: Message) -> Message:
        """The message with the numbers of its call, and with tool call ids that are unique in the session."""
        numbers = self.request.metadata
        meta = replace(
            message.meta or Meta(),
            model_call_index=numbers.model_call_index,
            attempt=numbers.attempt,
            agent=self._context.settings.name,
            step=None if self._files is None else Step(start_snapshot=self._files),
            trace=None if numbers.trace_id is None else Trace(trace_id=numbers.trace_id),
        )
        return self._with_unique_ids(replace(message, meta=meta))

    def _with_unique_ids(self, message: Message) -> Message:
        """Models reuse ids, even of turns they no longer see. A call has one result, so it gets a unique id; the
        model's is kept in its metadata (D-3.8)."""
        reused_ids = {call.tool_call_id for call in message.tool_calls} & self._context.state.call_ids
        if not reused_ids:
            return message
        new_ids = {call_id: self._environment.new_id() for call_id in sorted(reused_ids)}
        parts = tuple(
            _with_id(part, new_ids[part.tool_call_id])
            if isinstance(part, ToolCall) and part.tool_call_id in new_ids
            else part
            for part in message.parts
        )
        meta = message.meta or Meta()
        bad_args = {new_ids.get(call_id, call_id): why for call_id, why in (meta.bad_args or {}).items()}
        return replace(message, parts=parts, meta=replace(meta, bad_args=bad_args or None))


def _with_id(call: ToolCall, new_id: str) -> ToolCall:
    result = None if call.result is None else replace(call.result, tool_call_id=new_id)
    metadata = {**(call.metadata or {}), "providerToolCallId": call.tool_call_id}
    return replace(call, tool_call_id=new_id, result=result, metadata=metadata)


async def _without_repeats(stream: AsyncIterator[MessageDelta]) -> AsyncIterator[MessageDelta]:
    """The deltas of one attempt, each `seq` once: a model may repeat some after reconnecting (001 §1, D-7.10.1).

    Any other fault of the stream is left to the guard.
    """
    seqs: set[int] = set()
    try:
        async for delta in stream:
            if type(delta) is MessageDelta and type(delta.seq) is int:
                if delta.seq in seqs:
                    continue
                seqs.add(delta.seq)
            yield delta
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


# -- retries


async def _never(_: Failed) -> bool:
    return False


async def attempted(
    context: RunContext,
    attempt: Callable[[int], Awaitable[Failed | None]],
    *,
    index: int | None = None,
    recovers: Callable[[Failed], Awaitable[bool]] = _never,
) -> Failed | None:
    """Make attempts until one succeeds; the last failure if none does.

    `attempt` receives its number and returns how it failed. `index` is that of a call that answers, and `recovers`
    returns whether the cause of a failure has been removed.
    """
    number = 1 if index is None else context.state.failed_attempts + 1
    with_model = 0  # attempts with the current model
    while (failed := await attempt(number)) is not None:
        number, with_model = number + 1, with_model + 1
        is_recovered = await recovers(failed)
        delay_ms = 0 if is_recovered else context.settings.retry.delay_ms(failed, with_model, random.random)
        if delay_ms is None and not context.fallbacks:
            return failed
        context.move("prepare")
        context.tracer.retrying_call(failed, number, delay_ms or 0)
        context.channel.put(
            Retrying(error=failed, model_call_index=index, attempt=number, delay_ms=delay_ms or 0),
        )
        if delay_ms is not None:
            await asyncio.sleep(delay_ms / 1000)
        else:
            await context.switch_model(context.fallbacks.pop(0), "fallback")
            with_model = 0
    return None


def _repeats_request(context: RunContext, request: ModelRequest) -> bool:
    """Whether a paused answer leaves the request as it was before it, so that the model would pause again.

    Everything else that follows an answer adds a message. A pause adds only the answer, of which nothing may be left.
    """
    paused = context.state.last_message
    if paused is None or not _is_paused(paused):
        return False
    if not paused.parts:
        return True
    *earlier, answer = request.messages
    if not _is_paused(answer):  # a hook has added something
        return False
    if any(_is_paused(message) and _content(message) == _content(answer) for message in earlier[-1:]):
        return True
    if not isinstance(context.model, ProviderModel):
        return False
    before = replace(request, messages=tuple(earlier))
    return context.model.written(request).body == context.model.written(before).body


def _is_paused(message: Message) -> bool:
    return message.meta is not None and message.meta.finish_reason == "pause"


def _content(message: Message) -> list[Part]:
    """The parts without the times of their arrival."""
    return [replace(part, time=None) if isinstance(part, Text | Thinking) else part for part in message.parts]
