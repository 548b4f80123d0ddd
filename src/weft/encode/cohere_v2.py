"""A request -> the body of Cohere's `/v2/chat` (the way back is in `cohere_read`).

What Cohere demands, and what follows:
- "text content is not allowed when tool_calls are provided": text before calls is said as the `tool_plan`, which is
  the field for what the model says it is about to do.
- Fields it does not know are refused, so nothing is sent that is not documented: strictness is one switch for all
  tools, and there is no way to name a tool that must be called, except to offer that tool alone.
- Results hold text only; images in them follow in a user message.
- A JSON schema for the answer cannot be combined with tools.

Thinking goes back where it came from Cohere itself: as content, or as the tool plan.
"""

from typing import Any, assert_never

from weft.config import SpecificTool, ThinkingConfig, ToolSpec
from weft.encode.body_values import json_text, with_extra
from weft.encode.cohere_media import image_block
from weft.encode.cohere_read import CHOICES, FORMAT, SETTINGS, read_request
from weft.encode.request import Losses, Request
from weft.messages import Message
from weft.parts import FileRef, Image, Part, Text, Thinking, ToolCall

__all__ = ["encode", "read_request"]


def encode(request: Request, losses: Losses) -> dict[str, Any]:
    """The body that asks for this; what cannot be said is noted in `losses`."""
    config = request.config
    messages: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]", losses)
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


def _tools(request: Request, losses: Losses) -> dict[str, Any]:
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
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameter_schema}
    if spec.description is None:
        del function["description"]
    return {"type": "function", "function": {**function, **(spec.extra or {}).get(FORMAT, {})}}


# -- messages


def _messages(message: Message, where: str, losses: Losses) -> list[dict[str, Any]]:
    match message.role:
        case "tool":
            return _results(message, where, losses)
        case "assistant":
            said = _answer(message, where, losses)
            return [{"role": "assistant", **said, **_own_fields(message, losses)}] if said else []
        case "system" | "user":
            blocks = _blocks(message.parts, where, losses)
            return [{"role": message.role, "content": _shortest(blocks), **_own_fields(message, losses)}]
        case _:
            assert_never(message.role)


def _own_fields(message: Message, losses: Losses) -> dict[str, Any]:
    """Keys of a message that only Cohere knows; a reader put them on the message's first part."""
    carried = message.parts[0].continuation if message.parts else None
    if carried is None or carried.provider != losses.provider:
        return {}
    fields: dict[str, Any] = carried.data.get("fields", {})
    return fields


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
        if isinstance(part, Text) and not part.ignored and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | FileRef):
            data = losses.continuation(spot, part.continuation)
            block = data.get("block") or image_block(part)
            if block is None:
                losses.add(spot, part.kind, "Cohere takes images only")
            else:
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
        data = losses.continuation(spot, part.continuation)
        citations += data.get("citations", [])
        if isinstance(part, ToolCall):
            calls += _call(part, spot, losses)
        elif isinstance(part, Text | Thinking) and part.text and not part.ignored:
            origin = data.get("type") if isinstance(part, Thinking) else "tool_plan" if has_calls else "text"
            if origin == "tool_plan":
                plan.append(part.text)
            elif origin in ("text", "thinking"):
                blocks.append({"type": origin, origin: part.text})
            else:
                losses.add(spot, "thinking", "it did not come from Cohere")
    said = {
        "content": _shortest(blocks) if blocks else None,
        "tool_plan": "".join(plan),
        "tool_calls": calls,
        "citations": citations,
    }
    return {key: value for key, value in said.items() if value}


def _call(part: ToolCall, where: str, losses: Losses) -> list[dict[str, Any]]:
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
        results.append({"role": "tool", "tool_call_id": result.tool_call_id, "content": content, **own})
    return [*results, {"role": "user", "content": pictures}] if pictures else results
