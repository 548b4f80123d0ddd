"""Function arguments that Vertex AI streams as JSON paths with values, to the JSON text they describe, piece by piece.

The model generates its arguments from left to right, so the paths arrive in document order: ``$.a[0].b``,
``$.a[0].c``, ``$.a[1].b``. To write JSON, each new path closes the containers it has left and opens those it enters. A
path into a container that is already closed is refused. Recorded:
gemini-generate/ai--google-vertex-stream-tool-call-arguments-nested.1--0-3518ea.
"""

import re
from collections.abc import Iterator
from typing import Any

from bartack.nouns.json_values import json_text

__all__ = ["OutOfOrder", "StreamedArguments", "path_steps"]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)")
_VALUES = ("stringValue", "numberValue", "boolValue")


class OutOfOrder(ValueError):
    """A piece that does not continue the arguments written so far."""


def path_steps(path: str) -> tuple[str | int, ...]:
    """``$.a[0]['b c']`` -> ``("a", 0, "b c")``: the names and indexes of RFC 9535, without wildcards."""
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            break
        plain, index, single, double = step.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(plain if plain is not None else _ESCAPED.sub(r"\1", single if double is None else double))
        position = step.end()
    if not path.startswith("$") or position != len(path) or not steps or isinstance(steps[0], int):
        raise OutOfOrder(f"invalid path {path!r}")
    return tuple(steps)


class StreamedArguments:
    """The arguments of one call, as they arrive."""

    def __init__(self) -> None:
        self._path: tuple[str | int, ...] = ()  # the path of the last value
        self._levels: list[int | set[str]] = []  # the length of each open list, or the keys of each open object
        self._in_string = False

    def write(self, piece: dict[str, Any]) -> str:
        """The text that one element of `partialArgs` adds. Raises `OutOfOrder`."""
        json_path = piece.get("jsonPath")
        path = (
            self._path
            if json_path is None and self._in_string
            else path_steps(json_path if isinstance(json_path, str) else "")
        )
        is_continued = piece.get("willContinue") is True
        continues = self._in_string and path == self._path
        value = _value(piece, default="" if continues or is_continued else None)
        if continues:
            if not isinstance(value, str):
                raise OutOfOrder(f"the string at {path} continues with {value!r}")
            text = ""
        else:
            text = "".join(self._go_to(path))
        if not isinstance(value, str):
            return text + json_text(value)
        opening = "" if continues else '"'
        self._in_string = True
        return text + opening + json_text(value)[1:-1] + ("" if is_continued else self._end_string())

    def end(self) -> str:
        """The text that closes what is still open."""
        text = self._end_string() + "".join(self._closers(0))
        return text + "}" if self._path else text

    def _end_string(self) -> str:
        closing = '"' if self._in_string else ""
        self._in_string = False
        return closing

    def _go_to(self, path: tuple[str | int, ...]) -> Iterator[str]:
        """The text between the last value and this one."""
        shared = _shared_length(self._path, path)
        if shared == len(path) or (self._path and shared == len(self._path)):
            raise OutOfOrder(f"{path} is already written")
        yield self._end_string()
        yield from self._closers(shared)
        yield "," if self._path else "{"
        del self._levels[shared + 1 :]
        for depth in range(shared, len(path)):
            step = path[depth]
            if depth > shared:
                yield "[" if isinstance(step, int) else "{"
            yield self._enter(depth, step)
        self._path = path

    def _closers(self, depth: int) -> Iterator[str]:
        for step in reversed(self._path[depth + 1 :]):
            yield "]" if isinstance(step, int) else "}"

    def _enter(self, depth: int, step: str | int) -> str:
        if depth == len(self._levels):
            self._levels.append(0 if isinstance(step, int) else set())
        level = self._levels[depth]
        if isinstance(step, int):
            if level != step:
                raise OutOfOrder(f"list item {step} is not the next one")
            self._levels[depth] = step + 1
            return ""
        if isinstance(level, int) or step in level:
            raise OutOfOrder(f"{step!r} is already written")
        level.add(step)
        return json_text(step) + ":"


def _value(piece: dict[str, Any], default: str | None) -> Any:
    if "nullValue" in piece:  # null, or the string NULL_VALUE
        return None
    return next((piece[name] for name in _VALUES if name in piece), default)


def _shared_length(first: tuple[str | int, ...], second: tuple[str | int, ...]) -> int:
    length = 0
    for first_step, second_step in zip(first, second, strict=False):
        if first_step != second_step:
            break
        length += 1
    return length
