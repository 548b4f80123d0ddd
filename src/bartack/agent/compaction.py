"""Compaction: older turns are replaced by a summary, written by a user's function or by the model."""

from msgspec.structs import replace

from bartack.agent.events import Compacted
from bartack.agent.model_call import ModelCall
from bartack.agent.run_context import RunContext, RunFailed
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import AgentError, ErrorCode
from bartack.nouns.messages import Message, Meta, assistant
from bartack.nouns.requests import ModelRequest, RequestMetadata
from bartack.session.context import ContextUpdateResult, summary_request
from bartack.tools.tool_round import Superseded

__all__ = ["compact"]


async def compact(context: RunContext, *, overflow: bool = False) -> bool:
    """Compact if the context needs it, or with `overflow` because the provider refused it; whether it was done.

    Raises `RunFailed` if there is nothing left to summarise, if the summary does not shrink the context, or if there is
    no summary and the provider has refused the context as it is.
    """
    manager = context.settings.context
    given = replace(context.context_input, overflow=overflow)
    update = manager.compute_context_updates(given)
    if update.error is not None:
        limit = "" if update.budget is None else f" (limit {update.budget:,})"
        text = f"The context has {update.tokens:,} tokens{limit} and cannot be compacted further."
        raise RunFailed(update.error, text)
    if not update.needs_compaction:
        return False
    context.move("prepare")
    redactions = context.log.redactions
    summary = await _summarise(context, update)
    if isinstance(summary, Failed):
        if overflow:
            text = f"Compaction failed: {summary.message or summary.error_code}"
            raise RunFailed(ErrorCode.COMPACTION_FAILED, text)
        return False  # older tool outputs are shortened instead, and the next call tries again
    try:
        meta = summary.meta or Meta()
        fact = manager.compaction(given, update, summary.text, model=meta.model, usage=meta.usage)
    except AgentError as error:
        raise RunFailed(error.code, error.message) from error
    try:
        (entry,) = await context.log.append(fact, still=lambda: context.log.redactions == redactions)
    except Superseded:  # the summary may contain what was redacted in the meantime
        return await compact(context, overflow=overflow)
    context.channel.put(Compacted(entry, fact.tokens_before, fact.tokens_after))
    return True


async def _summarise(context: RunContext, update: ContextUpdateResult) -> Message | Failed:
    if context.settings.summarise is not None:
        return assistant(await context.settings.summarise(update.to_summarise))
    request = ModelRequest(
        summary_request(update),
        config=context.model.get_config(),
        provider=context.info.provider,
        metadata=RequestMetadata(
            session_id=context.session.session_id, run_id=context.run_id, trace_id=context.trace_id
        ),
    )
    call = ModelCall(context, request, publish=False)
    failed = await call.receive()
    if failed is None:
        message = call.answer()
        if message.text.strip() and message.meta is not None and message.meta.finish_reason != "length":
            return message
        failed = Failed(ErrorCode.COMPACTION_FAILED, "the summary is empty or cut off")
    await context.log.append(call.failure(failed))
    return failed
