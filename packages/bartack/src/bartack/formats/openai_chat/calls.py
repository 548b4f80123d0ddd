"""The pieces of tool calls in a Chat Completions stream, assembled into calls.

A piece belongs to the latest call of its `index`, unless it has another id or another name: Ollama has sent the index 0
for every call (github.com/ollama/ollama/issues/15457), and Mistral sends none. Only the end of the answer ends a call.
"""

import json
from collections.abc import Callable
from typing import Any

from bartack.formats.emitter import Emitter, PendingData
from bartack.formats.framing import LIMIT
from bartack.formats.openai_chat.events import CallPiece, FunctionPiece
from bartack.nouns.deltas import ToolCallArgs
from bartack.nouns.json_values import json_text

__all__ = ["ToolCalls"]

_LEGACY = -1  # the index of a function_call, which has none


class _Call:
    """A tool call under construction. It is opened once its name is known."""

    __slots__ = ("extra", "id", "is_custom", "is_open", "key", "name", "outer_id", "pieces")

    def __init__(self, key: int) -> None:
        self.key = key
        self.id: str | None = None
        self.name = ""
        self.pieces: list[str] = []
        self.is_open = False
        self.outer_id = ""  # the id outside of the decoder, once it is open
        self.is_custom = False  # its input is free text, which is wrapped in an object at the end
        self.extra: dict[str, Any] = {}  # continuation data that has not been emitted yet

    @property
    def is_complete(self) -> bool:
        """Whether the arguments so far are a JSON value, or there are none."""
        text = "".join(self.pieces)
        try:
            return not text or self.is_custom or json.loads(text) is not None
        except (ValueError, RecursionError):
            return False


class ToolCalls:
    """The calls of one answer."""

    def __init__(self, out: Emitter, pending: PendingData, before_opening: Callable[[], None]) -> None:
        self._out = out
        self._pending = pending
        self._before_opening = before_opening
        self._all: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}  # the latest call of each index

    @property
    def count(self) -> int:
        """How many calls have started."""
        return len(self._all)

    @property
    def are_complete(self) -> bool:
        """Whether the arguments of every call are complete."""
        return all(call.is_complete for call in self._all)

    def read(self, pieces: list[CallPiece]) -> None:
        """Add the pieces of one chunk."""
        pending, out = self._pending, self._out
        for piece in pieces:
            call, function = self._latest.get(piece.index), piece.function
            if call is None or piece.id or function is None or function.name or piece.extra_content:
                call = self._call_of(call, piece)
                if piece.custom is not None:
                    call.pieces.append(piece.custom.input or "")
                    pending.hold(len(call.pieces[-1]))
                if function is None:
                    continue
            arguments = function.arguments
            if arguments:
                if type(arguments) is not str:
                    arguments = pending.text_of_json(arguments)
                call.pieces.append(arguments)
                pending.size = size = pending.size + len(arguments)
                if size > LIMIT:
                    pending.hold(0)
                if call.is_open and not out.joins_surrogates:
                    out.deltas.append(ToolCallArgs(call.outer_id, arguments))
                elif call.is_open:
                    out.more_args(call.outer_id, arguments)

    def read_legacy(self, function: FunctionPiece) -> None:
        """Add a piece of a `function_call`, the form before tool calls: at most one per answer, without an id."""
        self.read([CallPiece(index=_LEGACY, function=function)])

    def close(self) -> None:
        """End all calls: the answer is complete."""
        for call in self._all:
            if not call.is_open:  # it never got a name
                self._open(call)
            if call.is_custom:
                self._out.call_args(call.key, json_text({"input": "".join(call.pieces)}))
            self._out.close_call(call.key, continuation=call.extra or None)

    def _call_of(self, call: _Call | None, piece: CallPiece) -> _Call:
        """The call that a piece belongs to, a new one if necessary, updated with the name and id of the piece."""
        target = piece.function or piece.custom
        name = (target.name or "") if target is not None else ""
        if call is None and piece.index is None and not piece.id and not name and self._all:
            call = self._all[-1]
        if call is None or _begins_another(call, piece, name):
            call = _Call(len(self._all))
            self._all.append(call)
            self._latest[piece.index] = call
        call.id = call.id or piece.id
        call.name = call.name or name
        call.is_custom = call.is_custom or piece.custom is not None
        if piece.index == _LEGACY:
            call.extra["field"] = "function_call"
        if piece.extra_content and self._pending.can_keep(piece.extra_content):
            call.extra["extra_content"] = piece.extra_content
        if call.name and not call.is_open:
            self._open(call)
        return call

    def _open(self, call: _Call) -> None:
        self._before_opening()
        call.is_open = True
        if call.is_custom:
            call.extra["type"] = "custom"
        call.outer_id = self._out.open_call(call.key, call.name, provider_id=call.id, continuation=call.extra or None)
        call.extra = {}
        if not call.is_custom:
            for text in call.pieces:
                self._out.call_args(call.key, text)


def _begins_another(call: _Call, piece: CallPiece, name: str) -> bool:
    if piece.id and call.id and piece.id != call.id:
        return True
    if name and call.name and name != call.name:
        return True
    # Without ids, a repeated name starts another call of the same tool only once the arguments are complete: some
    # servers repeat the name in every piece. Not recorded.
    arguments = piece.function.arguments if piece.function is not None else None
    return bool(name and not piece.id and arguments and call.pieces and call.is_complete)
