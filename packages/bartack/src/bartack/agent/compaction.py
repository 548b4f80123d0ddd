"""Summaries, written by a user's function or by the model.

A compaction replaces older turns with a summary. A branch summary gives the current branch a summary of another one.
"""

from msgspec.structs import replace

from bartack.agent.model_call import ModelCall, attempted
from bartack.agent.run_context import RunContext, RunFailed, RunOutcome
from bartack.agent.tracing import CompactionSpan
from bartack.events import Compacted
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import BranchSummary, Redaction
from bartack.nouns.errors import AgentError, ErrorCode, NotFound
from bartack.nouns.messages import FileDiff, Message, Meta, assistant
from bartack.nouns.requests import ModelRequest, RequestMetadata
from bartack.session.context import ContextFold, ContextInput, ContextUpdateResult, summary_messages
from bartack.session.run_state import INCOMPLETE
from bartack.tools.tool_round import Superseded

__all__ = ["compact", "compact_session", "summarise_branch"]

_SUMMARIES = 3
"""How many summaries are written at most, if each one is outdated by a redaction before it is stored."""


async def compact_session(context: RunContext) -> RunOutcome:
    """Compact on demand."""
    if not await compact(context, overflow=True):
        raise RunFailed(ErrorCode.COMPACTION_FAILED, "Compaction is disabled.")
    return RunOutcome("complete", "compacted")


async def compact(context: RunContext, *, overflow: bool = False) -> bool:
    """Compact if the context needs it, or with `overflow` because the provider refused it; whether it was done.

    Raises `RunFailed` if there is nothing left to summarise, if the summary does not shrink the context, or if there is
    no summary and the provider has refused the context as it is.
    """
    for _ in range(_SUMMARIES):
        try:
            return await _compact_once(context, overflow=overflow)
        except Superseded:  # the summary may contain what was redacted in the meantime
            pass
    if overflow:
        raise _superseded_error()
    return False


def _superseded_error() -> RunFailed:
    text = f"Something was redacted while the summary was written, {_SUMMARIES} times."
    return RunFailed(ErrorCode.COMPACTION_FAILED, text)


async def _compact_once(context: RunContext, *, overflow: bool) -> bool:
    manager = context.settings.context
    context_input = replace(context.context_input, overflow=overflow)
    update = manager.compute_context_updates(context_input)
    if update.error is not None:
        limit = "" if update.budget is None else f" (limit {update.budget:,})"
        text = f"The context has {update.tokens:,} tokens{limit} and cannot be compacted further."
        raise RunFailed(update.error, text)
    if not update.needs_compaction:
        return False
    context.move("prepare")
    with context.tracer.compaction(overflow=overflow) as span:
        return await _compact(context, context_input, update, span)


async def _compact(
    context: RunContext, context_input: ContextInput, update: ContextUpdateResult, span: CompactionSpan
) -> bool:
    manager, overflow, redactions = context.settings.context, context_input.overflow, context.log.redactions
    summary = await _summarise(context, update.to_summarise)
    if isinstance(summary, Failed):
        if overflow:
            text = f"Compaction failed: {summary.message or summary.error_code}"
            raise RunFailed(ErrorCode.COMPACTION_FAILED, text)
        return False  # older tool outputs are shortened instead, and the next call tries again
    try:
        meta = summary.meta or Meta()
        fact = manager.compaction(context_input, update, summary.text, model=meta.model, usage=meta.usage)
        fact = replace(fact, diffs=await _diffs(context, update.to_summarise))
    except AgentError as error:
        raise RunFailed(error.code, error.message) from error
    (entry,) = await context.log.append(fact, still=lambda: context.log.redactions == redactions)
    span.compacted(fact)
    context.channel.put(Compacted(entry, fact.tokens_before, fact.tokens_after))
    return True


async def _diffs(context: RunContext, messages: tuple[Message, ...]) -> tuple[FileDiff, ...] | None:
    """The files that have changed since the first of these messages; None if that is not known."""
    steps = (message.meta.step for message in messages if message.meta is not None and message.meta.step is not None)
    since = next((step.start_snapshot for step in steps if step.start_snapshot is not None), None)
    return None if since is None or context.runtime is None else await context.runtime.changes(since)


async def summarise_branch(context: RunContext, *, abandoned: str) -> RunOutcome:
    """Append a summary of what only the branch that ends in `abandoned` contains."""
    for _ in range(_SUMMARIES):
        try:
            return await _summarise_branch_once(context, abandoned=abandoned)
        except Superseded:  # the summary may contain what was redacted in the meantime
            pass
    raise _superseded_error()


async def _summarise_branch_once(context: RunContext, *, abandoned: str) -> RunOutcome:
    redactions = context.log.redactions
    messages = await _only_in(context, abandoned)
    if not messages:
        raise RunFailed(ErrorCode.COMPACTION_FAILED, "The branch contains nothing that is not already in this one.")
    summary = await _summarise(context, messages)
    if isinstance(summary, Failed):
        text = f"Summarising the branch failed: {summary.message or summary.error_code}"
        raise RunFailed(ErrorCode.COMPACTION_FAILED, text)
    meta = summary.meta or Meta()
    fact = BranchSummary(summary=summary.text, from_entry_id=abandoned, model=meta.model, usage=meta.usage)
    await context.log.append(fact, still=lambda: context.log.redactions == redactions)
    return RunOutcome("complete", "branch_summarised")


async def _only_in(context: RunContext, abandoned: str) -> tuple[Message, ...]:
    """The messages of a branch that the branch of this run does not have, within the budget of a request."""
    store, session_id = context.log.store, context.session.session_id
    try:
        branch = await store.load(session_id, head=abandoned)
    except NotFound as error:
        raise RunFailed(error.code, error.message) from error
    shared = {entry.id for entry in await store.load(session_id, head=context.session.head)}
    fold = ContextFold.of(entry for entry in branch if entry.id not in shared)
    for entry in await store.entries(session_id):  # a redaction counts, whichever branch it is on
        if isinstance(entry.fact, Redaction):
            fold.push(entry)
    window = context.info.context_window
    return context.settings.context.build_context(ContextInput(fold=fold, context_window=window)).messages


async def _summarise(context: RunContext, messages: tuple[Message, ...]) -> Message | Failed:
    if context.settings.summarise is not None:
        return assistant(await context.settings.summarise(messages))
    summary: Message | None = None

    async def attempt(number: int) -> Failed | None:
        nonlocal summary
        request = ModelRequest(
            summary_messages(messages),
            config=context.model.get_config(),
            provider=context.info.provider,
            metadata=RequestMetadata(
                session_id=context.session.session_id, run_id=context.run_id, trace_id=context.trace_id, attempt=number
            ),
        )
        call = await ModelCall.of(context, request, publish=False)
        failed = await call.receive()
        if failed is None:
            summary = await call.answer()
            if summary.text.strip() and summary.meta is not None and summary.meta.finish_reason not in INCOMPLETE:
                return None
            failed = Failed(ErrorCode.COMPACTION_FAILED, "the summary is empty, cut off, filtered or refused")
        await context.log.append(call.failure(failed))
        return failed

    failed = await attempted(context, attempt)
    if failed is not None:
        return failed
    assert summary is not None
    return summary
