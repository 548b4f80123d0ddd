"""The tools that Anthropic executes (platform.claude.com/docs/en/agents-and-tools/tool-use/tool-reference).

The versions are those that every model with the tool accepts; newer ones require newer models. Vertex AI has only some
of the tools, and Bedrock none. The MCP connector needs the address of the server and a header besides its declaration.
"""

from collections.abc import Iterable
from typing import Any

from bartack.formats.tools import HostedRows, filled, hosted_row, location_fields
from bartack.nouns.config import ToolSpec
from bartack.nouns.hosted_tools import McpConnector, hosted_tool
from bartack.nouns.requests import ModelRequest

__all__ = ["HOSTED", "NAME", "headers_for", "mcp_servers"]

NAME = "anthropic-messages"

_SEARCH = hosted_row(  # recorded
    lambda tool: {
        "type": "web_search_20250305",
        "name": "web_search",
        **filled(
            max_uses=tool.max_uses,
            allowed_domains=tool.allowed_domains,
            blocked_domains=tool.blocked_domains,
            user_location=location_fields(tool.user_location),
        ),
    },
    *("max_uses", "allowed_domains", "blocked_domains", "user_location"),
)
_FETCH = hosted_row(  # recorded
    lambda tool: {
        "type": "web_fetch_20250910",
        "name": "web_fetch",
        **filled(
            max_uses=tool.max_uses,
            allowed_domains=tool.allowed_domains,
            blocked_domains=tool.blocked_domains,
            max_content_tokens=tool.max_content_tokens,
            citations={"enabled": True} if tool.citations else None,
        ),
    },
    *("max_uses", "allowed_domains", "blocked_domains", "max_content_tokens", "citations"),
)
_MCP = hosted_row(  # recorded; the address of the server is in `mcp_servers`
    lambda tool: {
        "type": "mcp_toolset",
        "mcp_server_name": tool.label,
        **filled(
            default_config={"enabled": False} if tool.allowed_tools else None,
            configs={name: {"enabled": True} for name in tool.allowed_tools},
        ),
    },
    *("label", "url", "authorization", "allowed_tools"),
)
_TOOL_SEARCH = hosted_row(  # recorded
    lambda _: {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    models=r".*(opus|sonnet|haiku)-([5-9]|4-[5-9])|.*(mythos|fable)",
)

HOSTED = HostedRows(
    NAME,
    {
        "": {
            "web_search": _SEARCH,
            "web_fetch": _FETCH,
            "code_execution": hosted_row(  # recorded
                lambda _: {"type": "code_execution_20250825", "name": "code_execution"}
            ),
            "mcp": _MCP,
            "tool_search": _TOOL_SEARCH,
        },
        "vertex-anthropic": {"web_search": _SEARCH, "tool_search": _TOOL_SEARCH},
        "bedrock-invoke": {},
    },
)


def mcp_servers(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """The entries of `mcp_servers`."""
    tools = (hosted_tool(spec.hosted) for spec in specs if spec.hosted is not None and spec.hosted.tool == "mcp")
    return [
        {"type": "url", "name": tool.label, "url": tool.url, **filled(authorization_token=tool.authorization)}
        for tool in tools
        if isinstance(tool, McpConnector)
    ]


def headers_for(request: ModelRequest) -> dict[str, str]:
    """The headers that the tools of a request need."""
    return {"anthropic-beta": "mcp-client-2025-11-20"} if mcp_servers(request.tools) else {}
