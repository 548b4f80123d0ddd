"""The body of Gemini's generateContent to a `ModelRequest`.

Like Google, it reads JSON leniently: names may be ``snake_case``, and a list of one may be the item itself. Unknown
settings are kept in `extra`, unknown fields of a part in its continuation data.
"""

from typing import Any

from msgspec.structs import replace

from bartack.formats.body_values import HistoryReader, beyond, bytes_at, fields_at, object_at, text_at
from bartack.formats.gemini import URL_SAFE, media_tool
from bartack.formats.gemini_generate.decode import CALL_FIELDS, CALL_RESULTS, is_failure, readable_result
from bartack.formats.gemini_generate.settings import NAME, entries_at, read_choice, read_settings, read_tools
from bartack.formats.settings import labelled
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import camel

__all__ = ["read_request"]

Json = dict[str, Any]

# The keys below these names are a user's or a schema's own, not Google's.
_FREE = frozenset(
    (
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "partMetadata",
        "labels",
    )
)
_MEDIA = ("inlineData", "fileData")
_UNKNOWN = "unknown"  # the kind of a part that none of `_KINDS` describes
_KINDS = ("text", "functionCall", "functionResponse", *CALL_RESULTS, *CALL_RESULTS.values(), *_MEDIA)


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; `model_id` is needed because the body does not name the model.

    Raises `PartValidationError` if it is not a body of this format.
    """
    body = fields_at(_camel_keys(body), "$")
    model_id = model_id or str(body.pop("model", "")).removeprefix("models/")
    history = _History(provider, model_id)
    history.read_system(body.pop("systemInstruction", None))
    for content, path in entries_at(body.pop("contents", None), "$.contents"):
        history.read_content(path, content)
    tools = read_tools(body.pop("tools", []), provider, model_id)
    fields = {**read_settings(body, model_id), **read_choice(body)}
    extra = {key: value for key, value in body.items() if value != {}}
    config = ModelConfig(model_id, **fields, extra=labelled(NAME, extra))
    return ModelRequest(messages=tuple(history.messages), config=config, tools=tools, provider=provider)


def _camel_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {camel(key): item if camel(key) in _FREE else _camel_keys(item) for key, item in value.items()}


class _History(HistoryReader):
    """The messages read so far."""

    def __init__(self, provider: str, model_id: str) -> None:
        super().__init__(provider, model_id)
        self.messages: list[Message] = []
        self._used_ids: set[str] = set()
        self._made_ids = 0
        self._unanswered: list[tuple[str, str, str | None]] = []  # calls: our id, name, Gemini's id

    def read_system(self, instruction: Any) -> None:
        path = "$.systemInstruction"
        parts = [] if instruction is None else fields_at(instruction, path).get("parts", [])
        entries = entries_at(parts, f"{path}.parts")
        self._add(
            "system", [Text(text_at(object_at(part, where).get("text"), f"{where}.text")) for part, where in entries]
        )

    def read_content(self, path: str, value: Any) -> None:
        content = fields_at(value, path)
        role = content.get("role", "user")
        parts = [
            (where, object_at(part, where)) for part, where in entries_at(content.get("parts", []), f"{path}.parts")
        ]
        if role == "model":
            self._read_model(parts)
        elif role in ("user", "function", "tool"):
            self._read_user(parts)
        else:
            raise PartValidationError(f"unknown role {role!r}; expected user or model", path=f"{path}.role")

    def _add(self, role: Role, parts: list[Any]) -> None:
        if parts:
            self.messages.append(Message(role, tuple(parts)))
            parts.clear()

    def _new_id(self, reported: Any = None) -> str:
        """The given id, or a new one if there is none or it is already used."""
        call_id = reported if isinstance(reported, str) else ""
        while not call_id or call_id in self._used_ids:
            self._made_ids += 1
            call_id = f"call-{self._made_ids}"
        self._used_ids.add(call_id)
        return call_id

    # -- user contents

    def _read_user(self, parts: list[tuple[str, Json]]) -> None:
        """Function responses become tool messages, the parts between them user messages.

        Media that directly follow a response belong to it: Gemini CLI sends the files that a tool has read like this.
        """
        content: list[Text | Image | FileRef] = []
        results: list[ToolResult] = []
        for path, part in parts:
            kind, value, fields = _open_part(path, part)
            if kind == "functionResponse":
                self._add("user", content)
                results.append(self._read_response(f"{path}.{kind}", value))
                continue
            if results and kind in _MEDIA:
                media = self._read_media(f"{path}.{kind}", kind, value, {"beside": True, **fields})
                results[-1] = self._with_media(results[-1], media)
                continue
            self._add("tool", results)
            if kind == "text":
                content.append(Text(value, continuation=self.kept(fields)))
            elif kind == _UNKNOWN:
                content.append(Text("", continuation=self.kept({"part": part})))
            elif kind in _MEDIA:
                content.append(self._read_media(f"{path}.{kind}", kind, value, fields))
            else:
                raise PartValidationError(f"{kind} is not allowed in a user content", path=path)
        self._add("user", content)
        self._add("tool", results)

    def _read_media(self, path: str, kind: str, value: Json, fields: Json) -> Image | FileRef:
        extra = beyond(value, "mimeType", "data", "fileUri")
        continuation = self.kept({**({kind: extra} if extra else {}), **fields})
        mime_type = value.get("mimeType")
        if kind == "inlineData":
            text = text_at(value.get("data"), f"{path}.data").translate(URL_SAFE)
            content: Json = {"data": bytes_at(text, f"{path}.data")}
        else:
            content = {"url": text_at(value.get("fileUri"), f"{path}.fileUri")}
        if isinstance(mime_type, str) and mime_type.startswith("image/"):
            return Image(mime_type, **content, continuation=continuation)
        name = str(value.get("displayName") or content.get("url", "file"))
        return FileRef(name, mime_type=mime_type, **content, continuation=continuation)

    def _read_response(self, path: str, value: Json) -> ToolResult:
        name, given_id = str(value.get("name", "")), value.get("id")
        data = beyond(value, "id", "name", "response", "parts")
        matching = [call for call in self._unanswered if (call[1] == name if given_id is None else call[2] == given_id)]
        if matching:
            self._unanswered.remove(matching[0])
            call_id = matching[0][0]
        else:
            call_id = self._new_id(given_id)
            data = {"name": name, **({} if given_id is None else {"id": given_id}), **data}
        content, is_error = _response_content(object_at(value.get("response", {}), f"{path}.response"))
        media = self._read_inside(f"{path}.parts", value.get("parts", []))
        if media and content == {}:
            content = tuple(media)
        elif media and isinstance(content, str):
            content = (Text(content), *media)
        elif media:
            data["parts"] = value["parts"]  # a result cannot hold both an object and media
        return ToolResult(call_id, content, is_error=is_error, continuation=self.kept(data))

    def _with_media(self, result: ToolResult, media: Image | FileRef) -> ToolResult:
        """The result with media. It cannot hold an object as well, which is text, and in its exact form beside it."""
        content = result.content
        if isinstance(content, tuple):
            return replace(result, content=(*content, media))
        if isinstance(content, str):
            return replace(result, content=(Text(content), media) if content else (media,))
        texts = (Text(json_text(content)),) if content else ()
        exact = {"error": content} if result.is_error else content
        with_media: ToolResult = self.kept_on(replace(result, content=(*texts, media)), {"response": exact})
        return with_media

    def _read_inside(self, path: str, parts: Any) -> list[Image | FileRef]:
        media = []
        for part, where in entries_at(parts, path):
            kind, value, fields = _open_part(where, object_at(part, where))
            if kind not in _MEDIA:
                raise PartValidationError(f"{kind} is not allowed in a function response", path=where)
            media.append(self._read_media(f"{where}.{kind}", kind, value, fields))
        return media

    # -- model contents

    def _read_model(self, parts: list[tuple[str, Json]]) -> None:
        answer: list[Part] = []
        for path, part in parts:
            kind, value, fields = _open_part(path, part)
            if kind == "text":
                make = Thinking if fields.get("thought") is True else Text
                answer.append(make(value, continuation=self.kept(fields)))
            elif kind == _UNKNOWN:
                answer.append(Text("", continuation=self.kept({"part": part})))
            elif kind == "functionCall":
                answer.append(self._read_call(f"{path}.{kind}", value, fields))
            elif kind in _MEDIA:
                answer.append(self._read_generated(f"{path}.{kind}", kind, value, fields))
            elif kind in CALL_RESULTS:
                answer.append(self._read_provider_call(f"{path}.{kind}", kind, value, part))
            elif kind in CALL_RESULTS.values():
                self._read_provider_result(kind, value, part, answer)
            else:
                raise PartValidationError(f"{kind} is not allowed in a model content", path=path)
        self._add("assistant", answer)

    def _read_call(self, path: str, value: Json, fields: Json) -> ToolCall:
        name, given_id = text_at(value.get("name"), f"{path}.name"), value.get("id")
        call_id = self._new_id(given_id)
        self._unanswered.append((call_id, name, given_id))
        arguments = object_at(value.get("args") or {}, f"{path}.args")
        inner = beyond(value, *CALL_FIELDS)
        data = {**({} if given_id is None else {"id": given_id}), **fields}
        data |= {"functionCall": inner} if inner else {}
        return ToolCall(call_id, name, arguments, continuation=self.kept(data))

    def _read_generated(self, path: str, kind: str, value: Json, fields: Json) -> ToolCall:
        call_id = self._new_id()
        data = {kind: beyond(value, "data"), **fields}
        return ToolCall(
            call_id,
            media_tool(str(value.get("mimeType") or "")),
            {},
            executed_by="provider",
            result=ToolResult(call_id, (self._read_media(path, kind, value, {}),)),
            continuation=self.kept({"part": data}),
        )

    def _read_provider_call(self, path: str, kind: str, value: Json, part: Json) -> ToolCall:
        if kind == "executableCode":
            name, arguments = "code_execution", beyond(value, "id")
        else:
            name = str(value.get("toolType", ""))
            arguments = object_at(value.get("args") or {}, f"{path}.args")
        data = self.kept({"part": part})
        return ToolCall(self._new_id(value.get("id")), name, arguments, executed_by="provider", continuation=data)

    def _read_provider_result(self, kind: str, value: Json, part: Json, answer: list[Part]) -> None:
        """Add the result to its call, or keep it as a call of its own if there is none."""
        waiting = (
            earlier for earlier in answer if isinstance(earlier, ToolCall) and _awaits(earlier, kind, value.get("id"))
        )
        call = next(waiting, None)
        if call is None:
            name = str(value.get("toolType") or "code_execution")
            call = ToolCall(self._new_id(value.get("id")), name, {}, executed_by="provider")
            answer.append(call)
        result = ToolResult(call.tool_call_id, readable_result(value), is_error=is_failure(kind, value))
        answer[answer.index(call)] = self.kept_on(replace(call, result=result), {"resultPart": part})


def _open_part(path: str, part: Json) -> tuple[str, Any, Json]:
    """The kind of a part, the value under that key, and the part's other fields."""
    kinds = [kind for kind in _KINDS if kind in part]
    if not kinds and "thoughtSignature" in part:
        return "text", "", part
    if not kinds and any(isinstance(value, dict) for value in part.values()):
        return _UNKNOWN, part, {}
    if len(kinds) != 1:
        raise PartValidationError(f"expected a part with one kind of content, got {kinds or sorted(part)}", path=path)
    [kind] = kinds
    value = text_at(part[kind], f"{path}.text") if kind == "text" else object_at(part[kind], f"{path}.{kind}")
    return kind, value, beyond(part, kind)


def _awaits(call: ToolCall, kind: str, call_id: Any) -> bool:
    part = {} if call.continuation is None or call.result is not None else call.continuation.data.get("part", {})
    call_kind = next((name for name, result in CALL_RESULTS.items() if name in part and result == kind), None)
    return call_kind is not None and call_id in (None, part[call_kind].get("id"))


def _response_content(response: Json) -> tuple[ToolContent, bool]:
    """The value of `output` or `error` if that is all there is, else the object."""
    if len(response) == 1:
        [(key, value)] = response.items()
        if key == "output" and isinstance(value, str):
            return value, False
        if key == "error" and isinstance(value, str | dict):
            return value, True
    return response, False
