"""The cost of one piece of incremental JSON as the text grows, which should be constant.

Prints microseconds per piece of four characters, for a document with many short values and one with a single long
string, and the cost of parsing from the start for each piece. This only measures; it never fails.
"""

import json
import time
from collections.abc import Callable

from bartack.stream.partial_json import PartialJson

SIZES = (500, 2_000, 8_000, 32_000, 128_000)  # pieces
NAIVE_SIZES = SIZES[:2]  # quadratic: the larger ones would take minutes
PIECE = 4
ROUNDS = 3  # the best counts; slower rounds were disturbed by other load


def many_values(pieces: int) -> list[str]:
    """An object with enough short fields and items to fill the pieces, truncated like a stream."""
    row = ', {"id": 12345, "name": "abcdef", "ok": true, "at": 1.25}'
    return cut('{"rows": [0' + row * (pieces * PIECE // len(row) + 1), pieces)


def long_string(pieces: int) -> list[str]:
    line = "some text of a file to write\\n"
    return cut('{"content": "' + line * (pieces * PIECE // len(line) + 1), pieces)


def cut(text: str, pieces: int) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, pieces * PIECE, PIECE)]


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


def microseconds_per_piece(work: Callable[[list[str]], None], pieces: list[str]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work(pieces)
        best = min(best, time.perf_counter() - started)
    return best / len(pieces) * 1e6


ROWS: list[tuple[str, Callable[[list[str]], None], Callable[[int], list[str]], tuple[int, ...]]] = [
    ("many values, feed", feed_only, many_values, SIZES),
    ("many values, feed + look", feed_and_look, many_values, SIZES),
    ("long string, feed", feed_only, long_string, SIZES),
    ("many values, parse from start", parse_from_start, many_values, NAIVE_SIZES),
    ("long string, parse from start", parse_from_start, long_string, NAIVE_SIZES),
]


def main() -> None:
    print(f"{'us per piece, by pieces':<31}" + "".join(f"{size:>9,}" for size in SIZES) + f"{'last/first':>12}")
    for name, work, document, sizes in ROWS:
        costs = [microseconds_per_piece(work, document(size)) for size in sizes]
        cells = "".join(f"{cost:9.2f}" for cost in costs) + " " * 9 * (len(SIZES) - len(sizes))
        print(f"{name:<31}{cells}{costs[-1] / costs[0]:12.2f}")


if __name__ == "__main__":
    main()
