"""An agent as a tool of another agent.

It works in its own session and store; the parent's session keeps its answer and the id of that session. If
the parent's run is stopped, the tool's task is cancelled and the inner run is aborted with it.
"""

from typing import TYPE_CHECKING, Any

from bartack.nouns.errors import ToolError
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump
from bartack.tools import ToolContext, ToolDefinition, ToolOutput

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


def agent_tool(agent: "Agent[Any, Any]", name: str, description: str, *, timeout_ms: int | None) -> ToolDefinition:
    """A tool that runs the agent with a prompt and returns its answer."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        result = await agent.run(arguments["prompt"])
        if result.status is not AgentStatus.COMPLETED:
            why = result.reason if result.error is None else result.error.message or result.error.error_code
            raise ToolError(f"{name} did not complete (status {result.status}): {why}")
        metadata: dict[str, Any] = {"sessionId": result.session_id, "runId": result.run_id}
        if result.usage is not None:
            metadata["usage"] = dump(result.usage)
        return ToolOutput(result.output, metadata=metadata)

    return ToolDefinition(
        name=name, description=description, parameter_schema=_SCHEMA, execute=execute, timeout_ms=timeout_ms
    )
