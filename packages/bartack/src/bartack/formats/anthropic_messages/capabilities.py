"""What each Claude model accepts: thinking, sampling, structured output, system messages between turns, hosted tools.

Model names follow a pattern (`claude-3-7-sonnet-20250219`, `claude-opus-4-6`, `us.anthropic.claude-opus-4-8-v1:0`), so
a model's capabilities are derived from its family and version, and a future model is treated as its version suggests. A
model that is not a Claude (other vendors speak this format, too) is sent what the caller asked for.

Sources: docs.claude.com on adaptive and extended thinking, effort, structured outputs and mid-conversation system
messages, and the migration guide of each release.

The tools that Anthropic executes (platform.claude.com/docs/en/agents-and-tools/tool-use/tool-reference) have the
versions that every model with the tool accepts; newer ones require newer models. Vertex AI has only some of the tools,
and Bedrock none. The MCP connector needs the address of the server and a header besides its declaration.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from bartack.formats.format import NO_SCHEMA, NOT_ENFORCED, NOTHING, Feature
from bartack.formats.losses import Losses, Trail
from bartack.formats.settings import BUDGETS
from bartack.formats.tools import HostedRow, HostedRows, filled, hosted_row
from bartack.nouns.config import ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.hosted_tools import McpConnector, hosted_tool
from bartack.nouns.requests import ModelRequest

__all__ = [
    "HOSTED",
    "NAME",
    "BodyMessage",
    "Claude",
    "ThinkingFields",
    "claude",
    "headers_for",
    "lacking",
    "mcp_servers",
    "sampling",
    "sendable_thinking",
    "thinking_fields",
    "with_known_opening",
]

Effort = Literal["low", "medium", "high", "max"]

_NAME = re.compile(
    r"claude-(?:(\d)(?:[-.](\d))?-)?(instant|haiku|sonnet|opus|fable|mythos)(?:-(\d)(?:[-.](\d{1,2})(?!\d))?(?!\d))?"
)
_MIN_BUDGET = 1024  # the API refuses less
_EFFORTS: dict[str, Effort] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max"}


class Claude(NamedTuple):
    """A model by family and version, and what it accepts. The defaults are for a model that is not a Claude."""

    family: str = ""
    version: tuple[int, int] = (0, 0)
    takes_thinking: bool = True
    takes_budget: bool = True  # thinking with a token budget, which was removed in 4.7
    takes_adaptive: bool = False
    takes_effort: bool = False
    always_thinks: bool = False
    takes_sampling: bool = True  # `temperature` and `top_p`, which are refused since 4.7
    takes_both_samplings: bool = True
    takes_schema: bool = True
    takes_system_turns: bool = False  # system messages between the others
    takes_prefill: bool = False  # an answer that the model continues, which is refused since 4.6
    default_max_tokens: int = 8192


@lru_cache(maxsize=256)
def claude(model_id: str) -> Claude:
    """The model of this name, in any form that a platform uses."""
    match = _NAME.search(model_id)
    if match is None:
        return Claude()
    old_major, old_minor, family, major, minor = match.groups()
    is_new_family = family in ("fable", "mythos")
    newest = "5" if is_new_family else "0"  # their previews have no number
    version = (int(major or old_major or newest), int(minor or old_minor or 0))
    return Claude(
        family,
        version,
        takes_thinking=version >= (3, 7),
        takes_budget=(3, 7) <= version <= (4, 6),
        takes_adaptive=version >= (4, 6),
        takes_effort=version >= (4, 6) or (family == "opus" and version == (4, 5)),
        always_thinks=is_new_family or version >= (5, 5),
        takes_sampling=version <= (4, 6),
        takes_both_samplings=version < (4, 1),
        takes_schema=version >= (4, 5) or (family == "opus" and version == (4, 1)),
        takes_system_turns=is_new_family or version >= (5, 5) or (family == "opus" and version >= (4, 8)),
        takes_prefill=not is_new_family and (0, 0) < version < (4, 6),
        default_max_tokens=_default_max_tokens(version),
    )


def lacking(model_id: str) -> frozenset[Feature]:
    """What this model does not support. Whether one that is not a Claude enforces schemas is not known."""
    model = claude(model_id)
    if not model.takes_schema:
        return NO_SCHEMA
    return NOTHING if model.family else NOT_ENFORCED


def _default_max_tokens(version: tuple[int, int]) -> int:
    """The value of `max_tokens`, which the API requires, if the caller gives none.

    Too little cuts answers short; too much is refused, or takes away from the context window on models that reserve it.
    Old models get their maximum. The others get 32,000, which all of them accept and which leaves five sixths of the
    smallest window. Models of other vendors get 8,192.
    """
    if version >= (3, 7):
        return 32_000
    return 8192 if version >= (3, 5) else 4096


# -- thinking


class ThinkingFields(NamedTuple):
    """`thinking` and `output_config.effort` of a body, and why the settings could not be kept in full."""

    thinking: dict[str, Any] | None = None
    effort: Effort | None = None
    loss: str = ""


class BodyMessage(NamedTuple):
    """What decides whether a model may think: one message of the body."""

    is_answer: bool
    has_results: bool
    starts_with_thinking: bool


def thinking_fields(config: ThinkingConfig | None, model: Claude, max_tokens: int) -> ThinkingFields:
    """The fields that ask this model for the wanted amount of thinking."""
    if config is None or (config.effort is None and config.budget_tokens is None):
        return ThinkingFields()
    if config.effort == "none":
        if model.always_thinks:
            return ThinkingFields(loss="this model always thinks")
        return ThinkingFields({"type": "disabled"} if model.takes_thinking else None)
    if not model.takes_thinking:
        return ThinkingFields(loss="this model does not support thinking")
    effort = None if config.effort is None else _EFFORTS[config.effort]
    budget = config.budget_tokens
    if budget is None and not model.takes_adaptive:
        budget = BUDGETS[config.effort or "medium"]
    if budget is not None and model.takes_budget:
        return _with_budget(budget, effort if model.takes_effort else None, max_tokens)
    thinking = {"type": "adaptive"}
    if not model.takes_budget:
        thinking["display"] = "summarized"  # without it these models send no thinking text
    return ThinkingFields(thinking, effort, "" if budget is None else "this model takes an effort, not a budget")


def _with_budget(budget: int, effort: Effort | None, max_tokens: int) -> ThinkingFields:
    allowed = min(max(budget, _MIN_BUDGET), max_tokens - 1)  # the budget is a part of max_tokens
    if allowed < _MIN_BUDGET:
        return ThinkingFields(effort=effort, loss=f"max_tokens={max_tokens} leaves no room for thinking")
    capped = "high" if effort == "max" else effort  # Opus 4.5 has no "max"; later models take an effort alone
    return ThinkingFields({"type": "enabled", "budget_tokens": allowed}, capped)


def sendable_thinking(
    config: ModelConfig, max_tokens: int, turns: list[BodyMessage], is_forced: bool, losses: Losses
) -> ThinkingFields:
    """The thinking fields as far as this request allows them; `is_forced` means that a tool call is required."""
    fields = thinking_fields(config.thinking, claude(config.model_id), max_tokens)
    kind = None if fields.thinking is None else fields.thinking["type"]
    why = fields.loss
    if is_forced and kind in ("enabled", "adaptive"):
        why = "a tool call is required, which excludes thinking"
        fields = fields._replace(thinking=None)
    elif kind == "enabled" and _began_without_thinking(turns):
        why = "the turn that is being continued began without thinking"
        fields = fields._replace(thinking=None)
    if why:
        losses.add("config.thinking", "thinking settings", why)
    return fields


def with_known_opening(turns: list[BodyMessage], trail: Trail) -> list[BodyMessage]:
    """The turns of this request, after the first turn of the answer that they may continue."""
    opening: BodyMessage | None = trail.known("opening").get("")
    openings = [] if opening is None else [opening]
    for start, turn in zip(trail.starts, turns, strict=True):
        if turn.is_answer:
            opening = opening or turn
        elif not turn.has_results:
            opening = None
        trail.note(start, "opening", value=opening)
    return [*openings, *turns]


def _began_without_thinking(turns: list[BodyMessage]) -> bool:
    """Whether the answer to which the last tool results belong began without thinking.

    "When thinking is enabled, a final assistant message must start with a thinking block (preceding the lastmost set of
    tool_use and tool_result blocks)". An answer that another model began, or this one with thinking turned off, has to
    be finished without thinking. Adaptive thinking has no such requirement.
    """
    opening = None
    for turn in reversed(turns):
        if turn.is_answer:
            opening = turn
        elif not turn.has_results:
            break
    return opening is not None and turns[-1].has_results and not opening.starts_with_thinking


# -- sampling


def sampling(config: ModelConfig, thinking: dict[str, Any] | None, losses: Losses) -> tuple[float | None, float | None]:
    """`temperature` and `top_p` as far as the model takes them with these thinking fields."""
    model = claude(config.model_id)
    is_thinking = thinking is not None and thinking.get("type") in ("enabled", "adaptive")
    temperature, top_p = config.temperature, config.top_p
    if temperature is not None:
        if not model.takes_sampling or (is_thinking and temperature != 1):
            losses.add("config.temperature", "temperature", "not supported by this model, or not with thinking")
            temperature = None
        elif temperature > 1:
            losses.add("config.temperature", f"temperature {temperature}", "the maximum is 1; 1 is sent")
            temperature = 1
    if top_p is not None:
        is_refused = not model.takes_sampling or (is_thinking and top_p < 0.95)
        if is_refused or (temperature is not None and not model.takes_both_samplings):
            why = "not supported by this model, or not with a temperature or with thinking"
            losses.add("config.topP", "top_p", why)
            top_p = None
    return temperature, top_p


# -- the tools that Anthropic executes


NAME = "anthropic-messages"

_SEARCH = hosted_row(  # recorded
    {"type": "web_search_20250305", "name": "web_search"},
    *("max_uses", "allowed_domains", "blocked_domains", "user_location"),
)
_MCP = HostedRow(  # recorded; the address of the server is in `mcp_servers`
    lambda tool: {
        "type": "mcp_toolset",
        "mcp_server_name": tool.label,
        **filled(
            default_config={"enabled": False} if tool.allowed_tools else None,
            configs={name: {"enabled": True} for name in tool.allowed_tools},
        ),
    },
    frozenset(("label", "url", "authorization", "allowed_tools")),
)
_TOOL_SEARCH = hosted_row(  # recorded
    {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    models=r".*(opus|sonnet|haiku)-([5-9]|4-[5-9])|.*(mythos|fable)",
)

HOSTED = HostedRows(
    NAME,
    {
        "": {
            "web_search": _SEARCH,
            "web_fetch": HostedRow(  # recorded
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
                frozenset(("max_uses", "allowed_domains", "blocked_domains", "max_content_tokens", "citations")),
            ),
            "code_execution": hosted_row({"type": "code_execution_20250825", "name": "code_execution"}),  # recorded
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
