"""Bodies of Gemini's generateContent -> requests.

Google reads its JSON leniently, and so does this: names may be written ``snake_case``, a list of one may be the one.
What has no place in our words goes along: unknown settings in `extra`, unknown fields of a part in its continuation.
"""

from typing import Any

from msgspec.structs import replace

from bartack.formats.body_values import object_at, text_at
from bartack.formats.gemini_generate.encode_values import CallIds, bytes_at, items_at
from bartack.formats.gemini_generate.read_settings import read_choice, read_settings, read_tools
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import camel

__all__ = ["read_request"]

# Below these names the keys are a user's or a schema's own, not Google's.
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
_SERVER_CALLS = {"executableCode": "codeExecutionResult", "toolCall": "toolResponse"}
_KINDS = ("text", "functionCall", "functionResponse", *_SERVER_CALLS, *_SERVER_CALLS.values(), *_MEDIA)


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; raises `PartValidationError` where it is none.

    The body does not name its model; the URL does.
    """
    body = _camel_keys(object_at(body, "$"))
    model_id = model_id or str(body.pop("model", "")).removeprefix("models/")
    history = _History(provider, model_id)
    history.read_system(body.pop("systemInstruction", None))
    for index, content in enumerate(items_at(body.pop("contents", None), "$.contents")):
        history.read_content(f"$.contents[{index}]", content)
    tools = read_tools(body.pop("tools", []), provider, model_id)
    known = {**read_settings(body, model_id), **read_choice(body)}
    extra = {key: value for key, value in body.items() if value != {}}
    config = ModelConfig(model_id, **known, extra=extra or None)
    return ModelRequest(messages=tuple(history.messages), config=config, tools=tools, provider=provider)


def _camel_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {camel(key): item if camel(key) in _FREE else _camel_keys(item) for key, item in value.items()}


class _History:
    """The messages, as the contents come."""

    def __init__(self, provider: str, model_id: str) -> None:
        self.messages: list[Message] = []
        self._provider = provider
        self._model_id = model_id
        self._ids = CallIds()
        self._due: list[tuple[str, str, str | None]] = []  # calls without a response: our id, name, Gemini's id

    def read_system(self, instruction: Any) -> None:
        path = "$.systemInstruction"
        parts = [] if instruction is None else items_at(object_at(instruction, path).get("parts", []), f"{path}.parts")
        texts = [
            text_at(object_at(part, f"{path}.parts[{place}]").get("text"), f"{path}.parts[{place}].text")
            for place, part in enumerate(parts)
        ]
        self._say("system", [Text(text) for text in texts])

    def read_content(self, path: str, value: Any) -> None:
        content = object_at(value, path)
        role = content.get("role", "user")
        parts = [
            (f"{path}.parts[{place}]", object_at(part, f"{path}.parts[{place}]"))
            for place, part in enumerate(items_at(content.get("parts", []), f"{path}.parts"))
        ]
        if role == "model":
            self._read_model(parts)
        elif role in ("user", "function", "tool"):
            self._read_user(parts)
        else:
            raise PartValidationError(f"{role!r} is not a role", path=f"{path}.role")

    def _say(self, role: Role, parts: list[Any]) -> None:
        if parts:
            self.messages.append(Message(role, tuple(parts)))
            parts.clear()

    def _continuation(self, data: dict[str, Any]) -> Continuation | None:
        return Continuation(self._provider, self._model_id, data) if data else None

    # -- the user's side

    def _read_user(self, parts: list[tuple[str, dict[str, Any]]]) -> None:
        """Responses become tool messages, what stands between them user messages."""
        said: list[Text | Image | FileRef] = []
        answered: list[ToolResult] = []
        for path, part in parts:
            kind, value, beside = _open_part(path, part)
            if kind == "functionResponse":
                self._say("user", said)
                answered.append(self._read_response(f"{path}.{kind}", value))
                continue
            self._say("tool", answered)
            if kind == "text":
                said.append(Text(value, continuation=self._continuation(beside)))
            elif kind in _MEDIA:
                said.append(self._read_media(f"{path}.{kind}", kind, value, beside))
            else:
                raise PartValidationError(f"a user does not say {kind}", path=path)
        self._say("user", said)
        self._say("tool", answered)

    def _read_media(self, path: str, kind: str, value: dict[str, Any], beside: dict[str, Any]) -> Image | FileRef:
        more = {key: item for key, item in value.items() if key not in ("mimeType", "data", "fileUri")}
        continuation = self._continuation({**({kind: more} if more else {}), **beside})
        mime_type = value.get("mimeType")
        if kind == "inlineData":
            content: dict[str, Any] = {"data": bytes_at(value.get("data"), f"{path}.data")}
        else:
            content = {"url": text_at(value.get("fileUri"), f"{path}.fileUri")}
        if isinstance(mime_type, str) and mime_type.startswith("image/"):
            return Image(mime_type, **content, continuation=continuation)
        name = str(value.get("displayName") or content.get("url", "file"))
        return FileRef(name, mime_type=mime_type, **content, continuation=continuation)

    def _read_response(self, path: str, value: dict[str, Any]) -> ToolResult:
        name, given_id = str(value.get("name", "")), value.get("id")
        data = {key: item for key, item in value.items() if key not in ("id", "name", "response", "parts")}
        due = [call for call in self._due if (call[1] == name if given_id is None else call[2] == given_id)]
        if due:
            self._due.remove(due[0])
            call_id = due[0][0]
        else:
            call_id = self._ids.new(given_id)
            data = {"name": name, **({} if given_id is None else {"id": given_id}), **data}
        content, is_error = _response_content(object_at(value.get("response", {}), f"{path}.response"))
        media = self._read_inside(f"{path}.parts", value.get("parts", []))
        if media and content == {}:
            content = tuple(media)
        elif media and isinstance(content, str):
            content = (Text(content), *media)
        elif media:
            data["parts"] = value["parts"]  # an object and media have no common place
        return ToolResult(call_id, content, is_error=is_error, continuation=self._continuation(data))

    def _read_inside(self, path: str, parts: Any) -> list[Image | FileRef]:
        media = []
        for place, part in enumerate(items_at(parts, path)):
            kind, value, beside = _open_part(f"{path}[{place}]", object_at(part, f"{path}[{place}]"))
            if kind not in _MEDIA:
                raise PartValidationError(f"a function response does not hold {kind}", path=f"{path}[{place}]")
            media.append(self._read_media(f"{path}[{place}].{kind}", kind, value, beside))
        return media

    # -- the model's side

    def _read_model(self, parts: list[tuple[str, dict[str, Any]]]) -> None:
        said: list[Part] = []
        for path, part in parts:
            kind, value, beside = _open_part(path, part)
            if kind == "text":
                make = Thinking if beside.get("thought") is True else Text
                said.append(make(value, continuation=self._continuation(beside)))
            elif kind == "functionCall":
                said.append(self._read_call(f"{path}.{kind}", value, beside))
            elif kind in _MEDIA:
                said.append(self._read_generated(f"{path}.{kind}", kind, value, beside))
            elif kind in _SERVER_CALLS:
                said.append(self._read_server_call(f"{path}.{kind}", kind, value, part))
            elif kind in _SERVER_CALLS.values():
                self._read_server_result(kind, value, part, said)
            else:
                raise PartValidationError(f"a model does not say {kind}", path=path)
        self._say("assistant", said)

    def _read_call(self, path: str, value: dict[str, Any], beside: dict[str, Any]) -> ToolCall:
        name, given_id = text_at(value.get("name"), f"{path}.name"), value.get("id")
        call_id = self._ids.new(given_id)
        self._due.append((call_id, name, given_id))
        arguments = object_at(value.get("args") or {}, f"{path}.args")
        data = beside if given_id is None else {"id": given_id, **beside}
        return ToolCall(call_id, name, arguments, continuation=self._continuation(data))

    def _read_generated(self, path: str, kind: str, value: dict[str, Any], beside: dict[str, Any]) -> ToolCall:
        call_id = self._ids.new()
        name = f"{str(value.get('mimeType') or 'file').partition('/')[0]}_output"
        kept = {kind: {key: item for key, item in value.items() if key != "data"}, **beside}
        return ToolCall(
            call_id,
            name,
            {},
            executed_by="provider",
            result=ToolResult(call_id, (self._read_media(path, kind, value, {}),)),
            continuation=self._continuation({"part": kept}),
        )

    def _read_server_call(self, path: str, kind: str, value: dict[str, Any], part: dict[str, Any]) -> ToolCall:
        if kind == "executableCode":
            name, arguments = "code_execution", {key: item for key, item in value.items() if key != "id"}
        else:
            name = str(value.get("toolType", ""))
            arguments = object_at(value.get("args") or {}, f"{path}.args")
        data = self._continuation({"part": part})
        return ToolCall(self._ids.new(value.get("id")), name, arguments, executed_by="provider", continuation=data)

    def _read_server_result(self, kind: str, value: dict[str, Any], part: dict[str, Any], said: list[Part]) -> None:
        """Put the result into its call; one without a call is kept as a call of its own."""
        waiting = (one for one in said if isinstance(one, ToolCall) and _awaits(one, kind, value.get("id")))
        call = next(waiting, None)
        if call is None:
            name = str(value.get("toolType") or "code_execution")
            call = ToolCall(self._ids.new(value.get("id")), name, {}, executed_by="provider")
            said.append(call)
        data = {} if call.continuation is None else call.continuation.data
        response = value.get("response")
        content = response if isinstance(response, dict) else str(value.get("output", ""))
        is_error = kind == "codeExecutionResult" and value.get("outcome") not in ("OUTCOME_OK", 1)
        said[said.index(call)] = replace(
            call,
            result=ToolResult(call.tool_call_id, content, is_error=is_error),
            continuation=self._continuation({**data, "resultPart": part}),
        )


def _open_part(path: str, part: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """What a part holds: its kind, the value of that kind, and what stands beside it."""
    kinds = [kind for kind in _KINDS if kind in part]
    if not kinds and "thoughtSignature" in part:
        return "text", "", part
    if len(kinds) != 1:
        raise PartValidationError(f"a part holds one thing, not {kinds or sorted(part)}", path=path)
    [kind] = kinds
    value = text_at(part[kind], f"{path}.text") if kind == "text" else object_at(part[kind], f"{path}.{kind}")
    return kind, value, {key: item for key, item in part.items() if key != kind}


def _awaits(call: ToolCall, kind: str, call_id: Any) -> bool:
    sent = {} if call.continuation is None or call.result is not None else call.continuation.data.get("part", {})
    opened = next((name for name, answer in _SERVER_CALLS.items() if name in sent and answer == kind), None)
    return opened is not None and call_id in (None, sent[opened].get("id"))


def _response_content(response: dict[str, Any]) -> tuple[ToolContent, bool]:
    """The words `output` and `error` alone say what the object would say; anything else is the object."""
    if len(response) == 1:
        [(key, value)] = response.items()
        if key == "output" and isinstance(value, str):
            return value, False
        if key == "error" and isinstance(value, str | dict):
            return value, True
    return response, False
