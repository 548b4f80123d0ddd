"""A `ModelRequest` to the body of the Responses API; `input_items` turns the history into items.

Decisions:

- `store` is false: the conversation is stored in our session, not at the provider, so complete items are sent each
  time. `config.extra` may override this (`{"store": true, "previous_response_id": ...}`, `background`, `conversation`).
- Without `store`, reasoning can be sent back only as its ciphertext, so `reasoning.encrypted_content` is requested,
  except from models that do not reason and refuse it (below). `config.extra["include"]` adds to it; an empty list
  requests nothing.
- `strict` is always set, because OpenAI takes a function without it as strict. Only a function that was read from a
  request without it stays without.
- System messages stay items in their position: xAI refuses `instructions` together with `previous_response_id`
  (github.com/10-X-eng/vibecad/issues/4), and instructions do not carry over to later responses. A system message that
  was read from `instructions` is sent there.
- A reasoning summary is requested whenever thinking is configured; `config.extra["reasoning"]` overrides this.
- The tools that the provider executes follow developers.openai.com/api/docs/guides/tools and
  docs.x.ai/docs/guides/tools/overview.
- `CacheConfig` sets a `prompt_cache_key` made from the beginning of the conversation, so that all its turns share it.
"""

import re
from collections.abc import Iterable
from typing import Any

from bartack.formats.body_values import object_of, present, text_of
from bartack.formats.losses import Losses, Trail
from bartack.formats.openai import cache_key, declaration_of, retention, schema_name
from bartack.formats.openai_responses.input_items import InputItems
from bartack.formats.openai_responses.items import NAME, Item, ResponsesContinuation
from bartack.formats.output_schemas import strict_schema
from bartack.formats.settings import (
    effort_of,
    exact_fields,
    note_settings,
    note_unsupported,
    own_extra,
    own_fields,
    with_extra,
    written_settings,
)
from bartack.formats.tools import HostedRows, hosted_row, note_tool_options, parameters_of
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.requests import ModelRequest

__all__ = ["HOSTED", "encode"]

# -- the tools that OpenAI and xAI execute


_FILES = hosted_row({"type": "file_search"}, vector_store_ids="stores", max_num_results="max_results")  # recorded
_MCP = {
    "server_label": "label",
    "server_url": "url",
    "server_description": "description",
    "authorization": "authorization",
    "allowed_tools": "allowed_tools",
}

HOSTED = HostedRows(
    NAME,
    {
        "": {  # recorded, all of them
            "web_search": hosted_row(
                {"type": "web_search"},
                search_context_size="context_size",
                user_location="user_location",
                filters__allowed_domains="allowed_domains",
            ),
            "code_execution": hosted_row(
                {"type": "code_interpreter", "container": {"type": "auto"}}, container__file_ids="file_ids"
            ),
            "file_search": _FILES,
            "image_generation": hosted_row(
                {"type": "image_generation"}, "size", "quality", "background", "output_format"
            ),
            "mcp": hosted_row({"type": "mcp"}, **_MCP, require_approval="approval"),
            "tool_search": hosted_row({"type": "tool_search"}, models=r"(.*[/.:])?gpt-(5\.([4-9]|\d\d)|[6-9])"),
        },
        "xai-responses": {
            "web_search": hosted_row(
                {"type": "web_search"},
                filters__allowed_domains="allowed_domains",
                filters__excluded_domains="blocked_domains",
            ),
            "code_execution": hosted_row({"type": "code_interpreter"}),
            "file_search": _FILES,
            "mcp": hosted_row({"type": "mcp"}, **_MCP),
        },
    },
)

# "Encrypted content is not supported with this model" (github.com/pydantic/pydantic-ai/issues/2865 and 3326). Which
# further models refuse it is not verified.
_DOES_NOT_REASON = re.compile(r"(.*[/.:])?(gpt-3|gpt-4|chatgpt-4|gpt-5(\.\d+)?-chat)")
_CIPHERTEXT = "reasoning.encrypted_content"
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
}


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The request body. What is left out of it is added to `losses`."""
    losses.expect(ResponsesContinuation)
    config = request.config
    extra = own_extra(request, NAME, losses)
    store = extra.pop("store", False)
    history = InputItems(losses, stored=store is not False)
    for index, message in enumerate(request.messages, losses.trail.first):
        history.add(message, index)
    body: dict[str, Any] = {"model": config.model_id, "input": history.items(), "stream": True, "store": store}
    if history.instructions:
        body["instructions"] = "\n\n".join(history.instructions)
    body |= written_settings(config, _SETTINGS)
    declared = [_tool(spec, f"tools[{index}]", config.model_id, losses) for index, spec in enumerate(request.tools)]
    tools = _joined_namespaces(tool for tool in declared if tool is not None)
    if tools:
        body["tools"] = tools
    if config.tool_choice is not None:
        body["tool_choice"] = _tool_choice(config.tool_choice, request.tools, declared)
    include = _include(config, extra.pop("include", None), is_stored=store is not False)
    for name, value in (
        ("include", include),
        ("reasoning", _reasoning(config.thinking, _pop_object(extra, "reasoning"), losses)),
        ("text", _text(config, _pop_object(extra, "text"))),
    ):
        if value:
            body[name] = value
    if config.cache_config is not None:
        body["prompt_cache_key"] = _cache_key(body, losses.trail)
        body |= retention(config.cache_config, losses)
    note_unsupported(config, losses, "the Responses API", "seed", "stop_sequences")
    note_settings(config, losses, "service_tier", "verbosity", "ttl")
    return with_extra(body, extra)


def _include(config: ModelConfig, requested: Any, *, is_stored: bool) -> Any:
    """What the response includes besides its items. Reasoning that is not stored is lost without its ciphertext."""
    if (
        is_stored
        or requested == []
        or _DOES_NOT_REASON.match(config.model_id)
        or not isinstance(requested, list | None)
    ):
        return requested
    includes = requested or []
    return includes if _CIPHERTEXT in includes else [*includes, _CIPHERTEXT]


def _pop_object(extra: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under this key of `extra`, removed from it; anything else stays and is sent as it is."""
    return extra.pop(key) if isinstance(extra.get(key), dict) else {}


def _reasoning(thinking: ThinkingConfig | None, own: dict[str, Any], losses: Losses) -> dict[str, Any]:
    reasoning = object_of(exact_fields(thinking, NAME), "reasoning")
    if thinking is not None and not reasoning:
        effort = effort_of(thinking)
        reasoning = {} if effort is None else {"effort": "xhigh" if effort == "max" else effort}
        if effort != "none":
            reasoning["summary"] = "auto"
        if thinking.budget_tokens is not None:
            why = "the Responses API only takes an effort; the nearest one is sent"
            losses.add("config.thinking.budgetTokens", "thinking budget", why)
    return present(**{**reasoning, **own})


def _text(config: ModelConfig, own: dict[str, Any]) -> dict[str, Any]:
    if config.verbosity is not None:
        own = {"verbosity": config.verbosity, **own}
    schema = config.output_schema
    if schema is None:
        return own
    strict = strict_schema(schema)
    name = schema_name(schema)
    shape = {"type": "json_schema", "name": name, "schema": strict or schema, "strict": strict is not None}
    return {**own, "format": {**shape, **object_of(own, "format")}}


# -- tools


def _joined_namespaces(declared: Iterable[Item]) -> list[Item]:
    """The declarations; consecutive tools of one namespace are one."""
    tools: list[Item] = []
    for tool in declared:
        if tool.get("type") == "namespace" and tools and {**tools[-1], "tools": []} == {**tool, "tools": []}:
            tools[-1] = {**tool, "tools": [*tools[-1]["tools"], *tool["tools"]]}
        else:
            tools.append(tool)
    return tools


def _tool(spec: ToolSpec, where: str, model_id: str, losses: Losses) -> Item | None:
    if not spec.is_function:
        return HOSTED.declared(spec, where, model_id, losses)
    declaration = declaration_of(spec, NAME)
    if declaration is not None:
        return dict(declaration)
    tool: Item = {"type": "function", "name": spec.name}
    if spec.description is not None:
        tool["description"] = spec.description
    if spec.defer_loading:
        tool["defer_loading"] = True
    note_tool_options(spec, where, losses, defers=True)
    tool |= {"parameters": parameters_of(spec), "strict": bool(spec.strict), **own_fields(spec, NAME)}
    if tool["strict"] is None:  # read from a request that leaves it to the server
        del tool["strict"]
    return tool


def _tool_choice(choice: ToolChoice, tools: tuple[ToolSpec, ...], declared: list[Item | None]) -> str | Item:
    if not isinstance(choice, SpecificTool):
        return choice
    pairs = zip(tools, declared, strict=True)
    tool = next((tool for spec, tool in pairs if spec.name == choice.tool_name and tool is not None), {})
    kind = text_of(tool, "type") or "function"
    label = {"mcp": "server_label", "function": "name", "custom": "name"}.get(kind)
    return {"type": kind} if label is None else {"type": kind, label: tool.get(label, choice.tool_name)}


def _cache_key(body: dict[str, Any], trail: Trail) -> str:
    """The same key for requests with the same beginning, which OpenAI routes to the machine that has it cached."""
    beginning = [*trail.known("beginning").values()]
    if not beginning or beginning[-1].get("role") != "user":
        for place, item in enumerate(body["input"]):
            beginning.append(item)
            trail.note(trail.starts[place], "beginning", (trail.starts[place], place), item)
            if item.get("role") == "user":
                break
    return cache_key([body["model"], body.get("instructions"), body.get("tools"), beginning])
