"""`ModelTurn`: gets an answer from the model, with retries, fallback models and compaction.

A failed call is recorded and retried (see `attempted`), after a compaction if the provider reports that the context is
too long. All attempts share one `model_call_index` and differ in `attempt`.
"""

from typing import Any, get_args

from msgspec.structs import replace

from bartack.agent.compaction import compact
from bartack.agent.journal import INTERRUPTED, Journal
from bartack.agent.model_call import ModelCall, attempted
from bartack.agent.run_context import RunContext, RunFailed
from bartack.agent.sent_request import RequestSetup
from bartack.agent.settings import changed_config
from bartack.nouns.config import ThinkingConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Fact, StreamFailed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["ModelTurn"]

_EFFORTS = frozenset(get_args(get_args(ThinkingConfig.__annotations__["effort"])[0]))


class ModelTurn:
    """The model's turns in one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._call: ModelCall | None = None  # while an answer is arriving
        self.answer: Message | None = None  # the last one, until the next one begins
        journal_ms = context.settings.config.loop.journal_ms
        self._journal = None if journal_ms is None else Journal(context.log, journal_ms)
        self._kept: RequestSetup | None = None  # the last one that was stored

    def snapshot(self) -> Message | None:
        """The answer so far, while one is arriving."""
        return None if self._call is None else self._call.snapshot()

    def take_partial(self) -> list[Fact]:
        """The facts about an answer that was stopped before its end."""
        call, self._call = self._call, None
        return [] if call is None else call.partial()

    def take_interrupted(self) -> StreamFailed | None:
        """The fact that keeps what has arrived of an answer that another process will ask for again."""
        call, self._call = self._call, None
        return None if call is None else call.failure(INTERRUPTED)

    async def take(self) -> None:
        """Get an answer and append it; `RunFailed` if every attempt fails."""
        context = self._context
        await context.update_tools()
        may_compact = not await compact(context)

        async def recovers(failed: Failed) -> bool:
            nonlocal may_compact
            if failed.error_code is ErrorCode.CONTEXT_OVERFLOW and may_compact:
                may_compact = False
                return await compact(context, overflow=True)
            return False

        failed = await attempted(context, self._attempt, index=context.state.call_index, recovers=recovers)
        if failed is not None:
            raise RunFailed(failed.error_code, failed.message or str(failed.error_code))

    async def _attempt(self, number: int) -> Failed | None:
        """Make one call, and append its answer or its failure."""
        context = self._context
        context.move("call_model")
        snapshot = None if context.runtime is None else await context.runtime.snapshot()
        self.answer = None
        request = self._request(number)
        call = await ModelCall.of(context, request, publish=True, snapshot=snapshot)
        if context.settings.config.loop.keep_requests:
            await self._keep(RequestSetup.of(context, request, call.request))
        self._call = call
        failed = await call.receive(self._journal)
        if failed is None:
            try:
                message = self.answer = await call.answer()
            except RunFailed as refusal:  # the answer is kept as one that failed, which no later request contains
                self._call = None
                await context.log.append(call.failure(refusal.failed))
                raise
            self._call = None  # from here on the log completes the append, even if the run is cancelled
            await context.log.append(message)
        else:
            self._call = None
            await context.log.append(call.failure(failed))
        if self._journal is not None:
            self._journal.end()
        return failed

    async def _keep(self, setup: RequestSetup) -> None:
        if setup != self._kept:
            await self._context.log.append(setup.fact())
            self._kept = setup

    async def close(self) -> None:
        """Empty the journal, once the log has the last answer."""
        if self._journal is not None:
            await self._journal.close()

    def _request(self, attempt: int) -> ModelRequest:
        context, settings = self._context, self._context.settings
        context_input = context.context_input
        built = settings.context.build_context(context_input)
        changes: dict[str, Any] = {}
        takes_schema = any(map(context.model.supports, ("output_schema", "json_mode")))
        is_sent = settings.output_mode == "native" or (settings.output_mode is None and takes_schema)
        if settings.output.type is not None and is_sent:
            changes["output_schema"] = settings.output.type.schema
        if built.thinking_level in _EFFORTS:
            changes["thinking"] = ThinkingConfig(effort=built.thinking_level)  # type: ignore[arg-type]
        config = context.model.get_config()
        if settings.model_settings:
            config = changed_config(config, settings.model_settings)
        answers_with_tool = settings.output.type is not None and settings.output_mode == "tool"
        if answers_with_tool and config.tool_choice is None and context.model.supports("tool_choice"):
            changes["tool_choice"] = "required"
        return ModelRequest(
            built.messages,
            config=replace(config, **changes) if changes else config,
            tools=context_input.tools,
            provider=context.info.provider,
            metadata=RequestMetadata(
                session_id=context.session.session_id,
                run_id=context.run_id,
                trace_id=context.trace_id,
                model_call_index=context.state.call_index,
                attempt=attempt,
            ),
        )
