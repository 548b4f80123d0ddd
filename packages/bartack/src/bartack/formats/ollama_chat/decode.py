"""Ollama's chat stream to deltas: one JSON object per line, each with a piece of the message.

A line with `done` is the terminal signal. It may have content, too, and it has the usage. A tool call arrives whole,
its arguments as an object; servers before 0.12.10 send no id for it
(recordings/ollama-chat/prism--ollama-stream-with-tools-1--0-19651c). A server that fails in mid-stream sends `error`.

Thinking carries empty continuation data under `THINKING`: it marks text that came in this field, so that the encoder
may send it back there.
"""

from typing import Any, ClassVar

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.usage import token_count
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.json_values import json_text

__all__ = ["THINKING", "OllamaChat"]

THINKING = "thinking"  # the key of continuation data that marks thinking as Ollama's own

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}  # "load" and "unload" come without an answer


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
    """Decodes the lines of `/api/chat`."""

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
            out.refused(_error_message(event.error))
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
        self.truncated("a line with done: true")

    def _think(self, piece: str) -> None:
        self.out.thinking(piece, continuation=None if self._is_thinking else {THINKING: {}})
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
            # Servers before July 2024 did not count a cached prompt (github.com/ollama/ollama/pull/5371).
            self.out.usage(Usage(token_count(line.prompt_eval_count) or 0, token_count(line.eval_count) or 0))
        reason = line.done_reason
        self.out.finish(
            _FINISH.get(reason, "other") if reason else "stop", reason
        )  # older servers give no reason; not verified
        self.out.done()


def _arguments_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json_text(arguments)


def _error_message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else "The server reported an error."
