"""Compaction: older turns become one summary, written by a user's function or by a model, and one fact says so."""

from contextlib import aclosing
from typing import NamedTuple

from msgspec.structs import replace

from bartack.agent.events import Compacted
from bartack.agent.work import RunFailed, Work
from bartack.models.guard import guarded
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import AgentError, ErrorCode
from bartack.nouns.messages import ModelRef
from bartack.nouns.requests import RequestMetadata
from bartack.session.context import ContextUpdateResult, summary_request
from bartack.stream.assembler import MessageAssembler

__all__ = ["compact"]


class _Summary(NamedTuple):
    text: str
    model: ModelRef | None = None
    usage: Usage | None = None


async def compact(work: Work, *, overflow: bool = False) -> bool:
    """Compact if the context asks for it, or, with `overflow`, because the provider did; whether it was done.

    `RunFailed` where nothing can be left out any more, where the summary is no shorter than what it stands for, and
    where there is no summary and the provider has refused the context as it is.
    """
    manager = work.setup.context
    given = replace(work.context_input, overflow=overflow)
    update = manager.compute_context_updates(given)
    if update.error is not None:
        room = "" if update.budget is None else f", there is room for {update.budget},"
        raise RunFailed(update.error, f"the context has {update.tokens} tokens{room} and cannot be made smaller")
    if not update.needs_compaction:
        return False
    work.move("prepare")
    summary = await _summary(work, update)
    if summary is None:
        if overflow:
            raise RunFailed(ErrorCode.COMPACTION_FAILED, "the model gave no summary")
        return False  # older tool outputs are shortened instead, and the next call tries again
    try:
        fact = manager.compaction(given, update, summary.text, model=summary.model, usage=summary.usage)
    except AgentError as error:
        raise RunFailed(error.code, error.message) from error
    (entry,) = await work.ledger.append(fact)
    work.tell(Compacted(entry, fact.tokens_before, fact.tokens_after))
    return True


async def _summary(work: Work, update: ContextUpdateResult) -> _Summary | None:
    if work.setup.summarise is not None:
        return _Summary(await work.setup.summarise(update.to_summarise))
    metadata = RequestMetadata(session_id=work.view.session_id, run_id=work.run_id)
    assembler = MessageAssembler(work.run_id, guarded=True)
    stream = guarded(work.model.stream(summary_request(update), request_metadata=metadata), work.run_id)
    async with aclosing(stream):
        async for delta in stream:
            assembler.consume(delta)
    failed = assembler.get_error()
    message = assembler.snapshot()
    if failed is None and message.text.strip() and message.meta and message.meta.finish_reason != "length":
        return _Summary(message.text, message.meta.model, assembler.usage)
    error = failed or Failed(ErrorCode.COMPACTION_FAILED, "the summary is empty or cut off")
    await work.ledger.append(StreamFailed(error, parts=assembler.parts, usage=assembler.usage))
    return None
