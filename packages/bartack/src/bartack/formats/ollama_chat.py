"""Ollama's own chat API (docs.ollama.com/api/chat), both ways.

**Requests.** Ollama is lenient: roles need not alternate, system messages may appear anywhere, unknown keys are
ignored. It has no tool choice (for ``none`` the tools are omitted), no flag for failed results, and accepts images
inline only. Sampling settings are part of `options`.

Servers before 0.12.10 neither send nor read call ids (github.com/ollama/ollama/issues/6708): they match results by
order and by `tool_name`. Ids are sent anyway, for newer servers. A reader gives calls without one an id, and a result
without one to the first call that has none yet.

**Responses.** The stream is one JSON object per line, each with a piece of the message. A line with `done` is the
terminal signal. It may have content, too, and it has the usage. A tool call arrives whole, its arguments as an object;
older servers send no id for it (recordings/ollama-chat/prism--ollama-stream-with-tools-1--0-19651c). A server that
fails in mid-stream sends `error`, which has a message and no code. Ollama's clients parse every line, so a writer keeps
a connection alive with a line without content.

**Thinking** carries empty continuation data under `_THINKING`: it marks text that came in this field, so that the
encoder may send it back there. Other thinking is not sent.
"""

from base64 import b64encode
from collections.abc import Iterable
from itertools import count
from typing import Any, ClassVar, assert_never, get_args

import msgspec

from bartack.formats.body_values import (
    Json,
    beyond,
    bytes_at,
    fields_at,
    items_at,
    message_at,
    object_at,
    object_of,
    objects_at,
    present,
    text_at,
)
from bartack.formats.decoder import Decoder
from bartack.formats.format import ALL_FEATURES, Format, HistoryRules
from bartack.formats.framing import Frame, FramingName
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, placeholder
from bartack.formats.response_writer import (
    ErrorResponse,
    WholeCallWriter,
    WrittenCall,
    WrittenText,
    error_kind,
)
from bartack.formats.settings import (
    WORDS,
    effort_of,
    labelled,
    note_settings,
    note_unsupported,
    own_extra,
    take_settings,
    with_extra,
    written_settings,
)
from bartack.formats.tools import function_tools, is_sendable_call, read_function, used_tools
from bartack.formats.usage import token_count
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.deltas import Done, Failed, FinishReason, Usage
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text, write_time_text
from bartack.nouns.messages import Message, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["FORMAT", "OllamaChat", "OllamaWriter", "encode", "read_request"]

_NAME = "ollama-chat"
_THINKING = "thinking"  # the key of continuation data that marks thinking as Ollama's own
_OPTIONS = {  # our setting -> Ollama's option
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop_sequences": "stop",
}
_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}  # "load" and "unload" come without an answer
_IMAGES = frozenset(("image/png", "image/jpeg", "image/webp"))  # the decoders in its server; not verified


# -- requests, written


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what Ollama cannot receive is added to `losses`."""
    config = request.config
    names = {call.tool_call_id: call.tool_name for message in request.messages for call in message.tool_calls}
    messages: list[Json] = []
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]", names, losses)
    body: Json = {"model": config.model_id, "messages": messages, "stream": True}
    tools = function_tools(request.tools, _NAME, config.model_id, losses)
    for index, spec in enumerate(request.tools):
        if spec.strict and spec.is_function:
            losses.add(f"tools[{index}].strict", "strict arguments", "not supported by Ollama")
    if tools and config.tool_choice != "none":
        body["tools"] = tools
    body |= present(
        options=written_settings(config, _OPTIONS) or None,
        format=config.output_schema,
        think=None if config.thinking is None else _think(config.thinking, losses),
    )
    if config.tool_choice not in (None, "auto", "none"):
        losses.add("config.toolChoice", "required tool call", "Ollama has no tool choice")
    note_settings(config, losses)
    note_unsupported(config, losses, "Ollama", "parallel_tool_calls")
    return with_extra(body, own_extra(request, _NAME, losses))


def _think(thinking: ThinkingConfig, losses: Losses) -> bool | str:
    if thinking.budget_tokens is not None:
        why = "Ollama only takes an effort; the nearest one is sent"
        losses.add("config.thinking.budgetTokens", "thinking budget", why)
    effort = effort_of(thinking)
    if effort is None or effort == "none":
        return effort is None
    return "low" if effort == "minimal" else effort


def _messages(message: Message, where: str, names: dict[str, str], losses: Losses) -> list[Json]:
    match message.role:
        case "tool":
            numbered = enumerate(message.tool_results)
            return [_written_result(result, f"{where}.parts[{index}]", names, losses) for index, result in numbered]
        case "assistant":
            answer = _answer(message, where, losses)
            return [{"role": "assistant", **answer}] if answer else []
        case "system" | "user":
            return [{"role": message.role, **_content(message.parts, f"{where}.parts", losses)}]
        case _:
            assert_never(message.role)


def _content(parts: tuple[Part, ...], where: str, losses: Losses) -> Json:
    texts: list[str] = []
    images: list[str] = []
    for index, part in enumerate(parts):
        path = f"{where}[{index}]"
        if isinstance(part, Thinking):
            losses.add(path, "thinking", "a system message holds text only")
        elif isinstance(part, Text) and not part.ignored:
            losses.continuation(path, part.continuation)
            texts.append(part.text)
        elif isinstance(part, Image | FileRef):
            losses.continuation(path, part.continuation)
            if part.data and media_type(part) in _IMAGES:
                images.append(b64encode(part.data).decode())
            else:
                texts.append(placeholder(part, path, "Ollama accepts only PNG, JPEG and WebP images, inline", losses))
    return {"content": "\n\n".join(texts), **({"images": images} if images else {})}


def _answer(message: Message, where: str, losses: Losses) -> Json:
    """The fields of an assistant message; empty if nothing of it can be sent."""
    texts, thoughts, calls = [], [], []
    for index, part in enumerate(message.parts):
        path = f"{where}.parts[{index}]"
        if isinstance(part, ToolCall):
            if is_sendable_call(part, path, losses):
                function = {"name": part.tool_name, "arguments": part.arguments}
                calls.append({"id": part.tool_call_id, "function": function})
        elif isinstance(part, Thinking) and not part.ignored:
            thoughts += [] if losses.thinking(path, part) is None else [part.text]
        elif isinstance(part, Text) and not part.ignored:
            losses.continuation(path, part.continuation)
            texts.append(part.text)
    answer: Json = {"content": "".join(texts), "thinking": "".join(thoughts), "tool_calls": calls}
    if message.tool_calls and not calls and not answer["content"].strip():
        answer["content"] = used_tools(message)
    fields = {key: value for key, value in answer.items() if value}
    return {"content": "", **fields} if fields or texts else {}


def _written_result(result: ToolResult, where: str, names: dict[str, str], losses: Losses) -> Json:
    losses.continuation(where, result.continuation)
    match result.content:
        case tuple():
            content = _content(result.content, f"{where}.content", losses)
        case str():
            content = {"content": result.content}
        case dict():
            content = {"content": json_text(result.content)}
        case _:
            assert_never(result.content)
    if result.is_error:
        losses.add(where, "error flag", "Ollama has none; the text of the result is sent")
    name = names.get(result.tool_call_id)
    return {"role": "tool", **content, **({"tool_name": name} if name else {}), "tool_call_id": result.tool_call_id}


# -- requests, read


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes. Raises `PartValidationError` if it is not a body of this format."""
    remaining = beyond(fields_at(body, "$"), "stream")
    model = text_at(remaining.pop("model", None) or model_id or None, "$.model")
    reader = _Reader(Continuation(provider, model, {_THINKING: {}}))
    messages = [
        reader.message(message, path) for message, path in objects_at(remaining.pop("messages", None), "$.messages")
    ]
    tools = [read_function(tool, _NAME, path) for tool, path in objects_at(remaining.pop("tools", []), "$.tools")]
    settings = _settings(remaining)
    config = ModelConfig(model, extra=labelled(_NAME, remaining), **settings)
    return ModelRequest(messages=tuple(messages), config=config, tools=tuple(tools), provider=provider)


def _settings(body: Json) -> Json:
    """Our settings, removed from the body."""
    options = dict(object_of(body, "options"))
    settings = take_settings(options, _OPTIONS, "$.options")
    if settings:
        del body["options"]
        body |= {"options": options} if options else {}
    if isinstance(body.get("format"), dict):
        settings["output_schema"] = body.pop("format")
    think = body.get("think")
    if isinstance(think, bool):
        settings["thinking"] = ThinkingConfig(effort=None if body.pop("think") else "none")
    elif isinstance(think, str) and think in WORDS:
        settings["thinking"] = ThinkingConfig(effort=WORDS[body.pop("think")])
    return settings


class _Reader:
    """Reads messages in order."""

    def __init__(self, origin: Continuation) -> None:
        self._origin = origin
        self._unanswered: list[str] = []
        self._made = count(1)

    def message(self, message: Json, path: str) -> Message:
        role: Role = message.get("role")  # type: ignore[assignment]  # checked below
        if role not in get_args(Role):
            raise PartValidationError(f"unknown role {role!r}", path=f"{path}.role")
        parts: list[Part] = []
        if message.get("thinking"):
            parts.append(Thinking(text_at(message["thinking"], f"{path}.thinking"), continuation=self._origin))
        calls = [
            self._call(call, where) for call, where in items_at(message.get("tool_calls") or [], f"{path}.tool_calls")
        ]
        pictures = items_at(message.get("images") or [], f"{path}.images")
        images = [Image("image/png", data=bytes_at(picture, where)) for picture, where in pictures]
        text = text_at(message.get("content") or "", f"{path}.content")
        if text or not (parts or calls or images):
            parts.append(Text(text))
        if role == "tool":
            return Message("tool", (self._result(message, [*parts, *images], path),))
        return message_at(role, (*parts, *images, *calls), path)

    def _call(self, value: Any, path: str) -> ToolCall:
        call = object_at(value, path)
        call_id = text_at(call.get("id") or f"call-{next(self._made)}", f"{path}.id")
        function = object_at(call.get("function"), f"{path}.function")
        self._unanswered.append(call_id)
        arguments = object_at(function.get("arguments") or {}, f"{path}.function.arguments")
        return ToolCall(call_id, text_at(function.get("name"), f"{path}.function.name"), arguments)

    def _result(self, message: Json, parts: list[Any], path: str) -> ToolResult:
        call_id = message.get("tool_call_id") or next(iter(self._unanswered), None)
        call_id = text_at(call_id, f"{path}.tool_call_id")
        if call_id in self._unanswered:
            self._unanswered.remove(call_id)
        is_text = len(parts) == 1 and isinstance(parts[0], Text)
        return ToolResult(call_id, parts[0].text if is_text else tuple(parts))


# -- responses, decoded


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: _Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: float | None = None
    eval_count: float | None = None
    error: Any = None


class OllamaChat(Decoder):
    """Decodes the lines of `/api/chat`."""

    format: ClassVar[str] = _NAME
    framing: ClassVar[FramingName] = "ndjson"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Line)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_thinking = False
        self._calls = 0

    def read(self, event: _Line, frame: Frame) -> None:
        out, message = self.out, event.message
        if event.error is not None:
            reported = event.error.get("message") if isinstance(event.error, dict) else event.error
            out.refused(reported if isinstance(reported, str) else "The server reported an error.")
            return
        if not out.started:
            out.start(event.model)
        if message is not None:
            if message.thinking:
                out.thinking(message.thinking, continuation=None if self._is_thinking else {_THINKING: {}})
                self._is_thinking = True
            if message.content:
                self._is_thinking = False
                out.text(message.content)
            if message.tool_calls:
                self._read_calls(message.tool_calls)
        if event.done and not out.ended:
            self._finish(event)

    def read_end(self) -> None:
        self.truncated("a line with done: true")

    def _read_calls(self, calls: list[_ToolCall]) -> None:
        self._is_thinking = False
        for call in calls:
            function = call.function or _Function()
            arguments = "" if function.arguments is None else self._pending.text_of_json(function.arguments)
            if self.out.ended:
                return
            self._calls += 1
            self.out.open_call(self._calls, function.name or "", provider_id=call.id)
            self.out.call_args(self._calls, arguments)
            self.out.close_call(self._calls)

    def _finish(self, line: _Line) -> None:
        if line.prompt_eval_count is not None or line.eval_count is not None:
            # Servers before July 2024 did not count a cached prompt (github.com/ollama/ollama/pull/5371).
            self.out.usage(Usage(token_count(line.prompt_eval_count) or 0, token_count(line.eval_count) or 0))
        reason = line.done_reason  # older servers give none; not verified
        self.out.finish(_FINISH.get(reason, "other") if reason else "stop", reason)
        self.out.done()


# -- responses, written


class OllamaWriter(WholeCallWriter):
    """Writes one JSON object per line."""

    format: ClassVar[str] = _NAME
    media_type: str = "application/x-ndjson"
    words: ClassVar[dict[FinishReason, str]] = {"stop": "stop", "length": "length"}

    def frame(self, event: Json) -> bytes:
        return msgspec.json.encode(event) + b"\n"

    def keep_alive(self) -> bytes:
        return self.frame(self._line({}))

    def _line(self, message: Json, **fields: Any) -> Json:
        return {
            "model": self.model_id,
            "created_at": write_time_text(self.created),
            "message": {"role": "assistant", "content": "", **message},
            "done": False,
            **fields,
        }

    def begin(self) -> None:
        pass  # every line has the model

    def add_text(self, part: WrittenText, piece: str) -> None:
        self.emit(self._line({"content" if part.kind == "text" else "thinking": piece}))

    def end_text(self, part: WrittenText) -> None:
        pass

    def emit_call(self, call: WrittenCall, arguments: Json) -> None:
        function = {"name": call.name, "arguments": arguments}
        self.emit(self._line({"tool_calls": [{"id": call.id, "function": function}]}))

    def finish(self, done: Done) -> None:
        super().finish(done)
        usage = self.usage
        counts = {} if usage is None else {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
        self.emit(self._line({}, done=True, done_reason=self.finish_word(done), **counts))

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        status, _ = error_kind(failed, {})
        return ErrorResponse(status, {"error": failed.message or str(failed.error_code)})

    def joined(self, events: Iterable[Json]) -> Json:
        lines = list(events)
        messages = [line["message"] for line in lines]
        thinking = "".join(message.get("thinking", "") for message in messages)
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        message: Json = {"role": "assistant", "content": "".join(message["content"] for message in messages)}
        message |= {"thinking": thinking} if thinking else {}
        message |= {"tool_calls": calls} if calls else {}
        return {**lines[-1], "message": message}


FORMAT = Format(
    decoder=OllamaChat,
    encode=encode,
    read_request=read_request,
    writer=OllamaWriter,
    streams=True,
    rules=HistoryRules(
        merge_same_role=False,
        starts_with_user=False,
        call_id_pattern=None,
        tool_name_pattern=r"(?s).+",
        allows_assistant_last=True,
        allows_user_after_tool=True,
        allows_empty_text=True,
        allows_trailing_reasoning=True,
    ),
    features=ALL_FEATURES - {"files", "prompt_caching", "tool_choice"},
    event_keys=(frozenset({"created_at", "message", "done"}),),
)
