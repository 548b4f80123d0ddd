"""Search for tools, for agents with hundreds of them: the model sees a tool only after it has searched for it.

Where the provider has a search of its own, all tools are declared with `defer_loading`, and the provider shows the
model those that it finds. Elsewhere the agent has the tool `search_tools`. Its results name tools, and every request
declares the tools that its messages name in such results or call. Which tools those are follows from the messages
alone, so a run that is resumed elsewhere declares the same ones; after a compaction the model may have to search again.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import Any

from msgspec.structs import replace

from bartack.models.model import Model
from bartack.nouns.config import ToolSpec
from bartack.nouns.hosted_tools import ToolSearch
from bartack.nouns.messages import Message
from bartack.tools import ToolContext, ToolDefinition

__all__ = ["SEARCH", "declared_tools", "matching_tools", "search_definition"]

SEARCH = "search_tools"
_MAX_MATCHES = 5
# Relative to the best score. A tool that shares only common words with the query has less. Not measured.
_LEAST_SHARE = 0.3
_DESCRIPTION = (
    "Search for tools that are not shown to you. Describe what you need to do in a few words; the tools that match can "
    "be called from your next step on."
)
_SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
    "additionalProperties": False,
}


def search_definition() -> ToolDefinition:
    """The tool `search_tools`, which searches the tools of the run that calls it."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        from bartack.agent.run_context import current_run  # noqa: PLC0415 - the context of a run uses this module

        run = current_run.get()
        specs = [] if run is None else [spec for spec in run.tool_specs if _is_deferred(spec)]
        matches = matching_tools(arguments["query"], specs)
        return {"tools": [{"name": spec.name, "description": spec.description or ""} for spec in matches]}

    return ToolDefinition(
        name=SEARCH,
        description=_DESCRIPTION,
        parameter_schema=_SCHEMA,
        execute=execute,
        idempotent=True,
        defer_loading=False,
    )


def declared_tools(specs: Sequence[ToolSpec], model: Model, messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """The tools that a request with these messages declares, of those that a run with a search for tools has."""
    if model.supports(ToolSearch.tool):
        own = [
            replace(spec, defer_loading=True) if _is_deferred(spec) else spec for spec in specs if spec.name != SEARCH
        ]
        return (*own, ToolSearch().spec)
    names = _named_tools(messages)
    return tuple(
        replace(spec, defer_loading=None) if _is_deferred(spec) else spec
        for spec in specs
        if not _is_deferred(spec) or spec.name in names
    )


def _is_deferred(spec: ToolSpec) -> bool:
    return spec.is_function and spec.defer_loading is not False and spec.name != SEARCH


def _named_tools(messages: Iterable[Message]) -> set[str]:
    """The names of the tools that these messages call, or that a search in them has found."""
    names: set[str] = set()
    searches: set[str] = set()
    for message in messages:
        for call in message.tool_calls:
            names.add(call.tool_name)
            if call.tool_name == SEARCH:
                searches.add(call.tool_call_id)
        for result in message.tool_results:
            if result.tool_call_id in searches and isinstance(result.content, dict):
                names |= {tool["name"] for tool in result.content.get("tools", ()) if isinstance(tool, dict)}
    return names


def matching_tools(query: str, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools that fit a query best, at most five: by the words of their names, descriptions and parameters.

    A word counts the more, the fewer tools have it, and a word of a name counts three times as much as any other.
    """
    words = [_words_of(spec) for spec in specs]
    count = Counter(word for bag in words for word in bag)
    scores = [
        sum(weight * log(1 + len(specs) / count[word]) for word in set(_split(query)) if (weight := bag.get(word)))
        for bag in words
    ]
    ranked = sorted(range(len(specs)), key=lambda index: -scores[index])
    least = max(scores, default=0) * _LEAST_SHARE
    return [specs[index] for index in ranked[:_MAX_MATCHES] if scores[index] > least]


def _words_of(spec: ToolSpec) -> dict[str, int]:
    properties = spec.parameter_schema.get("properties")
    text = f"{spec.description or ''} {' '.join(properties if isinstance(properties, dict) else ())}"
    return dict.fromkeys(_split(text), 1) | dict.fromkeys(_split(spec.name), 3)


def _split(text: str) -> list[str]:
    """The words of a text or a name, in lower case and without the s of a plural."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word.removesuffix("s") for word in re.findall(r"[^\W_]+", spaced.lower())]
