"""Reads bodies of Cohere's `/v2/chat` back into requests, for round-trip tests.

It reads what the encoder writes and what the recordings hold, and raises a plain exception on anything else.
"""

import json
from base64 import b64decode
from typing import Any

from bartack.formats.cohere_v2.decode import Keys
from bartack.formats.cohere_v2.encode import CHOICES, SETTINGS
from bartack.nouns.config import ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]


def read_request(body: Json, provider: str) -> ModelRequest:
    rest = {key: value for key, value in body.items() if key != "stream"}
    model = rest.pop("model")
    origin = Continuation(provider, model, {})
    messages = tuple(_message(message, origin) for message in rest.pop("messages"))
    is_strict = rest.pop("strict_tools", None)
    tools = tuple(_tool(tool["function"], is_strict) for tool in rest.pop("tools", []))
    settings = _settings(rest)
    config = ModelConfig(model, extra=rest or None, **settings)
    return ModelRequest(messages=messages, config=config, tools=tools, provider=provider)


def _settings(rest: Json) -> Json:
    """The settings that `ModelConfig` has a field for, removed from `rest`."""
    settings: Json = {field: rest.pop(name) for field, name in SETTINGS.items() if name in rest}
    if "stop_sequences" in settings:
        settings["stop_sequences"] = tuple(settings["stop_sequences"])
    if rest.get("tool_choice") in CHOICES.values():
        wanted = rest.pop("tool_choice")
        settings["tool_choice"] = next(ours for ours, theirs in CHOICES.items() if theirs == wanted)
    if "json_schema" in rest.get("response_format", {}):
        settings["output_schema"] = rest.pop("response_format")["json_schema"]
    if "thinking" in rest:
        thinking = rest.pop("thinking")
        effort: Any = "none" if thinking["type"] == "disabled" else None
        settings["thinking"] = ThinkingConfig(effort=effort, budget_tokens=thinking.get("token_budget"))
    return settings


def _tool(function: Json, is_strict: bool | None) -> ToolSpec:
    more = {key: value for key, value in function.items() if key not in ("name", "description", "parameters")}
    return ToolSpec(
        function["name"],
        function.get("parameters", {}),
        description=function.get("description"),
        strict=is_strict,
        extra={"cohere-v2": more} if more else None,
    )


def _message(message: Json, origin: Continuation) -> Message:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts = [_part(block, origin) for block in blocks]
    if message["role"] == "tool":
        return Message("tool", (ToolResult(message["tool_call_id"], _result(parts)),))
    if "tool_plan" in message:
        parts.insert(0, Thinking(message["tool_plan"], continuation=_with(origin, {Keys.ORIGIN: Keys.TOOL_PLAN})))
    if "citations" in message:
        first = next(index for index, part in enumerate(parts) if isinstance(part, Text))
        parts[first] = Text(parts[first].text, continuation=_with(origin, {Keys.CITATIONS: message["citations"]}))
    calls = [_call(call) for call in message.get("tool_calls", [])]
    return Message(message["role"], (*parts, *calls))


def _with(origin: Continuation, data: Json) -> Continuation:
    return Continuation(origin.provider, origin.model, data)


def _part(block: Json, origin: Continuation) -> Any:
    match block:
        case {"type": "text", "text": text}:
            return Text(text)
        case {"type": "thinking", "thinking": text}:
            return Thinking(text, continuation=_with(origin, {Keys.ORIGIN: Keys.THINKING}))
        case {"type": "image_url", "image_url": {"url": url}} if url.startswith("data:"):
            mime_type, _, data = url.removeprefix("data:").partition(";base64,")
            return Image(mime_type, data=b64decode(data))
        case {"type": "image_url", "image_url": {"url": url}}:
            return Image("image/*", url=url)
        case _:
            raise AssertionError(f"no part for {block}")


def _result(parts: list[Part]) -> Any:
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else tuple(parts)


def _call(call: Json) -> ToolCall:
    function = call["function"]
    return ToolCall(call["id"], function["name"], json.loads(function["arguments"]))
