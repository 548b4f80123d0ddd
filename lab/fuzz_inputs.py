"""Inputs for `lab.fuzz`: recorded streams and requests, and the damage that is done to them."""

import json
import random
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bartack.formats import FORMATS, format_named
from bartack.formats.framing import FRAMINGS, Frame, FramingName
from bartack.formats.framing.frame import BOM
from lab.fuzz_seeds import ERRORS, REQUESTS, STREAMS
from lab.repository import find_test
from tests.recordings.plain import recordings_root

__all__ = [
    "MAX_SEED",
    "Corpus",
    "Damage",
    "Event",
    "Json",
    "aws_message",
    "changed_places",
    "error_maker",
    "framed",
    "stream_maker",
]

Json = Any

OWN = find_test("recordings/own")
MAX_SEED = 60_000  # bytes of a request; a larger one holds an image
_MAX_EVENTS = 40  # per input: a longer stream repeats itself, and takes longer to decode
_SUFFIXES: dict[str, FramingName] = {
    ".sse": "sse",
    ".jsonl": "lines",
    ".ndjson": "ndjson",
    ".bin": "aws",
    ".json": "json-array",
}

# -- seeds


class Event(NamedTuple):
    """One event of a recorded stream."""

    data: bytes
    name: str = ""


def api_formats() -> dict[str, str]:
    """The format of each folder of recordings."""
    chat = ("azure-openai", "cerebras", "deepseek", "groq", "mistral", "openai-compat", "openrouter", "perplexity")
    names = {name: name for name in FORMATS}
    names |= {f"{vendor}-chat": "openai-chat" for vendor in (*chat, "xai", "zai")}
    return names | {f"{vendor}-responses": "openai-responses" for vendor in ("azure-openai", "openai-compat", "xai")}


class Corpus:
    """Recorded streams and requests, by format."""

    def __init__(self, root: Path | None = None) -> None:
        root = root or recordings_root()
        self.streams: dict[str, list[list[Event]]] = {name: [_built_in(name)] for name in FORMATS}
        self.requests: dict[str, list[Json]] = {name: [REQUESTS[name]] for name in FORMATS}
        for api, format in api_formats().items():
            for folder in (root / api, root / f"{api}-requests"):
                for case in sorted(folder.glob("*/")):
                    self._add(format, case)
            for path in sorted((OWN / api).glob("*.response.sse")):
                self.streams[format].append(_events(path, "sse"))
            self.requests[format] += [json.loads(path.read_bytes()) for path in (OWN / api).glob("*.request.json")]
        self.values: dict[str, list[Json]] = {}  # key -> the values found under it
        for request in (request for some in self.requests.values() for request in some):
            self._index(request)
        for stream in (stream for some in self.streams.values() for stream in some):
            for event in stream[:_MAX_EVENTS]:
                self._index(_json(event.data))

    def _add(self, format: str, case: Path) -> None:
        for path in sorted(case.glob("response*")):
            framing = _SUFFIXES.get(path.suffix)
            if framing is not None and (events := _events(path, framing)):
                self.streams[format].append(events)
        request = case / "request.json"
        if request.exists() and request.stat().st_size < MAX_SEED:
            self.requests[format].append(_body(json.loads(request.read_bytes())))

    def _index(self, value: Json) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                values = self.values.get(key, [])
                if len(values) < 50 and item not in values and len(str(item)) < 2000:
                    self.values[key] = [*values, item]
                self._index(item)
        elif isinstance(value, list):
            for item in value:
                self._index(item)


def _body(request: Json) -> Json:
    body = request.get("body") if isinstance(request, dict) else None
    return body if isinstance(body, dict) else request


def _events(path: Path, framing: FramingName) -> list[Event]:
    cutter = FRAMINGS[framing]()
    data = path.read_bytes()
    frames = [frame for frame in [*cutter.feed(data), *cutter.end()] if isinstance(frame, Frame)]
    return [Event(frame.data, frame.event) for frame in frames]


def _json(data: bytes) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _built_in(format: str) -> list[Event]:
    return [Event(json.dumps(event).encode(), name) for name, event in STREAMS[format]]


# -- damage


def _nested(depth: int, innermost: Json = 1) -> Json:
    value: Json = innermost
    for level in range(depth):
        value = [value] if level % 3 else {"a": value}
    return value


_ODD: list[Json] = [
    None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 1e300, 2**53, 2**63, -(2**63), 2**64, 10**400,
    -(10**30), "", " ", "x", "1", "é", "\udc00",
    "a\ud83d", "\x00", "null", "{}", "[DONE]", "text", "data:,x", "data:image/png;base64,AAAA", "https://a", "x" * 300,
    [], [[]], [None], [1], ["a"], [{}], [{"a": 1}], {}, {"": ""}, {"a": 1}, {"a": {"b": [1]}}, {"type": "x"},
    {"type": ["x"]}, {"type": {"a": 1}}, {"id": ["a"]}, {"\udc00": "\udc00"}, {"é": "é"}, {"text": 1}, {"text": "a"},
    _nested(61), _nested(66), _nested(90), _nested(330), _nested(480), _nested(900), _nested(970),
    float("inf"), float("nan"),
]  # fmt: skip


class Damage:
    """Changes values of JSON at random."""

    def __init__(self, random: random.Random, corpus: Corpus) -> None:
        self._random = random
        self._values = corpus.values
        self._keys = sorted(corpus.values)

    def changed(self, value: Json, changes: int) -> Json:
        """A copy with this many changes."""
        value = _copy(value)
        for _ in range(changes):
            value = self._change(value)
        return value

    def _change(self, value: Json) -> Json:
        places = list(_places(value))
        if not places:
            return self.odd(None)
        holder, key = self._random.choice(places)
        roll = self._random.random()
        if roll < 0.55:
            holder[key] = self.odd(key)
        elif roll < 0.65:
            del holder[key]
        elif roll < 0.75:  # copied from elsewhere in the same value
            other, name = self._random.choice(places)
            holder[key] = _copy(other[name])
        elif isinstance(holder, dict):
            name = self._random.choice(self._keys) if roll < 0.95 else self._odd_key()
            holder[name] = self.odd(name)
        else:
            holder.insert(self._random.randint(0, len(holder)), _copy(self._random.choice(holder)))
        return value

    def odd(self, key: object) -> Json:
        """A value that does not belong here, or one that was found under this key elsewhere."""
        roll = self._random.random()
        values = self._values.get(key) if isinstance(key, str) else None
        if values and roll < 0.3:
            return _copy(self._random.choice(values))
        if roll < 0.4:
            return _copy(self._random.choice(self._values[self._random.choice(self._keys)]))
        if roll < 0.5:
            return [_copy(self._random.choice(_ODD))]
        return _copy(self._random.choice(_ODD))

    def _odd_key(self) -> str:
        return self._random.choice(("", "é", "\udc00", "a", "type", "\x00"))


def _places(value: Json, depth: int = 30) -> Iterator[tuple[Json, Any]]:
    """Every place in a value: its container and key."""
    if depth:
        keys: Iterable[Any] = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            yield value, key
            yield from _places(value[key], depth - 1)


def changed_places(value: Json, replacement: Json) -> Iterator[Json]:
    """A copy of the value for each place in it, with the new value there."""
    for nth in range(sum(1 for _ in _places(value))):
        copy = _copy(value)
        holder, key = list(_places(copy))[nth]
        holder[key] = replacement
        yield copy


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _dumps(value: Json, *, ascii: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")


# -- damaged streams


def stream_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
    framing = format_named(format).framing

    def make(random: random.Random, corpus: Corpus) -> bytes:
        events = list(random.choice(corpus.streams[format]))
        if len(events) > _MAX_EVENTS:
            start = random.choice((0, random.randrange(len(events) - 20)))
            events = [*events[:4], *events[start : start + _MAX_EVENTS - 10], *events[-6:]]
        damage = Damage(random, corpus)
        if format == "bedrock-invoke":
            events = [_invoke(event, damage, random) for event in events]
        ascii = random.random() < 0.7
        for _ in range(random.choice((1, 1, 2, 3, 8))):
            index = random.randrange(len(events))
            event, roll = events[index], random.random()
            value = _json(event.data)
            if roll < 0.75 and value is not None:
                value = damage.changed(value, random.choice((1, 1, 2, 4)))
                events[index] = Event(_dumps(value, ascii=ascii), event.name)
            elif roll < 0.8:
                events.insert(random.randint(0, len(events)), event)
            elif roll < 0.85 and len(events) > 1:
                del events[index]
            elif roll < 0.9:
                events[index] = Event(_damaged_bytes(event.data, random), event.name)
            elif roll < 0.94:
                events[index] = Event(_with_a_key_twice(event.data, damage, random), event.name)
            else:
                second = random.randrange(len(events))
                events[index], events[second] = events[second], events[index]
        body = b"".join(framed(event, framing) for event in events)
        return _damaged_bytes(body, random) if random.random() < 0.05 else body

    return make


def _invoke(event: Event, damage: Damage, random: random.Random) -> Event:
    """Bedrock wraps the events of other formats in base64; those are damaged, too."""
    value = _json(event.data)
    if random.random() > 0.1 or not isinstance(value, dict) or not isinstance(value.get("bytes"), str):
        return event
    inner = _json(b64decode(value["bytes"]))
    changed = _dumps(damage.changed(inner, random.choice((1, 2))), ascii=random.random() < 0.7)
    return Event(_dumps({**value, "bytes": b64encode(changed).decode()}, ascii=True), event.name)


def framed(event: Event, framing: FramingName) -> bytes:
    if framing == "aws":
        return aws_message({":message-type": "event", ":event-type": event.name}, event.data)
    if framing != "sse":
        return event.data + b"\n"
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + event.data.replace(b"\n", b"\ndata: ") + b"\n\n"


def aws_message(headers: dict[str, str], payload: bytes) -> bytes:
    """A message of Amazon's event stream."""
    names = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value.encode()).to_bytes(2) + value.encode()
        for name, value in headers.items()
    )
    lengths = (16 + len(names) + len(payload)).to_bytes(4) + len(names).to_bytes(4)
    body = lengths + zlib.crc32(lengths).to_bytes(4) + names + payload
    return body + zlib.crc32(body).to_bytes(4)


_KEY = re.compile(rb'[{,] *("[a-z_]+"):', re.IGNORECASE)


def _with_a_key_twice(data: bytes, damage: Damage, random: random.Random) -> bytes:
    """The JSON with one of its keys before or after another value for the same key."""
    keys = list(_KEY.finditer(data))
    if not keys:
        return data
    key = random.choice(keys)
    again = key[1] + b":" + _dumps(damage.odd(key[1].decode().strip('"')), ascii=True) + b","
    return data[: key.start(1)] + again + data[key.start(1) :]


_ODD_BYTES = (b"\xff", b"\xe9", b"\\udc00", b"[" * 1500, b'"', b"}", b"\x00", b"\r", b"\n\n", b"\\", BOM)


def _damaged_bytes(data: bytes, random: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(random.randint(1, 4)):
        start, width = random.randint(0, len(body)), random.randint(0, 3)
        body[start : start + width] = random.choice((*_ODD_BYTES, random.randbytes(3)))
    return bytes(body)


# -- error responses

_DELAYS = (
    "",
    "0",
    "-1",
    "1.5",
    "1e308",
    "nan",
    "inf",
    "x",
    "Wed, 21 Oct 2026 07:28:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359",
)
_TYPES = ("", "text/html", "application/json; charset=utf-8", "text/event-stream", "\xff")


def error_maker(random: random.Random, corpus: Corpus) -> Json:
    """The status, headers and body of a response that reports an error."""
    value = Damage(random, corpus).changed(random.choice(ERRORS), random.choice((0, 1, 2, 4)))
    body = value.encode("utf-8", "replace") if isinstance(value, str) else _dumps(value, ascii=random.random() < 0.7)
    if random.random() < 0.2:
        body = _damaged_bytes(body, random)
    names = ("retry-after", "retry-after-ms", "x-should-retry", "x-amzn-errortype")
    headers = {name: random.choice(_DELAYS) for name in names if random.random() < 0.4}
    return random.choice((200, 302, 400, 404, 429, 500, 529)), {**headers, "content-type": random.choice(_TYPES)}, body
