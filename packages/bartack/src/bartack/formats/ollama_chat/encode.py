"""A `ModelRequest` to the body of Ollama's `/api/chat` (docs.ollama.com/api/chat).

Ollama is lenient: roles need not alternate, system messages may appear anywhere, unknown keys are ignored. It has no
tool choice (for ``none`` the tools are omitted), no flag for failed results, and accepts images inline only. Sampling
settings are part of `options`.

Servers before 0.12.10 neither send nor read call ids (github.com/ollama/ollama/issues/6708): they match results by
order and by `tool_name`. Ids are sent anyway, for newer servers. Thinking is sent back only if it came from Ollama.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.losses import Losses
from bartack.formats.media import media_type, placeholder
from bartack.formats.settings import effort_of, note_settings, own_extra, with_extra
from bartack.formats.tools import function_tools, is_sendable_call, used_tools
from bartack.nouns.config import ModelConfig, ThinkingConfig
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["OPTIONS", "encode"]

OPTIONS = {  # our setting -> Ollama's option
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop_sequences": "stop",
}
_IMAGES = frozenset(("image/png", "image/jpeg", "image/webp"))  # the decoders in its server; not verified

Json = dict[str, Any]


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what Ollama cannot receive is added to `losses`."""
    config = request.config
    names = {call.tool_call_id: call.tool_name for message in request.messages for call in message.tool_calls}
    messages: list[Json] = []
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]", names, losses)
    body: Json = {"model": config.model_id, "messages": messages, "stream": True}
    tools = function_tools(request.tools, "ollama-chat", config.model_id, losses)
    for index, spec in enumerate(request.tools):
        if spec.strict and spec.is_function:
            losses.add(f"tools[{index}].strict", "strict arguments", "not supported by Ollama")
    if tools and config.tool_choice != "none":
        body["tools"] = tools
    options = {name: getattr(config, field) for field, name in OPTIONS.items() if getattr(config, field) is not None}
    if options:
        body["options"] = {key: list(value) if key == "stop" else value for key, value in options.items()}
    if config.output_schema is not None:
        body["format"] = config.output_schema
    if config.thinking is not None:
        body["think"] = _think(config.thinking, losses)
    _add_unsupported(config, losses)
    return with_extra(body, own_extra(request, "ollama-chat", losses))


def _add_unsupported(config: ModelConfig, losses: Losses) -> None:
    if config.tool_choice not in (None, "auto", "none"):
        losses.add("config.toolChoice", "required tool call", "Ollama has no tool choice")
    note_settings(config, losses)
    if config.parallel_tool_calls is False:
        losses.add("config.parallelToolCalls", "one call at a time", "not supported by Ollama")


def _think(thinking: ThinkingConfig, losses: Losses) -> bool | str:
    if thinking.budget_tokens is not None:
        why = "Ollama only takes an effort; the nearest one is sent"
        losses.add("config.thinking.budgetTokens", "thinking budget", why)
    effort = effort_of(thinking)
    if effort is None or effort == "none":
        return effort is None
    return "low" if effort == "minimal" else effort


# -- messages


def _messages(message: Message, where: str, names: dict[str, str], losses: Losses) -> list[Json]:
    match message.role:
        case "tool":
            return [
                _result(result, f"{where}.parts[{index}]", names, losses)
                for index, result in enumerate(message.tool_results)
            ]
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
    return {"content": "\n\n".join(texts)} | ({"images": images} if images else {})


def _answer(message: Message, where: str, losses: Losses) -> Json:
    """The fields of an assistant message; empty if nothing of it can be sent."""
    texts, thoughts, calls = [], [], []
    for index, part in enumerate(message.parts):
        path = f"{where}.parts[{index}]"
        if isinstance(part, ToolCall):
            calls += _call(part, path, losses)
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


def _call(call: ToolCall, where: str, losses: Losses) -> list[Json]:
    if not is_sendable_call(call, where, losses):
        return []
    return [{"id": call.tool_call_id, "function": {"name": call.tool_name, "arguments": call.arguments}}]


def _result(result: ToolResult, where: str, names: dict[str, str], losses: Losses) -> Json:
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
    return {
        "role": "tool",
        **content,
        **({"tool_name": name} if name else {}),
        "tool_call_id": result.tool_call_id,
    }
