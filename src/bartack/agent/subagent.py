"""An agent as a tool of another agent.

It works in its own session and store. The outer session keeps its answer, the id of that session, and what it used,
which counts for the outer run and its limits. The outer run's stream shows the events of the inner one, and its
approver decides about the inner calls. If the outer run is stopped, the tool's task is cancelled and the inner run is
aborted with it.
"""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bartack.agent.events import EntryAppended, RunResult, SubagentEvent
from bartack.agent.run_context import RunContext, current_run
from bartack.agent.tool_calls import publish_question
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import SPENT, Totals
from bartack.tools import Decision, ToolContext, ToolDefinition, ToolOutput
from bartack.tools.definition import NeedsApproval

if TYPE_CHECKING:
    from bartack.agent.agent import Agent

__all__ = ["agent_tool"]

_SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The task, with all the information needed to do it."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_NO_APPROVER = "neither this agent nor the one that called it has an approver"


def agent_tool(
    agent: "Agent[Any, Any]",
    name: str,
    description: str,
    *,
    agent_name: str | None,
    limits: LoopConfig,
    has_approver: bool,
    timeout_ms: int | None,
    requires_approval: NeedsApproval,
) -> ToolDefinition:
    """A tool that runs the agent with a prompt and returns its answer; the agent has these `limits` of its own."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        outer, call_id = current_run.get(), context.tool_call_id
        run = agent.stream(
            arguments["prompt"],
            deps=context.deps,
            limits=limits if outer is None else _limits_within(limits, outer),
            approver=None if has_approver else _OuterApprover(outer, call_id),
        )
        context.metadata["sessionId"] = run.session_id
        totals = Totals()
        async with run:
            async for event in run:
                if isinstance(event, EntryAppended):  # counts even if this call times out or is stopped
                    totals = totals.plus(event.entry.fact)
                    context.metadata[SPENT] = totals.as_json()
                if outer is not None:
                    await outer.channel.put_delta(SubagentEvent(call_id, agent_name or name, event))
        result = run.result
        if result.status is AgentStatus.AWAITING_HUMAN:  # nothing would resume it
            result = await agent.abort(result.session_id, reason="paused")
        return _output(name, result)

    return ToolDefinition(
        name=name,
        description=description,
        parameter_schema=_SCHEMA,
        execute=execute,
        timeout_ms=timeout_ms,
        requires_approval=requires_approval,
    )


def _output(name: str, result: RunResult[Any]) -> ToolOutput:
    metadata: dict[str, Any] = {"runId": result.run_id}
    if result.usage is not None or result.cost_usd is not None:
        metadata[SPENT] = Totals(result.usage, result.cost_usd).as_json()
    if result.status is AgentStatus.COMPLETED:
        return ToolOutput(result.output, metadata=metadata)
    why = result.reason if result.error is None else result.error.message or result.error.error_code
    return ToolOutput(f"{name} did not complete (status {result.status}): {why}", metadata=metadata, is_error=True)


def _limits_within(own: LoopConfig, outer: RunContext) -> LoopConfig:
    """The limits of the inner agent, lowered to what is left of those of the outer run."""
    limits, (usage, cost_usd) = outer.settings.config.loop, outer.state.totals
    tokens, cost = own.max_total_tokens, own.max_cost_usd
    if limits.max_total_tokens is not None:
        left = max(limits.max_total_tokens - (0 if usage is None else usage.total_tokens), 0)
        tokens = left if tokens is None else min(left, tokens)
    if limits.max_cost_usd is not None:
        left_usd = max(limits.max_cost_usd - (cost_usd or 0.0), 0.0)
        cost = left_usd if cost is None else min(left_usd, cost)
    return replace(own, max_total_tokens=tokens, max_cost_usd=cost)


class _OuterApprover:
    """Asks the approver of the outer run, under an id that names both calls, as inner ids may be in use there too."""

    def __init__(self, outer: RunContext | None, tool_call_id: str) -> None:
        self._outer = outer
        self._tool_call_id = tool_call_id

    async def decide(self, request: ApprovalRequired) -> Decision:
        approver = None if self._outer is None else self._outer.settings.tools.approver
        if self._outer is None or approver is None:
            return Decision("deny", reason=_NO_APPROVER)
        question = replace(request, tool_call_id=f"{self._tool_call_id}/{request.tool_call_id}")
        publish_question(self._outer, question)
        return await approver.decide(question)
