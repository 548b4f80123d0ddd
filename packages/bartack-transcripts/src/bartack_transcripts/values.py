"""Values in the records of other programs, read with care: whatever they are, the result can be stored.

JSON of other programs may contain what Bartack's own may not: halves of surrogate pairs, where JavaScript cut a string;
numbers beyond any float; objects nested hundreds of levels deep. Text is repaired, and the rest is replaced.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import is_
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats import format_named
from bartack.formats.usage import consistent, token_count
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import Fact, ModelChange
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import MAX_DEPTH, is_within
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import ToolCall
from bartack.session.title import title_from
from bartack_transcripts.transcript import ReadReport, Record, line_records

__all__ = [
    "Json",
    "MessageFacts",
    "first_objects",
    "object_in",
    "objects_in",
    "parse_lines",
    "parse_object",
    "read_messages",
    "short_line",
    "text_in",
    "texts_in",
    "thinking_level",
    "time_from_ms",
    "time_from_text",
    "usage_of",
    "value_in",
]

Json = dict[str, Any]

_DEPTH = MAX_DEPTH - 8  # a fact adds a few levels around what it takes from a record
_MAX_INT = 2**63 - 1
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # among bytes whose digits are all zeros
_PIECE = 1_000_000  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS = re.compile(r"[^.\[\]$]+")  # the keys in a path such as $.messages[0].content
_MAX_UNKNOWN = 100  # pieces of one record that are left out


def parse_object(data: bytes) -> Json | str:
    """The JSON object in these bytes, fit to be stored; or what is wrong with them."""
    data = data.removeprefix(BOM_UTF8)
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        value = _parse_leniently(data)
        if value is None:
            return f"not JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    if data.count(b"{") + data.count(b"[") > _DEPTH and not is_within(value, _DEPTH):
        return "nested too deeply"
    is_unusual = b"\\ud" in data or b"\\uD" in data or _has_long_number(data)
    return _storable(value) if is_unusual else value


def _has_long_number(data: bytes) -> bool:
    """Whether there are digits for a number that may be too large. A copy of the data would be twice as fast."""
    pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE - len(_LONG_NUMBER)))
    return any(_LONG_NUMBER in piece.translate(_DIGITS) for piece in pieces)


def first_objects(head: bytes) -> Iterator[Json]:
    """The objects on the first lines of a file, of which the last may be cut off."""
    lines = head.split(b"\n")
    parsed = (parse_object(line) for line in lines[:-1] or lines)
    return (line for line in parsed if isinstance(line, dict))


def parse_lines(name: str, data: bytes, report: ReadReport) -> list[tuple[Record, Json]]:
    """The lines of a file, each with its JSON object, which is empty if the line is blank or damaged."""
    lines: list[tuple[Record, Json]] = []
    for record in line_records(name, data):
        parsed: Json | str = parse_object(record.data) if record.data.strip() else {}
        if isinstance(parsed, str):
            torn = "" if record.data.endswith(b"\n") else "torn at the end of the file, "
            report.damaged(record, torn + parsed)
            parsed = {}
        elif not parsed:
            report.add("blank line", "opaque")
        lines.append((record, parsed))
    return lines


def _parse_leniently(data: bytes) -> Any:
    """The value that programs in JavaScript read: with halves of surrogate pairs; None if they read none."""
    try:
        return json.loads(data.decode(), parse_constant=lambda name: None, parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < 19 else float(digits)  # int() refuses thousands of digits


def _storable(value: Any) -> Any:
    match value:
        case str():
            return value if value.isascii() else _text(value)
        case bool():
            return value
        case int():
            return value if abs(value) <= _MAX_INT else _storable(float(value)) if abs(value) < 10**300 else None
        case float():
            return value if abs(value) < float("inf") else None
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
    return value


def _text(text: str) -> str:
    """The text with pairs of surrogates joined, and U+FFFD for each half without its other one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_in(value: Any, *keys: str) -> str | None:
    """The text at this path of keys; None if there is none, or it is empty."""
    for key in keys:  # as in `value_in`; this is asked ten times for each line
        value = value.get(key) if type(value) is dict else None
    return value if type(value) is str and value else None


def value_in(value: Any, *keys: str) -> Any:
    """The value at this path of keys; None if there is none."""
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value


def object_in(value: Any, *keys: str) -> Json:
    """The object at this path of keys; empty if there is none."""
    member = value_in(value, *keys)
    return member if isinstance(member, dict) else {}


def objects_in(value: Any, *keys: str) -> list[Json]:
    """The objects in the list at this path of keys; none if there is no list."""
    member = value_in(value, *keys)
    return [item for item in member if isinstance(item, dict)] if isinstance(member, list) else []


def texts_in(value: Any, *keys: str) -> list[str]:
    """The texts in the list at this path of keys; none if there is no list."""
    member = value_in(value, *keys)
    return [item for item in member if isinstance(item, str)] if isinstance(member, list) else []


def short_line(text: str | None) -> str | None:
    """The beginning of the text on one line, as a title."""
    return title_from(text) if text else None


_LEVELS = {"off": "none", "xhigh": "max"} | {name: name for name in ("none", "minimal", "low", "medium", "high", "max")}


def thinking_level(value: Any) -> str | None:
    """A thinking level by the name that Bartack has for it (see `bartack.store.requests`)."""
    return _LEVELS.get(value) if isinstance(value, str) else None


def time_from_text(value: Any) -> datetime | None:
    """An ISO 8601 time; one without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        return None


def time_from_ms(value: Any) -> datetime | None:
    """A time in milliseconds since 1970."""
    ms = token_count(value)
    try:
        return None if ms is None else _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def usage_of(
    fresh: Any,
    output: Any,
    *,
    cache_read: Any = None,
    cache_write: Any = None,
    reasoning: Any = None,
    includes_cache: bool = False,
) -> Usage | None:
    """The usage with these counts; None if the source has none. `includes_cache`: the input does (D-3.4)."""
    input_tokens, output_tokens = token_count(fresh), token_count(output)
    if input_tokens is None and output_tokens is None:
        return None
    cached, stored = token_count(cache_read), token_count(cache_write)
    total = (input_tokens or 0) if includes_cache else (input_tokens or 0) + (cached or 0) + (stored or 0)
    thought = token_count(reasoning)
    usage = Usage(
        total, output_tokens or 0, cache_read_tokens=cached, cache_write_tokens=stored, reasoning_tokens=thought
    )
    return consistent(usage)


def read_messages(format: str, body: Json, provider: str, record: Record, report: ReadReport) -> list[Message]:
    """The messages in a request body of this wire format, without what is not part of the format, which is reported.

    Sources that store the messages of a provider's API are read by the reader of that API. It names the place of what
    it does not know; the block, item or message there is left out, and the others are read.
    """
    read = format_named(format).read_request
    assert read is not None
    for _ in range(_MAX_UNKNOWN):
        try:
            return list(read(body, provider=provider, model_id="unknown").messages)
        except PartValidationError as error:
            understood = _without(body, error.path)
            if understood is None:
                report.damaged(record, str(error))
                return []
            report.left_out(record, str(error))
            body = understood
    report.damaged(record, "too much of it is unknown")
    return []


def _without(value: Any, path: str) -> Any:
    """The value without the innermost element of a list on this path; None if there is none."""
    keys = _KEYS.findall(path)
    numbers = [place for place, key in enumerate(keys) if key.isdigit()]
    try:
        return _removed(value, keys[: numbers[-1] + 1]) if numbers else None
    except (KeyError, IndexError, TypeError):
        return None


def _removed(value: Any, keys: list[str]) -> Any:
    key: Any = int(keys[0]) if isinstance(value, list) else keys[0]
    if len(keys) == 1:
        return [*value[:key], *value[key + 1 :]]
    copy = value.copy()
    copy[key] = _removed(value[key], keys[1:])
    return copy


class MessageFacts:
    """Turns the messages of a source, in their order, into facts of a session.

    A change of model comes before the first answer of that model. Calls and results are joined under ids that are
    unique in the session: a store accepts one result for each id (D-5.4). Some servers number the calls of each answer
    from one, so that an id occurs again; then the later call gets a new id, and the part keeps the one that it had.
    """

    def __init__(self) -> None:
        self.model: ModelRef | None = None
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # the number of the last call with an id that occurs again
        self._open: dict[str, str] = {}  # the id in the source -> the id here, of calls without a result

    def of(self, message: Message) -> list[Fact]:
        """The facts of a message; none if all it has are results of unknown calls."""
        match message.role:
            case "assistant":
                changes = self.switch_to(None if message.meta is None else message.meta.model)
                return [*changes, self.calls(message)]
            case "tool":
                results = self.results(message)
                return [] if results is None else [results]
            case _:
                return [message]

    def switch_to(self, model: ModelRef | None) -> list[Fact]:
        """The change to this model, unless it is the current one or None."""
        if model is None or model == self.model:
            return []
        change = ModelChange(model=model, previous=self.model)
        self.model = model
        return [change]

    def calls(self, message: Message) -> Message:
        """The message with an id for each call that no other call of the session has."""
        parts = tuple(self._call(part) if isinstance(part, ToolCall) else part for part in message.parts)
        return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)

    def _call(self, call: ToolCall) -> ToolCall:
        id = original = call.tool_call_id
        while id in self._used:
            number = self._numbers[original] = self._numbers.get(original, 1) + 1
            id = f"{original}~{number}"
        self._used.add(id)
        if call.executed_by == "client":
            self._open[original] = id
        if id == original:
            return call
        result = None if call.result is None else replace(call.result, tool_call_id=id)
        return replace(call, tool_call_id=id, result=result, metadata={**(call.metadata or {}), "originalId": original})

    def results(self, message: Message) -> Message | None:
        """The message with the results of open calls only; None if it has none."""
        open_results = []
        for result in message.tool_results:
            id = self._open.pop(result.tool_call_id, None)
            if id is not None:
                open_results.append(result if id == result.tool_call_id else replace(result, tool_call_id=id))
        if len(open_results) == len(message.parts) and all(map(is_, open_results, message.parts)):
            return message
        return replace(message, parts=tuple(open_results)) if open_results else None
