"""Tools: what an agent may do, how it is done, and who must be asked first.

`@tool` makes a tool of a typed function, `ToolRegistry` holds them, `ToolExecutor` runs the calls of an answer and
leaves a result for each. `LocalRuntime` with `file_tools` gives an agent a directory to work in.
"""

from bartack.tools.approval import (
    ApprovalPolicy,
    Approver,
    Decision,
    always,
    arguments_digest,
    by_definition,
    by_tool,
    decided_fact,
    never,
)
from bartack.tools.call_history import CallFold, CallHistory
from bartack.tools.definition import Tool, ToolDefinition, tool
from bartack.tools.executor import ToolExecutor, ToolRound
from bartack.tools.local_runtime import LocalRuntime
from bartack.tools.output import ToolOutput, error_result
from bartack.tools.registry import ToolRegistry
from bartack.tools.runtime import Runtime, file_tools
from bartack.tools.tool_context import ToolContext

__all__ = [
    "ApprovalPolicy",
    "Approver",
    "CallFold",
    "CallHistory",
    "Decision",
    "LocalRuntime",
    "Runtime",
    "Tool",
    "ToolContext",
    "ToolDefinition",
    "ToolExecutor",
    "ToolOutput",
    "ToolRegistry",
    "ToolRound",
    "always",
    "arguments_digest",
    "by_definition",
    "by_tool",
    "decided_fact",
    "error_result",
    "file_tools",
    "never",
    "tool",
]
