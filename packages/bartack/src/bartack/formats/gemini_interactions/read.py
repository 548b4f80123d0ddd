"""The body of Gemini's Interactions API to a `ModelRequest`, the inverse of `encode`.

`input` is a text, a content, a list of contents (all three are one message of the user) or a list of steps. Steps that
Google executed are kept whole, unknown fields of other steps and contents as continuation data.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from bartack.formats.body_values import (
    HistoryReader,
    beyond,
    bytes_at,
    fields_at,
    object_at,
    object_of,
    objects_at,
    text_at,
    text_of,
)
from bartack.formats.emitter import CALL_ID
from bartack.formats.gemini import LEVELS, URL_SAFE, media_tool
from bartack.formats.gemini_interactions.decode import MEDIA, result_content
from bartack.formats.gemini_interactions.encode import CHOICES, NAME, SETTINGS, thinking_fields
from bartack.formats.settings import labelled, take_settings, with_exact
from bartack.formats.tools import read_spec
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

Json = dict[str, Any]


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; an agent of Google's stands in place of the model.

    Raises `PartValidationError` if it is not a body of this format.
    """
    remaining = beyond(fields_at(body, "$"), "stream")
    model_id = text_at(remaining.pop("model", None) or model_id or remaining.get("agent"), "$.model")
    history = _History(provider, model_id)
    if "system_instruction" in remaining:
        instruction = text_at(remaining.pop("system_instruction"), "$.system_instruction")
        history.add("system", Text(instruction))
    history.read_input(remaining.pop("input", None))
    declared = objects_at(remaining.pop("tools", []), "$.tools")
    tools = tuple(_tool(tool, path, provider, model_id) for tool, path in declared)
    settings = _settings(remaining, model_id)
    config = ModelConfig(model_id, extra=labelled(NAME, remaining), **settings)
    messages = tuple(Message(role, tuple(parts)) for role, parts in history.turns)
    return ModelRequest(messages=messages, config=config, tools=tools, provider=provider)


def _tool(tool: Json, path: str, provider: str, model_id: str) -> ToolSpec:
    kind = text_at(tool.get("type"), f"{path}.type")
    if kind != "function":
        return ToolSpec(text_of(tool, "name") or kind, {}, native=Continuation(provider, model_id, tool))
    return read_spec(tool, NAME, path, tool.get("parameters") or {}, "parameters", "type")


def _settings(body: Json, model_id: str) -> Json:
    """Our settings, removed from the body."""
    config = dict(object_at(body.pop("generation_config", {}), "$.generation_config"))
    settings = take_settings(config, SETTINGS, "$.generation_config")
    settings |= _thinking(config, model_id)
    choice = config.get("tool_choice")
    word = next((ours for ours, theirs in CHOICES.items() if theirs == choice), None)
    if word is not None:
        settings["tool_choice"] = word
        del config["tool_choice"]
    match choice:
        case {"allowed_tools": {"mode": "any", "tools": [str(name)], **more_options}, **more} if not (
            more_options or more
        ):
            settings["tool_choice"] = SpecificTool(name)
            del config["tool_choice"]
    if isinstance(object_of(body, "response_format").get("schema"), dict):
        settings["output_schema"] = body.pop("response_format")["schema"]
    if config:
        body["generation_config"] = config
    return settings


def _thinking(config: Json, model_id: str) -> Json:
    """The thinking that is requested, removed from `generation_config`; its exact form if we would write another."""
    exact: Json = {name: config[name] for name in ("thinking_level", "thinking_summaries") if name in config}
    match exact:
        case {"thinking_level": str(level)} if level in LEVELS:
            thinking = ThinkingConfig(effort=level)  # type: ignore[arg-type]  # levels are names of efforts
        case {"thinking_summaries": "auto", **more} if not more:
            thinking = ThinkingConfig()
        case _:
            return {}
    for name in exact:
        del config[name]
    is_same = thinking_fields(thinking, model_id) == exact
    return {"thinking": thinking if is_same else with_exact(thinking, NAME, exact)}


class _History(HistoryReader):
    """The turns read so far, each a role with its parts."""

    def __init__(self, provider: str, model_id: str) -> None:
        super().__init__(provider, model_id)
        self.turns: list[tuple[Role, list[Part]]] = []
        self._made_ids = count(1)
        self._used_ids: set[str] = set()
        self._calls: dict[str, str] = {}  # Gemini's id of a call -> ours
        self._running: dict[str, int] = {}  # a provider's call without a result: its place in the last turn

    def read_input(self, value: Any) -> None:
        if isinstance(value, str):
            self.add("user", Text(value))
            return
        items = list(objects_at([value] if isinstance(value, dict) else value, "$.input"))
        if items and text_of(items[0][0], "type") in ("text", *MEDIA):
            self.add("user", *(self._content(item, path) for item, path in items))
            return
        for step, path in items:
            self._read_step(step, path)

    def add(self, role: Role, *parts: Part) -> None:
        """Add the parts of a step; consecutive steps of the assistant, or of tools, are one message."""
        if not parts:
            return
        if role == "user" or not self.turns or self.turns[-1][0] != role:
            self.turns.append((role, []))
            self._running.clear()
        self.turns[-1][1].extend(parts)

    def _new_id(self, reported: str = "") -> str:
        """The given id, or a new one if there is none or it is already used."""
        call_id = reported
        while not call_id or call_id in self._used_ids:
            call_id = f"call-{next(self._made_ids)}"
        self._used_ids.add(call_id)
        return call_id

    def _read_step(self, step: Json, path: str) -> None:
        kind = text_at(step.get("type"), f"{path}.type")
        if kind == "user_input":
            self.add("user", *(self._content(item, where) for item, where in _items(step, "content", path)))
        elif kind == "model_output":
            self.add("assistant", *(self._output(item, where) for item, where in _items(step, "content", path)))
        elif kind == "thought":
            self.add("assistant", self._thought(step, path))
        elif kind == "function_call":
            self.add("assistant", self._call(step, path))
        elif kind == "function_result":
            self.add("tool", self._result(step, path))
        elif kind.endswith("_call"):
            self._read_provider_call(step, kind.removesuffix("_call"), path)
        elif kind.endswith("_result"):
            self._read_provider_result(step, kind.removesuffix("_result"))
        else:
            raise PartValidationError(f"unknown step {kind!r}", path=f"{path}.type")

    # -- contents

    def _content(self, item: Json, path: str) -> Text | Image | FileRef:
        continuation = self.kept(beyond(item, "type", "text", "mime_type", "data", "uri"))
        kind = text_at(item.get("type"), f"{path}.type")
        if kind == "text":
            return Text(text_at(item.get("text"), f"{path}.text"), continuation=continuation)
        if kind not in MEDIA:
            raise PartValidationError(f"unknown content {kind!r}", path=f"{path}.type")
        if item.get("data") is not None:
            base64 = text_at(item["data"], f"{path}.data").translate(URL_SAFE)
            content: Json = {"data": bytes_at(base64, f"{path}.data")}
        else:
            content = {"url": text_at(item.get("uri"), f"{path}.uri")}
        mime_type = text_at(item.get("mime_type") or ("" if kind == "document" else f"{kind}/*"), f"{path}.mime_type")
        if kind == "image":
            return Image(mime_type, **content, continuation=continuation)
        name: str = content.get("url", kind)
        return FileRef(name, mime_type=mime_type or None, **content, continuation=continuation)

    def _output(self, item: Json, path: str) -> Text | ToolCall:
        part = self._content(item, path)
        if isinstance(part, Text):
            return part
        call_id = self._new_id()
        return ToolCall(
            call_id,
            media_tool(item["type"]),
            {},
            executed_by="provider",
            result=ToolResult(call_id, (part,)),
            continuation=self.kept({"content": beyond(item, "data")}),
        )

    def _thought(self, step: Json, path: str) -> Thinking:
        summary = list(_items(step, "summary", path))
        texts = [text_at(item.get("text"), f"{where}.text") for item, where in summary if item.get("type") == "text"]
        is_plain = [item for item, _ in summary] in ([], [{"type": "text", "text": "".join(texts)}])
        data = {key: value for key, value in step.items() if key != "summary" or not is_plain}
        return Thinking("".join(texts), continuation=self.kept(data))

    # -- calls

    def _call(self, step: Json, path: str) -> ToolCall:
        reported_id = text_at(step.get("id"), f"{path}.id")
        call_id = self._calls[reported_id] = self._new_id(reported_id)
        data = beyond(step, "type", "id", "name", "arguments")
        if call_id != reported_id:
            data[CALL_ID] = reported_id
        return ToolCall(
            call_id,
            text_at(step.get("name"), f"{path}.name"),
            object_at(step.get("arguments") or {}, f"{path}.arguments"),
            continuation=self.kept(data),
        )

    def _result(self, step: Json, path: str) -> ToolResult:
        data = beyond(step, "type", "call_id", "name", "result", "is_error")
        value = step.get("result", "")
        content: ToolContent
        if isinstance(value, list):
            content = tuple(self._content(item, where) for item, where in _items(step, "result", path))
        elif isinstance(value, str | dict):
            content = value
        else:
            content = {"result": value}
            data["result"] = value
        reported_id = text_at(step.get("call_id"), f"{path}.call_id")
        return ToolResult(
            self._calls.get(reported_id, reported_id),
            content,
            is_error=step.get("is_error") is True,
            continuation=self.kept(data),
        )

    def _read_provider_call(self, step: Json, name: str, path: str) -> None:
        reported_id = text_of(step, "id")
        call = ToolCall(
            self._new_id(reported_id),
            text_of(step, "name") or name,
            object_at(step.get("arguments") or {}, f"{path}.arguments"),
            executed_by="provider",
            continuation=self.kept({"step": step}),
        )
        self.add("assistant", call)
        self._running[reported_id] = len(self.turns[-1][1]) - 1

    def _read_provider_result(self, step: Json, name: str) -> None:
        """Add the result to its call, or keep it as a call of its own if there is none."""
        reported_id = text_of(step, "call_id")
        place = self._running.pop(reported_id, None)
        if place is None:
            tool_name = text_of(step, "name") or name
            self.add("assistant", ToolCall(self._new_id(reported_id), tool_name, {}, executed_by="provider"))
            place = len(self.turns[-1][1]) - 1
        parts = self.turns[-1][1]
        call = parts[place]
        assert isinstance(call, ToolCall)
        is_error = step.get("is_error") is True
        result = ToolResult(call.tool_call_id, result_content(step.get("result")), is_error=is_error)
        parts[place] = self.kept_on(replace(call, result=result), {"resultStep": step})


def _items(step: Json, key: str, path: str) -> Iterator[tuple[Json, str]]:
    """The objects in a list of a step, each with its path; a missing list is empty."""
    return objects_at(step.get(key) or [], f"{path}.{key}")
