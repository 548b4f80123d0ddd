"""The body of Anthropic's Messages API to a `ModelRequest`.

Nothing is lost: fields that no noun has stay with their part, tool or configuration under Anthropic's names, and are
written back from there. A block that no part can represent (a search result, a file by its id, a directive) is carried
whole by a part with its text, if it has any.

**Client details.** Claude Code adds to its requests what is for Anthropic alone, and what models of other providers
should not see (`without_client_details`):

- The first system text is a line about billing, which changes with every request: no cache of a prompt would hit.
- Tools with `defer_loading` are hidden from Claude until a search of the client has found them. The result of the
  search names them in `tool_reference` blocks. Other providers would show all of them from the start, so a tool is
  declared once it was found or called.
- A placeholder stands for the hidden tools while there are none.

Everything else that only Anthropic has is labelled as such, and encoders report it.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from bartack.formats.anthropic_messages.blocks import INVALID_JSON, UNNAMED_DOCUMENT
from bartack.formats.anthropic_messages.capabilities import NAME, claude, thinking_fields
from bartack.formats.anthropic_messages.decode import readable_result
from bartack.formats.body_values import HistoryReader, beyond, object_at, object_of, objects_at, text_at, text_of
from bartack.formats.losses import Loss
from bartack.formats.output_schemas import claude_schema
from bartack.formats.settings import WORDS, labelled, with_exact
from bartack.formats.tools import read_spec
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import (
    ContentPart,
    Continuation,
    FileRef,
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolContent,
    ToolResult,
)
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request", "without_client_details"]

Json = dict[str, Any]

_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_ROLES = ("user", "assistant", "system")


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    body = object_at(body, "$")
    model = text_at(body.get("model") or model_id or None, "$.model")
    reader = _Reader(provider, model)
    messages: list[Message] = []
    if body.get("system") is not None:
        messages.append(Message("system", reader.contents(body["system"], "$.system")))
    for turn, path in objects_at(body.get("messages"), "$.messages"):
        messages += reader.turn(turn, path)
    tools = tuple(reader.tool(tool, path) for tool, path in objects_at(body.get("tools") or [], "$.tools"))
    config = _config(beyond(body, "model", "messages", "system", "tools", "stream"), model)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


class _Reader(HistoryReader):
    """Reads messages and tools."""

    def _kept_beyond(self, block: Json, *handled: str) -> Continuation | None:
        return self.kept(beyond(block, *handled))

    # -- messages

    def contents(self, content: Any, path: str) -> tuple[ContentPart, ...]:
        return tuple(self._content(block, where) for block, where in _blocks(content, path))

    def turn(self, turn: Json, path: str) -> list[Message]:
        role = turn.get("role")
        if role not in _ROLES:
            raise PartValidationError(f"unknown role {role!r}; expected {', '.join(_ROLES)}", path=f"{path}.role")
        fields = beyond(turn, "role", "content")
        if role == "system":
            messages = [Message("system", self.contents(turn.get("content"), f"{path}.content"))]
        else:
            blocks = _blocks(turn.get("content"), f"{path}.content")
            is_answer = role == "assistant"
            messages = [Message("assistant", tuple(self._answer(blocks)))] if is_answer else self._user(blocks)
        return self._with_fields(messages, fields) if fields and messages and messages[0].parts else messages

    def _with_fields(self, messages: list[Message], fields: Json) -> list[Message]:
        """The messages of a turn, whose other fields (Claude Code's `output_config`, say) the first part keeps."""
        first, *parts = messages[0].parts
        return [replace(messages[0], parts=(self.kept_on(first, {"turn": fields}), *parts)), *messages[1:]]

    def _user(self, blocks: list[tuple[Json, str]]) -> list[Message]:
        """Tool results and other content as separate messages, in their order."""
        messages: list[Message] = []
        for block, path in blocks:
            is_result = block.get("type") == "tool_result"
            part: Part = self._result(block, path) if is_result else self._content(block, path)
            role: Any = "tool" if is_result else "user"
            if messages and messages[-1].role == role:
                messages[-1] = Message(role, (*messages[-1].parts, part))
            else:
                messages.append(Message(role, (part,)))
        return messages

    def _result(self, block: Json, path: str) -> ToolResult:
        value = block.get("content")
        content: ToolContent = value if isinstance(value, str) else ""
        if isinstance(value, list):
            content = self.contents(value, f"{path}.content")
        return ToolResult(
            text_at(block.get("tool_use_id"), f"{path}.tool_use_id"),
            content,
            is_error=block.get("is_error") is True,
            continuation=self._kept_beyond(block, "type", "tool_use_id", "content", "is_error"),
        )

    # -- content

    def _content(self, block: Json, path: str) -> ContentPart:
        kind, source = block.get("type"), block.get("source")
        if kind == "text":
            return self._text(block, path)
        part: ContentPart | None = None
        if kind == "image" and isinstance(source, dict):
            part = self._image(block, source)
        elif kind == "document" and isinstance(source, dict):
            part = self._document(block, source)
        return self._carrier(block) if part is None else part

    def _text(self, block: Json, path: str) -> Text:
        text = text_at(block.get("text"), f"{path}.text")
        return Text(text, continuation=self._kept_beyond(block, "type", "text"))

    def _image(self, block: Json, source: Json) -> Image | None:
        continuation = self._kept_beyond(block, "type", "source")
        if source.get("type") == "url":
            return Image("image/*", url=text_of(source, "url"), continuation=continuation)
        data = _bytes_of(source)
        return None if data is None else Image(text_of(source, "media_type"), data=data, continuation=continuation)

    def _document(self, block: Json, source: Json) -> FileRef | None:
        title = text_of(block, "title")
        path = title or UNNAMED_DOCUMENT
        continuation = self._kept_beyond(block, "type", "source", *(("title",) if title else ()))
        if source.get("type") == "url":
            return FileRef(path, mime_type="application/pdf", url=text_of(source, "url"), continuation=continuation)
        if source.get("type") == "text" and source.get("media_type") == "text/plain":
            text = text_of(source, "data").encode("utf-8", "replace")
            return FileRef(path, mime_type="text/plain", data=text, continuation=continuation)
        data = _bytes_of(source)
        if data is None or source.get("media_type") != "application/pdf":
            return None
        return FileRef(path, mime_type="application/pdf", data=data, continuation=continuation)

    def _carrier(self, block: Json) -> Text | FileRef:
        """A part that carries a whole block."""
        continuation = self.kept({"block": block})
        source = block.get("source")
        file_id = block.get("file_id") or (source.get("file_id") if isinstance(source, dict) else None)
        if isinstance(file_id, str):
            return FileRef(file_id, continuation=continuation)
        if block.get("type") == "tool_reference" and text_of(block, "tool_name"):
            return Text(f"The tool {block['tool_name']} is available.", continuation=continuation)
        content = (source if isinstance(source, dict) else block).get("content")
        items = content if isinstance(content, list) else []
        texts = [text for item in items if isinstance(item, dict) and (text := text_of(item, "text"))]
        return Text("\n".join(texts), continuation=continuation)

    # -- the assistant's blocks

    def _answer(self, blocks: list[tuple[Json, str]]) -> list[Part]:
        parts: list[Part] = []
        unanswered: dict[str, int] = {}  # provider calls without a result -> their index
        for block, path in blocks:
            kind = text_of(block, "type")
            index = unanswered.pop(text_of(block, "tool_use_id"), None) if kind.endswith("_tool_result") else None
            if index is not None:
                parts[index] = self._answered(parts[index], block)
                if index != len(parts) - 1:
                    parts.append(Thinking("", continuation=self.kept({"resultOf": block["tool_use_id"]})))
                continue
            part = self._part(kind, block, path)
            if isinstance(part, ToolCall) and part.executed_by == "provider":
                unanswered[part.tool_call_id] = len(parts)
            parts.append(part)
        return parts

    def _part(self, kind: str, block: Json, path: str) -> Text | Thinking | ToolCall:
        match kind:
            case "text":
                return self._text(block, path)
            case "thinking":
                text = text_at(block.get("thinking"), f"{path}.thinking")
                return Thinking(text, continuation=self._kept_beyond(block, "type", "thinking"))
            case "redacted_thinking":
                return Thinking("", continuation=self.kept(block))
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                return self._call(kind, block, path)
            case _:
                return Thinking("", continuation=self.kept({"block": block}))

    def _call(self, kind: str, block: Json, path: str) -> ToolCall:
        arguments = object_at(block.get("input"), f"{path}.input")
        handled = ("id", "name", "input", *(("type",) if kind == "tool_use" else ()))
        raw = arguments.get(INVALID_JSON) if list(arguments) == [INVALID_JSON] else None
        return ToolCall(
            text_at(block.get("id"), f"{path}.id"),
            text_at(block.get("name"), f"{path}.name"),
            {} if isinstance(raw, str) else arguments,
            raw_args_text=raw if isinstance(raw, str) else None,
            executed_by="client" if kind == "tool_use" else "provider",
            continuation=self._kept_beyond(block, *handled),
        )

    def _answered(self, call: Part, block: Json) -> ToolCall:
        assert isinstance(call, ToolCall)
        content, is_error = readable_result(block)
        result = ToolResult(call.tool_call_id, content, is_error=is_error)
        answered: ToolCall = self.kept_on(replace(call, result=result), {"result": block})
        return answered

    # -- tools

    def tool(self, tool: Json, path: str) -> ToolSpec:
        if tool.get("type") not in (None, "custom"):
            name = text_of(tool, "name") or text_of(tool, "mcp_server_name") or text_of(tool, "type")
            return ToolSpec(name, {}, native=self.kept(tool))
        strict = tool["strict"] if isinstance(tool.get("strict"), bool) else None
        return read_spec(tool, NAME, path, tool.get("input_schema"), "input_schema", "strict", strict=strict)


def _blocks(content: Any, path: str) -> list[tuple[Json, str]]:
    """Content blocks with their paths; a string is short for one text block."""
    if isinstance(content, str):
        return [({"type": "text", "text": content}, path)]
    return list(objects_at(content, path))


def _bytes_of(source: Json) -> bytes | None:
    """The bytes of a base64 source, if encoding them again gives the same text."""
    text = text_of(source, "data")
    if source.get("type") != "base64":
        return None
    try:
        data = b64decode(text, validate=True)
    except ValueError:  # not base64, or not ASCII
        return None
    return data if b64encode(data).decode() == text else None


# -- configuration


def _config(settings: Json, model: str) -> ModelConfig:
    """The configuration; settings that it has no field for are kept in `extra`, which overrides the fields."""
    if not settings:
        return _config_of(model)
    remaining = dict(settings)
    fields: Json = {}
    for key in ("max_tokens", "temperature", "top_p"):
        if isinstance(remaining.get(key), int | float) and (key != "max_tokens" or remaining[key] > 0):
            fields[key] = remaining.pop(key)
    if isinstance(remaining.get("stop_sequences"), list):
        fields["stop_sequences"] = tuple(remaining.pop("stop_sequences"))
    _take_choice(remaining, fields)
    _take_output(remaining, fields, model)
    return ModelConfig(model, extra=labelled(NAME, remaining), **fields)


@lru_cache(maxsize=64)
def _config_of(model: str) -> ModelConfig:
    """The configuration without settings, made once: transcripts are read message by message."""
    return ModelConfig(model)


def _take_choice(remaining: Json, fields: Json) -> None:
    choice = remaining.get("tool_choice")
    if not isinstance(choice, dict) or not choice.keys() <= {"type", "name", "disable_parallel_tool_use"}:
        return
    kind, name = choice.get("type"), choice.get("name")
    if kind == "tool" and isinstance(name, str):
        fields["tool_choice"] = SpecificTool(name)
    elif isinstance(kind, str) and kind in _CHOICES:
        fields["tool_choice"] = _CHOICES[kind]
    else:
        return
    del remaining["tool_choice"]
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        fields["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _take_output(remaining: Json, fields: Json, model: str) -> None:
    """Take `output_config` and `thinking`. Thinking that we would request differently keeps its exact form as well."""
    output = dict(remaining["output_config"]) if isinstance(remaining.get("output_config"), dict) else {}
    config = _thinking_config(remaining.get("thinking"), output.get("effort"))
    if config is not None:
        thinking, effort = remaining.pop("thinking", None), output.pop("effort", None)
        encoded = thinking_fields(config, claude(model), fields.get("max_tokens", 0))
        if (encoded.thinking, encoded.effort) != (thinking, effort):
            exact = {} if thinking is None else {"thinking": thinking}
            exact |= {} if effort is None else {"output_config": {"effort": effort}}
            config = with_exact(config, NAME, exact)
        fields["thinking"] = config
    form = output.get("format")
    if isinstance(form, dict) and form.keys() == {"type", "schema"} and claude(model).takes_schema:
        fields["output_schema"] = form["schema"]
        is_changed = isinstance(form["schema"], dict) and claude_schema(form["schema"]) != form["schema"]
        if not (is_changed and claude(model).family):
            del output["format"]
    if "output_config" in remaining:
        del remaining["output_config"]
        if output:
            remaining["output_config"] = output


def _thinking_config(thinking: Any, effort: Any) -> ThinkingConfig | None:
    """What the fields ask for. Claude's default effort is high (docs.claude.com, "Effort")."""
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    level = WORDS.get(effort) if isinstance(effort, str) else None
    match kind:
        case "enabled":
            budget = thinking.get("budget_tokens")
            return ThinkingConfig(budget_tokens=budget, effort=level) if type(budget) in (int, type(None)) else None
        case "disabled":
            return ThinkingConfig(effort="none")
        case "adaptive":
            return ThinkingConfig(effort=level or "high")
        case None if thinking is None and level is not None:
            return ThinkingConfig(effort=level)
    return None


# -- a request for a model of another provider


_FORMAT = NAME
_BILLING = "x-anthropic-billing-header:"
_PLACEHOLDER = "DeferredToolPlaceholder"


def without_client_details(request: ModelRequest) -> tuple[ModelRequest, tuple[Loss, ...]]:
    """A request that was read from Anthropic's format, for a model of another provider; and what was left out of it."""
    losses: list[Loss] = []
    messages = tuple(_without_billing(request.messages, losses))
    available = set(_available_tools(request.messages))
    tools = []
    for index, spec in enumerate(request.tools):
        if spec.name == _PLACEHOLDER or (_is_deferred(spec) and spec.name not in available):
            why = "it is a placeholder" if spec.name == _PLACEHOLDER else "the client's search has not found it yet"
            losses.append(Loss(where=f"tools[{index}]", what=f"tool {spec.name}", why=why))
        else:
            tools.append(_loaded(spec))
    return replace(request, messages=messages, tools=tuple(tools)), tuple(losses)


def _without_billing(messages: Sequence[Message], losses: list[Loss]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        first = message.parts[0] if message.role == "system" and message.parts else None
        if not isinstance(first, Text) or not first.text.startswith(_BILLING):
            yield message
            continue
        why = "it is meant for Anthropic, and changes with every request"
        losses.append(Loss(where=f"history[{index}].parts[0]", what="billing line", why=why))
        if message.parts[1:]:
            yield replace(message, parts=message.parts[1:])


def _available_tools(messages: Sequence[Message]) -> Iterator[str]:
    """The names of the tools that were called, or found by a search."""
    for message in messages:
        for call in message.tool_calls:
            yield call.tool_name
        for result in message.tool_results:
            for part in result.content if isinstance(result.content, tuple) else ():
                data = {} if part.continuation is None else part.continuation.data
                yield text_of(object_of(data, "block"), "tool_name")


def _is_deferred(spec: ToolSpec) -> bool:
    return object_of(spec.extra or {}, _FORMAT).get("defer_loading") is True


def _loaded(spec: ToolSpec) -> ToolSpec:
    """The tool without the mark that hides it, which is no loss."""
    if not _is_deferred(spec):
        return spec
    fields = {name: value for name, value in object_of(spec.extra or {}, _FORMAT).items() if name != "defer_loading"}
    return replace(spec, extra={**(spec.extra or {}), _FORMAT: fields})
