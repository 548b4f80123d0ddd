"""The body of Cohere's `/v2/chat` -> a request.

What has no place in our nouns is kept: unknown settings in the config's `extra`; in continuation data the citations of
an answer, blocks of unknown type, and unknown keys of a message (on its first part).
"""

from typing import Any

import msgspec

from bartack.formats.body_values import (
    carrying,
    list_at,
    number_at,
    object_at,
    objects_at,
    read_function_tool,
    read_message,
    text_at,
    texts_at,
)
from bartack.formats.cohere_v2.media import read_image
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, Continuation, FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["CHOICES", "FORMAT", "SETTINGS", "read_request"]

FORMAT = "cohere-v2"
SETTINGS = {  # our setting -> Cohere's
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "seed": "seed",
    "stop_sequences": "stop_sequences",
}
CHOICES = {"required": "REQUIRED", "none": "NONE"}
_MESSAGE_KEYS = frozenset(("role", "content", "tool_calls", "tool_plan", "tool_call_id", "citations"))


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes. Raises `PartValidationError` for what is no body of this format."""
    rest = dict(object_at(body, "$"))
    rest.pop("stream", None)  # a request of ours is always streamed
    reader = _Reader(provider, text_at(rest.pop("model", None) or model_id or None, "$.model"))
    messages = tuple(reader.message(*said) for said in objects_at(rest.pop("messages", None), "$.messages"))
    is_strict = rest.pop("strict_tools", None)
    specs = objects_at(rest.pop("tools", None) or [], "$.tools")
    tools = tuple(read_function_tool(*spec, FORMAT, is_strict) for spec in specs)
    settings = _settings(rest)
    config = ModelConfig(reader.model, extra=rest or None, **settings)
    return ModelRequest(messages=messages, config=config, tools=tools, provider=provider)


def _settings(rest: dict[str, Any]) -> dict[str, Any]:
    """The settings that have a name in `ModelConfig`, taken out of `rest`."""
    settings: dict[str, Any] = {}
    for field, name in SETTINGS.items():
        if rest.get(name) is not None:
            check = texts_at if name == "stop_sequences" else number_at
            settings[field] = check(rest.pop(name), f"$.{name}")
    choice = next((ours for ours, theirs in CHOICES.items() if theirs == rest.get("tool_choice")), None)
    if choice is not None:
        settings["tool_choice"] = choice
        del rest["tool_choice"]
    response_format = rest.get("response_format")
    if isinstance(response_format, dict) and isinstance(response_format.get("json_schema"), dict):
        settings["output_schema"] = rest.pop("response_format")["json_schema"]
    thinking = rest.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") in ("enabled", "disabled"):
        del rest["thinking"]
        is_off = thinking["type"] == "disabled"
        settings["thinking"] = ThinkingConfig(
            effort="none" if is_off else None, budget_tokens=thinking.get("token_budget")
        )
    return settings


class _Reader:
    def __init__(self, provider: str, model: str) -> None:
        self.model = model
        self._origin = Continuation(provider, model, {})

    def message(self, said: dict[str, Any], path: str) -> Message:
        role = text_at(said.get("role"), f"{path}.role")
        if role == "tool":
            call_id = text_at(said.get("tool_call_id"), f"{path}.tool_call_id")
            parts: tuple[Part, ...] = (ToolResult(call_id, self._result(said, path)),)
        elif role == "assistant":
            parts = self._answer(said, path)
        else:
            parts = self._content(said, path) or (Text(""),)
        fields = {key: value for key, value in said.items() if key not in _MESSAGE_KEYS}
        return read_message(role, parts, fields, self._origin, path)

    def _carrying(self, part: Part, data: dict[str, Any]) -> Part:
        return carrying(part, self._origin, data)

    def _content(self, said: dict[str, Any], path: str) -> tuple[Part, ...]:
        content = said.get("content")
        if content is None or isinstance(content, str):
            return (Text(content),) if content else ()
        blocks = list_at(content, f"{path}.content")
        return tuple(self._block(block, f"{path}.content[{index}]") for index, block in enumerate(blocks))

    def _block(self, value: Any, path: str) -> Part:
        block = object_at(value, path)
        match block.get("type"):
            case "text":
                return Text(text_at(block.get("text"), f"{path}.text"))
            case "thinking":
                thinking = Thinking(text_at(block.get("thinking"), f"{path}.thinking"))
                return self._carrying(thinking, {"type": "thinking"})
            case "image_url":
                image, is_all = read_image(block, f"{path}.image_url")
                return image if is_all else self._carrying(image, {"block": block})
            case kind:  # a document, for one: only Cohere knows what it means
                return self._carrying(FileRef(text_at(kind, f"{path}.type")), {"block": block})

    def _result(self, said: dict[str, Any], path: str) -> str | tuple[ContentPart, ...]:
        content = said.get("content")
        if content is None or isinstance(content, str):
            return content or ""
        return tuple(part for part in self._content(said, path) if isinstance(part, ContentPart))

    def _answer(self, said: dict[str, Any], path: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        if said.get("tool_plan"):
            plan = Thinking(text_at(said["tool_plan"], f"{path}.tool_plan"))
            parts.append(self._carrying(plan, {"type": "tool_plan"}))
        parts += self._content(said, path)
        parts += [_call(*call) for call in objects_at(said.get("tool_calls") or [], f"{path}.tool_calls")]
        if not parts:
            parts.append(Text(""))
        if said.get("citations"):
            place = next((i for i, part in enumerate(parts) if isinstance(part, Text)), 0)
            parts[place] = self._carrying(parts[place], {"citations": said["citations"]})
        return tuple(parts)


def _call(call: dict[str, Any], path: str) -> ToolCall:
    function = object_at(call.get("function"), f"{path}.function")
    name = text_at(function.get("name"), f"{path}.function.name")
    raw = text_at(function.get("arguments") or "{}", f"{path}.function.arguments")
    call_id = text_at(call.get("id"), f"{path}.id")
    try:
        return ToolCall(call_id, name, msgspec.json.decode(raw, type=dict[str, Any]))
    except msgspec.DecodeError:
        return ToolCall(call_id, name, {}, raw_args_text=raw)
