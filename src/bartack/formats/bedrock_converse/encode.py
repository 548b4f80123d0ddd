"""A request -> the body of Bedrock's Converse and ConverseStream (the way back is in `converse_read`).

The model and the wish to stream stand in the URL, not in the body. What Converse demands, and what follows:

- Roles alternate, and results are content of the user: neighbours of one role become one message.
- Leading system messages are the `system`. One further on is said as the user, since most models refuse it there.
- There is no tool choice ``none``. Tools are left out for it, unless the history holds calls: then `toolConfig` must be
  there, and it must be there for such a history even if no tools are given, so bare specs are made of the names.
- A message with a document has text, too.
- What only one family of models knows goes into `additionalModelRequestFields` (`converse_models`).
"""

from typing import Any

from bartack.formats.anthropic_messages.models import Turn, began_without_thinking
from bartack.formats.bedrock_converse.models import add_cache_points, sampling, takes_schema, thinking_fields
from bartack.formats.bedrock_converse.parts import BlockWriter
from bartack.formats.bedrock_converse.read import CHOICES, FORMAT, read_request
from bartack.formats.body_values import json_text, with_extra
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]

_DOCUMENT_ONLY = {"text": "(see the document)"}


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The body that asks for this; what cannot be said is noted in `losses`."""
    config = request.config
    system, messages = _conversation(request, losses)
    body: dict[str, Any] = {"messages": messages}
    if system:
        body["system"] = system
    tools = _tool_config(request, messages, losses)
    is_forced = "toolChoice" in tools and "auto" not in tools["toolChoice"]
    fields = thinking_fields(config, is_forced, began_without_thinking(_outline(messages)), losses)
    settings: dict[str, Any] = sampling(config, fields, losses)
    if config.max_tokens is not None:
        settings["maxTokens"] = config.max_tokens
    if config.stop_sequences is not None:
        settings["stopSequences"] = list(config.stop_sequences)
    given = {"inferenceConfig": settings, "toolConfig": tools, "additionalModelRequestFields": fields}
    body |= {name: value for name, value in given.items() if value}
    if config.output_schema is not None:
        _add_schema(body, config, losses)
    if config.seed is not None:
        losses.add("config.seed", "the seed", "Converse has none")
    if config.parallel_tool_calls is False:
        losses.add("config.parallelToolCalls", "one call at a time", "Converse has no such setting")
    if config.cache_config is not None:
        add_cache_points(config.model_id, body, losses)
    return with_extra(body, config.extra)


def _add_schema(body: dict[str, Any], config: ModelConfig, losses: Losses) -> None:
    if not takes_schema(config.model_id):
        losses.add("config.outputSchema", "the schema of the answer", "this model has no structured output")
        return
    definition = {"schema": json_text(config.output_schema)}
    body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}


def _conversation(request: ModelRequest, losses: Losses) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    writer = BlockWriter(request.config.model_id, losses)
    system: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        parts = enumerate(message.parts)
        blocks = [block for place, part in parts for block in writer.blocks(part, f"messages[{index}].parts[{place}]")]
        blocks += writer.take_behind_results()
        if message.role == "system" and not messages:
            system += blocks
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "system":
            role, blocks = _system_turn(message, blocks, f"messages[{index}]", losses)
        if role == "assistant":
            _drop_last_thoughts(blocks, f"messages[{index}]", losses)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    for message_said in messages:
        _add_text_to_documents(message_said["content"])
    return system, messages


def _drop_last_thoughts(blocks: list[dict[str, Any]], where: str, losses: Losses) -> None:
    """Reasoning leads to something, or it is refused; what it led to may have been left out."""
    if blocks and "reasoningContent" in blocks[-1]:
        losses.add(where, "thinking", "what it led to is left out")
    while blocks and "reasoningContent" in blocks[-1]:
        blocks.pop()


def _system_turn(
    message: Message, blocks: list[dict[str, Any]], where: str, losses: Losses
) -> tuple[str, list[dict[str, Any]]]:
    """The role and the blocks of a system message inside the conversation."""
    carried = message.parts[0].continuation if message.parts else None
    if carried is not None and carried.provider == losses.provider and carried.data.get("role") == "system":
        return "system", blocks
    losses.add(where, "the system role", "few models take a system message here; the user says it")
    texts = [block["text"] for block in blocks if "text" in block]
    return "user", [{"text": "<system>\n" + "\n".join(texts) + "\n</system>"}] if texts else []


def _outline(messages: list[dict[str, Any]]) -> list[Turn]:
    kinds = [[next(iter(block)) for block in message["content"]] for message in messages]
    return [
        Turn(message["role"] == "assistant", "toolResult" in kind, kind[0] == "reasoningContent")
        for message, kind in zip(messages, kinds, strict=True)
    ]


def _add_text_to_documents(content: list[dict[str, Any]]) -> None:
    kinds = {next(iter(block)) for block in content}
    if "document" in kinds and not kinds & {"text", "toolResult"}:
        content.append(_DOCUMENT_ONLY)


def _tool_config(request: ModelRequest, messages: list[dict[str, Any]], losses: Losses) -> dict[str, Any]:
    choice = request.config.tool_choice
    uses = [block["toolUse"] for message in messages for block in message["content"] if "toolUse" in block]
    called = {use["name"]: use.get("type") == "server_tool_use" for use in uses if "name" in use}
    if choice == "none" and not called:
        return {}
    tools = [entry for index, spec in enumerate(request.tools) if (entry := _tool(spec, f"tools[{index}]", losses))]
    if not tools:
        tools = [
            {"systemTool": {"name": name}} if is_own else _tool(ToolSpec(name, {"type": "object"}), "tools", losses)
            for name, is_own in called.items()
        ]
    if not tools:
        return {}
    if choice == "none" and request.tools:
        losses.add("config.toolChoice", "that no tool may be called", "a history with calls needs its tools")
    if isinstance(choice, SpecificTool):
        return {"tools": tools, "toolChoice": {"tool": {"name": choice.tool_name}}}
    return {"tools": tools, **({"toolChoice": {CHOICES[choice]: {}}} if choice in CHOICES else {})}


def _tool(spec: ToolSpec, where: str, losses: Losses) -> dict[str, Any]:
    """The tool's entry; empty for a tool that another provider executes."""
    if spec.native is not None:
        return losses.continuation(where, spec.native)
    entry: dict[str, Any] = {"name": spec.name, "inputSchema": {"json": spec.parameter_schema}}
    if spec.description:  # empty text is refused
        entry["description"] = spec.description
    if spec.strict is not None:
        entry["strict"] = spec.strict
    return {"toolSpec": {**entry, **(spec.extra or {}).get(FORMAT, {})}}
