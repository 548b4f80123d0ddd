"""A `ModelRequest` to the body of Anthropic's Messages API.

Vertex AI takes the same body with an `anthropic_version` and without the model, which is part of the URL: if
`ModelConfig.extra` has an `anthropic_version`, the model is omitted. Bedrock works the same way (`bedrock_invoke`).

How a request is written:
- Leading system messages become the `system` prompt. Later ones keep their place and role where the model allows it
  (after the user, before the assistant); elsewhere they become user text inside <system> tags.
- Tool results are user content. Neighbouring messages of one role are joined, as the API itself would do.
- Thinking is sent back with its signature or not at all. Calls and results of the provider's own tools are sent back
  block by block in their original order; those of other providers are omitted.
- Cache breakpoints (at most four): the last tool, the end of the system prompt, the last two user turns. A request that
  sets breakpoints itself gets no others.
"""

from typing import Any

from bartack.formats.anthropic_messages.blocks import THINKING_BLOCKS, BlockWriter
from bartack.formats.anthropic_messages.capabilities import (
    HOSTED,
    NAME,
    BodyMessage,
    Claude,
    ThinkingFields,
    claude,
    mcp_servers,
    sampling,
    sendable_thinking,
    with_known_opening,
)
from bartack.formats.anthropic_messages.decode import AnthropicContinuation
from bartack.formats.body_values import count_leading_system, object_of, present, text_of
from bartack.formats.losses import Losses, PrefixChanged, Trail
from bartack.formats.output_schemas import claude_schema
from bartack.formats.repair import CONTINUE_PROMPT
from bartack.formats.settings import (
    breakpoint_for,
    exact_fields,
    note_settings,
    note_unsupported,
    own_extra,
    own_fields,
    with_extra,
)
from bartack.formats.tools import parameters_of
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "excludes_prefill", "system_text"]

Json = dict[str, Any]

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_UNCACHEABLE = THINKING_BLOCKS | {"fallback"}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body, always streaming; what the model cannot receive is added to `losses`."""
    losses.expect(AnthropicContinuation)
    config, model = request.config, claude(request.config.model_id)
    extra = own_extra(request, "anthropic-messages", losses)
    body: Json = {} if "anthropic_version" in extra else {"model": config.model_id}
    body["max_tokens"] = config.max_tokens or model.default_max_tokens
    writer = BlockWriter(request.messages, losses)
    system, leading = _system(request.messages, writer, losses.trail)
    if system:
        body["system"] = system
    body["messages"] = _turns(request.messages, leading, writer, model, losses)
    _end_turns(body["messages"], request, model, losses)
    _add_tools(body, request, model, losses)
    _add_settings(body, config, model, losses)
    if writer.container is not None and not all(spec.is_function for spec in request.tools):
        body["container"] = writer.container
    body["stream"] = True
    if config.cache_config is not None and not _has_breakpoint(body, losses.trail) and "cache_control" not in extra:
        _add_breakpoints(body, breakpoint_for(config.cache_config, losses), losses.trail)
    return with_extra(body, extra)


def _system(messages: tuple[Message, ...], writer: BlockWriter, trail: Trail) -> tuple[list[Json], int]:
    """The system prompt, and the index of the first message after it."""
    if trail.first:
        return [dict(block) for block in trail.known("system").values()], trail.first
    leading = count_leading_system(messages)
    system = [block for index in range(leading) for block in writer.blocks(index)]
    for place, block in enumerate(system):
        trail.note(0, "system", place, dict(block))
    return system, leading


def _turns(
    messages: tuple[Message, ...], leading: int, writer: BlockWriter, model: Claude, losses: Losses
) -> list[Json]:
    turns: list[Json] = []
    starts: list[int] = []
    first = losses.trail.first
    indices = range(leading, first + len(messages))
    written_turns = [
        (index, messages[index - first].role, blocks) for index in indices if (blocks := writer.blocks(index))
    ]
    for place, (index, written_role, content) in enumerate(written_turns):
        role = "assistant" if written_role == "assistant" else "user"
        if written_role == "system":
            roles = (later for _, later, _ in written_turns[place + 1 :])
            following = next((later for later in roles if later != "system"), None)
            is_after_user = bool(turns) and turns[-1]["role"] != "assistant"
            if model.takes_system_turns and is_after_user and following in (None, "assistant"):
                role = "system"
            else:
                content = _system_as_user(content, f"messages[{index}]", losses)
        if not content:
            continue
        fields = _turn_fields(messages[index - first], losses)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
            turns[-1] |= fields
        else:
            turns.append({"role": role, "content": content, **fields})
            starts.append(index)
    losses.trail.wrote(turns, starts)
    return turns


def _turn_fields(message: Message, losses: Losses) -> Json:
    """The fields of the turns that the message was read from, besides their role and content."""
    carriers = [part for part in message.parts if part.continuation is not None and "turn" in part.continuation.data]
    return {name: value for part in carriers for name, value in losses.own_data(part).get("turn", {}).items()}


def _system_as_user(content: list[Json], where: str, losses: Losses) -> list[Json]:
    """The text of a system turn as user text; its other blocks have no place there."""
    for block in content:
        if block["type"] != "text":
            losses.add(where, block["type"], "a system turn, which may contain it, is not accepted at this position")
    texts = [text_of(block, "text") for block in content if block["type"] == "text"]
    if not texts:
        return []
    losses.add(where, "system role", "not accepted at this position; sent as user text")
    return [{"type": "text", "text": system_text(texts)}]


def _end_turns(turns: list[Json], request: ModelRequest, model: Claude, losses: Losses) -> None:
    """Prepare an answer at the end to be continued, or add a prompt if it cannot be."""
    if not turns or turns[-1]["role"] != "assistant":
        return
    end = losses.trail.first + len(request.messages) - 1
    last, where = turns[-1]["content"][-1], f"messages[{end}]"
    why = ""
    meta = request.messages[-1].meta
    if meta is not None and meta.finish_reason == "pause":
        if not _can_continue(turns[-1]):
            why = "the paused answer no longer ends as the provider left it"
    elif last["type"] == "text":
        why = excludes_prefill(request.config, model)
    if why:
        losses.add(where, f"the user text {CONTINUE_PROMPT!r}", why, action="added")
        turns.append({"role": "user", "content": [{"type": "text", "text": CONTINUE_PROMPT}]})
        losses.trail.starts.append(end + 1)
    elif last["type"] == "text" and last["text"] != last["text"].rstrip():
        # "final assistant content cannot end with trailing whitespace"
        losses.add(where, "trailing whitespace", "not accepted at the end of the last answer")
        turns[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}


def excludes_prefill(config: ModelConfig, model: Claude) -> str:
    """Why an answer cannot be continued with these settings, or nothing.

    Neither thinking nor an output schema can be combined with it (docs.claude.com; not recorded).
    """
    thinking = config.thinking
    if thinking is not None and thinking.effort != "none" and model.takes_thinking:
        return "an answer cannot be continued with thinking"
    if config.output_schema is not None and model.takes_schema:
        return "an answer cannot be continued with an output schema"
    return ""


def system_text(texts: list[str]) -> str:
    """A system message as user text, for places where the system role is not accepted."""
    return "<system>\n" + "\n".join(texts) + "\n</system>"


def _can_continue(turn: Json) -> bool:
    """Whether an answer still ends as the provider paused it, so that the provider can continue it."""
    kind: str = turn["content"][-1]["type"]
    return kind in ("server_tool_use", "mcp_tool_use", "compaction") or kind.endswith("_tool_result")


# -- tools


def _add_tools(body: Json, request: ModelRequest, model: Claude, losses: Losses) -> None:
    model_id = request.config.model_id
    tools = [tool for i, spec in enumerate(request.tools) for tool in _tool(spec, f"tools[{i}]", model_id, losses)]
    if tools:
        body["tools"] = tools
    servers = [tool.get("mcp_server_name") for tool in tools]
    if connected := [server for server in mcp_servers(request.tools) if server["name"] in servers]:
        body["mcp_servers"] = connected
    choice = _tool_choice(request.config)
    if choice is None:
        return
    if not tools:
        if request.config.tool_choice is not None:
            losses.add("config.toolChoice", "tool choice", "the request has no tools")
    elif choice["type"] in ("any", "tool") and model.always_thinks:
        losses.add("config.toolChoice", "required tool call", "not supported by a model that always thinks")
        body["tool_choice"] = {**choice, "type": "auto"}
        body["tool_choice"].pop("name", None)
    else:
        body["tool_choice"] = choice


def _tool(spec: ToolSpec, where: str, model_id: str, losses: Losses) -> list[Json]:
    if not spec.is_function:
        declared = HOSTED.declared(spec, where, model_id, losses)
        return [] if declared is None else [declared]
    tool = present(
        name=spec.name,
        description=spec.description,
        input_schema=parameters_of(spec),
        strict=spec.strict,
        defer_loading=spec.defer_loading or None,
        input_examples=spec.input_examples or None,
    )
    return [{**tool, **own_fields(spec, NAME)}]


def _tool_choice(config: ModelConfig) -> Json | None:
    setting = config.tool_choice
    if isinstance(setting, SpecificTool):
        choice = {"type": "tool", "name": setting.tool_name}
    elif setting is not None:
        choice = {"type": _CHOICES[setting]}
    elif config.parallel_tool_calls is not None:
        choice = {"type": "auto"}
    else:
        return None
    if config.parallel_tool_calls is None or choice["type"] == "none":
        return choice
    return {**choice, "disable_parallel_tool_use": not config.parallel_tool_calls}


# -- settings


def _add_settings(body: Json, config: ModelConfig, model: Claude, losses: Losses) -> None:
    is_forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    turns = _outline(body["messages"], losses.trail)
    exact = exact_fields(config.thinking, "anthropic-messages")
    if exact:
        fields = ThinkingFields(exact.get("thinking"), object_of(exact, "output_config").get("effort"))
    else:
        fields = sendable_thinking(config, body["max_tokens"], turns, is_forced, losses)
    temperature, top_p = sampling(config, fields.thinking, losses)
    output: Json = {} if fields.effort is None else {"effort": fields.effort}
    if config.output_schema is not None:
        schema = claude_schema(config.output_schema) if model.family else config.output_schema
        if schema is not None and model.takes_schema:
            output["format"] = {"type": "json_schema", "schema": schema}
        else:
            why = "not supported by this model" if schema is not None else "it has free keys, recursion or tuples"
            losses.add("config.outputSchema", "output schema", why)
    note_unsupported(config, losses, "the Messages API", "seed")
    note_settings(config, losses, "service_tier", "ttl")
    body |= present(
        thinking=fields.thinking,
        temperature=temperature,
        top_p=top_p,
        stop_sequences=config.stop_sequences,
        output_config=output or None,
        service_tier=config.service_tier,
    )


def _outline(messages: list[Json], trail: Trail) -> list[BodyMessage]:
    kinds = [[block["type"] for block in message["content"]] for message in messages]
    turns = [
        BodyMessage(message["role"] == "assistant", "tool_result" in kind, kind[0] in THINKING_BLOCKS)
        for message, kind in zip(messages, kinds, strict=True)
    ]
    return with_known_opening(turns, trail)


# -- prompt caching


def _has_breakpoint(body: Json, trail: Trail) -> bool:
    blocks = [*body.get("tools", []), *body.get("system", [])]
    is_marked = bool(trail.known("breakpoint")) or any("cache_control" in block for block in blocks)
    for start, turn in zip(trail.starts, body["messages"], strict=True):
        if any("cache_control" in block for block in turn["content"]):
            trail.note(start, "breakpoint")
            is_marked = True
    return is_marked


def _add_breakpoints(body: Json, mark: Json, trail: Trail) -> None:
    turns = [
        (start, turn["content"])
        for start, turn in zip(trail.starts, body["messages"], strict=True)
        if turn["role"] == "user"
    ][-2:]
    if trail.first and len(turns) < 2:
        raise PrefixChanged
    for start, _ in turns:
        trail.hold(start)
    # Deferred tools are not part of the prefix (docs.claude.com, "Tool search tool").
    tools = [tool for tool in body.get("tools", []) if not tool.get("defer_loading")]
    for blocks in (tools, body.get("system", []), *(content for _, content in turns)):
        last = next((block for block in reversed(blocks) if block.get("type") not in _UNCACHEABLE), None)
        if last is not None:
            last["cache_control"] = dict(mark)
