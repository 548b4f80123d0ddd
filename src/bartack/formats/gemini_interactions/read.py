"""Bodies of Gemini's Interactions API -> requests.

`input` is text, one content, a list of contents, or a list of steps: all but the last are one user message. What has no
place in our words goes along: unknown settings in `extra`, unknown fields of a step in its part's continuation.
"""

from typing import Any

from msgspec.structs import replace

from bartack.formats.body_values import list_at, object_at, text_at
from bartack.formats.gemini_generate.encode_values import CallIds, bytes_at, items_at
from bartack.formats.gemini_generate.thinking import EFFORTS
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

_CONTENTS = ("text", "image", "audio", "video", "document")
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_NUMBERS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "max_output_tokens": ("max_tokens", (int,)),
    "seed": ("seed", (int,)),
}


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; raises `PartValidationError` where it is none."""
    body = dict(object_at(body, "$"))
    model_id = model_id or str(body.get("model") or body.get("agent") or "")
    body.pop("model", None)
    body.pop("stream", None)
    history = _History(provider, model_id)
    system = body.pop("system_instruction", None)
    if system is not None:
        history.messages.append(Message("system", (Text(text_at(system, "$.system_instruction")),)))
    history.read_input(body.pop("input", None))
    tools = tuple(
        _read_tool(object_at(tool, f"$.tools[{index}]"), f"$.tools[{index}]", provider, model_id)
        for index, tool in enumerate(list_at(body.pop("tools", []), "$.tools"))
    )
    known = _read_settings(body)
    config = ModelConfig(model_id, **known, extra=body or None)
    return ModelRequest(messages=tuple(history.messages), config=config, tools=tools, provider=provider)


class _History:
    """The messages, as the steps come."""

    def __init__(self, provider: str, model_id: str) -> None:
        self.messages: list[Message] = []
        self._provider = provider
        self._model_id = model_id
        self._ids = CallIds()
        self._calls: dict[str, str] = {}  # Gemini's id of a call -> ours

    def read_input(self, value: Any) -> None:
        if isinstance(value, str):
            self._say("user", [Text(value)])
            return
        items = [
            (object_at(item, f"$.input[{i}]"), f"$.input[{i}]") for i, item in enumerate(items_at(value, "$.input"))
        ]
        if all(item.get("type") in _CONTENTS for item, _ in items):
            self._say("user", [self._content(item, path) for item, path in items])
            return
        for item, path in items:
            self._read_step(item, path)

    def _say(self, role: Role, parts: list[Any]) -> None:
        """Steps of one side in a row are one message; a user's are not."""
        if not parts:
            return
        if role != "user" and self.messages and self.messages[-1].role == role:
            last = self.messages[-1]
            self.messages[-1] = replace(last, parts=(*last.parts, *parts))
        else:
            self.messages.append(Message(role, tuple(parts)))

    def _continuation(self, data: dict[str, Any]) -> Continuation | None:
        return Continuation(self._provider, self._model_id, data) if data else None

    def _read_step(self, step: dict[str, Any], path: str) -> None:
        kind = text_at(step.get("type"), f"{path}.type")
        if kind == "user_input":
            self._say("user", self._contents(step, path))
        elif kind == "model_output":
            self._say("assistant", [self._output(part, item) for part, item in self._pairs(step, path)])
        elif kind == "thought":
            self._say("assistant", [self._thought(step, path)])
        elif kind == "function_call":
            self._say("assistant", [self._call(step, path)])
        elif kind == "function_result":
            self._say("tool", [self._result(step, path)])
        elif kind.endswith("_call"):
            self._say("assistant", [self._provider_call(step, kind)])
        elif kind.endswith("_result"):
            self._read_provider_result(step, kind)
        else:
            raise PartValidationError(f"{kind!r} is not a step", path=f"{path}.type")

    # -- contents

    def _pairs(self, step: dict[str, Any], path: str) -> list[tuple[Text | Image | FileRef, dict[str, Any]]]:
        items = items_at(step.get("content", []), f"{path}.content")
        return [(self._content(item, f"{path}.content[{place}]"), item) for place, item in enumerate(items)]

    def _contents(self, step: dict[str, Any], path: str) -> list[Text | Image | FileRef]:
        return [part for part, _ in self._pairs(step, path)]

    def _content(self, value: Any, path: str) -> Text | Image | FileRef:
        item = object_at(value, path)
        kind, mime_type = item.get("type"), item.get("mime_type")
        known = ("type", "text", "mime_type", "data", "uri")
        continuation = self._continuation({key: value for key, value in item.items() if key not in known})
        if kind == "text":
            return Text(text_at(item.get("text"), f"{path}.text"), continuation=continuation)
        if kind not in _CONTENTS:
            raise PartValidationError(f"{kind!r} is not a content", path=f"{path}.type")
        if "data" in item:
            content: dict[str, Any] = {"data": bytes_at(item["data"], f"{path}.data")}
        else:
            content = {"url": text_at(item.get("uri"), f"{path}.uri")}
        if kind == "image":
            return Image(mime_type or "image/*", **content, continuation=continuation)
        name = content.get("url", kind)
        if kind != "document":
            mime_type = mime_type or f"{kind}/*"
        return FileRef(name, mime_type=mime_type, **content, continuation=continuation)

    def _output(self, part: Text | Image | FileRef, item: dict[str, Any]) -> Text | ToolCall:
        if isinstance(part, Text):
            return part
        call_id = self._ids.new()
        kept = {key: value for key, value in item.items() if key != "data"}
        return ToolCall(
            call_id,
            f"{item['type']}_output",
            {},
            executed_by="provider",
            result=ToolResult(call_id, (part,)),
            continuation=self._continuation({"content": kept}),
        )

    # -- steps of the model, and answers to them

    def _thought(self, step: dict[str, Any], path: str) -> Thinking:
        summary = items_at(step.get("summary", []), f"{path}.summary")
        texts = [item["text"] for item in summary if isinstance(item, dict) and isinstance(item.get("text"), str)]
        data = {key: value for key, value in step.items() if key != "summary"}
        if len(summary) > 1 or len(texts) != len(summary):
            data["summary"] = summary  # one text alone would not say how it was divided
        return Thinking("".join(texts), continuation=self._continuation(data))

    def _call(self, step: dict[str, Any], path: str) -> ToolCall:
        given = text_at(step.get("id"), f"{path}.id")
        call_id = self._ids.new(given)
        data = {key: value for key, value in step.items() if key not in ("type", "id", "name", "arguments")}
        self._calls[given] = call_id
        if call_id != given:
            data["callId"] = given
        arguments = object_at(step.get("arguments", {}), f"{path}.arguments")
        name = text_at(step.get("name"), f"{path}.name")
        return ToolCall(call_id, name, arguments, continuation=self._continuation(data))

    def _result(self, step: dict[str, Any], path: str) -> ToolResult:
        given = text_at(step.get("call_id"), f"{path}.call_id")
        known = ("type", "call_id", "result", "is_error", *(("name",) if given in self._calls else ()))
        data = {key: value for key, value in step.items() if key not in known}
        result = step.get("result")
        content: ToolContent
        if isinstance(result, str | dict):
            content = result
        else:
            items = list_at(result, f"{path}.result")
            content = tuple(self._content(item, f"{path}.result[{place}]") for place, item in enumerate(items))
        is_error = step.get("is_error") is True
        call_id = self._calls.get(given, given)
        return ToolResult(call_id, content, is_error=is_error, continuation=self._continuation(data))

    def _provider_call(self, step: dict[str, Any], kind: str) -> ToolCall:
        arguments = step.get("arguments")
        return ToolCall(
            self._ids.new(step.get("id")),
            str(step.get("name") or kind.removesuffix("_call")),
            arguments if isinstance(arguments, dict) else {},
            executed_by="provider",
            continuation=self._continuation({"step": step}),
        )

    def _read_provider_result(self, step: dict[str, Any], kind: str) -> None:
        """Put the result into its call; one without a call is kept as a call of its own."""
        call_id = step.get("call_id")
        last = self.messages[-1] if self.messages and self.messages[-1].role == "assistant" else None
        parts: list[Part] = [] if last is None else list(last.parts)
        waiting = (place for place, part in enumerate(parts) if _awaits(part, call_id))
        place = next(waiting, None)
        if last is None or place is None:
            name = str(step.get("name") or kind.removesuffix("_result"))
            call = ToolCall(self._ids.new(call_id), name, {}, executed_by="provider")
            self._say("assistant", [self._answered(call, step)])
            return
        found = parts[place]
        assert isinstance(found, ToolCall)
        parts[place] = self._answered(found, step)
        self.messages[-1] = replace(last, parts=tuple(parts))

    def _answered(self, call: ToolCall, step: dict[str, Any]) -> ToolCall:
        result = step.get("result")
        content: ToolContent = result if isinstance(result, str | dict) else {"result": result}
        data = {} if call.continuation is None else call.continuation.data
        return replace(
            call,
            result=ToolResult(call.tool_call_id, content, is_error=step.get("is_error") is True),
            continuation=self._continuation({**data, "resultStep": step}),
        )


def _awaits(part: Part, call_id: Any) -> bool:
    if not isinstance(part, ToolCall) or part.result is not None or part.continuation is None:
        return False
    sent = part.continuation.data.get("step")
    return isinstance(sent, dict) and sent.get("id") == call_id


# -- tools and settings


def _read_tool(tool: dict[str, Any], path: str, provider: str, model_id: str) -> ToolSpec:
    kind = text_at(tool.get("type"), f"{path}.type")
    if kind != "function":
        return ToolSpec(str(tool.get("name") or kind), {}, native=Continuation(provider, model_id, tool))
    more = {key: value for key, value in tool.items() if key not in ("type", "name", "description", "parameters")}
    return ToolSpec(
        text_at(tool.get("name"), f"{path}.name"),
        object_at(tool.get("parameters", {}), f"{path}.parameters"),
        description=tool.get("description"),
        extra=more or None,
    )


def _read_settings(body: dict[str, Any]) -> dict[str, Any]:
    """Our settings, taken out of the body."""
    settings = dict(object_at(body.pop("generation_config", {}), "$.generation_config"))
    known: dict[str, Any] = {
        ours: settings.pop(theirs) for theirs, (ours, types) in _NUMBERS.items() if type(settings.get(theirs)) in types
    }
    stops = settings.get("stop_sequences")
    if isinstance(stops, list) and all(isinstance(stop, str) for stop in stops):
        known["stop_sequences"] = tuple(settings.pop("stop_sequences"))
    level = settings.get("thinking_level")
    if settings.get("thinking_summaries") == "auto" and (level is None or level in EFFORTS):
        known["thinking"] = ThinkingConfig(effort=level)
        settings.pop("thinking_level", None)
        del settings["thinking_summaries"]
    choice = _read_choice(settings.get("tool_choice"))
    if choice is not None:
        known["tool_choice"] = choice
        del settings["tool_choice"]
    match body.get("response_format"):
        case {"type": "text", "mime_type": "application/json", "schema": dict(schema), **more} if not more:
            known["output_schema"] = schema
            del body["response_format"]
        case _:
            pass
    if settings:
        body["generation_config"] = settings
    return known


def _read_choice(wire: Any) -> ToolChoice | None:
    match wire:
        case "auto" | "any" | "none":
            return _CHOICES[wire]
        case {"allowed_tools": {"mode": "any", "tools": [str(name)]}}:
            return SpecificTool(name)
        case _:
            return None
