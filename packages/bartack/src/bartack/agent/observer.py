"""`Observer`: what an agent's runs report to the outside: log records and counters.

It sees every fact of a run once it is durable, and nothing else, so logs and counters cannot disagree with the session.
Anything else derived from live runs, such as spans, can be derived in the same way.

Records contain names, ids, codes and counts. They never contain messages, arguments, outputs, reasons or the text of
errors, which may quote any of them.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from bartack.nouns.config import ObservabilityConfig
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    RunEnded,
    RunStarted,
    StreamFailed,
    ToolStarted,
)
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.session.run_state import RunTotals

__all__ = ["COUNTERS", "Observer"]

# What is counted, and what it means.
COUNTERS = {
    "runs.started": "runs started",
    "runs.resumed": "runs resumed, once for each time",
    "runs.handed_off": "handoffs to another agent",
    "runs.completed": "runs that completed",
    "runs.failed": "runs that failed",
    "runs.aborted": "runs that were aborted",
    "model_calls.answered": "model calls with an answer, complete or cut short by an abort",
    "model_calls.failed": "attempts at a model call that failed",
    "tokens.input": "input tokens, including cached ones",
    "tokens.output": "output tokens, including reasoning",
    "cost_usd": "US dollars, as far as prices are known",
    "tool_calls.succeeded": "tool results that are not errors",
    "tool_calls.failed": "tool results that are errors",
    "approvals.required": "tool calls that needed approval",
    "compactions": "compactions",
}
_ENDS = {"completed": logging.INFO, "failed": logging.ERROR, "aborted": logging.INFO}


class Observer:
    """The log and the counters of one agent."""

    def __init__(self, config: ObservabilityConfig) -> None:
        self._log = _own_logger(config.log_level)
        self._counts: Counter[str] | None = Counter() if config.metrics else None

    @property
    def counts(self) -> dict[str, float]:
        """The counters so far; empty if they are off."""
        return {} if self._counts is None else {name: self._counts[name] for name in COUNTERS}

    def watch(self, trace_id: str | None, *, is_resumed: bool) -> Callable[[Entry], None]:
        """What reports the facts of one run that have been stored."""
        starts = iter(("resumed" if is_resumed else "started",))  # a later one is a handoff

        def see(entry: Entry) -> None:
            where = {"session_id": entry.session_id, "run_id": entry.run_id, "trace_id": trace_id}
            if isinstance(entry.fact, RunStarted):
                self._run_started(entry.fact, next(starts, "handed_off"), where)
            elif (report := _REPORTS.get(type(entry.fact))) is not None:
                report(self, entry.fact, where)

        return see

    def _count(self, name: str, amount: float = 1) -> None:
        if self._counts is not None:
            self._counts[name] += amount  # type: ignore[assignment]

    # -- one for each kind of fact

    def _run_started(self, fact: RunStarted, how: str, where: dict[str, Any]) -> None:
        self._count(f"runs.{how}")
        text = f"run {how.replace('_', ' ')} with %s and %d tools"
        self._log.info(text, _name(fact.model), len(fact.tools), extra=where)

    def _run_ended(self, fact: RunEnded, where: dict[str, Any]) -> None:
        self._count(f"runs.{fact.status}")
        code = "" if fact.error is None else f": {fact.error.error_code}"
        self._log.log(_ENDS[fact.status], "run %s%s", fact.status, code, extra=where)

    def _message(self, fact: Message, where: dict[str, Any]) -> None:
        if fact.role == "assistant":
            self._answer(fact, fact.meta or Meta(), where)
        for result in fact.tool_results:
            self._count("tool_calls.failed" if result.is_error else "tool_calls.succeeded")
            outcome = (result.error_code or "error") if result.is_error else "succeeded"
            self._log.debug("tool call %s: %s", result.tool_call_id, outcome, extra=where)

    def _answer(self, fact: Message, meta: Meta, where: dict[str, Any]) -> None:
        self._count("model_calls.answered")
        self._count_usage(fact)
        self._log.debug(
            "%s answered after %s ms: %d tool calls, finish reason %s",
            _name(meta.model),
            meta.duration_ms,
            len(fact.tool_calls),
            meta.finish_reason,
            extra=where,
        )

    def _stream_failed(self, fact: StreamFailed, where: dict[str, Any]) -> None:
        self._count("model_calls.failed")
        self._count_usage(fact)
        attempt, code = fact.attempt or 1, fact.error.error_code
        self._log.warning("call of %s failed: %s (attempt %d)", _name(fact.model), code, attempt, extra=where)

    def _count_usage(self, fact: Fact) -> None:
        if self._counts is None:
            return
        usage, cost, *_ = RunTotals().plus(fact)
        if usage is not None:
            self._count("tokens.input", usage.input_tokens)
            self._count("tokens.output", usage.output_tokens)
        if cost is not None:
            self._count("cost_usd", cost)

    def _model_change(self, fact: ModelChange, where: dict[str, Any]) -> None:
        self._log.info("model changed from %s to %s", _name(fact.previous), _name(fact.model), extra=where)

    def _tool_started(self, fact: ToolStarted, where: dict[str, Any]) -> None:
        self._log.debug("tool call %s: %s started", fact.tool_call_id, fact.tool_name, extra=where)

    def _approval_required(self, fact: ApprovalRequired, where: dict[str, Any]) -> None:
        self._count("approvals.required")
        self._log.info("tool call %s: %s needs approval", fact.tool_call_id, fact.tool_name, extra=where)

    def _approval_decided(self, fact: ApprovalDecided, where: dict[str, Any]) -> None:
        self._log.info("tool call %s: %s", fact.tool_call_id, fact.decision, extra=where)

    def _branch_summary(self, fact: BranchSummary, where: dict[str, Any]) -> None:
        self._count_usage(fact)
        self._log.info("summarised another branch", extra=where)

    def _compaction(self, fact: CompactionSummary, where: dict[str, Any]) -> None:
        self._count("compactions")
        self._count_usage(fact)
        self._log.info("compacted from %s to %s tokens", fact.tokens_before, fact.tokens_after, extra=where)


_REPORTS: dict[type[Fact], Callable[[Observer, Any, dict[str, Any]], None]] = {
    RunEnded: Observer._run_ended,
    Message: Observer._message,
    StreamFailed: Observer._stream_failed,
    ModelChange: Observer._model_change,
    ToolStarted: Observer._tool_started,
    ApprovalRequired: Observer._approval_required,
    ApprovalDecided: Observer._approval_decided,
    BranchSummary: Observer._branch_summary,
    CompactionSummary: Observer._compaction,
}


def _name(model: ModelRef | None) -> str:
    return "an unknown model" if model is None else f"{model.provider}:{model.model}"


def _own_logger(level: str | None) -> logging.Logger:
    """The logger ``bartack.agent``, or one of this agent's own below it that has another level.

    Setting the level of the shared one would change what other agents log.
    """
    shared = logger("agent")
    if level is None:
        return shared
    own = logging.Logger(shared.name, level.upper())
    own.parent = shared
    return own
