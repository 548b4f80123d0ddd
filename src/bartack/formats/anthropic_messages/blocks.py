"""The parts of a history -> Anthropic's content blocks, message by message."""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.body_values import json_text
from bartack.formats.losses import Losses
from bartack.formats.media import has_content, media_type, named
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["DOCUMENT", "FORMAT", "INVALID_JSON", "THOUGHTS", "Blocks"]

Json = dict[str, Any]

FORMAT = "anthropic-messages"  # whose settings stand under this key in a tool's `extra`
DOCUMENT = "document"  # the path of a file that has no name
THOUGHTS = frozenset(("thinking", "redacted_thinking"))
INVALID_JSON = "INVALID_JSON"  # the key that Anthropic proposes for arguments that do not parse
_OWN_KEYS = frozenset(("block", "callId", "container", "data", "result", "resultOf", "signature", "type"))  # not fields

_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


class Blocks:
    """The content blocks of each message of a history."""

    def __init__(self, messages: tuple[Message, ...], losses: Losses) -> None:
        self._messages = messages
        self._losses = losses
        own = [data for message in messages for part in message.parts if (data := self._own_data(part))]
        carried = [data["block"] for data in own if isinstance(data.get("block"), dict)]
        self._answered = {block.get("tool_use_id") for block in carried}  # calls whose results stand elsewhere
        containers = [data["container"] for data in own if isinstance(data.get("container"), dict)]
        self.container: str | None = containers[-1].get("id") if containers else None
        self._told: set[str] = set()  # ids of the provider's own calls that have been told so far

    def of(self, index: int) -> list[Json]:
        """The blocks of one message; empty if the provider is told nothing of it. To be asked in order."""
        message = self._messages[index]
        placed = self._results_by_place(message)
        blocks: list[Json] = []
        for number, part in enumerate(message.parts):
            where = f"messages[{index}].parts[{number}]"
            match part:
                case Text() | Image() | FileRef():
                    blocks += self.content(part, where)
                case Thinking():
                    blocks += self._thinking(part, where, placed)
                case ToolCall():
                    blocks += self._call(part, where, index, placed)
                case ToolResult():
                    blocks.append(self._result(part, where))
                case _:
                    assert_never(part)
        if message.role == "assistant" and blocks and blocks[-1]["type"] in THOUGHTS:
            self._losses.add(f"messages[{index}]", "thinking", "what it led to is left out")
            return _without_last_thoughts(blocks)
        return blocks

    def _own_data(self, part: Part) -> Json:
        continuation = part.continuation
        return {} if continuation is None or continuation.provider != self._losses.provider else continuation.data

    # -- content

    def content(self, part: Text | Image | FileRef, where: str) -> list[Json]:
        """The block that says a piece of content; none for text that is not for models, or blank."""
        if isinstance(part, Text) and part.ignored:
            return []
        data = self._losses.continuation(where, part.continuation)
        if "block" in data:
            return [dict(data["block"])]
        match part:
            case Text():
                block = {"type": "text", "text": part.text} if part.text.strip() else None  # blank text is refused
            case Image() | FileRef():
                block = _media(part)
                if block is None:
                    why = "only images (JPEG, PNG, GIF, WebP), PDF and text are taken, inline or from the web"
                    return [{"type": "text", "text": named(part, where, why, self._losses)}]
            case _:
                assert_never(part)
        return [] if block is None else [{**block, **_fields(data)}]

    # -- what the model thought

    def _thinking(self, part: Thinking, where: str, placed: dict[str, Json]) -> list[Json]:
        if part.ignored:
            return []
        data = self._losses.thinking(where, part)
        if data is None:
            return []
        if "block" in data:
            return [dict(data["block"])]
        if "resultOf" in data:
            return [placed[data["resultOf"]]] if data["resultOf"] in placed else []
        if data.get("type") == "redacted_thinking":
            return [{"type": "redacted_thinking", "data": data["data"]}]
        if "signature" in data:
            return [{"type": "thinking", "thinking": part.text, "signature": data["signature"], **_fields(data)}]
        if part.text:
            self._losses.add(where, "thinking", "it has no signature")
        return []

    # -- tools

    def _call(self, part: ToolCall, where: str, index: int, placed: dict[str, Json]) -> list[Json]:
        data = self._losses.continuation(where, part.continuation)
        arguments = {INVALID_JSON: part.raw_args_text} if part.raw_args_text is not None else part.arguments
        if part.executed_by == "client":
            caller = data.get("caller")
            if isinstance(caller, dict) and caller.get("tool_id", "") not in {"", *self._told}:
                self._losses.add(where, "what called it", "that call is not told")
                data = {key: value for key, value in data.items() if key != "caller"}
            return [_use("tool_use", part.tool_call_id, part.tool_name, arguments, data)]
        if "type" not in data:
            if part.continuation is None or data:
                self._losses.add(where, f"a call of {part.tool_name}", "another provider executed it")
            return []
        call_id = data.get("callId", part.tool_call_id)
        use = _use(data["type"], call_id, part.tool_name, arguments, data)
        if "result" not in data and call_id not in self._answered and not self._may_wait(index):
            self._losses.add(where, f"a call of {part.tool_name}", "its result never came")
            return []
        self._told.add(call_id)
        return [use, _result_block(data, call_id)] if "result" in data and call_id not in placed else [use]

    def _may_wait(self, index: int) -> bool:
        """Whether a provider's call may still be open: the turn was paused, or its code waits for our tools."""
        later = self._messages[index + 1 :]
        is_open = all(message.role == "tool" or self._is_called_by_code(message) for message in later)
        return is_open and (not later or later[-1].role == "tool")

    def _is_called_by_code(self, message: Message) -> bool:
        return any("caller" in self._own_data(call) for call in message.tool_calls)

    def _results_by_place(self, message: Message) -> dict[str, Json]:
        """Results that do not stand right behind their call, by the provider's id of the call."""
        data = [self._own_data(part) for part in message.parts]
        places = {item["resultOf"] for item in data if "resultOf" in item}
        calls = {
            item.get("callId", part.tool_call_id): item
            for part, item in zip(message.parts, data, strict=True)
            if isinstance(part, ToolCall) and "result" in item
        }
        return {call_id: _result_block(item, call_id) for call_id, item in calls.items() if call_id in places}

    def _result(self, part: ToolResult, where: str) -> Json:
        data = self._losses.continuation(where, part.continuation)
        block: Json = {"type": "tool_result", "tool_use_id": part.tool_call_id}
        content: Any
        if isinstance(part.content, tuple):
            content = [
                piece
                for number, item in enumerate(part.content)
                for piece in self.content(item, f"{where}.content[{number}]")
            ]
        elif isinstance(part.content, dict):
            content = json_text(part.content)
        else:
            content = part.content
        if content if isinstance(content, list) else content.strip():
            block["content"] = content
        # "all content must be type text if is_error is true"
        if part.is_error and all(one["type"] == "text" for one in content if isinstance(content, list)):
            block["is_error"] = True
        elif part.is_error:
            self._losses.add(where, "that the tool failed", "a result that holds an image cannot say so")
        return {**block, **_fields(data)}


def _media(part: Image | FileRef) -> Json | None:
    """The block of a picture or a document; None where there is none for it."""
    kind, data = media_type(part), part.data
    is_reachable = data is None and (part.url or "").startswith(("https://", "http://"))
    if not has_content(part) or (data is None and not is_reachable):
        return None
    if isinstance(part, Image) or kind.startswith("image/"):
        if data is None:
            return {"type": "image", "source": {"type": "url", "url": part.url}}
        return {"type": "image", "source": _base64(kind, data)} if kind in _IMAGES else None
    source: Json
    if data is None:
        source = {"type": "url", "url": part.url}
    elif kind == "application/pdf":
        source = _base64(kind, data)
    elif kind.startswith(_TEXTS) and data.strip():
        source = {"type": "text", "media_type": "text/plain", "data": data.decode("utf-8", "replace")}
    else:
        return None
    title = {} if part.path == DOCUMENT or not part.path.strip() else {"title": part.path}
    return {"type": "document", "source": source, **title}


def _without_last_thoughts(blocks: list[Json]) -> list[Json]:
    """ "The final block in an assistant message cannot be thinking": it must lead to something."""
    end = len(blocks)
    while end and blocks[end - 1]["type"] in THOUGHTS:
        end -= 1
    return blocks[:end]


def _fields(data: Json) -> Json:
    """The fields of a block that have no place in a part (citations, cache_control, caller, ...)."""
    return {key: value for key, value in data.items() if key not in _OWN_KEYS}


def _use(kind: str, call_id: str, name: str, arguments: Json, data: Json) -> Json:
    return {"type": kind, "id": call_id, "name": name, "input": arguments, **_fields(data)}


def _result_block(data: Json, call_id: str) -> Json:
    return {**data["result"], "tool_use_id": call_id}


def _base64(mime_type: str, data: bytes) -> Json:
    return {"type": "base64", "media_type": mime_type, "data": b64encode(data).decode()}
