"""Fuzz the wire formats: every decoder, request reader and encoder, with damaged recordings.

    python -m scripts.fuzz [SECONDS] [--seed N] [--target NAME] [--save DIR]

The laws:

- A decoder turns any bytes into ``start ... (done | error)``, which the assembler accepts. The message can be stored,
  and encoded again for every format.
- A reader, an encoder and `guess_format` return, or raise `PartValidationError`. What an encoder returns is JSON.

An input is a recorded stream or request in which a few JSON values, or sometimes a few bytes, were replaced, moved,
repeated or removed. Without recordings, small built-in seeds are used. The same seed gives the same inputs. Failing
inputs are printed, one for each place that raised, so that they can become tests.
"""

import argparse
import itertools
import json
import random
import sys
import time
import traceback
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bartack import Text, user
from bartack.formats import FORMATS, ModelRequest, decoder, encode, format_named, guess_format, read_request
from bartack.formats.framing import FRAMINGS, Frame, FramingName
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.stream.assembler import MessageAssembler
from scripts.fuzz_seeds import REQUESTS, STREAMS
from tests.recordings.plain import recordings_root

__all__ = ["TARGETS", "Crash", "Target", "fuzz", "main"]

Json = Any
ROOT = Path(__file__).parents[1]
OWN = ROOT / "tests" / "recordings" / "own"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_EVENTS = 40  # of one input: a longer stream repeats itself, and takes longer to decode
_MAX_SEED = 60_000  # bytes of a request; a larger one holds an image
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
        self.values: dict[str, list[Json]] = {}  # by the key they were found under
        for request in (one for some in self.requests.values() for one in some):
            self._index(request)
        for stream in (one for some in self.streams.values() for one in some):
            for event in stream[:_MAX_EVENTS]:
                self._index(_json(event.data))

    def _add(self, format: str, case: Path) -> None:
        for path in sorted(case.glob("response*")):
            framing = _SUFFIXES.get(path.suffix)
            if framing is not None and (events := _events(path, framing)):
                self.streams[format].append(events)
        request = case / "request.json"
        if request.exists() and request.stat().st_size < _MAX_SEED:
            self.requests[format].append(_body(json.loads(request.read_bytes())))

    def _index(self, value: Json) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                known = self.values.get(key, [])
                if len(known) < 50 and item not in known and len(str(item)) < 2000:
                    self.values[key] = [*known, item]
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
    None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 1e300, 2**53, 2**63, 2**64, 10**400, "", " ", "x", "1", "é", "\udc00",
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
            return self._odd(None)
        holder, key = self._random.choice(places)
        roll = self._random.random()
        if roll < 0.55:
            holder[key] = self._odd(key)
        elif roll < 0.65:
            del holder[key]
        elif roll < 0.75:  # copied from elsewhere in the same value
            other, name = self._random.choice(places)
            holder[key] = _copy(other[name])
        elif isinstance(holder, dict):
            name = self._random.choice(self._keys) if roll < 0.95 else self._odd_key()
            holder[name] = self._odd(name)
        else:
            holder.insert(self._random.randint(0, len(holder)), _copy(self._random.choice(holder)))
        return value

    def _odd(self, key: object) -> Json:
        roll = self._random.random()
        known = self._values.get(key) if isinstance(key, str) else None
        if known and roll < 0.3:
            return _copy(self._random.choice(known))
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


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _dumps(value: Json, *, ascii: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")


# -- targets


class Crash(NamedTuple):
    """An input that broke a law."""

    target: str
    input: str
    error: str
    where: str


class Target(NamedTuple):
    """Makes an input and checks the laws for it."""

    name: str
    make: Callable[[random.Random, Corpus], Json]
    check: Callable[[Json], None]


def _stream_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
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
            at = random.randrange(len(events))
            event, roll = events[at], random.random()
            value = _json(event.data)
            if roll < 0.75 and value is not None:
                value = damage.changed(value, random.choice((1, 1, 2, 4)))
                events[at] = Event(_dumps(value, ascii=ascii), event.name)
            elif roll < 0.8:
                events.insert(random.randrange(len(events)), event)
            elif roll < 0.85 and len(events) > 1:
                del events[at]
            elif roll < 0.9:
                events[at] = Event(_damaged_bytes(event.data, random), event.name)
            else:
                other = random.randrange(len(events))
                events[at], events[other] = events[other], events[at]
        body = b"".join(_framed(event, framing) for event in events)
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


def _framed(event: Event, framing: FramingName) -> bytes:
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


_ODD_BYTES = (b"\xff", b"\xe9", b"\\udc00", b"[" * 1500, b'"', b"}")


def _damaged_bytes(data: bytes, random: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at, width = random.randint(0, len(body)), random.randint(0, 3)
        body[at : at + width] = random.choice(
            (b"\xff", b"\xe9", b"\\udc00", b"[" * 1500, b'"', b"}", random.randbytes(3))
        )
    return bytes(body)


def _check_stream(format: str) -> Callable[[bytes], None]:
    def check(body: bytes) -> None:
        guess_format(body)
        one = decoder(format)
        deltas = [*one.receive_data(body), *one.receive_eof()]
        message = assembled(deltas)
        stored = wire.encode(message)
        assert wire.decode(Message, stored) == message, "the stored message differs"
        for name in FORMATS:
            for provider in {name, format}:
                config = ModelConfig("anthropic.claude-sonnet-4-5" if name == "bedrock-invoke" else "m")
                request = ModelRequest((user("a"), message), config=config, tools=_TOOLS, provider=provider)
                _sendable(encode(name, request).body)
        if message.parts:
            followed = (user("a"), message, user("b"), message)
            config = ModelConfig("anthropic.claude-sonnet-4-5")
            request = ModelRequest(followed, config=config, tools=_TOOLS, provider=format)
            _sendable(encode(format, request).body)

    return check


def assembled(deltas: list[Delta]) -> Message:
    """The message of a stream; raises `AssertionError` or `StreamError` if it breaks the contract."""
    assert isinstance(deltas[0], Start), deltas[:1]
    assert isinstance(deltas[-1], Done | Failed), deltas[-1:]
    assembler = MessageAssembler("run")
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run", seq, delta, WHEN))
    return assembler.build_final_message() if isinstance(deltas[-1], Done) else assembler.snapshot()


def _sendable(body: Json) -> None:
    msgspec.json.encode(body)


def _request_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
    def make(random: random.Random, corpus: Corpus) -> Json:
        body = random.choice(corpus.requests[format])
        return Damage(random, corpus).changed(body, random.choice((1, 1, 2, 4, 8)))

    return make


def _check_reader(format: str) -> Callable[[Json], None]:
    def check(body: Json) -> None:
        try:
            request = read_request(format, body, model_id="m")
        except PartValidationError:
            return
        wire.encode(request)
        for name in FORMATS:
            with suppress(PartValidationError):  # InvokeModel does not serve all models
                _sendable(encode(name, request).body)

    return check


_TOOLS = (ToolSpec("f", {"type": "object"}),)
_readable: dict[str, list[Json]] = {}


def _noun_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
    """Requests in our own JSON: those of the recordings, and histories with a decoded answer of the format."""

    def make(random: random.Random, corpus: Corpus) -> Json:
        if format not in _readable:
            _readable[format] = list(_request_nouns(format, corpus))
        seed = random.choice(_readable[format])
        return Damage(random, corpus).changed(seed, random.choice((1, 1, 2, 4, 8)))

    return make


def _request_nouns(format: str, corpus: Corpus) -> Iterator[Json]:
    for stream in corpus.streams[format]:
        one = decoder(format)
        framing = format_named(format).framing
        body = b"".join(_framed(event, framing) for event in stream)
        message = assembled([*one.receive_data(body), *one.receive_eof()])
        history = (user("a"), message, Message("user", (Text("b"),)))
        if len(wire.encode(message)) < _MAX_SEED:
            yield wire.dump(ModelRequest(history, config=ModelConfig("m"), tools=_TOOLS, provider=format))
    if format_named(format).read_request is not None:
        for body in corpus.requests[format]:
            with suppress(PartValidationError):  # some recorded requests were refused
                yield wire.dump(read_request(format, body, model_id="m"))


def _check_encoder(format: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        try:
            request = wire.load(ModelRequest, value)
        except PartValidationError:
            return
        with suppress(PartValidationError):
            _sendable(encode(format, request).body)

    return check


def _targets() -> Iterator[Target]:
    for name in FORMATS:
        yield Target(f"decode-{name}", _stream_maker(name), _check_stream(name))
        if format_named(name).read_request is not None:
            yield Target(f"read-{name}", _request_maker(name), _check_reader(name))
        yield Target(f"encode-{name}", _noun_maker(name), _check_encoder(name))


# -- running


def fuzz(target: Target, corpus: Corpus, seed: int, number: int) -> Crash | None:
    """Check one input; the crash, or None if the laws held."""
    with _deeper_recursion():
        value = target.make(random.Random(f"{seed}-{target.name}-{number}"), corpus)
    try:
        target.check(value)
    except Exception as error:  # noqa: BLE001 (any exception is the finding)
        with _deeper_recursion():
            return Crash(target.name, repr(value), f"{type(error).__name__}: {error}"[:300], _place(error))
    return None


@contextmanager
def _deeper_recursion() -> Iterator[None]:
    """Raise the recursion limit, to create and print values nested as deeply as the code under test supports."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "bartack/" in frame.filename] or frames
    return f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno} {ours[-1].name}"


TARGETS: tuple[Target, ...] = tuple(_targets())


def main(arguments: list[str] | None = None) -> int:
    """Fuzz for some seconds, print a table, and return 1 if a law was broken."""
    parser = argparse.ArgumentParser(description="Fuzz the wire formats.")
    parser.add_argument("seconds", nargs="?", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the seed of an earlier run (default: random)")
    parser.add_argument("--target", default="", help="only targets whose name contains this")
    parser.add_argument("--save", type=Path, help="write failing inputs to this folder")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    targets = [target for target in TARGETS if options.target in target.name]
    corpus = Corpus()
    print(f"seed {seed}: {len(targets)} targets for {options.seconds:g} s", flush=True)
    inputs, crashes = _run(targets, corpus, seed, options.seconds)
    for target in targets:
        print(f"{inputs[target.name]:>9,} inputs  {target.name}")
    for crash in crashes.values():
        print(f"\n{crash.target}: {crash.where}: {crash.error}\n{crash.input[:2000]}")
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for number, crash in enumerate(crashes.values()):
            (options.save / f"{seed}-{number}-{crash.target}.txt").write_text("\n".join(crash), "utf-8")
    print(f"\n{sum(inputs.values()):,} inputs, {len(crashes)} places that raised")
    return 1 if crashes else 0


def _run(
    targets: list[Target], corpus: Corpus, seed: int, seconds: float
) -> tuple[Counter[str], dict[tuple[str, str], Crash]]:
    inputs: Counter[str] = Counter()
    crashes: dict[tuple[str, str], Crash] = {}  # the shortest input for each place
    deadline = time.monotonic() + seconds
    for number in itertools.count():
        for target in targets:
            if time.monotonic() > deadline:
                return inputs, crashes
            crash = fuzz(target, corpus, seed, number)
            inputs[target.name] += 1
            if crash is not None:
                key = crash.target.partition("-")[0], crash.where
                if key not in crashes or len(crash.input) < len(crashes[key].input):
                    crashes[key] = crash
    return inputs, crashes


if __name__ == "__main__":
    sys.exit(main())
