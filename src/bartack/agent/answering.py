"""`Answering`: one model call of a run, with everything that may be needed until there is an answer.

A call that fails leaves a `stream_failed` fact with what had arrived and what it cost. Then it is made again: after a
compaction if the provider said that the context is too large, after a pause if the policy says so, by the next of the
fallback models if this one has failed for good. All attempts share the `model_call_index`; `attempt` tells them apart.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from msgspec.structs import replace

from bartack.agent.events import DeltaReceived, ModelSwitched, Retrying
from bartack.agent.hooks import ModelRequest
from bartack.agent.repeats import without_repeats
from bartack.agent.setup import ref_of
from bartack.agent.summary import compact
from bartack.agent.work import RunFailed, Work
from bartack.formats.losses import LossReport
from bartack.models.guard import GuardedStream, guarded
from bartack.models.model import Model
from bartack.models.provider import PreparedCall
from bartack.nouns.config import ThinkingConfig, ToolSpec
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.entries import Fact, ModelChange, StreamFailed
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import ToolCall
from bartack.nouns.requests import RequestMetadata
from bartack.stream.assembler import MessageAssembler

__all__ = ["Answering"]

_EFFORTS = frozenset(get_args(get_args(ThinkingConfig.__annotations__["effort"])[0]))


@runtime_checkable
class _Preparing(Protocol):
    """A model that can say before a call what its provider will not be told."""

    def prepare(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> PreparedCall: ...

    def send(self, call: PreparedCall) -> GuardedStream: ...


class _Switch:
    def __init__(self, previous: ModelRef | None, reason: Literal["chosen", "fallback"]) -> None:
        self.previous = previous
        self.reason = reason


class Answering:
    """The model calls of one run."""

    def __init__(self, work: Work, *, switched_from: ModelRef | None = None) -> None:
        """`switched_from` is the model that answered in this session before, where it was another one."""
        self._work = work
        self._fallbacks = list(work.setup.fallback_models)
        self._switch = None if switched_from is None else _Switch(switched_from, "chosen")
        self._assembler: MessageAssembler | None = None
        self._index = 0
        self._attempt = 0

    def snapshot(self) -> Message | None:
        """The answer so far, while one is coming."""
        return None if self._assembler is None else self._assembler.snapshot()

    async def switch(self, model: Model, reason: Literal["chosen", "fallback"]) -> None:
        """Let another model answer from here on."""
        work = self._work
        info = await work.setup.info(model)
        previous = work.progress.model
        await work.ledger.append(ModelChange(ref_of(info), previous))
        work.model, work.context_window = model, info.context_window
        self._switch = _Switch(previous, reason)

    async def ask(self) -> None:
        """Get an answer and append it; `RunFailed` where there is none to be had."""
        work, policy = self._work, self._work.setup.retry
        self._index = work.progress.call_index
        may_compact = not await compact(work)
        tries = 0
        while True:
            tries += 1
            self._attempt = work.progress.failed_attempts + 1
            work.move("call_model")
            failed = await self._try()
            if failed is None:
                return
            if failed.error_code is ErrorCode.CONTEXT_OVERFLOW and may_compact:
                may_compact = False
                if await compact(work, overflow=True):
                    continue
            delay_ms = policy.delay_ms(failed, tries, work.setup.chance)
            if delay_ms is not None:
                await self._pause(failed, delay_ms)
            elif self._fallbacks:
                work.move("prepare")
                await self.switch(self._fallbacks.pop(0), "fallback")
                tries = 0
            else:
                raise RunFailed(failed.error_code, failed.message or str(failed.error_code))

    async def _pause(self, failed: Failed, delay_ms: int) -> None:
        work = self._work
        work.move("prepare")
        attempt = work.progress.failed_attempts + 1
        work.tell(Retrying(error=failed, model_call_index=self._index, attempt=attempt, delay_ms=delay_ms))
        await asyncio.sleep(delay_ms / 1000)

    async def _try(self) -> Failed | None:
        """One attempt: its answer is appended, or its failure is."""
        work, hooks = self._work, self._work.setup.hooks
        began = work.setup.environment.now()
        assembler = self._assembler = MessageAssembler(work.run_id, guarded=True)
        failed = await self._read(assembler, await self._request())
        if failed is None:
            message = self._finished(assembler.build_final_message())
            if hooks.after_model is not None:
                message = await hooks.after_model(message) or message
            self._assembler = None  # from here on the message is the ledger's, and it carries it to the end
            await work.ledger.append(message)
            return None
        self._assembler = None
        duration_ms = round((work.setup.environment.now() - began).total_seconds() * 1000)
        await work.ledger.append(self._failure(assembler, failed, duration_ms))
        return failed

    async def _read(self, assembler: MessageAssembler, request: ModelRequest) -> Failed | None:
        channel = self._work.channel
        try:
            stream = self._stream(request)
        except BartackError as error:  # the call cannot be put into words: no provider was asked
            return Failed(error.code, str(error))
        async with aclosing(stream):
            async for delta in stream:
                assembler.consume(delta)
                if channel.is_open:
                    await channel.put_delta(DeltaReceived(delta))
        return assembler.get_error()

    def _stream(self, request: ModelRequest) -> GuardedStream:
        work, model = self._work, self._work.model
        metadata = RequestMetadata(
            session_id=work.view.session_id,
            run_id=work.run_id,
            model_call_index=self._index,
            attempt=self._attempt,
        )
        report, source = LossReport(), None
        if self._switch is not None and isinstance(model, _Preparing):
            call = model.prepare(
                request.messages, request.tools, request.system_prompt, request_metadata=metadata, **request.params
            )
            report, source = call.report, model.send(call)
        if self._switch is not None:
            self._tell_switch(self._switch, report)
        stream: AsyncIterator[MessageDelta] = source or model.stream(
            request.messages, request.tools, request.system_prompt, request_metadata=metadata, **request.params
        )
        if not isinstance(stream, GuardedStream):
            stream = without_repeats(stream)
        return guarded(stream, work.run_id, environment=work.setup.environment)

    def _tell_switch(self, switch: _Switch, report: LossReport) -> None:
        work = self._work
        assert work.progress.model is not None  # the switch was declared in a fact
        event = ModelSwitched(model=work.progress.model, previous=switch.previous, report=report, reason=switch.reason)
        work.tell(event)
        self._switch = None

    async def _request(self) -> ModelRequest:
        work, setup = self._work, self._work.setup
        context = setup.context.build_context(work.context_input)
        params: dict[str, Any] = {}
        if setup.output is not None and work.model.supports("output_schema"):
            params["output_schema"] = setup.output.schema
        if context.thinking_level in _EFFORTS:
            params["thinking"] = ThinkingConfig(effort=context.thinking_level)  # type: ignore[arg-type]
        request = ModelRequest(
            messages=context.messages,
            tools=work.specs,
            params=params,
            model_call_index=self._index,
            attempt=self._attempt,
        )
        if setup.hooks.before_model is not None:
            return await setup.hooks.before_model(request) or request
        return request

    # -- what becomes a fact

    def _finished(self, message: Message) -> Message:
        """The message with this run's numbers, and with ids that no earlier call of the session has."""
        meta = replace(
            message.meta or Meta(),
            model_call_index=self._index,
            attempt=self._attempt,
            agent=self._work.setup.name,
        )
        return _with_new_ids(replace(message, meta=meta), self._work)

    def _failure(self, assembler: MessageAssembler, failed: Failed, duration_ms: int | None) -> StreamFailed:
        meta = assembler.snapshot().meta
        return StreamFailed(
            failed,
            parts=assembler.parts,
            usage=assembler.usage,
            model=self._work.progress.model if meta is None or not meta.model or not meta.model.model else meta.model,
            response_id=None if meta is None else meta.response_id,
            duration_ms=duration_ms,
            model_call_index=self._index,
            attempt=self._attempt,
        )

    def partial(self) -> list[Fact]:
        """What an answer that was stopped in the middle leaves: its text and its whole calls, marked; or, if nothing
        was said yet, that the call was made."""
        assembler, self._assembler = self._assembler, None
        if assembler is None or assembler.last_seq < 0:
            return []
        snapshot = assembler.snapshot()
        meta = snapshot.meta or Meta()
        still_open = meta.open_calls or ()
        parts = tuple(
            part for part in snapshot.parts if not (isinstance(part, ToolCall) and part.tool_call_id in still_open)
        )
        if not parts:
            failed = Failed(ErrorCode.ABORTED, "stopped before the model said anything")
            return [self._failure(assembler, failed, None)]
        message = replace(snapshot, parts=parts, meta=replace(meta, aborted=True, open_calls=None))
        return [self._finished(message)]


def _with_new_ids(message: Message, work: Work) -> Message:
    """Models repeat ids, also from turns that they are no longer shown; one call has one result, so it needs its own
    id. The model's is kept beside it (D-3.8)."""
    taken = {call.tool_call_id for call in message.tool_calls} & work.progress.call_ids
    if not taken:
        return message
    names = {old: work.setup.environment.new_id() for old in sorted(taken)}
    parts = tuple(
        _renamed(part, names[part.tool_call_id]) if isinstance(part, ToolCall) and part.tool_call_id in names else part
        for part in message.parts
    )
    meta = message.meta or Meta()
    bad = {names.get(call_id, call_id): why for call_id, why in (meta.bad_args or {}).items()}
    return replace(message, parts=parts, meta=replace(meta, bad_args=bad or None))


def _renamed(call: ToolCall, new_id: str) -> ToolCall:
    result = None if call.result is None else replace(call.result, tool_call_id=new_id)
    metadata = {**(call.metadata or {}), "providerToolCallId": call.tool_call_id}
    return replace(call, tool_call_id=new_id, result=result, metadata=metadata)
