"""Handoffs: an agent hands the conversation over to another one.

    billing = Agent(..., name="billing", instructions="You handle refunds.")
    reception = Agent(..., name="reception", tools=[handoff(billing, "Handles invoices and refunds.")])

The model calls a tool, and from the next model call on, the other agent answers with its own model, instructions and
tools, in the same run and in later runs of the session. A `run_started` fact of the same run records which agent
answers, as it does after a resume, so the conversation stays with that agent even after a crash.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bartack.agent.run_context import ModelSwitch, RunContext, current_run, set_up_run
from bartack.nouns.errors import AgentError, ConfigError, ErrorCode
from bartack.session.run_state import HANDOFF
from bartack.tools import ToolContext, ToolDefinition, ToolOutput
from bartack.tools.definition import NeedsApproval, valid_name

if TYPE_CHECKING:
    from bartack.agent.agent import Agent

__all__ = ["Handoff", "hand_off", "handoff", "reachable", "unreachable_error"]

_SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string", "description": "Why, in one sentence."}},
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class Handoff(ToolDefinition):
    """A tool that hands the conversation over."""

    target: Callable[[], "Agent[Any, Any]"]


def handoff(
    to: "Agent[Any, Any] | Callable[[], Agent[Any, Any]]",
    description: str,
    *,
    name: str | None = None,
    requires_approval: NeedsApproval = False,
) -> ToolDefinition:
    """A tool with which a model hands the conversation over to another agent. `description` is for the model.

    The other agent needs a name. The tool is called ``transfer_to_`` followed by that name, unless you pass `name`. For
    agents that hand over to each other, `to` may be a function that returns the agent; then `name` is required.

    Raises `BartackError` with the code ``invalid_config`` if a name is missing.
    """
    is_function = not hasattr(to, "as_tool")
    if isinstance(to, type) or (is_function and not callable(to)):
        text = f"A handoff needs an agent or a function that returns one, not {to!r}."
        raise ConfigError(text)
    if not is_function:
        name = name or f"transfer_to_{_name_of(to)}"  # type: ignore[arg-type]
    if name is None:
        raise ConfigError("A handoff to a function needs a name.")
    target: Callable[[], Agent[Any, Any]] = to if is_function else lambda: to  # type: ignore[assignment,return-value]

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        agent, run = _name_of(target()), current_run.get()
        if run is not None and run.state.handoff is not None:
            text = f"Not transferred: the conversation has just been transferred to {run.state.handoff}."
            return ToolOutput(text, is_error=True)
        return ToolOutput(f"Transferred to {agent}.", metadata={HANDOFF: agent})

    return Handoff(
        name=valid_name(name),
        description=description,
        parameter_schema=_SCHEMA,
        execute=execute,
        target=target,
        requires_approval=requires_approval,
        idempotent=True,
        sequential=True,
        defer_loading=False,
    )


def reachable(tools: Iterable[ToolDefinition]) -> "dict[str, Agent[Any, Any]]":
    """The agents that a conversation may be handed over to with these tools, directly or through others, by name.

    Raises `BartackError` with the code ``invalid_config`` if two of them have the same name.
    """
    agents: dict[str, Agent[Any, Any]] = {}
    waiting = list(tools)
    while waiting:
        tool = waiting.pop()
        if not isinstance(tool, Handoff):
            continue
        agent = tool.target()
        name = _name_of(agent)
        if name not in agents:
            agents[name] = agent
            waiting += agent.tools
        elif agents[name] is not agent:
            raise ConfigError(f"Two agents are named {name!r}.")
    return agents


def _name_of(agent: "Agent[Any, Any]") -> str:
    if agent.name is None:
        raise ConfigError("An agent that takes over a conversation needs a name.")
    return agent.name


def unreachable_error(name: str, session_id: str, own_name: str | None) -> AgentError:
    """The error about a run that another agent has taken over, which is not known here."""
    own = "this agent" if own_name is None else f"agent {own_name!r}"
    text = (
        f"The open run of session {session_id!r} belongs to agent {name!r}, and {own} has no handoff to it. "
        "Resume it with that agent, or with one that has a handoff to it."
    )
    return AgentError(text, code=ErrorCode.INVALID_CONFIG)


async def hand_off(context: RunContext, name: str) -> None:
    """Let another agent continue the run; `AgentError` if this agent has no handoff to it."""
    successor = context.settings.find_agent(name)
    if successor is None:
        raise unreachable_error(name, context.session.session_id, context.settings.name)
    settings = successor.with_limits(context.settings.config.loop)
    setup = await set_up_run(settings, context.state, context.session.session_id, settings.model)
    span = context.tracer.span
    started = replace(
        setup.started(settings.name),
        handed_off=True,
        trace_id=context.trace_id,
        span_id=None if span is None else span.span_id,
        limits=context.state.limits,
        metadata=context.state.metadata,
    )
    previous = context.state.model
    await context.log.append(started, *setup.facts)
    context.settings = settings
    context.model, context.info, context.hints = setup.model, setup.info, setup.hints
    context.tool_specs, context.instructions = setup.tool_specs, setup.instructions
    context.fallbacks = list(settings.fallback_models)
    if setup.is_switched:
        context.switch = ModelSwitch(previous, "chosen")
