"""The calls of one answer -> their results. The executor runs tools and asks humans; what may run is decided here.

Never run, and answered with an error that says why: a call of an answer that was cut off, one whose arguments are not
JSON, and one that the model has made again and again with the same result (D-3.3.3, D-3.6).
"""

from collections.abc import Iterator

from bartack.agent.events import ApprovalRequested
from bartack.agent.live import LiveApprover
from bartack.agent.progress import REPEATED, OpenCall
from bartack.agent.work import RunFailed, Work
from bartack.nouns.entries import ApprovalRequired, Fact
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import tool_message
from bartack.nouns.parts import ToolResult
from bartack.tools import CallHistory, ToolExecutor, ToolRound, error_result

__all__ = ["executor_for", "run_round"]

_CUT = "not run: the answer that asked for it was cut off at its length limit; ask again, in smaller steps"
_REPEATED = "not run again: this call was made {count} times in a row with the same result; do something else or answer"


def executor_for(work: Work) -> ToolExecutor:
    """What runs this run's tools."""
    setup, config = work.setup, work.setup.config
    return ToolExecutor(
        setup.registry,
        environment=setup.environment,
        agent=setup.agent,
        runtime=setup.runtime,
        max_parallel=config.loop.max_parallel,
        timeout_ms=config.tools.timeout_ms or 60_000,
        approval=setup.approval,
        approver=setup.approver,
        approval_timeout_ms=setup.approval_timeout_ms,
        before=setup.hooks.before_tool,
        after=setup.hooks.after_tool,
    )


async def run_round(work: Work, executor: ToolExecutor) -> ToolRound:
    """Every open call has a result when this returns, or is among those that wait for a human.

    Raises `RunFailed` for one round too many, and for a model that will not stop repeating itself.
    """
    limit = work.setup.config.loop.max_tool_rounds
    if limit is not None and work.progress.tool_rounds > limit:
        raise RunFailed(ErrorCode.LIMIT_EXCEEDED, f"more than {limit} rounds of tools", reason="max_tool_rounds")
    _move(work)
    refused = list(_refusals(work))
    if refused:
        await work.ledger.append(*map(tool_message, refused))
    calls = work.progress.open_calls
    if not calls:
        return ToolRound(results=(), waiting=(), aborted=False)

    async def record(fact: Fact) -> None:
        await work.ledger.append(fact)
        _move(work)
        if isinstance(fact, ApprovalRequired):
            _tell_question(work, fact)

    for question in work.progress.waiting:  # asked before a crash or a pause: whoever watches now has not heard it
        if question.expires_at is None or question.expires_at > work.setup.environment.now():
            _tell_question(work, question)
    return await executor.run(
        [one.call for one in calls.values()],
        record=record,
        run_id=work.run_id,
        session_id=work.view.session_id,
        histories={call_id: _history(one) for call_id, one in calls.items()},
    )


def _tell_question(work: Work, question: ApprovalRequired) -> None:
    if isinstance(work.setup.approver, LiveApprover):
        work.setup.approver.expect(question.tool_call_id)
    work.tell(ApprovalRequested(question))


def _move(work: Work) -> None:
    work.move("ask_human" if work.progress.waiting else "run_tools")


def _history(one: OpenCall) -> CallHistory:
    started = one.started
    return CallHistory(
        starts=0 if started is None else started.attempt,
        idempotent=started is not None and started.idempotent,
        required=one.question,
        decided=one.decision,
    )


def _refusals(work: Work) -> Iterator[ToolResult]:
    progress, most = work.progress, work.setup.max_repeats
    count = progress.repeats_of()
    is_repeated = most is not None and count >= most
    if most is not None and count > most:
        names = ", ".join(sorted({one.call.tool_name for one in progress.open_calls.values()}))
        raise RunFailed(
            ErrorCode.LIMIT_EXCEEDED, f"the model repeats its call of {names} without progress", reason="repeated_call"
        )
    for call_id, one in progress.open_calls.items():
        if one.is_cut:
            yield error_result(call_id, ErrorCode.TOOL_NOT_RUN, _CUT)
        elif one.bad_args is not None:
            why = f"not run: the arguments are not a JSON object: {one.bad_args}"
            yield error_result(call_id, ErrorCode.TOOL_BAD_ARGUMENTS, why)
        elif is_repeated and one.started is None:
            message = _REPEATED.format(count=count)
            yield error_result(call_id, ErrorCode.TOOL_NOT_RUN, message, metadata={REPEATED: True})
