"""A request -> the body of Ollama's `/api/chat` (the way back is in `ollama_read`).

Ollama is lenient: roles need not alternate, system messages may stand anywhere, unknown keys are ignored. It has no
tool choice (for ``none`` the tools are left out), no flag for failed results, and takes images inline only. Sampling
settings go into `options`.

Older servers neither send nor read ids of calls: they go by the order of the results and by `tool_name`. Ids are sent
all the same, since newer ones read them. Thinking goes back where it came from Ollama itself.
"""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import function_tool, json_text, own_fields, used_tools, with_extra
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, named
from bartack.formats.ollama_chat.read import FORMAT, OPTIONS, read_request
from bartack.nouns.config import ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]

_TAKEN = frozenset(("image/png", "image/jpeg", "image/webp"))  # what its own image decoders read


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The body that asks for this; what cannot be said is noted in `losses`."""
    config = request.config
    names = {call.tool_call_id: call.tool_name for message in request.messages for call in message.tool_calls}
    messages: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]", names, losses)
    body: dict[str, Any] = {"model": config.model_id, "messages": messages, "stream": True}
    tools = [entry for spec in request.tools if (entry := _tool(spec, losses)) is not None]
    if tools and config.tool_choice != "none":
        body["tools"] = tools
    options = {name: getattr(config, field) for field, name in OPTIONS.items() if getattr(config, field) is not None}
    if options:
        body["options"] = {key: list(value) if key == "stop" else value for key, value in options.items()}
    if config.output_schema is not None:
        body["format"] = config.output_schema
    if config.thinking is not None:
        body["think"] = _think(config.thinking, losses)
    _note_unsaid(config, losses)
    return with_extra(body, config.extra)


def _note_unsaid(config: ModelConfig, losses: Losses) -> None:
    if config.tool_choice not in (None, "auto", "none"):
        losses.add("config.toolChoice", "that a tool must be called", "Ollama has no tool choice")
    if config.parallel_tool_calls is False:
        losses.add("config.parallelToolCalls", "one call at a time", "Ollama has no such setting")


def _think(thinking: ThinkingConfig, losses: Losses) -> bool | str:
    if thinking.budget_tokens is not None:
        losses.add("config.thinking.budgetTokens", "a budget of tokens for thinking", "Ollama knows efforts only")
    if thinking.effort is None or thinking.effort == "none":
        return thinking.effort is None
    return "low" if thinking.effort == "minimal" else thinking.effort


def _tool(spec: ToolSpec, losses: Losses) -> dict[str, Any] | None:
    if spec.native is not None:
        losses.add(f"tools.{spec.name}", "a tool that the provider executes", "Ollama has none")
        return None
    if spec.strict:
        losses.add(f"tools.{spec.name}.strict", "strict arguments", "Ollama has no such setting")
    return function_tool(spec, FORMAT)


def _messages(message: Message, where: str, names: dict[str, str], losses: Losses) -> list[dict[str, Any]]:
    match message.role:
        case "tool":
            return [
                _result(result, f"{where}.parts[{place}]", names, losses)
                for place, result in enumerate(message.tool_results)
            ]
        case "assistant":
            answer = _answer(message, where, losses)
            return [{"role": "assistant", **answer, **own_fields(message, losses)}] if answer else []
        case "system" | "user":
            content = _content(message.parts, where, losses)
            return [{"role": message.role, **content, **own_fields(message, losses)}]
        case _:
            assert_never(message.role)


def _content(parts: tuple[Part, ...], where: str, losses: Losses) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    for place, part in enumerate(parts):
        spot = f"{where}.parts[{place}]"
        if isinstance(part, Thinking):
            losses.add(spot, "thinking", "a system message holds text only")
        elif isinstance(part, Text) and not part.ignored:
            losses.continuation(spot, part.continuation)
            texts.append(part.text)
        elif isinstance(part, Image | FileRef):
            losses.continuation(spot, part.continuation)
            if part.data and media_type(part) in _TAKEN:
                images.append(b64encode(part.data).decode())
            else:
                texts.append(named(part, spot, "Ollama takes PNG, JPEG and WebP images only, and only inline", losses))
    return {"content": "\n\n".join(texts)} | ({"images": images} if images else {})


def _answer(message: Message, where: str, losses: Losses) -> dict[str, Any]:
    """The text, the thinking and the calls; what it used, if nothing else is left to say; empty if nothing was said."""
    texts, thoughts, calls = [], [], []
    for place, part in enumerate(message.parts):
        spot = f"{where}.parts[{place}]"
        if isinstance(part, ToolCall):
            calls += _call(part, spot, losses)
        elif isinstance(part, Thinking) and not part.ignored:
            thoughts += [] if losses.thinking(spot, part) is None else [part.text]
        elif isinstance(part, Text) and not part.ignored:
            losses.continuation(spot, part.continuation)
            texts.append(part.text)
    answer: dict[str, Any] = {"content": "".join(texts), "thinking": "".join(thoughts), "tool_calls": calls}
    if message.tool_calls and not calls and not answer["content"].strip():
        answer["content"] = used_tools(message)
    said = {key: value for key, value in answer.items() if value}
    return {"content": "", **said} if said or texts else {}


def _call(part: ToolCall, where: str, losses: Losses) -> list[dict[str, Any]]:
    losses.continuation(where, part.continuation)
    if part.executed_by == "provider":
        losses.add(where, f"the call of {part.tool_name}", "another provider executed it")
        return []
    if part.raw_args_text is not None:
        losses.add(where, "arguments that are no JSON object", "Ollama takes objects only")
    return [{"id": part.tool_call_id, "function": {"name": part.tool_name, "arguments": part.arguments}}]


def _result(result: ToolResult, where: str, names: dict[str, str], losses: Losses) -> dict[str, Any]:
    match result.content:
        case tuple():
            said = _content(result.content, where, losses)
        case str():
            said = {"content": result.content}
        case dict():
            said = {"content": json_text(result.content)}
        case _:
            assert_never(result.content)
    if result.is_error:
        losses.add(where, "that the tool failed", "Ollama has no flag for it; the text says so")
    name = names.get(result.tool_call_id)
    own = losses.continuation(where, result.continuation).get("fields", {})
    return {"role": "tool", **said, **({"tool_name": name} if name else {}), "tool_call_id": result.tool_call_id, **own}
