"""The parts of a history as Anthropic's content blocks, message by message."""

from base64 import b64encode
from typing import Any, assert_never

from bartack.formats.anthropic_messages.decode import AnthropicContinuation
from bartack.formats.body_values import INVALID_JSON, beyond
from bartack.formats.emitter import CALL_ID
from bartack.formats.losses import Losses, PrefixChanged
from bartack.formats.media import has_content, media_type, placeholder
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["INVALID_JSON", "THINKING_BLOCKS", "UNNAMED_DOCUMENT", "BlockWriter", "carries"]

Json = dict[str, Any]

UNNAMED_DOCUMENT = "document"  # the path of a file whose block has no title
THINKING_BLOCKS = frozenset(("thinking", "redacted_thinking"))
# The others are fields of Anthropic's own.
_NOT_FIELDS = frozenset(AnthropicContinuation.__annotations__) - {"caller", "citations"}

# docs.claude.com, "Vision" and "PDF support".
_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


def carries(part: Part, losses: Losses) -> bool:
    """Whether a part is sent as a block of its own: a compaction, a tool reference, a result apart from its call."""
    losses.expect(AnthropicContinuation)
    return not {"block", "resultOf"}.isdisjoint(losses.own_data(part))


class BlockWriter:
    """Writes the content blocks of each message of a history."""

    def __init__(self, messages: tuple[Message, ...], losses: Losses) -> None:
        self._messages = messages
        self._losses = losses
        self._trail = losses.trail
        self.container: str | None = self._trail.known("container").get("")
        self._answered: set[Any] = set()  # calls whose result block is carried
        self._sent_calls: set[str] = set()  # ids of the provider calls written so far
        for index, message in enumerate(messages, self._trail.first):
            for part in message.parts:
                self._note_own(index, losses.own_data(part))

    def _note_own(self, index: int, data: Json) -> None:
        block, container = data.get("block"), data.get("container")
        if isinstance(container, dict):
            self.container = container.get("id")
            self._trail.note(index, "container", value=self.container)
        if isinstance(block, dict):
            call_id = block.get("tool_use_id")
            if call_id in self._trail.known("unanswered"):
                raise PrefixChanged
            self._answered.add(call_id)
            self._trail.note(index, "answered", call_id)

    def blocks(self, index: int) -> list[Json]:
        """The blocks of one message; empty if nothing of it can be sent. Messages have to be written in order."""
        message = self._messages[index - self._trail.first]
        displaced = self._displaced_results(message)
        blocks: list[Json] = []
        for number, part in enumerate(message.parts):
            where = f"messages[{index}].parts[{number}]"
            match part:
                case Text() | Image() | FileRef():
                    blocks += self._content(part, where)
                case Thinking():
                    blocks += self._thinking(part, where, displaced)
                case ToolCall():
                    blocks += self._call(part, where, index, displaced)
                case ToolResult():
                    blocks.append(self._result(part, where))
                case _:
                    assert_never(part)
        if message.role == "assistant" and blocks and blocks[-1]["type"] in THINKING_BLOCKS:
            # "The final block in an assistant message cannot be `thinking`".
            self._losses.add(f"messages[{index}]", "thinking", "the text or call that it led to is not sent")
            while blocks and blocks[-1]["type"] in THINKING_BLOCKS:
                blocks.pop()
        return blocks

    def _content(self, part: Text | Image | FileRef, where: str) -> list[Json]:
        if isinstance(part, Text) and part.ignored:
            return []
        data = self._losses.continuation(where, part.continuation)
        if "block" in data:
            return [dict(data["block"])]
        match part:
            case Text():
                # "text content blocks must contain non-whitespace text"
                block = {"type": "text", "text": part.text} if part.text.strip() else None
            case Image() | FileRef():
                block = _media(part)
                if block is None:
                    why = "Claude accepts only JPEG, PNG, GIF and WebP images, PDF and text, inline or from the web"
                    return [{"type": "text", "text": placeholder(part, where, why, self._losses)}]
            case _:
                assert_never(part)
        return [] if block is None else [{**block, **_fields(data)}]

    def _thinking(self, part: Thinking, where: str, displaced: dict[str, Json]) -> list[Json]:
        if part.ignored:
            return []
        data = self._losses.thinking(where, part)
        if data is None:
            return []
        if "block" in data:
            return [dict(data["block"])]
        if "resultOf" in data:
            if data["resultOf"] in displaced:
                return [displaced[data["resultOf"]]]
            self._losses.add(where, "place of a tool result", "the message has no such call")
            return []
        if data.get("type") == "redacted_thinking" and "data" in data:
            return [{"type": "redacted_thinking", "data": data["data"], **_fields(data)}]
        if "signature" in data:
            return [{"type": "thinking", "thinking": part.text, "signature": data["signature"], **_fields(data)}]
        if part.text or _fields(data):
            self._losses.add(where, "thinking", "it has no signature")
        return []

    # -- tools

    def _call(self, part: ToolCall, where: str, index: int, displaced: dict[str, Json]) -> list[Json]:
        data = self._losses.continuation(where, part.continuation)
        arguments = {INVALID_JSON: part.raw_args_text} if part.raw_args_text is not None else part.arguments
        if part.executed_by == "client":
            caller = data.get("caller")
            if isinstance(caller, dict) and not self._is_sent(caller.get("tool_id", "")):
                self._losses.add(where, "caller of the tool", "the call that made it is not sent")
                data = beyond(data, "caller")
            return [_use("tool_use", part.tool_call_id, part.tool_name, arguments, data)]
        if "type" not in data:
            if part.continuation is None or data:
                self._losses.add(where, f"call of {part.tool_name}", "another provider executed it")
            return []
        call_id = data.get(CALL_ID, part.tool_call_id)
        use = _use(data["type"], call_id, part.tool_name, arguments, data)
        is_answered = call_id in self._answered or call_id in self._trail.known("answered")
        if "result" not in data and not is_answered:
            self._trail.note(index, "unanswered", call_id)
            if not self._may_be_open(index):
                self._losses.add(where, f"call of {part.tool_name}", "its result never arrived")
                return []
        self._sent_calls.add(call_id)
        self._trail.note(index, "sent", call_id)
        return [use, _result_block(data, call_id)] if "result" in data and call_id not in displaced else [use]

    def _may_be_open(self, index: int) -> bool:
        """Whether a provider call may lack a result: the turn was paused, or its code is waiting for our tools."""
        later = self._messages[index + 1 - self._trail.first :]
        is_open = all(message.role == "tool" or self._is_called_by_code(message) for message in later)
        if is_open:
            self._trail.hold(index)
        return is_open and (not later or later[-1].role == "tool")

    def _is_sent(self, call_id: str) -> bool:
        return not call_id or call_id in self._sent_calls or call_id in self._trail.known("sent")

    def _is_called_by_code(self, message: Message) -> bool:
        return any("caller" in self._losses.own_data(call) for call in message.tool_calls)

    def _displaced_results(self, message: Message) -> dict[str, Json]:
        """The result blocks that do not directly follow their call, by the provider's id of the call."""
        data = [self._losses.own_data(part) for part in message.parts]
        places = {item["resultOf"] for item in data if "resultOf" in item}
        calls = {
            item.get(CALL_ID, part.tool_call_id): item
            for part, item in zip(message.parts, data, strict=True)
            if isinstance(part, ToolCall) and "result" in item
        }
        return {call_id: _result_block(item, call_id) for call_id, item in calls.items() if call_id in places}

    def _result(self, part: ToolResult, where: str) -> Json:
        data = self._losses.continuation(where, part.continuation)
        block: Json = {"type": "tool_result", "tool_use_id": part.tool_call_id}
        content: Any
        if isinstance(part.content, tuple):
            pieces = enumerate(part.content)
            content = [item for number, piece in pieces for item in self._content(piece, f"{where}.content[{number}]")]
        elif isinstance(part.content, dict):
            content = json_text(part.content)
        else:
            content = part.content
        if content if isinstance(content, list) else content.strip():
            block["content"] = content
        # "all content must be type text if is_error is true"
        if part.is_error and all(item["type"] == "text" for item in content if isinstance(content, list)):
            block["is_error"] = True
        elif part.is_error:
            self._losses.add(where, "error flag", "not accepted on a result with images or documents")
        return {**block, **_fields(data)}


def _media(part: Image | FileRef) -> Json | None:
    """The block of an image or document; None if Anthropic does not accept it."""
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
    title = {} if part.path == UNNAMED_DOCUMENT or not part.path.strip() else {"title": part.path}
    return {"type": "document", "source": source, **title}


def _fields(data: Json) -> Json:
    """The block's own fields that no part has (citations, cache_control, caller, ...)."""
    return beyond(data, *_NOT_FIELDS)


def _use(kind: str, call_id: str, name: str, arguments: Json, data: Json) -> Json:
    return {"type": kind, "id": call_id, "name": name, "input": arguments, **_fields(data)}


def _result_block(data: Json, call_id: str) -> Json:
    return {**data["result"], "tool_use_id": call_id}


def _base64(mime_type: str, data: bytes) -> Json:
    return {"type": "base64", "media_type": mime_type, "data": b64encode(data).decode()}
