"""The body of a Chat Completions request to a `ModelRequest`, the inverse of `encode`.

Nothing is lost. Unknown settings stay in `ModelConfig.extra`; unknown fields of messages, pieces and calls become
continuation data of the part they belong to; tools that are not functions stay as they are. A call without an id gets
one made from its position. Null is the same as a missing field.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from bartack.formats.body_values import (
    HistoryReader,
    beyond,
    fields_at,
    list_at,
    number_at,
    object_at,
    object_of,
    objects_at,
    optional_text_at,
    parsed_object,
    text_at,
    text_of,
)
from bartack.formats.openai import custom_spec
from bartack.formats.openai_chat.capabilities import capabilities_of
from bartack.formats.openai_chat.content import decode_content
from bartack.formats.openai_chat.settings import NAME, response_format
from bartack.formats.settings import WORDS, labelled, refuse_several_answers, with_exact
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import ROLE_PARTS, Message, Role
from bartack.nouns.parts import ContentPart, Continuation, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]

Json = dict[str, Any]

_THINKING = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget")


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes. Raises `PartValidationError` with the path for a body of another format."""
    body = fields_at(body, "$")
    model = text_at(body.pop("model", model_id or None), "$.model")
    reader = _Reader(provider, model)
    wires = objects_at(body.pop("messages", None), "$.messages")
    messages = tuple(reader.message(wire, path, index) for index, (wire, path) in enumerate(wires))
    declared = objects_at(body.pop("tools", []), "$.tools")
    tools = tuple(_read_tool(tool, path, provider, model) for tool, path in declared)
    return ModelRequest(messages=messages, tools=tools, config=_read_config(body, model, provider), provider=provider)


# -- messages


class _Reader(HistoryReader):
    """Reads messages in order."""

    def __init__(self, provider: str, model_id: str) -> None:
        super().__init__(provider, model_id)
        self._unanswered: list[str] = []  # calls without a result so far
        self._path = "$"

    def message(self, wire: Json, path: str, index: int) -> Message:
        self._path = path
        wire = fields_at(wire, path)
        role = text_at(wire.pop("role", None), f"{self._path}.role")
        match role:
            case "system" | "developer":
                parts = self._content(wire.pop("content", None), "system")
                extra = wire if role == "system" else {**wire, "role": role}
                return Message("system", self._with_others(parts, extra))
            case "user":
                return Message("user", self._with_others(self._content(wire.pop("content", None), "user"), wire))
            case "assistant":
                return Message("assistant", self._with_others(list(self._answer(wire, index)), wire))
            case "tool" | "function":
                return Message("tool", (self._result(wire, role),))
        raise PartValidationError(f"unknown role {role!r}", path=f"{self._path}.role")

    def _with_others(self, parts: Sequence[Part], extra: Json) -> tuple[Part, ...]:
        """The parts, with the unknown fields of the message as continuation data of the first."""
        if not extra:
            return tuple(parts)
        if not parts:
            return (Text("", continuation=self.kept({"message": extra})),)
        return (self.kept_on(parts[0], {"message": extra}), *parts[1:])

    def _content(self, content: Any, role: Role) -> list[Part]:
        if isinstance(content, str):
            return [Text(content)]
        pieces = objects_at([] if content is None else content, f"{self._path}.content")
        return [self._piece(piece, role) for piece, _ in pieces]

    def _piece(self, piece: Json, role: Role) -> Part:
        is_thinking = piece.get("type") == "thinking"
        part = self._thinking(piece) if is_thinking else decode_content(piece, self.provider, self.model_id)
        if isinstance(part, ROLE_PARTS[role]):
            return part
        return Text("", continuation=self.kept({"content": piece}))

    def _thinking(self, piece: Json) -> Thinking:
        inner = piece.get("thinking")
        texts = [item.get("text") for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []
        text = "".join(text for text in texts if isinstance(text, str))
        data: Json = {"field": "content"}
        if inner != [{"type": "text", "text": text}]:
            data["thinking"] = inner
        extra = beyond(piece, "type", "thinking")
        return Thinking(text, continuation=self.kept({**data, **({"chunk": extra} if extra else {})}))

    def _answer(self, wire: Json, index: int) -> Iterator[Part]:
        details = wire.pop("reasoning_details", None)
        thought = {name: wire.pop(name) for name in ("reasoning_content", "reasoning") if name in wire}
        if details is not None:
            details = list_at(details, f"{self._path}.reasoning_details")
            texts = [detail.get("text") or detail.get("summary") for detail in details if isinstance(detail, dict)]
            text = "".join(text for text in texts if isinstance(text, str))
            yield Thinking(text, continuation=self.kept({"reasoning_details": details}))
        for name, text in thought.items():
            where = f"{self._path}.{name}"
            yield Thinking(text_at(text, where), continuation=self.kept({"field": name}))
        for part in self._content(wire.pop("content", None), "assistant"):
            if part != Text(""):
                yield part
        if "refusal" in wire:
            refusal = text_at(wire.pop("refusal"), f"{self._path}.refusal")
            yield Text(refusal, continuation=self.kept({"field": "refusal"}))
        yield from self._calls(wire, index)

    def _calls(self, wire: Json, index: int) -> Iterator[ToolCall]:
        self._unanswered = []
        calls = objects_at(wire.pop("tool_calls", []), f"{self._path}.tool_calls")
        for number, (call, path) in enumerate(calls):
            yield self._call(dict(call), f"call-{index}-{number}", path)
        if "function_call" in wire:
            function = object_at(wire.pop("function_call"), f"{self._path}.function_call")
            data = {"field": "function_call"}
            yield self._function(function, f"call-{index}", data, f"{self._path}.function_call")

    def _call(self, call: Json, made_id: str, path: str) -> ToolCall:
        call_id = text_at(call.pop("id", None) or made_id, f"{path}.id")
        kind = call.pop("type", "function")
        extra = call.pop("extra_content", None)
        function = call.pop("function", None)
        data: Json = {"extra_content": extra} if extra is not None else {}
        if kind == "custom":
            custom = object_at(call.pop("custom", None), f"{path}.custom")
            self._unanswered.append(call_id)
            return ToolCall(
                call_id,
                text_at(custom.get("name"), f"{path}.custom.name"),
                {"input": text_at(custom.get("input"), f"{path}.custom.input")},
                continuation=self.kept({"type": "custom", **data, **({"call": call} if call else {})}),
            )
        data = {**data, **({"call": call} if call else {})}
        return self._function(object_at(function, f"{path}.function"), call_id, data, f"{path}.function")

    def _function(self, function: Json, call_id: str, data: Json, path: str) -> ToolCall:
        self._unanswered.append(call_id)
        arguments, raw = _arguments(function.get("arguments"))
        return ToolCall(
            call_id,
            text_at(function.get("name"), f"{path}.name"),
            arguments,
            raw_args_text=raw,
            continuation=self.kept(data),
        )

    def _result(self, wire: Json, role: str) -> ToolResult:
        """A result. One without a call id belongs to the first call that has no result yet."""
        reported_id = wire.pop("tool_call_id", None) if role == "tool" else None
        call_id = reported_id or next(iter(self._unanswered), None)
        if call_id is None:
            raise PartValidationError("the result belongs to no call", path=self._path)
        if call_id in self._unanswered:
            self._unanswered.remove(call_id)
        if role == "function":
            wire.pop("name", None)
        content = wire.pop("content", "")
        # A result may hold the same kinds of content as a user message.
        parts = [part for part in self._content(content, "user") if isinstance(part, ContentPart)]
        return ToolResult(
            text_at(call_id, f"{self._path}.tool_call_id"),
            content if isinstance(content, str) else tuple(parts),
            continuation=self.kept({"message": wire} if wire else {}),
        )


def _arguments(raw: Any) -> tuple[Json, str | None]:
    """The arguments, and their text if it is not a JSON object."""
    if isinstance(raw, dict):
        return raw, None
    text = raw if isinstance(raw, str) else ""
    value = parsed_object(text or "{}")
    return ({}, text) if value is None else (value, None)


# -- tools and settings


def _read_tool(tool: Json, path: str, provider: str, model: str) -> ToolSpec:
    kind = tool.get("type", "function")
    if kind == "custom":
        custom = object_at(tool.get("custom"), f"{path}.custom")
        return custom_spec(NAME, text_at(custom.get("name"), f"{path}.custom.name"), custom, tool)
    if kind != "function":
        return ToolSpec(str(tool.get("name") or kind), {}, native=Continuation(provider, model, tool))
    function = object_at(tool.get("function"), f"{path}.function")
    extra = {key: value for key, value in tool.items() if key not in ("type", "function") and value is not None}
    strict = function.get("strict")
    return ToolSpec(
        text_at(function.get("name"), f"{path}.function.name"),
        object_at(function.get("parameters") or {}, f"{path}.function.parameters"),
        description=optional_text_at(function.get("description"), f"{path}.function.description"),
        strict=None if strict is None else bool(strict),
        extra=labelled(NAME, extra),
    )


def _read_config(body: Json, model: str, provider: str) -> ModelConfig:
    refuse_several_answers(body.pop("n", None), "$.n")
    body.pop("stream", None)
    options = beyond(object_of(body, "stream_options"), "include_usage")
    body.pop("stream_options", None)
    if options:
        body["stream_options"] = options
    limits = [_take_number(body, name) for name in ("max_completion_tokens", "max_tokens")]
    seed = capabilities_of(provider).seed
    parallel = body.pop("parallel_tool_calls") if isinstance(body.get("parallel_tool_calls"), bool) else None
    return ModelConfig(
        model,
        temperature=_take_number(body, "temperature"),
        top_p=_take_number(body, "top_p"),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        stop_sequences=_take_stop(body),
        seed=None if seed is None else _take_number(body, seed),
        tool_choice=_take_tool_choice(body),
        parallel_tool_calls=parallel,
        thinking=_take_thinking(body, provider),
        output_schema=_take_schema(body, provider),
        extra=labelled(NAME, body),
    )


def _take_number(body: Json, name: str) -> Any:
    value = body.pop(name, None)
    return None if value is None else number_at(value, f"$.{name}")


def _take_stop(body: Json) -> tuple[str, ...] | None:
    stop = body.pop("stop", None)
    if stop is None:
        return None
    return tuple(
        text_at(sequence, "$.stop") for sequence in ([stop] if isinstance(stop, str) else list_at(stop, "$.stop"))
    )


def _take_tool_choice(body: Json) -> ToolChoice | None:
    choice = body.get("tool_choice")
    if choice == "any":  # Mistral's spelling
        choice = "required"
    if choice in ("auto", "required", "none"):
        del body["tool_choice"]
        return cast(ToolChoice, choice)
    match choice:
        case {"type": "function", "function": {"name": str(name), **rest}} if not rest:
            del body["tool_choice"]
            return SpecificTool(name)
    return None


def _take_thinking(body: Json, provider: str) -> ThinkingConfig | None:
    """The thinking settings, if the body has them in the form that we would write and with no other fields."""
    vendor = capabilities_of(provider)
    efforts: dict[Any, Any] = {word: word if word in vendor.efforts else ours for ours, word in vendor.efforts.items()}
    match vendor.thinking, body:
        case "reasoning_effort", {"reasoning_effort": str(word)} if word in efforts:
            return ThinkingConfig(effort=efforts[body.pop("reasoning_effort")])
        case "reasoning", {"reasoning": {"effort": str(word), **rest}} if word in efforts and not rest:
            return ThinkingConfig(effort=efforts[body.pop("reasoning")["effort"]])
        case "reasoning", {"reasoning": {"max_tokens": int(), **rest}} if not rest:
            return ThinkingConfig(budget_tokens=body.pop("reasoning")["max_tokens"])
        case "thinking", {"thinking": {"type": "disabled", **rest}} if not rest:
            del body["thinking"]
            return ThinkingConfig(effort="none")
        case "thinking", {"thinking": {"type": "enabled", **rest}} if not rest:
            del body["thinking"]
            word = text_of(body, "reasoning_effort")
            return ThinkingConfig(effort=efforts[body.pop("reasoning_effort")] if word in efforts else None)
        case "enable_thinking", {"enable_thinking": bool(is_on)}:
            del body["enable_thinking"]
            budget = _take_number(body, "thinking_budget")
            return ThinkingConfig(effort=None if is_on else "none", budget_tokens=budget)
    return _foreign_thinking(body)


def _foreign_thinking(body: Json) -> ThinkingConfig | None:
    """The thinking settings in the form of another vendor, or with other fields; they keep that form."""
    exact = {name: body[name] for name in _THINKING if name in body}
    match exact:
        case {"reasoning_effort": str(word)} | {"reasoning": {"effort": str(word)}} if word in WORDS:
            thinking = ThinkingConfig(effort=WORDS[word])
        case {"thinking": {"type": "disabled"}} | {"enable_thinking": False} | {"reasoning": {"enabled": False}}:
            thinking = ThinkingConfig(effort="none")
        case {"thinking": {"budget_tokens": int(budget)}} | {"reasoning": {"max_tokens": int(budget)}}:
            thinking = ThinkingConfig(budget_tokens=budget)
        case (
            {"thinking": {"type": "enabled" | "adaptive"}}
            | {"enable_thinking": True}
            | {"reasoning": {"enabled": True}}
        ):
            limit = exact.get("thinking_budget")
            thinking = ThinkingConfig(budget_tokens=limit if type(limit) is int else None)
        case _:
            return None
    for name in exact:
        del body[name]
    return with_exact(thinking, NAME, exact)


def _take_schema(body: Json, provider: str) -> Json | None:
    """The output schema. A body that requests it in another form than ours keeps that form as well."""
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            if response_format(schema, capabilities_of(provider)) == body["response_format"]:
                del body["response_format"]
            return schema
    return None
