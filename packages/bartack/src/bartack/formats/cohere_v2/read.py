"""The body of Cohere's `/v2/chat` to a `ModelRequest`, the inverse of `encode`."""

from typing import Any

from bartack.formats.body_values import (
    list_at,
    object_at,
    object_of,
    parsed_object,
    read_function,
    text_at,
    texts_at,
)
from bartack.formats.cohere_v2.encode import CHOICES, SETTINGS
from bartack.formats.extra_fields import labelled
from bartack.formats.media import exact_data
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

Json = dict[str, Any]


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    remaining = {key: value for key, value in object_at(body, "$").items() if value is not None and key != "stream"}
    model = text_at(remaining.pop("model", None) or model_id or None, "$.model")
    reader = _Reader(provider, model)
    messages = [
        reader.message(object_at(message, f"$.messages[{index}]"), f"$.messages[{index}]")
        for index, message in enumerate(list_at(remaining.pop("messages", None), "$.messages"))
    ]
    strict = remaining.pop("strict_tools", None)
    tools = tuple(
        read_function(tool, "cohere-v2", f"$.tools[{index}]", strict=strict if isinstance(strict, bool) else None)
        for index, tool in enumerate(list_at(remaining.pop("tools", []), "$.tools"))
    )
    settings = _settings(remaining)
    config = ModelConfig(model, extra=labelled("cohere-v2", remaining), **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


def _settings(body: Json) -> Json:
    """Our settings, removed from the body."""
    settings: Json = {field: body.pop(name) for field, name in SETTINGS.items() if name in body}
    if "stop_sequences" in settings:
        settings["stop_sequences"] = texts_at(settings["stop_sequences"], "$.stop_sequences")
    choice = next((ours for ours, theirs in CHOICES.items() if theirs == body.get("tool_choice")), None)
    if choice is not None:
        settings["tool_choice"] = choice
        del body["tool_choice"]
    if isinstance(object_of(body, "response_format").get("json_schema"), dict):
        settings["output_schema"] = body.pop("response_format")["json_schema"]
    match body.get("thinking"):
        case {"type": "disabled"}:
            settings["thinking"] = ThinkingConfig(effort="none")
            del body["thinking"]
        case {"type": "enabled", "token_budget": int(budget)}:
            settings["thinking"] = ThinkingConfig(budget_tokens=budget)
            del body["thinking"]
        case {"type": "enabled"}:
            settings["thinking"] = ThinkingConfig()
            del body["thinking"]
    return settings


class _Reader:
    """Reads messages, and labels continuation data with the provider and model."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model

    def _kept(self, data: Json) -> Continuation:
        return Continuation(self._provider, self._model, data)

    def message(self, message: Json, path: str) -> Message:
        role: Any = text_at(message.get("role"), f"{path}.role")
        if role not in ("system", "user", "assistant", "tool"):
            raise PartValidationError(f"unknown role {role!r}", path=f"{path}.role")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        parts = [
            self._part(object_at(block, f"{path}.content[{index}]"), f"{path}.content[{index}]", role)
            for index, block in enumerate(list_at(blocks, f"{path}.content"))
        ]
        if role == "tool":
            return Message("tool", (self._result(message, parts, path),))
        if message.get("tool_plan"):
            plan = text_at(message["tool_plan"], f"{path}.tool_plan")
            parts.insert(0, Thinking(plan, continuation=self._kept({"type": "tool_plan"})))
        calls = [
            self._call(call, f"{path}.tool_calls[{index}]")
            for index, call in enumerate(list_at(message.get("tool_calls") or [], f"{path}.tool_calls"))
        ]
        if message.get("citations"):
            citations = self._kept({"citations": list_at(message["citations"], f"{path}.citations")})
            place = next((index for index, part in enumerate(parts) if isinstance(part, Text)), len(parts))
            text = parts[place].text if place < len(parts) else ""  # type: ignore[union-attr]  # a Text
            parts[place : place + 1] = [Text(text, continuation=citations)]
        try:
            return Message(role, (*parts, *calls))
        except PartValidationError as error:
            raise error.under(path[1:]) from None

    def _part(self, block: Json, path: str, role: str) -> Part:
        match block:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "thinking", "thinking": str(text)}:
                return Thinking(text, continuation=self._kept({"type": "thinking"}))
            case {"type": "image_url", "image_url": {"url": str(url)}} if role in ("user", "tool"):
                inline = exact_data(url)
                return Image("image/*", url=url) if inline is None else Image(inline[0], data=inline[1])
            case {"type": "document", "document": dict(document)} if role == "tool":
                return Text(json_text(document.get("data", document)))
        raise PartValidationError(f"unknown content {block.get('type')!r} of a message of the role {role}", path=path)

    def _result(self, message: Json, parts: list[Part], path: str) -> ToolResult:
        call_id = text_at(message.get("tool_call_id"), f"{path}.tool_call_id")
        content: ToolContent
        if len(parts) == 1 and isinstance(parts[0], Text):
            content = parts[0].text
        else:
            content = tuple(part for part in parts if isinstance(part, Text | Image))
        return ToolResult(call_id, content)

    def _call(self, value: Any, path: str) -> ToolCall:
        call = object_at(value, path)
        function = object_at(call.get("function"), f"{path}.function")
        text = text_at(function.get("arguments") or "{}", f"{path}.function.arguments")
        arguments = parsed_object(text)
        return ToolCall(
            text_at(call.get("id"), f"{path}.id"),
            text_at(function.get("name"), f"{path}.function.name"),
            arguments or {},
            raw_args_text=text if arguments is None else None,
        )
