"""The body of Bedrock's Converse to a `ModelRequest`.

Tool results are separate messages in our model, so one user message may become several. A block that a part cannot
represent in full is kept beside it in continuation data, and so is a cache point, on the part before it. Entries of
`tools` other than `toolSpec` (system tools, cache points) become `ToolSpec.native`.
"""

from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.anthropic_messages.capabilities import claude
from bartack.formats.bedrock_converse.blocks import ConverseBlockWriter, read_media
from bartack.formats.bedrock_converse.capabilities import read_thinking
from bartack.formats.bedrock_converse.decode import SERVER_TOOL, ConverseContinuation
from bartack.formats.bedrock_converse.encode import INFERENCE
from bartack.formats.body_values import (
    HistoryReader,
    beyond,
    items_at,
    message_at,
    number_at,
    object_at,
    objects_at,
    text_at,
)
from bartack.formats.losses import Losses
from bartack.formats.output_schemas import claude_schema
from bartack.formats.settings import labelled, take_settings
from bartack.nouns.config import ModelConfig, SpecificTool, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import (
    ContentPart,
    FileRef,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

Json = dict[str, Any]

_MEDIA = frozenset(("image", "document", "video", "audio"))


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    remaining = dict(object_at(body, "$"))
    model = text_at(remaining.pop("modelId", None) or model_id or None, "$.modelId")
    reader = _Reader(provider, model)
    messages: list[Message] = []
    system = reader.parts(remaining.pop("system", None) or [], "$.system", "system")
    if system:
        messages.append(Message("system", tuple(system)))
    for message, path in objects_at(remaining.pop("messages", None), "$.messages"):
        messages += reader.messages(message, path)
    settings = _inference(remaining)
    tools, choice = reader.tools(remaining)
    fields = remaining.pop("additionalModelRequestFields", None) or {}
    thinking, fields = read_thinking(model, object_at(fields, "$.additionalModelRequestFields"))
    if fields:
        remaining["additionalModelRequestFields"] = fields
    schema = _output_schema(remaining, model)
    settings |= {"tool_choice": choice, "thinking": thinking, "output_schema": schema}
    config = ModelConfig(model, extra=labelled("bedrock-converse", remaining), **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


def _inference(body: Json) -> Json:
    """The settings of `inferenceConfig`; those without a field of ours stay in `rest`."""
    inference = dict(object_at(body.pop("inferenceConfig", None) or {}, "$.inferenceConfig"))
    settings = take_settings(inference, INFERENCE, "$.inferenceConfig", number_at)
    if inference:
        body["inferenceConfig"] = inference
    return settings


def _output_schema(body: Json, model: str) -> Json | None:
    """The output schema; what is given besides it (a name, a description), or in another form, stays in `rest`."""
    output: Any = body.get("outputConfig")
    try:
        definition = output["textFormat"]["structure"]["jsonSchema"]
        schema = msgspec.json.decode(definition["schema"], type=dict[str, Any])
    except (KeyError, TypeError, msgspec.DecodeError):
        return None
    is_ours = not claude(model).family or claude_schema(schema) == schema
    if is_ours and set(definition) == {"schema"} and set(output) == {"textFormat"}:
        del body["outputConfig"]
    return schema


class _Reader(HistoryReader):
    """Reads messages and tools."""

    def messages(self, message: Json, path: str) -> list[Message]:
        role = text_at(message.get("role"), f"{path}.role")
        if role not in ("user", "assistant", "system"):
            raise PartValidationError(f"unknown role {role!r}; expected user, assistant or system", path=f"{path}.role")
        parts = self.parts(message.get("content"), f"{path}.content", role)
        if role == "system" and parts:
            parts[0] = self.kept_on(parts[0], {"role": "system"})
        if role != "user":
            return [message_at(role, parts, path)]  # type: ignore[arg-type]  # one of the two others
        grouped = groupby(parts, lambda part: isinstance(part, ToolResult))
        return [message_at("tool" if are_results else "user", group, path) for are_results, group in grouped]

    def parts(self, content: Any, path: str, role: str) -> list[Part]:
        parts: list[Part] = []
        for value, where in items_at(content, path):
            block = _block_at(value, where)
            if "cachePoint" in block and parts:
                parts[-1] = self.kept_on(parts[-1], block)
            elif "toolResult" in block and role == "assistant":
                self._add_provider_result(block["toolResult"], parts, where)
            else:
                parts.append(self._exact(self._part(block, where, role), block))
        return parts

    def _exact(self, part: Any, block: Json) -> Any:
        """The part, and the block beside it unless the encoder would write the part as that block."""
        losses = Losses(self.provider)
        losses.expect(ConverseContinuation)
        blocks = ConverseBlockWriter(self.model_id, losses).blocks(part, "")
        expected = block
        if "toolResult" in block and block["toolResult"].get("status") == "success":  # the default
            expected = {"toolResult": beyond(block["toolResult"], "status")}
        return part if blocks == [expected] else self.kept_on(part, {"block": block})

    def _part(self, block: Json, path: str, role: str) -> Part:
        [(kind, value)] = block.items()
        where = f"{path}.{kind}"
        if kind == "text":
            return Text(text_at(value, where))
        if kind in _MEDIA and role == "user":
            return read_media(block, path)
        content = object_at(value, where)
        match kind:
            case "toolUse":
                return self._call(content, where)
            case "toolResult":
                return self._result(content, where)
            case "reasoningContent":
                return self._reasoning(content, where)
            case "citationsContent":
                pieces = items_at(content.get("content") or [], f"{where}.content")
                texts = [str(object_at(piece, where).get("text", "")) for piece, _ in pieces]
                cited: Part = self.kept_on(Text("".join(texts)), {"citations": content.get("citations") or []})
                return cited
            case "guardContent" if isinstance(content.get("text"), dict):
                return Text(text_at(content["text"].get("text"), f"{where}.text.text"))
            case _:  # carried whole, by a part that is not empty text, which is refused
                return FileRef(kind) if role == "user" else Thinking("")

    def _reasoning(self, content: Json, path: str) -> Thinking:
        reasoning = content.get("reasoningText")
        text, data = "", content
        if isinstance(reasoning, dict):
            text = text_at(reasoning.get("text"), f"{path}.text")
            data = {"reasoningText": beyond(reasoning, "text")}
        part: Thinking = self.kept_on(Thinking(text), data)
        return part

    def _call(self, content: Json, path: str) -> ToolCall:
        is_provider_call = content.get("type") == SERVER_TOOL
        call = ToolCall(
            text_at(content.get("toolUseId"), f"{path}.toolUseId"),
            text_at(content.get("name"), f"{path}.name"),
            object_at(content.get("input"), f"{path}.input"),
            executed_by="provider" if is_provider_call else "client",
        )
        return self.kept_on(call, {"type": SERVER_TOOL}) if is_provider_call else call

    def _result(self, content: Json, path: str) -> ToolResult:
        call_id = text_at(content.get("toolUseId"), f"{path}.toolUseId")
        items = items_at(content.get("content"), f"{path}.content")
        blocks = [_block_at(block, where) for block, where in items]
        return ToolResult(call_id, self._result_content(blocks, path), is_error=content.get("status") == "error")

    def _result_content(self, blocks: list[Json], path: str) -> ToolContent:
        if len(blocks) == 1:
            [(kind, value)] = blocks[0].items()
            if (kind == "json" and isinstance(value, dict)) or (kind == "text" and isinstance(value, str)):
                content: ToolContent = value
                return content
        pieces = [
            self.kept_on(Text(json_text(block["json"])), {"block": block})
            if "json" in block
            else self._exact(self._part(block, f"{path}.content[{index}]", "user"), block)
            for index, block in enumerate(blocks)
        ]
        return tuple(piece for piece in pieces if isinstance(piece, ContentPart))

    def _add_provider_result(self, value: Any, parts: list[Part], path: str) -> None:
        """Add the result of a provider tool to its call."""
        result = self._result(object_at(value, f"{path}.toolResult"), f"{path}.toolResult")
        call_key = (result.tool_call_id, "provider")
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall) and (part.tool_call_id, part.executed_by) == call_key:
                parts[index] = replace(self.kept_on(part, {"toolResult": value}), result=result)
                return
        parts.append(self.kept_on(Thinking(""), {"block": {"toolResult": value}}))

    # -- tools

    def tools(self, body: Json) -> tuple[tuple[ToolSpec, ...], ToolChoice | None]:
        """The tools and the tool choice, removed from `rest`."""
        config = dict(object_at(body.pop("toolConfig", None) or {}, "$.toolConfig"))
        entries = items_at(config.pop("tools", []), "$.toolConfig.tools")
        tools = tuple(self._tool(entry, path) for entry, path in entries)
        choice = _choice(config.get("toolChoice"))
        if choice is not None:
            del config["toolChoice"]
        if config:
            body["toolConfig"] = config
        return tools, choice

    def _tool(self, entry: Any, path: str) -> ToolSpec:
        [(kind, value)] = _block_at(entry, path).items()
        if kind != "toolSpec":
            name = value.get("name", kind) if isinstance(value, dict) else kind
            return ToolSpec(text_at(name, path), {}, native=self.kept(entry))
        spec = dict(object_at(value, f"{path}.toolSpec"))
        schema = object_at(spec.pop("inputSchema", None), f"{path}.toolSpec.inputSchema")
        return ToolSpec(
            text_at(spec.pop("name", None), f"{path}.toolSpec.name"),
            object_at(schema.get("json"), f"{path}.toolSpec.inputSchema.json"),
            description=spec.pop("description", None),
            strict=spec.pop("strict", None),
            extra=labelled("bedrock-converse", spec),
        )


def _block_at(value: Any, path: str) -> Json:
    block = object_at(value, path)
    if len(block) != 1:
        raise PartValidationError(f"expected a block with one key, got {sorted(block)}", path=path)
    return block


def _choice(choice: Any) -> ToolChoice | None:
    if choice == {"auto": {}}:
        return "auto"
    if choice == {"any": {}}:
        return "required"
    tool = choice.get("tool") if isinstance(choice, dict) else None
    return SpecificTool(tool["name"]) if isinstance(tool, dict) and isinstance(tool.get("name"), str) else None
