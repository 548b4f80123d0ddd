"""Nothing that reads a stream gets slower as the stream grows: framing, the assembler, and incremental JSON.

- **Framing**: microseconds per event of a body in pieces of 16 KB, and per byte of one long frame that arrives byte by
  byte. Eight times the bytes must take eight times as long, not sixty-four.
- **The assembler**: microseconds per delta, for a stream of text and a stream of tool arguments, compared with decoding
  the delta's JSON with msgspec in the same run. The aim is at most three times that, at every size.
- **Incremental JSON**: microseconds per piece of four characters, for a document with many short values and one with a
  single long string, and the cost of parsing from the start for each piece.

This only measures; it never fails.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import msgspec

from bartack import MessageAssembler, MessageDelta, Start, TextDelta, ToolCallArgs, ToolCallStart
from bartack.formats.framing import AwsEventStream, Framing, JsonArray, Lines, ServerSentEvents
from bartack.nouns.wire import encode
from bartack.stream.contract import StreamLimits
from bartack.stream.partial_json import PartialJson
from bench._measuring import best_cpu_us
from bench._streams import stream

T = TypeVar("T", str, bytes)

ROUNDS = 3
SIZES = (500, 2_000, 8_000, 32_000, 128_000)  # deltas, or pieces of JSON

# -- framing

EVENTS = 8000
FRAME_BYTES = (20_000, 160_000)


def feed(make: Callable[[], Framing], pieces: list[bytes]) -> None:
    framing = make()
    for piece in pieces:
        framing.feed(piece)
    framing.end()


def cut(data: T, size: int) -> list[T]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def print_framing() -> None:
    body = stream("chat", "text", EVENTS)
    lines = b"".join(line.removeprefix(b"data: ") + b"\n" for line in body.split(b"\n\n"))
    bodies: dict[str, tuple[Callable[[], Framing], bytes]] = {
        "server-sent events": (ServerSentEvents, body),
        "lines": (Lines, lines),
    }
    for name, (make, data) in bodies.items():
        pieces = cut(data, 16384)
        cost = best_cpu_us(partial(feed, make, pieces), EVENTS, 7)
        print(f"{name:20} {cost:.2f} us per event in writes of 16 KB")
    print("\nbyte by byte, microseconds per byte:", *(f"{size:>10,}" for size in FRAME_BYTES))
    framings: dict[str, tuple[Callable[[], Framing], bytes, bytes]] = {
        "server-sent events": (ServerSentEvents, b"data: ", b"\n\n"),
        "lines": (Lines, b"", b"\n"),
        "JSON array": (JsonArray, b'[{"a": "', b'"}]'),
        "AWS event stream": (AwsEventStream, b"\x00\x02\x71\x10\x00\x00\x00\x00", b""),
    }
    for name, (make, before, after) in framings.items():
        frames = [cut(before + b"x" * size + after, 1) for size in FRAME_BYTES]
        costs = [best_cpu_us(partial(feed, make, frame), len(frame), 1) for frame in frames]
        print(f"{name:35}", *(f"{cost:10.2f}" for cost in costs), f"   ratio {costs[1] / costs[0]:.2f}")


# -- the assembler

TOKEN = "some"  # four characters: about one token
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = StreamLimits(max_args_chars=len(TOKEN) * max(SIZES))
AIM = 3.0


def assemble(deltas: list[MessageDelta]) -> None:
    assembler = MessageAssembler(limits=LIMITS)
    assembler.consume(MessageDelta("run", 0, Start("model", "request"), NOW))
    assembler.consume(MessageDelta("run", 1, ToolCallStart("call", "tool"), NOW))
    for delta in deltas:
        assembler.consume(delta)


def decode(texts: list[bytes]) -> None:
    for text in texts:
        msgspec.json.decode(text)


def print_assembler() -> None:
    print(f"\n{'deltas':>8} {'text':>9} {'arguments':>10} {'msgspec':>9} {'text / msgspec':>15}")
    for size in SIZES:
        texts = [MessageDelta("run", seq, TextDelta(TOKEN), NOW) for seq in range(2, size + 2)]
        arguments = [MessageDelta("run", seq, ToolCallArgs("call", TOKEN), NOW) for seq in range(2, size + 2)]
        encoded = [encode(delta) for delta in texts]
        text = best_cpu_us(partial(assemble, texts), size, ROUNDS)
        args = best_cpu_us(partial(assemble, arguments), size, ROUNDS)
        floor = best_cpu_us(partial(decode, encoded), size, ROUNDS)
        print(f"{size:8,} {text:6.2f} us {args:7.2f} us {floor:6.2f} us {text / floor:15.2f}")
    print(f"(aim: at most {AIM} times the decoding, and the same at every size)\n")


# -- incremental JSON

PIECE = 4  # characters
NAIVE_SIZES = SIZES[:2]  # parsing from the start is quadratic: the larger ones would take minutes


def many_values(pieces: int) -> list[str]:
    """An object with enough short fields and items to fill the pieces, truncated like a stream."""
    row = ', {"id": 12345, "name": "abcdef", "ok": true, "at": 1.25}'
    return cut('{"rows": [0' + row * (pieces * PIECE // len(row) + 1), PIECE)[:pieces]


def long_string(pieces: int) -> list[str]:
    line = "some text of a file to write\\n"
    return cut('{"content": "' + line * (pieces * PIECE // len(line) + 1), PIECE)[:pieces]


def feed_only(pieces: list[str]) -> None:
    parser = PartialJson()
    for piece in pieces:
        parser.feed(piece)


def feed_and_look(pieces: list[str]) -> None:
    parser = PartialJson()
    for piece in pieces:
        parser.feed(piece)
        _ = parser.value


def parse_from_start(pieces: list[str]) -> None:
    """A lower bound for re-parsing on each piece: json's C parser over all the text so far, up to its first error."""
    text = ""
    for piece in pieces:
        text += piece
        try:
            json.loads(text)
        except json.JSONDecodeError:
            continue


ROWS: list[tuple[str, Callable[[list[str]], None], Callable[[int], list[str]], tuple[int, ...]]] = [
    ("many values, feed", feed_only, many_values, SIZES),
    ("many values, feed + look", feed_and_look, many_values, SIZES),
    ("long string, feed", feed_only, long_string, SIZES),
    ("many values, parse from start", parse_from_start, many_values, NAIVE_SIZES),
    ("long string, parse from start", parse_from_start, long_string, NAIVE_SIZES),
]


def print_json() -> None:
    print(f"{'us per piece, by pieces':<31}" + "".join(f"{size:>9,}" for size in SIZES) + f"{'last/first':>12}")
    for name, work, document, sizes in ROWS:
        documents = [document(size) for size in sizes]
        costs = [best_cpu_us(partial(work, pieces), len(pieces), ROUNDS) for pieces in documents]
        cells = "".join(f"{cost:9.2f}" for cost in costs) + " " * 9 * (len(SIZES) - len(sizes))
        print(f"{name:<31}{cells}{costs[-1] / costs[0]:12.2f}")


if __name__ == "__main__":
    print_framing()
    print_assembler()
    print_json()
