"""A `ModelRequest` -> the body of Anthropic's Messages API, and (`read_request`) back.

Vertex takes the same body with an `anthropic_version` and without the model, which stands in the address: so where
`ModelConfig.extra` names an `anthropic_version`, the body names no model. Bedrock does the same (`bedrock_invoke`).

What is decided here:
- Leading system messages are the `system` prompt. Later ones keep their place and role where the model allows it
  (behind the user and before the assistant); elsewhere they become the user's text inside <system> tags.
- Tool results are the user's; messages of one role that then meet are joined, as the API itself would do.
- Thinking goes back with its signature or not at all. Calls and results of the provider's own tools go back block for
  block, in the order in which they came; those of other providers are left out.
- Arguments that are no JSON object go back as ``{"INVALID_JSON": text}``, since `input` has to be an object.
- Cache breakpoints (four are allowed): the last tool, the end of the system prompt, the last two turns of the user. A
  request that sets breakpoints itself gets no others.
"""

from typing import Any

from bartack.formats.anthropic_messages.blocks import FORMAT, THOUGHTS, Blocks
from bartack.formats.anthropic_messages.models import Claude, Turn, began_without_thinking, claude, thinking_wish
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.body_values import with_extra
from bartack.formats.losses import Losses
from bartack.formats.repair import CLOSING
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]

Json = dict[str, Any]

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_UNCACHEABLE = THOUGHTS | {"fallback"}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body. It asks for a stream, and the stream tells its usage unasked."""
    config, model = request.config, claude(request.config.model_id)
    extra = config.extra or {}
    body: Json = {} if "anthropic_version" in extra else {"model": config.model_id}
    body["max_tokens"] = config.max_tokens or model.default_max_tokens
    leading = _count_leading(request.messages)
    blocks = Blocks(request.messages, losses)
    system = [block for index in range(leading) for block in blocks.of(index)]
    if system:
        body["system"] = system
    body["messages"] = _turns(request.messages, leading, blocks, model, losses)
    _add_tools(body, request, model, losses)
    _add_settings(body, config, model, losses)
    if blocks.container is not None and any(spec.native is not None for spec in request.tools):
        body["container"] = blocks.container
    body["stream"] = True
    if config.cache_config is not None and not _has_breakpoint(body) and "cache_control" not in extra:
        _mark_for_cache(body)
    return with_extra(body, extra)


def _count_leading(messages: tuple[Message, ...]) -> int:
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


def _turns(messages: tuple[Message, ...], leading: int, blocks: Blocks, model: Claude, losses: Losses) -> list[Json]:
    turns: list[Json] = []
    told = [(index, content) for index in range(leading, len(messages)) if (content := blocks.of(index))]
    for place, (index, content) in enumerate(told):
        role = "assistant" if messages[index].role == "assistant" else "user"
        if messages[index].role == "system":
            roles = (messages[later].role for later, _ in told[place + 1 :])
            following = next((later for later in roles if later != "system"), None)
            is_behind_user = bool(turns) and turns[-1]["role"] != "assistant"
            if model.takes_system_turns and is_behind_user and following in (None, "assistant"):
                role = "system"
            else:
                content = _told_by_user(content, f"messages[{index}]", losses)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    if turns and turns[-1]["role"] == "assistant" and _was_paused(messages[-1]) and not _goes_on(turns[-1]):
        turns.append({"role": "user", "content": [{"type": "text", "text": CLOSING}]})
    return turns


def _was_paused(message: Message) -> bool:
    return message.meta is not None and message.meta.finish_reason == "pause"


def _goes_on(turn: Json) -> bool:
    """Whether an answer still ends in the provider's own tools, so that the provider goes on with it by itself."""
    kind: str = turn["content"][-1]["type"]
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _told_by_user(content: list[Json], where: str, losses: Losses) -> list[Json]:
    """A system message in a place where none may stand."""
    losses.add(where, "the system role", "no system message may stand here; the user says it")
    texts = [block["text"] for block in content if block.get("type") == "text"]
    return [{"type": "text", "text": "<system>\n" + "\n".join(texts) + "\n</system>"}]


# -- tools


def _add_tools(body: Json, request: ModelRequest, model: Claude, losses: Losses) -> None:
    tools = [tool for index, spec in enumerate(request.tools) for tool in _tool(spec, f"tools[{index}]", losses)]
    if tools:
        body["tools"] = tools
    choice = _tool_choice(request.config)
    if choice is None:
        return
    if not tools:
        if request.config.tool_choice is not None:
            losses.add("config.toolChoice", "the choice of tools", "there are no tools")
    elif choice["type"] in ("any", "tool") and model.always_thinks:
        losses.add("config.toolChoice", "the demand for a tool call", "a model that is thinking can not be forced")
        body["tool_choice"] = {**choice, "type": "auto"}
        body["tool_choice"].pop("name", None)
    else:
        body["tool_choice"] = choice


def _tool(spec: ToolSpec, where: str, losses: Losses) -> list[Json]:
    if spec.native is not None:
        data = losses.continuation(where, spec.native)
        return [dict(data)] if data else []
    tool: Json = {"name": spec.name}
    if spec.description is not None:
        tool["description"] = spec.description
    tool["input_schema"] = spec.parameter_schema
    if spec.strict is not None:
        tool["strict"] = spec.strict
    return [{**tool, **(spec.extra or {}).get(FORMAT, {})}]


def _tool_choice(config: ModelConfig) -> Json | None:
    wanted = config.tool_choice
    if isinstance(wanted, SpecificTool):
        choice = {"type": "tool", "name": wanted.tool_name}
    elif wanted is not None:
        choice = {"type": _CHOICES[wanted]}
    elif config.parallel_tool_calls is not None:
        choice = {"type": "auto"}
    else:
        return None
    if config.parallel_tool_calls is None or choice["type"] == "none":
        return choice
    return {**choice, "disable_parallel_tool_use": not config.parallel_tool_calls}


# -- settings


def _add_settings(body: Json, config: ModelConfig, model: Claude, losses: Losses) -> None:
    wish = thinking_wish(config.thinking, model, body["max_tokens"])
    thinking = wish.thinking
    if wish.loss:
        losses.add("config.thinking", "how much to think", wish.loss)
    is_forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    if thinking is not None and thinking["type"] != "disabled" and is_forced:
        losses.add("config.thinking", "how much to think", "a tool call is demanded, which excludes thinking")
        thinking = None
    if thinking is not None and thinking["type"] == "enabled" and began_without_thinking(_outline(body["messages"])):
        losses.add("config.thinking", "how much to think", "the answer that is going on began without thinking")
        thinking = None
    if thinking is not None:
        body["thinking"] = thinking
    _add_sampling(body, config, model, losses)
    if config.stop_sequences is not None:
        body["stop_sequences"] = list(config.stop_sequences)
    output: Json = {} if wish.effort is None else {"effort": wish.effort}
    if config.output_schema is not None:
        if model.takes_schema:
            output["format"] = {"type": "json_schema", "schema": config.output_schema}
        else:
            losses.add("config.outputSchema", "the schema of the answer", "this model has no structured output")
    if output:
        body["output_config"] = output
    if config.seed is not None:
        losses.add("config.seed", "the seed", "the API has none")


def _outline(messages: list[Json]) -> list[Turn]:
    kinds = [[block["type"] for block in message["content"]] for message in messages]
    return [
        Turn(message["role"] == "assistant", "tool_result" in kind, kind[0] in THOUGHTS)
        for message, kind in zip(messages, kinds, strict=True)
    ]


def _add_sampling(body: Json, config: ModelConfig, model: Claude, losses: Losses) -> None:
    temperature, top_p = config.temperature, config.top_p
    is_thinking = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if temperature is not None:
        if not model.takes_sampling or (is_thinking and temperature != 1):
            losses.add("config.temperature", "the temperature", "the model takes none, or none while it thinks")
            temperature = None
        elif temperature > 1:
            losses.add("config.temperature", f"a temperature of {temperature}", "1 is the highest")
            temperature = 1
    if top_p is not None:
        is_refused = not model.takes_sampling or (is_thinking and top_p < 0.95)
        if is_refused or (temperature is not None and not model.takes_both_samplings):
            losses.add(
                "config.topP", "top_p", "the model takes none, none beside a temperature, or none while it thinks"
            )
            top_p = None
    if temperature is not None:
        body["temperature"] = temperature
    if top_p is not None:
        body["top_p"] = top_p


# -- prompt caching


def _has_breakpoint(body: Json) -> bool:
    held = [*body.get("tools", []), *body.get("system", [])]
    held += [block for turn in body["messages"] for block in turn["content"]]
    return any("cache_control" in block for block in held)


def _mark_for_cache(body: Json) -> None:
    turns = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    tools = [tool for tool in body.get("tools", []) if not tool.get("defer_loading")]  # those are no prefix
    for blocks in (tools, body.get("system", []), *turns[-2:]):
        last = next((index for index in reversed(range(len(blocks))) if _is_cacheable(blocks[index])), None)
        if last is not None:
            blocks[last]["cache_control"] = {"type": "ephemeral"}


def _is_cacheable(block: Json) -> bool:
    return block.get("type") not in _UNCACHEABLE
