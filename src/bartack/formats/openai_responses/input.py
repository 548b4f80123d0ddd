"""Messages -> the items of a Responses request.

What came from the same provider goes back as the items it was, made again from the parts and their continuation data
(`bartack.formats.openai_responses.items` says what that holds). Everything else becomes plain messages and function calls.

Two demands of the server on reasoning, both answered with a refusal of the whole request where they are not met:

- A reasoning item is followed by the item it led to. One that is not (the answer was cut off) is left out.
- Where nothing is stored, a reasoning item has its ciphertext, or (open models) its text. One that has neither is left
  out, and the items after it lose their ids, because the server would look for the reasoning that belongs to them.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, assert_never

from msgspec.structs import replace

from bartack.formats.history_rules import PLAIN_NAME, HistoryRules
from bartack.formats.losses import Losses
from bartack.formats.media import data_url, has_content, media_type, placeholder
from bartack.formats.openai_responses.items import Item, kind_of, parsed_object
from bartack.formats.repair import OPENING, made_id
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, Thinking, ToolCall, ToolContent, ToolResult

__all__ = ["RULES", "Input"]

RULES = HistoryRules(
    # "input[].call_id: string too long. Expected a string with maximum length 64"
    merge_same_role=False,
    starts_with_user=False,
    call_id_pattern=r"(?s).{1,64}",
    tool_name_pattern=PLAIN_NAME,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_empty_text=True,
)

_MAX_ID = 64  # "input[].id: string too long. Expected a string with maximum length 64"
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_OFFICE = "application/vnd.openxmlformats-officedocument."
_DOCUMENTS = frozenset(  # beside text; platform.openai.com/docs/guides/file-inputs
    (
        *("application/pdf", "application/json", "application/xml", "application/rtf", "application/msword"),
        *(f"{_OFFICE}wordprocessingml.document", f"{_OFFICE}spreadsheetml.sheet"),
        *(f"{_OFFICE}presentationml.presentation", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"),
    )
)
_INPUT_TYPES = (None, "input_text", "output_text", "text")


class Input:
    """Collects the items of one request."""

    def __init__(self, losses: Losses, *, stored: bool) -> None:
        """`stored` says whether the provider keeps responses, so that reasoning can be named by its id alone."""
        self.instructions: list[str] = []
        self._losses = losses
        self._stored = stored
        self._items: list[tuple[str, Item]] = []  # each with the place of the message it came from
        self._calls: dict[str, Item] = {}

    def items(self) -> list[Item]:
        """All items, without reasoning that leads to nothing."""
        kept: list[Item] = []
        led_to_something = False
        for where, item in reversed(self._items):
            kind = kind_of(item)
            if kind == "thinking" and not led_to_something:
                self._losses.add(where, "reasoning", "nothing follows it that it led to")
                continue
            led_to_something = kind in ("thinking", "call", "opaque") or item.get("role") == "assistant"
            kept.append(item)
        return _with_ids_once(kept[::-1]) or [{"role": "user", "content": OPENING}]

    def add(self, message: Message, where: str) -> None:
        """The items of one more message."""
        match message.role:
            case "system":
                self._add_system(message, where)
            case "user":
                self._add_input(message, "user", where)
            case "assistant":
                self._add_answer(message, where)
            case "tool":
                for place, result in enumerate(message.tool_results):
                    self._add_result(result, f"{where}.parts[{place}]")
            case _:
                assert_never(message.role)

    def _append(self, where: str, item: Item) -> Item:
        self._items.append((where, item))
        return item

    # -- what people and programs say

    def _add_system(self, message: Message, where: str) -> None:
        first = message.parts[0].continuation if message.parts else None
        if first is not None and first.provider == self._losses.provider and first.data.get("instructions"):
            self.instructions += [part.text for part in message.parts if isinstance(part, Text) and not part.ignored]
        else:
            self._add_input(message, "system", where)

    def _add_input(self, message: Message, role: str, where: str) -> None:
        fields: Item = {}
        entries = []
        for place, part in enumerate(message.parts):
            spot = f"{where}.parts[{place}]"
            if isinstance(part, Text | Image | FileRef):
                data = self._losses.continuation(spot, part.continuation)
                fields = {**fields, **_object(data, "item")}
                entries += self._entry(part, _object(data, "part"), spot)
            else:
                self._losses.add(spot, part.kind, "a system message holds text only")
        if entries:
            self._append(where, {"role": role, **fields, "content": _plain_if_possible(entries)})

    def _entry(self, part: ContentPart, own: Item, where: str) -> list[Item]:
        """One entry of a content list, or none. `own` is what the entry had beside what the part says."""
        match part:
            case Text():
                if part.ignored:
                    return []
                is_text = own.get("type") in _INPUT_TYPES
                return [{"type": "input_text", "text": part.text, **own} if is_text else own]
            case Image() | FileRef():
                if "type" in own:  # by the id of an upload, or in a form that we would not write
                    return [own]
                item = _media(part)
                if item is None:
                    why = "the Responses API takes images and documents of few types, inline or from the web"
                    return [{"type": "input_text", "text": placeholder(part, where, why, self._losses)}]
                return [{**item, **own}]
            case _:
                assert_never(part)

    # -- what the model said

    def _add_answer(self, message: Message, where: str) -> None:
        answer = _Answer(self._losses)
        for place, part in enumerate(message.parts):
            spot = f"{where}.parts[{place}]"
            if isinstance(part, ToolCall):
                data = self._losses.continuation(spot, part.continuation)
                self._calls[part.tool_call_id] = answer.add_call(part, _object(data, "item"))
                if part.executed_by == "provider":
                    self._add_outcome(part, data, answer, spot)
            else:
                assert isinstance(part, Text | Thinking)  # a message checks what its role may hold
                answer.add_text(part, spot)
        items = answer.items if self._stored else _without_hollow_reasoning(answer.items, where, self._losses)
        for item in items:
            item_id = item.get("id")
            if isinstance(item_id, str) and len(item_id) > _MAX_ID:
                self._losses.add(where, "an item's id", f"it is longer than {_MAX_ID} characters")
                del item["id"]
            self._append(where, item)

    def _add_outcome(self, call: ToolCall, data: dict[str, Any], answer: "_Answer", where: str) -> None:
        """The result of a call that a provider executed, where it is an item of its own."""
        if "item" in data:
            if "output" in data:
                answer.items.append(dict(_object(data, "output")))
        elif call.result is not None:
            result = replace(call.result, tool_call_id=_call_id(call))
            answer.items.append(_output_item("function_call", result, self._content(result.content, where)))
        else:
            answer.items.pop()
            self._losses.add(where, f"the call of {call.tool_name}", "another provider executed it, without a result")

    # -- what tools answered

    def _add_result(self, result: ToolResult, where: str) -> None:
        data = self._losses.continuation(where, result.continuation)
        whole, own = _object(data, "output"), _object(data, "item")
        if whole:
            named = {"call_id": result.tool_call_id} if whole.get("call_id") else {}
            self._append(where, {**whole, **named})
            return
        call = self._calls.get(result.tool_call_id, {})
        kind = str(call.get("type") or own.get("type") or "function_call").removesuffix("_output")
        make = _OUTPUTS.get(kind, _output_item)
        content = self._content(result.content, where)
        item = make(kind, result, content)
        if item is None:
            # A screenshot is demanded and there is none: then the call is not told either, or the request is refused.
            self._items = [entry for entry in self._items if entry[1] is not call]
            self._losses.add(where, f"a {kind} and its result", "the result has no image")
            return
        if result.is_error and kind not in _TELLS_ERRORS:
            self._losses.add(where, "that the tool failed", "the format has no flag for it; the text says so")
        self._append(where, {**own, **item})

    def _content(self, content: ToolContent, where: str) -> str | list[Item]:
        if isinstance(content, str):
            return content
        if isinstance(content, dict):
            return json_text(content)
        entries: list[Item] = []
        for part in content:
            own = _object(self._losses.continuation(where, part.continuation), "part")
            entries += self._entry(part, own, where)
        return entries or ""


class _Answer:
    """Collects the items of one assistant message; parts that came from one item become one item again."""

    def __init__(self, losses: Losses) -> None:
        self.items: list[Item] = []
        self._losses = losses
        self._entries: dict[tuple[int, int], Item] = {}  # of an item (by its place) the nth text

    def add_text(self, part: Text | Thinking, where: str) -> None:
        if part.ignored:
            return
        data = self._losses.continuation(where, part.continuation) if isinstance(part, Text) else None
        if isinstance(part, Thinking):
            data = self._losses.thinking(where, part) or {}
        if data and "item" in data:
            self._add_own(part, data)
        elif isinstance(part, Text) and part.text.strip():
            self.items.append({"role": "assistant", "content": part.text})

    def _add_own(self, part: Text | Thinking, data: dict[str, Any]) -> None:
        fields = _object(data, "item")
        kind = fields.get("type") or ("message" if isinstance(part, Text) else "reasoning")
        if kind not in ("message", "reasoning"):
            self.items.append(dict(fields))
            return
        place = self._place_of(kind, fields.get("id"), bool(data.get("nth")))
        if place is None:
            place = len(self.items)
            self.items.append({"type": kind, **({"summary": []} if kind == "reasoning" else _empty_message())})
        item = self.items[place]
        item.update(fields)
        if "field" in data:
            self._put(place, item.setdefault(str(data["field"]), []), data, part.text)

    def _put(self, place: int, entries: list[Item], data: dict[str, Any], text: str) -> None:
        key = place, int(data.get("nth") or 0)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = {}
            entries.append(entry)
        entry.update(_object(data, "part"))
        name = "refusal" if entry.get("type") == "refusal" else "text"
        entry[name] = entry.get(name, "") + text

    def _place_of(self, kind: str, item_id: object, continues: bool) -> int | None:
        """Where the item stands to which a part belongs: the one with its id; without ids, the one just before."""
        for place, item in enumerate(self.items):
            if item_id and item.get("id") == item_id and item.get("type") == kind:
                return place
        last = len(self.items) - 1
        is_same = continues and not item_id and last >= 0 and self.items[last].get("type") == kind
        return last if is_same else None

    def add_call(self, part: ToolCall, own: Item) -> Item:
        kind = own.get("type") or "function_call"
        item: Item
        if kind == "function_call":
            # repair does not change the ids and names of calls that a provider executed
            named = {"type": kind, "call_id": _call_id(part), "name": RULES.fitting_name(part.tool_name)}
            item = {**own, **named, "arguments": _arguments(part, own.get("arguments"))}
        elif kind == "custom_tool_call":
            text = part.arguments.get("input")
            written = text if isinstance(text, str) else part.raw_args_text or json_text(part.arguments)
            item = {**own, "call_id": part.tool_call_id, "name": part.tool_name, "input": written}
        else:
            item = dict(own)
            if part.executed_by == "client":
                item["call_id"] = part.tool_call_id
            if kind == "image_generation_call" and "result" not in own:
                item |= _picture(part)
        self.items.append(item)
        return item


def _without_hollow_reasoning(items: list[Item], where: str, losses: Losses) -> list[Item]:
    kept = []
    is_hollow = False
    for item in items:
        if item.get("type") == "reasoning":
            has_text = any(entry.get("text") for entry in item.get("content") or ())
            is_hollow = not item.get("encrypted_content") and not has_text
            if is_hollow:
                losses.add(where, "reasoning", "it came without its ciphertext, and nothing is stored")
                continue
        elif is_hollow and item.get("type") in ("message", "function_call", "custom_tool_call"):
            item.pop("id", None)
        kept.append(item)
    return kept


def _with_ids_once(items: list[Item]) -> list[Item]:
    """A message may stand in a history twice, its ids may not: "Duplicate item found with id"."""
    seen: set[Any] = set()
    for item in items:
        if item.get("id") in seen:
            del item["id"]
        seen.update(item_id for item_id in [item.get("id")] if item_id)
    return items


def _object(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _empty_message() -> Item:
    return {"role": "assistant", "content": []}


def _plain_if_possible(entries: list[Item]) -> str | list[Item]:
    if len(entries) == 1 and entries[0].keys() == {"type", "text"}:
        return str(entries[0]["text"])
    return entries


def _media(part: Image | FileRef) -> Item | None:
    """The entry of a picture or a document; None for what the API does not read or cannot reach."""
    kind = media_type(part)
    if not has_content(part) or (part.data is None and not str(part.url).startswith(("https://", "http://"))):
        return None
    if isinstance(part, Image) or kind.startswith("image/"):
        if part.data is not None and kind not in _PICTURES:
            return None
        return {"type": "input_image", "image_url": _address(part, kind), "detail": "auto"}
    if part.data is None:
        return None if kind.startswith(("audio/", "video/")) else {"type": "input_file", "file_url": part.url}
    if kind not in _DOCUMENTS and not kind.startswith("text/"):
        return None
    name = part.path.replace("\\", "/").rpartition("/")[2] or "file"
    return {"type": "input_file", "filename": name, "file_data": _address(part, kind)}


def _address(part: Image | FileRef, kind: str) -> str | None:
    return part.url if part.data is None else data_url(kind, part.data)


def _call_id(part: ToolCall) -> str:
    if part.executed_by == "client" or RULES.accepts_id(part.tool_call_id):
        return part.tool_call_id
    return made_id(part.tool_call_id, -1)  # none that repair makes for another call of this id


def _arguments(part: ToolCall, written: object) -> str:
    """The arguments as the model wrote them, unless they have been changed since.

    Text that is no JSON object is told inside of one: open models' servers parse it, and refuse the request otherwise.
    """
    if isinstance(written, str) and parsed_object(written) == part.arguments:
        return written
    if part.raw_args_text is not None and not part.arguments:
        return json_text({"invalid_arguments": part.raw_args_text})
    return json_text(part.arguments)


def _picture(call: ToolCall) -> Item:
    content = () if call.result is None else call.result.content
    for part in content if isinstance(content, tuple) else ():
        if isinstance(part, Image) and part.data is not None:
            return {"result": b64encode(part.data).decode()}
    return {}


# -- the results of each type of call


def _output_item(kind: str, result: ToolResult, content: str | list[Item]) -> Item:
    return {"type": f"{kind}_output", "call_id": result.tool_call_id, "output": content}


def _shell_output(kind: str, result: ToolResult, content: str | list[Item]) -> Item | None:
    if isinstance(result.content, dict) and isinstance(result.content.get("output"), list):
        output = result.content["output"]
    else:
        outcome = {"type": "exit", "exit_code": int(result.is_error)}
        output = [{"stdout": _joined(content), "stderr": "", "outcome": outcome}]
    return {"type": f"{kind}_output", "call_id": result.tool_call_id, "output": output}


def _patch_output(kind: str, result: ToolResult, content: str | list[Item]) -> Item | None:
    status = "failed" if result.is_error else "completed"
    return {"type": f"{kind}_output", "call_id": result.tool_call_id, "status": status, "output": _joined(content)}


def _computer_output(kind: str, result: ToolResult, content: str | list[Item]) -> Item | None:
    for entry in content if isinstance(content, list) else ():
        if entry.get("type") == "input_image":
            screenshot = {"type": "computer_screenshot", "image_url": entry["image_url"]}
            return {"type": f"{kind}_output", "call_id": result.tool_call_id, "output": screenshot}
    return None


def _approval(kind: str, result: ToolResult, content: str | list[Item]) -> Item | None:
    granted = result.content.get("approve") if isinstance(result.content, dict) else not result.is_error
    return {"type": "mcp_approval_response", "approval_request_id": result.tool_call_id, "approve": bool(granted)}


def _found_tools(kind: str, result: ToolResult, content: str | list[Item]) -> Item | None:
    tools = result.content.get("tools", []) if isinstance(result.content, dict) else []
    facts = {"execution": "client", "status": "completed", "tools": tools}
    return {"type": "tool_search_output", "call_id": result.tool_call_id, **facts}


def _joined(content: str | list[Item]) -> str:
    return content if isinstance(content, str) else "".join(str(entry.get("text", "")) for entry in content)


_OUTPUTS: dict[str, Callable[[str, ToolResult, str | list[Item]], Item | None]] = {
    "shell_call": _shell_output,
    "apply_patch_call": _patch_output,
    "computer_call": _computer_output,
    "mcp_approval_request": _approval,
    "tool_search_call": _found_tools,
}
_TELLS_ERRORS = frozenset({"shell_call", "apply_patch_call", "mcp_approval_request"})
