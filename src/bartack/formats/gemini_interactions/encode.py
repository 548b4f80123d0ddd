"""Requests -> bodies of Gemini's Interactions API; `read_request` reads them back.

The whole history is sent as a list of steps, which needs nothing stored at Google: `extra` may say ``store: false``, or
name a `previous_interaction_id`. Thoughts go back with their signatures, Google's own calls with their results, as the
steps they came as.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import with_extra
from bartack.formats.emitter import CALL_ID
from bartack.formats.gemini_generate.encode_values import is_taken, own_data
from bartack.formats.gemini_generate.thinking import thinking_level
from bartack.formats.gemini_interactions.decode import CONTENT, RESULT_STEP, STEP
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, named
from bartack.nouns.config import ModelConfig, SpecificTool, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["encode"]

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_BESIDE = ("annotations", "resolution", "channels", "sample_rate", "processing")


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The body for this request."""
    config = request.config
    leading = 0
    while leading < len(request.messages) and request.messages[leading].role == "system":
        leading += 1
    steps = _Steps(losses)
    for index, message in enumerate(request.messages[leading:], start=leading):
        steps.add(f"messages[{index}]", message)
    body: dict[str, Any] = {} if "agent" in (config.extra or {}) else {"model": config.model_id}
    body |= {"input": steps.finish(), "stream": True}
    system = [text for message in request.messages[:leading] for text in _texts(message.parts)]
    if system:
        body["system_instruction"] = "\n\n".join(system)
    tools = [tool for index, spec in enumerate(request.tools) for tool in _tool(f"tools[{index}]", spec, losses)]
    if tools:
        body["tools"] = tools
    settings = _generation_config(config, request.tools, losses)
    if settings:
        body["generation_config"] = settings
    if config.output_schema is not None:
        body["response_format"] = {"type": "text", "mime_type": "application/json", "schema": config.output_schema}
    return with_extra(body, config.extra)


def _texts(parts: tuple[Part, ...]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text) and part.text and not part.ignored]


class _Steps:
    """The steps, as the messages come."""

    def __init__(self, losses: Losses) -> None:
        self.found: list[dict[str, Any]] = []
        self._losses = losses
        self._calls: dict[str, tuple[str, str]] = {}  # our id of a call -> Gemini's id, its name
        self._moved: list[dict[str, Any]] = []  # media that follow the results

    def finish(self) -> list[dict[str, Any]]:
        if self._moved:
            self.found.append({"type": "user_input", "content": self._moved})
            self._moved = []
        return self.found

    def add(self, where: str, message: Message) -> None:
        if message.role != "tool":
            self.finish()
        if message.role == "system":
            self._losses.add(where, "its role", "Gemini has one system instruction; sent as the user's text")
        inputs: list[dict[str, Any]] = []
        for place, part in enumerate(message.parts):
            here = f"{where}.parts[{place}]"
            match part:
                case Text() | Image() | FileRef():
                    content = self._content(here, part)
                    if message.role == "assistant":
                        self._write(content)
                    else:
                        inputs += content
                case Thinking():
                    self._add_thought(here, part)
                case ToolCall(executed_by="provider"):
                    self._add_provider_call(here, part)
                case ToolCall():
                    self._add_call(here, part)
                case ToolResult():
                    self._add_result(here, part)
                case _:
                    assert_never(part)
        if inputs:
            self.found.append({"type": "user_input", "content": inputs})

    def _content(self, where: str, part: ContentPart) -> list[dict[str, Any]]:
        if isinstance(part, Text) and part.ignored:
            return []
        data = self._losses.continuation(where, part.continuation)
        if isinstance(part, Text):
            wire: dict[str, Any] = {"type": "text", "text": part.text}
            if not part.text:
                return []
        elif is_taken(part) or (part.data and media_type(part).endswith("/*")):  # `type` says what it is
            wire = _media(part)
        else:
            text = named(part, where, "Gemini reads no files of this type, or from this place", self._losses)
            return [{"type": "text", "text": text}]
        return [{**wire, **{key: data[key] for key in _BESIDE if key in data}}]

    # -- what the model said

    def _write(self, content: list[dict[str, Any]]) -> None:
        """Text and pictures one after the other are one step."""
        if not content:
            return
        if self.found and self.found[-1]["type"] == "model_output":
            self.found[-1]["content"] += content
        else:
            self.found.append({"type": "model_output", "content": content})

    def _add_thought(self, where: str, part: Thinking) -> None:
        if part.ignored:
            return
        data = self._losses.thinking(where, part)
        if data is None:
            return
        step: dict[str, Any] = {"type": "thought"}
        if part.text:
            step["summary"] = [{"type": "text", "text": part.text}]
        self.found.append({**step, **data})

    def _add_call(self, where: str, call: ToolCall) -> None:
        data = dict(self._losses.continuation(where, call.continuation))
        call_id = data.pop(CALL_ID, call.tool_call_id)
        self._calls[call.tool_call_id] = (call_id, call.tool_name)
        if call.raw_args_text is not None:
            self._losses.add(where, "arguments that do not parse", "Gemini takes an object; an empty one is sent")
        step = {"type": "function_call", "id": call_id, "name": call.tool_name, "arguments": call.arguments}
        self.found.append({**step, **data})

    def _add_provider_call(self, where: str, call: ToolCall) -> None:
        data = own_data(call, self._losses.provider)
        media = _media_of(call.result) if CONTENT in data else []
        steps = [data[key] for key in (STEP, RESULT_STEP) if key in data]
        if not steps and not media:
            why = "only the provider that executed it takes it back"
            self._losses.add(where, f"the call of {call.tool_name} and its result", why)
        self.found += steps
        self._write([{**data[CONTENT], **_media(one)} for one in media])

    # -- what tools answered

    def _add_result(self, where: str, result: ToolResult) -> None:
        data = self._losses.continuation(where, result.continuation)
        call_id, name = self._calls.get(result.tool_call_id, (result.tool_call_id, ""))
        step: dict[str, Any] = {"type": "function_result", "call_id": call_id}
        if name:
            step["name"] = name
        if isinstance(result.content, tuple):
            items = [
                item
                for place, part in enumerate(result.content)
                for item in self._content(f"{where}.content[{place}]", part)
            ]
            step["result"] = [item for item in items if item["type"] in ("text", "image")] or ""
            moved = [item for item in items if item["type"] not in ("text", "image")]
            if moved:
                self._moved += [{"type": "text", "text": f"From the result of {name or call_id}:"}, *moved]
        else:
            step["result"] = result.content
        if result.is_error:
            step["is_error"] = True
        self.found.append({**step, **data})


def _media_of(result: ToolResult | None) -> list[Image | FileRef]:
    content = () if result is None or not isinstance(result.content, tuple) else result.content
    return [part for part in content if isinstance(part, Image | FileRef)]


def _media(part: Image | FileRef) -> dict[str, Any]:
    mime_type = media_type(part)
    kind = mime_type.partition("/")[0]
    wire: dict[str, Any] = {"type": kind if kind in ("image", "audio", "video") else "document"}
    if mime_type and not mime_type.endswith("/*"):
        wire["mime_type"] = mime_type
    return {**wire, **({"uri": part.url} if part.data is None else {"data": b64encode(part.data).decode()})}


# -- tools and settings


def _tool(where: str, spec: ToolSpec, losses: Losses) -> list[dict[str, Any]]:
    if spec.native is not None:
        data = losses.continuation(where, spec.native)
        return [data] if data else []
    wire: dict[str, Any] = {"type": "function", "name": spec.name}
    if spec.description is not None:
        wire["description"] = spec.description
    if spec.parameter_schema:
        wire["parameters"] = spec.parameter_schema
    return [{**wire, **(spec.extra or {})}]


def _generation_config(config: ModelConfig, tools: tuple[ToolSpec, ...], losses: Losses) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_output_tokens": config.max_tokens,
        "stop_sequences": None if config.stop_sequences is None else list(config.stop_sequences),
        "seed": config.seed,
        "tool_choice": _tool_choice(config, tools),
    }
    if config.thinking is not None:
        settings["thinking_level"] = thinking_level(config.thinking, config.model_id)
        settings["thinking_summaries"] = "auto"
        if config.thinking.budget_tokens is not None:
            losses.add("config.thinking", "the budget", "this API knows levels; the nearest one is sent")
    if config.parallel_tool_calls is False and tools:
        losses.add("config.parallelToolCalls", "one call at a time", "Gemini cannot be told so")
    return {key: value for key, value in settings.items() if value is not None}


def _tool_choice(config: ModelConfig, tools: tuple[ToolSpec, ...]) -> Any:
    choice = config.tool_choice
    if isinstance(choice, SpecificTool):
        return {"allowed_tools": {"mode": "any", "tools": [choice.tool_name]}}
    if choice in (None, "auto") and any(tool.strict for tool in tools):
        return "validated"  # auto that keeps to the schemas, as any does anyway
    return None if choice is None else _CHOICES[choice]
