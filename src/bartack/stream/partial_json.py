"""Growing JSON text in, the best value so far out.

For forms and screens that show a tool's arguments while the model is still writing them. Never for execution: the
assembler parses the whole text once, at `tool_call_end`, and only that value may reach a tool.

    arguments = PartialJson()
    for piece in ('{"city": "Par', 'is", "days": 1', '0}'):
        arguments.feed(piece)
        arguments.value     # {'city': 'Par'}, then {'city': 'Paris', 'days': 1}, then {'city': 'Paris', 'days': 10}
    arguments.finish()
    arguments.complete      # True

What is shown. The value is the one the text would have if its unfinished end were dropped and everything open were
closed. So a longer text never contradicts it; it only lengthens the one string, number or container at its end:
  - a string shows all that is certain: half an escape is held back, and so is a high surrogate (`\\ud83d`) until what
    follows it is known, since the two may be one character;
  - a number shows its longest valid prefix: `-` nothing, `1.` and `1e+` 1;
  - `true`, `false` and `null` appear when spelled out. One letter would settle them, but a screen gains nothing by it;
  - a key appears together with the first that is known of its value;
  - a repeated key is the one way an object takes back what it showed: as in `json.loads` the last one wins, from the
    moment something is known of its value. Until then the earlier value stands.
The value of a whole text is what `json.loads` gives, lone surrogates and `1e999` (infinity) included. `NaN`,
`Infinity` and `-Infinity`, which `json.loads` accepts, are not JSON and are refused.

How. A pushdown machine. `_GRAMMAR` is its table: what is wanted next x the character found -> the next want, or the
method that reads the token. Containers are put into their parent when they open and filled in place on an explicit
stack, so nothing is rebuilt and depth costs no recursion. Each token has a regular expression for its longest viable
prefix. Where that prefix ends before the text does, the text is at fault; where both end together the token may go on
and is kept in `_tail`, to be read again in front of the next piece. That is at most 11 characters of an escape or one
number, whose length is limited: total time is linear in the text. A string is kept as chunks, each decoded once.

A look costs the unfinished leaf and nothing else: the number, or the chunks of the string, which are joined and
replaced by the joined one. Copying the containers on each look would make it quadratic again, so they are handed out
live.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType

__all__ = ["MAX_CHARS", "MAX_DEPTH", "Fault", "Json", "PartialJson"]

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

MAX_CHARS: Final = 1 << 20  # 1 MiB of ASCII: far above any form a person reads, far below what hurts a process.
# Against bombs: some thousand `[` break whatever walks the value by recursion (json, copy, repr, a browser), and each
# costs a list. Tool arguments seldom nest beyond ten.
MAX_DEPTH: Final = 64


class Fault(Struct, frozen=True):
    """Where the text stopped being JSON within the limits: the first character that cannot stand, and what could."""

    position: int
    expected: str


class _Want(Enum):
    """What may come next; the value is the phrase for `Fault.expected`."""

    VALUE = "a value"
    ITEM_OR_END = "a value or ']'"
    COMMA_IN_ARRAY = "',' or ']'"
    KEY = "a key in double quotes"
    KEY_OR_END = "a key in double quotes or '}'"
    COLON = "':'"
    COMMA_IN_OBJECT = "',' or '}'"
    NOTHING = "the end of the text"


_KEYS = (_Want.KEY, _Want.KEY_OR_END)
_LITERALS: Mapping[str, Json] = {"true": True, "false": False, "null": None}
_LITERAL = re.compile("t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?")
_WHITE = re.compile(r"[ \t\n\r]+")
# Group 1 is the valid number, 2 its fraction, 3 its exponent; after it comes what only a digit can justify.
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)(?(3)|(?:[eE][+-]?|(?(2)|\.))?)|-")
_PLAIN = r'[^"\\\x00-\x1f]*'
_HEX = "[0-9a-fA-F]"
_HIGH = rf"\\u[dD][89abAB]{_HEX}{{2}}"
# The count limits the trail that a megabyte of escapes leaves for backtracking. A possessive quantifier would leave none,
# but `re` of the first 3.11 releases gets nested ones wrong.
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
    """A parser that is fed text in pieces, cut anywhere, and can be looked at between any two.

    Bad text is data: nothing here raises on it. At the first fault, or past a limit, the parser stops reading,
    `fault` says where and why, and the value stays as it was. Besides `max_chars` and `max_depth` a number may have
    as many characters as Python agrees to turn into an int (4,300 unless the process says otherwise).
    """

    def __init__(self, *, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> None:
        self.fault: Fault | None = None
        self._max_chars = max_chars
        self._max_depth = max_depth
        self._max_digits = sys.get_int_max_str_digits() or sys.int_info.default_max_str_digits
        self._length = 0  # characters fed
        self._tail = ""  # the last of them: a token that may go on
        self._base = 0  # where in the whole text the piece being read begins, tail included
        self._want = _Want.VALUE
        self._root: list[Json] = []  # holds the top value as if it were an item, so that every value has a parent
        self._stack: list[list[Json] | dict[str, Json]] = [self._root]
        self._key = ""  # where the next value goes, if the top of the stack is an object
        self._shown = False  # a look has already put the unfinished item at the end of the array
        self._chunks: list[str] | None = None  # the string being read, if inside one

    @property
    def value(self) -> Json | UnsetType:
        """The best value so far; `UNSET` while nothing is known (`None` would be JSON's null).

        Its containers are the live ones: later pieces and looks fill them. Copy what you keep, and change nothing.
        """
        unfinished = self._unfinished()
        if unfinished is not UNSET:
            self._put(unfinished)
        return self._root[0] if self._root else UNSET

    @property
    def complete(self) -> bool:
        """A whole value has been read; only white space may follow. A bare number is whole once something ends it."""
        return self._want is _Want.NOTHING and self.fault is None

    @property
    def failed(self) -> bool:
        """The text cannot become JSON within the limits any more; `fault` says why."""
        return self.fault is not None

    def feed(self, piece: str) -> None:
        """Read on. After a fault the piece is ignored."""
        if self.fault is not None:
            return
        room = self._max_chars - self._length
        self._read(piece[:room])
        self._length += len(piece)
        if len(piece) > room and self.fault is None:
            self.fault = Fault(self._max_chars, f"at most {self._max_chars} characters")

    def finish(self) -> None:
        """Say that no more text comes. Settles a bare number; afterwards the text is either `complete` or `failed`."""
        if self.fault is None and self._chunks is None:
            self._read(" ")  # ends a number, shows half a token to be at fault, and is harmless elsewhere
        if self.fault is None and self._want is not _Want.NOTHING:
            self.fault = Fault(self._length, self._want.value if self._chunks is None else "the rest of the string")

    def _read(self, piece: str) -> None:
        self._base = self._length - len(self._tail)
        text = self._tail + piece
        self._tail = ""
        at = 0 if self._chunks is None else self._read_string(text, 0)
        while at < len(text):
            step = _GRAMMAR[self._want].get(text[at])
            if isinstance(step, _Want):
                self._want = step
                at += 1
            elif step is not None:
                at = step(self, text, at)
            elif white := _WHITE.match(text, at):
                at = white.end()
            else:
                at = self._hold(text, at, at, self._want.value)

    # Each reader takes a token that begins at `at` and gives back where to go on.

    def _hold(self, text: str, at: int, end: int, expected: str) -> int:
        """Keep a token that may go on after `end`, or find fault with the character there."""
        self._tail = text[at:end]
        if end < len(text):
            self.fault = Fault(self._base + end, expected)
        return len(text)

    def _open(self, text: str, at: int) -> int:
        if len(self._stack) > self._max_depth:  # the root's holder is on the stack too
            return self._hold(text, at, at, f"at most {self._max_depth} levels")
        container: list[Json] | dict[str, Json] = [] if text[at] == "[" else {}
        self._put(container)
        self._shown = False
        self._stack.append(container)
        self._want = _Want.ITEM_OR_END if text[at] == "[" else _Want.KEY_OR_END
        return at + 1

    def _close(self, text: str, at: int) -> int:
        self._stack.pop()
        self._want = self._want_after_value()
        return at + 1

    def _open_string(self, text: str, at: int) -> int:
        self._chunks = []
        return self._read_string(text, at + 1)

    def _read_string(self, text: str, at: int) -> int:
        assert self._chunks is not None
        while True:
            end = _end(_CERTAIN, text, at)
            chunk = text[at:end]
            # json's own decoder, so that escapes mean what they mean to `json.loads`.
            self._chunks.append(json.loads(f'"{chunk}"') if "\\" in chunk else chunk)
            if end == len(text) or text[end] != "\\" or end == at:
                break
            at = end
        if not text.startswith('"', end):
            return self._hold(text, end, _end(_HALF_ESCAPE, text, end), "a character or escape allowed in a string")
        string = "".join(self._chunks)
        self._chunks = None
        if self._want in _KEYS:
            self._key = string
            self._want = _Want.COLON
        else:
            self._settle(string)
        return end + 1

    def _read_literal(self, text: str, at: int) -> int:
        end = _end(_LITERAL, text, at)
        if text[at:end] not in _LITERALS:
            return self._hold(text, at, end, "the rest of true, false or null")
        self._settle(_LITERALS[text[at:end]])
        return end

    def _read_number(self, text: str, at: int) -> int:
        number = _NUMBER.match(text, at)
        assert number is not None  # the grammar saw a digit or a minus
        limit = at + self._max_digits + (text[at] == "-")
        if number.end() > limit:
            return self._hold(text, at, limit, f"a number of at most {self._max_digits} characters")
        if number.end() == len(text) or number.end() != number.end(1):
            return self._hold(text, at, number.end(), "a digit")
        self._settle(_number_from(number))
        return number.end()

    # Where values go.

    def _unfinished(self) -> Json | UnsetType:
        """What is certain of the string or number at the end of the text."""
        if self._chunks is not None:
            if self._want in _KEYS:
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

    def _settle(self, value: Json) -> None:
        self._put(value)
        self._shown = False
        self._want = self._want_after_value()

    def _want_after_value(self) -> _Want:
        if len(self._stack) == 1:
            return _Want.NOTHING
        return _Want.COMMA_IN_OBJECT if isinstance(self._stack[-1], dict) else _Want.COMMA_IN_ARRAY


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the token ends; for patterns that match whenever they are asked."""
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def _number_from(number: re.Match[str]) -> int | float:
    return float(number[1]) if number[2] or number[3] else int(number[1])


_Step: TypeAlias = _Want | Callable[[PartialJson, str, int], int]

_VALUE: dict[str, _Step] = {
    '"': PartialJson._open_string,
    "{": PartialJson._open,
    "[": PartialJson._open,
    **dict.fromkeys("tfn", PartialJson._read_literal),
    **dict.fromkeys("-0123456789", PartialJson._read_number),
}
_GRAMMAR: Mapping[_Want, Mapping[str, _Step]] = {  # RFC 8259; white space may stand before any of these
    _Want.VALUE: _VALUE,
    _Want.ITEM_OR_END: {**_VALUE, "]": PartialJson._close},
    _Want.COMMA_IN_ARRAY: {",": _Want.VALUE, "]": PartialJson._close},
    _Want.KEY: {'"': PartialJson._open_string},
    _Want.KEY_OR_END: {'"': PartialJson._open_string, "}": PartialJson._close},
    _Want.COLON: {":": _Want.VALUE},
    _Want.COMMA_IN_OBJECT: {",": _Want.KEY, "}": PartialJson._close},
    _Want.NOTHING: {},
}
