"""Events of Codex as items of the Responses API, for files that have no items of their own.

Such files contain what was shown on the screen, not what the model received: no reasoning that could be sent back, and
only the tools that events report.
"""

import json
from typing import Any

from bartack_transcripts.values import Json, text_in, texts_in, value_in

__all__ = ["items_of"]


def items_of(event: Json, *, has_items: bool) -> list[Json]:
    """The items of an event; none if it is not about the conversation.

    Newer versions report completed items, and some of them the older events beside these (`has_items`).
    """
    item = event.get("item")
    match text_in(event, "type"):
        case "item_completed" if isinstance(item, dict):
            return _completed(item)
        case "user_message" if not has_items and (text := text_in(event, "message")):
            urls = texts_in(event, "images")
            return [_message("user", text, urls)]
        case "agent_message" if not has_items and (text := text_in(event, "message")):
            return [_message("assistant", text)]
        case "agent_reasoning" if not has_items and (text := text_in(event, "text")):
            return [_reasoning([text])]
    return []


def _completed(item: Json) -> list[Json]:
    id, text = text_in(item, "id"), _text(item.get("content"))
    match text_in(item, "type"):
        case "UserMessage" if text:
            return [_message("user", text)]
        case "AgentMessage" if text:
            return [_message("assistant", text)]
        case "Reasoning":
            texts = texts_in(item, "summary_text")
            return [_reasoning(texts)] if texts else []
        case "CommandExecution" if id:
            return _call(id, "shell", {"command": item.get("command")}, text_in(item, "aggregated_output") or "")
        case "FileChange" if id:
            output = (text_in(item, "stdout") or "") + (text_in(item, "stderr") or "")
            return _call(id, "apply_patch", {"changes": item.get("changes")}, output)
        case "McpToolCall" if id and (tool := text_in(item, "tool")):
            output = (
                _text(value_in(item, "result", "content"))
                or text_in(item, "error", "message")
                or text_in(item, "error")
                or ""
            )
            return _call(id, f"{text_in(item, 'server') or 'mcp'}__{tool}", item.get("arguments"), output)
    return []


def _message(role: str, text: str, images: list[str] | None = None) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}, *({"type": "input_image", "image_url": url} for url in images or ())]
    return {"type": "message", "role": role, "content": content}


def _reasoning(texts: list[str]) -> Json:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts]}


def _call(id: str, name: str, arguments: Any, output: str) -> list[Json]:
    """A call and its result: an item is reported when it is complete."""
    call = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": id}
    return [call, {"type": "function_call_output", "call_id": id, "output": output}]


def _text(content: Any) -> str:
    pieces = content if isinstance(content, list) else []
    return "\n".join(text for piece in pieces if (text := text_in(piece, "text")))
