"""The tools that OpenAI and xAI execute.

Sources: developers.openai.com/api/docs/guides/tools, docs.x.ai/docs/guides/tools/overview.
"""

from bartack.formats.tools import HostedRows, filled, hosted_row, location_fields

__all__ = ["HOSTED"]

_SEARCH = hosted_row(  # recorded
    lambda tool: {
        "type": "web_search",
        **filled(
            search_context_size=tool.context_size,
            user_location=location_fields(tool.user_location),
            filters=filled(allowed_domains=tool.allowed_domains),
        ),
    },
    *("context_size", "user_location", "allowed_domains"),
)
_CODE = hosted_row(  # recorded
    lambda tool: {"type": "code_interpreter", "container": {"type": "auto", **filled(file_ids=tool.file_ids)}},
    "file_ids",
)
_FILES = hosted_row(  # recorded
    lambda tool: {
        "type": "file_search",
        **filled(vector_store_ids=tool.stores, max_num_results=tool.max_results),
    },
    *("stores", "max_results"),
)
_MCP = hosted_row(  # recorded
    lambda tool: {
        "type": "mcp",
        "server_label": tool.label,
        "server_url": tool.url,
        **filled(
            server_description=tool.description,
            authorization=tool.authorization,
            allowed_tools=tool.allowed_tools,
        ),
        "require_approval": tool.approval,
    },
    *("label", "url", "description", "authorization", "allowed_tools", "approval"),
)
_IMAGES = hosted_row(  # recorded
    lambda tool: {
        "type": "image_generation",
        **filled(size=tool.size, quality=tool.quality, background=tool.background, output_format=tool.output_format),
    },
    *("size", "quality", "background", "output_format"),
)
_TOOL_SEARCH = hosted_row(
    lambda _: {"type": "tool_search"}, models=r"(.*[/.:])?gpt-(5\.([4-9]|\d\d)|[6-9])"
)  # recorded
_XAI_SEARCH = hosted_row(
    lambda tool: {
        "type": "web_search",
        **filled(filters=filled(allowed_domains=tool.allowed_domains, excluded_domains=tool.blocked_domains)),
    },
    *("allowed_domains", "blocked_domains"),
)
_XAI_MCP = hosted_row(
    lambda tool: {
        "type": "mcp",
        "server_label": tool.label,
        "server_url": tool.url,
        **filled(
            server_description=tool.description,
            authorization=tool.authorization,
            allowed_tools=tool.allowed_tools,
        ),
    },
    *("label", "url", "description", "authorization", "allowed_tools"),
)

HOSTED = HostedRows(
    "openai-responses",
    {
        "": {
            "web_search": _SEARCH,
            "code_execution": _CODE,
            "file_search": _FILES,
            "image_generation": _IMAGES,
            "mcp": _MCP,
            "tool_search": _TOOL_SEARCH,
        },
        "xai-responses": {
            "web_search": _XAI_SEARCH,
            "code_execution": hosted_row(lambda _: {"type": "code_interpreter"}),
            "file_search": _FILES,
            "mcp": _XAI_MCP,
        },
    },
)
