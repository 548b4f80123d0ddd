"""Incremental JSON: text in pieces in, the best value so far out.

For user interfaces that show a tool's arguments while the model is writing them. Never for execution: the assembler
parses the complete text once, at `tool_call_end`, and only that value may reach a tool.

    arguments = PartialJson()
    for piece in ('{"city": "Par', 'is", "days": 1', '0}'):
        arguments.feed(piece)
        arguments.value     # {'city': 'Par'}, then {'city': 'Paris', 'days': 1}, then {'city': 'Paris', 'days': 10}
    arguments.finish()
    arguments.complete      # True

**The value.** It is the value of the text with its unfinished end removed and everything open closed. More text never
contradicts it; it only extends the last string, number or container:

- A string shows everything that is certain. An incomplete escape is held back, and so is a high surrogate (`\\ud83d`)
  until what follows is known, because the two may form one character.
- A number shows its longest valid prefix: nothing for `-`, and 1 for `1.` and `1e+`.
- `true`, `false` and `null` appear when they are complete. One letter would decide, but would gain little.
- A key appears together with the first known part of its value.
- A repeated key is the only way an object retracts a value. As in `json.loads`, the last one wins, from the moment that
  part of its value is known. Until then the earlier value remains.

The value of a complete text is that of `json.loads`, including lone surrogates and `1e999` (infinity). `NaN`,
`Infinity` and `-Infinity`, which `json.loads` accepts, are not JSON and are rejected.

**The parser** is a pushdown automaton. `_GRAMMAR` is its table: what is expected next x the character found -> what is
expected after it, or the method that reads the token. A container is added to its parent when it opens and is filled in
place, on an explicit stack, so nothing is rebuilt and depth needs no recursion. Each token has a regular expression for
its longest viable prefix. If the prefix ends before the text does, the text is invalid. If both end together, the token
may continue; it is kept in `_tail` and read again with the next piece. That is at most 11 characters of an escape, or
one number, whose length is limited, so total time is linear in the text. A string is kept as chunks that are decoded
once.

Reading `value` costs only the unfinished leaf: the number, or the chunks of the string, which are joined and replaced
by the result. Copying the containers each time would be quadratic, so they are returned live.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType

__all__ = ["MAX_CHARS", "MAX_DEPTH", "Json", "JsonFault", "PartialJson"]

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

MAX_CHARS: Final = 1 << 20  # far above what a person reads, far below what exhausts memory
# A few thousand `[` break everything that walks the value recursively (json, copy, repr, a browser). Tool arguments
# rarely nest deeper than ten levels.
MAX_DEPTH: Final = 64


class JsonFault(Struct, frozen=True):
    """The position of the first invalid character, and what was expected there."""

    position: int
    expected: str


class _Expect(Enum):
    """What is expected next; the value is the text of `JsonFault.expected`."""

    VALUE = "a value"
    ITEM_OR_END = "a value or ']'"
    COMMA_IN_ARRAY = "',' or ']'"
    KEY = "a key in double quotes"
    KEY_OR_END = "a key in double quotes or '}'"
    COLON = "':'"
    COMMA_IN_OBJECT = "',' or '}'"
    NOTHING = "the end of the text"


_KEYS = (_Expect.KEY, _Expect.KEY_OR_END)
_LITERALS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_LITERAL = re.compile("t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?")
_WHITE = re.compile(r"[ \t\n\r]+")
# Group 1 is the valid number, 2 its fraction, 3 its exponent. What follows it is valid only before another digit.
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)(?(3)|(?:[eE][+-]?|(?(2)|\.))?)|-")
_PLAIN = r'[^"\\\x00-\x1f]*'
_HEX = "[0-9a-fA-F]"
_HIGH = rf"\\u[dD][89abAB]{_HEX}{{2}}"
# The count limits the memory that `re` keeps for backtracking over many escapes. A possessive quantifier would need
# none, but the first 3.11 releases mishandle nested ones.
_CERTAIN = re.compile(
    rf"""{_PLAIN}
         (?:(?: \\["\\/bfnrt]
              | \\u(?![dD][89abAB]){_HEX}{{4}}
              | {_HIGH}(?:\\u[dD][c-fC-F]{_HEX}{{2}} | (?=[^\\\x00-\x1f] | \\["\\/bfnrt] | \\u{_HEX}{{4}}))
            ){_PLAIN}
         ){{0,1000}}""",
    re.VERBOSE,
)
_HALF_ESCAPE = re.compile(rf"(?:{_HIGH}(?:\\(?:u{_HEX}{{0,3}})?)?|\\(?:u{_HEX}{{0,3}})?)?")


class PartialJson:
    """An incremental parser; the pieces of text may be cut anywhere.

    It never raises on invalid text. At the first invalid character, or beyond a limit, it stops reading, sets `fault`,
    and keeps the value. In addition to `max_chars` and `max_depth`, the length of a number is limited to what Python
    converts to an int (4,300 characters by default).
    """

    def __init__(self, *, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> None:
        self.fault: JsonFault | None = None
        self._max_chars = max_chars
        self._max_depth = max_depth
        self._max_digits = sys.get_int_max_str_digits() or sys.int_info.default_max_str_digits
        self._length = 0  # characters fed
        self._tail = ""  # the last of them: a token that may continue
        self._base = 0  # position in the whole text of the piece being read, tail included
        self._expected = _Expect.VALUE
        self._root: list[Json] = []  # contains the top value, so that every value has a parent
        self._stack: list[list[Json] | dict[str, Json]] = [self._root]
        self._key = ""  # the key of the next value, if the top of the stack is an object
        self._shown = False  # the unfinished item is already at the end of the array
        self._chunks: list[str] | None = None  # the pieces of the string being read, if any

    @property
    def value(self) -> Json | UnsetType:
        """The value so far; `UNSET` if nothing is known (`None` is JSON's null).

        Its containers are live and are filled by later calls. Copy what you keep, and do not modify it.
        """
        unfinished = self._unfinished()
        if unfinished is not UNSET:
            self._put(unfinished)
        return self._root[0] if self._root else UNSET

    @property
    def complete(self) -> bool:
        """Whether a complete value has been read. A bare number is complete when something follows, or at `finish`."""
        return self._expected is _Expect.NOTHING and self.fault is None

    @property
    def failed(self) -> bool:
        """Whether the text is invalid or exceeds a limit; see `fault`."""
        return self.fault is not None

    def feed(self, piece: str) -> None:
        """Read the next piece. After a fault, it is ignored."""
        if self.fault is not None:
            return
        room = self._max_chars - self._length
        self._read(piece[:room])
        self._length += len(piece)
        if len(piece) > room and self.fault is None:
            self.fault = JsonFault(self._max_chars, f"at most {self._max_chars} characters")

    def finish(self) -> None:
        """End the text; afterwards it is either `complete` or `failed`."""
        if self.fault is None and self._chunks is None:
            self._read(" ")  # ends a number, makes an incomplete token a fault, and is harmless otherwise
        if self.fault is None and self._expected is not _Expect.NOTHING:
            self.fault = JsonFault(
                self._length, self._expected.value if self._chunks is None else "the rest of the string"
            )

    def _read(self, piece: str) -> None:
        self._base = self._length - len(self._tail)
        text = self._tail + piece
        self._tail = ""
        position = 0 if self._chunks is None else self._read_string(text, 0)
        while position < len(text):
            step = _GRAMMAR[self._expected].get(text[position])
            if isinstance(step, _Expect):
                self._expected = step
                position += 1
            elif step is not None:
                position = step(self, text, position)
            elif white := _WHITE.match(text, position):
                position = white.end()
            else:
                position = self._hold(text, position, position, self._expected.value)

    # Each reader reads the token that begins at `at` and returns where to continue.

    def _hold(self, text: str, start: int, end: int, expected: str) -> int:
        """Keep a token that may continue after `end`, or report the character there as a fault."""
        self._tail = text[start:end]
        if end < len(text):
            self.fault = JsonFault(self._base + end, expected)
        return len(text)

    def _open(self, text: str, position: int) -> int:
        if len(self._stack) > self._max_depth:  # the list around the top value is on the stack too
            return self._hold(text, position, position, f"at most {self._max_depth} levels")
        container: list[Json] | dict[str, Json] = [] if text[position] == "[" else {}
        self._put(container)
        self._shown = False
        self._stack.append(container)
        self._expected = _Expect.ITEM_OR_END if text[position] == "[" else _Expect.KEY_OR_END
        return position + 1

    def _close(self, text: str, position: int) -> int:
        self._stack.pop()
        self._expected = self._expected_after_value()
        return position + 1

    def _open_string(self, text: str, position: int) -> int:
        self._chunks = []
        return self._read_string(text, position + 1)

    def _read_string(self, text: str, position: int) -> int:
        assert self._chunks is not None
        while True:
            end = _end(_CERTAIN, text, position)
            chunk = text[position:end]
            # json's own decoder, so that escapes are handled as in `json.loads`.
            self._chunks.append(json.loads(f'"{chunk}"') if "\\" in chunk else chunk)
            if end == len(text) or text[end] != "\\" or end == position:
                break
            position = end
        if not text.startswith('"', end):
            return self._hold(text, end, _end(_HALF_ESCAPE, text, end), "a character or escape allowed in a string")
        string = "".join(self._chunks)
        self._chunks = None
        if self._expected in _KEYS:
            self._key = string
            self._expected = _Expect.COLON
        else:
            self._finish_value(string)
        return end + 1

    def _read_literal(self, text: str, start: int) -> int:
        end = _end(_LITERAL, text, start)
        if text[start:end] not in _LITERALS:
            return self._hold(text, start, end, "the rest of true, false or null")
        self._finish_value(_LITERALS[text[start:end]])
        return end

    def _read_number(self, text: str, start: int) -> int:
        number = _NUMBER.match(text, start)
        assert number is not None  # the grammar matched a digit or a minus sign
        limit = start + self._max_digits + (text[start] == "-")
        if number.end() > limit:
            return self._hold(text, start, limit, f"a number of at most {self._max_digits} characters")
        if number.end() == len(text) or number.end() != number.end(1):
            return self._hold(text, start, number.end(), "a digit")
        self._finish_value(_number_from(number))
        return number.end()

    # Placing values.

    def _unfinished(self) -> Json | UnsetType:
        """What is known of the string or number at the end of the text."""
        if self._chunks is not None:
            if self._expected in _KEYS:
                return UNSET
            self._chunks = ["".join(self._chunks)]
            return self._chunks[0]
        number = _NUMBER.match(self._tail)
        return _number_from(number) if number and number[1] else UNSET

    def _put(self, value: Json) -> None:
        parent = self._stack[-1]
        if isinstance(parent, dict):
            parent[self._key] = value
        elif self._shown:
            parent[-1] = value
        else:
            parent.append(value)
            self._shown = True

    def _finish_value(self, value: Json) -> None:
        self._put(value)
        self._shown = False
        self._expected = self._expected_after_value()

    def _expected_after_value(self) -> _Expect:
        if len(self._stack) == 1:
            return _Expect.NOTHING
        return _Expect.COMMA_IN_OBJECT if isinstance(self._stack[-1], dict) else _Expect.COMMA_IN_ARRAY


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where the token ends; the pattern always matches."""
    match = pattern.match(text, start)
    assert match is not None
    return match.end()


def _number_from(number: re.Match[str]) -> int | float:
    return float(number[1]) if number[2] or number[3] else int(number[1])


_Step: TypeAlias = _Expect | Callable[[PartialJson, str, int], int]

_VALUE: dict[str, _Step] = {
    '"': PartialJson._open_string,
    "{": PartialJson._open,
    "[": PartialJson._open,
    **dict.fromkeys("tfn", PartialJson._read_literal),
    **dict.fromkeys("-0123456789", PartialJson._read_number),
}
_GRAMMAR: Mapping[_Expect, Mapping[str, _Step]] = {  # RFC 8259; white space may precede any of these
    _Expect.VALUE: _VALUE,
    _Expect.ITEM_OR_END: {**_VALUE, "]": PartialJson._close},
    _Expect.COMMA_IN_ARRAY: {",": _Expect.VALUE, "]": PartialJson._close},
    _Expect.KEY: {'"': PartialJson._open_string},
    _Expect.KEY_OR_END: {'"': PartialJson._open_string, "}": PartialJson._close},
    _Expect.COLON: {":": _Expect.VALUE},
    _Expect.COMMA_IN_OBJECT: {",": _Expect.KEY, "}": PartialJson._close},
    _Expect.NOTHING: {},
}
