"""Requests -> bodies of Gemini's generateContent, on the Gemini API and on Vertex AI; `read_request` reads them back.

The model and whether the answer is streamed stand in the URL, not in the body. What this format asks for:

- A `thoughtSignature` goes back on exactly the part it came with. From Gemini 3 on, the first function call of a turn
  must have one; where none exists (the call is another model's) Google documents a word that takes its place.
- Function calls are matched with their responses by order and name, and by `id` where Gemini gave one. All responses
  to one turn stand in one content of their own; media beside them make Gemini misread whose turn it is.
- Pictures and documents inside a function response are understood from Gemini 3 on. For older models they follow in a
  user content.
- `parametersJsonSchema` and `responseJsonSchema` take JSON Schema as it is; their older siblings take a subset.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import with_extra
from bartack.formats.gemini_generate.encode_values import is_taken, own_data
from bartack.formats.gemini_generate.read import read_request
from bartack.formats.gemini_generate.thinking import gemini_generation, thinking_budget, thinking_level
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, named
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]

# ai.google.dev/gemini-api/docs/thought-signatures, in the answers to common questions.
_NO_SIGNATURE = "skip_thought_signature_validator"
_BESIDE = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
# ai.google.dev/gemini-api/docs/function-calling, "Multimodal function responses".
_IN_RESPONSES = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))
_GOOGLE_FILES = ("gs://", "https://generativelanguage.googleapis.com/")
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The body for this request."""
    config = request.config
    body: dict[str, Any] = {}
    history = _History(config.model_id, losses)
    leading = 0
    while leading < len(request.messages) and request.messages[leading].role == "system":
        leading += 1
    system = [
        {"text": part.text}
        for message in request.messages[:leading]
        for part in message.parts
        if isinstance(part, Text) and part.text and not part.ignored
    ]
    for index, message in enumerate(request.messages[leading:], start=leading):
        history.add(index, message)
    body["contents"] = history.finish()
    if system:
        body["systemInstruction"] = {"parts": system}
    tools = _tools(request.tools, losses)
    if tools:
        body["tools"] = tools
    choice = _function_calling(config, request.tools)
    if choice:
        body["toolConfig"] = {"functionCallingConfig": choice}
    settings = _generation_config(config)
    if settings:
        body["generationConfig"] = settings
    if config.parallel_tool_calls is False and request.tools:
        losses.add("config.parallelToolCalls", "one call at a time", "Gemini cannot be told so")
    return with_extra(body, config.extra)


class _History:
    """The contents, as the messages come."""

    def __init__(self, model_id: str, losses: Losses) -> None:
        self.losses = losses
        self._is_new = gemini_generation(model_id) >= 3
        self._contents: list[dict[str, Any]] = []
        self._calls: dict[str, tuple[str, str | None]] = {}  # our id of a call -> its name, Gemini's id
        self._responses: list[dict[str, Any]] = []
        self._moved: list[dict[str, Any]] = []  # media that follow the responses

    def finish(self) -> list[dict[str, Any]]:
        self._end_responses()
        return self._contents

    def add(self, index: int, message: Message) -> None:
        where = f"messages[{index}]"
        if message.role != "tool":
            self._end_responses()
        if message.role == "system":
            self.losses.add(where, "its role", "Gemini has one system instruction, at the start; sent as user text")
        wire: list[dict[str, Any]] = []
        for place, part in enumerate(message.parts):
            self._add_part(f"{where}.parts[{place}]", part, wire)
        self._append("model" if message.role == "assistant" else "user", wire)

    def _add_part(self, where: str, part: Part, wire: list[dict[str, Any]]) -> None:
        match part:
            case Text() | Image() | FileRef():
                content = self._content(where, part)
                wire += [] if content is None else [content]
            case Thinking():
                wire += self._thought(where, part)
            case ToolCall(executed_by="provider"):
                wire += self._provider_call(where, part)
            case ToolCall():
                wire.append(self._call(where, part, is_first=not any("functionCall" in one for one in wire)))
            case ToolResult():
                self._add_response(where, part)
            case _:
                assert_never(part)

    def _append(self, role: str, parts: list[dict[str, Any]]) -> None:
        if parts:
            self._contents.append({"role": role, "parts": parts})

    def _end_responses(self) -> None:
        self._append("user", self._responses)
        self._append("user", self._moved)
        self._responses, self._moved = [], []

    # -- what users and models say

    def _content(self, where: str, part: ContentPart) -> dict[str, Any] | None:
        if isinstance(part, Text):
            if part.ignored:
                return None
            data = self.losses.continuation(where, part.continuation)
            beside = _beside(data)
            return {"text": part.text, **beside} if part.text or beside else None
        if not is_taken(part):
            return {"text": named(part, where, "Gemini reads no files of this type, or from this place", self.losses)}
        wire = _media(part)
        data = self.losses.continuation(where, part.continuation)
        return with_extra(wire, {key: data[key] for key in (*wire, *_BESIDE) if key in data})

    def _thought(self, where: str, part: Thinking) -> list[dict[str, Any]]:
        if part.ignored:
            return []
        data = self.losses.thinking(where, part)
        return [] if data is None else [{"text": part.text, "thought": True, **_beside(data)}]

    def _call(self, where: str, call: ToolCall, *, is_first: bool) -> dict[str, Any]:
        data = self.losses.continuation(where, call.continuation)
        call_id = data.get("id")
        self._calls[call.tool_call_id] = (call.tool_name, call_id)
        if call.raw_args_text is not None:
            self.losses.add(where, "arguments that do not parse", "Gemini takes an object; an empty one is sent")
        function = {"name": call.tool_name, "args": call.arguments}
        part = {"functionCall": function if call_id is None else {"id": call_id, **function}, **_beside(data)}
        if is_first and self._is_new:
            part.setdefault("thoughtSignature", _NO_SIGNATURE)
        return part

    def _provider_call(self, where: str, call: ToolCall) -> list[dict[str, Any]]:
        data = own_data(call, self.losses.provider)
        parts = [data[key] for key in ("part", "resultPart") if key in data]
        if not parts:
            why = "only the provider that executed it takes it back"
            self.losses.add(where, f"the call of {call.tool_name} and its result", why)
        return [_with_media(part, call.result) for part in parts]

    # -- what tools answered

    def _add_response(self, where: str, result: ToolResult) -> None:
        data = self.losses.continuation(where, result.continuation)
        name, call_id = self._calls.get(result.tool_call_id, (data.get("name", result.tool_call_id), data.get("id")))
        inside: list[dict[str, Any]] = []
        response: dict[str, Any] = {"name": name} if call_id is None else {"id": call_id, "name": name}
        if isinstance(result.content, tuple):
            texts: list[str] = []
            moved = self._place_content(where, result.content, texts, inside)
            output: str | dict[str, Any] = "\n".join(texts)
            if moved:
                self._moved += [{"text": f"From the result of {name}:"}, *moved]
        else:
            output = result.content
        response["response"] = _output(output, result.is_error, is_bare=bool(inside) and output == "")
        if inside:
            response["parts"] = inside
        more = {key: value for key, value in data.items() if key not in ("name", "id")}
        self._responses.append({"functionResponse": {**response, **more}})

    def _place_content(
        self, where: str, content: tuple[ContentPart, ...], texts: list[str], inside: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Put texts with texts and media into the response; the media that may not stand in it are given back."""
        moved = []
        for place, part in enumerate(content):
            wire = self._content(f"{where}.content[{place}]", part)
            if wire is None:
                continue
            if "text" in wire:
                texts.append(wire["text"])
            elif self._is_new and _fits_in_response(wire):
                inside.append(wire)
            else:
                moved.append(wire)
        return moved


def _beside(data: dict[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in _BESIDE if key in data}


def _media(part: Image | FileRef) -> dict[str, Any]:
    kind = media_type(part)
    if part.data is not None:
        return {"inlineData": {"mimeType": kind, "data": b64encode(part.data).decode()}}
    known = {} if not kind or kind.endswith("/*") else {"mimeType": kind}
    return {"fileData": {**known, "fileUri": part.url}}


def _with_media(part: dict[str, Any], result: ToolResult | None) -> dict[str, Any]:
    """A part of the provider's; generated media are kept once, in the result, and put back here."""
    if "inlineData" not in part or result is None or not isinstance(result.content, tuple):
        return part
    media = next((_media(one) for one in result.content if isinstance(one, Image | FileRef)), None)
    return part if media is None else with_extra(media, part)


def _fits_in_response(wire: dict[str, Any]) -> bool:
    [kind] = [key for key in ("inlineData", "fileData") if key in wire]
    is_reachable = kind == "inlineData" or wire[kind]["fileUri"].startswith(_GOOGLE_FILES)
    return is_reachable and wire[kind].get("mimeType") in _IN_RESPONSES


def _output(output: str | dict[str, Any], is_error: bool, is_bare: bool) -> dict[str, Any]:
    """`output` and `error` are the words Gemini knows; any other object is the output as a whole."""
    if is_error:
        return {"error": output}
    if isinstance(output, dict):
        return output
    return {} if is_bare else {"output": output}


# -- tools and settings


def _tools(tools: tuple[ToolSpec, ...], losses: Losses) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        if tool.native is not None:
            data = losses.continuation(f"tools[{index}]", tool.native)
            wire += [data] if data else []
            continue
        if not wire or "functionDeclarations" not in wire[-1]:
            wire.append({"functionDeclarations": []})
        wire[-1]["functionDeclarations"].append(_declaration(tool))
    return wire


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        wire["description"] = tool.description
    if tool.parameter_schema:
        wire["parametersJsonSchema"] = tool.parameter_schema
    return {**wire, **(tool.extra or {})}


def _function_calling(config: ModelConfig, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    choice = config.tool_choice
    if isinstance(choice, SpecificTool):
        return {"mode": "ANY", "allowedFunctionNames": [choice.tool_name]}
    if choice in (None, "auto") and any(tool.strict for tool in tools):
        return {"mode": "VALIDATED"}  # AUTO that keeps to the schemas, as ANY does anyway
    return {} if choice is None else {"mode": _MODES[choice]}


def _generation_config(config: ModelConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "temperature": config.temperature,
        "topP": config.top_p,
        "maxOutputTokens": config.max_tokens,
        "stopSequences": None if config.stop_sequences is None else list(config.stop_sequences),
        "seed": config.seed,
    }
    if config.output_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = config.output_schema
    if config.thinking is not None:
        settings["thinkingConfig"] = _thinking(config.thinking, config.model_id)
    return {key: value for key, value in settings.items() if value is not None}


def _thinking(thinking: ThinkingConfig, model_id: str) -> dict[str, Any]:
    """A budget as it is; an effort as a level, which Gemini 3 knows, or as the budget Google takes for it."""
    wire: dict[str, Any] = {}
    if thinking.budget_tokens is None and gemini_generation(model_id) >= 3:
        wire["thinkingLevel"] = thinking_level(thinking, model_id)
    else:
        wire["thinkingBudget"] = thinking_budget(thinking, model_id)
    if wire.get("thinkingBudget") != 0:
        wire["includeThoughts"] = True
    return {key: value for key, value in wire.items() if value is not None}
