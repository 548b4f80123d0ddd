"""Tools and settings of a Chat Completions request.

The tools that vendors execute: openrouter.ai/docs/guides/features/server-tools,
console.groq.com/docs/tool-use/built-in-tools. OpenAI and xAI have theirs in the Responses API.
"""

from typing import Any, assert_never

from bartack.formats.body_values import present
from bartack.formats.losses import Losses, PrefixChanged
from bartack.formats.openai import cache_key, declaration_of, retention, schema_name
from bartack.formats.openai_chat.capabilities import ChatCapabilities
from bartack.formats.output_schemas import strict_schema
from bartack.formats.settings import (
    breakpoint_for,
    effort_of,
    exact_fields,
    note_settings,
    note_unsupported,
    own_fields,
)
from bartack.formats.tools import HostedRows, hosted_row, note_tool_options, parameters_of
from bartack.nouns.config import CacheConfig, ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.requests import ModelRequest

__all__ = ["HOSTED", "NAME", "add_caching", "add_settings", "add_tools", "response_format"]

# -- the tools that vendors execute


_OPENROUTER_SEARCH = hosted_row(  # recorded
    {"type": "openrouter:web_search"},
    parameters__max_uses="max_uses",
    parameters__search_context_size="context_size",
    parameters__allowed_domains="allowed_domains",
    parameters__excluded_domains="blocked_domains",
    parameters__user_location="user_location",
)
_GPT_OSS = r".*gpt-oss"

HOSTED = HostedRows(
    "openai-chat",
    {
        "openrouter": {
            "web_search": _OPENROUTER_SEARCH,
            "web_fetch": hosted_row({"type": "openrouter:web_fetch"}),
            "image_generation": hosted_row({"type": "openrouter:image_generation"}),
        },
        "groq": {
            "web_search": hosted_row({"type": "browser_search"}, models=_GPT_OSS),
            "code_execution": hosted_row({"type": "code_interpreter"}, models=_GPT_OSS),
        },
    },
)


NAME = "openai-chat"  # also the key of this format's own fields in `ToolSpec.extra`
Json = dict[str, Any]

# -- tools


def _tool(spec: ToolSpec, index: int, model_id: str, losses: Losses, vendor: ChatCapabilities) -> Json:
    if not spec.is_function:
        return HOSTED.declared(spec, f"tools[{index}]", model_id, losses) or {}
    declaration = declaration_of(spec, NAME)
    if declaration is not None:
        return dict(declaration)
    note_tool_options(spec, f"tools[{index}]", losses)
    function = present(name=spec.name, description=spec.description, parameters=parameters_of(spec))
    if spec.strict is not None and vendor.strict_tools:
        function["strict"] = spec.strict
    elif spec.strict:
        losses.add(f"tools[{index}].strict", "strict arguments", "not supported by the provider")
    return {"type": "function", "function": function, **own_fields(spec, NAME)}


def add_tools(body: Json, request: ModelRequest, losses: Losses, vendor: ChatCapabilities) -> None:
    """Add the tools and the settings for calling them, which are refused without tools."""
    tools = [_tool(spec, index, request.config.model_id, losses, vendor) for index, spec in enumerate(request.tools)]
    if not any(tools):
        return
    body["tools"] = [tool for tool in tools if tool]
    config = request.config
    if config.tool_choice is not None:
        body["tool_choice"] = _tool_choice(config.tool_choice, losses, vendor)
    if config.parallel_tool_calls is not None:
        if vendor.parallel_tool_calls:
            body["parallel_tool_calls"] = config.parallel_tool_calls
        else:
            losses.add("config.parallelToolCalls", "setting for parallel calls", "not supported by the provider")


def _tool_choice(choice: ToolChoice, losses: Losses, vendor: ChatCapabilities) -> str | Json:
    if not isinstance(choice, SpecificTool):
        return choice
    if vendor.named_tool_choice:
        return {"type": "function", "function": {"name": choice.tool_name}}
    losses.add("config.toolChoice", f"choice of {choice.tool_name}", "the provider does not accept a tool by name")
    return "required"


# -- settings


def add_settings(body: Json, config: ModelConfig, losses: Losses, vendor: ChatCapabilities) -> None:
    """Add sampling, limits, thinking and structured output."""
    fields: Json = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        vendor.max_tokens: config.max_tokens,
        "stop": config.stop_sequences,
    }
    if vendor.seed is not None:
        fields[vendor.seed] = config.seed
    else:
        note_unsupported(config, losses, "the provider", "seed")
    for name in ("service_tier", "verbosity"):
        if name in vendor.settings:
            fields[name] = getattr(config, name)
    note_settings(config, losses, *vendor.settings)
    body |= present(**fields)
    if config.thinking is not None:
        _add_thinking(body, config.thinking, losses, vendor)
    if config.output_schema is not None:
        body["response_format"] = response_format(config.output_schema, vendor)
        if not vendor.json_schema:
            losses.add("config.outputSchema", "output schema", "not supported by the provider; any JSON is requested")


def _add_thinking(body: Json, thinking: ThinkingConfig, losses: Losses, vendor: ChatCapabilities) -> None:
    exact = exact_fields(thinking, NAME)
    if exact:
        body.update(exact)
        return
    takes_budget = vendor.thinking in ("reasoning", "enable_thinking")
    setting = thinking.effort if takes_budget else effort_of(thinking)
    effort = vendor.efforts.get(setting or "")
    is_on = setting != "none"
    lost_effort = setting not in (None, "none") and effort is None
    lost_budget = thinking.budget_tokens is not None
    match vendor.thinking:
        case "reasoning_effort":
            lost_effort = lost_effort or (effort is None and not is_on)
            if effort is not None:
                body["reasoning_effort"] = effort
        case "reasoning":
            lost_budget = False
            body["reasoning"] = present(effort=effort, max_tokens=thinking.budget_tokens) or {"enabled": True}
        case "thinking":
            body["thinking"] = {"type": "enabled" if is_on else "disabled"}
            if effort is not None:
                body["reasoning_effort"] = effort
        case "enable_thinking":
            lost_budget = False
            body["enable_thinking"] = is_on
            body |= present(thinking_budget=thinking.budget_tokens)
        case "none":
            lost_effort = lost_effort or not is_on
        case _:
            assert_never(vendor.thinking)
    if lost_effort:
        losses.add("config.thinking.effort", f"thinking effort {setting!r}", "not supported by the provider")
    if lost_budget:
        why = "not supported by the provider" + ("; the nearest effort is sent" if effort is not None else "")
        losses.add("config.thinking.budgetTokens", "thinking budget", why)


def response_format(schema: Json, vendor: ChatCapabilities) -> Json:
    """The `response_format` for a schema: strict only if the schema qualifies, since others would be refused."""
    if not vendor.json_schema:
        return {"type": "json_object"}
    strict = strict_schema(schema)
    shape = {"name": schema_name(schema), "schema": strict or schema, "strict": strict is not None}
    return {"type": "json_schema", "json_schema": shape}


def add_caching(body: Json, cache: CacheConfig, losses: Losses, vendor: ChatCapabilities) -> None:
    """Add what the provider needs to cache the beginning of the request."""
    messages, trail = body["messages"], losses.trail
    match vendor.caching:
        case "prompt_cache_key":  # the same for every request with the same beginning
            prompts = [*trail.known("prompt").values()]
            for place, message in enumerate(messages):
                if message["role"] in ("system", "developer"):
                    prompts.append(message["content"])
                    trail.note(trail.starts[place], "prompt", (trail.starts[place], place), message["content"])
            body["prompt_cache_key"] = cache_key([body["model"], prompts, body.get("tools")])
            if "ttl" in vendor.settings:
                body |= retention(cache, losses)
        case "cache_control":
            systems = [place for place, message in enumerate(messages) if message["role"] == "system"]
            if systems and trail.known("marked"):
                raise PrefixChanged  # the breakpoint moves to the new system message
            for place in systems[-1:]:
                trail.note(trail.starts[place], "marked")
            for message in (*(messages[place] for place in systems[-1:]), *messages[-1:]):
                _mark_breakpoint(message, breakpoint_for(cache, losses))
        case "none":
            pass
        case _:
            assert_never(vendor.caching)


def _mark_breakpoint(message: Json, mark: Json) -> None:
    content = message.get("content")
    pieces = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
    if isinstance(pieces, list) and pieces and pieces[-1].get("type") == "text":
        message["content"] = [*pieces[:-1], {**pieces[-1], "cache_control": mark}]
