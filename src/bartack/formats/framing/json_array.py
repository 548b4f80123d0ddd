"""JSON text -> the objects in it, each as soon as it closes.

Gemini without `alt=sse` answers with one array, `[{...}\n,\n{...}]`, written element by element; an error body is one
object. Both are a walk over *values*: at the top only `{` (a value) and `[` (a list, whose elements are the values) may
stand, and several such texts may follow each other.

The walk looks for brackets outside strings and never goes back: one regular expression jumps over everything that is
neither a bracket nor an unfinished string, so the Python loop runs once per bracket, and what a piece of input holds is
looked at twice at most (a string cut off by the piece's end). Only the balance is checked, not the grammar: the format
parses each payload anyway.
"""

import re

from bartack.formats.framing.frame import LIMIT, Frame, Framed, FramingFault

__all__ = ["JsonArray"]

# No possessive quantifiers: `re` of the first 3.11 releases gets nested ones wrong. Each pattern can match a text in one
# way only, so a failed string is not tried again at each of its bytes. The counts limit the trail for backtracking; the
# walk goes on from wherever a pattern stopped.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*){0,100}"'
_GAP = re.compile(rb"[\s,\xef\xbb\xbf]*")  # between values; also a byte order mark
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]*' + _STRING + rb")" + rb'{0,100}[^"{}\[\]]*', re.DOTALL)
_TO_SCALAR_END = re.compile(rb'(?:[^"{}\[\],]*' + _STRING + rb")" + rb'{0,100}[^"{}\[\],]*', re.DOTALL)
_TO_STRING_END = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)


class JsonArray:
    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._in_array = False
        self._in_value = False
        self._depth = 0  # of brackets open inside the value
        self._in_string = False
        self._escaped = False  # the input so far ends after a backslash
        self._held = bytearray()  # grows in place: a value may come in as many pieces as it has bytes
        self._ended = False

    @property
    def is_between_values(self) -> bool:
        return not (self._in_array or self._in_value)

    def feed(self, data: bytes) -> Framed:
        framed: Framed = []
        at = 0
        while at < len(data) and not self._ended:
            at = self._walk_value(data, at, framed) if self._in_value else self._walk_gap(data, at, framed)
        return framed

    def end(self) -> Framed:
        if self._ended:
            return []
        self._ended = True
        if self.is_between_values:
            return []
        where = f"{len(self._held)} bytes into a value" if self._in_value else "before the array's closing bracket"
        return [FramingFault("truncated", f"the JSON ended {where}")]

    def _walk_gap(self, data: bytes, at: int, framed: Framed) -> int:
        """Go to the next value, through the brackets of the array around it."""
        at = _end_of(_GAP, data, at)
        mark = data[at : at + 1]
        if mark == b"]" and self._in_array:
            self._in_array = False
        elif mark == b"[" and not self._in_array:
            self._in_array = True
        elif mark == b"{" or (mark and mark != b"}" and self._in_array):
            self._in_value = True
            return at
        elif mark:
            self._stop(framed, FramingFault("malformed", f"{mark!r} can not begin a JSON object or array"))
        return at + 1

    def _walk_value(self, data: bytes, start: int, framed: Framed) -> int:
        """Go behind the value, or to the end of the input."""
        at = start
        while at < len(data):
            if self._in_string:
                at = self._walk_string(data, at)
                continue
            at = _end_of(_TO_BRACKET if self._depth else _TO_SCALAR_END, data, at)
            mark = data[at : at + 1]
            if mark == b'"':
                self._in_string = True
            elif mark in (b"{", b"["):
                self._depth += 1
            elif mark and not self._depth:  # what ends a scalar is not part of it
                self._hand_out(data[start:at], framed)
                return at
            elif mark:
                self._depth -= 1
                if not self._depth:
                    self._hand_out(data[start : at + 1], framed)
                    return at + 1
            at += 1
        self._hold(data[start:], framed)
        return at

    def _walk_string(self, data: bytes, at: int) -> int:
        """Go behind the closing quote, or to the end of the input."""
        if self._escaped:
            self._escaped = False
            at += 1
        at = _end_of(_TO_STRING_END, data, at)
        mark = data[at : at + 1]
        self._in_string = mark != b'"'
        self._escaped = mark == b"\\"
        return at + len(mark)

    def _hold(self, piece: bytes, framed: Framed) -> None:
        self._held += piece
        if len(self._held) > self._limit:
            self._stop(framed, FramingFault("too_long", f"a JSON value is over {self._limit} bytes"))

    def _hand_out(self, last_piece: bytes, framed: Framed) -> None:
        self._hold(last_piece, framed)
        if not self._ended:
            framed.append(Frame(bytes(self._held).strip()))
        self._in_value = False
        self._held.clear()

    def _stop(self, framed: Framed, fault: FramingFault) -> None:
        framed.append(fault)
        self._ended = True


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    assert found is not None  # every pattern here also matches nothing
    return found.end()
