"""A `ModelRequest` to the body of Gemini's Interactions API.

The whole history is sent as a list of steps, so that nothing has to be stored at Google: `extra` may hold
``store: false``, or a `previous_interaction_id`. Thoughts are sent back with their signatures, and calls that Google
executed with their results, as the steps they came as. The tools that Gemini executes are declared as
ai.google.dev/gemini-api/docs/interactions has them.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import Json, count_leading_system, present
from bartack.formats.emitter import CALL_ID
from bartack.formats.gemini import is_accepted, thinking_level
from bartack.formats.gemini_interactions.decode import InteractionsContinuation
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, placeholder
from bartack.formats.settings import exact_fields, note_settings, note_unsupported, own_extra, own_fields, with_extra
from bartack.formats.tools import HostedRow, HostedRows, filled, hosted_row, note_tool_options
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["CHOICES", "HOSTED", "NAME", "SETTINGS", "encode", "thinking_fields"]

# -- the tools that Gemini executes


NAME = "gemini-interactions"

_MCP = HostedRow(
    lambda tool: {
        "type": "mcp_server",
        "name": tool.label,
        "url": tool.url,
        **filled(
            headers=None if tool.authorization is None else {"Authorization": f"Bearer {tool.authorization}"},
            allowed_tools=[{"mode": "any", "tools": list(tool.allowed_tools)}] if tool.allowed_tools else None,
        ),
    },
    frozenset(("label", "url", "authorization", "allowed_tools")),
)

HOSTED = HostedRows(
    NAME,
    {
        "": {
            "web_search": hosted_row({"type": "google_search"}),
            "web_fetch": hosted_row({"type": "url_context"}),
            "code_execution": hosted_row({"type": "code_execution"}),
            "file_search": hosted_row({"type": "file_search"}, file_search_store_names="stores", top_k="max_results"),
            "mcp": _MCP,
        }
    },
    beside_functions=False,  # as with generateContent
)

CHOICES: dict[ToolChoice, str] = {"auto": "auto", "required": "any", "none": "none"}
SETTINGS = {  # our names -> Gemini's
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "stop_sequences": "stop_sequences",
    "seed": "seed",
}
_CONTENT_FIELDS = ("annotations", "resolution", "channels", "sample_rate", "processing")


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what Gemini cannot receive is added to `losses`."""
    losses.expect(InteractionsContinuation)
    config = request.config
    leading = count_leading_system(request.messages)
    steps = _Steps(losses)
    for index, message in enumerate(request.messages[leading:], start=leading):
        steps.add(f"messages[{index}]", message)
    extra = own_extra(request, NAME, losses)
    body: Json = {} if "agent" in extra else {"model": config.model_id}
    body |= {"input": steps.finish(), "stream": True}
    system = [text for message in request.messages[:leading] for text in _texts(message.parts)]
    if system:
        body["system_instruction"] = "\n\n".join(system)
    tools = _tools(request, losses)
    if tools:
        body["tools"] = tools
    settings = _generation_config(config, request.tools, losses)
    if settings:
        body["generation_config"] = settings
    note_settings(config, losses)
    if config.output_schema is not None:
        body["response_format"] = {"type": "text", "mime_type": "application/json", "schema": config.output_schema}
    return with_extra(body, extra)


def _texts(parts: tuple[Part, ...]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text) and part.text and not part.ignored]


class _Steps:
    """The steps written so far."""

    def __init__(self, losses: Losses) -> None:
        self.found: list[Json] = []
        self._losses = losses
        self._calls: dict[str, tuple[str, str]] = {}  # our id of a call -> Gemini's id, its name
        self._moved: list[Json] = []  # media that follow the results

    def finish(self) -> list[Json]:
        if self._moved:
            self.found.append({"type": "user_input", "content": self._moved})
            self._moved = []
        return self.found

    def add(self, where: str, message: Message) -> None:
        if message.role != "tool":
            self.finish()
        if message.role == "system":
            self._losses.add(where, "system role", "Gemini accepts it only at the start; sent as user text")
        inputs: list[Json] = []
        for index, part in enumerate(message.parts):
            path = f"{where}.parts[{index}]"
            match part:
                case Text() if "step" in self._losses.own_data(part):
                    self.found.append(dict(self._losses.own_data(part)["step"]))
                case Text() | Image() | FileRef():
                    content = self._content(path, part)
                    if message.role == "assistant":
                        self._add_output(content)
                    else:
                        inputs += content
                case Thinking():
                    self._add_thought(path, part)
                case ToolCall(executed_by="provider"):
                    self._add_provider_call(path, part)
                case ToolCall():
                    self._add_call(path, part)
                case ToolResult():
                    self._add_result(path, part)
                case _:
                    assert_never(part)
        if inputs:
            self.found.append({"type": "user_input", "content": inputs})

    def _content(self, where: str, part: ContentPart) -> list[Json]:
        if isinstance(part, Text) and part.ignored:
            return []
        data = self._losses.continuation(where, part.continuation)
        if isinstance(part, Text):
            fields: Json = {"type": "text", "text": part.text}
            if "content" in data:
                return [dict(data["content"])]
            if not part.text:
                for name in data:
                    self._losses.add(where, name, "the text that it belongs to is empty")
                return []
        elif is_accepted(part) or (part.data and media_type(part).endswith("/*")):  # `type` is enough
            fields = _media(part)
        else:
            text = placeholder(part, where, "Gemini does not read this type, or this location", self._losses)
            return [{"type": "text", "text": text}]
        return [{**fields, **{key: data[key] for key in _CONTENT_FIELDS if key in data}}]

    # -- steps of the model

    def _add_output(self, content: list[Json]) -> None:
        """Consecutive text and images are one step."""
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
        step: Json = {"type": "thought"}
        if part.text:
            step["summary"] = [{"type": "text", "text": part.text}]
        self.found.append({**step, **data})

    def _add_call(self, where: str, call: ToolCall) -> None:
        data = dict(self._losses.continuation(where, call.continuation))
        call_id = data.pop(CALL_ID, call.tool_call_id)
        self._calls[call.tool_call_id] = (call_id, call.tool_name)
        if call.raw_args_text is not None:
            self._losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is sent")
        step = {"type": "function_call", "id": call_id, "name": call.tool_name, "arguments": call.arguments}
        self.found.append({**step, **data})

    def _add_provider_call(self, where: str, call: ToolCall) -> None:
        data = self._losses.own_data(call)
        media = _media_of(call.result) if "content" in data else []
        steps = [data[key] for key in ("step", "resultStep") if key in data]
        if not steps and not media:
            self._losses.add(where, f"call of {call.tool_name}", "another provider executed it")
        self.found += steps
        self._add_output([{**data["content"], **_media(piece)} for piece in media])

    # -- tool results

    def _add_result(self, where: str, result: ToolResult) -> None:
        data = self._losses.continuation(where, result.continuation)
        call_id, name = self._calls.get(result.tool_call_id, (result.tool_call_id, ""))
        step: Json = {"type": "function_result", "call_id": call_id}
        if name:
            step["name"] = name
        if isinstance(result.content, tuple):
            items = [
                item
                for index, part in enumerate(result.content)
                for item in self._content(f"{where}.content[{index}]", part)
            ]
            step["result"] = [item for item in items if item["type"] in ("text", "image")] or ""
            moved = [item for item in items if item["type"] not in ("text", "image")]
            if moved:
                self._losses.moved_media(where)
                self._moved += [{"type": "text", "text": f"From the result of {name or call_id}:"}, *moved]
        else:
            step["result"] = result.content
        if result.is_error:
            step["is_error"] = True
        self.found.append({**step, **data})


def _media_of(result: ToolResult | None) -> list[Image | FileRef]:
    content = () if result is None or not isinstance(result.content, tuple) else result.content
    return [part for part in content if isinstance(part, Image | FileRef)]


def _media(part: Image | FileRef) -> Json:
    mime_type = media_type(part)
    kind = mime_type.partition("/")[0]
    fields: Json = {"type": kind if kind in ("image", "audio", "video") else "document"}
    if mime_type and not mime_type.endswith("/*"):
        fields["mime_type"] = mime_type
    return {**fields, **({"uri": part.url} if part.data is None else {"data": b64encode(part.data).decode()})}


# -- tools and settings


def _tools(request: ModelRequest, losses: Losses) -> list[Json]:
    tools: list[Json] = []
    has_functions = any(spec.is_function for spec in request.tools)
    for index, spec in enumerate(request.tools):
        where = f"tools[{index}]"
        if spec.is_function:
            tools.append(_function(where, spec, losses))
            continue
        model_id = request.config.model_id
        declared = HOSTED.declared(spec, where, model_id, losses, has_functions=has_functions)
        tools += [] if declared is None else [declared]
    return tools


def _function(where: str, spec: ToolSpec, losses: Losses) -> Json:
    note_tool_options(spec, where, losses)
    fields = present(description=spec.description, parameters=spec.parameter_schema or None)
    return {"type": "function", "name": spec.name, **fields, **own_fields(spec, NAME)}


def _generation_config(config: ModelConfig, tools: tuple[ToolSpec, ...], losses: Losses) -> Json:
    settings = filled(**{name: getattr(config, field) for field, name in SETTINGS.items()})
    settings |= filled(tool_choice=_tool_choice(config, tools))
    if config.thinking is not None:
        exact = exact_fields(config.thinking, NAME)
        settings |= exact or thinking_fields(config.thinking, config.model_id)
        if config.thinking.budget_tokens is not None:
            losses.add(
                "config.thinking.budgetTokens", "thinking budget", "this API has levels; the nearest one is sent"
            )
    if tools:
        note_unsupported(config, losses, "Gemini", "parallel_tool_calls")
    return settings


def thinking_fields(thinking: ThinkingConfig, model_id: str) -> Json:
    """The fields of `generation_config` for this setting."""
    return filled(thinking_level=thinking_level(thinking, model_id), thinking_summaries="auto")


def _tool_choice(config: ModelConfig, tools: tuple[ToolSpec, ...]) -> Any:
    choice = config.tool_choice
    if isinstance(choice, SpecificTool):
        return {"allowed_tools": {"mode": "any", "tools": [choice.tool_name]}}
    if choice in (None, "auto") and any(tool.strict for tool in tools):
        return "validated"  # auto that adheres to the schemas, as any does anyway
    return None if choice is None else CHOICES[choice]
