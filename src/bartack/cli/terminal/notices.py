"""What happens to a run, in one sentence for people; the screens share the words."""

from collections import Counter

from bartack.agent.events import Compacted, Event, ModelSwitched, Retrying, RunFinished, RunPaused, RunResult
from bartack.cli.terminal.looks import BAD, FAINT, NOTE, seconds
from bartack.cli.terminal.safe_text import safe_line
from bartack.nouns.deltas import Failed
from bartack.nouns.tables import AgentStatus

__all__ = ["STOPPED", "notice"]

STOPPED = "stopped; what was said is kept"
_FINISHES = {
    "length": "cut off at the length limit",
    "content_filter": "the provider's content filter ended the answer",
    "refusal": "the model declined to answer",
}


def notice(event: Event) -> tuple[str, str] | None:
    """A sentence about the event and its style; None if there is nothing to say."""
    match event:
        case Retrying():
            wait = seconds(event.delay_ms / 1000).replace(".0 ", " ")
            return NOTE, f"{_failure(event.error)}; trying again in {wait} (attempt {event.attempt})"
        case ModelSwitched():
            return NOTE, _switch(event)
        case Compacted():
            return FAINT, f"older turns are told to the model as a summary{_tokens(event)}"
        case RunPaused():
            count = len(event.approvals)
            return NOTE, f"paused: {count} call{'s wait' if count != 1 else ' waits'} for a decision"
        case RunFinished():
            return _end(event.result)
        case _:
            return None


def _failure(failed: Failed) -> str:
    message = safe_line(failed.message).rstrip(".")
    return f"{failed.error_code}: {message}" if message and message != failed.error_code else str(failed.error_code)


def _switch(event: ModelSwitched) -> str:
    name = safe_line(f"{event.model.provider}/{event.model.model}")
    why = " because the model before it failed" if event.reason == "fallback" else ""
    lost = Counter(loss.what for loss in event.report.losses)
    told = ", ".join(safe_line(what) + (f" ({count} times)" if count > 1 else "") for what, count in lost.items())
    return f"{name} answers from here on{why}" + (f"; it is not told: {told}" if told else "")


def _tokens(event: Compacted) -> str:
    if event.tokens_before is None or event.tokens_after is None:
        return ""
    return f": {event.tokens_before:,} tokens before, {event.tokens_after:,} after"


def _end(result: RunResult) -> tuple[str, str] | None:
    match result.status:
        case AgentStatus.FAILED:
            if result.error is None:
                return BAD, f"failed: {safe_line(result.reason or 'no reason given')}"
            return BAD, _failure(result.error)
        case AgentStatus.ABORTED:
            return FAINT, STOPPED
        case AgentStatus.COMPLETED:
            meta = None if result.message is None else result.message.meta
            words = None if meta is None else _FINISHES.get(meta.finish_reason or "")
            return None if words is None else (NOTE, words)
        case _:
            return None
