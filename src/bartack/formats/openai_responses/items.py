"""What one item of the Responses API is in our words. The decoder reads items that a model said, the reader of requests
those of a history; both come here.

An item is a JSON object with a `type`. A message or a reasoning item holds texts; every other item is a tool call, the
result of one, or something only its provider understands. What a part cannot hold stays in its continuation data:

    item     the item without what the part holds
    output   (calls, results) the item that holds the result, where that is an item of its own
    field    (texts) the list of the item in which this text stands: "content" or "summary"
    nth      (texts) which text of its item this is
    part     (texts) the entry of that list without its text
    final    the finished texts or arguments that do not continue what was streamed; for the record, never sent back
"""

import base64
import binascii
import json
from typing import Any, Literal

from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Image, ToolContent

__all__ = [
    "FREE_TEXT",
    "Item",
    "ItemKind",
    "arguments_of",
    "executed_by",
    "item_fields",
    "kept_of_call",
    "kind_of",
    "name_of",
    "outcome_of",
    "parsed_object",
    "part_fields",
    "text_of",
    "texts_of",
]

Item = dict[str, Any]
ItemKind = Literal["text", "thinking", "call", "result", "opaque"]

# Tools whose input is text and not JSON: the field it stands in, which is also its name in our arguments.
FREE_TEXT = {"custom_tool_call": "input", "code_interpreter_call": "code", "program": "code"}

_KINDS: dict[str, ItemKind] = {
    "message": "text",
    "reasoning": "thinking",
    "compaction": "opaque",
    "compaction_summary": "opaque",
    "compaction_trigger": "opaque",
    "additional_tools": "opaque",
    "item_reference": "opaque",
}
_CLIENT_RUNS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "apply_patch_call", "computer_call"})


def kind_of(item: Item) -> ItemKind:
    """What an item becomes. A type nobody knows yet is a call of the provider's own, as all new types have been."""
    kind = str(item.get("type") or "message")
    if kind.endswith("_output"):
        return "result"
    if kind.endswith("_response"):
        return "opaque"
    return _KINDS.get(kind, "call")


def executed_by(item: Item, declared_tools: Any = None) -> Literal["client", "provider"]:
    """Who runs a call. `declared_tools` are the request's, as the response repeats them.

    A free-text call to a tool that the request did not declare is the provider's own (the parts of xAI's X search).
    """
    kind = item.get("type")
    if kind == "shell_call":
        environment = item.get("environment")
        where = environment.get("type") if isinstance(environment, dict) else None
        return "client" if where in (None, "local") else "provider"
    if kind == "tool_search_call":
        return "client" if item.get("execution") == "client" else "provider"
    if kind == "custom_tool_call" and isinstance(declared_tools, list) and declared_tools:
        return "client" if _declares(declared_tools, item.get("name")) else "provider"
    return "client" if kind in _CLIENT_RUNS else "provider"


def _declares(tools: list[Any], name: object) -> bool:
    for tool in tools:
        if isinstance(tool, dict):
            inner = tool.get("tools")  # a namespace of tools
            if tool.get("name") == name or (isinstance(inner, list) and _declares(inner, name)):
                return True
    return False


# -- the texts of messages and reasoning


def texts_of(item: Item) -> list[tuple[str, int, dict[str, Any]]]:
    """Where each text of an item stands, and the entry that holds it: summaries first, then content."""
    found = []
    for field in ("summary", "content"):
        entries = item.get(field)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                found.append((field, index, entry))
    return found


def text_of(entry: dict[str, Any]) -> str:
    """The text of one entry: of a refusal, the refusal."""
    text = entry.get("text") or entry.get("refusal")
    return text if isinstance(text, str) else ""


def part_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without its text, and without the empty list of probabilities that many servers add."""
    return {
        key: value
        for key, value in entry.items()
        if key not in ("text", "refusal") and (key, value) != ("logprobs", [])
    }


def item_fields(item: Item) -> Item:
    """A message or a reasoning item without its texts."""
    return {key: value for key, value in item.items() if key not in ("content", "summary")}


# -- calls


def name_of(item: Item) -> str:
    """The tool's name; a provider's own tool is named after its item, less `_call`."""
    name = item.get("name")
    return name if isinstance(name, str) and name else str(item.get("type")).removesuffix("_call")


def arguments_of(item: Item) -> str:
    """The argument text of a whole call."""
    field = FREE_TEXT.get(str(item.get("type")))
    if field is not None:
        return json_text({field: item[field]} if field in item else {})
    if isinstance(item.get("arguments"), str):
        return str(item["arguments"])
    for whole in ("arguments", "action", "operation"):  # tool search; web search, shells, computer; patches
        if isinstance(item.get(whole), dict):
            return json_text(item[whole])
    return json_text({name: item[name] for name in ("queries", "code", "server_label", "actions") if name in item})


def kept_of_call(item: Item) -> Item:
    """What goes into a call's continuation data: all that the part does not say in the same bytes."""
    kind = item.get("type")
    if kind == "function_call":
        arguments = item.get("arguments")
        told = {"name", "call_id"} | ({"arguments"} if arguments == _rewritten(arguments) else set())
    elif kind == "custom_tool_call":
        told = {"name", "call_id", "input"}
    elif kind == "image_generation_call" and _image(item) is not None:
        told = {"result"}
    else:
        told = set()
    return {key: value for key, value in item.items() if key not in told}


def outcome_of(item: Item) -> tuple[ToolContent | None, bool]:
    """What a provider's own call came to, and whether it failed. A request for approval has no outcome yet."""
    if item.get("type") == "mcp_approval_request":
        return None, False
    failed = item.get("status") in ("failed", "incomplete")
    if item.get("error"):
        return _content("error", item["error"]), True
    image = _image(item)
    if image is not None:
        return (image,), failed
    for field in ("output", "outputs", "results", "result", "tools"):
        if item.get(field) is not None:
            return _content(field, item[field]), failed
    action = item.get("action")
    if isinstance(action, dict) and action.get("sources"):
        return {"sources": action["sources"]}, failed
    status = item.get("status")
    return ({"status": status} if status else None), failed


def _content(field: str, value: Any) -> ToolContent:
    return value if isinstance(value, str | dict) else {field: value}


def _image(item: Item) -> Image | None:
    data = item.get("result")
    if item.get("type") != "image_generation_call" or not isinstance(data, str) or not data:
        return None
    try:
        return Image(f"image/{item.get('output_format') or 'png'}", data=base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None


# -- JSON text


def parsed_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _rewritten(text: Any) -> str | None:
    parsed = parsed_object(text) if isinstance(text, str) else None
    return None if parsed is None else json_text(parsed)
