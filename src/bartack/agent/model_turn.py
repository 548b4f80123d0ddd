"""`ModelTurn`: gets an answer from the model, whatever that takes.

A failed call is recorded and made again: after a compaction if the provider reports that the context is too long, after
a delay if the retry policy allows it, with the next fallback model if this one has failed for good. All attempts share
one `model_call_index` and differ in `attempt`.
"""

import asyncio
import random
from typing import Any, get_args

from msgspec.structs import replace

from bartack.agent.compaction import compact
from bartack.agent.events import Retrying
from bartack.agent.journal import Journal
from bartack.agent.model_call import ModelCall
from bartack.agent.run_context import RunContext, RunFailed
from bartack.agent.settings import changed_config
from bartack.nouns.config import ThinkingConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Fact
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["ModelTurn"]

_EFFORTS = frozenset(get_args(get_args(ThinkingConfig.__annotations__["effort"])[0]))


class ModelTurn:
    """The model's turns in one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._fallbacks = list(context.settings.fallback_models)
        self._call: ModelCall | None = None  # while an answer is arriving
        journal_ms = context.settings.config.loop.journal_ms
        self._journal = None if journal_ms is None else Journal(context.log, journal_ms)

    def snapshot(self) -> Message | None:
        """The answer so far, while one is arriving."""
        return None if self._call is None else self._call.snapshot()

    def take_partial(self) -> list[Fact]:
        """The facts about an answer that was stopped half-way."""
        call, self._call = self._call, None
        return [] if call is None else call.partial()

    async def take(self) -> None:
        """Get an answer and append it; `RunFailed` if there is none to be had."""
        context, policy = self._context, self._context.settings.retry
        may_compact = not await compact(context)
        attempts = 0  # with the current model
        while True:
            attempts += 1
            context.move("call_model")
            failed = await self._attempt()
            if failed is None:
                return
            if failed.error_code is ErrorCode.CONTEXT_OVERFLOW and may_compact:
                may_compact = False
                if await compact(context, overflow=True):
                    self._announce_retry(failed)
                    continue
            delay_ms = policy.delay_ms(failed, attempts, random.random)
            if delay_ms is not None:
                context.move("prepare")
                self._announce_retry(failed, delay_ms)
                await asyncio.sleep(delay_ms / 1000)
            elif self._fallbacks:
                context.move("prepare")
                self._announce_retry(failed)
                await context.switch_model(self._fallbacks.pop(0), "fallback")
                attempts = 0
            else:
                raise RunFailed(failed.error_code, failed.message or str(failed.error_code))

    def _announce_retry(self, failed: Failed, delay_ms: int = 0) -> None:
        index, attempt = self._context.state.call_index, self._context.state.failed_attempts + 1
        event = Retrying(error=failed, model_call_index=index, attempt=attempt, delay_ms=delay_ms)
        self._context.channel.put(event)

    async def _attempt(self) -> Failed | None:
        """Make one call, and append its answer or its failure."""
        context, hooks = self._context, self._context.settings.hooks
        snapshot = None if context.runtime is None else await context.runtime.snapshot()
        call = self._call = ModelCall(context, await self._request(), publish=True, snapshot=snapshot)
        failed = await call.receive(self._journal)
        if failed is None:
            message = call.answer()
            if hooks.after_model is not None:
                message = await hooks.after_model(message) or message
            self._call = None  # from here on the log completes the append, even if the run is cancelled
            await context.log.append(message)
        else:
            self._call = None
            await context.log.append(call.failure(failed))
        if self._journal is not None:
            self._journal.end()
        return failed

    async def close(self) -> None:
        """Empty the journal, once the log has the last answer."""
        if self._journal is not None:
            await self._journal.close()

    async def _request(self) -> ModelRequest:
        context, settings = self._context, self._context.settings
        built = settings.context.build_context(context.context_input)
        changes: dict[str, Any] = {}
        if settings.output.type is not None and context.model.supports("output_schema"):
            changes["output_schema"] = settings.output.type.schema
        if built.thinking_level in _EFFORTS:
            changes["thinking"] = ThinkingConfig(effort=built.thinking_level)  # type: ignore[arg-type]
        config = context.model.get_config()
        if settings.model_settings:
            config = changed_config(config, settings.model_settings)
        request = ModelRequest(
            built.messages,
            config=replace(config, **changes) if changes else config,
            tools=context.tool_specs,
            provider=context.info.provider,
            metadata=RequestMetadata(
                session_id=context.session.session_id,
                run_id=context.run_id,
                trace_id=context.trace_id,
                model_call_index=context.state.call_index,
                attempt=context.state.failed_attempts + 1,
            ),
        )
        if settings.hooks.before_model is not None:
            return await settings.hooks.before_model(request) or request
        return request
