"""A `ModelRequest` to the body of Gemini's generateContent, on the Gemini API and on Vertex AI.

The model and the choice to stream are part of the URL. What this format requires (ai.google.dev/gemini-api/docs on
thought signatures and function calling):

- A `thoughtSignature` is sent back on exactly the part it came with. From Gemini 3 on, the first function call of a
  turn must have one; for calls of other models Google documents a placeholder.
- Function calls are matched with their responses by order and name, and by `id` if Gemini gave one. All responses to a
  turn are one content of their own; media in the same content make Gemini take the turn for the user's (not verified),
  so they are there only if the client of a request put them there.
- Images and documents inside a function response are accepted from Gemini 3 on. For older models they follow in a user
  content.
- `parametersJsonSchema` and `responseJsonSchema` take plain JSON Schema; their older counterparts take a subset.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import beyond, count_leading_system
from bartack.formats.emitter import CALL_ID
from bartack.formats.gemini import gemini_generation, is_accepted
from bartack.formats.gemini_generate.decode import TEXT_METADATA, GeminiContinuation
from bartack.formats.gemini_generate.settings import NAME, function_calling, generation_config, tools
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, placeholder
from bartack.formats.settings import note_settings, note_unsupported, own_extra, with_extra
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["carries", "encode"]

Json = dict[str, Any]

# ai.google.dev/gemini-api/docs/thought-signatures, in its questions and answers.
_NO_SIGNATURE = "skip_thought_signature_validator"
_NOT_FIELDS = {*GeminiContinuation.__annotations__, *TEXT_METADATA, CALL_ID}
# ai.google.dev/gemini-api/docs/function-calling, "Multimodal function responses".
_IN_RESPONSES = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))
_GOOGLE_FILES = ("gs://", "https://generativelanguage.googleapis.com/")


def carries(part: Part, losses: Losses) -> bool:
    """Whether a text is sent as a part of a kind that is unknown here."""
    losses.expect(GeminiContinuation)
    return isinstance(part, Text) and "part" in losses.own_data(part)


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what Gemini cannot receive is added to `losses`."""
    losses.expect(GeminiContinuation)
    config = request.config
    leading = count_leading_system(request.messages)
    system = [
        {"text": part.text}
        for message in request.messages[:leading]
        for part in message.parts
        if isinstance(part, Text) and part.text and not part.ignored
    ]
    history = _History(config.model_id, losses)
    for index, message in enumerate(request.messages[leading:], start=leading):
        history.add(index, message)
    body: Json = {"contents": history.finish()}
    choice = function_calling(config, request.tools)
    fields: Json = {
        "systemInstruction": {"parts": system} if system else None,
        "tools": tools(request.tools, request.config.model_id, losses),
        "toolConfig": {"functionCallingConfig": choice} if choice else None,
        "generationConfig": generation_config(config),
    }
    body |= {key: value for key, value in fields.items() if value}
    note_settings(config, losses)
    if request.tools:
        note_unsupported(config, losses, "Gemini", "parallel_tool_calls")
    return with_extra(body, own_extra(request, NAME, losses))


class _History:
    """The contents written so far."""

    def __init__(self, model_id: str, losses: Losses) -> None:
        self._losses = losses
        self._is_gemini_3 = gemini_generation(model_id) >= 3
        self._contents: list[Json] = []
        self._calls: dict[str, tuple[str, str | None]] = {}  # our id of a call -> its name, Gemini's id
        self._responses: list[Json] = []
        self._moved: list[Json] = []  # media that follow the responses

    def finish(self) -> list[Json]:
        self._end_responses()
        return self._contents

    def add(self, index: int, message: Message) -> None:
        where = f"messages[{index}]"
        if message.role != "tool":
            self._end_responses()
        if message.role == "system":
            self._losses.add(where, "system role", "Gemini accepts it only at the start; sent as user text")
        parts: list[Json] = []
        for number, part in enumerate(message.parts):
            self._add_part(f"{where}.parts[{number}]", part, parts)
        self._append("model" if message.role == "assistant" else "user", parts)

    def _add_part(self, where: str, part: Part, parts: list[Json]) -> None:
        match part:
            case Text() | Image() | FileRef():
                content = self._content(where, part)
                parts += [] if content is None else [content]
            case Thinking():
                parts += self._thought(where, part)
            case ToolCall(executed_by="provider"):
                parts += self._provider_call(where, part)
            case ToolCall():
                parts.append(self._call(where, part, is_first=not any("functionCall" in earlier for earlier in parts)))
            case ToolResult():
                self._add_response(where, part)
            case _:
                assert_never(part)

    def _append(self, role: str, parts: list[Json]) -> None:
        if parts:
            self._contents.append({"role": role, "parts": parts})

    def _end_responses(self) -> None:
        self._append("user", self._responses)
        self._append("user", self._moved)
        self._responses, self._moved = [], []

    # -- text, media, thoughts and calls

    def _content(self, where: str, part: ContentPart) -> Json | None:
        if isinstance(part, Text):
            if part.ignored:
                return None
            data = self._losses.continuation(where, part.continuation)
            if "part" in data:
                return dict(data["part"])
            for name in TEXT_METADATA.keys() & data:
                self._losses.add(where, name, "a request has no place for it")
            fields = _part_fields(data)
            return {"text": part.text, **fields} if part.text or fields else None
        if not is_accepted(part):
            return {"text": placeholder(part, where, "Gemini does not read this type, or this location", self._losses)}
        media = _media(part)
        data = self._losses.continuation(where, part.continuation)
        own = {key: data[key] for key in media if key in data}
        return _with_fields(media, {**own, **_part_fields(data)})

    def _thought(self, where: str, part: Thinking) -> list[Json]:
        if part.ignored:
            return []
        data = self._losses.thinking(where, part)
        return [] if data is None else [{"text": part.text, "thought": True, **_part_fields(data)}]

    def _call(self, where: str, call: ToolCall, *, is_first: bool) -> Json:
        data = self._losses.continuation(where, call.continuation)
        call_id = data.get("id")
        self._calls[call.tool_call_id] = (call.tool_name, call_id)
        if call.raw_args_text is not None:
            self._losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is sent")
        function = {"name": call.tool_name, "args": call.arguments}
        function = function if call_id is None else {"id": call_id, **function}
        part = _with_fields({"functionCall": function}, _part_fields(data))
        if is_first and self._is_gemini_3:
            part.setdefault("thoughtSignature", _NO_SIGNATURE)
        return part

    def _provider_call(self, where: str, call: ToolCall) -> list[Json]:
        data = self._losses.own_data(call)
        parts = [data[key] for key in ("part", "resultPart") if key in data]
        if not parts:
            self._losses.add(where, f"call of {call.tool_name}", "another provider executed it")
        return [_with_media(part, call.result) for part in parts]

    # -- tool results

    def _add_response(self, where: str, result: ToolResult) -> None:
        data = self._losses.continuation(where, result.continuation)
        name, call_id = self._calls.get(result.tool_call_id, (data.get("name", result.tool_call_id), data.get("id")))
        inside: list[Json] = []
        beside: list[Json] = []
        response: Json = {"name": name} if call_id is None else {"id": call_id, "name": name}
        if isinstance(result.content, tuple):
            texts: list[str] = []
            moved = self._sort_content(where, result.content, texts, inside, beside)
            output: str | Json = "\n".join(texts)
            if moved:
                self._losses.moved_media(where)
                self._moved += [{"text": f"From the result of {name}:"}, *moved]
        else:
            output = result.content
        response["response"] = _output(output, result.is_error, is_media_only=bool(inside) and output == "")
        if inside:
            response["parts"] = inside
        fields = beyond(data, "name", "id")
        self._responses += [{"functionResponse": {**response, **fields}}, *beside]

    def _sort_content(
        self,
        where: str,
        content: tuple[ContentPart, ...],
        texts: list[str],
        inside: list[Json],
        beside: list[Json],
    ) -> list[Json]:
        """Add texts and accepted media to the lists; return the media that may not be part of a response."""
        moved = []
        for number, part in enumerate(content):
            piece = self._content(f"{where}.content[{number}]", part)
            if piece is None:
                continue
            if "text" in piece:
                texts.append(piece["text"])
            elif self._losses.own_data(part).get("beside"):
                beside.append(piece)
            elif self._is_gemini_3 and _fits_in_response(piece):
                inside.append(piece)
            else:
                moved.append(piece)
        return moved


def _part_fields(data: Json) -> Json:
    """The fields of a part that our parts have no place for, under Google's names."""
    return beyond(data, *_NOT_FIELDS)


def _media(part: Image | FileRef) -> Json:
    kind = media_type(part)
    if part.data is not None:
        return {"inlineData": {"mimeType": kind, "data": b64encode(part.data).decode()}}
    mime_type = {} if not kind or kind.endswith("/*") else {"mimeType": kind}
    return {"fileData": {**mime_type, "fileUri": part.url}}


def _with_media(part: Json, result: ToolResult | None) -> Json:
    """A part of a provider call, with the generated media that are stored only in the result."""
    if "inlineData" not in part or result is None or not isinstance(result.content, tuple):
        return part
    media = next((_media(piece) for piece in result.content if isinstance(piece, Image | FileRef)), None)
    return part if media is None else _with_fields(media, part)


def _fits_in_response(piece: Json) -> bool:
    [kind] = [key for key in ("inlineData", "fileData") if key in piece]
    is_reachable = kind == "inlineData" or piece[kind]["fileUri"].startswith(_GOOGLE_FILES)
    return is_reachable and piece[kind].get("mimeType") in _IN_RESPONSES


def _output(output: str | Json, is_error: bool, is_media_only: bool) -> Json:
    """Text under `output` or `error`, the keys that Gemini documents; an object as it is."""
    if is_error:
        return {"error": output}
    if isinstance(output, dict):
        return output
    return {} if is_media_only else {"output": output}


def _with_fields(part: Json, fields: Json) -> Json:
    """A part with the fields that came with it, also those inside its one object."""
    inner = {key: {**part[key], **fields[key]} for key in part.keys() & fields if isinstance(fields[key], dict)}
    return {**part, **fields, **inner}
