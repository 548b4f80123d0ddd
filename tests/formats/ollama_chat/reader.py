"""Reads bodies of Ollama's `/api/chat` back into requests, for round-trip tests.

It reads what the encoder writes and what the recordings hold, and raises a plain exception on anything else.
"""

from base64 import b64decode
from itertools import count
from typing import Any

from bartack.formats.ollama_chat.decode import THINKING
from bartack.formats.ollama_chat.encode import OPTIONS
from bartack.nouns.config import ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]


def read_request(body: Json, provider: str) -> ModelRequest:
    rest = {key: value for key, value in body.items() if key != "stream"}
    model = rest.pop("model")
    reader = _Reader(Continuation(provider, model, {THINKING: {}}))
    messages = tuple(reader.message(message) for message in rest.pop("messages"))
    tools = tuple(_tool(tool["function"]) for tool in rest.get("tools", []))
    if tools:
        del rest["tools"]
    settings = _settings(rest)
    config = ModelConfig(model, extra=rest or None, **settings)
    return ModelRequest(messages=messages, config=config, tools=tools, provider=provider)


def _settings(rest: Json) -> Json:
    """The settings that `ModelConfig` has a field for, removed from `rest`."""
    options = dict(rest.get("options", {}))
    settings: Json = {field: options.pop(name) for field, name in OPTIONS.items() if name in options}
    if settings:
        rest["options"] = options
    if "stop_sequences" in settings:
        settings["stop_sequences"] = tuple(settings["stop_sequences"])
    if isinstance(rest.get("format"), dict):
        settings["output_schema"] = rest.pop("format")
    match rest.get("think"):
        case bool(is_on):
            settings["thinking"] = ThinkingConfig() if is_on else ThinkingConfig(effort="none")
            del rest["think"]
        case ("low" | "medium" | "high" | "max") as effort:
            settings["thinking"] = ThinkingConfig(effort=effort)
            del rest["think"]
    return settings


def _tool(function: Json) -> ToolSpec:
    more = {key: value for key, value in function.items() if key not in ("name", "description", "parameters")}
    return ToolSpec(
        function["name"],
        function["parameters"],
        description=function.get("description"),
        extra={"ollama-chat": more} if more else None,
    )


class _Reader:
    """Reads messages in order: a result without an id answers the first call that has no result yet."""

    def __init__(self, origin: Continuation) -> None:
        self._origin = origin
        self._unanswered: list[str] = []
        self._made = count(1)

    def message(self, message: Json) -> Message:
        parts: list[Part] = []
        if message.get("thinking"):
            parts.append(Thinking(message["thinking"], continuation=self._origin))
        calls = [self._call(call) for call in message.get("tool_calls", [])]
        images = [Image("image/png", data=b64decode(image)) for image in message.get("images", [])]
        if message.get("content") or not (parts or calls or images):
            parts.append(Text(message.get("content", "")))
        if message["role"] != "tool":
            return Message(message["role"], (*parts, *images, *calls))
        return Message("tool", (self._result(message, [*parts, *images]),))

    def _call(self, call: Json) -> ToolCall:
        call_id = call.get("id") or f"call-{next(self._made)}"
        self._unanswered.append(call_id)
        return ToolCall(call_id, call["function"]["name"], call["function"]["arguments"])

    def _result(self, message: Json, parts: list[Any]) -> ToolResult:
        call_id = message.get("tool_call_id") or self._unanswered[0]
        self._unanswered.remove(call_id)
        is_text = len(parts) == 1 and isinstance(parts[0], Text)
        return ToolResult(call_id, parts[0].text if is_text else tuple(parts))
