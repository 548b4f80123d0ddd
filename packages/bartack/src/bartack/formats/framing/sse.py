r"""Server-sent events: one frame per event, according to the WHATWG standard with some extensions.

Performance: all line endings in a chunk of input are first replaced by LF (a CR at its end is a line ending; an LF at
the start of the next chunk then belongs to it), and one `split` by that byte finds the lines. A `split` by `\n\n` would
find whole events but takes more than twice as long, because searching bytes for one byte is much faster than for two.
An incomplete line is kept in a buffer that grows in place and is not examined before its end arrives, so the work is
linear in the number of bytes, however they are cut.

According to the standard, `id` and `retry` control reconnection; they are skipped, as are comments and unknown fields.
An event without a `data` line is ignored; an empty `data` line is an event with empty data. Payloads stay bytes: the
payload's parser refuses invalid UTF-8.

Extensions, for what servers send:
- An event without its blank line at the end of the input is returned by `end()` if it has data. The standard discards
  it, but the blank line after `[DONE]` may be missing (mistral-chat and openai-compat-chat in recordings/). The last
  line of such an event may be cut, too: if a payload from `end()` does not parse, the stream is truncated.
- `error: {...}`, which is not a field of the standard, is a frame with the event "error" (llama.cpp until 2025,
  github.com/ggml-org/llama.cpp/pull/16109).
- A line that begins with `{` or `[{`, or is `[`, starts a JSON body sent in the middle of a stream or instead of one
  (github.com/nashsu/llm_wiki/issues/619). It is one frame without an event name, over as many lines as the value takes;
  of an array, each element is a frame. If a field or comment comes before the value is complete, the lines are skipped
  as unknown fields; if the input ends first, the body is truncated.
- An event whose blank line is still missing when one of these two arrives is returned before it.
"""

import re
from itertools import takewhile

from bartack.formats.framing.frame import BOM, LIMIT, Frame, Framed, FramingFault
from bartack.formats.framing.json_array import JsonArray

__all__ = ["ServerSentEvents"]

_OTHER_FIELDS = (b":", b"id:", b"retry:", b"error:")
_BODY = re.compile(rb"\s*(?:\{|\[\s*(?:\{|$))")
_CR, _LF = b"\r\n"


class ServerSentEvents:
    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._head: bytes | None = b""  # the first bytes, until they are known to be a byte order mark or not
        self._after_cr = False
        self._buffer = bytearray()  # the incomplete line
        self._event = ""
        self._data: bytes | None = None  # the first data line of the event
        self._more_data = bytearray()  # the others, an LF before each
        self._body: JsonArray | None = None
        self._ended = False

    def feed(self, data: bytes) -> Framed:
        if self._ended:
            return []
        if self._head is not None:
            data = self._skip_bom(data)
        if self._after_cr or _CR in data:
            data = self._with_lf_only(data)
        if _LF not in data:
            self._buffer += data
            return [self._too_long("A line")] if len(self._buffer) > self._limit else []
        if self._buffer:
            data = bytes(self._buffer) + data
            self._buffer.clear()
        lines = data.split(b"\n")
        partial_line = lines.pop()
        framed = self._read(lines) if len(data) <= self._limit else self._read_within_limit(lines)
        return framed + self.feed(partial_line) if partial_line else framed

    def end(self) -> Framed:
        if self._ended:
            return []
        framed = self._read([bytes(self._buffer), b""])
        if self._body is not None:
            framed += self._body.end()
        self._ended = True
        return framed

    def _skip_bom(self, data: bytes) -> bytes:
        data = (self._head or b"") + data
        if len(data) < len(BOM) and BOM.startswith(data):
            self._head = data
            return b""
        self._head = None
        return data.removeprefix(BOM)

    def _with_lf_only(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read_within_limit(self, lines: list[bytes]) -> Framed:
        short = list(takewhile(lambda line: len(line) <= self._limit, lines))
        framed = self._read(short)
        if len(short) < len(lines) and not self._ended:
            framed.append(self._too_long("A line"))
        return framed

    def _read(self, lines: list[bytes]) -> Framed:
        framed: Framed = []
        for line in lines:
            if line[:6] == b"data: ":
                value = line[6:]
            elif not line:
                if self._data is not None:
                    framed.append(self._take_event(self._data))
                self._event = ""
                continue
            else:
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if name == b"event":
                    self._body = None
                    self._event = str(value, "utf-8", "replace")
                    continue
                if name != b"data":
                    framed += self._read_other(line, value)
                    if self._ended:
                        break
                    continue
            if self._data is None:
                self._body = None
                self._data = value
            else:
                self._more_data += b"\n"
                self._more_data += value
                if len(self._data) + len(self._more_data) > self._limit:
                    framed.append(self._too_long("An event"))
                    break
        return framed

    def _take_event(self, data: bytes) -> Frame:
        if self._more_data:
            data += self._more_data
            self._more_data.clear()
        self._data = None
        return Frame(data, self._event)

    def _read_other(self, line: bytes, value: bytes) -> Framed:
        """The frames of a line that is neither `data` nor `event`."""
        if line.startswith(_OTHER_FIELDS):
            self._body = None
            if not value or not line.startswith(b"error:"):
                return []
            return [*self._read([b""]), Frame(value, "error")]
        waiting: Framed = []
        if self._body is None:
            if not _BODY.match(line):
                return []
            waiting = self._read([b""])
            self._body = JsonArray(self._limit)
        return waiting + self._read_body(self._body, line)

    def _read_body(self, body: JsonArray, line: bytes) -> Framed:
        framed = body.feed(line + b"\n")
        fault = framed[-1] if framed and isinstance(framed[-1], FramingFault) else None
        if fault is not None and fault.reason == "too_long":
            self._ended = True
        elif fault is not None:  # not JSON after all
            framed.pop()
        if fault is not None or body.is_between_values:
            self._body = None
        return framed

    def _too_long(self, element: str) -> FramingFault:
        self._ended = True
        return FramingFault("too_long", f"{element} exceeds {self._limit} bytes.")
