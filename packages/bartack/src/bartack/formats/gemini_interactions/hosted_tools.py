"""The tools that Gemini executes, as interactions declare them (ai.google.dev/gemini-api/docs/interactions)."""

from bartack.formats.tools import HostedRows, filled, hosted_row

__all__ = ["HOSTED"]

_FILES = hosted_row(
    lambda tool: {"type": "file_search", **filled(file_search_store_names=tool.stores, top_k=tool.max_results)},
    *("stores", "max_results"),
)
_MCP = hosted_row(
    lambda tool: {
        "type": "mcp_server",
        "name": tool.label,
        "url": tool.url,
        **filled(
            headers=None if tool.authorization is None else {"Authorization": f"Bearer {tool.authorization}"},
            allowed_tools=[{"mode": "any", "tools": list(tool.allowed_tools)}] if tool.allowed_tools else None,
        ),
    },
    *("label", "url", "authorization", "allowed_tools"),
)

HOSTED = HostedRows(
    "gemini-interactions",
    {
        "": {
            "web_search": hosted_row(lambda _: {"type": "google_search"}),
            "web_fetch": hosted_row(lambda _: {"type": "url_context"}),
            "code_execution": hosted_row(lambda _: {"type": "code_execution"}),
            "file_search": _FILES,
            "mcp": _MCP,
        }
    },
    beside_functions=False,  # as with generateContent
)
