"""Deltas to a stream of Chat Completions chunks, and a message to the whole response.

The format has no end of a call: clients such as opencode run a call once its arguments are complete JSON. So the
brackets at the end of the arguments, and the input of a custom tool, are held back until the answer is complete.

Thinking is written to `reasoning_content`, which most clients read and send back, unless its provider used `reasoning`.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from bartack.formats.body_values import beyond
from bartack.formats.openai import custom_input, openai_error
from bartack.formats.openai_chat.events import ChatContinuation
from bartack.formats.openai_chat.settings import NAME
from bartack.formats.response_writer import (
    ErrorResponse,
    Json,
    ResponseWriter,
    WrittenCall,
    WrittenText,
    server_sent_event,
)
from bartack.nouns.deltas import Delta, Done, Failed, FinishReason, Usage

__all__ = ["ChatWriter"]

_CLOSING = "}] \t\r\n"  # what may complete a JSON value
_TEXT_FIELDS = ("content", "refusal", "reasoning_content", "reasoning")


class ChatWriter(ResponseWriter):
    """Writes chunks with one choice, and ``[DONE]``."""

    format: ClassVar[str] = NAME
    continuation_type: ClassVar[Any] = ChatContinuation
    words: ClassVar[dict[FinishReason, str]] = {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_calls",
        "content_filter": "content_filter",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._call_count = 0
        self._held: dict[str, str] = {}  # the last brackets of a call's arguments, by its id
        self._refused = False

    def frame(self, event: Json) -> bytes:
        return server_sent_event(event)

    def write(self, delta: Delta) -> bytes:
        body = super().write(delta)
        return body + b"data: [DONE]\n\n" if isinstance(delta, Done) else body

    def _emit_delta(self, delta: Json, finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        self.emit({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> Json:
        created = int(self.created.timestamp())
        return {"id": self.response_id, "object": kind, "created": created, "model": self.model_id}

    # -- texts

    def begin(self) -> None:
        self._emit_delta({"role": "assistant", "content": ""})

    def add_text(self, part: WrittenText, piece: str) -> None:
        field = part.continuation.get("field")
        if part.kind == "thinking":
            self._emit_delta({"reasoning" if field == "reasoning" else "reasoning_content": piece})
        else:
            self._refused |= field == "refusal"
            self._emit_delta({"refusal" if field == "refusal" else "content": piece})

    def end_text(self, part: WrittenText) -> None:
        data = part.continuation
        if data.get("annotations"):
            self._emit_delta({"annotations": data["annotations"]})
        details = data.get("reasoning_details", ())
        ciphertexts = [detail for detail in details if not (detail.get("text") or detail.get("summary"))]
        if ciphertexts:
            self._emit_delta({"reasoning_details": ciphertexts})
        if len(ciphertexts) < len(details):
            self.losses.add(part.where, "reasoning details", "their text was sent as it arrived")

    # -- calls

    def open_call(self, call: WrittenCall) -> None:
        call.place = self._call_count
        self._call_count += 1
        fields: Json = {"id": call.id}
        if self._is_custom(call):
            fields |= {"type": "custom", "custom": {"name": call.name, "input": ""}}
        else:
            fields |= {"type": "function", "function": {"name": call.name, "arguments": ""}}
        if "extra_content" in call.continuation:
            fields["extra_content"] = call.continuation["extra_content"]
        self._emit_call(call, fields)

    def add_args(self, call: WrittenCall, piece: str) -> None:
        if not self._is_custom(call):
            text = self._held.get(call.id, "") + piece
            unclosed = text.rstrip(_CLOSING)
            self._held[call.id] = text[len(unclosed) :]
            self._emit_arguments(call, unclosed)

    def end_call(self, call: WrittenCall) -> None:
        if call.is_complete and self._is_custom(call):
            self._emit_call(call, {"custom": {"input": custom_input(call)}})
        elif call.is_complete:
            self._emit_arguments(call, self._held[call.id])

    def _is_custom(self, call: WrittenCall) -> bool:
        return call.name in self.custom_tools or call.continuation.get("type") == "custom"

    def _emit_arguments(self, call: WrittenCall, text: str) -> None:
        if text:
            self._emit_call(call, {"function": {"arguments": text}})

    def _emit_call(self, call: WrittenCall, fields: Json) -> None:
        self._emit_delta({"tool_calls": [{"index": call.place, **fields}]})

    # -- the end

    def finish(self, done: Done) -> None:
        if done.finish_reason == "refusal" and self._refused:
            done = Done("stop")  # the field of the text says that it is a refusal
        self._emit_delta({}, self.finish_word(done))
        if self.include_usage and self.usage is not None:
            self.emit({**self._head("chat.completion.chunk"), "choices": [], "usage": _counts(self.usage)})

    def fail(self, failed: Failed) -> None:
        self.emit(openai_error(failed).body)

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        return openai_error(failed)

    def joined(self, events: Iterable[Json]) -> Json:
        texts: dict[str, list[str]] = {name: [] for name in _TEXT_FIELDS}
        lists: dict[str, list[Any]] = {}
        calls: list[_JoinedCall] = []
        finish_reason = None
        for choice in (choice for event in events for choice in event["choices"]):
            finish_reason = choice["finish_reason"]
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    _join_call(calls, value[0])
                elif name in texts:
                    texts[name].append(value)
                elif name != "role":
                    lists.setdefault(name, []).extend(value)
        joined_texts = {name: "".join(pieces) or None for name, pieces in texts.items()}
        content, refusal = joined_texts.pop("content"), joined_texts.pop("refusal")
        has_other = refusal is not None or bool(calls)
        message: Json = {
            "role": "assistant",
            "content": None if content is None and has_other else content or "",
            "refusal": refusal,
            **{name: text for name, text in joined_texts.items() if text is not None},
            **lists,
        }
        if calls:
            message["tool_calls"] = [call.whole for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        usage = {} if self.usage is None else {"usage": _counts(self.usage)}
        return {**self._head("chat.completion"), "choices": [choice], **usage}


class _JoinedCall:
    """A call under construction: its first piece, and the pieces of its arguments or input."""

    def __init__(self, first: Json) -> None:
        self._first = beyond(first, "index")
        self.pieces: list[str] = []

    @property
    def whole(self) -> Json:
        kind, field = ("custom", "input") if "custom" in self._first else ("function", "arguments")
        return {**self._first, kind: {"name": self._first[kind]["name"], field: "".join(self.pieces)}}


def _join_call(calls: list[_JoinedCall], piece: Json) -> None:
    if "id" in piece:
        calls.append(_JoinedCall(piece))
    else:
        text = piece["custom"]["input"] if "custom" in piece else piece["function"]["arguments"]
        calls[piece["index"]].pieces.append(text)


def _counts(usage: Usage) -> Json:
    counts: Json = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }
    if usage.cache_write_tokens is not None:
        counts["prompt_tokens_details"]["cache_write_tokens"] = usage.cache_write_tokens
    if usage.cost is not None:
        counts["cost"] = usage.cost
    return counts
