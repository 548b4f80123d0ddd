"""The body of Ollama's `/api/chat` to a `ModelRequest`, the inverse of `encode`.

Older clients send calls and results without ids: a result answers the first call that has none yet.
"""

from itertools import count
from typing import Any, get_args

from bartack.formats.body_values import bytes_at, list_at, object_at, object_of, objects_at, text_at, texts_at
from bartack.formats.ollama_chat.decode import THINKING
from bartack.formats.ollama_chat.encode import OPTIONS
from bartack.formats.settings import WORDS, labelled
from bartack.formats.tools import read_function
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

Json = dict[str, Any]


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    remaining = {key: value for key, value in object_at(body, "$").items() if value is not None and key != "stream"}
    model = text_at(remaining.pop("model", None) or model_id or None, "$.model")
    reader = _Reader(Continuation(provider, model, {THINKING: {}}))
    messages = [
        reader.message(object_at(message, f"$.messages[{index}]"), f"$.messages[{index}]")
        for index, message in enumerate(list_at(remaining.pop("messages", None), "$.messages"))
    ]
    tools = tuple(
        read_function(tool, "ollama-chat", path) for tool, path in objects_at(remaining.pop("tools", []), "$.tools")
    )
    settings = _settings(remaining)
    config = ModelConfig(model, extra=labelled("ollama-chat", remaining), **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


def _settings(body: Json) -> Json:
    """Our settings, removed from the body."""
    options = dict(object_of(body, "options"))
    settings: Json = {field: options.pop(name) for field, name in OPTIONS.items() if options.get(name) is not None}
    if settings:
        del body["options"]
        body |= {"options": options} if options else {}
    if "stop_sequences" in settings:
        settings["stop_sequences"] = texts_at(settings["stop_sequences"], "$.options.stop")
    if isinstance(body.get("format"), dict):
        settings["output_schema"] = body.pop("format")
    think = body.get("think")
    if isinstance(think, bool):
        settings["thinking"] = ThinkingConfig(effort=None if body.pop("think") else "none")
    elif isinstance(think, str) and think in WORDS:
        settings["thinking"] = ThinkingConfig(effort=WORDS[body.pop("think")])
    return settings


class _Reader:
    """Reads messages in order."""

    def __init__(self, origin: Continuation) -> None:
        self._origin = origin
        self._unanswered: list[str] = []
        self._made = count(1)

    def message(self, message: Json, path: str) -> Message:
        role: Role = message.get("role")  # type: ignore[assignment]  # checked below
        if role not in get_args(Role):
            raise PartValidationError(f"unknown role {role!r}", path=f"{path}.role")
        parts: list[Part] = []
        if message.get("thinking"):
            parts.append(Thinking(text_at(message["thinking"], f"{path}.thinking"), continuation=self._origin))
        calls = [
            self._call(call, f"{path}.tool_calls[{index}]")
            for index, call in enumerate(list_at(message.get("tool_calls") or [], f"{path}.tool_calls"))
        ]
        images = [
            Image("image/png", data=bytes_at(image, f"{path}.images[{index}]"))
            for index, image in enumerate(list_at(message.get("images") or [], f"{path}.images"))
        ]
        text = text_at(message.get("content") or "", f"{path}.content")
        if text or not (parts or calls or images):
            parts.append(Text(text))
        if role == "tool":
            return Message("tool", (self._result(message, [*parts, *images], path),))
        try:
            return Message(role, (*parts, *images, *calls))
        except PartValidationError as error:
            raise error.under(path[1:]) from None

    def _call(self, value: Any, path: str) -> ToolCall:
        call = object_at(value, path)
        call_id = text_at(call.get("id") or f"call-{next(self._made)}", f"{path}.id")
        function = object_at(call.get("function"), f"{path}.function")
        self._unanswered.append(call_id)
        arguments = object_at(function.get("arguments") or {}, f"{path}.function.arguments")
        return ToolCall(call_id, text_at(function.get("name"), f"{path}.function.name"), arguments)

    def _result(self, message: Json, parts: list[Any], path: str) -> ToolResult:
        call_id = message.get("tool_call_id") or next(iter(self._unanswered), None)
        call_id = text_at(call_id, f"{path}.tool_call_id")
        if call_id in self._unanswered:
            self._unanswered.remove(call_id)
        is_text = len(parts) == 1 and isinstance(parts[0], Text)
        return ToolResult(call_id, parts[0].text if is_text else tuple(parts))
