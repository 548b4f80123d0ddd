"""A `ModelRequest` to the body of Bedrock's Converse and ConverseStream.

The model and the choice to stream are part of the URL. What Converse requires, and what follows from it:

- Roles alternate, and tool results are user content: neighbouring messages of one role become one.
- Leading system messages become `system`. Later ones become user text, since most models refuse them.
- There is no tool choice ``none``. Tools are omitted for it, unless the history has calls: such a history requires a
  `toolConfig`, so that minimal specs are made from the names of its calls if no tools are given.
- A message with a document needs a text, too.
- Only Claude continues an answer at the end, under the same conditions as in its own format; repair adds a prompt for
  all other models.
- Settings of a single model family are part of `additionalModelRequestFields` (`capabilities`).

Source: Bedrock API reference, Converse; its validation errors.
"""

from typing import Any

from bartack.formats.anthropic_messages.capabilities import BodyMessage, claude, sampling
from bartack.formats.anthropic_messages.encode import excludes_prefill, system_text
from bartack.formats.bedrock_converse.blocks import ConverseBlockWriter
from bartack.formats.bedrock_converse.capabilities import add_cache_points, thinking_fields
from bartack.formats.bedrock_converse.decode import SERVER_TOOL, ConverseContinuation
from bartack.formats.body_values import present
from bartack.formats.losses import Losses
from bartack.formats.output_schemas import claude_schema
from bartack.formats.repair import CONTINUE_PROMPT
from bartack.formats.settings import (
    note_settings,
    note_unsupported,
    own_extra,
    own_fields,
    with_extra,
    written_settings,
)
from bartack.formats.tools import HostedRows, hosted_row, note_tool_options, parameters_of
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest

__all__ = ["INFERENCE", "encode"]

Json = dict[str, Any]

_NOVA = r".*amazon\.nova"
# The system tools of Nova: docs.aws.amazon.com/nova/latest/nova2-userguide/using-tools.html
HOSTED = HostedRows(
    "bedrock-converse",
    {
        "": {
            "web_search": hosted_row({"systemTool": {"name": "nova_grounding"}}, models=_NOVA),
            "code_execution": hosted_row({"systemTool": {"name": "nova_code_interpreter"}}, models=_NOVA),
        }
    },
)

INFERENCE = {  # our setting -> that of `inferenceConfig`
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_CHOICES = {"auto": "auto", "required": "any"}
_DOCUMENT_ONLY = {"text": "(see the document)"}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what the model cannot receive is added to `losses`."""
    losses.expect(ConverseContinuation)
    config = request.config
    system, messages = _conversation(request, losses)
    body: Json = {"messages": messages}
    if system:
        body["system"] = system
    tools = _tool_config(request, messages, losses)
    is_forced = "toolChoice" in tools and "auto" not in tools["toolChoice"]
    fields = thinking_fields(config, _outline(messages), is_forced, losses)
    temperature, top_p = sampling(config, fields.get("thinking"), losses)
    settings = present(**written_settings(config, INFERENCE) | {"temperature": temperature, "topP": top_p})
    optional = {"inferenceConfig": settings, "toolConfig": tools, "additionalModelRequestFields": fields}
    body |= {name: value for name, value in optional.items() if value}
    if config.output_schema is not None:
        _add_schema(body, config, losses)
    note_unsupported(config, losses, "Converse", "seed", "parallel_tool_calls")
    if config.cache_config is not None:
        add_cache_points(config.model_id, body, config.cache_config, losses)
    if config.service_tier is not None:
        body["serviceTier"] = {"type": config.service_tier}
    note_settings(config, losses, "service_tier", "ttl")
    return with_extra(body, own_extra(request, "bedrock-converse", losses))


def _add_schema(body: Json, config: ModelConfig, losses: Losses) -> None:
    model = claude(config.model_id)
    schema = claude_schema(config.output_schema or {}) if model.family else config.output_schema
    if schema is None or not model.takes_schema:  # for other families than Claude, this is not verified
        why = "not supported by this model" if schema is not None else "it has free keys, recursion or tuples"
        losses.add("config.outputSchema", "output schema", why)
        return
    definition = {"schema": json_text(schema)}
    body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}


def _conversation(request: ModelRequest, losses: Losses) -> tuple[list[Json], list[Json]]:
    writer = ConverseBlockWriter(request.config.model_id, losses)
    system: list[Json] = []
    turns: list[Json] = []
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        parts = enumerate(message.parts)
        blocks = [block for number, part in parts for block in writer.blocks(part, f"{where}.parts[{number}]")]
        blocks += writer.take_after_results()
        if message.role == "system" and not turns:
            system += blocks
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "system":
            role, blocks = _system_turn(message, blocks, where, losses)
        if role == "assistant":
            _drop_trailing_reasoning(blocks, where, losses)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        kinds = {next(iter(block)) for block in turn["content"]}
        if "document" in kinds and not kinds & {"text", "toolResult"}:
            turn["content"].append(_DOCUMENT_ONLY)
    _end_turns(turns, request, losses)
    return system, turns


def _end_turns(turns: list[Json], request: ModelRequest, losses: Losses) -> None:
    """Prepare a text at the end to be continued, or add a prompt if it cannot be."""
    if not turns or turns[-1]["role"] != "assistant" or "text" not in turns[-1]["content"][-1]:
        return
    last, where = turns[-1]["content"][-1], f"messages[{len(request.messages) - 1}]"
    why = excludes_prefill(request.config, claude(request.config.model_id))
    if why:
        losses.add(where, f"the user text {CONTINUE_PROMPT!r}", why, action="added")
        turns.append({"role": "user", "content": [{"text": CONTINUE_PROMPT}]})
    elif last["text"] != last["text"].rstrip():
        losses.add(where, "trailing whitespace", "not accepted at the end of the last answer")
        turns[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}


def _drop_trailing_reasoning(blocks: list[Json], where: str, losses: Losses) -> None:
    if blocks and "reasoningContent" in blocks[-1]:
        losses.add(where, "thinking", "the text or call that it led to is not sent")
    while blocks and "reasoningContent" in blocks[-1]:
        blocks.pop()


def _system_turn(message: Message, blocks: list[Json], where: str, losses: Losses) -> tuple[str, list[Json]]:
    """The role and the blocks of a system message inside the conversation."""
    if message.parts and losses.own_data(message.parts[0]).get("role") == "system":
        return "system", blocks
    losses.add(where, "system role", "few models accept it at this position; sent as user text")
    texts = [block["text"] for block in blocks if "text" in block]
    return "user", [{"text": system_text(texts)}] if texts else []


def _outline(messages: list[Json]) -> list[BodyMessage]:
    kinds = [[next(iter(block)) for block in message["content"]] for message in messages]
    return [
        BodyMessage(message["role"] == "assistant", "toolResult" in kind, kind[0] == "reasoningContent")
        for message, kind in zip(messages, kinds, strict=True)
    ]


# -- tools


def _tool_config(request: ModelRequest, messages: list[Json], losses: Losses) -> Json:
    choice, model_id = request.config.tool_choice, request.config.model_id
    uses = [block["toolUse"] for message in messages for block in message["content"] if "toolUse" in block]
    called = {use["name"]: use.get("type") == SERVER_TOOL for use in uses if "name" in use}
    if choice == "none" and not called:
        return {}
    entries = [_tool(spec, f"tools[{index}]", model_id, losses) for index, spec in enumerate(request.tools)]
    tools = [entry for entry in entries if entry]
    if not tools:
        tools = [
            {"systemTool": {"name": name}}
            if is_system
            else _tool(ToolSpec(name, {"type": "object"}), "tools", model_id, losses)
            for name, is_system in called.items()
        ]
    if not tools:
        return {}
    if choice == "none" and request.tools:
        losses.add("config.toolChoice", "tool choice 'none'", "a history with calls requires its tools")
    if isinstance(choice, SpecificTool):
        return {"tools": tools, "toolChoice": {"tool": {"name": choice.tool_name}}}
    return {"tools": tools, **({"toolChoice": {_CHOICES[choice]: {}}} if choice in _CHOICES else {})}


def _tool(spec: ToolSpec, where: str, model_id: str, losses: Losses) -> Json:
    """The tool's entry; empty for another provider's tool."""
    if not spec.is_function:
        return HOSTED.declared(spec, where, model_id, losses) or {}
    note_tool_options(spec, where, losses)
    entry = present(
        name=spec.name,
        inputSchema={"json": parameters_of(spec)},
        description=spec.description or None,  # an empty string is refused
        strict=spec.strict,
    )
    return {"toolSpec": {**entry, **own_fields(spec, "bedrock-converse")}}
