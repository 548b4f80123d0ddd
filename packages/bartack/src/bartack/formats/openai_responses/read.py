"""The body of a Responses request to a `ModelRequest`, the inverse of `encode`.

Consecutive items of the model become one assistant message, consecutive results one tool message. What a part has no
place for is kept in its continuation data, as the decoder keeps it, so that encoding gives the same items.

As on the server, a body without `store` is read as ``store: true``. `strict` stays unset if a function has none: OpenAI
takes it as strict where its schema allows that, and other formats do not. `stream` is not kept, since our requests
always stream.
"""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from bartack.formats.body_values import (
    HistoryReader,
    beyond,
    fields_at,
    list_at,
    object_at,
    objects_at,
    parsed_object,
    text_at,
)
from bartack.formats.media import exact_data
from bartack.formats.openai import custom_spec, function_name
from bartack.formats.openai_responses.items import (
    NAME,
    Item,
    arguments_of,
    executed_by,
    item_fields,
    kept_of_call,
    kind_of,
    name_of,
    outcome_of,
    part_fields,
    text_of,
    texts_of,
)
from bartack.formats.settings import DECLARATION, WORDS, labelled, with_exact
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import (
    ContentPart,
    FileRef,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

_REFERENCES = {"prompt", "previous_response_id", "conversation"}  # settings with items that are stored at the provider


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes. Raises `PartValidationError` with the path for a body of another format."""
    settings = dict(object_at(body, "$"))
    model = text_at(settings.pop("model", None) or model_id or None, "$.model")
    settings.pop("stream", None)
    refers = any(settings.get(key) is not None for key in _REFERENCES)
    reader = _History(provider, model, settings.get("tools"), refers=refers)
    instructions = settings.pop("instructions", None)
    if instructions is not None:
        text = text_at(instructions, "$.instructions")
        reader.messages.append(Message("system", (Text(text, continuation=reader.kept({"instructions": True})),)))
    items = settings.pop("input", None)
    if isinstance(items, str):
        reader.messages.append(Message("user", (Text(items),)))
    elif items is not None or not _REFERENCES & settings.keys():
        items = list_at(items, "$.input")
        outputs = [item for item in items if isinstance(item, dict) and item.get("type") == "custom_tool_call_output"]
        # The client executed these calls, although it may no longer declare their tools.
        reader.answered_ids = {str(item.get("call_id")) for item in outputs}
        for item, path in objects_at(items, "$.input"):
            reader.add(item, path)
    declared = settings.pop("tools", None)
    tools = tuple(
        spec
        for tool, path in objects_at([] if declared is None else declared, "$.tools")
        for spec in _tools(tool, reader, path)
    )
    config = _config(model, settings, tools)
    return ModelRequest(messages=reader.finished(), config=config, tools=tools, provider=provider)


# -- settings


def _config(model: str, settings: dict[str, Any], tools: tuple[ToolSpec, ...]) -> ModelConfig:
    """The settings that `ModelConfig` has; the others are kept in `extra`."""
    if settings.get("store") is None:
        settings["store"] = True
    if settings["store"] is False:
        settings.setdefault("include", [])
    choice = _tool_choice(settings.get("tool_choice"), tools)
    if choice is not None:
        del settings["tool_choice"]
    return ModelConfig(
        model,
        temperature=_number(settings, "temperature"),
        top_p=_number(settings, "top_p"),
        max_tokens=_number(settings, "max_output_tokens"),
        parallel_tool_calls=settings.pop("parallel_tool_calls", None),
        tool_choice=choice,
        thinking=_thinking(settings),
        output_schema=_output_schema(settings),
        extra=labelled(NAME, fields_at(settings, "$")),
    )


def _number(settings: dict[str, Any], key: str) -> Any:
    value = settings.pop(key, None)
    if value is not None and not isinstance(value, int | float):
        raise PartValidationError(f"expected a number, got {type(value).__name__}", path=f"$.{key}")
    return value


def _thinking(settings: dict[str, Any]) -> ThinkingConfig | None:
    reasoning = settings.get("reasoning")
    effort = WORDS.get(str(reasoning.get("effort"))) if isinstance(reasoning, dict) else None
    if effort is None or not isinstance(reasoning, dict):
        return None
    del settings["reasoning"]
    return with_exact(ThinkingConfig(effort=effort), NAME, {"reasoning": reasoning})


def _output_schema(settings: dict[str, Any]) -> dict[str, Any] | None:
    text = settings.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    if not isinstance(shape, dict) or not isinstance(shape.get("schema"), dict):
        return None
    schema: dict[str, Any] = shape["schema"]
    settings["text"] = {**settings["text"], "format": beyond(shape, "schema")}
    return schema


def _tool_choice(choice: Any, tools: tuple[ToolSpec, ...]) -> ToolChoice | None:
    match choice:
        case "auto":
            return "auto"
        case "required":
            return "required"
        case "none":
            return "none"
        case {"type": "function" | "custom", "name": str(name)} | {"type": "mcp", "server_label": str(name)}:
            return SpecificTool(name) if len(choice) == 2 else None
        case {"type": str(name)} if len(choice) == 1 and any(spec.name == name for spec in tools):
            return SpecificTool(name)
    return None


def _tools(tool: Item, reader: "_History", path: str) -> list[ToolSpec]:
    """The tools of a declaration: several for a namespace."""
    if tool.get("type") != "namespace":
        return [_tool(tool, reader, path)]
    namespace = text_at(tool.get("name"), f"{path}.name")
    specs = []
    for inner, where in objects_at(tool.get("tools"), f"{path}.tools"):
        spec = _tool(inner, reader, where)
        name = function_name(namespace, text_at(inner.get("name"), f"{where}.name"))
        declaration = {NAME: {DECLARATION: {**tool, "tools": [inner]}}}
        specs.append(replace(spec, name=name, native=None, extra=declaration))
    return specs


def _tool(tool: Item, reader: "_History", path: str) -> ToolSpec:
    description = tool.get("description")
    if tool.get("type") == "function" and isinstance(tool.get("parameters"), dict):
        own = beyond(tool, "type", "name", "parameters", "strict")
        if description is not None:
            own.pop("description")
        strict = tool.get("strict")
        if strict is None:  # kept as unset: another format has another default
            own["strict"] = None
        return ToolSpec(
            text_at(tool.get("name"), f"{path}.name"),
            tool["parameters"],
            description=description,
            strict=None if strict is None else bool(strict),
            extra=labelled(NAME, own),
        )
    kind = text_at(tool.get("type"), f"{path}.type")
    name = tool.get("name") or tool.get("server_label") or kind
    if kind == "custom":
        return custom_spec(NAME, text_at(name, f"{path}.name"), tool, tool)
    schema = tool.get("parameters") or {}
    if kind == "tool_search" and tool.get("execution") == "client":
        return ToolSpec(kind, schema, description=description, extra={NAME: {DECLARATION: tool}})
    return ToolSpec(name, schema, description=description, native=reader.kept(tool))


# -- the history


class _History(HistoryReader):
    """Collects messages from items."""

    def __init__(self, provider: str, model_id: str, tools: Any, *, refers: bool) -> None:
        super().__init__(provider, model_id)
        self.messages: list[Message] = []
        self._tools = tools
        self._refers = refers  # whether items may belong to others that are stored at the provider
        self.answered_ids: set[str] = set()
        self._call_ids: set[str] = set()
        self._answer: list[Text | Thinking | ToolCall] = []
        self._item_ids: Counter[Any] = Counter()  # how often each id appears on messages and reasoning of the answer
        self._bad_args: dict[str, str] = {}
        self._results: list[ToolResult] = []

    def finished(self) -> tuple[Message, ...]:
        """All messages."""
        self._end_answer()
        self._end_results()
        return tuple(self.messages)

    def add(self, item: Item, path: str) -> None:
        """Add one item."""
        match kind_of(item):
            case "text" if item.get("role") != "assistant":
                self._end_answer()
                self._end_results()
                self.messages.append(self._input(item, path))
            case "result":
                self._add_result(item, path)
            case "opaque" if item.get("type") == "mcp_approval_response":
                self._add_approval(item, path)
            case "call":
                self._end_results()
                self._answer.append(self._call(item, path))
            case "opaque":
                self._add_opaque(item)
            case _:
                self._end_results()
                self._add_texts(item)

    def _add_opaque(self, item: Item) -> None:
        """Add an item that only the provider understands."""
        self._refers |= item.get("type") == "item_reference"
        self._end_results()
        self._answer.append(Text("", continuation=self.kept({"item": item})))

    def _end_answer(self) -> None:
        if self._answer:
            meta = Meta(bad_args=self._bad_args) if self._bad_args else None
            self.messages.append(Message("assistant", tuple(self._answer), meta=meta))
        self._answer, self._item_ids, self._bad_args = [], Counter(), {}

    def _end_results(self) -> None:
        if self._results:
            self.messages.append(Message("tool", tuple(self._results)))
        self._results = []

    # -- system and user messages

    def _input(self, item: Item, path: str) -> Message:
        role = text_at(item.get("role"), f"{path}.role")
        if role not in ("user", "system", "developer"):
            raise PartValidationError(f"unknown role {role!r}", path=f"{path}.role")
        fields = beyond(item, "type", "content")
        fields = {} if fields == {"role": role} and role != "developer" else fields
        content = item.get("content")
        parts: list[ContentPart]
        if isinstance(content, str):
            parts = [Text(content)]
        else:
            parts = self._entries(content, f"{path}.content", text_only=role != "user")
        if fields and parts:
            parts[0] = self.kept_on(parts[0], {"item": fields})
        return Message("user" if role == "user" else "system", tuple(parts))

    def _entries(self, content: Any, path: str, *, text_only: bool = False) -> list[ContentPart]:
        entries = [entry for entry, _ in objects_at(content, path)]
        parts = [self._entry(entry) for entry in entries]
        if text_only:  # our system messages hold only text: other entries are kept on an empty one
            carried = [Text("", continuation=self.kept({"part": entry})) for entry in entries]
            return [part if isinstance(part, Text) else text for part, text in zip(parts, carried, strict=True)]
        return parts

    def _entry(self, entry: Item) -> ContentPart:
        match entry:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                own = {key: value for key, value in entry.items() if (key, value) != ("type", "input_text")}
                del own["text"]
                return Text(text, continuation=self.kept({"part": own} if own else {}))
            case {"type": "input_image", "image_url": str(url)}:
                return self._image(url, entry)
            case {"type": "input_file", "file_data": str(url), "filename": str(name)} if exact_data(url):
                own = beyond(entry, "type", "file_data", "filename")
                mime, data = exact_data(url) or ("", b"")
                if not mime.startswith(("audio/", "video/", "image/")):
                    continuation = self.kept({"part": own}) if own else None
                    return FileRef(name, mime_type=mime, data=data, continuation=continuation)
            case {"type": "input_file", "file_url": str(url)} if len(entry) == 2:
                return FileRef(url, url=url)
        name = entry.get("filename") or entry.get("file_id") or entry.get("type") or "content"
        return FileRef(str(name), continuation=self.kept({"part": entry}))

    def _image(self, url: str, entry: Item) -> Image:
        own = beyond(entry, "type", "image_url")
        continuation = None if own in ({}, {"detail": "auto"}) else self.kept({"part": own})
        inline = exact_data(url)
        if inline is not None:
            return Image(inline[0], data=inline[1], continuation=continuation)
        if url.startswith("data:"):  # not base64 as we would write it
            continuation = self.kept({"part": entry})
        return Image("image/*", url=url, continuation=continuation)

    # -- assistant messages

    def _add_texts(self, item: Item) -> None:
        make = Thinking if kind_of(item) == "thinking" else Text
        content = item.get("content")
        fields = item_fields(item)
        own = {"item": fields, **self._again(item.get("id"))}
        if isinstance(content, str):
            is_plain = fields.keys() <= {"role", "type"}
            data = {
                **own,
                "field": "content",
                "nth": 0,
                "part": {"type": "output_text"},
            }
            self._answer.append(make(content, continuation=None if is_plain else self.kept(data)))
            return
        texts = texts_of(item)
        for nth, (field, _, entry) in enumerate(texts):
            data = {**own, "field": field, "nth": nth, "part": part_fields(entry)}
            self._answer.append(make(text_of(entry), continuation=self.kept(data)))
        if not texts:
            self._answer.append(make("", continuation=self.kept(own)))

    def _again(self, item_id: object) -> dict[str, int]:
        """The mark of an item whose id another one before it has: xAI names all reasoning of a response alike."""
        if not isinstance(item_id, str):
            return {}
        earlier = self._item_ids[item_id]
        self._item_ids[item_id] += 1
        return {"again": earlier} if earlier else {}

    def _call(self, item: Item, path: str) -> ToolCall:
        call_id = text_at(item.get("call_id") or item.get("id"), f"{path}.call_id")
        text = arguments_of(item)
        arguments = parsed_object(text) if text.strip() else {}
        if arguments is None:
            self._bad_args[call_id] = "the arguments are not a JSON object"
        self._call_ids.add(call_id)
        name, namespace = name_of(item), item.get("namespace")
        if namespace is not None:
            namespace = text_at(namespace, f"{path}.namespace")
        executor = "client" if call_id in self.answered_ids else executed_by(item, self._tools)
        outcome, failed = outcome_of(item) if executor == "provider" else (None, False)
        return ToolCall(
            call_id,
            function_name(namespace, name) if namespace and namespace != name else name,
            arguments or {},
            raw_args_text=text if arguments is None else None,
            executed_by=executor,
            result=None if outcome is None else ToolResult(call_id, outcome, is_error=failed),
            continuation=self.kept({"item": kept_of_call(item)}),
        )

    # -- tool results

    def _is_elsewhere(self, call_id: str) -> bool:
        """Whether a call is stored at the provider, and not among these items."""
        return self._refers and call_id not in self._call_ids

    def _add_result(self, item: Item, path: str) -> None:
        for place, part in enumerate(self._answer):
            if isinstance(part, ToolCall) and _is_outcome(item, part):
                outcome, failed = outcome_of(item)
                result = None if outcome is None else ToolResult(part.tool_call_id, outcome, is_error=failed)
                self._answer[place] = self.kept_on(replace(part, result=result), {"output": item})
                return
        if item.get("call_id") is None and item.get("id"):
            self._add_opaque(item)
            return
        call_id = text_at(item.get("call_id"), f"{path}.call_id")
        if self._is_elsewhere(call_id):
            self._add_opaque(item)
            return
        self._end_answer()
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            own = beyond(item, "call_id", "output")
            content = self._content(item.get("output"), f"{path}.output")
            continuation = None if own == {"type": "function_call_output"} else self.kept({"item": own})
            self._results.append(ToolResult(call_id, content, continuation=continuation))
        else:
            outcome, failed = outcome_of(item)
            continuation = self.kept({"output": item})
            self._results.append(ToolResult(call_id, outcome or "", is_error=failed, continuation=continuation))

    def _add_approval(self, item: Item, path: str) -> None:
        call_id = text_at(item.get("approval_request_id"), f"{path}.approval_request_id")
        if self._is_elsewhere(call_id):
            self._add_opaque(item)
            return
        self._end_answer()
        granted = {key: value for key, value in item.items() if key in ("approve", "reason")}
        self._results.append(ToolResult(call_id, granted, continuation=self.kept({"output": item})))

    def _content(self, output: Any, path: str) -> ToolContent:
        return output if isinstance(output, str) else tuple(self._entries(output, path))


def _is_outcome(item: Item, call: ToolCall) -> bool:
    """Whether an item is the result of this call, which the provider executed. A hosted tool search names no call."""
    if call.executed_by == "client":
        return False
    call_id = item.get("call_id")
    if call_id is not None:
        return bool(call_id == call.tool_call_id)
    assert call.continuation is not None  # every call that was read has one
    data = call.continuation.data
    stem = str(item.get("type")).removesuffix("_output")
    return "output" not in data and data["item"].get("type") in (stem, f"{stem}_call")
