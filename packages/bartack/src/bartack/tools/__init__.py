"""Tools: what an agent can do, how it is executed, and which calls need approval.

`@tool` turns a typed function into a tool, `ToolRegistry` holds tools, and `ToolExecutor` executes the calls of an
answer and returns a result for each. `LocalRuntime` with `file_tools` gives an agent a directory to work in.
"""

from bartack.nouns.hosted_tools import (
    CodeExecution,
    FileSearch,
    ImageGeneration,
    McpConnector,
    ProviderTool,
    UserLocation,
    WebFetch,
    WebSearch,
)
from bartack.session.decisions import Decision, arguments_digest, decided_fact
from bartack.tools.approval import (
    ApprovalPolicy,
    Approver,
    always,
    by_definition,
    by_tool,
    never,
)
from bartack.tools.definition import Tool, ToolDefinition, tool
from bartack.tools.executor import RoundOutcome, ToolExecutor
from bartack.tools.local_runtime import LocalRuntime
from bartack.tools.output import ToolOutput, error_result
from bartack.tools.provider_tools import provider_tool
from bartack.tools.registry import ToolRegistry, Tools
from bartack.tools.runtime import Runtime, file_tools
from bartack.tools.tool_context import ToolContext
from bartack.tools.tool_round import ToolSettings
from bartack.tools.toolset import Toolset

__all__ = [
    "ApprovalPolicy",
    "Approver",
    "CodeExecution",
    "Decision",
    "FileSearch",
    "ImageGeneration",
    "LocalRuntime",
    "McpConnector",
    "ProviderTool",
    "RoundOutcome",
    "Runtime",
    "Tool",
    "ToolContext",
    "ToolDefinition",
    "ToolExecutor",
    "ToolOutput",
    "ToolRegistry",
    "ToolSettings",
    "Tools",
    "Toolset",
    "UserLocation",
    "WebFetch",
    "WebSearch",
    "always",
    "arguments_digest",
    "by_definition",
    "by_tool",
    "decided_fact",
    "error_result",
    "file_tools",
    "never",
    "provider_tool",
    "tool",
]
