r"""One JSON value per line: one frame per line. Ollama's streams and recorded payloads have this form.

Lines end with LF or CRLF, except possibly the last; blank lines are skipped. A line with only an opening bracket starts
a JSON body over several lines (`{\n  "error": ...\n}`), sent instead of a stream or in the middle of one; that body is
one frame.
"""

from bartack.formats.framing.frame import BOM, LIMIT, Frame, Framed, FramingFault
from bartack.formats.framing.json_array import JsonArray

__all__ = ["Lines"]

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
