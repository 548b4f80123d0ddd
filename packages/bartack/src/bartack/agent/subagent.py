"""An agent as a tool of another agent.

It works in its own session, in its own store or, if it has none, in the store of the outer run. The session's id begins
with that of the outer session, so users who may access sessions with a certain prefix can also see those of their
sub-agents. The outer session keeps this id, the answer, and the sub-agent's usage, which counts towards the outer run
and its limits. The outer run's stream includes the events of the inner run. If the outer run is stopped, the tool's
task is cancelled and the inner run is aborted.

The outer run's approver decides about the inner calls. Without one, or if an inner call is deferred, both runs pause.
The inner questions and deferred calls are also recorded in the outer session, under ids that combine both calls. When
the outer run is resumed, decisions and results posted there are passed on: the tool runs again and resumes the inner
session where it stopped, as it does after a crash.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bartack.agent.options import RunSettings
from bartack.agent.run import Run
from bartack.agent.run_context import RunContext, current_run
from bartack.agent.tool_calls import SubagentTool, decide_nested, record_nested
from bartack.events import EntryAppended, RunResult, SubagentEvent
from bartack.formats.repair import INTERRUPTED
from bartack.nouns.config import LoopConfig
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, ToolError
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import AGENT, SESSION, SPENT, OpenCall, nested_id
from bartack.store.append import is_valid_id
from bartack.store.session_store import SessionStore
from bartack.tools import Approver, Decision, ToolContext, ToolDefinition, ToolOutput
from bartack.tools.definition import NeedsApproval, valid_name
from bartack.tools.tool_round import CallPaused

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


def agent_tool(
    agent: "Agent[Any, Any]",
    name: str,
    description: str,
    *,
    agent_name: str | None,
    limits: LoopConfig,
    approver: Approver | None,
    timeout_ms: int | None,
    requires_approval: NeedsApproval,
    uses_outer_model: bool,
) -> ToolDefinition:
    """A tool that runs the agent with a prompt and returns its answer. `limits` and `approver` are the agent's own."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        outer, call_id = current_run.get(), context.tool_call_id
        settings: RunSettings[Any] = {"deps": context.deps, "limits": limits}
        if outer is None:
            run = agent.stream(arguments["prompt"], **settings)
        else:
            settings["limits"] = _limits_within(limits, outer)
            settings["approver"] = _OuterApprover(approver, outer, call_id)
            if uses_outer_model:
                settings["model"] = outer.model
            own = _stored(agent, outer.log.store)
            call = outer.state.find(call_id)
            if call is None or call.inner_session is None:
                session = _new_session(outer)
                label = agent_name or name
                await context.progress(f"{label} has started.", **{SESSION: session, AGENT: label})
                run = own.stream(arguments["prompt"], session=session, **settings)
            else:
                run = await _resumed(own, call, call.inner_session, settings)
        context.metadata[SESSION] = run.session_id
        try:
            async with run:
                async for event in run:
                    if isinstance(event, EntryAppended):  # counts even if this call times out or is stopped
                        context.metadata[SPENT] = run.totals.as_json()
                    if outer is not None:
                        await outer.channel.put_delta(SubagentEvent(call_id, agent_name or name, event))
        except NotFound:  # its store did not survive the crash
            raise ToolError(INTERRUPTED, code=ErrorCode.TOOL_INTERRUPTED) from None
        result = run.result
        if result.status is AgentStatus.AWAITING_HUMAN:
            if outer is None:  # nothing would resume it
                result = await agent.abort(result.session_id, reason="paused")
            else:
                await record_nested(outer, call_id, result)
                raise CallPaused
        context.metadata[SPENT] = run.totals.as_json()
        return _output(name, result)

    async def end(session: str, store: SessionStore) -> None:
        await _stored(agent, store).abort(session, reason="outer run ended")

    return SubagentTool(
        name=valid_name(name),
        description=description,
        parameter_schema=_SCHEMA,
        execute=execute,
        timeout_ms=timeout_ms,
        requires_approval=requires_approval,
        idempotent=True,  # run again, it continues
        end=end,
    )


def _stored(agent: "Agent[Any, Any]", store: SessionStore) -> "Agent[Any, Any]":
    """The agent with its own store, or else with that of the outer run."""
    return agent if agent.store is not None else agent.with_store(store)


def _new_session(outer: RunContext) -> str:
    """The id of a new session: below that of the outer one, unless it would become too long."""
    own = outer.settings.environment.new_id()
    below = f"{outer.session.session_id}/{own}"
    return below if is_valid_id(below) else own


async def _resumed(agent: "Agent[Any, Any]", call: OpenCall, session: str, settings: RunSettings[Any]) -> Run[Any]:
    """The inner run that the call started before, after passing on the results that were posted for it."""
    for inner_id, inner_call in _inner_calls(call):
        if inner_call.posted is not None:
            with suppress(Conflict, NotFound):  # it has been passed on before
                await agent.post_result(
                    session, inner_id, inner_call.posted.result, posted_by=inner_call.posted.posted_by
                )
    # Only the run that holds the outer session works on the inner one, so its earlier owner is gone.
    settings["takeover"] = True
    return agent.resume_stream(session, **settings)


def _inner_calls(call: OpenCall) -> list[tuple[str, OpenCall]]:
    own = len(nested_id(call.call.tool_call_id, ""))
    return [(call_id[own:], inner_call) for call_id, inner_call in call.nested.items()]


def _output(name: str, result: RunResult[Any]) -> ToolOutput:
    metadata: dict[str, Any] = {"runId": result.run_id}
    if result.status is AgentStatus.COMPLETED:
        return ToolOutput(result.output, metadata=metadata)
    why = result.reason if result.error is None else result.error.message or result.error.error_code
    return ToolOutput(f"{name} did not complete (status {result.status}): {why}", metadata=metadata, is_error=True)


def _limits_within(own: LoopConfig, outer: RunContext) -> LoopConfig:
    """The limits of the inner agent, lowered to what is left of those of the outer run."""
    limits, totals = outer.settings.config.loop, outer.state.totals
    used = {
        "max_iterations": totals.iterations,
        "max_tool_rounds": totals.tool_rounds,
        "max_total_tokens": totals.tokens,
        "max_cost_usd": totals.cost_usd or 0.0,
    }
    lowered: dict[str, Any] = {}
    for name, amount in used.items():
        bounds = [getattr(own, name), None if (limit := getattr(limits, name)) is None else max(limit - amount, 0)]
        lowered[name] = min((limit for limit in bounds if limit is not None), default=None)
    return replace(own, **lowered)


class _OuterApprover:
    """Asks the agent's own approver if it has one, and otherwise, or if that leaves the question open, the outer run's
    session and approver."""

    def __init__(self, own: Approver | None, outer: RunContext, tool_call_id: str) -> None:
        self._own = own
        self._outer = outer
        self._tool_call_id = tool_call_id

    async def decide(self, request: ApprovalRequired) -> Decision | None:
        question = replace(request, tool_call_id=nested_id(self._tool_call_id, request.tool_call_id))
        nested_call = self._outer.state.find(question.tool_call_id)
        if self._own is not None and (nested_call is None or nested_call.verdict is None):
            decision = await self._own.decide(request)
            if decision is not None and decision.decision != "pause":
                return decision
        return await decide_nested(self._outer, question)
