"""One item of the Responses API in our terms, for the decoder, the request reader and the encoder.

An item is a JSON object with a `type`. A message or reasoning item contains texts; every other item is a tool call, the
result of one, or something that only its provider understands. `ResponsesContinuation` is what a part keeps of it.

A question whether a tool of an MCP server may be called is a call that the client executes, by answering it. Its name
is that of the question, so that it never calls a tool of ours that has the name of the server's tool.

The events that items arrive in are typed structs. Any field may be missing, null or of an unexpected type.
"""

import base64
import binascii
from typing import Any, Literal, TypedDict

import msgspec

from bartack.formats.body_values import beyond, parsed_object
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import Image, ToolContent

__all__ = [
    "APPROVAL",
    "ARGUMENTS",
    "ENTRY_KINDS",
    "FREE_TEXT",
    "NAME",
    "TEXTS",
    "Item",
    "ItemKind",
    "Key",
    "Response",
    "ResponsesContinuation",
    "ResponsesEvent",
    "arguments_of",
    "executed_by",
    "item_fields",
    "kept_of_call",
    "kind_of",
    "name_of",
    "outcome_of",
    "part_fields",
    "text_of",
    "texts_of",
]

# -- events


Key = str | int | None


class Response(msgspec.Struct, gc=False):
    """The response object in the events that begin and end a stream, or by itself if it was not streamed."""

    object: Any = None
    id: Any = None
    model: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    usage: Any = None
    output: Any = None
    tools: Any = None


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event. One struct, because a tagged union would fail on event types that are added later."""

    type: str | None = None
    delta: Any = None
    item_id: Key = None
    output_index: Key = None
    content_index: Key = None
    summary_index: Key = None
    item: Any = None
    part: Any = None
    annotation: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    code: Any = None  # set in code_interpreter_call_code.done and in errors
    response: Response | None = None
    error: Any = None
    message: Any = None


# The types of content entries with text, and the kind of part they become.
ENTRY_KINDS: dict[str, Literal["text", "thinking"]] = {
    "output_text": "text",
    "refusal": "text",
    "summary_text": "thinking",
    "reasoning_text": "thinking",
}
# Events with text, `response.<name>.delta` and `.done`, and the type of the entry that the text belongs to.
TEXTS = {
    f"response.{name}.{step}": entry_type
    for name, entry_type in {
        "output_text": "output_text",
        "refusal": "refusal",
        "reasoning_summary_text": "summary_text",
        "reasoning_text": "reasoning_text",
        "reasoning_summary": "summary_text",  # former names of the two above; not recorded
        "reasoning": "reasoning_text",
    }.items()
    for step in ("delta", "done")
}
# Events with the input of a call. The two names with a second dot are former ones; not recorded.
ARGUMENTS = [
    f"response.{name}.{step}"
    for name in (
        "function_call_arguments",
        "custom_tool_call_input",
        "mcp_call_arguments",
        "mcp_call.arguments",
        "code_interpreter_call_code",
        "code_interpreter_call.code",
    )
    for step in ("delta", "done")
]


# -- items


NAME = "openai-responses"  # also the key of this format's own fields in `ToolSpec.extra`


class _KeptItem(TypedDict, total=False):
    id: str | None
    type: str | None
    call_id: str | None


class _KeptEntry(TypedDict, total=False):
    type: str | None
    text: str
    refusal: str


class ResponsesContinuation(TypedDict, total=False):
    """What a part keeps of its item: the decoder and the reader write it, the encoder and the writer read it."""

    item: _KeptItem  # the item without what the part represents
    output: _KeptItem  # the item with the result of a call, if that is an item of its own
    field: Literal["content", "summary"]  # the list of the item that contains a text
    nth: int  # the position of a text among the texts of the item
    part: _KeptEntry  # the entry of a text in that list, without the text
    again: Any  # how many items before it in the same message have its id (xAI), if any
    final: Any  # finished texts or arguments that do not continue what was streamed; never sent back
    instructions: Any  # true for a system message that came from `instructions`


Item = dict[str, Any]
APPROVAL = "mcp_approval_request"
ItemKind = Literal["text", "thinking", "call", "result", "opaque"]

# Calls whose input is text, not JSON: the field of the input, which is also its name in our arguments.
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
_CLIENT_CALLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "apply_patch_call", "computer_call", APPROVAL}
)


def kind_of(item: Item) -> ItemKind:
    """What an item becomes. An unknown type is a call that the provider executed, as all new types have been."""
    kind = str(item.get("type") or "message")
    if kind.endswith("_output"):
        return "result"
    if kind.endswith("_response"):
        return "opaque"
    return _KINDS.get(kind, "call")


def executed_by(item: Item, declared_tools: Any = None) -> Literal["client", "provider"]:
    """Who executes a call. `declared_tools` are the tools of the request, which the response repeats.

    A free-text call of an undeclared tool is a step of xAI's X search (xai-responses/ai--xai-x-search-tool--0-85a5aa).
    """
    kind = str(item.get("type"))
    if kind == "shell_call":
        environment = item.get("environment")
        where = environment.get("type") if isinstance(environment, dict) else None
        return "client" if where in (None, "local") else "provider"
    if kind == "tool_search_call":
        return "client" if item.get("execution") == "client" else "provider"
    if kind == "custom_tool_call" and isinstance(declared_tools, list) and declared_tools:
        return "client" if _declares(declared_tools, item.get("name")) else "provider"
    return "client" if kind in _CLIENT_CALLS else "provider"


def _declares(tools: list[Any], name: object) -> bool:
    for tool in tools:
        if isinstance(tool, dict):
            inner = tool.get("tools")  # a namespace of tools
            if tool.get("name") == name or (isinstance(inner, list) and _declares(inner, name)):
                return True
    return False


# -- the texts of messages and reasoning


def texts_of(item: Item) -> list[tuple[str, int, dict[str, Any]]]:
    """The list, index and entry of each text of an item: summaries first, then content."""
    texts = []
    for field in ("summary", "content"):
        entries = item.get(field)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                texts.append((field, index, entry))
    return texts


def text_of(entry: dict[str, Any]) -> str:
    """The text, or the refusal, of one entry."""
    text = entry.get("text") or entry.get("refusal")
    return text if isinstance(text, str) else ""


def part_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without its text, and without the empty list of `logprobs` that servers add."""
    return {
        key: value
        for key, value in entry.items()
        if key not in ("text", "refusal") and (key, value) != ("logprobs", [])
    }


def item_fields(item: Item) -> Item:
    """A message or reasoning item without its texts."""
    return beyond(item, "content", "summary")


# -- calls


def name_of(item: Item) -> str:
    """The tool's name. A provider tool is named after the type of its item, without `_call`."""
    name = None if item.get("type") == APPROVAL else item.get("name")
    return name if isinstance(name, str) and name else str(item.get("type")).removesuffix("_call")


def arguments_of(item: Item) -> str:
    """The argument text of a complete call."""
    field = FREE_TEXT.get(str(item.get("type")))
    if field is not None:
        return json_text({field: item[field]} if field in item else {})
    if item.get("type") == APPROVAL:
        question = {name: item[name] for name in ("server_label", "name", "arguments") if name in item}
        arguments = parsed_object(question["arguments"]) if isinstance(question.get("arguments"), str) else None
        return json_text(question if arguments is None else {**question, "arguments": arguments})
    if isinstance(item.get("arguments"), str):
        return str(item["arguments"])
    for field in ("arguments", "action", "operation"):  # tool search; web search, shells, computer; patches
        if isinstance(item.get(field), dict):
            return json_text(item[field])
    return json_text({name: item[name] for name in ("queries", "code", "server_label", "actions") if name in item})


def kept_of_call(item: Item) -> Item:
    """The fields of a call that its part does not represent byte for byte."""
    kind = item.get("type")
    if kind == "function_call":
        arguments = item.get("arguments")
        represented = _identity(item) | ({"arguments"} if arguments == _rewritten(arguments) else set())
    elif kind == "custom_tool_call":
        represented = _identity(item) | {"input"}
    elif kind == "image_generation_call" and _image(item) is not None:
        represented = {"result"}
    else:
        represented = set()
    return beyond(item, *represented)


def _identity(item: Item) -> set[str]:
    """The fields that the part represents. In a namespace, the tool of the part has another name."""
    return {"call_id"} if item.get("namespace") else {"name", "call_id"}


def outcome_of(item: Item) -> tuple[ToolContent | None, bool]:
    """The result of a provider call, and whether it failed."""
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


def _rewritten(text: Any) -> str | None:
    parsed = parsed_object(text) if isinstance(text, str) else None
    return None if parsed is None else json_text(parsed)
