"""The pieces of tool calls in a Chat Completions stream -> whole calls.

A piece belongs to the latest call of its `index`, unless it brings another id or another name: servers exist that give
every call the index 0, and Mistral gives none. Nothing in this format ends a call but the end of the answer.
"""

import json
from collections.abc import Callable
from typing import Any

from bartack.formats.emitter import Emitter
from bartack.formats.openai_chat.events import CallPiece, FunctionPiece
from bartack.formats.pending import PendingData
from bartack.nouns.json_values import json_text

__all__ = ["ToolCalls"]

_LEGACY = -1  # the index under which a function_call stands, which has none


class _Call:
    """A tool call while its pieces come. It is told to the emitter once its name is known."""

    __slots__ = ("extra", "id", "is_custom", "is_open", "key", "name", "outer_id", "pieces")

    def __init__(self, key: int) -> None:
        self.key = key
        self.id: str | None = None
        self.name = ""
        self.pieces: list[str] = []
        self.is_open = False
        self.outer_id = ""  # what the emitter calls it, once it is open
        self.is_custom = False  # its argument is free text, which is wrapped into an object at the end
        self.extra: dict[str, Any] = {}  # continuation data that has not been told yet

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON value, or none were needed."""
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
        self._latest: dict[int | None, _Call] = {}  # of each index

    @property
    def count(self) -> int:
        """How many calls have begun."""
        return len(self._all)

    @property
    def are_whole(self) -> bool:
        """Whether no call's arguments break off."""
        return all(call.is_whole for call in self._all)

    def read(self, pieces: list[CallPiece]) -> None:
        """Take the pieces of one chunk."""
        for piece in pieces:
            call = self._latest.get(piece.index)
            function = piece.function
            if call is None or piece.id or function is None or function.name or piece.extra_content:
                call = self._call_of(call, piece)
                if piece.custom is not None:
                    call.pieces.append(piece.custom.input or "")
                    self._pending.hold(len(call.pieces[-1]))
                if function is None:
                    continue
            arguments = function.arguments
            if arguments:
                if type(arguments) is not str:
                    arguments = json_text(arguments)
                self._pending.hold(len(arguments))
                call.pieces.append(arguments)
                if call.is_open:
                    self._out.more_args(call.outer_id, arguments)

    def read_legacy(self, function: FunctionPiece) -> None:
        """Take a piece of a call in the form before tool calls: there is at most one, and it has no id."""
        self.read([CallPiece(index=_LEGACY, function=function)])

    def close(self) -> None:
        """The answer is complete, and so are its calls."""
        for call in self._all:
            if not call.is_open:  # nobody ever named it
                self._open(call)
            if call.is_custom:
                self._out.call_args(call.key, json_text({"input": "".join(call.pieces)}))
            self._out.close_call(call.key, continuation=call.extra or None)

    def _call_of(self, call: _Call | None, piece: CallPiece) -> _Call:
        """The call that a piece belongs to, with the piece's name and id noted; a new one where it needs one."""
        told = piece.function or piece.custom
        name = (told.name or "") if told is not None else ""
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
    # A server without ids begins the same tool again; one that repeats the name on every piece is not done yet.
    arguments = piece.function.arguments if piece.function is not None else None
    return bool(name and not piece.id and arguments and call.pieces and call.is_whole)
