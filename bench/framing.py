"""The cost of splitting a body into frames: per event, and per byte when a long frame arrives byte by byte.

The second part shows that the cost is linear: eight times the bytes take eight times as long, not sixty-four.
"""

import time
from collections.abc import Callable

from bartack.formats.framing import AwsEventStream, Framing, JsonArray, Lines, ServerSentEvents
from bench._streams import stream

EVENTS = 8000
SIZES = (20_000, 160_000)


def seconds(framing: Framing, pieces: list[bytes]) -> float:
    start = time.process_time()
    for piece in pieces:
        framing.feed(piece)
    framing.end()
    return time.process_time() - start


def per_event(make: Callable[[], Framing], pieces: list[bytes], events: int) -> float:
    return min(seconds(make(), pieces) for _ in range(7)) / events * 1e6


def main() -> None:
    body = stream("chat", "text", EVENTS)
    lines = b"".join(line.removeprefix(b"data: ") + b"\n" for line in body.split(b"\n\n"))
    bodies: list[tuple[str, Callable[[], Framing], bytes]] = [
        ("server-sent events", ServerSentEvents, body),
        ("lines", Lines, lines),
    ]
    for name, make, data in bodies:
        pieces = [data[start : start + 16384] for start in range(0, len(data), 16384)]
        print(f"{name:20} {per_event(make, pieces, EVENTS):.2f} us per event in writes of 16 KB")
    print("\nbyte by byte, microseconds per byte:", *(f"{size:>10,}" for size in SIZES))
    framings: dict[str, tuple[Callable[[], Framing], bytes, bytes]] = {
        "server-sent events": (ServerSentEvents, b"data: ", b"\n\n"),
        "lines": (Lines, b"", b"\n"),
        "JSON array": (JsonArray, b'[{"a": "', b'"}]'),
        "AWS event stream": (AwsEventStream, b"\x00\x02\x71\x10\x00\x00\x00\x00", b""),
    }
    for name, (make, before, after) in framings.items():
        costs = []
        for size in SIZES:
            long = before + b"x" * size + after
            costs.append(
                seconds(make(), [long[position : position + 1] for position in range(len(long))]) / len(long) * 1e6
            )
        print(f"{name:35}", *(f"{cost:10.2f}" for cost in costs), f"   ratio {costs[1] / costs[0]:.2f}")


if __name__ == "__main__":
    main()
