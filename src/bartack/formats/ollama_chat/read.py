"""The body of Ollama's `/api/chat` -> a request.

What has no place in our nouns is kept: unknown settings in the config's `extra`, unknown keys of a message in the
continuation data of its first part, unknown keys of a tool in the `extra` of its spec, under the format's name.
"""

from typing import Any

from bartack.formats.body_values import (
    bytes_at,
    carrying,
    json_text,
    list_at,
    number_at,
    object_at,
    objects_at,
    read_function_tool,
    read_message,
    text_at,
    texts_at,
)
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["FORMAT", "OPTIONS", "read_request"]

FORMAT = "ollama-chat"
OPTIONS = {  # our setting -> Ollama's option
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop_sequences": "stop",
}
_MESSAGE_KEYS = frozenset(("role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"))
_THINKING = {  # by the JSON of `think`
    "true": ThinkingConfig(),
    "false": ThinkingConfig(effort="none"),
    '"low"': ThinkingConfig(effort="low"),
    '"medium"': ThinkingConfig(effort="medium"),
    '"high"': ThinkingConfig(effort="high"),
    '"max"': ThinkingConfig(effort="max"),
}
_PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes. Raises `PartValidationError` for what is no body of this format."""
    rest = dict(object_at(body, "$"))
    rest.pop("stream", None)  # a request of ours is always streamed
    reader = _Reader(provider, text_at(rest.pop("model", None) or model_id or None, "$.model"))
    messages = tuple(reader.message(*said) for said in objects_at(rest.pop("messages", None), "$.messages"))
    specs = objects_at(rest.get("tools") or [], "$.tools")
    tools = tuple(read_function_tool(*spec, FORMAT) for spec in specs)
    if tools:
        del rest["tools"]
    settings = _settings(rest)
    config = ModelConfig(reader.model, extra=rest or None, **settings)
    return ModelRequest(messages=messages, config=config, tools=tools, provider=provider)


def _settings(rest: dict[str, Any]) -> dict[str, Any]:
    """The settings that have a name in `ModelConfig`, taken out of `rest`."""
    settings: dict[str, Any] = {}
    options = dict(object_at(rest.get("options") or {}, "$.options"))
    for field, name in OPTIONS.items():
        if options.get(name) is not None:
            check = texts_at if name == "stop" else number_at
            settings[field] = check(options.pop(name), f"$.options.{name}")
    if settings:
        rest["options"] = options
        if not options:
            del rest["options"]
    if isinstance(rest.get("format"), dict):
        settings["output_schema"] = rest.pop("format")
    thinking = _THINKING.get(json_text(rest.get("think")))
    if thinking is not None:
        settings["thinking"] = thinking
        del rest["think"]
    return settings


class _Reader:
    """Reads messages in order, since a result without an id answers the first call that has no result yet."""

    def __init__(self, provider: str, model: str) -> None:
        self.model = model
        self._origin = Continuation(provider, model, {})
        self._unanswered: dict[str, str] = {}  # id of a call -> name
        self._made = 0

    def message(self, said: dict[str, Any], path: str) -> Message:
        role = text_at(said.get("role"), f"{path}.role")
        if role == "tool":
            parts: tuple[Part, ...] = (self._result(said, path),)
        elif role == "assistant":
            parts = self._answer(said, path)
        else:
            parts = _content(said, path)
        fields = {key: value for key, value in said.items() if key not in _MESSAGE_KEYS}
        return read_message(role, parts, fields, self._origin, path)

    def _answer(self, said: dict[str, Any], path: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        if said.get("thinking"):
            thinking = Thinking(text_at(said["thinking"], f"{path}.thinking"))
            parts.append(carrying(thinking, self._origin, {"thinking": {}}))
        calls = objects_at(said.get("tool_calls") or [], f"{path}.tool_calls")
        if said.get("content") or not (parts or calls):
            parts.append(Text(text_at(said.get("content") or "", f"{path}.content")))
        parts += [self._call(*call) for call in calls]
        return tuple(parts)

    def _call(self, call: dict[str, Any], path: str) -> ToolCall:
        function = object_at(call.get("function"), f"{path}.function")
        name = text_at(function.get("name"), f"{path}.function.name")
        call_id = call.get("id") or self._new_id()
        self._unanswered[call_id] = name
        return ToolCall(call_id, name, object_at(function.get("arguments") or {}, f"{path}.function.arguments"))

    def _result(self, said: dict[str, Any], path: str) -> ToolResult:
        parts = _content(said, path)
        call_id = said.get("tool_call_id") or self._answered(said.get("tool_name"))
        self._unanswered.pop(call_id, None)
        first = parts[0]
        return ToolResult(call_id, first.text if isinstance(first, Text) and len(parts) == 1 else parts)

    def _answered(self, name: str | None) -> str:
        calls = self._unanswered.items()
        return next((call_id for call_id, called in calls if name in (None, called)), None) or self._new_id()

    def _new_id(self) -> str:
        self._made += 1
        return f"call-{self._made}"


def _content(said: dict[str, Any], path: str) -> tuple[Text | Image, ...]:
    images = list_at(said.get("images") or [], f"{path}.images")
    text = text_at(said.get("content") or "", f"{path}.content")
    parts: list[Text | Image] = [Text(text)] if text or not images else []
    for index, image in enumerate(images):
        data = bytes_at(image, f"{path}.images[{index}]")
        mime_type = next((mime for head, mime in _PICTURES.items() if data.startswith(head)), "image/png")
        parts.append(Image(mime_type, data=data))
    return tuple(parts)
