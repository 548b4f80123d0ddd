"""A `ModelRequest` -> the body of a Chat Completions request, in any vendor's accent.

The accent (see `bartack.formats.openai_chat.accents`) is a value, not a branch: this file knows no vendor. What goes back
to a provider of its own answers is found in the continuation data of the parts:

- ``field``: where thinking came from (`reasoning_content`, `reasoning`, or a `content` list), and where it goes back;
- ``reasoning_details``, ``annotations``, ``audio``, ``extra_content``: the provider's own, as they came;
- ``message``, ``chunk``, ``call``, ``content``: what a request that was read said beyond our words: keys of the
  message, of the piece of content, of the call, and pieces of a kind that we have no part for.
"""

from typing import Any, assert_never

from bartack.formats.body_values import used_tools, with_extra
from bartack.formats.losses import Losses
from bartack.formats.openai_chat.accents import ChatAccent, accent_of
from bartack.formats.openai_chat.content import encode_content, is_plain
from bartack.formats.openai_chat.read import read_request
from bartack.formats.openai_chat.settings import add_caching, add_settings, add_tools
from bartack.formats.repair import BRIDGE
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request"]

Json = dict[str, Any]


def encode(request: ModelRequest, losses: Losses, accent: ChatAccent | None = None) -> Json:
    """The request's body; what it does not say is added to `losses`. The accent is that of the provider."""
    accent = accent or accent_of(request.provider)
    body: Json = {"model": request.config.model_id, "messages": _Messages(losses, accent).encode(request.messages)}
    add_tools(body, request, losses, accent)
    add_settings(body, request.config, losses, accent)
    if request.config.cache_config is not None:
        add_caching(body, accent)
    body["stream"] = True
    if accent.stream_options:
        body["stream_options"] = {"include_usage": True}
    return with_extra(body, request.config.extra)


# -- messages


class _Messages:
    """Puts the messages together. Pictures in tool results, which no vendor takes there, follow as the user's."""

    def __init__(self, losses: Losses, accent: ChatAccent) -> None:
        self._losses = losses
        self._accent = accent
        self._out: list[Json] = []
        self._legacy_calls: dict[str, str] = {}  # id -> name, of calls in the form before tool_calls
        self._attached: list[Json] = []

    def encode(self, messages: tuple[Message, ...]) -> list[Json]:
        for at, message in enumerate(messages):
            where = f"messages[{at}]"
            if message.role != "tool":
                self._send_attached()
            match message.role:
                case "system":
                    self._add_system(message, where)
                case "user":
                    self._add_user(message, where)
                case "assistant":
                    self._add_assistant(message, where)
                case "tool":
                    for number, result in enumerate(message.tool_results):
                        self._add_result(result, f"{where}.parts[{number}]")
                case _:
                    assert_never(message.role)
        self._send_attached()
        return self._out

    def _add_system(self, message: Message, where: str) -> None:
        may_stand_here = self._accent.system_anywhere or all(one["role"] == "system" for one in self._out)
        role = self._accent.system_role if may_stand_here else "user"
        if not may_stand_here:
            self._losses.add(where, "the system role", "the provider takes system messages only at the start")
        self._say(role, self._content(message, where), self._others(message))

    def _add_user(self, message: Message, where: str) -> None:
        self._say("user", self._content(message, where), self._others(message))

    def _say(self, role: str, content: str | list[Json], others: Json) -> None:
        """Add a message; where roles have to alternate, what the user says twice in a row is one message."""
        if self._accent.rules.merge_same_role and self._out and self._out[-1]["role"] == role == "user":
            self._out[-1]["content"] = self._joined([*_as_pieces(self._out[-1]["content"]), *_as_pieces(content)])
            self._out[-1].update(others)
        else:
            self._out.append({"role": role, "content": content, **others})

    def _content(self, message: Message, where: str) -> str | list[Json]:
        pieces: list[Json] = []
        for at, part in enumerate(message.parts):
            here = f"{where}.parts[{at}]"
            assert isinstance(part, Thinking | ContentPart)  # Message lets nothing else in
            if isinstance(part, Thinking):
                pieces += self._thinking_pieces(part, here)
            else:
                pieces += self._pieces(part, here)
        return self._joined(pieces)

    def _pieces(self, part: ContentPart, where: str) -> list[Json]:
        data = self._losses.continuation(where, part.continuation)
        return encode_content(part, data, where, self._losses, self._accent)

    def _joined(self, pieces: list[Json]) -> str | list[Json]:
        """One plain text is a string; several are a list, or lines where the vendor wants strings only."""
        plain = all(is_plain(piece) for piece in pieces)
        if plain and (len(pieces) <= 1 or not self._accent.text_lists):
            return "\n".join(piece["text"] for piece in pieces)
        return pieces

    def _others(self, message: Message) -> Json:
        """Keys of the wire's message that we have no words for."""
        others: Json = {}
        for part in message.parts:
            if part.continuation is not None and part.continuation.provider == self._losses.provider:
                others.update(part.continuation.data.get("message", {}))
        return others

    def _add_assistant(self, message: Message, where: str) -> None:
        wire: Json = {"role": "assistant", "content": None}
        pieces: list[Json] = []
        calls: list[Json] = []
        for at, part in enumerate(message.parts):
            here = f"{where}.parts[{at}]"
            match part:
                case Text():
                    self._add_answer_text(part, here, wire, pieces)
                case Thinking():
                    pieces += self._thinking_pieces(part, here)
                    self._add_thinking(part, wire)
                case ToolCall():
                    self._add_call(part, here, wire, calls)
                case _:
                    assert_never(part)  # type: ignore[arg-type]  # Message checks its parts
        if pieces:
            plain = all(is_plain(piece) for piece in pieces)
            wire["content"] = "".join(piece["text"] for piece in pieces) if plain else pieces
        if "audio" in wire:  # its id stands for the transcript too
            wire["content"] = None
        if calls:
            wire["tool_calls"] = calls
            if self._accent.empty_thinking is not None:
                field, words = self._accent.empty_thinking
                wire[field] = wire.get(field) or words
        self._out.append({**self._never_silent(wire, message), **self._others(message)})

    def _never_silent(self, wire: Json, message: Message) -> Json:
        """With what it used, if nothing else can be told of an answer."""
        content = wire["content"]
        is_told = content.strip() if isinstance(content, str) else content
        if is_told or any(wire.get(key) for key in ("tool_calls", "function_call", "audio", "refusal")):
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
        if "annotations" in data and "annotations" in self._accent.takes_back:
            wire["annotations"] = [*wire.get("annotations", []), *data["annotations"]]
        if part.text or "content" in data:
            pieces += encode_content(part, data, where, self._losses, self._accent)

    def _thinking_pieces(self, part: Thinking, where: str) -> list[Json]:
        """The thinking as a piece of content, if that is how it came; what cannot go back is a loss."""
        data = None if part.ignored else self._losses.thinking(where, part)
        if data is None:
            return []
        if "thinking" not in self._accent.takes_back:
            self._losses.add(where, "thinking", "the provider does not take it back")
            return []
        if data.get("field") != "content":
            return []
        inner = data.get("thinking") or [{"type": "text", "text": part.text}]
        return [{"type": "thinking", "thinking": inner, **data.get("chunk", {})}]

    def _add_thinking(self, part: Thinking, wire: Json) -> None:
        ours = part.continuation is not None and part.continuation.provider == self._losses.provider
        if part.continuation is None or part.ignored or not ours or "thinking" not in self._accent.takes_back:
            return
        data = part.continuation.data
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
        """The arguments as text. What is no JSON object is shown to the model inside one, unless any text may stand."""
        if call.raw_args_text is None:
            return json_text(call.arguments)
        return call.raw_args_text if self._accent.any_arguments else json_text({"raw_arguments": call.raw_args_text})

    def _add_executed(self, call: ToolCall, where: str, wire: Json) -> None:
        content = call.result.content if call.result is not None else None
        pictures = [part for part in content if isinstance(part, Image)] if isinstance(content, tuple) else []
        if pictures and "images" in self._accent.takes_back:
            pieces = [piece for picture in pictures for piece in self._pieces(picture, where)]
            wire["images"] = [*wire.get("images", []), *pieces]
        else:
            self._losses.add(where, f"the call of {call.tool_name}", "the format has no place for what a provider ran")

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
                    piece for at, part in enumerate(parts) for piece in self._pieces(part, f"{where}.content[{at}]")
                ]
        attached = [piece for piece in pieces if piece["type"] != "text"]
        if attached:
            self._attached += [{"type": "text", "text": f"From the result of {result.tool_call_id}:"}, *attached]
        texts = [piece for piece in pieces if piece["type"] == "text"]
        if all(is_plain(piece) for piece in texts):
            words = "\n".join(piece["text"] for piece in texts)
            return _marked(words or ("It follows in the next message." if attached else ""), result.is_error)
        return texts

    def _send_attached(self) -> None:
        if not self._attached:
            return
        if not self._accent.rules.allows_user_after_tool:
            self._out.append({"role": "assistant", "content": BRIDGE})
        self._say("user", self._attached, {})
        self._attached = []


def _as_pieces(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marked(text: str, is_error: bool) -> str:
    """The format has no mark for errors, so the text says it, unless it does already."""
    return f"Error: {text}" if is_error and not text.lower().startswith("error") else text
