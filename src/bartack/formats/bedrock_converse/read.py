"""The body of Bedrock's Converse -> a request.

Results are messages of their own with us, so one message of the user may become several. A block that a part cannot
say in full is kept beside it in continuation data, and so is a cache point, on the part in front of it. Entries of
`tools` that are no `toolSpec` (tools of the model's maker, cache points) are `ToolSpec.native`.
"""

from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.bedrock_converse.blocks import read_media
from bartack.formats.bedrock_converse.models import read_thinking
from bartack.formats.bedrock_converse.parts import BlockWriter
from bartack.formats.body_values import carrying, json_text, list_at, number_at, object_at, text_at, texts_at
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import (
    ContentPart,
    Continuation,
    FileRef,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.nouns.requests import ModelRequest

__all__ = ["CHOICES", "FORMAT", "read_request"]

FORMAT = "bedrock-converse"
_SETTINGS = {  # our setting -> that of `inferenceConfig`
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
CHOICES = {"auto": "auto", "required": "any"}
_MEDIA = frozenset(("image", "document", "video", "audio"))


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes. Raises `PartValidationError` for what is no body of this format."""
    rest = dict(object_at(body, "$"))
    reader = _Reader(provider, text_at(rest.pop("modelId", None) or model_id or None, "$.modelId"))
    messages: list[Message] = []
    system = reader.parts(rest.pop("system", None) or [], "$.system", "system")
    if system:
        messages.append(Message("system", tuple(system)))
    for index, said in enumerate(list_at(rest.pop("messages", None), "$.messages")):
        messages += reader.messages(object_at(said, f"$.messages[{index}]"), f"$.messages[{index}]")
    settings = _inference(rest)
    tools, choice = reader.tools(rest)
    if choice is not None:
        settings["tool_choice"] = choice
    fields = rest.pop("additionalModelRequestFields", None) or {}
    thinking, fields = read_thinking(reader.model, object_at(fields, "$.additionalModelRequestFields"))
    if thinking is not None:
        settings["thinking"] = thinking
    if fields:
        rest["additionalModelRequestFields"] = fields
    schema = _output_schema(rest)
    if schema is not None:
        settings["output_schema"] = schema
    config = ModelConfig(reader.model, extra=rest or None, **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


def _inference(rest: dict[str, Any]) -> dict[str, Any]:
    given = dict(object_at(rest.pop("inferenceConfig", None) or {}, "$.inferenceConfig"))
    settings: dict[str, Any] = {}
    for field, name in _SETTINGS.items():
        if given.get(name) is not None:
            check = texts_at if name == "stopSequences" else number_at
            settings[field] = check(given.pop(name), f"$.inferenceConfig.{name}")
    if given:
        rest["inferenceConfig"] = given
    return settings


def _output_schema(rest: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the answer; what stands beside it (a name, a description) stays in `rest`."""
    output: Any = rest.get("outputConfig")
    try:
        definition = output["textFormat"]["structure"]["jsonSchema"]
        schema = msgspec.json.decode(definition["schema"], type=dict[str, Any])
    except (KeyError, TypeError, msgspec.DecodeError):
        return None
    if set(definition) == {"schema"} and set(output) == {"textFormat"}:
        del rest["outputConfig"]
    return schema


class _Reader:
    def __init__(self, provider: str, model: str) -> None:
        self.provider = provider
        self.model = model

    def messages(self, said: dict[str, Any], path: str) -> list[Message]:
        role = text_at(said.get("role"), f"{path}.role")
        if role not in ("user", "assistant", "system"):
            raise PartValidationError(f"{role!r} is not a role of this format", path=f"{path}.role")
        parts = self.parts(said.get("content"), f"{path}.content", role)
        if role == "system" and parts:
            parts[0] = self._carrying(parts[0], {"role": "system"})
        try:
            if role != "user":
                return [Message(role, tuple(parts))]  # type: ignore[arg-type]  # one of the two others
            grouped = groupby(parts, lambda part: isinstance(part, ToolResult))
            return [Message("tool" if are_results else "user", tuple(group)) for are_results, group in grouped]
        except PartValidationError as error:
            raise error.under(path[1:]) from None

    def parts(self, content: Any, path: str, role: str) -> list[Part]:
        parts: list[Part] = []
        for index, value in enumerate(list_at(content, path)):
            spot = f"{path}[{index}]"
            block = _block_at(value, spot)
            if "cachePoint" in block and parts:
                parts[-1] = self._carrying(parts[-1], block)
            elif "toolResult" in block and role == "assistant":
                self._add_own_result(block["toolResult"], parts, spot)
            else:
                parts.append(self._exact(self._part(block, spot, role), block))
        return parts

    def _carrying(self, part: Part, data: dict[str, Any]) -> Part:
        return carrying(part, Continuation(self.provider, self.model, {}), data)

    def _exact(self, part: Part, block: dict[str, Any]) -> Part:
        """The part, with the block beside it unless the part alone would be written as that block."""
        written = BlockWriter(self.model, Losses(self.provider)).blocks(part, "")
        wanted = block
        if "toolResult" in block and block["toolResult"].get("status") == "success":  # which goes without saying
            wanted = {"toolResult": {key: value for key, value in block["toolResult"].items() if key != "status"}}
        return part if written == [wanted] else self._carrying(part, {"block": block})

    def _part(self, block: dict[str, Any], path: str, role: str) -> Part:
        [(kind, value)] = block.items()
        spot = f"{path}.{kind}"
        if kind == "text":
            return Text(text_at(value, spot))
        if kind in _MEDIA and role == "user":
            return read_media(block, path)
        content = object_at(value, spot)
        if kind == "toolUse":
            return self._call(content, spot)
        if kind == "toolResult":
            return self._result(content, spot)
        if kind == "reasoningContent":
            return self._reasoning(content, spot)
        if kind == "citationsContent":
            texts = [str(object_at(piece, spot).get("text", "")) for piece in content.get("content") or []]
            return self._carrying(Text("".join(texts)), {"citations": content.get("citations") or []})
        if kind == "guardContent" and isinstance(content.get("text"), dict):
            return Text(text_at(content["text"].get("text"), f"{spot}.text.text"))
        # A block of unknown kind is a file to the user and a thought to all others: no empty text, which is refused.
        return FileRef(kind) if role == "user" else Thinking("")

    def _reasoning(self, content: dict[str, Any], path: str) -> Thinking:
        said = content.get("reasoningText")
        if not isinstance(said, dict):
            part: Part = self._carrying(Thinking(""), content)
        else:
            beside = {key: value for key, value in said.items() if key != "text"}
            part = self._carrying(Thinking(text_at(said.get("text"), f"{path}.text")), {"reasoningText": beside})
        assert isinstance(part, Thinking)
        return part

    def _call(self, content: dict[str, Any], path: str) -> Part:
        is_server = content.get("type") == "server_tool_use"
        call = ToolCall(
            text_at(content.get("toolUseId"), f"{path}.toolUseId"),
            text_at(content.get("name"), f"{path}.name"),
            object_at(content.get("input"), f"{path}.input"),
            executed_by="provider" if is_server else "client",
        )
        return self._carrying(call, {"type": "server_tool_use"}) if is_server else call

    def _result(self, content: dict[str, Any], path: str) -> ToolResult:
        call_id = text_at(content.get("toolUseId"), f"{path}.toolUseId")
        given = enumerate(list_at(content.get("content"), f"{path}.content"))
        blocks = [_block_at(block, f"{path}.content[{index}]") for index, block in given]
        return ToolResult(call_id, self._result_content(blocks, path), is_error=content.get("status") == "error")

    def _result_content(self, blocks: list[dict[str, Any]], path: str) -> ToolContent:
        if len(blocks) == 1:
            [(kind, value)] = blocks[0].items()
            if (kind == "json" and isinstance(value, dict)) or (kind == "text" and isinstance(value, str)):
                content: ToolContent = value
                return content
        pieces = [
            self._carrying(Text(json_text(block["json"])), {"block": block})
            if "json" in block
            else self._exact(self._part(block, f"{path}.content[{index}]", "user"), block)
            for index, block in enumerate(blocks)
        ]
        return tuple(piece for piece in pieces if isinstance(piece, ContentPart))

    def _add_own_result(self, value: Any, parts: list[Part], path: str) -> None:
        """Put the result of a tool that the provider executed into its call."""
        result = self._result(object_at(value, f"{path}.toolResult"), f"{path}.toolResult")
        for place, part in enumerate(parts):
            if isinstance(part, ToolCall) and (part.tool_call_id, part.executed_by) == (
                result.tool_call_id,
                "provider",
            ):
                parts[place] = replace(self._carrying(part, {"toolResult": value}), result=result)
                return
        parts.append(self._carrying(Thinking(""), {"block": {"toolResult": value}}))

    def tools(self, rest: dict[str, Any]) -> tuple[tuple[ToolSpec, ...], ToolChoice | None]:
        """The tools and the choice among them, taken out of `rest`."""
        config = dict(object_at(rest.pop("toolConfig", None) or {}, "$.toolConfig"))
        entries = list_at(config.pop("tools", []), "$.toolConfig.tools")
        tools = tuple(self._tool(entry, f"$.toolConfig.tools[{index}]") for index, entry in enumerate(entries))
        choice = _choice(config.get("toolChoice"))
        if choice is not None:
            del config["toolChoice"]
        if config:
            rest["toolConfig"] = config
        return tools, choice

    def _tool(self, entry: Any, path: str) -> ToolSpec:
        [(kind, value)] = _block_at(entry, path).items()
        if kind != "toolSpec":
            name = value.get("name", kind) if isinstance(value, dict) else kind
            return ToolSpec(text_at(name, path), {}, native=Continuation(self.provider, self.model, entry))
        spec = dict(object_at(value, f"{path}.toolSpec"))
        schema = object_at(spec.pop("inputSchema", None), f"{path}.toolSpec.inputSchema")
        return ToolSpec(
            text_at(spec.pop("name", None), f"{path}.toolSpec.name"),
            object_at(schema.get("json"), f"{path}.toolSpec.inputSchema.json"),
            description=spec.pop("description", None),
            strict=spec.pop("strict", None),
            extra={FORMAT: spec} if spec else None,
        )


def _block_at(value: Any, path: str) -> dict[str, Any]:
    block = object_at(value, path)
    if len(block) != 1:
        raise PartValidationError(f"a block has one key, not {sorted(block)}", path=path)
    return block


def _choice(wire: Any) -> ToolChoice | None:
    if wire == {"auto": {}}:
        return "auto"
    if wire == {"any": {}}:
        return "required"
    named = wire.get("tool") if isinstance(wire, dict) else None
    return SpecificTool(named["name"]) if isinstance(named, dict) and isinstance(named.get("name"), str) else None
