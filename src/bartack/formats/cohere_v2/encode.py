"""A request -> the body of Cohere's `/v2/chat` (the way back is in `cohere_read`).

What Cohere demands, and what follows:
- "text content is not allowed when tool_calls are provided": text before calls is said as the `tool_plan`, which is
  the field for what the model says it is about to do.
- Fields it does not know are refused, so nothing is sent that is not documented: strictness is one switch for all
  tools, and there is no way to name a tool that must be called, except to offer that tool alone.
- Results hold text only; images in them follow in a user message.
- A JSON schema for the answer cannot be combined with tools.
- "system turn must be the first in the list": a later system message is said as the user.

Thinking goes back where it came from Cohere itself: as content, or as the tool plan.
"""

from typing import Any, assert_never

from bartack.formats.body_values import NO_OUTPUT, function_tool, json_text, own_fields, with_extra
from bartack.formats.cohere_v2.media import image_block
from bartack.formats.cohere_v2.read import CHOICES, FORMAT, SETTINGS, read_request
from bartack.formats.losses import Losses
from bartack.formats.media import named
from bartack.nouns.config import SpecificTool, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]


def encode(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    """The body that asks for this; what cannot be said is noted in `losses`."""
    config = request.config
    messages: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]", losses, is_first=all(_is_system(one) for one in messages))
    body: dict[str, Any] = {"model": config.model_id, "messages": messages, "stream": True}
    body |= _tools(request, losses)
    for field, name in SETTINGS.items():
        value = getattr(config, field)
        if value is not None:
            body[name] = list(value) if field == "stop_sequences" else value
    if config.output_schema is not None:
        if "tools" in body:
            losses.add("config.outputSchema", "the schema of the answer", "Cohere takes no schema beside tools")
        else:
            body["response_format"] = {"type": "json_object", "json_schema": config.output_schema}
    if config.thinking is not None:
        body["thinking"] = _thinking(config.thinking, losses)
    if config.parallel_tool_calls is False:
        losses.add("config.parallelToolCalls", "one call at a time", "Cohere has no such setting")
    return with_extra(body, config.extra)


def _thinking(thinking: ThinkingConfig, losses: Losses) -> dict[str, Any]:
    if thinking.effort == "none":
        return {"type": "disabled"}
    if thinking.effort is not None:
        losses.add("config.thinking.effort", f"the effort {thinking.effort}", "Cohere knows budgets only")
    budget = {} if thinking.budget_tokens is None else {"token_budget": thinking.budget_tokens}
    return {"type": "enabled", **budget}


def _tools(request: ModelRequest, losses: Losses) -> dict[str, Any]:
    choice, specs = request.config.tool_choice, request.tools
    if isinstance(choice, SpecificTool):
        specs = tuple(spec for spec in specs if spec.name == choice.tool_name)
    tools = [entry for spec in specs if (entry := _tool(spec, losses)) is not None]
    said: dict[str, Any] = {}
    if tools:
        said["tools"] = tools
        if any(spec.strict for spec in specs):
            said["strict_tools"] = True
        wish = "required" if isinstance(choice, SpecificTool) else choice
        if wish in CHOICES:
            said["tool_choice"] = CHOICES[wish]
    return said


def _tool(spec: ToolSpec, losses: Losses) -> dict[str, Any] | None:
    if spec.native is not None:
        losses.add(f"tools.{spec.name}", "a tool that the provider executes", "Cohere has none")
        return None
    return function_tool(spec, FORMAT)


# -- messages


def _is_system(said: dict[str, Any]) -> bool:
    return bool(said["role"] == "system")


def _messages(message: Message, where: str, losses: Losses, *, is_first: bool) -> list[dict[str, Any]]:
    match message.role:
        case "tool":
            return _results(message, where, losses)
        case "assistant":
            said = _answer(message, where, losses)
            return [{"role": "assistant", **said, **own_fields(message, losses)}] if said else []
        case "system" | "user":
            role: str = message.role
            if role == "system" and not is_first:
                losses.add(where, "the system role", "Cohere takes system messages only at the start")
                role = "user"
            content = _shortest(_blocks(message.parts, where, losses))
            return [{"role": role, "content": content, **own_fields(message, losses)}]
        case _:
            assert_never(message.role)


def _shortest(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A single text as plain text, which every model takes."""
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _blocks(parts: tuple[Part, ...], where: str, losses: Losses) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for place, part in enumerate(parts):
        spot = f"{where}.parts[{place}]"
        if isinstance(part, Thinking):
            losses.add(spot, "thinking", "a system message holds text only")
        elif isinstance(part, Text) and not part.ignored and part.text:
            losses.continuation(spot, part.continuation)
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | FileRef):
            data = losses.continuation(spot, part.continuation)
            block = data.get("block") or image_block(part)
            if block is None:
                why = "Cohere takes images only, of few types, inline or from the web"
                block = {"type": "text", "text": named(part, spot, why, losses)}
            blocks.append(block)
    return blocks


def _answer(message: Message, where: str, losses: Losses) -> dict[str, Any]:
    """What the model said; empty if nothing is left of it."""
    plan: list[str] = []
    blocks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    citations: list[Any] = []
    has_calls = any(call.executed_by == "client" for call in message.tool_calls)
    for place, part in enumerate(message.parts):
        spot = f"{where}.parts[{place}]"
        if isinstance(part, ToolCall):
            calls += _call(part, spot, losses)
            continue
        assert isinstance(part, Text | Thinking)  # a message checks what its role may hold
        if part.ignored:
            continue
        data = losses.continuation(spot, part.continuation) if isinstance(part, Text) else losses.thinking(spot, part)
        if data is None:
            continue
        citations += data.get("citations", [])
        origin = data.get("type", "thinking") if isinstance(part, Thinking) else "tool_plan" if has_calls else "text"
        if part.text and origin == "tool_plan":
            plan.append(part.text)
        elif part.text:
            blocks.append({"type": origin, origin: part.text})
    if not calls and not any(block["type"] == "text" for block in blocks):
        if plan or blocks:
            losses.add(where, "thinking", "what it led to is left out")
        return {}
    said = {
        "content": _shortest(blocks) if blocks else None,
        "tool_plan": "".join(plan),
        "tool_calls": calls,
        "citations": citations,
    }
    return {key: value for key, value in said.items() if value}


def _call(part: ToolCall, where: str, losses: Losses) -> list[dict[str, Any]]:
    losses.continuation(where, part.continuation)
    if part.executed_by == "provider":
        losses.add(where, f"the call of {part.tool_name}", "another provider executed it")
        return []
    if part.raw_args_text is not None:
        losses.add(where, "arguments that are no JSON object", "Cohere reads arguments as JSON")
    function = {"name": part.tool_name, "arguments": json_text(part.arguments)}
    return [{"id": part.tool_call_id, "type": "function", "function": function}]


def _results(message: Message, where: str, losses: Losses) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for place, result in enumerate(message.tool_results):
        spot = f"{where}.parts[{place}]"
        match result.content:
            case str():
                content: str | list[dict[str, Any]] = result.content
            case dict():
                content = json_text(result.content)
            case tuple():
                blocks = _blocks(result.content, spot, losses)
                pictures += [block for block in blocks if block["type"] == "image_url"]
                content = _shortest([block for block in blocks if block["type"] != "image_url"])
            case _:
                assert_never(result.content)
        if result.is_error:
            losses.add(spot, "that the tool failed", "Cohere has no flag for it; the text says so")
        own = losses.continuation(spot, result.continuation).get("fields", {})
        if not (content.strip() if isinstance(content, str) else content):
            content = NO_OUTPUT
        results.append({"role": "tool", "tool_call_id": result.tool_call_id, "content": content, **own})
    return [*results, {"role": "user", "content": pictures}] if pictures else results
