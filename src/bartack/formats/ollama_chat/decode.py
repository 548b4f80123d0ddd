"""Ollama's chat lines -> deltas. One JSON object per line, each with a piece of the message.

A line with `done` is the last one and the terminal signal; it may hold content too, and it holds the usage. A tool call
comes whole, its arguments as an object, from older servers without an id. A server that fails in the middle sends a
line with `error`.

Thinking carries empty continuation data under its own name: it says that the text came in this field, so that an
encoder may send it back there.
"""

import json
from typing import Any, ClassVar

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.nouns.deltas import FinishReason, Usage

__all__ = ["OllamaChat"]

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}  # also "load" and "unload": nothing was said


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: _Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: float | None = None
    eval_count: float | None = None
    error: Any = None


class OllamaChat(Decoder):
    """Reads the lines of `/api/chat`."""

    format: ClassVar[str] = "ollama-chat"
    framing: ClassVar[FramingName] = "ndjson"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Line)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_thinking = False
        self._calls = 0

    def read(self, event: _Line, frame: Frame) -> None:
        out, message = self.out, event.message
        if event.error is not None:
            out.refused(_error_text(event.error))
            return
        if not out.started:
            out.start(event.model)
        if message is not None:
            if message.thinking:
                self._think(message.thinking)
            if message.content:
                self._is_thinking = False
                out.text(message.content)
            if message.tool_calls:
                self._call(message.tool_calls)
        if event.done and not out.ended:
            self._finish(event)

    def read_end(self) -> None:
        self.truncated("its line with done")

    def _think(self, piece: str) -> None:
        self.out.thinking(piece, continuation=None if self._is_thinking else {"thinking": {}})
        self._is_thinking = True

    def _call(self, calls: list[_ToolCall]) -> None:
        self._is_thinking = False
        for call in calls:
            function = call.function or _Function()
            if not self._pending.can_keep(function.arguments):
                return
            self._calls += 1
            self.out.open_call(self._calls, function.name or "", provider_id=call.id)
            self.out.call_args(self._calls, _arguments_text(function.arguments))
            self.out.close_call(self._calls)

    def _finish(self, line: _Line) -> None:
        if line.prompt_eval_count is not None or line.eval_count is not None:
            # A prompt that the server had evaluated before is left out of the counts altogether.
            self.out.usage(Usage(_tokens(line.prompt_eval_count), _tokens(line.eval_count)))
        reason = line.done_reason
        self.out.finish(_FINISH.get(reason, "other") if reason else "stop", reason)  # old servers give no reason
        self.out.done()


def _arguments_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _error_text(error: Any) -> str:
    said = error.get("message") if isinstance(error, dict) else error
    return said if isinstance(said, str) else "the server reported an error"


def _tokens(value: float | None) -> int:
    return int(value) if value is not None and 0 <= value < 2**53 else 0
