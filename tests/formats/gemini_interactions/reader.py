"""Reads bodies of the Interactions API back into requests, for round-trip tests.

`input` is a string, a content, a list of contents (all three are one user message) or a list of steps. It reads what
the encoder writes and what the recordings hold, and raises a plain exception on anything else.
"""

from base64 import b64decode
from itertools import count
from typing import Any

from msgspec.structs import replace

from bartack.formats.emitter import CALL_ID
from bartack.formats.gemini_interactions.decode import Keys
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest

Json = dict[str, Any]

_CONTENTS = ("text", "image", "audio", "video", "document")
_SETTINGS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens", "seed": "seed"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_request(body: Json, provider: str) -> ModelRequest:
    rest = {key: value for key, value in body.items() if key not in ("model", "stream")}
    model_id = body.get("model") or body["agent"]
    history = _History(provider, model_id)
    if "system_instruction" in rest:
        history.messages.append(Message("system", (Text(rest.pop("system_instruction")),)))
    history.read_input(rest.pop("input"))
    tools = tuple(_tool(tool, Continuation(provider, model_id, tool)) for tool in rest.pop("tools", []))
    settings = _settings(rest)
    config = ModelConfig(model_id, **settings, extra=rest or None)
    return ModelRequest(messages=tuple(history.messages), config=config, tools=tools, provider=provider)


def _tool(tool: Json, native: Continuation) -> ToolSpec:
    if tool["type"] != "function":
        return ToolSpec(str(tool.get("name", tool["type"])), {}, native=native)
    return ToolSpec(tool["name"], tool.get("parameters", {}), description=tool.get("description"))


def _settings(rest: Json) -> Json:
    """The settings that `ModelConfig` has a field for, removed from `rest`."""
    given = dict(rest.pop("generation_config", {}))
    settings: Json = {ours: given.pop(theirs) for theirs, ours in _SETTINGS.items() if theirs in given}
    if "stop_sequences" in given:
        settings["stop_sequences"] = tuple(given.pop("stop_sequences"))
    if given.pop("thinking_summaries", None) == "auto":
        settings["thinking"] = ThinkingConfig(effort=given.pop("thinking_level", None))
    match given.get("tool_choice"):
        case ("auto" | "any" | "none") as choice:
            settings["tool_choice"] = _CHOICES[choice]
            del given["tool_choice"]
        case {"allowed_tools": {"mode": "any", "tools": [str(name)]}}:
            settings["tool_choice"] = SpecificTool(name)
            del given["tool_choice"]
    if "schema" in rest.get("response_format", {}):
        settings["output_schema"] = rest.pop("response_format")["schema"]
    if given:
        rest["generation_config"] = given
    return settings


class _History:
    """The messages read so far."""

    def __init__(self, provider: str, model_id: str) -> None:
        self.messages: list[Message] = []
        self._provider = provider
        self._model_id = model_id
        self._made_ids = count(1)
        self._used_ids: set[str] = set()
        self._calls: dict[str, str] = {}  # Gemini's id of a call -> ours

    def read_input(self, value: Any) -> None:
        items = [{"type": "text", "text": value}] if isinstance(value, str) else value
        items = [items] if isinstance(items, dict) else items
        if items[0]["type"] in _CONTENTS:
            self._add("user", *(self._content(item) for item in items))
            return
        for step in items:
            self._read_step(step)

    def _add(self, role: Role, *parts: Part) -> None:
        """Consecutive steps of the assistant, or of tools, are one message."""
        if role != "user" and self.messages and self.messages[-1].role == role:
            last = self.messages[-1]
            self.messages[-1] = replace(last, parts=(*last.parts, *parts))
        else:
            self.messages.append(Message(role, parts))

    def _continuation(self, data: Json) -> Continuation | None:
        return Continuation(self._provider, self._model_id, data) if data else None

    def _new_id(self, given: str | None = None) -> str:
        call_id = given if given and given not in self._used_ids else f"call-{next(self._made_ids)}"
        self._used_ids.add(call_id)
        return call_id

    def _read_step(self, step: Json) -> None:
        kind = step["type"]
        if kind == "user_input":
            self._add("user", *(self._content(item) for item in step["content"]))
        elif kind == "model_output":
            self._add("assistant", *(self._output(item) for item in step["content"]))
        elif kind == "thought":
            texts = [item["text"] for item in step.get("summary", [])]
            data = {key: value for key, value in step.items() if key != "summary" or len(texts) > 1}
            self._add("assistant", Thinking("".join(texts), continuation=self._continuation(data)))
        elif kind == "function_call":
            self._add("assistant", self._call(step))
        elif kind == "function_result":
            self._add("tool", self._result(step))
        elif kind.endswith("_call"):
            self._add("assistant", self._provider_call(step, kind.removesuffix("_call"), {Keys.STEP: step}))
        elif kind.endswith("_result"):
            self._read_provider_result(step, kind.removesuffix("_result"))
        else:
            raise AssertionError(f"no part for {step}")

    def _content(self, item: Json) -> Any:
        known = ("type", "text", "mime_type", "data", "uri")
        continuation = self._continuation({key: value for key, value in item.items() if key not in known})
        kind = item["type"]
        if kind == "text":
            return Text(item["text"], continuation=continuation)
        content = {"data": b64decode(item["data"])} if "data" in item else {"url": item["uri"]}
        mime_type = item.get("mime_type")
        if kind == "image":
            return Image(mime_type or "image/*", **content, continuation=continuation)
        mime_type = mime_type if kind == "document" else mime_type or f"{kind}/*"
        return FileRef(str(item.get("uri", kind)), mime_type=mime_type, **content, continuation=continuation)

    def _output(self, item: Json) -> Text | ToolCall:
        part = self._content(item)
        if isinstance(part, Text):
            return part
        call_id = self._new_id()
        kept = {key: value for key, value in item.items() if key != "data"}
        return ToolCall(
            call_id,
            f"{item['type']}_output",
            {},
            executed_by="provider",
            result=ToolResult(call_id, (part,)),
            continuation=self._continuation({Keys.CONTENT: kept}),
        )

    def _call(self, step: Json) -> ToolCall:
        given = step["id"]
        call_id = self._calls[given] = self._new_id(given)
        data = {key: value for key, value in step.items() if key not in ("type", "id", "name", "arguments")}
        if call_id != given:
            data[CALL_ID] = given
        return ToolCall(call_id, step["name"], step["arguments"], continuation=self._continuation(data))

    def _result(self, step: Json) -> ToolResult:
        result = step["result"]
        content: ToolContent = tuple(self._content(item) for item in result) if isinstance(result, list) else result
        return ToolResult(self._calls[step["call_id"]], content, is_error="is_error" in step)

    def _provider_call(self, step: Json, name: str, data: Json) -> ToolCall:
        call_id = self._new_id(step.get("id") or step.get("call_id"))
        arguments = step.get("arguments", {})
        return ToolCall(call_id, name, arguments, executed_by="provider", continuation=self._continuation(data))

    def _read_provider_result(self, step: Json, name: str) -> None:
        """Add the result to its call, or keep it as a call of its own if there is none."""
        parts = list(self.messages[-1].parts) if self.messages else []
        for index, part in enumerate(parts):
            data = part.continuation.data if part.continuation else {}
            if isinstance(part, ToolCall) and data.get(Keys.STEP, {}).get("id") == step["call_id"]:
                parts[index] = replace(part, continuation=self._continuation({**data, Keys.RESULT_STEP: step}))
                self.messages[-1] = replace(self.messages[-1], parts=tuple(parts))
                return
        self._add("assistant", self._provider_call(step, name, {Keys.RESULT_STEP: step}))
