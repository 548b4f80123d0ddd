"""Anthropic's Messages stream -> deltas. Vertex sends the same events, and Bedrock wraps them (`bedrock_invoke`).

A message is a list of blocks; each block is `content_block_start`, its deltas, `content_block_stop`, all under one
`index`. `message_delta` says why the model stopped and what it cost, and only `message_stop` says that this was all.

How blocks become parts:
- `text` and `thinking` are written as they come. What belongs to the whole block (signature, citations) is held and
  stands on the block's last delta.
- `tool_use` is a call of the client. `server_tool_use` and `mcp_tool_use` are calls that the provider executes: they
  stay open until their result block has come, and hold it, readable in the result and raw in the continuation.
- A result that does not stand right behind its call (calls run side by side, or one inside the other) leaves an empty
  thinking part with `resultOf` in its place, so that an encoder can send the blocks back in their order.
- What is nobody's text (`redacted_thinking`, `compaction`, `fallback`, files in a container, a result whose call
  stood in an earlier message, blocks invented later) is an empty thinking part that carries the block.
- The `container` in which the provider ran its tools is named after all blocks. It goes to the last part, and so that
  a call can take it, a call's end waits for whatever follows it.

The provider writes one block after the other. Should blocks overlap, the later one waits for the earlier one, so that
no part is torn; calls have keys and may overlap.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from bartack.formats.anthropic_messages.events import (
    BlockDelta,
    Counts,
    ErrorBody,
    Event,
    Kind,
    MessageBody,
    priced_apart,
    readable_result,
    text_of,
)
from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame
from bartack.formats.held import Held
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.parts import ToolContent

__all__ = ["AnthropicMessages"]

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",  # the turn goes on when the compaction block is sent back
}
_CALL_KEYS = frozenset(("type", "id", "name", "input"))
_NOTHING = float("nan")  # equal to no index
_KINDS = msgspec.json.Decoder(Kind)


class _Ending:
    """How a call ends, while it may still have to take the container along."""

    __slots__ = ("data", "is_error", "key", "result")

    def __init__(
        self,
        key: str | int,
        data: dict[str, Any] | None = None,
        result: ToolContent | None = None,
        is_error: bool = False,
    ) -> None:
        self.key = key
        self.data = data or {}
        self.result = result
        self.is_error = is_error


class AnthropicMessages(Decoder):
    """Reads `event: content_block_delta` and its kin."""

    format: ClassVar[str] = "anthropic-messages"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Event)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._held = Held(self.out)
        self._writing: int | None = None  # index of the block whose text is coming
        self._flowing: float = _NOTHING  # the same, once the first piece of its visible text has been told
        self._arguing: float = (
            _NOTHING  # index of the call whose arguments are coming, once their first piece has been told
        )
        self._arguing_id = ""
        self._block: dict[str, Any] = {}  # that block as it was opened
        self._pieces: dict[str, list[str]] = {}  # of the fields that are sent in pieces and needed whole
        self._citations: list[Any] = []
        self._new_part = False
        self._last_kind = ""
        self._newest: str | int | None = None  # the block opened last: a call's key, else its index
        self._keys: dict[int, str | int] = {}  # of calls not stopped: the client's by index, the provider's by id
        self._server_calls: set[str] = set()  # keys of the provider's calls that have no result yet
        self._inputs: dict[int, str] = {}  # arguments that came whole, until it is clear that no pieces follow
        self._waiting: dict[int, list[tuple[Event, Frame]]] = {}  # events of blocks that have to wait, by index
        self._ending: _Ending | None = None
        self._counts = Counts()
        self._container: dict[str, Any] | None = None

    def read(self, event: Event, frame: Frame) -> None:
        if event.type == "content_block_delta":
            delta = event.delta
            if event.index == self._flowing and delta is not None and delta.text:
                self.out.more_text(delta.text)
            elif event.index == self._arguing and delta is not None and delta.partial_json:
                self.out.more_args(self._arguing_id, delta.partial_json)
            else:
                self._read_delta(event, frame)
            return
        step = _STEPS.get(event.type or frame.event)
        if step is not None:
            step(self, event, frame)
        elif event.error is not None or (event.type is None and isinstance(event.message, str)):
            self._read_error(event, frame)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.data == b"[DONE]":  # gateways add it
            if self.out.finish_reason is not None:
                self._read_message_stop(Event(), frame)
            return True
        try:
            kind = _KINDS.decode(frame.data).type
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return kind is not None and kind != "content_block_delta" and kind not in _STEPS

    def read_end(self) -> None:
        self._finish_blocks()
        self._end_call()
        self.truncated("message_stop")

    # -- deltas

    def _read_delta(self, event: Event, frame: Frame) -> None:
        delta, index = event.delta, event.index or 0
        if delta is None:
            return
        kind = delta.type
        if index == self._writing:
            if kind == "text_delta":
                self._write_text(delta.text)
            elif kind == "thinking_delta":
                self._write_thinking(delta.thinking)
            else:
                self._gather(delta, frame)
        elif self._writing is not None:
            self._wait(index, event, frame)
        elif kind == "input_json_delta":
            if delta.partial_json and index in self._keys:
                self._inputs.pop(index, None)
                self._arguing, self._arguing_id = index, self.out.call_id(self._keys[index])
                self.out.more_args(self._arguing_id, delta.partial_json)
        elif kind in ("text_delta", "thinking_delta"):  # nobody opened this block
            self._open(index, {"type": kind.removesuffix("_delta")})
            self._read_delta(event, frame)

    def _write_text(self, piece: str | None) -> None:
        if piece:
            self.out.text(piece, new_part=self._new_part)
            self._new_part = False
            self._last_kind = "text"
            self._flowing = self._writing or 0

    def _write_thinking(self, piece: str | None) -> None:
        if piece and self._last_kind == "thinking" and not self._new_part:
            self.out.more_thinking(piece)
        elif piece:
            self.out.thinking(piece, new_part=self._new_part)
            self._new_part = False
            self._last_kind = "thinking"

    def _gather(self, delta: BlockDelta, frame: Frame) -> None:
        """Hold what is needed whole when the block ends."""
        if delta.citation is not None and self._held.can_keep(delta.citation):
            self._citations.append(delta.citation)
        for name in ("signature", "content", "encrypted_content"):
            piece = getattr(delta, name)
            if piece:
                self._pieces.setdefault(name, []).append(piece)
        self._held.count(frame)

    def _wait(self, index: int, event: Event, frame: Frame) -> None:
        self._waiting.setdefault(index, []).append((event, frame))
        self._held.count(frame)

    # -- blocks

    def _read_block_start(self, event: Event, frame: Frame) -> None:
        index, block = event.index or 0, event.content_block
        if block is None or not self._held.can_keep(block):
            return
        if self._writing not in (None, index):
            self._wait(index, event, frame)
            return
        if index == self._writing:
            self._close_writing()
        self._open(index, block)

    def _read_block_stop(self, event: Event, frame: Frame) -> None:
        index = event.index or 0
        if self._writing not in (None, index):
            self._wait(index, event, frame)
            return
        self._stop(index)
        self._resume()

    def _open(self, index: int, block: dict[str, Any]) -> None:
        self._arguing = _NOTHING
        self._end_call()
        kind = text_of(block, "type")
        if kind in ("text", "thinking", "compaction"):
            self._writing, self._block = index, block
            self._new_part = self._last_kind == kind
            self._write_text(text_of(block, "text"))
            self._write_thinking(text_of(block, "thinking"))
            self._newest = index
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            self._open_call(index, block, kind)
        elif kind.endswith("_tool_result"):
            self._read_result(block)
        elif kind == "redacted_thinking":
            self._carry({"type": kind, "data": text_of(block, "data")})
        elif kind:
            self._carry({"block": block})

    def _open_call(self, index: int, block: dict[str, Any], kind: str) -> None:
        self._send_input(index)
        call_id = text_of(block, "id")
        more = {key: value for key, value in block.items() if key not in _CALL_KEYS}
        if kind == "tool_use":
            key: str | int = index
            self.out.open_call(key, text_of(block, "name"), provider_id=call_id, continuation=more or None)
        else:
            key = call_id
            self._server_calls.add(key)
            self.out.open_call(
                key,
                text_of(block, "name"),
                provider_id=call_id,
                executed_by="provider",
                continuation={"type": kind, **more},
            )
        self._keys[index] = self._newest = key
        self._last_kind = "tool_call"
        if block.get("input"):
            self._inputs[index] = msgspec.json.encode(block["input"]).decode()

    def _read_result(self, block: dict[str, Any]) -> None:
        key = text_of(block, "tool_use_id")
        if key not in self._server_calls:
            self._carry({"block": block})
            return
        self._server_calls.remove(key)
        if key != self._newest:
            self._carry({"resultOf": key})
        result, is_error = readable_result(block)
        self._ending = _Ending(key, {"result": block}, result, is_error)

    def _carry(self, data: dict[str, Any]) -> None:
        """Keep what only the provider can read, in its place."""
        self.out.thinking("", new_part=True, continuation=data)
        self._last_kind = "thinking"
        self._newest = None

    def _stop(self, index: int) -> None:
        self._arguing = _NOTHING
        if index == self._writing:
            self._close_writing()
            return
        self._send_input(index)
        key = self._keys.pop(index, None)
        if isinstance(key, int):  # the provider's own calls wait for their result
            self._end_call()
            self._ending = _Ending(key)

    def _end_call(self, more: dict[str, Any] | None = None) -> None:
        """End the call that is due to end, if there is one."""
        ending, self._ending = self._ending, None
        if ending is not None:
            self.out.close_call(
                ending.key,
                continuation={**ending.data, **(more or {})} or None,
                result=ending.result,
                result_is_error=ending.is_error,
            )

    def _send_input(self, index: int) -> None:
        if index in self._inputs:
            self.out.call_args(self._keys[index], self._inputs.pop(index))

    def _close_writing(self) -> None:
        block, whole = self._block, {name: "".join(pieces) for name, pieces in self._pieces.items()}
        self._writing, self._flowing = None, _NOTHING
        self._pieces = {}
        if block["type"] == "compaction":
            self._carry({"block": {**block, **whole}})
        elif block["type"] == "thinking":
            signature = text_of(block, "signature") + whole.get("signature", "")
            self._continue("thinking", {"signature": signature} if signature else {})
        else:
            given = block.get("citations")
            citations = [*given, *self._citations] if isinstance(given, list) else self._citations
            self._citations = []
            self._continue("text", {"citations": citations} if citations else {})

    def _continue(self, kind: str, data: dict[str, Any]) -> None:
        """Put what was held on the block's last delta."""
        if data:
            tell = self.out.text if kind == "text" else self.out.thinking
            tell("", new_part=self._new_part, continuation=data)
            self._last_kind = kind

    def _resume(self) -> None:
        """Read what waited for the block that has just ended, one block after the other."""
        while self._writing is None and self._waiting:
            index = next(iter(self._waiting))
            for event, frame in self._waiting.pop(index):
                if event.type == "content_block_stop":
                    self._stop(index)
                else:
                    self.read(event, frame)

    def _finish_blocks(self) -> None:
        """End what was never stopped."""
        self._resume()
        while self._writing is not None:
            self._close_writing()
            self._resume()
        for index in list(self._inputs):
            self._send_input(index)

    def _end_message(self) -> None:
        """End the last part, and leave the container with it."""
        data = None if self._container is None else {"container": self._container}
        key = self._newest
        if data is not None and self._ending is None:
            if self._last_kind == "text":
                self.out.text("", continuation=data)
            elif isinstance(key, str) and self.out.is_open(key):
                self.out.close_call(key, continuation=data)
            else:
                self.out.thinking("", continuation=data)
        self._end_call(data)

    # -- the message

    def _read_message_start(self, event: Event, frame: Frame) -> None:
        message = event.message
        if not isinstance(message, MessageBody):
            return
        self.out.start(message.model, message.id)
        if message.content and self._held.can_keep(message.content):
            for index, block in enumerate(message.content):
                self._open(index, block)
                self._stop(index)
        self._read_outcome(message.stop_reason, message.container, message.usage)

    def _read_message_delta(self, event: Event, frame: Frame) -> None:
        delta = event.delta or BlockDelta()
        self._read_outcome(delta.stop_reason, delta.container, event.usage)

    def _read_outcome(self, stop_reason: str | None, container: dict[str, Any] | None, counts: Counts | None) -> None:
        if stop_reason:
            self.out.finish(_FINISH.get(stop_reason, "other"), stop_reason)
        if container and self._held.can_keep(container):
            self._container = container
        if counts is not None and not self.out.ended:
            self._add_counts(counts)

    def _add_counts(self, counts: Counts) -> None:
        """Old streams repeat only `output_tokens` at the end, new ones repeat all: each count given last holds."""
        known = self._counts
        for name in Counts.__struct_fields__:
            value = getattr(counts, name)
            if value is not None:
                setattr(known, name, value)
        if known.input_tokens is None and known.output_tokens is None:
            return
        read, written = known.cache_read_input_tokens, known.cache_creation_input_tokens
        details = known.output_tokens_details
        self.out.usage(
            Usage(
                max(0, (known.input_tokens or 0) + (read or 0) + (written or 0)),
                max(0, known.output_tokens or 0),
                cache_read_tokens=read,
                cache_write_tokens=written,
                reasoning_tokens=None if details is None else details.thinking_tokens,
                extra=priced_apart(known),
            )
        )

    def _read_message_stop(self, event: Event, frame: Frame) -> None:
        self._finish_blocks()
        self._end_message()
        self.out.done()

    def _read_error(self, event: Event, frame: Frame) -> None:
        self._finish_blocks()
        self._end_call()
        error = event.error
        if isinstance(error, ErrorBody):
            self.out.refused(error.message or error.type or "", raw_code=error.type)
        else:
            message = error or event.message
            self.out.refused(message if isinstance(message, str) else "the provider gave no reason")

    def _pass_over(self, event: Event, frame: Frame) -> None:
        """Nothing is said."""


_STEPS: dict[str, Callable[[AnthropicMessages, Event, Frame], None]] = {
    "content_block_start": AnthropicMessages._read_block_start,
    "content_block_stop": AnthropicMessages._read_block_stop,
    "message_start": AnthropicMessages._read_message_start,
    "message_delta": AnthropicMessages._read_message_delta,
    "message_stop": AnthropicMessages._read_message_stop,
    "error": AnthropicMessages._read_error,
    "ping": AnthropicMessages._pass_over,
}
