"""The open calls of a run -> their results: executed, refused, or closed when the run ends without them."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

from msgspec.structs import replace

from bartack.agent.approvals import LiveApprover
from bartack.agent.run_context import RunContext, RunFailed
from bartack.events import ApprovalRequested, RunResult
from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import ApprovalRequired, Fact, RunEnded, ToolProgress, ToolStarted
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, tool_message
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.session.decisions import Decision, decision_of, result_message
from bartack.session.run_state import REPEATED, SESSION, WAITING, OpenCall, RunState, RunTotals, nested_id
from bartack.store.session_store import SessionStore
from bartack.tools import RoundOutcome, ToolDefinition, ToolExecutor, ToolRegistry, error_result
from bartack.tools.call_approval import CallApproval
from bartack.tools.tool_round import Superseded, ToolRound

__all__ = [
    "SubagentTool",
    "closing_facts",
    "decide_nested",
    "end_inner_runs",
    "execute_calls",
    "publish_question",
    "record_nested",
    "stopped_results",
    "with_results",
]

_REPEATED = (
    "Not executed: this call was made {} times in a row with the same result. Try something else, or answer the user."
)
_NOT_RUN = "Not executed: the run ended before this call was started."
_STOPPED = "Aborted: the run ended while the tool was running; part of its work may have been done."


async def execute_calls(context: RunContext, executor: ToolExecutor) -> RoundOutcome:
    """Give every open call a result, except those that need an approval or are deferred.

    Raises `RunFailed` if there were too many rounds, or if the model keeps repeating its calls.
    """
    limit = context.settings.config.loop.max_tool_rounds
    if limit is not None and context.state.totals.tool_rounds > limit:
        raise RunFailed(ErrorCode.LIMIT_EXCEEDED, f"More than {limit} rounds of tool calls.", reason="max_tool_rounds")
    _update_status(context)
    await _refuse_repeats(context)

    calls = dict(context.state.open_calls)
    # Questions of sub-agents, asked before a crash or a pause. The executor repeats its own.
    for question in context.state.questions:
        is_open = question.expires_at is None or question.expires_at > context.settings.environment.now()
        if question.tool_call_id not in calls and is_open:
            publish_question(context, question)
    try:
        return await executor.run(
            calls.values(),
            log=_Calls(context),
            run_id=context.run_id,
            session_id=context.session.session_id,
            tracer=context.tracer,
        )
    finally:
        if isinstance(context.settings.tools.approver, LiveApprover):
            context.settings.tools.approver.forget(
                [id for key, open_call in calls.items() for id in (key, *open_call.nested)]
            )


class _Calls:
    """The calls of a run, as the executor reads and records them."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def record(self, fact: Fact, *, still: Callable[[], bool] | None = None) -> None:
        context = self._context

        def may_start() -> bool:
            return context.state.abort is None and (still is None or still())

        condition = may_start if isinstance(fact, ToolStarted) else still
        await context.log.append(
            fact, still=condition, may_share=isinstance(fact, ToolStarted | ToolProgress | Message)
        )
        _update_status(context)
        if isinstance(fact, ApprovalRequired):
            publish_question(context, fact)

    def find(self, tool_call_id: str) -> OpenCall | None:
        return self._context.state.find(tool_call_id)

    async def changed(self) -> None:
        await self._context.log.changed()

    def publish(self, question: ApprovalRequired) -> None:
        publish_question(self._context, question)


def _update_status(context: RunContext) -> None:
    context.move("ask_human" if context.state.questions else "run_tools")


def publish_question(context: RunContext, question: ApprovalRequired) -> None:
    """Publish an event for a call that needs approval."""
    approver = context.settings.tools.approver
    if isinstance(approver, LiveApprover):
        approver.expect(question)
    context.channel.put(ApprovalRequested(question))


# -- the calls of sub-agents


async def decide_nested(context: RunContext, question: ApprovalRequired) -> Decision | None:
    """The decision about a call of a sub-agent, whose id names both calls: from this run's session, or its approver.

    None without a decision or an approver; the sub-agent then pauses.
    """
    log, settings = _Calls(context), context.settings.tools
    nested_call = log.find(question.tool_call_id)
    if settings.approver is None and (nested_call is None or nested_call.verdict is None):
        return None
    round = ToolRound(settings, log, context.run_id, context.session.session_id, context.tracer)
    if nested_call is None or nested_call.question != question:
        await round.record(question)
    approval = CallApproval(round, question)
    while True:
        with suppress(Superseded):  # another process decided first
            decided = await approval.verdict()
            return None if decided is None else decision_of(decided)


async def record_nested(context: RunContext, tool_call_id: str, result: RunResult) -> None:
    """Record that the sub-agent of a call has paused: what it waits for, as this session names it."""
    facts: list[Fact] = []
    waiting: list[ApprovalRequired | ToolStarted] = [*result.approvals, *result.deferred]
    for inner_fact in waiting:
        nested = replace(inner_fact, tool_call_id=nested_id(tool_call_id, inner_fact.tool_call_id))
        nested_call = context.state.find(nested.tool_call_id)
        if nested_call is None or nested not in (nested_call.question, nested_call.started):
            facts.append(nested)
    names = ", ".join(inner_fact.tool_name for inner_fact in waiting)
    ids = [nested_id(tool_call_id, inner_fact.tool_call_id) for inner_fact in waiting]
    metadata = {SESSION: result.session_id, WAITING: ids}
    facts.append(ToolProgress(tool_call_id=tool_call_id, content=f"Waiting for: {names}.", metadata=metadata))
    await context.log.append(*facts)
    _update_status(context)
    for fact in facts:
        if isinstance(fact, ApprovalRequired):
            publish_question(context, fact)


async def _refuse_repeats(context: RunContext) -> None:
    """Refuse calls that were made `max_repeats` times in a row with the same result; the next time, fail the run."""
    state, limit = context.state, context.settings.max_repeats
    count = state.repeats
    if limit is None or count < limit:
        return
    if count > limit:
        names = ", ".join(sorted({open_call.call.tool_name for open_call in state.open_calls.values()}))
        text = f"The model keeps repeating the same call ({names}) without progress."
        raise RunFailed(ErrorCode.LIMIT_EXCEEDED, text, reason="repeated_call")
    refused = [
        error_result(call_id, ErrorCode.TOOL_NOT_RUN, _REPEATED.format(count), metadata={REPEATED: True})
        for call_id, open_call in state.open_calls.items()
        if open_call.started is None and not open_call.truncated and open_call.bad_args is None
    ]
    if refused:
        await context.log.append(*map(tool_message, refused))


def closing_facts(state: RunState, *before: Fact) -> list[Fact]:
    """The facts that end a run which will not be resumed (D-5.8), after those that come before."""
    not_started, started = (ErrorCode.TOOL_NOT_RUN, _NOT_RUN), (ErrorCode.TOOL_INTERRUPTED, INTERRUPTED)
    facts: list[Fact] = [*before, *_results(state.open_calls.values(), not_started, started)]
    if state.run_id is not None:
        totals = reduce(RunTotals.plus, before, state.totals)
        reason = "interrupted" if state.abort is None else state.abort.reason or "user"
        facts.append(RunEnded(status="aborted", reason=reason, usage=totals.usage, cost_usd=totals.cost_usd))
    return facts


def with_results(history: Iterable[Message], used: Collection[str], new_id: Callable[[], str]) -> list[Message]:
    """Messages from elsewhere, with a result for each call that has none: such calls are not executed here.

    Calls whose ids are in use, in the session or earlier in the history, get others: the session has one result per id.
    """
    messages = _with_unique_ids(history, set(used), new_id)
    answered = {result.tool_call_id for message in messages for result in message.tool_results}
    completed: list[Message] = []
    for message in messages:
        calls = [call for call in message.tool_calls if call.executed_by == "client"]
        open_calls = [OpenCall(call) for call in calls if call.tool_call_id not in answered]
        not_run = (ErrorCode.TOOL_NOT_RUN, _NOT_RUN)
        completed += [message, *_results(open_calls, not_run, not_run)]
    return completed


def _with_unique_ids(history: Iterable[Message], used: set[str], new_id: Callable[[], str]) -> list[Message]:
    current: dict[str, str] = {}  # the id that a call has in the history -> in the session

    def part_of(part: Part) -> Part | None:
        if isinstance(part, ToolCall):
            current[part.tool_call_id] = new_id() if part.tool_call_id in used else part.tool_call_id
            used.add(current[part.tool_call_id])
            return replace(part, tool_call_id=current[part.tool_call_id])
        if isinstance(part, ToolResult):
            call_id = current.pop(part.tool_call_id, None)
            return None if call_id is None else replace(part, tool_call_id=call_id)  # no call, or a second result
        return part

    renamed = []
    for message in history:
        parts = tuple(part for original in message.parts if (part := part_of(original)) is not None)
        if parts or not message.parts:
            renamed.append(replace(message, parts=parts))
    return renamed


def stopped_results(calls: Iterable[OpenCall]) -> list[Message]:
    """The results of calls that are still open when their run ends."""
    return _results(calls, (ErrorCode.TOOL_ABORTED, _NOT_RUN), (ErrorCode.TOOL_ABORTED, _STOPPED))


def _results(
    calls: Iterable[OpenCall], not_started: tuple[ErrorCode, str], started: tuple[ErrorCode, str]
) -> list[Message]:
    return [
        result_message(
            error_result(open_call.call.tool_call_id, *(not_started if open_call.started is None else started))
            if open_call.posted is None
            else open_call.posted.result,
            open_call.decision,
            open_call.posted_id,
        )
        for open_call in calls
    ]


# -- calls that run another agent


@dataclass(frozen=True, kw_only=True)
class SubagentTool(ToolDefinition):
    """A tool that runs another agent."""

    end: Callable[[str, SessionStore], Awaitable[None]]  # its run in a session; the store is that of the outer run


async def end_inner_runs(calls: Iterable[OpenCall], registry: ToolRegistry, store: SessionStore) -> None:
    """End the paused runs of sub-agents whose calls have been closed: nothing would resume them.

    What cannot be ended, because its session is gone or in use, is left as it is.
    """
    for open_call in calls:
        tool = registry.get(open_call.call.tool_name)
        if open_call.inner_session is not None and isinstance(tool, SubagentTool):
            with suppress(BartackError):
                await tool.end(open_call.inner_session, store)
