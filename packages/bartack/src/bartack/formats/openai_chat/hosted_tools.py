"""The tools that vendors with a Chat Completions API execute.

Sources: openrouter.ai/docs/guides/features/server-tools, console.groq.com/docs/tool-use/built-in-tools. OpenAI and xAI
have theirs in the Responses API.
"""

from bartack.formats.tools import HostedRows, filled, hosted_row, location_fields

__all__ = ["HOSTED"]

_OPENROUTER_SEARCH = hosted_row(  # recorded
    lambda tool: {
        "type": "openrouter:web_search",
        **filled(
            parameters=filled(
                max_uses=tool.max_uses,
                search_context_size=tool.context_size,
                allowed_domains=tool.allowed_domains,
                excluded_domains=tool.blocked_domains,
                user_location=location_fields(tool.user_location),
            )
        ),
    },
    *("max_uses", "context_size", "allowed_domains", "blocked_domains", "user_location"),
)
_GPT_OSS = r".*gpt-oss"

HOSTED = HostedRows(
    "openai-chat",
    {
        "openrouter": {
            "web_search": _OPENROUTER_SEARCH,
            "web_fetch": hosted_row(lambda _: {"type": "openrouter:web_fetch"}),
            "image_generation": hosted_row(lambda _: {"type": "openrouter:image_generation"}),
        },
        "groq": {
            "web_search": hosted_row(lambda _: {"type": "browser_search"}, models=_GPT_OSS),
            "code_execution": hosted_row(lambda _: {"type": "code_interpreter"}, models=_GPT_OSS),
        },
    },
)
