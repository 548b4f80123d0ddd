"""A `ModelRequest` to the body of a Chat Completions request.

Vendors differ in data, not in code: everything vendor-specific is a row of `bartack.formats.openai_chat.capabilities`.
What is sent back to the provider that produced it comes from the continuation data of the parts (`ChatContinuation`).
"""

from typing import Any, assert_never

from bartack.formats.losses import Losses
from bartack.formats.openai_chat.capabilities import ChatCapabilities, capabilities_of
from bartack.formats.openai_chat.content import encode_content, is_plain
from bartack.formats.openai_chat.events import ChatContinuation
from bartack.formats.openai_chat.settings import NAME, add_caching, add_settings, add_tools
from bartack.formats.repair import RESULTS_RECEIVED
from bartack.formats.settings import own_extra, with_extra
from bartack.formats.tools import used_tools
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["carries", "encode"]

Json = dict[str, Any]


def carries(part: Part, losses: Losses) -> bool:
    """Whether a part is sent as a piece of content that no part can represent, or as audio."""
    losses.expect(ChatContinuation)
    return not {"content", "audio"}.isdisjoint(losses.own_data(part))


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body. What is left out of it is added to `losses`."""
    losses.expect(ChatContinuation)
    vendor = capabilities_of(request.provider)
    body: Json = {"model": request.config.model_id, "messages": _Messages(losses, vendor).encode(request.messages)}
    add_tools(body, request, losses, vendor)
    add_settings(body, request.config, losses, vendor)
    if request.config.cache_config is not None:
        add_caching(body, request.config.cache_config, losses, vendor)
    body["stream"] = True
    if vendor.stream_options:
        body["stream_options"] = {"include_usage": True}
    return with_extra(body, own_extra(request, NAME, losses))


# -- messages


class _Messages:
    """Collects the messages. Media in tool results, which no vendor accepts there, follow in a user message."""

    def __init__(self, losses: Losses, vendor: ChatCapabilities) -> None:
        self._losses = losses
        self._vendor = vendor
        self._trail = losses.trail
        self._out: list[Json] = []
        self._starts: list[int] = []  # the message of each
        self._legacy_calls: dict[str, str] = {}  # id -> name of calls sent as function_call
        self._attached: list[Json] = []

    def encode(self, messages: tuple[Message, ...]) -> list[Json]:
        for index, message in enumerate(messages, self._trail.first):
            where = f"messages[{index}]"
            if message.role != "tool":
                self._send_attached()
            self._note_starts(index - 1)
            match message.role:
                case "system":
                    self._add_system(message, where)
                case "user":
                    self._append("user", self._content(message, where), self._others(message))
                case "assistant":
                    self._add_assistant(message, where)
                case "tool":
                    for number, result in enumerate(message.tool_results):
                        self._add_result(result, f"{where}.parts[{number}]")
                case _:
                    assert_never(message.role)
        self._send_attached()
        self._note_starts(self._trail.first + len(messages) - 1)
        self._trail.wrote(self._out, self._starts)
        return self._out

    def _note_starts(self, index: int) -> None:
        """Record the message that the new items come from."""
        self._starts += [index] * (len(self._out) - len(self._starts))

    def _add_system(self, message: Message, where: str) -> None:
        is_accepted = self._vendor.system_anywhere or all(wire["role"] == "system" for wire in self._out)
        role = "system" if is_accepted else "user"
        if not is_accepted:
            self._losses.add(where, "system role", "the provider accepts it only at the start; sent as user text")
        self._append(role, self._content(message, where), self._others(message))

    def _append(self, role: str, content: str | list[Json], extra: Json) -> None:
        """Append a message. Where roles must alternate, consecutive user messages become one."""
        if self._vendor.rules.merge_same_role and self._out and self._out[-1]["role"] == role == "user":
            self._out[-1]["content"] = self._joined([*_as_pieces(self._out[-1]["content"]), *_as_pieces(content)])
            self._out[-1].update(extra)
        else:
            self._out.append({"role": role, "content": content, **extra})

    def _content(self, message: Message, where: str) -> str | list[Json]:
        pieces: list[Json] = []
        for index, part in enumerate(message.parts):
            path = f"{where}.parts[{index}]"
            assert isinstance(part, Thinking | ContentPart)  # ensured by Message
            if isinstance(part, Thinking):
                pieces += self._thinking_pieces(part, path)
            else:
                pieces += self._pieces(part, path)
        return self._joined(pieces)

    def _pieces(self, part: ContentPart, where: str) -> list[Json]:
        data = self._losses.continuation(where, part.continuation)
        return encode_content(part, data, where, self._losses, self._vendor)

    def _joined(self, pieces: list[Json]) -> str | list[Json]:
        """A single plain text as a string; several as a list, or as lines if the vendor accepts only strings."""
        plain = all(is_plain(piece) for piece in pieces)
        if plain and (len(pieces) <= 1 or not self._vendor.text_lists):
            return "\n".join(piece["text"] for piece in pieces)
        return pieces

    def _others(self, message: Message) -> Json:
        """Fields of the message on the wire that our message has no place for."""
        extra: Json = {}
        for part in message.parts:
            extra.update(self._losses.own_data(part).get("message", {}))
        return extra

    def _add_assistant(self, message: Message, where: str) -> None:
        wire: Json = {"role": "assistant", "content": None}
        pieces: list[Json] = []
        calls: list[Json] = []
        for index, part in enumerate(message.parts):
            path = f"{where}.parts[{index}]"
            match part:
                case Text():
                    self._add_answer_text(part, path, wire, pieces)
                case Thinking():
                    pieces += self._thinking_pieces(part, path)
                    self._add_thinking(part, wire)
                case ToolCall():
                    self._add_call(part, path, wire, calls)
                case _:
                    assert_never(part)  # type: ignore[arg-type]  # Message checks its parts
        if pieces:
            plain = all(is_plain(piece) for piece in pieces)
            wire["content"] = "".join(piece["text"] for piece in pieces) if plain else pieces
        if "audio" in wire:  # its id stands for the transcript, too
            wire["content"] = None
        if calls:
            wire["tool_calls"] = calls
            if self._vendor.empty_thinking is not None:
                field, placeholder = self._vendor.empty_thinking
                wire[field] = wire.get(field) or placeholder
        self._out.append({**self._not_empty(wire, message), **self._others(message)})

    def _not_empty(self, wire: Json, message: Message) -> Json:
        """The message, with the names of its tools as text if it would be empty otherwise."""
        content = wire["content"]
        has_content = content.strip() if isinstance(content, str) else content
        if has_content or any(wire.get(key) for key in ("tool_calls", "function_call", "audio", "refusal")):
            return wire
        return {**wire, "content": used_tools(message)} if message.tool_calls else wire

    def _add_answer_text(self, part: Text, where: str, wire: Json, pieces: list[Json]) -> None:
        if part.ignored:
            return
        data = self._losses.continuation(where, part.continuation)
        if data.get("field") == "refusal":
            wire["refusal"] = wire.get("refusal", "") + part.text
            return
        if "audio" in data:
            wire["audio"] = {"id": data["audio"].get("id")}
        if "annotations" in data and "annotations" in self._vendor.takes_back:
            wire["annotations"] = [*wire.get("annotations", []), *data["annotations"]]
        elif "annotations" in data:
            self._losses.add(where, "annotations", "the provider does not accept them back")
        for name in ("citations", "search_results"):
            if name in data:
                self._losses.add(where, name.replace("_", " "), "a request has no place for them")
        if part.text or "content" in data:
            pieces += encode_content(part, data, where, self._losses, self._vendor)

    def _thinking_pieces(self, part: Thinking, where: str) -> list[Json]:
        """Thinking that came as a piece of content. Thinking that cannot be sent back is a loss."""
        data = None if part.ignored else self._losses.thinking(where, part)
        if data is None:
            return []
        if "thinking" not in self._vendor.takes_back:
            self._losses.add(where, "thinking", "the provider does not accept it back")
            return []
        if data.get("field") != "content":
            return []
        inner = data.get("thinking") or [{"type": "text", "text": part.text}]
        return [{"type": "thinking", "thinking": inner, **data.get("chunk", {})}]

    def _add_thinking(self, part: Thinking, wire: Json) -> None:
        data = self._losses.own_data(part)
        if part.ignored or "thinking" not in self._vendor.takes_back:
            return
        field = data.get("field")
        if "reasoning_details" in data:
            wire["reasoning_details"] = [*wire.get("reasoning_details", []), *data["reasoning_details"]]
        elif field in ("reasoning_content", "reasoning"):
            wire[field] = wire.get(field, "") + part.text

    # -- calls and results

    def _add_call(self, call: ToolCall, where: str, wire: Json, calls: list[Json]) -> None:
        data = self._losses.continuation(where, call.continuation)
        if call.executed_by == "provider":
            self._add_executed(call, where, wire)
            return
        if data.get("type") == "custom":
            custom = {"name": call.tool_name, "input": call.arguments.get("input", "")}
            calls.append({"id": call.tool_call_id, "type": "custom", "custom": custom, **data.get("call", {})})
            return
        function = {"name": call.tool_name, "arguments": self._arguments(call)}
        if data.get("field") == "function_call":
            self._legacy_calls[call.tool_call_id] = call.tool_name
            wire["function_call"] = function
            return
        extra = {"extra_content": data["extra_content"]} if "extra_content" in data else {}
        calls.append(
            {"id": call.tool_call_id, "type": "function", "function": function, **extra, **data.get("call", {})}
        )

    def _arguments(self, call: ToolCall) -> str:
        """The arguments as text. Invalid JSON is wrapped in an object, unless the vendor accepts any text."""
        if call.raw_args_text is None:
            return json_text(call.arguments)
        return call.raw_args_text if self._vendor.any_arguments else json_text({"raw_arguments": call.raw_args_text})

    def _add_executed(self, call: ToolCall, where: str, wire: Json) -> None:
        content = call.result.content if call.result is not None else None
        images = [part for part in content if isinstance(part, Image)] if isinstance(content, tuple) else []
        if images and "images" in self._vendor.takes_back:
            pieces = [piece for image in images for piece in self._pieces(image, where)]
            wire["images"] = [*wire.get("images", []), *pieces]
        else:
            self._losses.add(where, f"call of {call.tool_name}", "the format has no calls that a provider executed")

    def _add_result(self, result: ToolResult, where: str) -> None:
        data = self._losses.continuation(where, result.continuation)
        content = self._result_content(result, where)
        if result.tool_call_id in self._legacy_calls:
            wire: Json = {"role": "function", "name": self._legacy_calls[result.tool_call_id], "content": content}
        else:
            wire = {"role": "tool", "tool_call_id": result.tool_call_id, "content": content}
        self._out.append({**wire, **data.get("message", {})})

    def _result_content(self, result: ToolResult, where: str) -> str | list[Json]:
        match result.content:
            case str(text):
                return _marked(text, result.is_error)
            case dict(value):
                return _marked(json_text(value), result.is_error)
            case parts:
                pieces = [
                    piece
                    for index, part in enumerate(parts)
                    for piece in self._pieces(part, f"{where}.content[{index}]")
                ]
        attached = [piece for piece in pieces if piece.get("type") != "text"]
        if attached:
            self._losses.moved_media(where)
            if not self._vendor.rules.allows_user_after_tool and not self._attached:
                why = "the assistant comes between tool results and their media"
                self._losses.add(where, f"the assistant text {RESULTS_RECEIVED!r}", why, action="added")
            self._attached += [{"type": "text", "text": f"Attached to the result of {result.tool_call_id}:"}, *attached]
        texts = [piece for piece in pieces if piece.get("type") == "text"]
        if all(is_plain(piece) for piece in texts):
            text = "\n".join(piece["text"] for piece in texts)
            return _marked(text or ("See the next message." if attached else ""), result.is_error)
        return texts

    def _send_attached(self) -> None:
        if not self._attached:
            return
        if not self._vendor.rules.allows_user_after_tool:
            self._out.append({"role": "assistant", "content": RESULTS_RECEIVED})
        self._append("user", self._attached, {})
        self._attached = []


def _as_pieces(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marked(text: str, is_error: bool) -> str:
    """The text with a prefix for errors, which the format has no flag for, unless it begins with one."""
    return f"Error: {text}" if is_error and not text.lower().startswith("error") else text
