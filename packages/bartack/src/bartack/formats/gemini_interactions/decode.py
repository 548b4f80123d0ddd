"""Gemini's Interactions API to deltas.

An answer is a list of steps, each of them a `step.start`, `step.delta` events and a `step.stop`. The name of an event
is in its data, as `event_type`. `interaction.completed` is the terminal signal; its status is the finish reason.

How steps become parts:
- `thought` is thinking, and its `signature` has to be sent back with it. Each step is a part of its own.
- `model_output` is text, with `annotations` as continuation data. Generated media are a call executed by the provider
  whose result is the image or file.
- `function_call` is a call for the client.
- Every other `..._call` is executed by Google and stays open until the `..._result` with its `call_id` arrives. Both
  steps are kept whole, since both have to be sent back (recordings/gemini-interactions/ai--google-search--0-7f6a23).
- A step or a piece of output of an unknown kind is an empty text that carries it.

Recorded streams never interleave steps. If steps do overlap, what begins inside a text or thought waits for its end, so
that no part is split.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypedDict

import msgspec

from bartack.formats.body_values import beyond, text_of
from bartack.formats.decoder import Decoder, joined_pieces
from bartack.formats.framing import Frame
from bartack.formats.gemini import gemini_usage, generated_media, media_tool, refuse
from bartack.nouns.deltas import FinishReason
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import FileRef, Image, Text, ToolContent

__all__ = ["MEDIA", "GeminiInteractions", "InteractionsContinuation", "result_content"]

_FINISH: dict[str, FinishReason] = {"completed": "stop", "requires_action": "tool_calls", "incomplete": "length"}
MEDIA = frozenset(("image", "audio", "video", "document"))
_THOUGHT = frozenset(("type", "summary", "signature"))
_IMPLIED = {"text": "model_output", "thought_summary": "thought", "thought_signature": "thought"}


class _KeptStep(TypedDict):
    type: str


class InteractionsContinuation(TypedDict, total=False):
    """What a part keeps of its step: the decoder and the reader write it, the encoder reads it."""

    callId: str
    content: dict[str, Any]  # a generated image or file, without its data; a piece of output of an unknown kind
    step: _KeptStep  # a call that Google executed, whole; a step of an unknown kind
    resultStep: _KeptStep  # its result, whole
    type: str


class InteractionsCounts(msgspec.Struct, gc=False):
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    total_thought_tokens: int | None = None
    total_tool_use_tokens: int | None = None
    total_cached_tokens: int | None = None


class Metadata(msgspec.Struct, gc=False):
    usage: InteractionsCounts | None = None
    total_usage: InteractionsCounts | None = None


class Interaction(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: InteractionsCounts | None = None
    errors: list[Any] | None = None


class InteractionsEvent(msgspec.Struct, gc=False):
    event_type: str | None = None
    index: int | None = None
    delta: dict[str, Any] | None = None
    step: dict[str, Any] | None = None
    metadata: Metadata | None = None
    interaction: Interaction | None = None
    error: Any = None


class _Step:
    """A step that has begun, with everything its deltas added to it."""

    __slots__ = ("annotations", "has_arguments", "is_new", "key", "kind", "pieces", "value")

    def __init__(self, value: dict[str, Any], key: int) -> None:
        self.kind = text_of(value, "type")
        self.key = key  # identifies its call, because indexes may be reused
        self.value = value
        self.is_new = True  # no part of it has been emitted yet
        self.has_arguments = False
        self.annotations: list[Any] = []
        self.pieces: list[dict[str, Any]] = []  # the deltas of a step of an unknown kind

    @property
    def is_written(self) -> bool:
        return self.kind in ("model_output", "thought")


class GeminiInteractions(Decoder):
    """Decodes `step.delta` and related events."""

    format: ClassVar[str] = "gemini-interactions"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(InteractionsEvent)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._steps: dict[int, _Step] = {}  # the open steps, by index
        self._current: int | None = None  # index of the text or thought that is open
        self._has_text = False  # it is text, and some of it has been emitted
        self._waiting: list[tuple[InteractionsEvent, Frame]] = []
        self._keys = 0
        self._running: dict[str, int] = {}  # id of a provider call without a result -> its key

    def read(self, event: InteractionsEvent, frame: Frame) -> None:
        delta = event.delta
        if delta is not None and self._has_text and (event.index or 0) == self._current and event.metadata is None:
            text = delta.get("text")
            if type(text) is str and text and delta.get("type") == "text":  # the fast path
                self.out.text(text)
                return
        read = _EVENTS.get(event.event_type or frame.event)
        if read is not None:
            read(self, event, frame)
        elif event.error is not None:
            refuse(self.out, event.error)
        if event.metadata is not None:
            self._read_counts(event.metadata.usage or event.metadata.total_usage)

    def read_unparsed(self, frame: Frame) -> bool:
        return frame.data == b"[DONE]"

    def read_end(self) -> None:
        self.truncated("interaction.completed")

    # -- the interaction

    def _read_created(self, event: InteractionsEvent, frame: Frame) -> None:
        if event.interaction is not None:
            self.out.start(event.interaction.model, event.interaction.id)

    def _read_completed(self, event: InteractionsEvent, frame: Frame) -> None:
        interaction = event.interaction or Interaction()
        self._stop_all()
        metadata = event.metadata or Metadata()
        self._read_counts(interaction.usage or metadata.usage or metadata.total_usage)
        status = interaction.status or ""
        if status == "failed":
            refuse(self.out, (interaction.errors or ["the interaction failed"])[0])
            return
        self.out.finish(_FINISH.get(status, "other"), interaction.status)
        self.out.done()

    def _read_error(self, event: InteractionsEvent, frame: Frame) -> None:
        refuse(self.out, event.error or "The provider gave no reason.")

    def _read_counts(self, counts: InteractionsCounts | None) -> None:
        if counts is None or counts.total_input_tokens is None:
            return
        self.out.usage(
            gemini_usage(
                counts.total_input_tokens,
                counts.total_tool_use_tokens,
                counts.total_output_tokens,
                counts.total_thought_tokens,
                counts.total_cached_tokens,
            )
        )

    # -- steps

    def _read_start(self, event: InteractionsEvent, frame: Frame) -> None:
        if event.step is None or not self._pending.can_keep(event.step):
            return
        if self._current is not None:
            self._wait(event, frame)
        else:
            self._open(event.index or 0, _Step(event.step, self._new_key()))

    def _open(self, index: int, step: _Step) -> None:
        self._steps[index] = step
        if step.is_written:
            self._current = index
            self._read_whole(step)
        elif step.kind == "function_call":
            self._open_function(step)

    def _new_key(self) -> int:
        self._keys += 1
        return self._keys

    def _read_delta(self, event: InteractionsEvent, frame: Frame) -> None:
        delta, index = event.delta, event.index or 0
        step = self._steps.get(index)
        if delta is None:
            return
        if step is None:
            implied = _IMPLIED.get(text_of(delta, "type"))
            if self._current is not None:
                self._wait(event, frame)
            elif implied is not None:  # without a step.start
                self._open(index, _Step({"type": implied}, self._new_key()))
                self._read_delta(event, frame)
        elif step.kind == "model_output" and delta.get("type") == "text":
            self._emit_text(step, text_of(delta, "text"))
        elif step.is_written:
            self._read_written(step, delta, frame)
        elif step.kind == "function_call":
            self._read_arguments(step, delta)
        else:
            self._merge(step, delta, frame)

    def _read_stop(self, event: InteractionsEvent, frame: Frame) -> None:
        index = event.index or 0
        if self._current not in (None, index):
            self._wait(event, frame)
        elif index in self._steps:
            self._stop(index)

    def _stop(self, index: int) -> None:
        step = self._steps.pop(index)
        if step.kind == "function_call":
            if not step.has_arguments and step.value.get("arguments"):
                self.out.call_args(step.key, json_text(step.value["arguments"]))
            self.out.close_call(step.key)
        elif step.kind.endswith("_call"):
            self._open_provider_call(step)
        elif step.kind.endswith("_result"):
            self._close_provider_call(step)
        elif index == self._current:
            self._current = None
            self._has_text = False
            waiting, self._waiting = self._waiting, []
            for event, frame in waiting:
                _EVENTS[event.event_type or frame.event](self, event, frame)
        else:
            self._carry({"step": {**joined_pieces([step.value, *step.pieces]), "type": step.kind}})

    def _carry(self, data: dict[str, Any]) -> None:
        """Emit an empty text that keeps what is unknown here at its position."""
        self.out.text("", new_part=True, continuation=data)

    def _stop_all(self) -> None:
        """End the steps that have no `step.stop`."""
        while self._steps:
            self._stop(next(iter(self._steps)) if self._current is None else self._current)

    def _wait(self, event: InteractionsEvent, frame: Frame) -> None:
        self._waiting.append((event, frame))
        self._pending.hold(len(frame.data))

    # -- text and thoughts

    def _emit_text(self, step: _Step, text: str) -> None:
        if text:
            self.out.text(text, new_part=step.is_new)
            step.is_new = False
            self._has_text = True

    def _emit_thought(self, step: _Step, text: str, data: dict[str, Any]) -> None:
        if not text and not data:
            return
        if step.is_new:
            data = {"type": "thought", **data}  # marks thoughts as Gemini's own, which it accepts back
        self.out.thinking(text, new_part=step.is_new, continuation=data or None)
        step.is_new = False

    def _read_whole(self, step: _Step) -> None:
        """Read what a text or thought has from the start."""
        value = step.value
        if step.kind == "thought":
            fields = {name: item for name, item in value.items() if name not in _THOUGHT and item is not None}
            self._emit_thought(step, "", fields)
            for item in _dicts(value.get("summary")):
                self._emit_thought(step, text_of(item, "text"), {})
            self._read_signature(step, value)
            return
        for item in _dicts(value.get("content")):
            if item.get("type") == "text":
                self._emit_text(step, text_of(item, "text"))
            self._read_output(step, item)
        if value.get("error"):
            refuse(self.out, value["error"])

    def _read_written(self, step: _Step, delta: dict[str, Any], frame: Frame) -> None:
        kind = delta.get("type")
        if kind == "thought_summary":
            content = delta.get("content")
            self._emit_thought(step, text_of(content, "text") if isinstance(content, dict) else "", {})
        elif kind == "thought_signature":
            self._read_signature(step, delta)
        else:
            self._read_output(step, delta)
        if step.annotations:
            self._pending.hold(len(frame.data))

    def _read_signature(self, step: _Step, value: dict[str, Any]) -> None:
        signature = text_of(value, "signature")  # may be empty (ai--google-search--0-7f6a23); the last other one holds
        if signature:
            self._emit_thought(step, "", {"signature": signature})

    def _read_output(self, step: _Step, item: dict[str, Any]) -> None:
        kind = text_of(item, "type")
        annotations = item.get("annotations")
        if isinstance(annotations, list) and annotations and self._pending.can_keep(annotations):
            step.annotations += annotations
            self.out.text("", new_part=step.is_new, continuation={"annotations": list(step.annotations)})
            step.is_new = False
        elif kind in MEDIA:
            self._read_media(step, kind, item)
        elif kind not in ("", "text") and step.kind == "model_output" and self._pending.can_keep(item):
            self._carry({"content": item})
            step.is_new = True  # text after it is another part
            self._has_text = False

    def _read_media(self, step: _Step, kind: str, item: dict[str, Any]) -> None:
        content = generated_media(
            text_of(item, "mime_type") or f"{kind}/*", text_of(item, "data"), text_of(item, "uri")
        )
        fields = beyond(item, "data")
        if content is None:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"Invalid {kind} content.")
        elif self._pending.can_keep(fields):
            key = self._new_key()
            self.out.open_call(key, media_tool(kind), executed_by="provider", continuation={"content": fields})
            self.out.close_call(key, result=(content,))
            step.is_new = True  # text after the image is another part
            self._has_text = False

    # -- calls

    def _open_function(self, step: _Step) -> None:
        value = step.value
        extra = {key: item for key, item in value.items() if key not in ("type", "id", "name", "arguments") and item}
        call_id = text_of(value, "id") or None
        self.out.open_call(step.key, text_of(value, "name"), provider_id=call_id, continuation=extra or None)

    def _read_arguments(self, step: _Step, delta: dict[str, Any]) -> None:
        piece = delta.get("arguments") or delta.get("partial_arguments")
        if isinstance(piece, str):
            self.out.call_args(step.key, piece)
            step.has_arguments = True
        elif piece and self._pending.can_keep(piece):
            step.value["arguments"] = piece

    def _merge(self, step: _Step, delta: dict[str, Any], frame: Frame) -> None:
        """Merge a delta into a step that is needed whole; an empty value does not replace another."""
        if not self._pending.can_keep(delta):
            return
        self._pending.hold(len(frame.data))
        if not step.kind.endswith(("_call", "_result")):
            step.pieces.append(beyond(delta, "type"))
        else:
            step.value = {**step.value, **{key: item for key, item in delta.items() if item or key not in step.value}}
            step.value["type"] = step.kind

    def _open_provider_call(self, step: _Step) -> None:
        value = step.value
        call_id = text_of(value, "id")
        name = text_of(value, "name") or step.kind.removesuffix("_call")
        self.out.open_call(
            step.key,
            name,
            provider_id=call_id or None,
            executed_by="provider",
            continuation={"step": value},
        )
        self.out.call_args(step.key, json_text(value.get("arguments") or {}))
        self._running[call_id] = step.key

    def _close_provider_call(self, step: _Step) -> None:
        value = step.value
        call_id = text_of(value, "call_id")
        key = self._running.pop(call_id, None)
        if key is None:
            if step.kind == "function_result":  # a Google agent ran this function itself (not recorded)
                self._carry({"step": value})
                return
            key = step.key
            name = text_of(value, "name") or step.kind.removesuffix("_result")
            self.out.open_call(key, name, provider_id=call_id or None, executed_by="provider")
        self.out.close_call(
            key,
            continuation={"resultStep": value},
            result=result_content(value.get("result")),
            result_is_error=value.get("is_error") is True,
        )


def result_content(result: Any) -> ToolContent:
    """A result as text, as an object, or as text and images."""
    if isinstance(result, str | dict):
        return result
    parts = [_content_part(item) for item in _dicts(result)]
    if parts and isinstance(result, list) and len(parts) == len(result) and None not in parts:
        return tuple(part for part in parts if part is not None)
    return {"result": result}


def _content_part(item: dict[str, Any]) -> Text | Image | FileRef | None:
    if item.get("type") == "text" and isinstance(item.get("text"), str):
        return Text(item["text"])
    if item.get("type") == "image":
        return generated_media(text_of(item, "mime_type") or "image/*", text_of(item, "data"), text_of(item, "uri"))
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_EVENTS: dict[str, Callable[[GeminiInteractions, InteractionsEvent, Frame], None]] = {
    "step.delta": GeminiInteractions._read_delta,
    "step.start": GeminiInteractions._read_start,
    "step.stop": GeminiInteractions._read_stop,
    "interaction.created": GeminiInteractions._read_created,
    "interaction.completed": GeminiInteractions._read_completed,
    "error": GeminiInteractions._read_error,
}
