"""Messages to the items of a Responses request.

Parts that came from the same provider become the items they were, rebuilt from the parts and their continuation data
(`ResponsesContinuation`). Everything else becomes plain messages and function calls.

The server refuses the whole request unless:

- every reasoning item is followed by the item it led to: "Item 'rs_...' of type 'reasoning' was provided without its
  required following item" (github.com/vercel/ai/issues/7099). Reasoning without one, of an answer that was cut off, is
  left out.
- where nothing is stored, every reasoning item has its ciphertext, or its text (open models). Reasoning without both is
  left out, and the items after it lose their ids: "Item 'msg_...' was provided without its required 'reasoning' item"
  (github.com/continuedev/continue/issues/11994).
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, assert_never

from msgspec.structs import replace

from bartack.formats.body_values import parsed_object
from bartack.formats.format import PLAIN_NAME, HistoryRules
from bartack.formats.losses import Losses
from bartack.formats.media import data_url, has_content, media_type, placeholder
from bartack.formats.openai_responses.items import (
    APPROVAL,
    ENTRY_KINDS,
    Item,
    ResponsesContinuation,
    item_fields,
    kind_of,
)
from bartack.formats.repair import START_PROMPT, made_id
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult

__all__ = ["RULES", "InputItems", "carries"]

RULES = HistoryRules(
    # "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64"
    # (github.com/AnswerDotAI/fastllm/issues/45).
    merge_same_role=False,
    starts_with_user=False,
    call_id_pattern=r"(?s).{1,64}",
    tool_name_pattern=PLAIN_NAME,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_empty_text=True,
)

_MAX_ID = 64  # "input[].id: string too long", as for call ids; GitHub Copilot sends ids of about 400 characters
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_OFFICE = "application/vnd.openxmlformats-officedocument."
_DOCUMENT_TYPES = frozenset(  # besides text; platform.openai.com/docs/guides/file-inputs
    (
        *("application/pdf", "application/json", "application/xml", "application/rtf", "application/msword"),
        *(f"{_OFFICE}wordprocessingml.document", f"{_OFFICE}spreadsheetml.sheet"),
        *(f"{_OFFICE}presentationml.presentation", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"),
    )
)
_INPUT_TYPES = (None, "input_text", "output_text", "text")


def carries(part: Part, losses: Losses) -> bool:
    """Whether a text is sent as an item or entry of its own: a compaction, a reference, a message without text.

    Reasoning is not: the item that it led to must follow it.
    """
    losses.expect(ResponsesContinuation)
    data = losses.own_data(part) if isinstance(part, Text) else {}
    return "type" in data.get("item", {}) or data.get("part", {}).get("type") not in _INPUT_TYPES


class InputItems:
    """Collects the items of one request."""

    def __init__(self, losses: Losses, *, stored: bool) -> None:
        """`stored`: the provider stores responses, so that an id alone can refer to reasoning."""
        self._trail = losses.trail
        self.instructions: list[str] = [*self._trail.known("instructions").values()]
        self._losses = losses
        self._stored = stored
        self._index = 0  # the index of the current message
        self._items: list[tuple[int, str, Item]] = []  # each with its message and the path to report
        self._repeated: list[Item] = []  # items that came with the id of another one
        self._calls: dict[str, Item] = {}

    def items(self) -> list[Item]:
        """All items, without reasoning that nothing follows."""
        remaining: list[tuple[int, str, Item]] = []
        has_successor = False
        for index, where, item in reversed(self._items):
            kind = kind_of(item)
            if kind == "thinking" and not has_successor:
                self._losses.add(where, "reasoning", "the item that it led to is missing")
                continue
            has_successor = kind in ("thinking", "call", "opaque") or item.get("role") == "assistant"
            remaining.append((index, where, item))
        remaining.reverse()
        self._remove_repeated_ids(remaining)
        items = [item for _, _, item in remaining] or [{"role": "user", "content": START_PROMPT}]
        # A message that begins with an item in this request begins with the same one in later requests. So what it
        # decides about the reasoning before it stays decided, and a later request may continue with it.
        self._trail.wrote(items, [index for index, _, _ in remaining] or [-1])
        return items

    def _remove_repeated_ids(self, items: list[tuple[int, str, Item]]) -> None:
        """Remove the ids that occur again, if they were not repeated by the provider itself (xAI).

        "Duplicate item found with id" (not recorded).
        """
        repeated, written_ids = set(map(id, self._repeated)), self._trail.known("id")
        item_ids: set[Any] = set()
        for index, where, item in items:
            item_id = item.get("id")
            if (item_id in item_ids or item_id in written_ids) and id(item) not in repeated:
                self._losses.add(where, "item id", "an earlier item has it")
                del item["id"]
            elif item_id:
                item_ids.add(item_id)
                self._trail.note(index, "id", item_id)

    def add(self, message: Message, index: int) -> None:
        """Add the items of one message."""
        self._index, where = index, f"messages[{index}]"
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
        self._items.append((self._index, where, item))
        return item

    # -- system and user messages

    def _add_system(self, message: Message, where: str) -> None:
        first = message.parts[0].continuation if message.parts else None
        if first is not None and first.provider == self._losses.provider and first.data.get("instructions"):
            for place, part in enumerate(message.parts):
                if isinstance(part, Text) and not part.ignored:
                    self.instructions.append(part.text)
                    self._trail.note(self._index, "instructions", (self._index, place), part.text)
        else:
            self._add_input(message, "system", where)

    def _add_input(self, message: Message, role: str, where: str) -> None:
        fields: Item = {}
        entries = []
        for place, part in enumerate(message.parts):
            path = f"{where}.parts[{place}]"
            if isinstance(part, Text | Image | FileRef):
                data = self._losses.continuation(path, part.continuation)
                fields = {**fields, **_object(data, "item")}
                entries += self._entry(part, _object(data, "part"), path)
            else:
                self._losses.add(path, part.kind, "a system message holds text only")
        if entries:
            is_plain = len(entries) == 1 and entries[0].keys() == {"type", "text"}
            self._append(where, {"role": role, **fields, "content": entries[0]["text"] if is_plain else entries})

    def _entry(self, part: ContentPart, own: Item, where: str) -> list[Item]:
        """One entry of a content list, or none. `own` has the fields that the part does not represent."""
        match part:
            case Text():
                if part.ignored:
                    return []
                is_text = own.get("type") in _INPUT_TYPES
                return [{"type": "input_text", "text": part.text, **own} if is_text else own]
            case Image() | FileRef():
                if "type" in own:  # an uploaded file, or a form that we would not write
                    return [own]
                item = _media(part)
                if item is None:
                    why = "the Responses API does not accept this type, or not from this URL"
                    return [{"type": "input_text", "text": placeholder(part, where, why, self._losses)}]
                return [{**item, **own}]
            case _:
                assert_never(part)

    # -- assistant messages

    def _add_answer(self, message: Message, where: str) -> None:
        answer = _Answer(self._losses)
        for place, part in enumerate(message.parts):
            path = f"{where}.parts[{place}]"
            if isinstance(part, ToolCall):
                data = self._losses.continuation(path, part.continuation)
                self._calls[part.tool_call_id] = answer.add_call(part, _object(data, "item"), path)
                if part.executed_by == "provider":
                    self._add_provider_result(part, data, answer, path)
            else:
                assert isinstance(part, Text | Thinking)  # ensured by Message
                answer.add_text(part, path)
        self._repeated += answer.repeated
        items = list(zip(answer.paths, answer.items, strict=True))
        for path, item in items if self._stored else _without_empty_reasoning(items, self._losses):
            item_id = item.get("id")
            if isinstance(item_id, str) and len(item_id) > _MAX_ID:
                self._losses.add(path, "item id", f"longer than {_MAX_ID} characters")
                del item["id"]
            self._append(path, item)

    def _add_provider_result(self, call: ToolCall, data: dict[str, Any], answer: "_Answer", where: str) -> None:
        """Add the result of a provider call, if it is an item of its own."""
        if "item" in data:
            if "output" in data:
                answer.append(dict(_object(data, "output")), where)
        elif call.result is not None:
            result = replace(call.result, tool_call_id=_call_id(call))
            answer.append(_output_item("function_call", result, self._content(result.content, where)), where)
        else:
            answer.remove_last()
            self._losses.add(where, f"call of {call.tool_name}", "another provider executed it, without a result")

    # -- tool results

    def _add_result(self, result: ToolResult, where: str) -> None:
        data = self._losses.continuation(where, result.continuation)
        output, own = _object(data, "output"), _object(data, "item")
        if output:
            call_field = {"call_id": result.tool_call_id} if output.get("call_id") else {}
            self._append(where, {**output, **call_field})
            return
        call = self._calls.get(result.tool_call_id, {})
        kind = str(call.get("type") or own.get("type") or "function_call").removesuffix("_output")
        make = _OUTPUTS.get(kind, _output_item)
        content = self._content(result.content, where)
        item = make(kind, result, content)
        if item is None:
            # A screenshot is required. Without one the call is left out as well, or the request would be refused.
            self._items = [entry for entry in self._items if entry[2] is not call]
            self._losses.add(where, f"{kind} and its result", "the result has no image")
            return
        if result.is_error and kind not in _HAS_ERROR_FLAG:
            self._losses.add(where, "error flag", "the format has none; the text of the result is sent")
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
    """Collects the items of one assistant message. Parts of the same item become one item again."""

    def __init__(self, losses: Losses) -> None:
        self.items: list[Item] = []
        self.paths: list[str] = []  # the path of the first part of each item
        self._losses = losses
        self.repeated: list[Item] = []  # items that came with the id of another one
        self._entries: dict[tuple[int, int], Item] = {}  # keys: the position of the item, and of the text in it
        self._again: dict[int, object] = {}  # `again`, by the position of the item

    def append(self, item: Item, where: str) -> None:
        self.items.append(item)
        self.paths.append(where)

    def remove_last(self) -> None:
        del self.items[-1], self.paths[-1]

    def add_text(self, part: Text | Thinking, where: str) -> None:
        if part.ignored:
            return
        data = self._losses.continuation(where, part.continuation) if isinstance(part, Text) else None
        if isinstance(part, Thinking):
            data = self._losses.thinking(where, part) or {}
        if data and "item" in data:
            self._add_own(part, data, where)
        elif isinstance(part, Text) and part.text.strip():
            self.append({"role": "assistant", "content": part.text}, where)

    def _add_own(self, part: Text | Thinking, data: dict[str, Any], where: str) -> None:
        fields = _object(data, "item")
        kind = fields.get("type") or ("message" if isinstance(part, Text) else "reasoning")
        if kind not in ("message", "reasoning"):
            self.append(dict(fields), where)
            return
        again = data.get("again")
        place = self._place_of(kind, fields.get("id"), again, bool(data.get("nth")))
        if place is None:
            place = len(self.items)
            empty: Item = {"summary": []} if kind == "reasoning" else {"role": "assistant", "content": []}
            self.append({"type": kind, **empty}, where)
            self._again[place] = again
            if again:
                self.repeated.append(self.items[place])
        item = self.items[place]
        item.update(item_fields(fields))  # its texts are the parts
        if "field" in data:
            self._put(place, _list_in(item, data["field"]), data, part.text)

    def _put(self, place: int, entries: list[Item], data: dict[str, Any], text: str) -> None:
        key = place, data.get("nth", 0)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = {}
            entries.append(entry)
        entry.update(_object(data, "part"))
        name = "refusal" if entry.get("type") == "refusal" else "text"
        if text or entry.get("type") in (None, *ENTRY_KINDS):  # an entry of an unknown type may have none
            entry[name] = entry.get(name, "") + text

    def _place_of(self, kind: str, item_id: object, again: object, continues: bool) -> int | None:
        """The position of the item that a part belongs to: the one with its id or, without ids, the last one."""
        for place, item in enumerate(self.items):
            is_named = item_id and item.get("id") == item_id and item.get("type") == kind
            if is_named and self._again.get(place) == again:
                return place
        last = len(self.items) - 1
        is_same = continues and not item_id and last >= 0 and self.items[last].get("type") == kind
        return last if is_same else None

    def add_call(self, part: ToolCall, own: Item, where: str) -> Item:
        kind = own.get("type") or "function_call"
        item: Item
        if kind == "function_call":
            # repair does not change the ids and names of calls that a provider executed
            name = RULES.fitting_name(part.tool_name)
            identity = {"type": kind, "call_id": _call_id(part), "name": own.get("name", name)}
            item = {**own, **identity, "arguments": _arguments(part, own.get("arguments"))}
        elif kind == "custom_tool_call":
            text = part.arguments.get("input")
            input = text if isinstance(text, str) else part.raw_args_text or json_text(part.arguments)
            item = {**own, "call_id": part.tool_call_id, "name": own.get("name", part.tool_name), "input": input}
        else:
            item = dict(own)
            if part.executed_by == "client":
                item["id" if kind == APPROVAL else "call_id"] = part.tool_call_id
            if kind == "image_generation_call" and "result" not in own:
                item |= _generated_image(part)
        self.append(item, where)
        return item


def _without_empty_reasoning(items: list[tuple[str, Item]], losses: Losses) -> list[tuple[str, Item]]:
    remaining = []
    is_empty = False
    for where, item in items:
        if item.get("type") == "reasoning":
            has_text = any(entry.get("text") for entry in item.get("content") or ())
            is_empty = not item.get("encrypted_content") and not has_text
            if is_empty:
                losses.add(where, "reasoning", "it has no ciphertext, and the provider does not store it")
                continue
        elif is_empty and "id" in item and item.get("type") in ("message", "function_call", "custom_tool_call"):
            losses.add(where, "item id", "it stands for an item together with its reasoning, which is not sent")
            del item["id"]
        remaining.append((where, item))
    return remaining


def _list_in(item: Item, field: str) -> list[Item]:
    """The list of an item, which is put there if there is none."""
    if not isinstance(item.get(field), list):
        item[field] = []
    entries: list[Item] = item[field]
    return entries


def _object(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _media(part: Image | FileRef) -> Item | None:
    """The entry for an image or a document; None if the API does not accept it."""
    kind = media_type(part)
    if not has_content(part) or (part.data is None and not str(part.url).startswith(("https://", "http://"))):
        return None
    if isinstance(part, Image) or kind.startswith("image/"):
        if part.data is not None and kind not in _IMAGE_TYPES:
            return None
        detail = part.detail if isinstance(part, Image) else None
        return {"type": "input_image", "image_url": _address(part, kind), "detail": detail or "auto"}
    if part.data is None:
        return None if kind.startswith(("audio/", "video/")) else {"type": "input_file", "file_url": part.url}
    if kind not in _DOCUMENT_TYPES and not kind.startswith("text/"):
        return None
    name = part.path.replace("\\", "/").rpartition("/")[2] or "file"
    return {"type": "input_file", "filename": name, "file_data": _address(part, kind)}


def _address(part: Image | FileRef, kind: str) -> str | None:
    return part.url if part.data is None else data_url(kind, part.data)


def _call_id(part: ToolCall) -> str:
    if part.executed_by == "client" or RULES.accepts_id(part.tool_call_id):
        return part.tool_call_id
    return made_id(part.tool_call_id, -1)  # differs from every id that `repair` makes of this one


def _arguments(part: ToolCall, original: object) -> str:
    """The arguments as the model wrote them, unless they were changed since.

    Text that is not a JSON object is wrapped in one: servers of open models parse it and would refuse the request.
    """
    if isinstance(original, str) and parsed_object(original) == part.arguments:
        return original
    if part.raw_args_text is not None and not part.arguments:
        return json_text({"invalid_arguments": part.raw_args_text})
    return json_text(part.arguments)


def _generated_image(call: ToolCall) -> Item:
    content = () if call.result is None else call.result.content
    for part in content if isinstance(content, tuple) else ():
        if isinstance(part, Image) and part.data is not None:
            return {"result": b64encode(part.data).decode()}
    return {}


# -- results, by type of call


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
    # The server calls its tool with the arguments that it asked about, so a yes to others is a no.
    is_same = "approved_arguments" not in (result.metadata or {})
    reason = {"reason": _joined(content)} if result.is_error and content else {}
    answer = {"approval_request_id": result.tool_call_id, "approve": bool(granted) and is_same}
    return {"type": "mcp_approval_response", **answer, **reason}


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
    APPROVAL: _approval,
    "tool_search_call": _found_tools,
}
_HAS_ERROR_FLAG = frozenset({"shell_call", "apply_patch_call", APPROVAL})
