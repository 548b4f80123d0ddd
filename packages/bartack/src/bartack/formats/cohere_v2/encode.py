"""A `ModelRequest` to the body of Cohere's `/v2/chat` (docs.cohere.com/reference/chat-stream).

What Cohere requires, and what follows from it:
- "text content is not allowed when tool_calls are provided" (github.com/vercel/ai/issues/5794): text before calls is
  sent as `tool_plan`, the field for what the model announces before it calls a tool.
- `tool_choice` is only ``REQUIRED`` or ``NONE``, and strictness is one switch for all tools. A specific tool is
  therefore requested by offering that tool alone.
- Tool results hold text only; images in them follow in a user message. Not verified.
- An output schema cannot be combined with tools (the reference, on `response_format`).
- "system turn must be the first in the list": a later system message is sent as a user message.

Cohere's own thinking is sent back in the field it came from: as content, or as the tool plan.
"""

from typing import Any, assert_never

from bartack.formats.body_values import NO_OUTPUT, function_tools, is_sendable_call, note_settings
from bartack.formats.cohere_v2.decode import CohereContinuation
from bartack.formats.efforts import budget_of
from bartack.formats.extra_fields import own_extra, with_extra
from bartack.formats.losses import Losses
from bartack.formats.media import data_url, media_type, placeholder
from bartack.nouns.config import SpecificTool, ThinkingConfig
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall
from bartack.nouns.requests import ModelRequest

__all__ = ["CHOICES", "SETTINGS", "encode"]

SETTINGS = {  # our setting -> Cohere's
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "seed": "seed",
    "stop_sequences": "stop_sequences",
}
CHOICES = {"required": "REQUIRED", "none": "NONE"}
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))  # docs.cohere.com/docs/image-inputs

Json = dict[str, Any]


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
    for field, name in SETTINGS.items():
        value = getattr(config, field)
        if value is not None:
            body[name] = list(value) if field == "stop_sequences" else value
    if config.output_schema is not None:
        if "tools" in body:
            losses.add("config.outputSchema", "output schema", "Cohere does not accept a schema together with tools")
        else:
            body["response_format"] = {"type": "json_object", "json_schema": config.output_schema}
    if config.thinking is not None:
        body["thinking"] = _thinking(config.thinking, losses)
    note_settings(config, losses)
    if config.parallel_tool_calls is False:
        losses.add("config.parallelToolCalls", "one call at a time", "not supported by Cohere")
    return with_extra(body, own_extra(request, "cohere-v2", losses))


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
    tools = function_tools(specs, "cohere-v2", request.config.model_id, losses)
    if not tools:
        return {}
    fields: Json = {"tools": tools}
    if any(spec.strict for spec in specs):
        fields["strict_tools"] = True
    setting = "required" if isinstance(choice, SpecificTool) else choice
    if setting in CHOICES:
        fields["tool_choice"] = CHOICES[setting]
    return fields


# -- messages


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
