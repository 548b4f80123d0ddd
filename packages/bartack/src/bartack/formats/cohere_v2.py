"""Cohere's Chat API, version 2, both ways (docs.cohere.com/reference/chat-stream).

**Requests.** What Cohere requires, and what follows from it:
- "text content is not allowed when tool_calls are provided" (github.com/vercel/ai/issues/5794): text before calls is
  sent as `tool_plan`, the field for what the model announces before it calls a tool.
- `tool_choice` is only ``REQUIRED`` or ``NONE``, and strictness is one switch for all tools. A specific tool is
  therefore requested by offering that tool alone.
- Tool results hold text only; images in them follow in a user message. Not verified.
- An output schema cannot be combined with tools (the reference, on `response_format`).
- "system turn must be the first in the list": a later system message is sent as a user message.

**Responses.** `message-start` is followed by content blocks (`content-start`, `content-delta` and `content-end` under
one index), the plan for using tools (`tool-plan-delta`), tool calls (`tool-call-start`, `-delta`, `-end`) and
citations. `message-end` is the terminal signal and has the finish reason and the usage.

**Thinking.** Content of type ``thinking`` and the tool plan both become thinking. Their continuation data records which
of the two they were, since they are sent back in different fields. Citations refer to the text by position and may
arrive between its pieces or after them, so they are collected and attached to the part's last delta.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypedDict, assert_never

import msgspec

from bartack.formats.body_values import (
    NO_OUTPUT,
    HistoryReader,
    Json,
    beyond,
    fields_at,
    items_at,
    list_at,
    message_at,
    object_at,
    object_of,
    objects_at,
    parsed_object,
    text_at,
)
from bartack.formats.decoder import Decoder, event_type
from bartack.formats.format import ALL_FEATURES, PLAIN_NAME, Format, HistoryRules
from bartack.formats.framing import Frame
from bartack.formats.losses import Losses
from bartack.formats.media import data_url, exact_data, media_type, placeholder
from bartack.formats.settings import (
    budget_of,
    labelled,
    note_settings,
    note_unsupported,
    own_extra,
    take_settings,
    with_extra,
    written_settings,
)
from bartack.formats.tools import function_tools, is_sendable_call, read_function
from bartack.formats.usage import token_count
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["FORMAT", "CohereV2", "encode", "read_request"]

_NAME = "cohere-v2"
_SETTINGS = {  # our setting -> Cohere's
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "seed": "seed",
    "stop_sequences": "stop_sequences",
}
_CHOICES = {"required": "REQUIRED", "none": "NONE"}
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))  # docs.cohere.com/docs/image-inputs
_FINISH: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}
_FAILURES = frozenset(("ERROR", "ERROR_TOXIC", "ERROR_LIMIT", "TIMEOUT"))


class CohereContinuation(TypedDict, total=False):
    """What a part keeps of its content: the decoder and the reader write it, the encoder reads it."""

    citations: list[Any]
    type: Literal["thinking", "tool_plan"]  # the field that thinking came from


# -- requests, written


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what Cohere cannot receive is added to `losses`."""
    losses.expect(CohereContinuation)
    config = request.config
    messages: list[Json] = []
    images: list[Json] = []  # images in tool results, sent after the last result of an answer's calls
    for index, message in enumerate(request.messages):
        if message.role == "tool":
            results, moved = _results(message, f"messages[{index}]", losses)
            messages += results
            images += moved
            continue
        messages += _images_of_results(images)
        images = []
        is_leading = all(earlier["role"] == "system" for earlier in messages)
        messages += _messages(message, f"messages[{index}]", losses, is_leading=is_leading)
    messages += _images_of_results(images)
    body: Json = {"model": config.model_id, "messages": messages, "stream": True}
    body |= _tools(request, losses)
    body |= written_settings(config, _SETTINGS)
    if config.output_schema is not None:
        if "tools" in body:
            losses.add("config.outputSchema", "output schema", "Cohere does not accept a schema together with tools")
        else:
            body["response_format"] = {"type": "json_object", "json_schema": config.output_schema}
    if config.thinking is not None:
        body["thinking"] = _thinking(config.thinking, losses)
    note_settings(config, losses)
    note_unsupported(config, losses, "Cohere", "parallel_tool_calls")
    return with_extra(body, own_extra(request, _NAME, losses))


def _thinking(thinking: ThinkingConfig, losses: Losses) -> Json:
    if thinking.effort == "none":
        return {"type": "disabled"}
    if thinking.effort is not None:
        why = "Cohere only takes a token budget; that for the effort is sent"
        losses.add("config.thinking.effort", f"thinking effort {thinking.effort!r}", why)
    budget = budget_of(thinking)
    return {"type": "enabled", **({} if budget is None else {"token_budget": budget})}


def _tools(request: ModelRequest, losses: Losses) -> Json:
    choice, specs = request.config.tool_choice, request.tools
    if isinstance(choice, SpecificTool):
        specs = tuple(spec for spec in specs if spec.name == choice.tool_name)
    tools = function_tools(specs, _NAME, request.config.model_id, losses)
    if not tools:
        return {}
    fields: Json = {"tools": tools}
    if any(spec.strict for spec in specs):
        fields["strict_tools"] = True
    setting = "required" if isinstance(choice, SpecificTool) else choice
    if setting in _CHOICES:
        fields["tool_choice"] = _CHOICES[setting]
    return fields


def _messages(message: Message, where: str, losses: Losses, *, is_leading: bool) -> list[Json]:
    if message.role == "assistant":
        answer = _answer(message, where, losses)
        return [{"role": "assistant", **answer}] if answer else []
    role: str = message.role
    if role == "system" and not is_leading:
        losses.add(where, "system role", "Cohere accepts system messages only at the start; sent as user text")
        role = "user"
    return [{"role": role, "content": _content(_blocks(message.parts, f"{where}.parts", losses))}]


def _content(blocks: list[Json]) -> str | list[Json]:
    """A single text as a plain string, which every model accepts."""
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _blocks(parts: tuple[Part, ...], where: str, losses: Losses) -> list[Json]:
    blocks: list[Json] = []
    for index, part in enumerate(parts):
        path = f"{where}[{index}]"
        if isinstance(part, Thinking):
            losses.add(path, "thinking", "a system message holds text only")
        elif isinstance(part, Text) and not part.ignored and part.text:
            losses.continuation(path, part.continuation)
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | FileRef):
            losses.continuation(path, part.continuation)
            block = _image(part)
            if block is None:
                why = "Cohere accepts only PNG, JPEG, GIF and WebP images, inline or from the web"
                block = {"type": "text", "text": placeholder(part, path, why, losses)}
            blocks.append(block)
    return blocks


def _image(part: Image | FileRef) -> Json | None:
    """The block of an image; None for other files, and for images that Cohere cannot read or fetch."""
    kind = media_type(part)
    if part.data:
        url = data_url(kind, part.data) if kind in _IMAGES else None
    else:
        url = part.url if kind.startswith("image/") and (part.url or "").startswith(("https://", "http://")) else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}


def _answer(message: Message, where: str, losses: Losses) -> Json:
    """The fields of an assistant message; empty if nothing of it can be sent."""
    plan: list[str] = []
    blocks: list[Json] = []
    calls: list[Json] = []
    citations: list[Any] = []
    has_calls = any(call.executed_by == "client" for call in message.tool_calls)
    for index, part in enumerate(message.parts):
        path = f"{where}.parts[{index}]"
        if isinstance(part, ToolCall):
            calls += _call(part, path, losses)
            continue
        assert isinstance(part, Text | Thinking)  # the only other parts that an assistant message may hold
        if part.ignored:
            continue
        data = losses.continuation(path, part.continuation) if isinstance(part, Text) else losses.thinking(path, part)
        if data is None:
            continue
        citations += data.get("citations", [])
        field = data.get("type", "thinking") if isinstance(part, Thinking) else "tool_plan" if has_calls else "text"
        if part.text and field == "tool_plan":
            plan.append(part.text)
        elif part.text:
            blocks.append({"type": field, field: part.text})
    if not calls and not any(block["type"] == "text" for block in blocks):
        if plan or blocks:
            losses.add(where, "thinking", "the text or call that it led to is not sent")
        return {}
    answer = {
        "content": _content(blocks) if blocks else None,
        "tool_plan": "".join(plan),
        "tool_calls": calls,
        "citations": citations,
    }
    return {key: value for key, value in answer.items() if value}


def _call(call: ToolCall, where: str, losses: Losses) -> list[Json]:
    if not is_sendable_call(call, where, losses):
        return []
    function = {"name": call.tool_name, "arguments": json_text(call.arguments)}
    return [{"id": call.tool_call_id, "type": "function", "function": function}]


def _results(message: Message, where: str, losses: Losses) -> tuple[list[Json], list[Json]]:
    """The results, and the images in them."""
    results: list[Json] = []
    images: list[Json] = []
    for index, result in enumerate(message.tool_results):
        path = f"{where}.parts[{index}]"
        losses.continuation(path, result.continuation)
        match result.content:
            case str():
                content: str | list[Json] = result.content
            case dict():
                content = json_text(result.content)
            case tuple():
                blocks = _blocks(result.content, f"{path}.content", losses)
                moved = [block for block in blocks if block["type"] == "image_url"]
                if moved:
                    losses.moved_media(path)
                images += moved
                content = _content([block for block in blocks if block["type"] != "image_url"])
            case _:
                assert_never(result.content)
        if result.is_error:
            losses.add(path, "error flag", "Cohere has none; the text of the result is sent")
        if not (content.strip() if isinstance(content, str) else content):
            content = NO_OUTPUT
        results.append({"role": "tool", "tool_call_id": result.tool_call_id, "content": content})
    return results, images


def _images_of_results(images: list[Json]) -> list[Json]:
    return [{"role": "user", "content": images}] if images else []


# -- requests, read


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    remaining = beyond(fields_at(body, "$"), "stream")
    model = text_at(remaining.pop("model", None) or model_id or None, "$.model")
    reader = _Reader(provider, model)
    wires = objects_at(remaining.pop("messages", None), "$.messages")
    messages = [reader.message(message, path) for message, path in wires]
    strict = remaining.pop("strict_tools", None)
    tools = tuple(
        read_function(tool, _NAME, path, strict=strict if isinstance(strict, bool) else None)
        for tool, path in objects_at(remaining.pop("tools", []), "$.tools")
    )
    settings = _settings(remaining)
    config = ModelConfig(model, extra=labelled(_NAME, remaining), **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tools, provider=provider)


def _settings(body: Json) -> Json:
    """Our settings, removed from the body."""
    settings = take_settings(body, _SETTINGS, "$")
    choice = next((ours for ours, theirs in _CHOICES.items() if theirs == body.get("tool_choice")), None)
    if choice is not None:
        settings["tool_choice"] = choice
        del body["tool_choice"]
    if isinstance(object_of(body, "response_format").get("json_schema"), dict):
        settings["output_schema"] = body.pop("response_format")["json_schema"]
    match body.get("thinking"):
        case {"type": "disabled"}:
            settings["thinking"] = ThinkingConfig(effort="none")
        case {"type": "enabled", "token_budget": int(budget)}:
            settings["thinking"] = ThinkingConfig(budget_tokens=budget)
        case {"type": "enabled"}:
            settings["thinking"] = ThinkingConfig()
    if "thinking" in settings:
        del body["thinking"]
    return settings


class _Reader(HistoryReader):
    """Reads messages."""

    def message(self, message: Json, path: str) -> Message:
        role: Any = text_at(message.get("role"), f"{path}.role")
        if role not in ("system", "user", "assistant", "tool"):
            raise PartValidationError(f"unknown role {role!r}", path=f"{path}.role")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        parts = [self._part(block, where, role) for block, where in objects_at(blocks, f"{path}.content")]
        if role == "tool":
            return Message("tool", (self._result(message, parts, path),))
        if message.get("tool_plan"):
            plan = text_at(message["tool_plan"], f"{path}.tool_plan")
            parts.insert(0, Thinking(plan, continuation=self.kept({"type": "tool_plan"})))
        wire_calls = items_at(message.get("tool_calls") or [], f"{path}.tool_calls")
        calls = [self._call(call, where) for call, where in wire_calls]
        if message.get("citations"):
            citations = self.kept({"citations": list_at(message["citations"], f"{path}.citations")})
            place = next((index for index, part in enumerate(parts) if isinstance(part, Text)), len(parts))
            text = parts[place].text if place < len(parts) else ""  # type: ignore[union-attr]  # a Text
            parts[place : place + 1] = [Text(text, continuation=citations)]
        return message_at(role, (*parts, *calls), path)

    def _part(self, block: Json, path: str, role: str) -> Part:
        match block:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "thinking", "thinking": str(text)}:
                return Thinking(text, continuation=self.kept({"type": "thinking"}))
            case {"type": "image_url", "image_url": {"url": str(url)}} if role in ("user", "tool"):
                inline = exact_data(url)
                return Image("image/*", url=url) if inline is None else Image(inline[0], data=inline[1])
            case {"type": "document", "document": dict(document)} if role == "tool":
                return Text(json_text(document.get("data", document)))
        raise PartValidationError(f"unknown content {block.get('type')!r} of a message of the role {role}", path=path)

    def _result(self, message: Json, parts: list[Part], path: str) -> ToolResult:
        call_id = text_at(message.get("tool_call_id"), f"{path}.tool_call_id")
        content: ToolContent
        if len(parts) == 1 and isinstance(parts[0], Text):
            content = parts[0].text
        else:
            content = tuple(part for part in parts if isinstance(part, Text | Image))
        return ToolResult(call_id, content)

    def _call(self, value: Any, path: str) -> ToolCall:
        call = object_at(value, path)
        function = object_at(call.get("function"), f"{path}.function")
        text = text_at(function.get("arguments") or "{}", f"{path}.function.arguments")
        arguments = parsed_object(text)
        return ToolCall(
            text_at(call.get("id"), f"{path}.id"),
            text_at(function.get("name"), f"{path}.function.name"),
            arguments or {},
            raw_args_text=text if arguments is None else None,
        )


# -- responses


class _Content(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    # One value at a time. Only `message-start` has lists, and they are empty.
    content: _Content | list[Any] | str | None = None
    tool_plan: str | None = None
    tool_calls: _ToolCall | list[Any] | None = None
    citations: Json | list[Any] | None = None


class _Counts(msgspec.Struct, gc=False):
    input_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct, gc=False):
    tokens: _Counts | None = None
    cached_tokens: float | None = None


class _Delta(msgspec.Struct, gc=False):
    message: _Message | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    message: str | None = None  # the message of an error body


_PLAN_INDEX = -1  # the tool plan has no index of its own


class CohereV2(Decoder):
    """Decodes the events of `/v2/chat`."""

    format: ClassVar[str] = _NAME
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Event)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._block: int | None = None  # index of the content block that is being written
        self._last_kind = ""
        self._citations: list[Json] = []

    def read(self, event: _Event, frame: Frame) -> None:
        if event.type == "content-delta":
            self._read_content(event, frame)
            return
        read = _EVENTS.get(event.type or frame.event)
        if read is not None:
            read(self, event, frame)
        elif event.message is not None:
            self.out.refused(event.message)

    def read_unparsed(self, frame: Frame) -> bool:
        return frame.data == b"[DONE]" or event_type(frame.data) not in (None, *_EVENTS)

    def read_end(self) -> None:
        self._emit_citations()
        self.truncated("message-end")

    # -- content

    def _read_content(self, event: _Event, frame: Frame) -> None:
        delta = event.delta
        if delta is None or delta.message is None:
            return
        content = delta.message.content
        if type(content) is not _Content:
            return
        if content.text:
            if event.index == self._block and self._last_kind == "text":
                self.out.text(content.text)
            else:
                self._emit("text", content.text, event.index)
        if content.thinking:
            self._emit("thinking", content.thinking, event.index, {"type": "thinking"})

    def _read_plan(self, event: _Event, frame: Frame) -> None:
        plan = _message_of(event).tool_plan
        if plan:
            self._emit("thinking", plan, _PLAN_INDEX, {"type": "tool_plan"})

    def _emit(self, kind: str, piece: str, block: int | None, origin: Json | None = None) -> None:
        is_new = block != self._block or kind != self._last_kind
        if is_new:
            self._emit_citations()
        emit = self.out.text if kind == "text" else self.out.thinking
        emit(piece, new_part=is_new and kind == self._last_kind, continuation=origin if is_new else None)
        self._block, self._last_kind = block, kind

    def _read_citation(self, event: _Event, frame: Frame) -> None:
        citation = _message_of(event).citations
        if isinstance(citation, dict) and self._pending.can_keep(citation):
            self._citations.append(citation)
            self._pending.hold(len(frame.data))

    def _emit_citations(self) -> None:
        if self._citations:
            emit = self.out.thinking if self._last_kind == "thinking" else self.out.text
            emit("", continuation={"citations": self._citations})
            self._citations = []

    # -- tool calls

    def _read_call_start(self, event: _Event, frame: Frame) -> None:
        call = _call_of(event)
        if call is None:
            return
        self._emit_citations()
        self._block, self._last_kind = None, "tool_call"
        function = call.function or _Function()
        index = event.index or 0
        self.out.open_call(index, function.name or "", provider_id=call.id)
        self.out.call_args(index, function.arguments or "")

    def _read_call_delta(self, event: _Event, frame: Frame) -> None:
        call = _call_of(event)
        if call is not None and call.function is not None:
            self.out.call_args(event.index or 0, call.function.arguments or "")

    def _read_call_end(self, event: _Event, frame: Frame) -> None:
        self.out.close_call(event.index or 0)

    # -- the message

    def _read_start(self, event: _Event, frame: Frame) -> None:
        self.out.start(None, event.id)

    def _read_message_end(self, event: _Event, frame: Frame) -> None:
        self._emit_citations()
        delta = event.delta or _Delta()
        if delta.usage is not None and delta.usage.tokens is not None:
            counts, cached = delta.usage.tokens, delta.usage.cached_tokens
            # `billed_units` beside it is what is charged, not what was read: 46 of 1,445 input tokens in
            # recordings/cohere-v2/ai--cohere-empty-tool-call--0-9bac6b.
            self.out.usage(
                Usage(
                    token_count(counts.input_tokens) or 0,
                    token_count(counts.output_tokens) or 0,
                    cache_read_tokens=token_count(cached),
                    reasoning_tokens=token_count(counts.reasoning_tokens),
                )
            )
        reason = delta.finish_reason
        if delta.error or reason in _FAILURES:
            self.out.refused(delta.error or f"The model stopped with {reason}.", raw_code=reason)
            return
        self.out.finish(_FINISH.get(reason or "", "other"), reason)
        self.out.done()


def _message_of(event: _Event) -> _Message:
    return (event.delta and event.delta.message) or _Message()


def _call_of(event: _Event) -> _ToolCall | None:
    call = _message_of(event).tool_calls
    return call if type(call) is _ToolCall else None


def _skip(decoder: CohereV2, event: _Event, frame: Frame) -> None:
    pass


_EVENTS: dict[str, Callable[[CohereV2, _Event, Frame], None]] = {
    "content-delta": CohereV2._read_content,
    "content-start": CohereV2._read_content,
    "content-end": _skip,
    "tool-plan-delta": CohereV2._read_plan,
    "tool-call-start": CohereV2._read_call_start,
    "tool-call-delta": CohereV2._read_call_delta,
    "tool-call-end": CohereV2._read_call_end,
    "citation-start": CohereV2._read_citation,
    "citation-end": _skip,
    "message-start": CohereV2._read_start,
    "message-end": CohereV2._read_message_end,
}


FORMAT = Format(
    decoder=CohereV2,
    encode=encode,
    read_request=read_request,
    rules=HistoryRules(
        # "message must be at least 1 token long or tool results must be specified", "message must not be empty in a
        # turn". Which tool names it accepts is not documented.
        merge_same_role=False,
        starts_with_user=False,
        call_id_pattern=None,
        tool_name_pattern=PLAIN_NAME,
        allows_user_after_tool=True,
    ),
    # Without tools a schema is enforced; with tools it is refused.
    features=ALL_FEATURES - {"files", "prompt_caching", "output_schema"},
    event_types=("message-start",),
)
