r"""JSON bodies: `JsonArray` for a body that is JSON text, `Lines` for one JSON value per line.

**JSON text** is one frame per object, as soon as it is complete.

Gemini without `alt=sse` responds with an array, `[{...}\n,\n{...}]`, written element by element
(gemini-generate/*/response.json in recordings/); an error body is one object. At the top level there may be `{` (a
value) and `[` (a list whose elements are the values), and several such texts may follow each other.

The scanner looks for brackets outside strings and never moves back: one regular expression skips everything that is
neither a bracket nor an incomplete string, so the Python loop runs once per bracket, and input is examined at most
twice (a string cut off at the end of a chunk). Only the nesting is checked, not the grammar: the format parses each
payload.

**Lines** are one frame each. Ollama's streams and recorded payloads have this form. Lines end with LF or CRLF, except
possibly the last; blank lines are skipped. A line with only an opening bracket starts a JSON body over several lines
(`{\n  "error": ...\n}`), sent instead of a stream or in the middle of one; that body is one frame.
"""

import re

from bartack.formats.framing.frame import BOM, LIMIT, Frame, Framed, FramingFault

__all__ = ["JsonArray", "Lines"]

# No possessive quantifiers: `re` in the first 3.11 releases gets nested ones wrong. Each pattern can match a text in
# only one way, so a failed string is not tried again at each of its bytes. The counts limit backtracking; the scan
# continues wherever a pattern stopped.
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
        self._depth = 0  # open brackets inside the value
        self._in_string = False
        self._escaped = False  # the input so far ends after a backslash
        self._buffer = bytearray()  # grows in place: a value may arrive byte by byte
        self._ended = False

    @property
    def is_between_values(self) -> bool:
        return not (self._in_array or self._in_value)

    def feed(self, data: bytes) -> Framed:
        framed: Framed = []
        position = 0
        while position < len(data) and not self._ended:
            position = (
                self._scan_value(data, position, framed) if self._in_value else self._scan_gap(data, position, framed)
            )
        return framed

    def end(self) -> Framed:
        if self._ended:
            return []
        self._ended = True
        if self.is_between_values:
            return []
        where = f"{len(self._buffer)} bytes into a value" if self._in_value else "before the array's closing bracket"
        return [FramingFault("truncated", f"The JSON ended {where}.")]

    def _scan_gap(self, data: bytes, position: int, framed: Framed) -> int:
        """Move to the next value, past the brackets of the surrounding array."""
        position = _end_of(_GAP, data, position)
        mark = data[position : position + 1]
        if mark == b"]" and self._in_array:
            self._in_array = False
        elif mark == b"[" and not self._in_array:
            self._in_array = True
        elif mark == b"{" or (mark and mark != b"}" and self._in_array):
            self._in_value = True
            return position
        elif mark:
            self._stop(framed, FramingFault("malformed", f"{mark!r} cannot begin a JSON object or array."))
        return position + 1

    def _scan_value(self, data: bytes, start: int, framed: Framed) -> int:
        """Move past the value, or to the end of the input."""
        position = start
        while position < len(data):
            if self._in_string:
                position = self._scan_string(data, position)
                continue
            position = _end_of(_TO_BRACKET if self._depth else _TO_SCALAR_END, data, position)
            mark = data[position : position + 1]
            if mark == b'"':
                self._in_string = True
            elif mark in (b"{", b"["):
                self._depth += 1
            elif mark and not self._depth:  # the delimiter is not part of a scalar
                self._emit(data[start:position], framed)
                return position
            elif mark:
                self._depth -= 1
                if not self._depth:
                    self._emit(data[start : position + 1], framed)
                    return position + 1
            position += 1
        self._buffer_piece(data[start:], framed)
        return position

    def _scan_string(self, data: bytes, position: int) -> int:
        """Move past the closing quote, or to the end of the input."""
        if self._escaped:
            self._escaped = False
            position += 1
        position = _end_of(_TO_STRING_END, data, position)
        mark = data[position : position + 1]
        self._in_string = mark != b'"'
        self._escaped = mark == b"\\"
        return position + len(mark)

    def _buffer_piece(self, piece: bytes, framed: Framed) -> None:
        self._buffer += piece
        if len(self._buffer) > self._limit:
            self._stop(framed, FramingFault("too_long", f"A JSON value exceeds {self._limit} bytes."))

    def _emit(self, last_piece: bytes, framed: Framed) -> None:
        self._buffer_piece(last_piece, framed)
        if not self._ended:
            framed.append(Frame(bytes(self._buffer).strip()))
        self._in_value = False
        self._buffer.clear()

    def _stop(self, framed: Framed, fault: FramingFault) -> None:
        framed.append(fault)
        self._ended = True


def _end_of(pattern: re.Pattern[bytes], data: bytes, start: int) -> int:
    match = pattern.match(data, start)
    assert match is not None  # every pattern here also matches the empty string
    return match.end()


_OPENING_LINES = frozenset((b"{", b"[", b"[{"))


class Lines:
    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()  # the incomplete line; grows in place
        self._body = JsonArray(limit)
        self._ended = False

    def feed(self, data: bytes) -> Framed:
        if self._ended:
            return []
        if b"\n" not in data:
            self._buffer += data
            return [self._too_long()] if len(self._buffer) > self._limit else []
        if self._buffer:
            data = bytes(self._buffer) + data
            self._buffer.clear()
        *lines, partial_line = data.split(b"\n")
        framed = self._read(lines)
        return framed + self.feed(partial_line)

    def end(self) -> Framed:
        if self._ended:
            return []
        framed = self._read([bytes(self._buffer)]) + self._body.end()
        self._ended = True
        return framed

    def _read(self, lines: list[bytes]) -> Framed:
        framed: Framed = []
        for line in lines:
            if len(line) > self._limit:
                framed.append(self._too_long())
                break
            payload = line.removeprefix(BOM).strip()
            if payload in _OPENING_LINES or not self._body.is_between_values:
                framed += self._body.feed(line + b"\n")
                if framed and isinstance(framed[-1], FramingFault):
                    self._ended = True
                    break
            elif payload:
                framed.append(Frame(payload))
        return framed

    def _too_long(self) -> FramingFault:
        self._ended = True
        return FramingFault("too_long", f"A line exceeds {self._limit} bytes.")
